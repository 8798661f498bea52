"""The organisers' definitions: collections, file schema, node columns, opcodes, metrics."""
