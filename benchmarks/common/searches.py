"""Searches over labelled files, without a journal: targets of them, a peer of nevergrad, and the loop."""

import warnings
from pathlib import Path

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, TEST, get_collection, list_programs
from fastslow.core.npz_io import read_arrays
from fastslow.core.settings import resolve
from fastslow.kaggle.solution import read_solution
from fastslow.tuning.history import History, Outcome, Proposal
from fastslow.tuning.settings import TuneSettings
from fastslow.tuning.target import Target, read_target
from fastslow.tuning.tune import make_strategy

NEVERGRAD = "nevergrad"


class Nevergrad:
    """nevergrad's PortfolioDiscreteOnePlusOne; the nearest free listed configuration stands for its wish."""

    name = NEVERGRAD

    def __init__(self, space, budget: int, seed: int):
        import nevergrad

        options = [nevergrad.p.TransitionChoice(range(n)) for n in space.options.tolist()]
        wish = nevergrad.p.Tuple(*options)
        wish.random_state.seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._optimizer = nevergrad.optimizers.registry["PortfolioDiscreteOnePlusOne"](wish, budget)
        self._asked: dict[tuple[int, ...], object] = {}
        self._told = 0

    def propose(self, history: History, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Ask it, after telling it what was evaluated."""
        for proposal, outcome in history.done[self._told :]:
            if proposal.codes in self._asked:
                self._optimizer.tell(self._asked.pop(proposal.codes), outcome.value)
        self._told, taken, found = len(history), set(history.taken), []
        for _ in range(count):
            candidate = self._optimizer.ask()
            fresh = history.space.fresh(np.array([candidate.value], np.uint16), taken, 1, rng)
            for row in fresh:
                proposal = Proposal(tuple(map(int, row)), self.name)
                taken |= set(history.space.keys(fresh))
                self._asked[proposal.codes] = candidate
                found.append(proposal)
        return found


def search(target: Target, strategy: str, budget: int, batch: int, seed: int) -> History:
    """Search a labelled target from a random start, which is the same for every strategy of a seed.

    It ends where the best of all is found.
    """
    settings = TuneSettings(
        strategy="random" if strategy == NEVERGRAD else strategy, seed=seed, evaluations=budget
    )
    own = (
        Nevergrad(target.space, budget, seed) if strategy == NEVERGRAD else make_strategy(settings, target)[0]
    )
    history, space = History(target.space), target.space
    found = [Proposal(tuple(map(int, space.draw(1, np.random.default_rng([seed, 1]))[0])), "start")]
    while found:
        for proposal in found:
            row = space.rows(np.array([proposal.codes]))[0]
            history.add(proposal, Outcome(float(target.labels[row])))
        left = 0 if history.best[1] <= target.labels.min() else min(batch, budget - len(history))
        found = own.propose(history, left, np.random.default_rng([seed, len(history)])) if left > 0 else []
    return history


def replay_target(path: Path, run: str, collection: str = "") -> Target:
    """Return a labelled file as a target; ``run`` is a folder or ``none``."""
    return read_target(TuneSettings(source=str(path), run=run, collection=collection))


def unseen_programs(folder: Path) -> list[tuple[Path, str]]:
    """Write the sample's labelled test programs, both searches of each in one file, and return them.

    Returns:
        The file and the collection of each.
    """
    data, found = resolve("data/sample"), []
    solution = read_solution(data / "solution.csv")
    for collection in (c for c in COLLECTIONS if c.name.endswith(":random")):
        other = get_collection(collection.name.replace(":random", ":default"))
        for program in list_programs(data, collection, TEST):
            parts = [read_whole(c.folder(data, TEST) / program.path.name) for c in (collection, other)]
            arrays = dict(parts[0])
            arrays["node_config_feat"] = np.concatenate([part["node_config_feat"] for part in parts])
            labels = [solution[f"{c.name}:{program.name}"] for c in (collection, other)]
            arrays["config_runtime"] = np.concatenate(labels)
            path = folder / collection.slug / program.path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, **arrays)
            found.append((path, collection.name))
    return found


def read_whole(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of a layout file."""
    keys = ("node_feat", "node_opcode", "edge_index", "config_runtime", "node_config_ids", "node_config_feat")
    return read_arrays(path, [*keys, "node_splits"])
