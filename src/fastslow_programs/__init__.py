"""Your own program: read it, convert it, rank and tune its configurations."""
