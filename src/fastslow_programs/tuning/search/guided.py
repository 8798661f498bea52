"""The guided strategy: a model scores thousands of candidates, the evaluator sees the few most promising.

After every batch the model is fitted again, to the values of this program joined with the pre-trained
prediction. The loop is Ansor's (Zheng et al. 2020, arXiv 2006.06762): most of a batch are the candidates with
the largest expected improvement, a share is random.
"""

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
from scipy.special import ndtr

from fastslow_programs.ranking.known_models import Configurations, Encoder, Known, Stack
from fastslow_programs.tuning.history import History, Proposal
from fastslow_programs.tuning.search.space import CODE, Space
from fastslow_programs.tuning.search.strategies import GUIDED, Process, children, fastest, proposals, thinned

CANDIDATES = 2048  # that are scored for each batch
EXPLORE = 0.05  # share of random configurations in a batch
GENERATIONS = 4  # of the search among candidates; Ansor's number
RANDOM_SHARE = f"{GUIDED}: random share"  # who proposed a random configuration of a guided batch
FRESH = 0.3  # share of random candidates in the first generation
_REFERENCE, _DRAWN = 4096, 512  # most listed configurations that are the scale; else, number of random ones

Pretrained = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A trained run: of configurations ``(n, G)``, predictions ``(n,)`` and features ``(n, F)``, standardised."""


class Surrogate:
    """The average of :mod:`fastslow_programs.ranking.known_models`, fitted to some configurations' values.

    Args:
        encoder: The program's scale.
        configurations: ``n`` distinct configurations.
        numbers: ``(m,)`` position of each value's configuration among them.
        values: ``(m,)`` positive, m at least 1.
    """

    def __init__(
        self, encoder: Encoder, configurations: Configurations, numbers: np.ndarray, values: np.ndarray
    ):
        kept = np.isin(numbers, thinned(Known(numbers, values).config))
        known = Known(numbers[kept], values[kept])
        self._stack = Stack(encoder(configurations.take(known.config)), known)
        self._encoder, self._best, self._unit = encoder, float(known.score.min()), known.unit

    def predict(self, configurations: Configurations) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation ``(n,)`` of the scores, lower = faster."""
        return self._stack.predict(self._encoder(configurations))

    def improvement(self, configurations: Configurations) -> np.ndarray:
        """Return the expected improvement ``(n,)`` over the best value so far, as a difference of log values.

        Mockus et al. 1978; Jones et al. 1998, equation 15.
        """
        mean, deviation = self.predict(configurations)
        gain, deviation = self._best - mean, np.maximum(deviation, 1e-9)
        z = gain / deviation
        return self._unit * (gain * ndtr(z) + deviation * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))


class Guide:
    """Fits the model to a history, and keeps what the trained run said of each configuration.

    Args:
        space: The program's space.
        pretrained: The trained run, None for only the program's own values.
    """

    def __init__(self, space: Space, pretrained: Pretrained | None = None):
        self.space, self.pretrained = space, pretrained
        self._known: dict[bytes, tuple[float, np.ndarray]] = {}

    def configurations(self, codes: np.ndarray) -> Configurations:
        """Return configurations ``(n, G)`` with the trained run's predictions and features of them."""
        if self.pretrained is None:
            return Configurations(codes, *[np.zeros((len(codes), 0))] * 2)
        keys = self.space.keys(codes)
        new = {key: row for row, key in enumerate(keys) if key not in self._known}
        if new:
            prior, features = self.pretrained(codes[list(new.values())])
            self._known |= dict(zip(new, zip(prior.tolist(), features, strict=True), strict=True))
        prior, features = zip(*(self._known[key] for key in keys), strict=True)
        return Configurations(codes, np.array(features), np.array(prior)[:, None])

    @cached_property
    def encoder(self) -> Encoder:
        """The program's scale: of all listed configurations, or of many random ones."""
        space = self.space
        if space.listed is not None and len(space.listed) <= _REFERENCE:
            return Encoder(self.configurations(space.listed))
        drawn = space.draw(_DRAWN, np.random.default_rng(0))
        return Encoder(self.configurations(np.concatenate([space.default[None], drawn])))

    def fit(self, history: History) -> Surrogate:
        """Return the model fitted to a history with at least one value."""
        codes = history.codes
        _, first, numbers = np.unique(self.space.keys(codes), return_index=True, return_inverse=True)
        return Surrogate(self.encoder, self.configurations(codes[first]), numbers, history.values)

    def promise(self, model: Surrogate | None, codes: np.ndarray) -> np.ndarray:
        """Return the expected improvement ``(n,)``; without a model, minus the trained run's prediction."""
        own = self.configurations(codes)
        return model.improvement(own) if model else -own.predictions[:, 0]


class Guided:
    """The strategy whose candidates a model chooses from: mutation and crossover make them, in generations.

    Args:
        guide: The model's inputs.
        candidates: Candidates that are scored for each batch.
        explore: Share of random configurations in a batch.
    """

    name = GUIDED

    def __init__(self, guide: Guide, candidates: int = CANDIDATES, explore: float = EXPLORE):
        self.guide, self.candidates, self.explore = guide, candidates, explore

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Propose the candidates of the largest expected improvement, and a random share.

        Without a trained run Optuna's process proposes half of a batch: on some spaces it is far ahead of the
        search here, on others far behind.
        """
        found = [] if self.guide.pretrained else Process().propose(history, (count + 1) // 2, rng)
        history = history.beside([proposal.codes for proposal in found])
        chosen = self.ranked(history, count - len(found), rng)
        chance = rng.binomial(count - len(found), self.explore)
        found += proposals(chosen[: count - len(found) - chance], self.name)
        taken = history.beside([proposal.codes for proposal in found]).taken
        rest = history.space.draw(16 * count, rng)
        return found + proposals(history.space.fresh(rest, taken, count - len(found), rng), RANDOM_SHARE)

    def ranked(self, history: History, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return new candidates, the most promising first; none before the first value without a run."""
        space, model = history.space, None
        if len(history.values):
            model = self.guide.fit(history)
        elif self.guide.pretrained is None:
            return np.zeros((0, len(space.choices)), CODE)
        codes, gain = self._search(history, partial(self.guide.promise, model), rng)
        return codes[np.argsort(-gain, kind="stable")[: max(count, 1)]]

    def _search(self, history: History, score, rng) -> tuple[np.ndarray, np.ndarray]:
        space = history.space
        if space.listed is not None:
            codes = self._of_list(history, rng)
            return codes, score(codes) if len(codes) else np.zeros(0)
        size = max(2, self.candidates // GENERATIONS)
        fresh = space.draw(max(1, int(FRESH * size)), rng)
        states = np.concatenate([children(space, fastest(history), size - len(fresh), rng), fresh])
        gain = score(states)
        seen = [(states, gain)]
        for _ in range(1, GENERATIONS):
            parents = states[np.argsort(-gain, kind="stable")[: max(2, len(states) // 8)]]
            states = children(space, parents, len(states), rng)
            gain = score(states)
            seen.append((states, gain))
        codes, gains = (np.concatenate(parts) for parts in zip(*seen, strict=True))
        new = {key: row for row, key in enumerate(space.keys(codes)) if key not in history.taken}
        rows = list(new.values())
        return codes[rows], gains[rows]

    def _of_list(self, history: History, rng) -> np.ndarray:
        """Return listed configurations that are free: all, or of too many, random ones and neighbours."""
        codes = history.space.free(history.taken)
        if len(codes) <= self.candidates:
            return codes
        drawn = rng.choice(len(codes), self.candidates, replace=False)
        if not len(history.values):
            return codes[drawn]
        near = history.space.one_hot(codes) @ history.space.one_hot(fastest(history)).max(0)
        nearest = np.argsort(-near, kind="stable")[: self.candidates // 2]
        return codes[np.union1d(drawn[self.candidates // 2 :], nearest)]
