"""Rank the compiler configurations of an XLA program from fastest to slowest without running them.

The Python interface, such as ``fastslow.rank``, is in :mod:`fastslow_programs.api` and, for ``place``, in
:mod:`fastslow_placement.api`. It is found by its name when a function is first used: this package imports
nothing of the packages that rest on it.
"""

import importlib
import sys
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "blend",
    "compare",
    "convert",
    "data_quality",
    "leaderboard",
    "load_models",
    "load_placed",
    "load_tuned",
    "measure",
    "place",
    "rank",
    "submit",
    "tune",
    "tuned",
]


def __getattr__(name: str) -> Any:
    """Return a function of the Python interface (PEP 562)."""
    if name not in __all__:
        problem = f"module 'fastslow' has no attribute {name!r}"
        raise AttributeError(problem, name=name, obj=sys.modules[__name__])  # Python asks: did you mean ...?
    shelf = "fastslow_placement" if name in ("place", "load_placed") else "fastslow_programs"
    return getattr(importlib.import_module(f"{shelf}.api"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
