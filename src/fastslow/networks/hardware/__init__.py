"""Devices, processes and memory."""
