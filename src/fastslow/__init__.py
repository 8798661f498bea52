"""Rank the compiler configurations of an XLA program from fastest to slowest without running them."""

__version__ = "0.1.0"
