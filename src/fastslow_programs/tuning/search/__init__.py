"""The choice of the next configurations of a search: the space of changes, and strategies."""
