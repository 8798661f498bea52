"""One network trained by several processes: torchrun's processes, each with a share of every step's graphs.

All processes hold the same weights. A step's gradients are summed over them before they are clipped, so the
result equals the result of one process up to the order of the sum. ``DistributedDataParallel`` would need a
graph for each process at every step. Without torchrun there is one process, and nothing here does anything.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import distributed

_Value = TypeVar("_Value")


def rank() -> int:
    """Return this process's number, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def share(items: Sequence[_Value]) -> Sequence[_Value]:
    """Return the items of this process: every n-th one, n the number of processes."""
    return items[rank() :: world_size()]


def merge(entries: dict[str, _Value], names: Sequence[str]) -> dict[str, _Value]:
    """Return the entries of all processes in the order of ``names``; each gives its share's entries."""
    if world_size() == 1:
        return entries
    parts: list[dict[str, _Value]] = [{} for _ in range(world_size())]
    distributed.all_gather_object(parts, entries)
    together = {name: value for part in parts for name, value in part.items()}
    return {name: together[name] for name in names}


def from_first(make: Callable[[], _Value]) -> _Value:
    """Call a function in the first process alone and return its result in all of them."""
    if world_size() == 1:
        return make()
    box: list[Any] = [make() if rank() == 0 else None]
    distributed.broadcast_object_list(box)
    return box[0]


def add_gradients(network: torch.nn.Module) -> None:
    """Replace every gradient by its sum over the processes; one that no process has stays ``None``."""
    if world_size() == 1:
        return
    parameters = [p for p in network.parameters() if p.requires_grad]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    known = torch.tensor([float(p.grad is not None) for p in parameters], device=parameters[0].device)
    together = torch.cat([*(g.flatten() for g in gradients), known])
    distributed.all_reduce(together)
    *pieces, known = together.split([*(g.numel() for g in gradients), len(parameters)])
    for parameter, piece, count in zip(parameters, pieces, known.tolist(), strict=True):
        parameter.grad = piece.view_as(parameter) if count else None


def mean_loss(losses: Sequence[torch.Tensor], device: torch.device) -> float:
    """Return the mean of the losses of all processes; one may have none."""
    here = torch.stack([*losses]) if losses else torch.zeros(0, device=device)
    if world_size() == 1:
        return float(here.mean())
    total = torch.stack([here.double().sum(), torch.tensor(float(len(losses)), device=device).double()])
    distributed.all_reduce(total)
    return float(total[0] / total[1])
