"""Boosted trees: a LightGBM ranker of configurations."""
