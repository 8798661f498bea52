"""Which configurations a search tries next: the space of changes, strategies and what a search learns."""
