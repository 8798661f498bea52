"""What our models are compared with: independent slow forms, and the competition's 1st place."""
