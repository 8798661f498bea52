"""What every model writes, and what is made of it: predictions, ensemble, tables, plots."""
