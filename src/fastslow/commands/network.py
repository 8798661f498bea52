"""One network of a run in the processes of torchrun: the command ``train-network``."""

from fastslow.core.errors import ConfigError
from fastslow.core.settings import Unread
from fastslow.networks.config import TrainConfig
from fastslow.networks.distributed import is_first
from fastslow.networks.train import train
from fastslow.workflow.run_config import RunConfig, make_plan


class NetworkRunConfig(RunConfig):
    """Settings of a run, of which one network is trained."""

    network: str = "training-layout-s0"
    """Which one: its training's folder, as ``make train`` names it."""

    def unread(self) -> Unread:
        """Return the fields of whole runs."""
        return {"plan": ("for one network", "plan the run (fastslow train --plan)")}


def train_network(config: NetworkRunConfig) -> None:
    """Train one network of a run from its finished features; under torchrun, in all of its processes.

    With the same settings ``make submit`` then finds it up to date.

    Raises:
        ConfigError: The run has no such network.
        DataError: The features are missing.
    """
    steps = {s.name: s.config for s in make_plan(config).steps() if isinstance(s.config, TrainConfig)}
    if config.network not in steps:
        raise ConfigError(f"network: {config.network!r} is none of {', '.join(steps)}")
    valid = train(steps[config.network])["valid"]
    if is_first():
        print(f"{config.network}: valid {valid['mean']:.3f} ({valid['weights']})")
