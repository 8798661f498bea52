"""A Dask cluster whose workers run steps of the workflow."""
