"""Settings of a run: of the whole, by presets, and of its steps by section."""
