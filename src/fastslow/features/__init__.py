"""From competition files to the graphs that models read."""
