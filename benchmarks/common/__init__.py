"""What benchmark scripts share."""
