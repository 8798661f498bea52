"""The features of a node: its padded columns, its place in the graph, attributes of its HLO."""
