"""The guided strategy: in the order of a trained run's prediction, and then from the fastest outwards.

The first batches are the configurations that the run predicts fastest, until at least ``START`` are known.
Then come the nearest untried ones to the fastest so far, by the number of choices in which they differ;
equally near ones are in the order of the prediction.
So the prediction decides what is tried first, and the values decide around what. Nothing is fitted: on
programs that training has not seen, models that learn from the values gained nothing over this
(``benchmarks/tune.py``). Without a run the order of the prediction is a random one.
"""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from fastslow_programs.tuning.history import History, Proposal
from fastslow_programs.tuning.search.space import Space
from fastslow_programs.tuning.search.strategies import GUIDED, proposals

START = 4  # chosen on the sample's valid programs
POOL = 2048  # configurations drawn of a space that is too large to list; the prediction ranks them once

Pretrained = Callable[[np.ndarray], np.ndarray]
"""A trained run: predictions ``(n,)`` of configurations ``(n, G)``, lower = faster; comparable in a call."""


class Guided:
    """The strategy that follows a prediction and stays near the fastest.

    Args:
        space: The program's space.
        pretrained: The trained run; None for a random order.
        start: Number of configurations, the default included, before values decide.
    """

    name = GUIDED

    def __init__(self, space: Space, pretrained: Pretrained | None = None, start: int = START):
        self.space, self.pretrained, self.start = space, pretrained, start

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Propose up to ``count`` configurations that are not taken; fewer where few are left.

        Args:
            history: The evaluations so far.
            count: Number wanted.
            rng: Source of the order without a run.
        """
        chosen: dict[bytes, np.ndarray] = {}
        for codes in self._in_order(history, rng):
            for key, row in zip(self.space.keys(codes), codes, strict=True):
                if key not in history.taken and len(chosen) < count:
                    chosen.setdefault(key, row)
            if len(chosen) == count:
                break
        return proposals(list(chosen.values()), self.name)

    def _in_order(self, history: History, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield configurations ``(n, G)`` in the order in which they are proposed, some of them taken."""
        prediction = self._of_pool if self.pretrained else self._predict(self._pool, rng)
        ranked = self._pool[np.argsort(prediction, kind="stable")]
        fastest = history.codes[np.argsort(history.values, kind="stable")]
        if len(history.taken) < self.start or not len(fastest):
            yield ranked
            return
        if self.space.listed is not None:
            distance = (self._pool != fastest[0]).sum(1)
            yield self._pool[np.lexsort((prediction, distance))]
            return
        for codes in fastest:
            near = self.space.untaken(self.space.neighbours(codes), history.taken)
            if len(near):
                yield near[np.argsort(self._predict(near, rng), kind="stable")]

    @cached_property
    def _pool(self) -> np.ndarray:
        """The listed configurations, or of too many, random ones."""
        if self.space.listed is not None:
            return self.space.listed
        return np.unique(self.space.draw(POOL, np.random.default_rng(0)), axis=0)

    @cached_property
    def _of_pool(self) -> np.ndarray:
        return self._predict(self._pool)

    def _predict(self, codes: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        return self.pretrained(codes) if self.pretrained else rng.random(len(codes))
