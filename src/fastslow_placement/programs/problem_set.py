"""Placement problems for training: the programs of the sample competition on drawn machines.

Each program of train and valid is placed on several machines: 2, 4 or 8 devices of a drawn model, whose rates
are divided by 1, 16 or 256, as if all tensors were larger by that factor (the sample's programs are small),
and for one machine in four with little memory. Architectures that are also in the zoo of this package are left
out, and so are the programs of test, whose architectures are in no other split: on these, and on the zoo,
policies are compared.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastslow.competition.catalog import COLLECTIONS, list_programs
from fastslow.core.errors import SettingsError
from fastslow_placement.programs.fusion import contract
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.programs.roofline import DEVICES

HELD_OUT = ("gpt", "inception_resnet", "inflated_inception", "lstm", "translator", "wavenet")
"""Architectures of the sample that the zoo has under another name; never trained on."""
DEVICE_COUNTS, DIVISORS, MEMORY = (2, 4, 8), (1, 16, 256), 1.25
LARGEST = 1500  # units; larger programs are left out


class Machine(NamedTuple):
    """What a program is placed on.

    Args:
        devices: Number of devices.
        device: Name of their model.
        divisor: What all rates are divided by.
        little_memory: Whether the devices together hold 1.25 times what the program holds, else 16 GB each.
    """

    devices: int
    device: str
    divisor: int
    little_memory: bool


def program_files(data: Path, splits: tuple[str, ...]) -> list[Path]:
    """Return the layout files of the splits, one for each program, sorted by name.

    Raises:
        DataError: There is none.
    """
    found = {}
    for collection in COLLECTIONS:
        for split in splits if collection.kind == "layout" else ():
            for program in list_programs(data, collection, split):
                if not program.name.startswith(tuple(f"{held}_" for held in HELD_OUT)):
                    found.setdefault(program.name, program.path)
    return [found[name] for name in sorted(found)]


def machines_of(name: str, count: int) -> list[Machine]:
    """Return distinct machines that are drawn for a program by its name."""
    rng, found = np.random.default_rng([*name.encode()]), []
    while len(found) < count:
        one = Machine(
            int(rng.choice(DEVICE_COUNTS)),
            str(rng.choice([*DEVICES])),
            int(rng.choice(DIVISORS)),
            bool(rng.random() < 0.25),
        )
        if one not in found:
            found.append(one)
    return found


def placement_on(path: Path, machine: Machine) -> PlacementProblem:
    """Return the placement of a program on a machine.

    Raises:
        SettingsError: The program does not fit.
        DataError: The file holds no program.
    """
    base = DEVICES[machine.device]
    device = replace(
        base,
        flops_per_second=base.flops_per_second / machine.divisor,
        bytes_per_second=base.bytes_per_second / machine.divisor,
        link_bytes_per_second=base.link_bytes_per_second / machine.divisor,
    )
    graph = contract(read_cost_graph(path, device), device)
    held = float((graph.parameter_bytes + graph.output_bytes).sum())
    memory = MEMORY * held / machine.devices if machine.little_memory else 0.0
    return PlacementProblem(graph, machine.devices, device, memory)


def problems(paths: list[Path], machines: int) -> Iterator[PlacementProblem]:
    """Yield the placements of programs on their machines, where there is something to decide.

    Programs whose split by layers does not fit, or of more than 1,500 units, are left out.
    """
    for path in paths:
        for machine in machines_of(path.stem, machines):
            try:
                problem = placement_on(path, machine)
            except SettingsError:
                continue
            if len(problem.choices) <= LARGEST and problem.evaluate(problem.default[None]).valid[0]:
                problem.name = f"{path.stem} on {machine.devices} {machine.device} / {machine.divisor}"
                yield problem
