"""The TPU compiler and XLA on this machine: layouts, constraints, compiling, labels."""
