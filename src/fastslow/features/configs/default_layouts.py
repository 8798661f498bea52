"""The compiler's own layouts of a program's configurable tensors, as far as competition files tell them.

What a configuration costs is what it changes: an output in the compiler's own layout costs nothing extra, in
another one mostly copies. A published file does not name the compiler's layouts. But the search of a
``default`` file starts from them and stays near them. A tensor's commonest layout there is therefore taken
for its own. The ``random`` files hold the same programs (the 25 of the two test sets have the same names). A
file that ``make convert`` wrote names them itself, in :data:`fastslow.competition.schema.DEFAULTS`.
"""

from pathlib import Path

import numpy as np

from fastslow.competition.catalog import ProgramFile
from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.reader import Program, read_checked, read_choices
from fastslow.competition.tied_choices import Choices
from fastslow.core.input_files import is_there


def find_default_layouts(program: Program) -> np.ndarray:
    """Return the compiler's own layout of every configurable tensor of a layout program.

    For a ``random`` file the ``default`` file beside it is read.

    Returns:
        ``(K, 3, 6)`` int8, minor to major, -1 padded, in the form in which configurations name them. All -1
        where it is not known: in a ``random`` file without the ``default`` file of the same program beside
        it, or for a tensor that every configuration leaves to the compiler.

    Raises:
        DataError: The ``default`` file is broken.
    """
    if program.default_layouts is not None:
        return program.default_layouts
    if program.collection.name.endswith(":default"):
        return commonest_layouts(program.layouts, program.choices)
    other = file_of_default_search(program)
    if other is None:
        return np.full((len(program.node_config_ids), len(ROLES), LAYOUT_WIDTH), -1, np.int8)
    return commonest_layouts(*read_choices(other))


def default_file(file: ProgramFile) -> Path | None:
    """Return the ``default`` file of a ``random`` file's program, None where there is none."""
    folder = file.path.parent  # <search>/<split>
    if folder.parent.name != "random" or not file.collection.name.endswith(":random"):
        return None
    other = folder.parent.parent / "default" / folder.name / file.path.name
    return other if is_there(other) else None


def commonest_layouts(layouts: np.ndarray, choices: Choices) -> np.ndarray:
    """Return which of the layouts ``(L, 6)`` most configurations give each tensor, ``(K, 3, 6)`` int8.

    It is -1 for a tensor that all of them leave to the compiler. Of equally common layouts the first counts.
    """
    counts = np.zeros((choices.num_groups, choices.codes.shape[2]), np.int64)
    for group, values in enumerate(choices.values.T):
        counts[group] = np.bincount(values, minlength=counts.shape[1])
    given = layouts[choices.codes, 0] >= 0
    often = np.where(given, counts[choices.group] * len(layouts) - choices.codes.astype(np.int64), -1)
    best = often.argmax(2)[..., None]
    codes = np.take_along_axis(choices.codes, best, 2)[..., 0]
    known = np.take_along_axis(often, best, 2) > 0
    return np.where(known, layouts[codes], -1).astype(np.int8)


def is_off_default(layouts: np.ndarray, defaults: np.ndarray) -> np.ndarray:
    """Return whether layouts ``(..., 6)`` of tensors differ from the compiler's own, ``defaults (..., 6)``.

    False where the layout is left to the compiler, or its own is not known. Leading shapes are broadcast.
    """
    given = (layouts[..., 0] >= 0) & (defaults[..., 0] >= 0)
    return given & (layouts != defaults).any(-1)


def file_of_default_search(program: Program) -> Path | None:
    """Return the ``default`` file of a ``random`` file's program if it has the same (configurable) nodes."""
    other = default_file(program.file)
    if other is None:
        return None
    arrays = read_checked(other, "layout", ["node_opcode", "node_config_ids"])
    mine = program.node_opcode, program.node_config_ids
    return other if all(map(np.array_equal, mine, arrays.values())) else None
