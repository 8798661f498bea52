"""Steps of a run: their settings, and what each computes with the science and writes as a folder."""
