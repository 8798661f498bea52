"""Boosted trees that rank configurations, of LightGBM or another library."""
