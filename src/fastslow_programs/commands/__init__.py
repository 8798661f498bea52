"""The commands that read a program of yours."""
