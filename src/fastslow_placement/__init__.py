"""Placement, scheduling and fusion of compiler graphs: problems, rules and searches."""
