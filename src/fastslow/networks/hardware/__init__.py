"""Devices, processes, memory, and weights on disk."""
