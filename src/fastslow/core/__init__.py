"""The base of all steps, without a competition: settings, whole-or-absent files, artifacts, progress."""
