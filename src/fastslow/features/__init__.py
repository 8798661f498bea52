"""From competition files to the store of graphs that models read."""
