"""Train one policy on several zoo programs; the checkpoint is resumed exactly after an interruption."""

import time
from dataclasses import dataclass

import pandas as pd
import torch

from fastslow.core.artifacts import Artifact
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path, file_digest
from fastslow.core.progress import progress
from fastslow.core.settings import resolve
from fastslow_placement.base.search import Found
from fastslow_placement.figures import plot_training
from fastslow_placement.go.policy import Policy, torch_threads
from fastslow_placement.go.ppo import Trainer, zero_shot
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.zoo_graphs import program_path, zoo_placement
from fastslow_placement.settings import PolicySettings

CHECKPOINT, PROGRAM_TABLE = "policy.pt", "programs.csv"
_EVERY = 10.0  # seconds between checkpoints


@dataclass(frozen=True)
class Trained:
    """A trained policy.

    Args:
        policy: The policy.
        problems: The problems that it learned on, then the held-out one.
        found: Best decision of each of the former in training.
        table: One row per program.
    """

    policy: Policy
    problems: list[PlacementProblem]
    found: list[Found]
    table: pd.DataFrame


def train_placer(settings: PolicySettings) -> Trained:
    """Train a placement policy on the programs, or resume its training.

    ``policy.pt``, ``programs.csv`` (a row per program) and ``training.png`` are written to the ``folder`` of
    the settings.

    Args:
        settings: The programs, the machine and the training.

    Returns:
        The policy, its problems, the best decision of each and the table.

    Raises:
        SettingsError: No placement of a program is valid.
        DataError: The folder holds the checkpoint of another training.
    """
    names = [*settings.programs, settings.held_out]
    limits = settings.device_model, settings.devices, settings.memory
    *problems, held_out = (zoo_placement(name, *limits) for name in names)
    inputs = {name: file_digest(program_path(name)) for name in names} | settings.device_inputs
    artifact = Artifact(resolve(settings.folder), settings.identity(), inputs)
    torch.manual_seed(settings.seed)
    trainer = Trainer(Policy(), problems, settings, settings.seed)
    path = artifact.folder / CHECKPOINT
    with artifact.building(), torch_threads(settings.threads):
        trainer.resume(path)
        _run(trainer, settings.updates * len(problems), path)
        found = [standing.found for standing in trainer.standings]
        table = _table(
            problems, found, held_out, zero_shot(trainer.policy, held_out, settings.samples, starts=False)
        )
        trained = Trained(trainer.policy, problems, found, table)
        with atomic_path(artifact.folder / PROGRAM_TABLE) as temporary:
            table.to_csv(temporary, index=False)
        save_figure(plot_training(trained), artifact.folder / "training.png")
        artifact.finish(summary={"programs": len(problems), "updates": trainer.update})
    return trained


def _run(trainer: Trainer, updates: int, path) -> None:
    saved = time.monotonic()
    with progress(total=updates, initial=trainer.update, desc="GO", unit="update") as bar:

        def report(trainer: Trainer) -> None:
            nonlocal saved
            bar.update()
            ratios = [s.found.cost / s.inputs.problem.baseline for s in trainer.standings if s.found.history]
            bar.set_postfix(best=" ".join(f"{ratio:.3f}" for ratio in ratios), refresh=False)
            if time.monotonic() - saved > _EVERY:
                trainer.save(path)
                saved = time.monotonic()

        trainer.run(updates, report)
    trainer.save(path)


def _table(problems, found, held_out, zero) -> pd.DataFrame:
    rows = [(problem, best, "trained on") for problem, best in zip(problems, found, strict=True)]
    return pd.DataFrame(
        {
            "program": problem.name,
            "devices": problem.devices,
            "groups": len(problem.choices),
            "how": how,
            "evaluations": best.evaluations,
            "runtime ms": best.cost * 1e3,
            "by layers ms": problem.baseline * 1e3,
            "bound ms": problem.bound * 1e3,
        }
        for problem, best, how in [*rows, (held_out, zero, "zero-shot")]
    )
