"""Spaces of a search, made up."""

from fastslow_programs.tuning.search.space import Choice


def choices(*options):
    """Choices with these numbers of options; the last option is the default."""
    return [
        Choice(f"dot.{n}: output", tuple(f"{{{o}}}" for o in range(count)), default=count - 1)
        for n, count in enumerate(options)
    ]
