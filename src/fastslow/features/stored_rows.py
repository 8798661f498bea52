"""A matrix on disk whose rows are read when they are indexed; no file stays open in between."""

from pathlib import Path

import numpy as np


class StoredRows:
    """A ``.npy`` file as an array of rows: indexing maps the file, copies what is asked for, and closes it.

    A memory map that is kept holds a file descriptor each, and the usual limit of a process is 1,024: a
    features folder of the tile collection has 14,500 such files.

    Args:
        path: The file, as :func:`numpy.save` wrote it.

    Raises:
        OSError: The file is missing or cannot be opened.
        ValueError: It is not a plain array, or shorter than its header says.
    """

    def __init__(self, path: Path):
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        self._path, self._offset = path, mapped.offset
        self.shape, self.dtype = mapped.shape, mapped.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, key) -> np.ndarray:
        """Return what numpy's indexing gives, as an array in memory."""
        return np.array(np.memmap(self._path, self.dtype, "r", self._offset, self.shape)[key])

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Return the whole array, read into memory."""
        return np.asarray(self[...], dtype)
