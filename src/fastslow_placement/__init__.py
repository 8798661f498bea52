"""Placement, scheduling and fusion of compiler graphs: problems, baselines and the policy GO."""
