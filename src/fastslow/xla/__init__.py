"""XLA programs: read HLO, make graph arrays, draw layouts, compile for a TPU and read its cost estimate."""
