"""The search for the fastest configuration of a program with few evaluations."""
