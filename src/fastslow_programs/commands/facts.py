"""Facts as the commands for a program of yours print them."""

from collections.abc import Mapping
from typing import Any


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print one fact a line, the values below each other."""
    for name, value in facts.items():
        print(f"{name:26} {value}")
