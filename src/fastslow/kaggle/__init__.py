"""Kaggle: the download of the data, runs on its GPUs, the upload of a CSV and its score."""
