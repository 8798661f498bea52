"""The graph neural network over deduplicated states, and its training."""
