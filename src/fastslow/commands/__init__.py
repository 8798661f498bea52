"""The commands of more than one call: checks first, then a notebook, then what is printed."""
