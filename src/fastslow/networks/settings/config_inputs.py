"""Which features of a configuration as a whole a network reads, by name."""

from collections.abc import Sequence

from fastslow.competition.schema import TILE_DIMENSIONS, TILE_ROLES

CONFIG_INPUTS = ("all", "published", "violation", "none")
VIOLATION = "violation_ratio"
PUBLISHED = tuple(
    f"{role}_{name}"
    for role in TILE_ROLES
    for name in (
        *(f"bound_{d}_log" for d in range(TILE_DIMENSIONS)),
        "bound_sum_log",
        "bound_product_log",
    )
)
"""The 24 columns of a tile file's ``config_feat``, as logarithms."""


def config_columns(text: str, names: Sequence[str]) -> list[int]:
    """Return the positions of the columns of ``config_feat`` that a network reads.

    Args:
        text: One of :data:`CONFIG_INPUTS`.
        names: Names of the columns.
    """
    wanted = {"all": names, "published": PUBLISHED, "violation": (VIOLATION,), "none": ()}[text]
    return [names.index(name) for name in wanted]
