"""The training: loop, schedule, validation, and when it stops."""
