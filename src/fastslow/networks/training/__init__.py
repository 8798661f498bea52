"""The training: loop, schedule, validation, checkpoints and run folder."""
