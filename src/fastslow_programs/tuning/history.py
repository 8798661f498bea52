"""The evaluations so far: configurations, proposers and results."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fastslow.competition.runtimes import RUNTIME, are_runtimes
from fastslow_programs.tuning.search.space import CODE, Space

KNOWN = "known"
"""Who proposed a configuration that was measured before the study began."""


@dataclass(frozen=True)
class Proposal:
    """A configuration to evaluate.

    Args:
        codes: The option of each choice.
        by: Who proposed it, such as ``default``, ``guided``, ``random``.
        notes: Notes that the proposer reads when it continues from a history.
    """

    codes: tuple[int, ...]
    by: str
    notes: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """The outcome of one evaluation of a configuration.

    Args:
        value: Lower is faster; None where it failed. The unit is the evaluator's.
        failure: Kind and message of a failure, empty where there is a value.
        seconds: Duration of the evaluation.
        code: Digest of the code that was measured, where a function of the user's makes it for each
            configuration; empty otherwise.
    """

    value: float | None
    failure: str = ""
    seconds: float = 0.0
    code: str = ""

    def checked(self) -> "Evaluation":
        """Return it, or a failure where its value can be no runtime, whichever evaluator gave it."""
        if self.value is None or are_runtimes(self.value):
            return self
        failure = f"failed: its value is {self.value!r:.40}, {RUNTIME} wanted"
        return replace(self, value=None, failure=failure)


class History:
    """Evaluations of one program in their order."""

    def __init__(self, space: Space, done: Sequence[tuple[Proposal, Evaluation]] = ()):
        self.space = space
        self.done: list[tuple[Proposal, Evaluation]] = []
        self.taken: set[bytes] = set()
        for proposal, evaluation in done:
            self.add(proposal, evaluation)

    def __len__(self) -> int:
        """Return the number of evaluations, failed ones and known values included."""
        return len(self.done)

    @property
    def spent(self) -> int:
        """Number of evaluations of this study; what was known before it is none."""
        return sum(proposal.by != KNOWN for proposal, _ in self.done)

    def add(self, proposal: Proposal, evaluation: Evaluation) -> None:
        """Append an evaluation; its configuration counts as taken."""
        self.taken |= set(self.space.keys(np.array([proposal.codes])))
        self.done.append((proposal, evaluation))

    def beside(self, codes: Sequence[Sequence[int]]) -> "History":
        """Return the same evaluations with more configurations taken, such as the others of a batch."""
        history = History(self.space, self.done)
        rows = np.array(codes, CODE).reshape(-1, len(self.space.choices))
        history.taken = self.taken | set(self.space.keys(rows))
        return history

    @property
    def codes(self) -> np.ndarray:
        """``(n, G)`` integers from 0: the option of each choice, for each of n evaluations with a value.

        They are in the order of the evaluations; a configuration that was evaluated twice is there twice.
        """
        rows = [p.codes for p, e in self.done if e.value is not None]
        return np.array(rows, CODE).reshape(-1, len(self.space.choices))

    @property
    def values(self) -> np.ndarray:
        """``(n,)`` their values, in the unit of the evaluator."""
        return np.array([e.value for _, e in self.done if e.value is not None])

    @property
    def failures(self) -> list[str]:
        """Kind and message of each failed evaluation, in order."""
        return [evaluation.failure for _, evaluation in self.done if evaluation.value is None]

    @property
    def best(self) -> tuple[Proposal, float] | None:
        """The fastest configuration and its value; None where nothing has a value."""
        valued = [(p, e.value) for p, e in self.done if e.value is not None]
        return min(valued, key=lambda pair: pair[1], default=None)

    def means(self) -> dict[tuple[int, ...], float]:
        """Return the mean log value of each configuration that has a value."""
        logs: dict[tuple[int, ...], list[float]] = {}
        for proposal, evaluation in self.done:
            if evaluation.value is not None:
                logs.setdefault(proposal.codes, []).append(np.log(evaluation.value))
        return {codes: float(np.mean(values)) for codes, values in logs.items()}

    @property
    def curve(self) -> np.ndarray:
        """``(len,)`` best value after each evaluation, infinite before the first value."""
        values = [np.inf if e.value is None else e.value for _, e in self.done]
        return np.minimum.accumulate(np.array(values))

    def evaluation_of(self, codes) -> tuple[Proposal, float] | None:
        """Return a configuration ``(G,)`` and the geometric mean of its values; None if it has no value."""
        key = tuple(int(c) for c in codes)
        valued = [(p, e.value) for p, e in self.done if p.codes == key and e.value is not None]
        if not valued:
            return None
        proposal, value = valued[0]
        if len(valued) > 1:
            value = float(np.exp(self.means()[key]))
        return proposal, value
