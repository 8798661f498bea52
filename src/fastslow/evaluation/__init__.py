"""What every model writes, and what is built from it: ensemble, submission, tables, plots, HTML report."""
