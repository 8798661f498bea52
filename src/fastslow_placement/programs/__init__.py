"""Compiler graphs with costs, and the problems on them: placement, scheduling, fusion."""
