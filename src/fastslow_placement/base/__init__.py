"""The interface of a decision problem, local search, and the programs that come with the package."""
