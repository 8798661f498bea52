"""What names a configuration of a program: an identity from what it chooses, and which one is the default."""

import hashlib
from dataclasses import dataclass

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.layouts import ROLES
from fastslow.competition.reader import Program
from fastslow.competition.schema import TILE_ROLES, TILE_WIDTH
from fastslow.competition.tied_choices import Choices
from fastslow.features.configs.default_layouts import (
    file_of_default_search,
    find_default_layouts,
    is_off_default,
)
from fastslow_programs.program.convert import ConvertedProgram

ROW_MAJOR = "row-major: the compiler's own is not known"
_OUTPUT = ROLES.index("output")


@dataclass(frozen=True)
class Default:
    """The configuration that others are compared with.

    Args:
        config: Its position in the file, None where no configuration stands out.
        words: Which it is.
        known: Whether it is the compiler's default, or the configuration nearest to it.
        options: ``(G,)`` of a layout file, the compiler's own option of each group of
            :class:`fastslow.competition.tied_choices.Choices`, -1 where it is not known; None where
            ``config`` has these options.
    """

    config: int | None
    words: str
    known: bool = True
    options: np.ndarray | None = None


def find_default(program: Program) -> Default:
    """Find the compiler's default.

    For a tile it is the configuration whose runtime is the normaliser. For a program from HLO with the
    compiler's own layouts it is the first one. For a layout file it is the configuration that differs from
    the compiler's own layouts in the smallest number of tensors
    (:mod:`fastslow.features.configs.default_layouts`).

    Raises:
        DataError: The ``default`` file of a ``random`` one is broken.
    """
    if program.normalizers is not None:
        rows = np.flatnonzero(program.runtime == program.normalizers)
        if not len(rows):
            words = "not among the configurations; its runtime is the file's normaliser"
            return Default(None, words, known=False)
        return Default(int(rows[0]), f"configuration {rows[0]}, whose runtime is the file's normaliser")
    if isinstance(program, ConvertedProgram) and not program.measured:
        if program.default_layouts is not None:
            return Default(0, "configuration 0")
        return Default(0, f"configuration 0, {ROW_MAJOR}", known=False)
    if not knows_default_layouts(program):
        words = "nearest to the commonest option of each choice: the compiler's own is not known"
        return Default(None, words, known=False)
    assert program.choices is not None and program.layouts is not None, (
        "a layout program has choices and layouts"
    )
    return _nearest(program.choices, program.layouts, find_default_layouts(program))


def knows_default_layouts(program: Program) -> bool:
    """Return whether :func:`find_default_layouts` finds any; errors as there."""
    named = program.default_layouts is not None or program.collection.name.endswith(":default")
    return named or file_of_default_search(program) is not None


def _nearest(choices: Choices, layouts: np.ndarray, defaults: np.ndarray) -> Default:
    """Return the configuration whose number of tensors with other layouts than ``(K, 3, 6)`` is smallest."""
    off = np.zeros((choices.num_groups, choices.codes.shape[2]))  # tensors, by option of each group
    np.add.at(off, choices.group, is_off_default(layouts[choices.codes], defaults[:, :, None]))
    off[np.arange(off.shape[1]) >= choices.options[:, None]] = np.inf
    groups = np.arange(choices.num_groups)
    count = off[groups, choices.values].sum(1)
    nearest = int(count.argmin())
    given = choices.values[nearest].astype(np.int64)
    options = np.where(off[groups, given] == off.min(1), given, off.argmin(1))
    known = np.zeros(choices.num_groups, bool)
    np.logical_or.at(known, choices.group, defaults[..., 0] >= 0)
    words = f"configuration {nearest}, equal to the compiler's own layouts"
    if differing := int(count[nearest]):
        differ = "differs" if differing == 1 else "differ"
        words = (
            f"configuration {nearest}; {differing} of its tensors {differ} from the compiler's own layouts"
        )
    return Default(nearest, words, options=np.where(known, options, -1))


def identify(program: Program) -> np.ndarray:
    """Return a short hash of every configuration of a program, ``(C,)`` strings such as ``c1f0a93b27d64``.

    Equal configurations have equal ones, in any draw or file of the program. Another program has other ones.
    A hash is the sum of one of the graph (opcodes, shapes, edges) and one of every tensor with its layout, or
    of every bound of a tile (Zobrist, Technical Report 88, 1970). The layouts of operands count only where
    configurations differ in them apart from outputs, as in TpuGraphs' files. For a user's program they are
    fixed, but depend on whether the compiler's own layouts are known.
    """
    total = np.full(len(program.runtime), _hash_of_graph(program), np.uint64)
    if program.config_feat is not None:
        for place, column in enumerate(program.config_feat.T[: len(TILE_ROLES) * TILE_WIDTH]):
            distinct, row = np.unique(column, return_inverse=True)
            total += np.array([_hash(place, f"{value:g}") for value in distinct], np.uint64)[row]
    else:
        choices, ids = program.choices, program.node_config_ids
        assert choices is not None and program.layouts is not None and ids is not None, (
            "a layout program has them"
        )
        words = [str(layout) for layout in program.layouts.tolist()]
        options = np.zeros((choices.num_groups, choices.codes.shape[2]), np.uint64)
        operands_vary = not np.isin(choices.varying, choices.group[:, _OUTPUT]).all()
        counted = choices.group if operands_vary else choices.group[:, [_OUTPUT]]
        for (node, role), group in np.ndenumerate(counted):
            hashes = [_hash(ids[node], role, words[code]) for code in choices.codes[node, role]]
            options[group] += np.array(hashes, np.uint64)
        for group, values in enumerate(choices.values.T):
            total += options[group, values]
    return np.array([f"c{number & 0xFFFFFFFFFFFF:012x}" for number in total.tolist()])


def _hash_of_graph(program: Program) -> int:
    """Return a hash of the opcodes, the shapes and the edges of a program, in any order of the edges."""
    shapes = program.node_feat[:, node_columns.SHAPE]
    edges = np.unique(program.edge_index, axis=0)
    digest = hashlib.blake2b(digest_size=8)
    for array in (program.node_opcode, shapes, edges):
        digest.update(np.ascontiguousarray(array, np.int64).tobytes())
    return int.from_bytes(digest.digest(), "little")


def _hash(*parts: object) -> int:
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
