"""Tied choices: the few choices that a layout configuration makes, and sets of them."""
