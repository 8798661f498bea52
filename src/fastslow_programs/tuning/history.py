"""What was evaluated so far, by whom, with which result."""

from dataclasses import dataclass, field

import numpy as np

from fastslow_programs.tuning.search.space import CODE, Space


@dataclass(frozen=True)
class Proposal:
    """A configuration to evaluate.

    Args:
        codes: The option of each choice.
        by: Who proposed it, such as ``default``, ``guided evolutionary``, ``random share``.
        notes: What the proposer needs to resume.
    """

    codes: tuple[int, ...]
    by: str
    notes: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What an evaluation gave.

    Args:
        value: Lower is faster; None where it failed.
        failure: Kind and message of a failure, empty where there is a value.
        seconds: Time that it took.
    """

    value: float | None
    failure: str = ""
    seconds: float = 0.0


class History:
    """Evaluations of one program in their order, and the proposals that are being evaluated.

    Attributes:
        running: Number of evaluations that are under way, in any process.
        pending: Proposals of an interrupted batch that nobody evaluates.

    Args:
        space: Space of the program.
    """

    def __init__(self, space: Space):
        self.space = space
        self.done: list[tuple[Proposal, Outcome]] = []
        self.taken: set[bytes] = set()
        self.running = 0
        self.pending: list[Proposal] = []

    def __len__(self) -> int:
        """Return the number of evaluations, failed ones included."""
        return len(self.done)

    def take(self, proposal: Proposal) -> None:
        """Note that a configuration must not be proposed again."""
        self.taken |= set(self.space.keys(np.array([proposal.codes])))

    def is_taken(self, proposal: Proposal) -> bool:
        """Return whether a configuration was evaluated or is being evaluated."""
        return self.space.keys(np.array([proposal.codes]))[0] in self.taken

    def add(self, proposal: Proposal, outcome: Outcome) -> None:
        """Append an evaluation."""
        self.take(proposal)
        self.done.append((proposal, outcome))

    @property
    def codes(self) -> np.ndarray:
        """``(n, G)`` configurations that have a value."""
        rows = [p.codes for p, o in self.done if o.value is not None]
        return np.array(rows, CODE).reshape(-1, len(self.space.choices))

    @property
    def values(self) -> np.ndarray:
        """``(n,)`` their values."""
        return np.array([o.value for _, o in self.done if o.value is not None])

    @property
    def failures(self) -> list[str]:
        """What the failed evaluations said."""
        return [outcome.failure for _, outcome in self.done if outcome.value is None]

    @property
    def best(self) -> tuple[Proposal, float] | None:
        """The fastest configuration and its value; None where nothing has a value."""
        own = [(p, o.value) for p, o in self.done if o.value is not None]
        return min(own, key=lambda pair: pair[1], default=None)

    def means(self) -> dict[tuple[int, ...], float]:
        """Return the mean log value of each configuration that has a value."""
        logs: dict[tuple[int, ...], list[float]] = {}
        for proposal, outcome in self.done:
            if outcome.value is not None:
                logs.setdefault(proposal.codes, []).append(np.log(outcome.value))
        return {codes: float(np.mean(own)) for codes, own in logs.items()}

    @property
    def curve(self) -> np.ndarray:
        """``(len,)`` best value after each evaluation, infinite before the first value."""
        values = [np.inf if o.value is None else o.value for _, o in self.done]
        return np.minimum.accumulate(np.array(values))

    def evaluation_of(self, codes) -> tuple[Proposal, float] | None:
        """Return a configuration and the mean of its values; None where it was not evaluated, or failed."""
        wanted = tuple(int(c) for c in codes)
        own = [(p, o.value) for p, o in self.done if p.codes == wanted and o.value is not None]
        return (
            (own[0][0], float(np.exp(self.means()[wanted])) if len(own) > 1 else own[0][1]) if own else None
        )

    def value_of(self, codes) -> float | None:
        """Return the value of a configuration, as :meth:`evaluation_of`."""
        found = self.evaluation_of(codes)
        return found[1] if found else None
