"""Seconds of each operation of torch, beside the least that this machine could need for it."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_SIZE = 1024  # of the matrices whose product measures FLOP/s
_MOVED = 2**25  # values that measure bandwidth: more than a cache holds
_REPEATS = 7
_CALLS = 10_000


@dataclass
class Cost:
    """What the calls of one operation cost together.

    Attributes:
        calls: Number of calls.
        seconds: CPU seconds of the thread that called, less what the counting adds.
        moved: Bytes of the tensors that the calls read and wrote; 0 for views.
        flops: FLOPs of matrix products, by the type of their values.
    """

    calls: int = 0
    seconds: float = 0.0
    moved: int = 0
    flops: dict[torch.dtype, int] = field(default_factory=lambda: defaultdict(int))


class Operations(TorchDispatchMode):
    """Times the operations of torch that run within it, of the forward and of the backward pass.

    Args:
        added: CPU seconds that the counting adds to a call.

    Attributes:
        costs: Cost of each operation, by its name in ATen.
    """

    def __init__(self, added: float = 0.0):
        super().__init__()
        self.added = added
        self.costs: dict[str, Cost] = defaultdict(Cost)

    @classmethod
    def calibrated(cls) -> "Operations":
        """Return a counter that knows how many seconds it adds to a call, measured by adding two numbers."""
        number = torch.zeros(1)

        def add() -> None:
            for _ in range(_CALLS):
                torch.add(number, number)

        alone = _fastest(add)
        counter = cls()
        with counter:
            add()
        return cls((counter.costs["add"].seconds - alone) / _CALLS)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Run an operation and add it to the costs."""
        kwargs = kwargs or {}
        began = time.thread_time()
        result = function(*args, **kwargs)
        seconds = time.thread_time() - began - self.added
        operation = function.overloadpacket
        cost = self.costs[operation.__name__]
        cost.calls += 1
        cost.seconds += seconds
        if not function.is_view:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if torch.is_tensor(leaf)]
            cost.moved += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if operation in flop_registry:
            cost.flops[result.dtype] += flop_registry[operation](*args, **kwargs, out_val=result)
        return result


@dataclass(frozen=True)
class Machine:
    """What one thread of this machine can do at most, as measured.

    Attributes:
        bandwidth: Bytes per second of a scaled copy of float32 values that no cache holds.
        flops: FLOPs per second of a product of square matrices, by type.
    """

    bandwidth: float
    flops: dict[torch.dtype, float]

    @classmethod
    def measured(cls) -> "Machine":
        """Measure this machine: the fastest of several calls."""
        values = torch.ones(_MOVED)
        copy = torch.empty_like(values)
        bandwidth = 2 * values.nbytes / _fastest(lambda: torch.mul(values, 2.0, out=copy))
        flops = {}
        for dtype in (torch.float32, torch.float64):
            matrix = torch.ones(_SIZE, _SIZE, dtype=dtype)
            flops[dtype] = 2 * _SIZE**3 / _fastest(lambda matrix=matrix: matrix @ matrix)
        return cls(bandwidth, flops)

    def bound(self, cost: Cost) -> float:
        """Return the least seconds of a cost: the longer of its bytes' time and its FLOPs' time."""
        products = sum(count / self.flops[dtype] for dtype, count in cost.flops.items())
        return max(cost.moved / self.bandwidth, products)


def _fastest(call: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest of several calls."""
    seconds = []
    for _ in range(_REPEATS):
        began = time.thread_time()
        call()
        seconds.append(time.thread_time() - began)
    return min(seconds)
