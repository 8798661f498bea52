"""The space of a search: tied choices as small numbers, free or limited to a list of configurations."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

CODE = np.uint16
"""Type of options."""
ENUMERATED = 4096  # a space of at most this many configurations is listed whole


@dataclass(frozen=True)
class Choice:
    """One tied choice.

    Args:
        where: Node and tensor in words.
        options: Each option in words, such as ``{1,0}``.
        default: The option of the default configuration.
        weights: Relative probability of each option in a random configuration; equal by default.
        ordered: Whether neighbours among the options are alike, such as sizes in their order.
    """

    where: str
    options: tuple[str, ...]
    default: int
    weights: tuple[float, ...] = ()
    ordered: bool = False


class Space:
    """Configurations as rows of options, ``(n, G)`` uint16 for G choices.

    Args:
        choices: The choices.
        listed: ``(C, G)`` distinct configurations; no other may be proposed. By default any combination of
            options may be.
        joint: Positions ``(J,)`` of choices that depend on each other, and the combinations ``(C, J)`` of
            their options that may be proposed, where too many configurations cannot be listed.

    Attributes:
        listed: ``(C, G)`` the configurations that may be proposed; None where any combination may be and
            there are more than ``ENUMERATED``.
        default: ``(G,)`` the default configuration.
    """

    def __init__(
        self,
        choices: Sequence[Choice],
        listed: np.ndarray | None = None,
        joint: tuple[Sequence[int], np.ndarray] | None = None,
    ):
        self.choices = list(choices)
        self.options = np.array([len(c.options) for c in choices], np.int64)
        self.default = np.array([c.default for c in choices], CODE)
        self._offsets = np.cumsum(self.options) - self.options
        self._limits = np.ones((len(choices), self.options.max(initial=1)))
        for row, choice in zip(self._limits, choices, strict=True):
            weights = np.array(choice.weights or [1.0] * len(choice.options))
            row[: len(weights)] = np.cumsum(weights / weights.sum())
            row[len(weights) - 1 :] = 1.0
        self.size = prod(self.options.tolist()) if listed is None else len(listed)
        self._joint = joint
        if joint is not None:
            columns, rows = joint
            self.size = self.size // prod(self.options[[*columns]].tolist()) * len(rows)
            self._allowed = {*self.keys(rows)}
        elif listed is None and self.size <= ENUMERATED:
            listed = np.indices(tuple(self.options)).reshape(len(choices), -1).T
        self.listed = None if listed is None else np.ascontiguousarray(listed, CODE)
        self._hot = None if listed is None else self.one_hot(self.listed)
        self._row = {} if listed is None else {key: r for r, key in enumerate(self.keys(self.listed))}

    def keys(self, codes: np.ndarray) -> list[bytes]:
        """Return a hashable key of each configuration."""
        return [row.tobytes() for row in np.ascontiguousarray(codes, CODE)]

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """Return the positions ``(n,)`` in ``listed`` of listed configurations ``(n, G)``."""
        return np.array([self._row[key] for key in self.keys(codes)], np.int64)

    def one_hot(self, codes: np.ndarray) -> np.ndarray:
        """Return ``(n, O)`` float32 of ``codes (n, G)``, O the options of all choices: 1 where taken."""
        hot = np.zeros((len(codes), int(self.options.sum())), np.float32)
        np.put_along_axis(hot, codes.astype(np.int64) + self._offsets, 1.0, 1)
        return hot

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Sample ``count`` configurations ``(count, G)``, repeats possible.

        Listed ones are equally likely, as are joint combinations; every other choice is drawn by its weights.
        """
        if self.listed is not None:
            return self.listed[rng.integers(len(self.listed), size=count)]
        chance = rng.random((count, len(self.options)))
        codes: np.ndarray = (chance[..., None] >= self._limits[:, :-1]).sum(-1).astype(CODE)
        if self._joint is not None:
            columns, rows = self._joint
            codes[:, columns] = rows[rng.integers(len(rows), size=count)]
        return codes

    def neighbours(self, codes: np.ndarray) -> np.ndarray:
        """Return the configurations ``(n, G)`` that differ from ``codes (G,)`` in one choice."""
        choice = np.repeat(np.arange(len(self.options)), self.options)
        option = np.concatenate([np.arange(count) for count in self.options])
        changed = np.repeat(np.asarray(codes, CODE)[None], len(choice), 0)
        changed[np.arange(len(choice)), choice] = option
        return changed[option != np.asarray(codes)[choice]]

    def fresh(self, codes: np.ndarray, taken: set[bytes], count: int, rng: np.random.Generator) -> np.ndarray:
        """Return up to ``count`` allowed configurations that are not taken, in the order wished.

        Args:
            codes: ``(n, G)`` wishes. Where configurations are listed, the nearest free one replaces each;
                of joint choices the nearest combination that may be proposed does.
            taken: Keys of those that must not be proposed.
            count: Number wanted.
            rng: Decides between equally near ones.
        """
        if self._joint is not None:
            columns, rows = self._joint
            codes = np.array(codes, CODE)
            for code, key in zip(codes, self.keys(codes[:, columns]), strict=True):
                if key not in self._allowed:
                    near = (rows == code[columns]).sum(1) + 0.5 * rng.random(len(rows))
                    code[columns] = rows[near.argmax()]
        if self.listed is None:
            free = {k: c for k, c in zip(self.keys(codes), codes, strict=True) if k not in taken}
            return np.array(list(free.values())[:count], CODE).reshape(-1, codes.shape[1])
        is_free = np.ones(len(self.listed), bool)
        is_free[[self._row[key] for key in taken if key in self._row]] = False
        picked: list[int] = []
        for hot in self.one_hot(codes[: 4 * count]):
            if len(picked) == count or not is_free.any():
                break
            near = self._hot @ hot + 0.5 * rng.random(len(is_free))
            picked.append(int(np.where(is_free, near, -np.inf).argmax()))
            is_free[picked[-1]] = False
        return self.listed[picked]

    def untaken(self, codes: np.ndarray, taken: set[bytes]) -> np.ndarray:
        """Return the rows of ``codes (n, G)`` whose keys are not taken."""
        return codes[[key not in taken for key in self.keys(codes)]]

    def describe(self, codes: Sequence[int]) -> list[dict[str, str]]:
        """Return the choices in which a configuration ``codes (G,)`` differs from the default.

        Returns:
            An entry for each such choice: ``where`` names the choice, ``layout`` is the option taken and
            ``default`` the default's option, in words.
        """
        return [
            {"where": c.where, "layout": c.options[option], "default": c.options[c.default]}
            for c, option in zip(self.choices, codes, strict=True)
            if option != c.default
        ]

    def in_words(self, codes: Sequence[int]) -> str:
        """Describe a configuration ``(G,)`` in a sentence, against the default."""
        from fastslow_programs.ranking.choices import change_in_words  # which imports pandas

        told = [change_in_words(d["where"], d["layout"], d["default"]) for d in self.describe(codes)]
        return "; ".join(told) or "as the default"
