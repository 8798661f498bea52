"""Search for layout configurations to label: random or genetic, as in TpuGraphs (arXiv 2308.13490)."""

import random
from dataclasses import dataclass, field

from fastslow_programs.compiler.layout_choices import (
    Configuration,
    TiedChoice,
    default_configuration,
    draw_configuration,
    mutate,
)

SEARCHES = ("default", "random")
"""``default`` is a genetic search that starts from the compiler's default; TpuGraphs uses the same names."""

MUTATION_RATES = (0.1, 0.3, 0.7)  # probability that a choice is drawn again; one per configuration
CROSSOVER = 0.5  # probability that a configuration has two parents
ELITE = 8  # number of parents: the fastest configurations so far
BATCH = 8  # configurations that a program proposes per round
TRIES = 60  # consecutive draws without a new configuration after which the space counts as exhausted


@dataclass
class Search:
    """The search of one program.

    Args:
        kind: One of :data:`SEARCHES`.
        choices: The program's tied choices.
        name: Seed, together with the number of labels, so that an interrupted search that is run again
            proposes the same.
        labels: Configurations labelled so far with their cycles, None where the compile failed.
        exhausted: Whether no new configuration was found.
    """

    kind: str
    choices: list[TiedChoice]
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
        seen = {configuration for configuration, _ in self.labels}
        repeats = self.kind == "default" and len(self.labels) in (0, BATCH)
        proposals = [default_configuration(self.choices)] if repeats else []
        seen.update(proposals)
        parents = self._parents(rng)
        while len(proposals) < min(wanted, BATCH):
            for _ in range(TRIES):
                configuration = self._draw(rng, parents)
                if configuration not in seen:
                    break
            else:
                self.exhausted = True
                break
            seen.add(configuration)
            proposals.append(configuration)
        return proposals

    def _parents(self, rng: random.Random) -> list[Configuration]:
        """Return the fastest configurations so far; which of equally fast ones is left to chance."""
        labels = self.succeeded()
        rng.shuffle(labels)
        fastest = sorted(labels, key=lambda label: label[1])[:ELITE]
        return [configuration for configuration, _ in fastest] or [default_configuration(self.choices)]

    def _draw(self, rng: random.Random, parents: list[Configuration]) -> Configuration:
        if self.kind == "random":
            return draw_configuration(self.choices, rng)
        configuration = rng.choice(parents)
        if rng.random() < CROSSOVER:
            pairs = zip(configuration, rng.choice(parents), strict=True)
            configuration = tuple(rng.choice(pair) for pair in pairs)  # uniform crossover
        return mutate(configuration, self.choices, rng, rng.choice(MUTATION_RATES))
