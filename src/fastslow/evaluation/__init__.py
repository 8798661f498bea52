"""Predictions of every model, and their products: ensemble, submission, tables, plots, leaderboard."""
