"""Matrices on disk whose rows are read when they are indexed; no file stays open in between."""

from pathlib import Path

import numpy as np

_MAX_TABLE = 1 << 16  # a column of more distinct values is stored as it is


class StoredRows:
    """A ``.npy`` file as an array of rows: indexing maps the file, copies the rows, and closes it.

    A memory map that is kept holds a file descriptor each, and the usual limit of a process is 1,024: a
    features folder of the tile collection has 14,500 such files.

    Args:
        path: The file, as :func:`numpy.save` wrote it.

    Raises:
        OSError: The file is missing or cannot be opened.
        ValueError: It is not a plain array, or shorter than its header announces.
    """

    def __init__(self, path: Path):
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        self._path, self._offset = path, mapped.offset
        self.shape, self.dtype, self.ndim, self.nbytes = (
            mapped.shape,
            mapped.dtype,
            mapped.ndim,
            mapped.nbytes,
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, key) -> np.ndarray:
        """Return what numpy's indexing gives, as an array in memory."""
        return np.array(np.memmap(self._path, self.dtype, "r", self._offset, self.shape)[key])

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Return the whole array, read into memory."""
        return np.asarray(self[...], dtype)


class PackedColumns:
    """A ``(C, V)`` float32 matrix, exact: a constant column takes no byte per row, others 1, 2 or 4.

    A column of at most 256 (65,536) distinct values is stored as positions in the table of its values. Rows
    are unpacked when they are asked for, so the bytes may be stored on disk (:class:`StoredRows`).

    Args:
        packed: ``(C, B)`` uint8, the columns side by side.
        values: ``(S,)`` float32, the tables of all columns, one after the other, each ascending.
        sizes: ``(V,)`` int32, length of each column's table; 0 for a column stored as it is.
    """

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, packed: np.ndarray, values: np.ndarray, sizes: np.ndarray):
        self.packed, self.values, self.sizes = packed, values, sizes
        width = np.select([sizes == 0, sizes == 1, sizes <= 256], [4, 0, 1], 2)
        self._ends = np.cumsum(width)
        self._widths = width
        self._tables = np.split(values, np.cumsum(sizes)[:-1])

    @classmethod
    def pack(cls, matrix: np.ndarray) -> "PackedColumns":
        """Pack a matrix ``(C, V)`` float32, C at least 1."""
        parts = [np.zeros((len(matrix), 0), np.uint8)]
        tables = []
        for column in np.asarray(matrix, np.float32).T:
            bits = np.ascontiguousarray(column).view(np.uint32)  # as bits -0 and every NaN are distinct
            varies = (bits != bits[0]).any()
            table, index = np.unique(bits, return_inverse=True) if varies else (bits[:1], bits[:0])
            if len(table) > _MAX_TABLE:
                table, index = bits[:0], bits
            elif varies:
                index = index.astype(np.uint8 if len(table) <= 256 else np.uint16)
            tables.append(table.view(np.float32))
            if varies:
                parts.append(index[:, None].view(np.uint8))
        values = np.concatenate([np.zeros(0, np.float32), *tables])
        return cls(np.concatenate(parts, 1), values, np.array([len(t) for t in tables], np.int32))

    @property
    def shape(self) -> tuple[int, int]:
        """``(C, V)``."""
        return len(self.packed), len(self.sizes)

    def __len__(self) -> int:
        """Return C."""
        return len(self.packed)

    def __getitem__(self, key) -> np.ndarray:
        """Return rows, or rows and columns, as numpy does; only the rows (and columns) asked for are read."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        packed = np.asarray(self.packed[rows])
        chosen = np.arange(len(self.sizes))[list(columns) if isinstance(columns, tuple) else columns]
        unpacked = [self._unpack(packed, column) for column in np.atleast_1d(chosen)]
        values = np.stack(unpacked, -1) if unpacked else np.zeros((*packed.shape[:-1], 0), np.float32)
        return values if np.ndim(chosen) else values[..., 0]

    def _unpack(self, packed: np.ndarray, column: int) -> np.ndarray:
        end, width, table = self._ends[column], self._widths[column], self._tables[column]
        stored = np.ascontiguousarray(packed[..., end - width : end])
        if width == 0:
            return np.broadcast_to(table[0], packed.shape[:-1])
        if width == 4:
            return stored.view(np.float32)[..., 0]
        return table[stored.view(f"u{width}")[..., 0]]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Return the whole matrix."""
        return np.asarray(self[:], dtype)
