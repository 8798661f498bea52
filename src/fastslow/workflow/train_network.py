"""One network of a run in the processes of torchrun: the command ``train-network``."""

from fastslow.core.errors import SettingsError
from fastslow.core.settings import Unread
from fastslow.steps.network_settings import TrainSettings
from fastslow.workflow.begun_run import begin, resume
from fastslow.workflow.settings.run_settings import RunSettings


class NetworkRunSettings(RunSettings):
    """Settings of a run, of which one network is trained."""

    network: str = "training-layout-s0"
    """Network to train, as the name of its folder, such as ``training-layout-s0``."""

    def unread(self) -> Unread:
        """Return the fields of whole runs."""
        whole = dict.fromkeys(("predict_with", "unproven_order"), ("for one network", "use fastslow submit"))
        plan = {"plan": ("for one network", "plan the run (fastslow train --plan)")}
        return {**super().unread(), **plan, **whole}


def train_network(settings: NetworkRunSettings) -> None:
    """Train one network of a run from its finished features; under torchrun, in all of its processes.

    With the same settings ``make submit`` then finds it up to date.

    Raises:
        SettingsError: The run has no such network, or was begun with other settings.
        DataError: The features are missing.
    """
    resumed = resume(settings)
    if resumed.refused:
        raise SettingsError(resumed.refused)
    steps = {s.name: s.settings for s in resumed.plan.steps() if isinstance(s.settings, TrainSettings)}
    if settings.network not in steps:
        raise SettingsError("network", f"{settings.network!r} is none of {', '.join(steps)}")
    begin(settings, resumed)
    from fastslow.steps.network import train_gnn  # torch takes seconds
    from fastslow.steps.network_processes import is_first

    valid = train_gnn(steps[settings.network])["valid"]
    if is_first():
        print(f"{settings.network}: valid {valid['mean']:.3f} ({valid['weights']})")
