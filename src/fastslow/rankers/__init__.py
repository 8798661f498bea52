"""Boosted trees: a LightGBM ranker per configuration, and an additive ranker over states."""
