"""A placed JAX function that runs: compiled stages on their devices, with ``jax.device_put`` in between.

A stage is a run of operators of one device in the order of the schedule. It begins where a value arrives from
another device after the stage before it has begun, and ends where one is sent. So the stages can run in the
order of their first operators, and JAX, which does not wait for a stage, overlaps those of different devices.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from annotated_types import Ge, Le

from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import write_json
from fastslow.core.records import Record, read_record
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.fusion import ordered_clusters, single_consumer_clusters
from fastslow_placement.programs.jax_program import JaxProgram, Operator, shape_of
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.schedule import Timeline
from fastslow_programs.program.user_program import Source

STAGES = "stages.json"
_FORMAT = 1
_REMEDY = "Place the function again"


class _StoredStage(Record):
    device: Annotated[int, Ge(0)]
    operators: list[str]


class _Stored(Record):
    format: Annotated[int, Ge(_FORMAT), Le(_FORMAT)]
    program: str
    source: str
    digest: str
    devices: Annotated[int, Ge(1)]
    stages: list[_StoredStage]


class Stage(NamedTuple):
    """Operators that run as one compiled function.

    Args:
        device: Number of the device.
        operators: In the order of the program.
        inputs: Numbers of the values that it takes.
        outputs: Numbers of the values that it gives.
    """

    device: int
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Staged:
    """A placed function; it takes and returns what the function does.

    A result stays on the device that computes it, so that weights which come back as arguments are not moved
    again. It runs on its own: to differentiate it or to map it, place the function that does that.

    Args:
        program: The program.
        devices: Number of devices.
        members: For each stage, in an order in which they can run: its device, and positions of operators.

    Attributes:
        stages: The stages in the order in which they start.
    """

    def __init__(self, program: JaxProgram, devices: int, members: Sequence[tuple[int, Sequence[int]]]):
        self.program, self.devices, self._members = program, devices, members
        self.stages = _stages(program, members)
        self._last: dict[int, int] = {}  # stage after which a value is not needed
        self._targets: dict[int, list[int]] = {}  # devices that need a value
        for number, stage in enumerate(self.stages):
            for value in stage.inputs:
                self._last[value] = number
                if stage.device not in self._targets.setdefault(value, []):
                    self._targets[value].append(stage.device)
        self._results = {*program.results}
        self._constants: dict[str, Any] = {}  # the devices that hold them, and the constants there
        self._functions: list[Callable] = []

    def __repr__(self) -> str:
        made = [(stage.device, value) for stage in self.stages for value in stage.outputs]
        moved = sum(to != device for device, value in made for to in self._targets.get(value, ()))
        return (
            f"{self.program.name}: {len(self.stages)} stages on {self.devices} devices, {moved} values sent"
        )

    def __call__(self, *arguments: Any, devices: Sequence[Any] | None = None) -> Any:
        """Run the program.

        Args:
            *arguments: As of the function, with the structure, shapes and types that it was placed for.
            devices: JAX devices; by default the first ones of ``jax.devices()``.

        Raises:
            SettingsError: There are fewer devices than the placement has.
            TypeError: An argument has another structure, shape or type, or is traced.
        """
        import jax

        own = self._found(devices)
        self._check(arguments)
        if not self._functions:
            self._functions = [jax.jit(_runner(self.program, stage)) for stage in self.stages]
        home: dict[int, Any] = dict(zip(self.program.arguments, jax.tree.leaves(arguments), strict=True))
        if self._constants.get("devices") != (found := tuple(own)):
            constants = self._sent(self.program.constants, own)
            self._constants = {"devices": found, "held": constants}
        held = self._constants["held"] | self._sent(home, own)
        for number, (stage, function) in enumerate(zip(self.stages, self._functions, strict=True)):
            with jax.default_device(own[stage.device]):
                outputs = function(*[held[value, stage.device] for value in stage.inputs])
            made = dict(zip(stage.outputs, outputs, strict=True))
            for value in stage.inputs:
                if self._last[value] == number:
                    for target in self._targets[value]:
                        held.pop((value, target))
            held |= self._sent(made, own, stage.device)
            home |= {value: array for value, array in made.items() if value in self._results}
        home = self.program.constants | home
        results = [jax.numpy.asarray(home[value]) for value in self.program.results]
        return jax.tree.unflatten(self.program.tree, results)

    def _sent(self, made: Mapping[int, Any], devices: Sequence[Any], source: int = -1) -> dict:
        """Return values on the devices that need them, by number and device; ``source`` has them already."""
        import jax

        pairs = [(value, target) for value in made for target in self._targets.get(value, ())]
        moved = [(value, target) for value, target in pairs if target != source]
        arrays = jax.device_put([made[v] for v, _ in moved], [devices[to] for _, to in moved])
        held = {(value, target): made[value] for value, target in pairs if target == source}
        return held | dict(zip(moved, arrays, strict=True))

    def _found(self, devices: Sequence[Any] | None) -> Sequence[Any]:
        import jax

        own = jax.devices() if devices is None else devices
        if len(own) < self.devices:
            kind = f"{len(own)} {own[0].platform if len(own) else ''}".strip()
            raise SettingsError(
                f"devices: the placement has {self.devices}, but there are {kind} here. Place it again with"
                f" devices={max(len(own), 1)}, or for a trial on a CPU start Python with"
                f" XLA_FLAGS=--xla_force_host_platform_device_count={self.devices}"
            )
        return own

    def _check(self, arguments: tuple) -> None:
        import jax

        wanted, tree = jax.tree.flatten(self.program.wanted)
        if (given := jax.tree.structure(arguments)) != tree:
            raise TypeError(f"the arguments are {given}, but {tree} was placed")
        for (place, leaf), own in zip(jax.tree.leaves_with_path(arguments), wanted, strict=True):
            where = f"arguments{jax.tree_util.keystr(place)}"
            if isinstance(leaf, jax.core.Tracer):
                remedy = "place the function that jax.jit, jax.grad or jax.vmap gives"
                raise TypeError(f"{where} is traced, but a placed function runs on its own: {remedy}")
            if (found := shape_of(leaf)) != own:
                raise TypeError(f"{where} is {_told(found)}, but {_told(own)} was placed")

    def save(self, path: Path) -> None:
        """Write the stages: device and names of operators, for people and for :func:`load_staged`."""
        names = [operator.name for operator in self.program.operators]
        stages = [{"device": d, "operators": [names[o] for o in own]} for d, own in self._members]
        record = {"format": _FORMAT, "program": self.program.name, "source": self.program.text}
        write_json(path, {**record, "digest": self.program.digest, "devices": self.devices, "stages": stages})


def staged_of(program: JaxProgram, problem: PlacementProblem, decision: np.ndarray) -> Staged:
    """Return a program in stages by a decision of its placement.

    Args:
        program: The program.
        problem: The placement of its contracted graph.
        decision: (U,) the device of each unit.
    """
    graph, nodes = program.graph(problem.device)
    cluster = ordered_clusters(graph, single_consumer_clusters(graph))
    timeline = problem.timeline(decision)
    stage = stage_numbers(timeline, problem.graph)[cluster]
    members: list[tuple[int, list[int]]] = [(0, []) for _ in range(int(stage.max()) + 1)]
    for node, number in enumerate(stage.tolist()):
        members[number][1].append(nodes[node])
        members[number] = (int(timeline.placement[cluster[node]]), members[number][1])
    return Staged(program, problem.devices, members)


def stage_numbers(timeline: Timeline, graph: CostGraph) -> np.ndarray:
    """Return the stage of each operator of a schedule, numbered by first operator: (N,) int64."""
    place = timeline.placement.tolist()
    position = np.argsort(timeline.order).tolist()
    arrival = {(t.producer, t.target): t.finish for t in timeline.transfers}
    stage, count, running = np.zeros(len(place), np.int64), 0, {}  # by device: its first operator
    for node in timeline.order.tolist():
        device = place[node]
        first = running.get(device)
        late = first is not None and any(
            place[p] != device
            and (arrival[p, device] > timeline.start[first] or position[p] > position[first])
            for p in graph.producers[node]
        )
        if first is None or late:
            first = running[device] = node
            stage[node], count = count, count + 1
        stage[node] = stage[first]
        if any(place[c] != device for c in graph.consumers[node]):
            del running[device]
    return stage


def load_staged(path: str | Path, function: Callable | None = None, *arguments: Any) -> Staged:
    """Return a placed function that was stored.

    Args:
        path: The file ``stages.json``, or its folder.
        function: The function that was placed; not needed where it was placed as ``model.py:make``.
        *arguments: Its arguments, as for :func:`fastslow.place`.

    Raises:
        SettingsError: JAX is not installed.
        DataError: The file is missing or broken, or the function is another one than was placed.
    """
    file = Path(path) / STAGES if Path(path).is_dir() else Path(path)
    stored = read_record(file, _Stored, _REMEDY)
    name, text = stored["program"], stored["source"]
    if function is None:
        if not text:
            raise DataError(file, f"{name} was a function in memory", "Give it with its arguments")
        function, arguments = Source.of(text).function_and_arguments()
    program = JaxProgram(function, arguments, name, text)
    if program.digest != stored["digest"]:
        raise DataError(file, f"was made for other operators or shapes than {name} has", _REMEDY)
    number = {operator.name: position for position, operator in enumerate(program.operators)}
    rows = stored["stages"]
    wrong = [o for row in rows for o in row["operators"] if o not in number]
    if wrong or any(row["device"] >= stored["devices"] for row in rows):
        raise DataError(file, f"names {wrong[0] if wrong else 'a device'} that is not there", _REMEDY)
    members = [(row["device"], [number[o] for o in row["operators"]]) for row in rows]
    return Staged(program, stored["devices"], members)


def _stages(program: JaxProgram, members: Sequence[tuple[int, Sequence[int]]]) -> list[Stage]:
    """Return the stages with the values that they exchange."""
    stage_of = {position: number for number, (_, own) in enumerate(members) for position in own}
    maker = {v: position for position, o in enumerate(program.operators) for v in o.outputs}
    own: list[set[int]] = [{*positions} for _, positions in members]
    needed: list[set[int]] = [set() for _ in members]

    def need(number: int, value: int) -> None:
        """Let a stage have a value: as an input, or by an operator that every device does for itself."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            position = maker.get(value)
            if position is None:  # an argument or a constant
                if value not in program.constants or program.shapes[value].shape:
                    needed[number].add(value)
            elif position in stage_of:
                if stage_of[position] != number:
                    needed[number].add(value)
            elif position not in own[number]:
                own[number].add(position)
                waiting += program.operators[position].inputs

    for number, (_, positions) in enumerate(members):
        for position in positions:
            for value in program.operators[position].inputs:
                need(number, value)
    results = {value for value in program.results if value in maker}
    for value in results:
        if maker[value] not in stage_of:
            need(0, value)
    sent = set().union(results, *needed)
    stages = []
    for number, (device, _) in enumerate(members):
        operators = tuple(program.operators[position] for position in sorted(own[number]))
        made = [v for position in sorted(own[number]) for v in program.operators[position].outputs]
        outputs = [v for v in made if v in sent and stage_of.get(maker[v], 0) == number]
        stages.append(Stage(device, operators, tuple(sorted(needed[number])), tuple(outputs)))
    return stages


def _runner(program: JaxProgram, stage: Stage) -> Callable:
    """Return the function of a stage."""

    def run(*inputs):
        values = {**program.constants, **dict(zip(stage.inputs, inputs, strict=True))}
        for operator in stage.operators:
            outputs = operator.run(*[values[value] for value in operator.inputs])
            values.update(zip(operator.outputs, outputs, strict=True))
        return [values[value] for value in stage.outputs]

    return run


def _told(shape) -> str:
    return f"{shape.dtype.name}{list(shape.shape)}"
