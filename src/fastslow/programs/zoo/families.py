"""Table of the families of the zoo: networks, inputs, variants and splits."""

from dataclasses import dataclass, field

from fastslow.competition.catalog import TEST, TRAIN, VALID


@dataclass(frozen=True)
class Variant:
    """One program of a family.

    Attributes:
        step: ``train`` for a step of gradient descent, ``forward`` for inference.
        width: Features of the (first) layer, a multiple of the number of attention heads.
        depth: Number of layers or blocks as the network counts them, from 1.
        batch: Batch size.
        dtype: Type of weights and float inputs.
    """

    step: str
    width: int
    depth: int
    batch: int
    dtype: str = "bfloat16"

    @property
    def label(self) -> str:
        """Suffix of the program's name: ``train_w32_d1_b8``, followed by ``_f32`` for float32."""
        suffix = {"bfloat16": "", "float32": "_f32"}[self.dtype]
        return f"{self.step}_w{self.width}_d{self.depth}_b{self.batch}{suffix}"


@dataclass(frozen=True)
class Family:
    """Programs of one architecture.

    Attributes:
        source: ``xla`` or ``nlp``.
        name: Unique name.
        network: Module of this package and function in it, joined by a dot.
        small: Variants of the committed sample.
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


def forward(width: int, depth: int, batch: int, dtype: str = "bfloat16") -> Variant:
    """Return a variant for inference."""
    return Variant("forward", width, depth, batch, dtype)


def train(width: int, depth: int, batch: int, dtype: str = "bfloat16") -> Variant:
    """Return a variant for a step of gradient descent."""
    return Variant("train", width, depth, batch, dtype)


IMAGE = ((16, 16, 3),)
PATCHED_IMAGE = ((32, 32, 3),)  # 64 patches of 4 x 4


def _xla(network, *small, name="", widths=(40, 96), floats=IMAGE, tokens=(), **settings) -> Family:
    return Family("xla", name or network.split(".")[1], network, small, widths, floats, tokens, settings)


def _nlp(network, *small, name="", widths=(72, 128), tokens=(32,), **settings) -> Family:
    return Family("nlp", name or network.split(".")[1], network, small, widths, (), tokens, settings)


def _attention(kind, *small, **settings) -> Family:
    return _nlp("attention.transformer", *small, name=kind, kind=kind, **settings)


FAMILIES = (
    _xla("convolutional.resnet_basic", forward(48, 1, 8), train(32, 1, 8)),
    _xla("convolutional.resnet_basic", train(32, 1, 4), name="squeeze_excite", excite=True),
    _xla("convolutional.resnet_bottleneck", forward(32, 1, 16)),
    _xla("convolutional.mobilenet", forward(32, 2, 8), train(24, 1, 8)),
    _xla("convolutional.shufflenet", forward(48, 1, 4)),
    _xla("convolutional.convnext", train(48, 1, 4)),
    _xla("convolutional.densenet", forward(24, 1, 8), widths=(16, 40)),
    _xla("convolutional.vgg", forward(32, 1, 8), train(40, 1, 8, "float32"), widths=(24, 64)),
    _xla("convolutional.squeezenet", forward(64, 1, 16), train(48, 1, 8)),
    _xla("convolutional.inception", forward(32, 1, 8), train(24, 1, 8)),
    _xla("convolutional.factorised_inception", train(40, 1, 8)),
    _xla("images.unet", forward(32, 1, 4), widths=(24, 48)),
    _xla("images.autoencoder", forward(32, 1, 8), train(16, 1, 4), widths=(24, 48)),
    _xla("images.generator", forward(32, 1, 8), floats=((40,),), widths=(24, 48)),
    _xla("images.super_resolution", forward(24, 1, 2), widths=(16, 40)),
    _xla("images.detector", train(24, 1, 4)),
    _xla("images.segmenter", forward(64, 1, 8)),
    _xla("images.style_transfer", forward(40, 1, 4)),
    _xla("images.hourglass", forward(48, 1, 8, "float32"), train(32, 1, 8)),
    _xla("images.non_local", train(48, 1, 4)),
    _xla("dense.perceptron", train(96, 2, 48), floats=((200,),), widths=(72, 192)),
    _xla("dense.mixer", train(64, 1, 8), floats=PATCHED_IMAGE),
    _xla("dense.vision_transformer", forward(96, 1, 8), floats=PATCHED_IMAGE),
    _xla("dense.window_transformer", train(64, 1, 4)),
    _xla("dense.capsules", train(32, 1, 4)),
    _xla("dense.recommender", train(48, 1, 32), floats=((13,),), tokens=(12,)),
    _xla("dense.graph_network", train(72, 1, 8), floats=((40, 24), (40, 40))),
    _xla("recurrent.lstm", train(64, 2, 16), floats=((16, 40),)),
    _xla("recurrent.gru", train(96, 1, 8), floats=((16, 40),)),
    _xla("recurrent.conv_lstm", forward(32, 1, 4), floats=((6, 16, 16, 8),), widths=(16, 40)),
    _nlp("language.bert", train(96, 1, 4), train(64, 1, 8, "float32")),
    _nlp("language.gpt", forward(96, 1, 8), train(64, 1, 4)),
    _nlp("language.llama", forward(128, 1, 8), train(64, 1, 4)),
    _nlp("language.encoder_decoder", forward(96, 1, 8), tokens=(32, 24)),
    _nlp("language.albert", forward(96, 1, 8), train(64, 1, 4)),
    _nlp("language.scanned_decoder", forward(96, 2, 8)),
    _nlp("language.mixture_of_experts", forward(96, 1, 4), train(64, 1, 4)),
    _nlp("language.text_cnn", train(64, 1, 16)),
    _nlp("language.gmlp", forward(96, 1, 16), train(64, 1, 8)),
    _nlp("language.fnet", train(64, 1, 8)),
    _nlp("language.conformer", train(64, 1, 4)),
    _nlp("recurrent.tagger", train(64, 1, 16), tokens=(24,)),
    _nlp("recurrent.translator", forward(96, 1, 16), train(64, 1, 8), tokens=(24, 16)),
    _attention("talking_heads", forward(96, 1, 4), train(64, 1, 4)),
    _attention("multi_query", forward(160, 1, 8), train(64, 1, 4)),
    _attention("relative", train(64, 1, 4)),
    _attention("linear", forward(96, 1, 8)),
    _attention("block", forward(96, 1, 4), tokens=(64,)),
    _attention("low_rank", forward(64, 1, 8), train(96, 1, 2), tokens=(64,)),
    _attention("disentangled", train(64, 1, 4)),
    _attention("retention", forward(96, 1, 16)),
    _nlp("attention.perceiver", forward(96, 1, 16), train(64, 1, 8), tokens=(48,)),
    _nlp("attention.sentence_pair", train(72, 1, 8), tokens=(32, 24)),
)

HELD_OUT = {
    VALID: (
        *("squeeze_excite", "squeezenet", "generator", "segmenter", "window_transformer", "gru"),
        *("mixture_of_experts", "text_cnn", "tagger", "linear", "disentangled"),
    ),
    TEST: (
        *("resnet_bottleneck", "shufflenet", "convnext", "factorised_inception", "super_resolution"),
        *("non_local", "graph_network", "llama", "fnet", "conformer", "block", "retention", "sentence_pair"),
    ),
}
"""Families whose programs are in valid or in test; all other families are in train."""

_SPLIT = {name: split for split, names in HELD_OUT.items() for name in names}
FAMILY_SPLIT = {(family.source, family.name): _SPLIT.get(family.name, TRAIN) for family in FAMILIES}
"""Split by source and family: architectures of valid and test do not occur in train."""
