"""The identity of a configuration: what it chooses, whatever its position in a draw or a file."""

import hashlib

import numpy as np

from fastslow.competition.layouts import ROLES
from fastslow.competition.reader import Program
from fastslow.competition.schema import TILE_ROLES, TILE_WIDTH

_OUTPUT = ROLES.index("output")


def identify(program: Program) -> np.ndarray:
    """Return a short hash of the choices of every configuration, ``(C,)`` strings such as ``c1f0a93b27d64``.

    Equal configurations have equal ones, in any draw or file of the program. It is the sum of a hash of every
    tensor with its layout, or of every bound of a tile (Zobrist, Technical Report 88, 1970). The layouts of
    operands count only where configurations differ in them apart from outputs, as in TpuGraphs' files. For a
    user's program they are fixed, but depend on whether the compiler's own layouts are known.
    """
    total = np.zeros(len(program.runtime), np.uint64)
    if program.config_feat is not None:
        for place, column in enumerate(program.config_feat.T[: len(TILE_ROLES) * TILE_WIDTH]):
            distinct, row = np.unique(column, return_inverse=True)
            total += np.array([_hash(place, f"{value:g}") for value in distinct], np.uint64)[row]
    else:
        choices, ids = program.choices, program.node_config_ids
        assert choices is not None and program.layouts is not None and ids is not None, "a layout program has them"
        words = [str(layout) for layout in program.layouts.tolist()]
        options = np.zeros((choices.num_groups, choices.codes.shape[2]), np.uint64)
        operands_vary = not np.isin(choices.varying, choices.group[:, _OUTPUT]).all()
        counted = choices.group if operands_vary else choices.group[:, [_OUTPUT]]
        for (node, role), group in np.ndenumerate(counted):
            own = [_hash(ids[node], role, words[code]) for code in choices.codes[node, role]]
            options[group] += np.array(own, np.uint64)
        for group, values in enumerate(choices.values.T):
            total += options[group, values]
    return np.array([f"c{number & 0xFFFFFFFFFFFF:012x}" for number in total.tolist()])


def _hash(*parts: object) -> int:
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
