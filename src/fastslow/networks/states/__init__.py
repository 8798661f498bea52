"""Deduplicated states: exact, and the sparse products and set statistics on them."""
