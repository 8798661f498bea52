"""Rank the compiler configurations of an XLA program from fastest to slowest without running them.

``fastslow.rank``, ``fastslow.tune``, ``fastslow.convert``, ``fastslow.load_models`` and
``fastslow.load_tuned`` are the Python interface (:mod:`fastslow_programs.api`); its libraries are imported when one
of them is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastslow_programs.api import convert, load_models, load_tuned, rank, tune

__version__ = "0.1.0"
__all__ = ["convert", "load_models", "load_tuned", "rank", "tune"]


def __getattr__(name: str) -> Any:
    """Return a function of the Python interface (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'fastslow' has no attribute {name!r}")
    from fastslow_programs import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
