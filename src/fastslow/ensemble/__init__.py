"""Rules that a model has to beat, and the weighted mean of several models."""
