"""Where a private score stands on the competition's final board: place and medal.

Of the board only some places are kept here, so a score between two of them has a range of places. Medals
are Kaggle's for 250 to 999 teams (kaggle.com/progression): gold for the first 10 and 0.2 % of the teams,
silver up to place 50, bronze up to place 100.
"""

from typing import NamedTuple

TEAMS = 617
"""Entries of the private board."""
PRIVATE = ((1, 0.72608), (11, 0.69927), (31, 0.63135), (62, 0.53226), ((TEAMS + 1) // 2, 0.18937))
"""Places and their private scores; the last is the median."""
MEDALS = ((10 + 2 * TEAMS // 1000, "gold"), (50, "silver"), (100, "bronze"), (TEAMS, "no medal"))
"""The last place of each medal."""


class Standing(NamedTuple):
    """The places that a score may have on the final board, and their medals.

    Args:
        first: Best place, from 1.
        last: Worst place; other than ``first`` where the published scores do not tell teams apart.
    """

    first: int
    last: int

    @property
    def place(self) -> str:
        """The places in words, such as ``12 to 31``."""
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"

    @property
    def medal(self) -> str:
        """The medal, or the two that are possible."""
        medals = [next(name for last, name in MEDALS if place <= last) for place in (self.first, self.last)]
        return " or ".join(dict.fromkeys(medals))


def standing_of(private: float) -> Standing:
    """Return where a private score would have stood: behind the teams that have more.

    Args:
        private: Kaggle's private score, at most 1.
    """
    better = [place for place, score in PRIVATE if score > private]
    if not better:
        return Standing(1, 1)
    worse = [place for place, _ in PRIVATE if place not in better]
    return Standing(better[-1] + 1, worse[0] if worse else TEAMS)
