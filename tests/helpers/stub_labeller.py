"""A labeller in the compiler's place."""

import base64
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class StubLabeller:
    """A labeller whose compiler knows the layout of one dot and refuses every third program."""

    cache: Path
    generation: str
    seconds: float
    task: object = None
    processes: int = 1
    attempts: int = 1

    def identity(self):
        return f"compiler {self.generation} 1"

    @contextlib.contextmanager
    def workers(self):
        yield self.label

    def label(self, modules, title=""):
        if self.task:
            module = base64.b64encode(modules[0]).decode()
            return [{"module": module, "layouts": {"dot.3": [[2, 3, 1, 0], [3, 2, 1, 0], [1, 0]]}}]
        refused = {"failure": "refused", "message": "no", "compiler": "libtpu 1", "topology": "v3"}
        return [refused if n % 3 == 1 else {"cycles": 100 + n} for n in range(len(modules))]


class WithoutConstraintsFirst(StubLabeller):
    """A labeller that estimates 106 cycles of the first program, which has no constraints."""

    refuses_others: ClassVar[bool] = False
    """Whether it refuses each program with constraints."""

    def label(self, modules, title=""):
        if self.task:
            return super().label(modules, title)
        records = super().label(modules[1:], title)
        return [{"cycles": 106}, *(records[1:2] * len(records) if self.refuses_others else records)]


class ConstraintsCost(StubLabeller):
    """A labeller whose estimates fall from 100 cycles of the first, the default; ``as_compiled`` has none."""

    as_compiled: ClassVar[dict] = {}
    """Record of the program without constraints."""

    def label(self, modules, title=""):
        if b"LayoutConstraint" not in modules[0]:
            return [self.as_compiled]
        return [{"cycles": 100 - number} for number in range(len(modules))]
