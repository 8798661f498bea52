"""Data in, CSV out, score back: download, submission file, upload."""
