"""The network, its layers and its losses, and the batches that it reads."""
