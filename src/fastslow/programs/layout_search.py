"""Search for layout configurations to label: drawn at random, or bred from the fastest, as in TpuGraphs."""

import random
from dataclasses import dataclass, field

from fastslow.xla.layout_space import ConfigurableNode, Configuration, cross, draw, mutate

SEARCHES = ("default", "random")
"""``default`` is a genetic search that starts from the compiler's default; both names are TpuGraphs'."""

BATCH = 8  # configurations a program proposes between two looks at the labels
DRAW_RATES = (0.1, 0.3, 0.6)  # share of nodes that a random configuration sets, one drawn for each
MUTATION_RATES = (0.1, 0.3, 0.6)
CROSSOVER = 0.3  # probability that a configuration has two parents
ELITE = 6  # the fastest so far, the parents
TRIES = 60  # draws in a row without a new configuration, after which the space counts as exhausted


@dataclass
class Search:
    """The search of one program.

    Args:
        kind: One of :data:`SEARCHES`.
        nodes: The program's configurable nodes.
        name: What chance depends on, with the number of labels; so a search that is interrupted and run again
            proposes the same.
        labels: What was labelled so far: configuration and cycles, None where the compile failed.
        exhausted: No new configuration was found.
    """

    kind: str
    nodes: list[ConfigurableNode]
    name: str
    labels: list[tuple[Configuration, int | None]] = field(default_factory=list)
    exhausted: bool = False

    def succeeded(self) -> list[tuple[Configuration, int]]:
        """The configurations with a label, in the order in which they were proposed."""
        return [(configuration, cycles) for configuration, cycles in self.labels if cycles is not None]

    def propose(self, wanted: int) -> list[Configuration]:
        """The next configurations to label, new ones only.

        The genetic search begins with the compiler's default and repeats it in its second round, as published
        files repeat configurations.

        Args:
            wanted: How many labels are still missing; at most :data:`BATCH` configurations come at once.
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
