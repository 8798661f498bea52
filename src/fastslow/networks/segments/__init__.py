"""Graph Segment Training (arXiv 2305.12322); the default training never imports it."""
