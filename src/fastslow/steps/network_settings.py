"""Settings of the step that trains networks."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Le

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.artifacts import Artifact, read_manifest
from fastslow.core.errors import SettingsError, counted
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import AtLeastTwo, NonNegativeFloat, Positive, Settings, Unread, resolve, unkeyed
from fastslow.networks.settings.inputs import input_columns, parse_readout
from fastslow.networks.settings.options import ArchitectureOptions, NetworkOptions
from fastslow.networks.settings.segments import SEGMENT_FIELDS
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import run_artifact
from fastslow.runs.run_manifest import INIT
from fastslow.steps.features import KindSettings
from fastslow.steps.loggers import require_logger
from fastslow.steps.network_checks import check_processes, unread_layers, unread_segments

GNN_ENTRY = "fastslow.steps.network:train_gnn"
AGAIN = "Train this model again"
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/nvmap")  # without one torch finds no GPU


def differences(there: Mapping[str, Any], here: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return in words which settings differ between two trainings; empty where none does.

    Args:
        there: Values of the other training, by name of the setting.
        here: Values of this training, by name of the setting.
        names: Names of the settings to compare.
    """
    differing = [name for name in names if there.get(name) != here.get(name)]
    return "; ".join(f"{name}={there.get(name)!r} there, {here.get(name)!r} here" for name in differing)


class MachineSettings(Settings):
    """Devices, processes and memory."""

    group_title: ClassVar[str] = "machine"

    device: str = unkeyed("auto")
    """``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:N``. It computes in float32 on a CPU,
    bfloat16 on a GPU, float16 on one of compute capability below 8.0 (T4): each is a run of its own."""
    processes: Annotated[Positive, Le(1024)] = unkeyed(1)
    """Processes of this machine that train together, each with its own GPU where there are GPUs, each with a
    share of the ``graphs_per_step``; the result equals one process's up to rounding. Several machines:
    ``docs/many_machines.md``."""
    hours: NonNegativeFloat = unkeyed(0.0, decisive=True)
    """Stop after this many hours of training and keep the weights so far; 0 has no limit. With a larger
    limit, a training that it ended is made again. A run with a budget sets it."""
    configs_together: Annotated[AtLeastTwo, Le(1_000_000)] = unkeyed(2000)
    """Layout only. Maximum number of configurations of a batch at inference; a graph with more is predicted
    in chunks, slower, with the same predictions. Lower it where memory is short."""


class TrainSettings(MachineSettings, KindSettings, NetworkOptions):
    """Settings of the network notebook, whose defaults suit the sample's layout collections.

    One network learns from the train graphs of several collections and predicts for each of them, with the
    weights that score best on that collection's valid split.
    """

    layout_only: ClassVar[tuple[str, ...]] = (
        "configs_together",
        "cross_config",
        "pair_edges",
        *SEGMENT_FIELDS,
    )
    main: ClassVar[tuple[str, ...]] = (
        "kind",
        "features",
        "runs",
        "folder",
        "device",
        "seed",
        "epochs",
        "learning_rate",
        "loss",
        "hidden_channels",
        "num_layers",
        "graphs_per_step",
        "configs_per_step",
    )

    features: list[str] = unkeyed([f"features/sample/{c.slug}" for c in COLLECTIONS if c.kind == "layout"])
    """Features folders of the collections to train on."""
    runs: list[str] = unkeyed([])
    """Run folders to write, one for each of ``features``: weights and predictions of that collection, a
    member for its ensemble. If empty, each is called ``folder``, a hyphen and the features folder's name."""
    folder: str = unkeyed("runs/play/gnn")
    """Folder of the training: its history, and a checkpoint while it runs."""
    init: str = unkeyed("", decisive=True)
    """Run folder of a trained network of the same architecture and features, whose weights and scaling of the
    inputs the training starts from. Few epochs then suffice. Empty: weights are drawn."""
    logger: str = unkeyed("")
    """What else takes every row of metrics: ``wandb``, ``trackio``, or a function of yours as
    ``module:function``, which takes a dict. Empty for none."""

    def check(self) -> None:
        """Check that the fields fit together.

        Raises:
            SettingsError: Two do not, or one is not what the network can do; the message names it and a
                remedy.
        """
        super().check()
        require_logger(self.logger)
        self.require(self.folds != 1, "folds", "0, or 2 and more")
        known = bool(re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", self.device))
        self.require(known, "device", "one of auto, cpu, cuda, cuda:N (N the number of a GPU)")
        for field, paths in (("features", self.features), ("runs", self.run_folders())):
            self.require(len({*paths}) == len(paths) > 0, field, "a list of different paths")
        if len(self.run_folders()) != len(self.features):
            problem = f"{counted(len(self.runs), 'folder')} for {len(self.features)} features"
            raise SettingsError(
                "runs", f"{problem}; give one for each, or an empty list for names from folder"
            )
        input_columns(self.node_inputs)
        self._check_registered()
        parse_readout(self.readout)
        self.require_shares(self.processes)
        self.check_together()
        check_processes(self)

    def _check_registered(self) -> None:
        """Refuse a loss or convolution that is not registered; the registries import torch, in seconds."""
        if self.loss != NetworkOptions.loss:
            from fastslow.networks.model.losses import loss_terms

            loss_terms(self.loss)
        if self.convolution != NetworkOptions.convolution:
            from fastslow.networks.model.convolutions import CONVOLUTIONS

            known = f"one of {', '.join(CONVOLUTIONS)}{nearest(self.convolution, CONVOLUTIONS)}"
            self.require(self.convolution in CONVOLUTIONS, "convolution", known)

    def require_shares(self, processes: int) -> None:
        """Refuse settings that so many processes cannot share: each needs a graph of its own at every step.

        Raises:
            SettingsError: A step has too few graphs, or one device is named.
        """
        if processes > 1:
            enough = f"{processes} or more, as each of {processes} processes takes a share of a step"
            self.require(self.graphs_per_step >= processes, "graphs_per_step", enough)
            self.require(":" not in self.device, "device", f"for {processes} processes; use 'auto'")

    def identity(self) -> dict[str, Any]:
        """Return the settings that change the result, and type and precision of ``device``.

        Raises:
            SettingsError: The device is not there.
        """
        kind, precision = "cpu", "float32"
        if self.device not in ("auto", "cpu") or any(Path(name).exists() for name in _DRIVERS):
            from fastslow.networks.hardware import devices  # imports torch, which takes seconds

            device = devices.pick_device(self.device)
            kind = device.type
            precision = str(devices.pick_precision(device)).removeprefix("torch.")
        return {**super().identity(), "device_type": kind, "precision": precision}

    def unread(self) -> Unread:
        """Return the fields that the kind, the variant of segments or a network without blocks ignores."""
        ignored = {**unread_segments(self), **unread_layers(self)}
        return ignored | super().unread()

    def run_folders(self) -> list[str]:
        """Return the run folder of each of ``features``."""
        return self.runs or [f"{Path(self.folder)}-{Path(features).name}" for features in self.features]

    def artifact(self) -> Artifact:
        """Return the training and, as its parts, the runs; they depend on the features of all collections."""
        sources = self.sources()
        parts = []
        for run, source in zip(self.run_folders(), sources, strict=True):
            others = [other for other in sources if other is not source]
            parts.append(run_artifact("gnn", GNN_ENTRY, self, run, source, others, self.hours))
        inputs = {source.collection.slug: source.fingerprint for source in sources}
        if self.init:
            start = {INIT: read_manifest(resolve(self.init))["fingerprint"]}
            inputs |= start
            parts = [replace(part, inputs={**part.inputs, **start}) for part in parts]
        given = {"model": "gnn", **self.identity()}
        folder = resolve(self.folder)
        return Artifact(folder, given, inputs, GNN_ENTRY, parts=tuple(parts), hours=self.hours)

    def check_init(self) -> None:
        """Refuse ``init`` where its network has another architecture; it needs no features.

        Raises:
            SettingsError: It has; each setting that differs is named.
            DataError: It is no finished network.
        """
        from fastslow.runs.trained_network import recorded_options  # imports torch, which takes seconds

        start = recorded_options(resolve(self.init))
        names = ["kind", *(field.name for field in fields(ArchitectureOptions) if field.name != "dropout")]
        if values := differences(vars(start), self.asdict(), names):
            remedy = "Give these settings the values there, or leave init empty"
            raise SettingsError("init", f"{self.init} is another network: {values}. {remedy}")

    def sources(self) -> list[Features]:
        """Return the features to train on.

        Raises:
            SettingsError: One has another kind, or two have the same collection.
            DataError: One is missing.
        """
        sources = [Features(resolve(folder)) for folder in self.features]
        for source in sources:
            if source.collection.kind != self.kind:
                raise SettingsError(
                    "features",
                    f"{source.folder} is not features of a {self.kind} collection; set kind to"
                    f" {source.collection.kind!r} or name others",
                )
        if len({source.collection for source in sources}) < len(sources):
            raise SettingsError("features", f"two of {self.features} have the same collection")
        return sources
