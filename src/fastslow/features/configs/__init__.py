"""The features of a configuration: its tensors, ratios of padding, copies, bounds of tiles."""
