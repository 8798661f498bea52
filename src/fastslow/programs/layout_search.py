"""Search for layout configurations to label: random or genetic, as in TpuGraphs (arXiv 2308.13490)."""

import random
from dataclasses import dataclass, field

from fastslow.xla.layout_space import ConfigurableNode, Configuration, cross, draw, mutate

SEARCHES = ("default", "random")
"""``default`` is a genetic search that starts from the compiler's default; TpuGraphs uses the same names."""

BATCH = 8  # configurations that a program proposes per round
DRAW_RATES = (0.1, 0.3, 0.6)  # probability that a node is set; one is drawn per random configuration
MUTATION_RATES = (0.1, 0.3, 0.6)
CROSSOVER = 0.3  # probability that a configuration has two parents
ELITE = 6  # number of parents: the fastest configurations so far
TRIES = 60  # consecutive draws without a new configuration after which the space counts as exhausted


@dataclass
class Search:
    """The search of one program.

    Args:
        kind: One of :data:`SEARCHES`.
        nodes: The program's configurable nodes.
        name: Seed, together with the number of labels, so that an interrupted search that is run again
            proposes the same.
        labels: Configurations labelled so far with their cycles, None where the compile failed.
        exhausted: Whether no new configuration was found.
    """

    kind: str
    nodes: list[ConfigurableNode]
    name: str
    labels: list[tuple[Configuration, int | None]] = field(default_factory=list)
    exhausted: bool = False

    def succeeded(self) -> list[tuple[Configuration, int]]:
        """Return the configurations with a label, in the order of proposal."""
        return [(configuration, cycles) for configuration, cycles in self.labels if cycles is not None]

    def propose(self, wanted: int) -> list[Configuration]:
        """Return the next configurations to label, only new ones.

        The genetic search begins with the compiler's default and repeats it in its second round, as published
        files repeat configurations.

        Args:
            wanted: Number of labels still missing.

        Returns:
            At most :data:`BATCH` configurations.
        """
        rng = random.Random(f"{self.name}/{self.kind}/{len(self.labels)}")
        seen = {_key(configuration) for configuration, _ in self.labels}
        proposals = [{}] if self.kind == "default" and len(self.labels) in (0, BATCH) else []
        while len(proposals) < min(wanted, BATCH):
            for _ in range(TRIES):
                configuration = self._draw(rng)
                if configuration and _key(configuration) not in seen:
                    break
            else:
                self.exhausted = True
                break
            seen.add(_key(configuration))
            proposals.append(configuration)
        return proposals

    def _draw(self, rng: random.Random) -> Configuration:
        if self.kind == "random":
            return draw(self.nodes, rng, rng.choice(DRAW_RATES))
        parents = [c for c, _ in sorted(self.succeeded(), key=lambda label: label[1])[:ELITE]] or [{}]
        configuration = rng.choice(parents)
        if rng.random() < CROSSOVER:
            configuration = cross(configuration, rng.choice(parents), rng)
        return mutate(configuration, self.nodes, rng, rng.choice(MUTATION_RATES))


def _key(configuration: Configuration) -> tuple:
    return tuple(sorted(configuration.items()))
