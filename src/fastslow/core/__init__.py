"""What every step needs and no competition knows: settings, whole-or-absent files, artifacts, progress."""
