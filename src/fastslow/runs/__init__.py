"""Folders that one step writes and another reads: features and predictions, whole or absent."""
