"""Keys, types and shapes of the competition's npz files."""

from pathlib import Path

from fastslow.core.errors import DataError
from fastslow.core.npz_io import (
    DOWNLOAD_AGAIN,
    Header,
)

NODE_FEATURES = 140
LAYOUT_WIDTH = 6  # a layout names at most six dimensions, minor-most first
ROLES = ("output", "input", "kernel")  # the tensors of a configurable node, in the order of node_config_feat
MAX_DIMENSION = 5
# key: (numpy kinds accepted, shape with the project's letters; a number is an exact size)
_SHARED = {
    "node_feat": ("f", ("N", NODE_FEATURES)),
    "node_opcode": ("iu", ("N",)),
    "edge_index": ("iu", ("E", 2)),
    "config_runtime": ("iu", ("C",)),
}
SCHEMA = {
    "layout": {
        **_SHARED,
        "node_config_ids": ("iu", ("K",)),
        "node_config_feat": ("f", ("C", "K", len(ROLES) * LAYOUT_WIDTH)),
        "node_splits": ("iu", None),
    },
    "tile": {
        **_SHARED,
        "config_feat": ("f", ("C", 24)),
        "config_runtime_normalizers": ("iu", ("C",)),
    },
}


def check_schema(path: Path, kind: str, headers: dict[str, Header]) -> dict[str, int]:
    """Check keys, types and shapes of a file against the competition's schema.

    Args:
        path: The file, for messages.
        kind: ``layout`` or ``tile``.
        headers: As :func:`read_headers` gives.

    Returns:
        The sizes by letter: N, E, C and, for layout, K.

    Raises:
        DataError: A key is missing, or has another type or shape.
    """
    sizes: dict[str, int] = {}
    for key, (kinds, shape) in SCHEMA[kind].items():
        if key not in headers:
            other = "tile" if kind == "layout" else "layout"
            hint = f"It looks like a {other} file" if set(SCHEMA[other]) <= set(headers) else DOWNLOAD_AGAIN
            raise DataError(path, f"key {key} is missing (a {kind} file has {', '.join(SCHEMA[kind])})", hint)
        header = headers[key]
        if header.dtype.kind not in kinds:
            wanted = "floating point" if kinds == "f" else "integer"
            raise DataError(path, f"{key} has type {header.dtype}, {wanted} wanted", DOWNLOAD_AGAIN)
        if shape is None:
            continue
        fits = len(header.shape) == len(shape) and all(
            size == (sizes.setdefault(letter, size) if isinstance(letter, str) else letter)
            for letter, size in zip(shape, header.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join(f"{s}={sizes[s]}" if s in sizes else str(s) for s in shape)
            raise DataError(path, f"{key} has shape {header.shape}, ({wanted}) wanted", DOWNLOAD_AGAIN)
    for letter, what in (("N", "nodes"), ("C", "configurations")):
        if not sizes[letter]:
            raise DataError(path, f"has no {what}", DOWNLOAD_AGAIN)
    return sizes
