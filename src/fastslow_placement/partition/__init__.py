"""Splits of a workload into parts (dnn-partitioning): loads and cuts."""
