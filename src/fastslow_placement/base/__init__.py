"""The interface of a decision problem, its budget, local search and the public file formats."""
