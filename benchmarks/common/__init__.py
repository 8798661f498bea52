"""Code that benchmark scripts share."""
