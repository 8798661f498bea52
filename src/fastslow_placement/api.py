"""The Python interface: ``fastslow.place`` and ``fastslow.load_placed``. ``docs/api.md`` has examples."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastslow.core.errors import SettingsError
from fastslow.core.shown import Shown
from fastslow_placement.explain import decision_table, device_table, explain, gains
from fastslow_placement.figures import plot_decision, plot_learning, plot_memory
from fastslow_placement.place import Placed, compare, read_function, read_problem, tabulate, write_placed
from fastslow_placement.place import read_staged as load_placed  # of the interface
from fastslow_placement.programs.jax_program import JaxProgram
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.settings import ZOO, PlaceSettings
from fastslow_placement.staged import Staged

__all__ = ["Placement", "load_placed", "place"]
if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Placement(Shown):
    """A placed program.

    Attributes:
        table: One row per method, the best first.
        operators: One row per operator: device, start and finish.
        devices: One row per device: share of the time that it computes, memory, bytes sent; None for a task
            without devices.
        gain: What the best placement gains over one device and over the best simple split, as shares of
            their runtimes; None for another task.
    """

    def __init__(self, placed: Placed):
        problem, decision = placed.problem, placed.found[placed.best].decision
        self.placed, self.table = placed, tabulate(placed)
        self.operators = decision_table(problem, decision)
        timed = isinstance(problem, PlacementProblem)
        self.devices = device_table(problem, decision) if timed else None
        self.gain = gains(placed) if timed else None

    def words(self) -> list[str]:
        """Return what the best placement gains, why, and what it needs."""
        return explain(self.placed).split("\n")

    def figures(self) -> "list[Figure]":
        """Return the schedule of the best placement, the memory over time, and the searches."""
        return [plot(self.placed) for plot in (plot_decision, plot_memory, plot_learning)]

    def staged(self, method: str = "") -> Staged:
        """Return the placed function, which runs: it takes and returns what the function does.

        Args:
            method: A row of the table; by default the best.

        Raises:
            SettingsError: The program is no JAX function, the task is another, or there is no such method.
        """
        return self.placed.staged(method)


def place(
    source: str | Path | Callable, *arguments: Any, out: str | Path | None = None, **settings: Any
) -> Placement:
    """Place a program on several devices, and compare rules and searches by the cost model.

    Args:
        source: A function for ``jax.jit``, ``model.py:make``, an HLO file, a competition npz, or
            ``zoo:NAME``.
        *arguments: Arguments of the function: arrays or ``jax.ShapeDtypeStruct``; nothing is computed.
        out: Folder to write tables and figures to, and what ``load_placed`` reads; by default none.
        **settings: Settings of ``fastslow place``, such as ``devices=4, device="h100"``; ``updates`` is 0 here, which
            leaves GO out: learning within a search does not pay.

    Returns:
        The placement: ``table``, ``words()``, ``gain``, ``operators``, ``devices``, ``figures()``, and
        ``staged()``, which runs.

    Raises:
        SettingsError: A setting is wrong, no placement fits into the memory, or JAX is not installed.
        DataError: The source is missing or broken, or JAX cannot trace the function.
    """
    values = {"updates": 0, **settings} | ({"out": str(Path(out).expanduser().absolute())} if out else {})
    if callable(source):
        name = getattr(source, "__name__", type(source).__name__)
        own = PlaceSettings(source=name, **values)
        program = JaxProgram(source, arguments, name)
    else:
        if arguments:
            raise SettingsError(f"arguments: {len(arguments)} given, but {source} is no function")
        text = str(source)
        own = PlaceSettings(
            source=text if text.startswith(ZOO) else str(Path(text).expanduser().absolute()), **values
        )
        program = read_function(own)
    placed = compare(own, read_problem(own, program), program)
    if out:
        write_placed(placed, own)
    return Placement(placed)
