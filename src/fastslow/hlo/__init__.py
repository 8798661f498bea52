"""HLO protobufs and text: messages, reader, and the arrays of a competition file."""
