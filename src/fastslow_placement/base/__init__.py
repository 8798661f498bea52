"""The interface of a decision problem and local search."""
