"""References for our models: an independent dense form, and the competition's 1st place."""
