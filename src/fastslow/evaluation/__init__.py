"""Scores of predictions and of submissions: tables, plots, comparisons, blends, leaderboard."""
