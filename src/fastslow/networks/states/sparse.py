"""Products with constant sparse matrices, forward and backward."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional


def move(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor ``(...)`` to a device; to a GPU through pinned memory, so that the host does not wait."""
    tensor = tensor.pin_memory() if device.type == "cuda" else tensor
    return tensor.to(device, non_blocking=True)


def no_autocast(device: torch.device) -> AbstractContextManager:
    """Return the context in which autocast is off; where it is off already, one that costs nothing."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@dataclass(frozen=True)
class _Csr:
    """A CSR matrix as bags of rows to sum: on a CPU ``embedding_bag`` is the fastest sparse product."""

    indices: Tensor
    offsets: Tensor
    weights: Tensor

    @classmethod
    def of(cls, matrix: sparse.csr_matrix) -> "_Csr":
        return cls(
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.data.astype(np.float32)),
        )

    def to(self, device: torch.device) -> "_Csr":
        return _Csr(*(move(tensor, device) for tensor in (self.indices, self.offsets, self.weights)))

    def __matmul__(self, x: Tensor) -> Tensor:
        return functional.embedding_bag(
            self.indices,
            x,
            self.offsets,
            mode="sum",
            per_sample_weights=self.weights,
            include_last_offset=True,
        )


class _SparseMatmul(torch.autograd.Function):
    """matrix @ x whose gradient is a product with the transposed matrix, not a scatter with atomic adds."""

    @staticmethod
    def forward(context, x, forward, backward):
        context.backward_matrix = backward
        return forward @ x.detach().contiguous()  # embedding_bag would keep what only its own gradient needs

    @staticmethod
    def backward(context, gradient):
        return context.backward_matrix @ gradient.contiguous(), None, None


class SparseOperator:
    """A constant sparse matrix for ``operator @ x``, differentiable in ``x``.

    Args:
        factors: CSR matrices whose product it is, ``(rows, ...)`` to ``(..., columns)``; usually one. The
            product is not formed. Values are converted to float32.
        differentiable: Whether to hold the transposed matrices, which gradients need and nothing else.
    """

    def __init__(self, *factors: sparse.csr_matrix, differentiable: bool = True):
        self.shape = (factors[0].shape[0], factors[-1].shape[1])
        matrices = [(each, each.T.tocsr()) if differentiable else (each,) for each in factors]
        self._factors = [tuple(map(_Csr.of, sides)) for sides in matrices]

    def to(self, device: torch.device) -> "SparseOperator":
        """Return the operator on a device."""
        moved = object.__new__(SparseOperator)
        moved.shape = self.shape
        moved._factors = [tuple(side.to(device) for side in sides) for sides in self._factors]
        return moved

    def entries(self) -> tuple[Tensor, Tensor]:
        """Return row and column ``(entries,)`` of each entry, by row; of an operator of a single factor."""
        ((matrix, *_),) = self._factors
        rows = torch.arange(self.shape[0], device=matrix.offsets.device)
        return rows.repeat_interleave(matrix.offsets.diff()), matrix.indices

    def __matmul__(self, x: Tensor) -> Tensor:
        """Return ``matrix @ x`` ``(rows, D)`` of ``x`` ``(columns, D)`` in float32, also under autocast."""
        with no_autocast(x.device):
            x = x.float()
            for forward, *backward in reversed(self._factors):
                x = _SparseMatmul.apply(x, forward, *backward) if backward else forward @ x.contiguous()
            return x


def take_rows(x: Tensor, index: Tensor | slice) -> Tensor:
    """Return ``x[index]`` ``(..., D)``, rows of ``x`` ``(rows, D)``, with the gradient that is fast on a CPU.

    There the gradient of ``index_select`` takes half the time of an indexed tensor's, and a tenth of an
    embedding's. On a GPU it would add in an order that changes from run to run. The dense form that ours is
    compared with indexes by a slice.
    """
    if isinstance(index, slice) or x.device.type != "cpu":
        return x[index]
    return x.index_select(0, index.flatten()).view(*index.shape, x.shape[1])


def largest_rows(operator: SparseOperator, x: Tensor) -> Tensor:
    """Return for each row of a matrix of ones the largest of the rows that it would sum, by channel.

    The matrix ``(rows, columns)`` has no empty row, ``x`` is ``(columns, D)`` and the result ``(rows, D)``
    float32. Of equal rows the gradient goes to one.
    """
    with no_autocast(x.device):
        x = x.float()
        for forward, *_ in reversed(operator._factors):
            x = functional.embedding_bag(
                forward.indices, x.contiguous(), forward.offsets, mode="max", include_last_offset=True
            )
        return x


def moved_fields(record, device: torch.device) -> dict:
    """Return by name the tensors and operators among a dataclass's fields, moved to a device."""
    by_kind = {Tensor: move, SparseOperator: SparseOperator.to}
    fields = vars(record).items()
    return {name: by_kind[type(v)](v, device) for name, v in fields if type(v) in by_kind}
