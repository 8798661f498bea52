"""What the organisers define: collections, file schema, node columns, opcodes, metrics."""
