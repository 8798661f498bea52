"""Settings of a network and its training, and the constraints between them; without torch."""
