"""Cost graphs and placements of the stored programs of the zoo."""

from fastslow.core.errors import SettingsError
from fastslow_placement.base.stored_programs import PROGRAMS, program_path
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.fusion import contract
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.programs.roofline import Device


def read_zoo_graph(name: str, device: Device) -> CostGraph:
    """Return the cost graph of a stored program.

    Raises:
        SettingsError: There is no program of that name.
        DataError: Its file is missing or broken.
    """
    if name not in PROGRAMS:
        raise SettingsError("source", f"no zoo program {name!r}; known are {', '.join(PROGRAMS)}")
    return read_cost_graph(program_path(name), device)


def zoo_placement(name: str, device: Device) -> PlacementProblem:
    """Return the placement of a zoo program on its own devices, each operator fused with its only consumer.

    Args:
        name: Name of the program.
        device: Constants of a device.
    """
    graph = contract(read_zoo_graph(name, device), device)
    return PlacementProblem(graph, PROGRAMS[name].devices, device)
