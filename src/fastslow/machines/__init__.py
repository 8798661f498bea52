"""Several machines: a Dask cluster whose workers run the steps of a run."""
