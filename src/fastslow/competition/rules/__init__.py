"""What no program can have: the table of opcodes, and the rules of nodes of a competition file."""
