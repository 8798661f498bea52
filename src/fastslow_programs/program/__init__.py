"""A program of yours, and its competition file."""
