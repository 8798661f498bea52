"""Graphs as batches, and predictions of sets of any size."""
