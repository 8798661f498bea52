"""The steps of ``make submit``: presets, the steps of a run, their order and the pools that run them."""

import logging
import sys

# papermill imports jsonschema, which would compile a grammar of international web addresses, for seconds: at
# every start of a command. No notebook is checked against it, and without it jsonschema checks all else.
sys.modules.setdefault("rfc3987_syntax", None)

# in every process that executes notebooks, such as a Dask worker's: papermill warns of each setting that the
# parameters cell of a notebook does not list
logging.getLogger("papermill").setLevel(logging.ERROR)
