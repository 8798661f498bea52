"""Sharding problems (iopddl): costs, tied strategies and search."""
