"""Table of the families of the zoo: networks, inputs, variants and splits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module

from fastslow.competition.catalog import TEST, TRAIN, VALID


@dataclass(frozen=True)
class Variant:
    """One program of a family.

    Attributes:
        step: ``forward`` for inference, ``train`` for a step of gradient descent, ``adam`` for one of Adam.
        width: Features of the (first) layer, a multiple of the number of attention heads.
        depth: Number of layers or blocks as the network counts them, from 1.
        batch: Batch size.
        dtype: Type of weights and float inputs, ``bfloat16`` or ``float32``.
    """

    step: str
    width: int
    depth: int
    batch: int
    dtype: str = "bfloat16"

    @property
    def label(self) -> str:
        """Suffix of the program's name: ``train_w32_d1_b8``, followed by ``_f32`` for float32."""
        suffix = "_f32" if self.dtype == "float32" else ""
        return f"{self.step}_w{self.width}_d{self.depth}_b{self.batch}{suffix}"


forward, train, adam = (partial(Variant, step) for step in ("forward", "train", "adam"))


@dataclass(frozen=True)
class Family:
    """Programs of one architecture.

    Attributes:
        source: ``xla`` or ``nlp``.
        name: Unique name.
        network: Module of this package and function in it, joined by a dot.
        small: Variants of the committed sample, or of the size ``more``.
        widths: The two widths of the additional variants of the large sample.
        floats: Shapes of the float inputs, without the batch dimension.
        tokens: Lengths of the inputs that are token sequences; they follow the float inputs.
        settings: Additional keyword arguments of the network.
    """

    source: str
    name: str
    network: str
    small: tuple[Variant, ...]
    widths: tuple[int, int]
    floats: tuple[tuple[int, ...], ...] = ()
    tokens: tuple[int, ...] = ()
    settings: dict = field(default_factory=dict)

    @property
    def large(self) -> tuple[Variant, ...]:
        """Additional variants of the large sample."""
        narrow, wide = self.widths
        return (
            forward(narrow, 2, 16),
            train(narrow, 1, 8, "float32"),
            forward(wide, 1, 8, "float32"),
            train(wide, 2, 4),
        )

    def build(self, variant: Variant) -> tuple[Callable, tuple]:
        """Return a function and the tuple of its argument shapes, for ``jax.jit(function).trace(*shapes)``.

        Arguments are trees of ``jax.ShapeDtypeStruct``.
        """
        from make_sample.zoo.layers import STEPS, argument_shapes

        module, function = self.network.split(".")
        network = getattr(import_module(f"make_sample.zoo.{module}"), function)
        network = partial(network, width=variant.width, depth=variant.depth, **self.settings)
        inputs = argument_shapes(variant.batch, self.floats, self.tokens, variant.dtype)
        return STEPS[variant.step](network, inputs, variant.dtype)


IMAGE = ((16, 16, 3),)
SIGNAL = ((48, 8),)
BOARD = ((9, 9, 17),)
VOLUME = ((4, 8, 8, 4),)
PATCHED_IMAGE = ((32, 32, 3),)  # 64 patches of 4 x 4
PHOTO = ((64, 64, 3),)


def _xla(network, *small, name="", widths=(40, 96), floats=IMAGE, tokens=(), **settings) -> Family:
    return Family("xla", name or network.split(".")[1], network, small, widths, floats, tokens, settings)


def _nlp(network, *small, name="", widths=(72, 128), floats=(), tokens=(32,), **settings) -> Family:
    return Family("nlp", name or network.split(".")[1], network, small, widths, floats, tokens, settings)


def _table(network, *small) -> Family:
    """Return a family that reads a row of a table: numbers and categories."""
    return _xla(network, *small, floats=((13,),), tokens=(12,))


def _blocks(block, *small, name="", **settings) -> Family:
    return _xla("classifiers.staged", *small, name=name or block, block=block, **settings)


def _attention(kind, *small, **settings) -> Family:
    return _nlp("language.transformer", *small, name=kind, kind=kind, **settings)


# small programs have at least 22 (xla) or 38 (nlp) configurable nodes in layers that repeat, as TpuGraphs has
# them, and compile in about a second of one core
FAMILIES = (
    _xla("classifiers.resnet_basic", forward(32, 6, 8)),
    _xla("classifiers.resnet_basic", forward(48, 3, 8), train(32, 1, 4), name="squeeze_excite", excite=True),
    _xla("classifiers.resnet_bottleneck", train(32, 1, 8)),
    _xla("classifiers.mobilenet", forward(32, 5, 8), train(40, 2, 8, "float32")),
    _xla("classifiers.shufflenet", forward(48, 5, 4)),
    _xla("classifiers.convnext", train(48, 2, 4)),
    _xla("classifiers.vgg", forward(16, 8, 8), widths=(24, 64)),
    _xla("classifiers.squeezenet", train(48, 2, 8)),
    _xla("classifiers.inception", train(24, 2, 4)),
    _xla("classifiers.factorised_inception", train(40, 2, 8)),
    _xla("images.unet", train(16, 2, 2), widths=(24, 48)),
    _xla("images.super_resolution", train(16, 3, 4), widths=(16, 40)),
    _xla("images.detector", train(24, 1, 4)),
    _xla("images.segmenter", train(32, 3, 8)),
    _xla("images.style_transfer", forward(24, 10, 4)),
    _xla("images.hourglass", forward(48, 5, 8, "float32"), train(32, 2, 8)),
    _xla("images.non_local", forward(64, 4, 4), train(48, 1, 4)),
    _xla("decisions.perceptron", train(96, 2, 48), adam(64, 3, 16), floats=((200,),), widths=(72, 192)),
    _xla("classifiers.mixer", train(64, 2, 8), floats=PATCHED_IMAGE),
    _xla("classifiers.vision_transformer", forward(96, 3, 8), train(64, 1, 4), floats=PATCHED_IMAGE),
    _xla("classifiers.window_transformer", forward(64, 3, 8), train(64, 1, 4)),
    _table("decisions.recommender", train(48, 2, 32), adam(80, 3, 16, "float32")),
    _xla("decisions.graph_network", train(40, 3, 8, "float32"), floats=((40, 24), (40, 40))),
    _xla("sequences.lstm", train(64, 2, 16), floats=((16, 40),)),
    _xla("sequences.gru", train(40, 2, 16), floats=((16, 40),)),
    _xla("sequences.conv_lstm", train(24, 2, 4), floats=((6, 16, 16, 8),), widths=(16, 40)),
    _blocks("resnet_v2", forward(32, 6, 8)),
    _blocks("regnet", forward(32, 2, 4, "float32")),
    _blocks("efficientnet", forward(24, 3, 8), adam(32, 1, 4)),
    _blocks("mnasnet", train(24, 2, 4)),
    _blocks("efficientnet_v2", train(24, 2, 8)),
    _blocks("xception", train(48, 2, 8)),
    _blocks("repvgg", adam(40, 3, 4)),
    _blocks("ghostnet", train(32, 2, 8)),
    _blocks("res2net", train(64, 1, 8)),
    _blocks("vovnet", forward(64, 4, 8)),
    _blocks("cspnet", forward(48, 2, 8, "float32")),
    _blocks("nasnet", train(24, 1, 2)),
    _blocks("inception_resnet", train(32, 1, 8)),
    _blocks("sknet", train(32, 1, 8)),
    _blocks("network_in_network", train(48, 2, 8)),
    _blocks("botnet", forward(32, 3, 8)),
    _blocks("coatnet", train(32, 1, 4), forward(48, 2, 8)),
    _blocks("conv_mixer", forward(96, 7, 8, "float32")),
    _xla("classifiers.alexnet", train(16, 2, 8, "float32"), train(16, 3, 4), floats=PATCHED_IMAGE),
    _xla("images.single_shot", train(24, 1, 2), forward(32, 4, 8)),
    _xla("images.yolo", train(24, 1, 4), forward(32, 4, 8)),
    _xla("images.region_heads", train(48, 2, 2, "float32")),
    _xla("images.parallel_resolutions", train(24, 1, 4)),
    _xla("images.optical_flow", train(32, 1, 2), floats=IMAGE * 2),
    _xla("images.denoiser", train(24, 1, 2), floats=(*IMAGE, (32,))),
    _xla("images.pixel_cnn", train(32, 2, 4)),
    _xla("images.variational_autoencoder", train(16, 1, 2), floats=(*IMAGE, (24,))),
    _xla("images.residual_generator", forward(32, 3, 4), floats=((40,),)),
    _xla("images.discriminator", train(16, 1, 2), floats=IMAGE * 2),
    _xla("images.siamese", train(32, 2, 4), train(16, 3, 2, "float32"), floats=IMAGE * 2),
    _xla("sequences.wavenet", train(32, 2, 4), forward(64, 6, 8), floats=SIGNAL),
    _xla("sequences.temporal_network", adam(64, 4, 4), floats=SIGNAL),
    _xla("sequences.speech_network", train(48, 2, 8), forward(96, 5, 8), floats=SIGNAL),
    _xla("sequences.source_separation", train(24, 2, 4), floats=SIGNAL),
    _xla("sequences.text_in_images", train(24, 1, 4)),
    _xla("decisions.policy_and_value", train(32, 2, 4), train(48, 1, 8, "float32"), floats=BOARD),
    _xla("decisions.double_dqn", train(16, 2, 4), train(24, 3, 2, "float32"), floats=((24, 24, 4),) * 2),
    _table("decisions.wide_and_deep", adam(64, 3, 64), train(96, 4, 24, "float32")),
    _table("decisions.cross_network", train(96, 4, 32, "float32"), train(64, 3, 16)),
    _xla("decisions.radiance_field", train(96, 4, 4, "float32"), train(64, 3, 8), floats=((48, 3), (48, 3))),
    _xla("decisions.sine_network", train(64, 2, 8), floats=((64, 2), (32,))),
    _xla("decisions.deep_autoencoder", adam(48, 2, 32, "float32"), train(64, 2, 16), floats=((120,),)),
    _xla("decisions.point_network", train(48, 3, 4), adam(32, 3, 8), floats=((64, 3),)),
    _xla(
        "decisions.graph_attention", train(64, 2, 4), adam(48, 2, 2, "float32"), floats=((40, 24), (40, 40))
    ),
    _xla(
        "decisions.message_passing",
        train(48, 2, 4),
        adam(32, 2, 2, "float32"),
        floats=((24, 16), (24, 24, 8)),
    ),
    _xla("decisions.contrastive", train(96, 2, 32), adam(64, 2, 16), floats=((120,), (120,))),
    _xla("images.volume_unet", train(16, 1, 8), floats=VOLUME, widths=(24, 48)),
    _xla("images.residual_volumes", train(16, 1, 8), floats=VOLUME, widths=(24, 48)),
    _xla("images.plain_video", train(24, 2, 8, "float32"), floats=VOLUME, widths=(24, 48)),
    _xla("images.factorised_video", train(24, 1, 8), floats=VOLUME),
    _xla(
        "classifiers.inception",
        train(32, 1, 8),
        name="inflated_inception",  # I3D: with 3-D convolutions and pooling (arXiv:1705.07750)
        floats=VOLUME,
        stride=(1, 2, 2),
        largest=3,
    ),
    _xla("images.two_rates", train(32, 1, 8), floats=VOLUME),
    _nlp("language.bert", forward(128, 4, 8), train(64, 2, 4, "float32")),
    _nlp("language.gpt", forward(96, 5, 8), train(64, 2, 4)),
    _nlp("language.llama", forward(128, 4, 8), train(64, 2, 4)),
    _nlp("language.encoder_decoder", forward(96, 2, 8), tokens=(32, 24)),
    _nlp("language.albert", forward(96, 3, 8), train(64, 1, 4)),
    _nlp("language.scanned_decoder", train(64, 2, 4)),
    _nlp("language.mixture_of_experts", forward(96, 4, 4), train(64, 2, 4, "float32")),
    _nlp("language.gmlp", train(64, 3, 8, "float32")),
    _nlp("language.fnet", train(128, 2, 4, "float32")),
    _nlp("language.conformer", train(64, 1, 4)),
    _nlp("sequences.tagger", train(96, 1, 8, "float32"), tokens=(24,)),
    _nlp("sequences.translator", train(64, 1, 8), adam(96, 1, 8), tokens=(24, 16)),
    _attention("talking_heads", forward(96, 4, 4)),
    _attention("multi_query", forward(160, 5, 8), train(64, 2, 4)),
    _attention("relative", forward(64, 4, 8, "float32")),
    _attention("linear", forward(96, 5, 8)),
    _attention("low_rank", forward(64, 4, 8), train(96, 1, 2), tokens=(64,)),
    _attention("disentangled", forward(64, 3, 8, "float32")),
    _attention("retention", train(64, 2, 4, "float32")),
    _attention("random_features", forward(96, 5, 8)),
    _attention("landmarks", forward(96, 3, 8)),
    _attention("state_space", train(64, 2, 4, "float32")),
    _nlp("language.electra", forward(96, 2, 8)),
    _nlp("language.multi_task", train(72, 1, 4, "float32"), forward(128, 4, 4)),
    _nlp("language.reward_model", train(64, 1, 2, "float32"), forward(96, 2, 8), tokens=(32, 32)),
    _nlp("language.two_towers", forward(96, 2, 8), tokens=(16, 48)),
    _nlp("language.low_rank_tuning", train(128, 1, 4), forward(96, 3, 8)),
    _nlp("language.adapters", train(96, 1, 4, "float32"), forward(96, 4, 8)),
    _nlp("language.funnel", forward(96, 2, 8)),
    _nlp("language.speech_recogniser", forward(96, 2, 4), floats=((48, 20),), tokens=(24,)),
    _nlp("language.t5", train(64, 1, 2), forward(96, 2, 8), tokens=(32, 24)),
    _nlp("language.bart", forward(96, 2, 8, "float32"), tokens=(32, 24)),
    _nlp("language.parallel_decoder", forward(128, 5, 8)),
    _nlp("language.switch", train(64, 1, 4), forward(96, 3, 8)),
    _nlp("language.rwkv", train(96, 2, 4), forward(128, 5, 8)),
    _nlp("language.bytenet", train(64, 3, 4), train(96, 3, 2, "float32"), tokens=(32, 32)),
    _nlp("language.cached_decoder", forward(96, 4, 16), forward(128, 5, 4, "float32"), tokens=(2,)),
    _nlp("language.speculative", forward(128, 2, 4), forward(96, 2, 8, "float32")),
    _nlp("language.memory_network", train(72, 3, 8), forward(128, 8, 8), tokens=(40, 8)),
    _nlp("language.sentence_pair", train(72, 2, 8), tokens=(32, 24)),
)


def _vector(source, network, *small, **inputs) -> Family:
    """Return a family whose network is another one, with its weights in one vector."""
    name = f"{network.split('.')[1]}_in_one_vector"
    return source("reshaped.one_vector", *small, name=name, inner=network, **inputs)


def _large(source, network, *small, name="", **inputs) -> Family:
    """Return a family of the sizes that real programs have: e^17 elements in a tensor, not e^12."""
    return source(network, *small, name=f"large_{name or network.split('.')[1]}", **inputs)


MORE = (
    _nlp("reshaped.flat_encoder", forward(64, 2, 4), train(96, 1, 4, "float32"), forward(128, 3, 8)),
    _nlp("reshaped.flat_decoder", forward(96, 2, 4, "float32"), train(64, 2, 4), forward(128, 3, 8)),
    _nlp("reshaped.flat_translator", forward(64, 1, 8), train(96, 1, 2), forward(96, 2, 4), tokens=(24, 16)),
    _nlp("reshaped.token_experts", forward(64, 2, 4, "float32"), train(96, 1, 2), forward(96, 3, 4)),
    _vector(_nlp, "language.gpt", forward(96, 2, 4), train(64, 1, 4, "float32"), train(96, 2, 2)),
    _vector(_nlp, "language.mixture_of_experts", train(64, 1, 4)),
    _vector(_nlp, "language.conformer", train(64, 1, 2), forward(96, 2, 4, "float32")),
    _vector(_nlp, "language.bert", forward(96, 2, 8), train(64, 1, 4)),
    _vector(_nlp, "language.encoder_decoder", forward(64, 1, 8), tokens=(32, 24)),
    _vector(_nlp, "language.electra", forward(96, 2, 4)),
    _vector(_nlp, "language.gmlp", train(64, 2, 8)),
    _xla("reshaped.diffusion", forward(32, 2, 4), train(16, 1, 4, "float32"), floats=(*IMAGE, (32,))),
    _xla("reshaped.sub_pixel", forward(32, 3, 4), train(16, 2, 4), train(32, 1, 8, "float32")),
    _xla("reshaped.masked_autoencoder", forward(96, 2, 4), train(64, 1, 4), floats=PATCHED_IMAGE),
    _xla("reshaped.axial", forward(64, 2, 4), train(32, 1, 4, "float32"), forward(96, 1, 8, "float32")),
    _xla("reshaped.frames", forward(48, 2, 4), train(24, 1, 4), forward(32, 3, 2), floats=((6, 16, 16, 4),)),
    _table("reshaped.interactions", forward(48, 3, 16, "float32"), train(32, 2, 16), adam(48, 2, 32)),
    _vector(_xla, "classifiers.resnet_basic", train(24, 2, 4), forward(32, 4, 8, "float32")),
    _vector(_xla, "classifiers.mobilenet", train(32, 2, 4), forward(48, 3, 8)),
    _vector(_xla, "classifiers.mixer", train(64, 2, 4), floats=PATCHED_IMAGE),
    _vector(_xla, "classifiers.vision_transformer", train(64, 1, 4), floats=PATCHED_IMAGE),
    _vector(_xla, "classifiers.convnext", train(48, 2, 4)),
    _vector(_xla, "images.unet", train(16, 1, 2)),
    _vector(_xla, "images.hourglass", train(32, 2, 8)),
    _vector(_xla, "images.pixel_cnn", train(32, 2, 4)),
    _vector(_xla, "sequences.wavenet", train(32, 2, 4), floats=SIGNAL),
    _vector(_xla, "sequences.lstm", train(64, 2, 16), floats=((16, 40),)),
    _vector(_xla, "decisions.point_network", adam(32, 3, 8), floats=((64, 3),)),
    _vector(_xla, "decisions.contrastive", train(96, 2, 32), floats=((120,), (120,))),
    _large(_nlp, "reshaped.flat_encoder", forward(768, 1, 16), tokens=(128,)),
    _large(_xla, "classifiers.resnet_basic", forward(256, 1, 32), train(64, 1, 32, "float32"), floats=PHOTO),
    _large(_xla, "classifiers.mobilenet", forward(128, 2, 32), floats=((112, 112, 3),)),
    _large(_xla, "classifiers.mixer", forward(512, 1, 32), floats=PHOTO),
    _large(_blocks, "conv_mixer", forward(256, 3, 32), name="conv_mixer", floats=PHOTO),
    _large(_xla, "images.plain_video", forward(32, 1, 4), floats=((16, 32, 32, 4),)),
    _large(_xla, "sequences.lstm", forward(1024, 1, 64), floats=((4, 512),)),
)
"""Families of the size ``more``: of many reshapes, as in the real files, or of large tensors."""

HELD_OUT = {
    VALID: (
        "squeeze_excite",
        "squeezenet",
        "segmenter",
        "window_transformer",
        "gru",
        "vovnet",
        "ghostnet",
        "coatnet",
        "single_shot",
        "variational_autoencoder",
        "temporal_network",
        "cross_network",
        "graph_attention",
        "sine_network",
        "inflated_inception",
        "albert",
        "reward_model",
        "translator",
        "tagger",
        "rwkv",
        "linear",
        "disentangled",
    ),
    TEST: (
        "resnet_bottleneck",
        "shufflenet",
        "factorised_inception",
        "inception",
        "super_resolution",
        "regnet",
        "nasnet",
        "yolo",
        "denoiser",
        "discriminator",
        "speech_network",
        "policy_and_value",
        "two_rates",
        "radiance_field",
        "non_local",
        "graph_network",
        "cached_decoder",
        "t5",
        "parallel_decoder",
        "state_space",
        "llama",
        "fnet",
        "retention",
        "sentence_pair",
    ),
}
"""Families whose programs are in valid or in test; all other families are in train.

Families are divided by structure: programs of the committed sample that are closer than :data:`APART`, or of
one family, are linked, and every linked cluster is in one split. Which clusters are held out is fixed here.
Additional programs of the large sample follow their family.
"""

APART = 0.05
"""Smallest distance of two programs of different splits, see :mod:`fastslow.competition.opcodes`.

Of the pairs of one family and one kind of step, a third are closer: they differ in width and depth.
"""

_SPLIT = {name: split for split, names in HELD_OUT.items() for name in names}
FAMILY_SPLIT = {(family.source, family.name): _SPLIT.get(family.name, TRAIN) for family in FAMILIES + MORE}
"""Split by source and family."""

LONGER = (
    "single_shot_train_w24_d1_b2",
    "albert_forward_w96_d3_b8",
    "regnet_forward_w32_d2_b4_f32",
    "yolo_train_w24_d1_b4",
    "policy_and_value_train_w48_d1_b8_f32",
    "sentence_pair_train_w72_d2_b8",
    "t5_forward_w96_d2_b8",
)
"""Valid and test programs with more configurations than the others, for the error of the first ten.

They are small ones, whose configurations mostly differ in their cycles.
"""
