"""Settings of the network notebook."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Le

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import SettingsError
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import (
    AtLeastTwo,
    FractionBelowOne,
    NonNegative,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Settings,
    Unread,
    resolve,
    unkeyed,
)
from fastslow.evaluation.predictions import run_artifact
from fastslow.features.settings import KindSettings
from fastslow.features.store import Features
from fastslow.networks.settings import architecture, segment_settings
from fastslow.networks.settings.architecture import BLOCKS, Architecture
from fastslow.networks.settings.inputs import CONFIG_INPUTS, input_columns
from fastslow.networks.settings.terms import parse_readout

GNN_ENTRY = "fastslow.networks.training.train:train"
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/nvmap")  # without one torch finds no GPU


class ArchitectureSettings(Settings):
    """Layers of the network, and the inputs that they read."""

    group_title: ClassVar[str] = "architecture"

    hidden_channels: Annotated[Positive, Le(2048)] = 64
    """Channels of every layer; 64 suits the sample, 128 and more the real data."""
    num_layers: Annotated[NonNegative, Le(64)] = 1
    """Message-passing blocks; more than the ``hops`` of the features make no sense."""
    cross_config: bool = True
    """Layout only. Let each node compare the configurations of a step (cross-config attention)."""
    pair_edges: bool = True
    """Layout only. Join configurable nodes that share a tensor by an edge, however many element-wise nodes
    are between them. Ranks a little better; a large graph has many more states with it and is slower."""
    dropout: FractionBelowOne = 0.3
    """Share of channels dropped in training."""
    readout: str = "sum"
    """Poolings of the nodes, joined, ``POOL[@configurable]+...``: ``sum``, ``mean``, ``unit_sum`` (a sum
    scaled to length 1), ``max`` (of each channel; not with ``segment_training``); over all nodes or the
    configurable ones (TpuGraphs' layout baseline: ``mean+unit_sum+unit_sum@configurable``)."""
    node_inputs: str = "numeric+tiles"
    """Columns of a node, joined: ``numeric`` (134 of the 140), ``tiles`` (six dimensions mod and div 128),
    ``picked`` (30 hand-picked in place of ``numeric``, as in the Harvard report's compression). Computed on
    the whole graph, before pruning: ``depths`` (degrees, hops from outputs and inputs), ``attributes``
    (dimension numbers of dots and gathers, sizes of slices, shapes of operands; 3rd place, no gain in the
    10th's; the features need ``hlo_folder``)."""
    config_inputs: Literal[*CONFIG_INPUTS] = "all"
    """Features of a configuration as a whole that are read: ``all``; ``published`` (the 24 of a tile file);
    ``violation`` (layout: only the violation ratio, Harvard report); ``none``."""
    block: Literal[*BLOCKS] = "attention"
    """Structure around the convolutions: ``attention`` (ours: norms, channel and cross-config attention), or
    a structure of TpuGraphs' baselines on raw layouts: ``residual`` (a perceptron, then blocks that add),
    ``unit`` (states scaled to length 1; with ``num_layers=0`` the tile MLP)."""
    convolution: str = "sage"
    """Message passing of a block: GraphSAGE with ``mean`` or ``sum`` (``sage``; ``sage_sum``, TpuGraphs' tile
    baseline); ``gcn`` (symmetric normalisation, TpuGraphs' layout baseline); ``mlp_gcn`` (its residual GCN).
    The winners on the real data took ``sage``."""
    input_attention: bool = False
    """Attention over all nodes before the blocks, 16 heads, a non-neighbour's weight times 0.1 (Harvard
    report); needs ``block=residual``. All blocks then run densely on the kept nodes: a state for each node
    and configuration."""
    joins_nodes: bool = False
    """Place where the features of a configuration join: after the pooling (late join), or on all nodes of a
    tile kernel (early join; needs ``block`` ``residual`` or ``unit``). Early, the network runs densely: a
    state for each node and configuration."""


class LoopSettings(Settings):
    """The loop: loss, steps, learning rate, selection of the weights."""

    group_title: ClassVar[str] = "training"

    seed: NonNegative = 0
    """Seed of weights, order of graphs and choice of configurations."""
    epochs: Annotated[Positive, Le(1_000_000)] = 20
    """Passes over the train graphs."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate (AdamW): linear warm-up to it, then the ``schedule``."""
    loss: str = "pairwise_hinge"
    """Losses added up, ``NAME[@PARAMETER][:WEIGHT]+...`` (``list_mle@10:1+mse_log:0.02``): with a margin
    ``pairwise_hinge``; with a temperature ``list_mle`` (10th and 16th place on the real data; slowest first);
    ``mse_log`` (absolute log runtime)."""
    graphs_per_step: Annotated[Positive, Le(1024)] = 1
    """Graphs whose losses are averaged for one step."""
    configs_per_step: Annotated[AtLeastTwo, Le(10_000)] = 128
    """Configurations drawn from a graph for one step; more is less noisy and slower."""
    weight_decay: NonNegativeFloat = 1e-5
    """Decoupled weight decay (AdamW); 0 is Adam."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate after the warm-up: ``constant`` with early stopping is what published baselines do."""
    warmup: FractionBelowOne = 0.05
    """Share of the steps spent warming up."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients of a larger norm are clipped to it."""
    edge_dropout: FractionBelowOne = 0.0
    """Share of the edges that a training step leaves out, the same for all its configurations (the 5th place
    dropped up to 0.15 on the real data)."""
    evaluate_every: Positive = 2
    """Epochs between two evaluations on valid."""
    valid_configs: Annotated[AtLeastTwo, Le(1_000_000)] = 2000
    """Maximum number of configurations of a valid graph that are evaluated while training, the same ones each
    time; the final score uses all of them."""
    patience: NonNegative = 0
    """Stop after this many evaluations without a better valid score of any collection; 0 never stops
    early."""
    average_last: Annotated[NonNegative, Le(1000)] = 5
    """Average the weights of this many last evaluations and keep them where they score better on valid; 0
    turns averaging off."""


class SegmentSettings(Settings):
    """Graph Segment Training."""

    group_title: ClassVar[str] = "segments"

    segment_training: Literal[*segment_settings.VARIANTS] = "none"
    """Layout only. Graph Segment Training: learn from one segment of a graph at a step, so that memory does
    not grow with the graph. The rest of the graph adds nothing (``one``), its sums without gradient
    (``gst``), or its sums from the step that last learned from it (``gst+e``). ``+d`` leaves some of these
    out. ``+f``: at the end the head learns from whole graphs. ``edges``: whole graphs with only the edges
    inside segments (TpuGraphs' segment dropout)."""
    segment_nodes: Positive = 1000
    """Layout only. Maximum number of nodes of a segment, a range of the node order; a smaller graph is
    trained whole."""
    segment_border: Literal[*segment_settings.BORDERS] = "halo"
    """Layout only. Edges between segments: a segment also computes the nodes that it depends on (``halo``:
    scores equal the whole graph's), none (``cut``, as published), or none in the segment that the step
    learns from (``cut_live``, TpuGraphs' backprop dropout)."""
    head_epochs: Positive = 5
    """Layout only. Last epochs, of the ``epochs``, in which the head alone learns with ``+f``; they have a
    learning rate schedule of their own."""


class MachineSettings(Settings):
    """Devices, processes and memory."""

    group_title: ClassVar[str] = "machine"

    device: str = unkeyed("auto")
    """``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:N``. It computes in float32 on a CPU,
    bfloat16 on a GPU, float16 on one of compute capability below 8.0 (T4, P100): each is a run of its own."""
    processes: Annotated[Positive, Le(1024)] = unkeyed(1)
    """Processes of this machine that train together, each with its own GPU where there are GPUs, each with a
    share of the ``graphs_per_step``; the result equals one process's up to rounding. Several machines:
    ``docs/many_machines.md``."""
    hours: NonNegativeFloat = unkeyed(0.0)
    """Stop after this many hours of training and keep the weights so far; 0 has no limit. A run with a budget
    sets it."""
    configs_together: Annotated[AtLeastTwo, Le(1_000_000)] = unkeyed(2000)
    """Layout only. Maximum number of configurations of a batch at inference; a graph with more is predicted
    in chunks, slower, with the same predictions. Lower it where memory is short."""


class TrainSettings(MachineSettings, SegmentSettings, LoopSettings, ArchitectureSettings, KindSettings):
    """Settings of the network notebook, whose defaults suit the sample's layout collections.

    One network learns from the train graphs of several collections and predicts for each of them, with the
    weights that score best on that collection's valid split.
    """

    layout_only: ClassVar[tuple[str, ...]] = (
        *("configs_together", "cross_config", "pair_edges"),
        *segment_settings.SEGMENT_FIELDS,
    )
    former: ClassVar[dict[str, Any]] = {"node_attention": "none", "denoise": False}
    main: ClassVar[tuple[str, ...]] = (
        *("kind", "features", "runs", "folder", "device", "seed", "epochs", "learning_rate", "loss"),
        *("hidden_channels", "num_layers", "graphs_per_step", "configs_per_step"),
    )

    kind: Literal["layout", "tile"] = "layout"
    """Kind of the collections to train on. The graph of a ``tile`` kernel is the same for all configurations
    and is embedded once; what its configurations differ in joins in the head."""
    features: list[str] = unkeyed([f"features/sample/{c.slug}" for c in COLLECTIONS if c.kind == "layout"])
    """Features folders of the collections to train on."""
    runs: list[str] = unkeyed([])
    """Run folders to write, one for each of ``features``: weights and predictions of that collection, a
    member for its ensemble. If empty, each is called ``folder``, a hyphen and the features folder's name."""
    folder: str = unkeyed("runs/play/gnn")
    """Folder of the training: its history, and a checkpoint while it runs."""

    def check(self) -> None:
        """Check that the fields fit together.

        Raises:
            SettingsError: Two do not, or one is not what the network can do; the message names it and a
                remedy.
        """
        super().check()
        known = bool(re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device))
        self.require(known, "device", "one of auto, cpu, cuda, cuda:N (N the number of a GPU)")
        for field, paths in (("features", self.features), ("runs", self.run_folders())):
            self.require(len({*paths}) == len(paths) > 0, field, "a list of different paths")
        if len(self.run_folders()) != len(self.features):
            problem = f"{len(self.runs)} folders for {len(self.features)} features"
            raise SettingsError(f"runs: {problem}; give one for each, or an empty list for names from folder")
        input_columns(self.node_inputs)
        self._check_registered()
        chosen = any(part.configurable for part in parse_readout(self.readout))
        allowed = self.kind == "layout" or not chosen
        self.require(allowed, "readout", "for tile, whose kernels have no configurable nodes")
        self.require_shares(self.processes)
        architecture.check_layers(self)
        segment_settings.check_segments(self)

    def _check_registered(self) -> None:
        """Refuse a loss or convolution that is not registered; the registries import torch, in seconds."""
        if self.loss != LoopSettings.model_fields["loss"].default:
            from fastslow.networks.model.losses import loss_terms

            loss_terms(self.loss)
        if self.convolution != ArchitectureSettings.model_fields["convolution"].default:
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
        ignored = {**segment_settings.unread_segments(self), **architecture.unread_layers(self)}
        return ignored | super().unread()

    def run_folders(self) -> list[str]:
        """Return the run folder of each of ``features``."""
        return self.runs or [f"{Path(self.folder)}-{Path(features).name}" for features in self.features]

    def artifact(self) -> Artifact:
        """Return the training and, as its parts, the runs; they depend on the features of all collections."""
        sources = self.sources()
        parts = tuple(
            run_artifact(
                "gnn", GNN_ENTRY, self, run, source, [other for other in sources if other is not source]
            )
            for run, source in zip(self.run_folders(), sources, strict=True)
        )
        inputs = {source.collection.slug: source.fingerprint for source in sources}
        return Artifact(
            resolve(self.folder), {"model": "gnn", **self.identity()}, inputs, GNN_ENTRY, parts=parts
        )

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
                    f"features: {source.folder} is not features of a {self.kind} collection; set kind to"
                    f" {source.collection.kind!r} or name others"
                )
        if len({source.collection for source in sources}) < len(sources):
            raise SettingsError(f"features: two of {self.features} are of the same collection")
        return sources

    def architecture(self) -> Architecture:
        """Return the settings of the layers."""
        layers = {field.name: getattr(self, field.name) for field in fields(Architecture)}
        return Architecture(**layers | {"cross_config": self.cross_config and self.kind == "layout"})
