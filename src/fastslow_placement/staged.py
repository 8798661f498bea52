"""A placed JAX function that runs: compiled stages on their devices, with ``jax.device_put`` in between.

A stage is a run of operators of one device in the order of the schedule. It begins where a value arrives from
another device after the stage before it has begun, and ends where one is sent. So the stages can run in the
order of their first operators. JAX does not wait for a stage, so stages of different devices overlap.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastslow.core.errors import SettingsError, counted
from fastslow_placement.jax_program import JaxProgram, Operator
from fastslow_placement.programs.cost_graph import CostGraph
from fastslow_placement.programs.fusion import ordered_clusters, single_consumer_clusters
from fastslow_placement.programs.problems import PlacementProblem
from fastslow_placement.programs.schedule import Timeline
from fastslow_programs.compiler.signature import CallError
from fastslow_programs.compiler.tracing import Leaves


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

    def run(self, constants: Mapping[int, Any], *inputs: Any) -> list[Any]:
        """Return the outputs."""
        values = {**constants, **dict(zip(self.inputs, inputs, strict=True))}
        for operator in self.operators:
            outputs = operator.run(*[values[value] for value in operator.inputs])
            values.update(zip(operator.outputs, outputs, strict=True))
        return [values[value] for value in self.outputs]


class Staged:
    """A placed function; it takes and returns what the function does.

    A result stays on the device that computes it, so that weights which come back as arguments are not moved
    again.

    Args:
        program: The program.
        problem: The placement of its contracted graph.
        decision: (U,) the device of each unit.

    Attributes:
        stages: The stages in the order in which they start.
    """

    def __init__(self, program: JaxProgram, problem: PlacementProblem, decision: np.ndarray):
        self.program, self.devices = program, problem.devices
        graph, nodes = program.graph(problem.device)
        cluster = ordered_clusters(graph, single_consumer_clusters(graph))
        timeline = problem.timeline(decision)
        stage = stage_numbers(timeline, problem.graph)[cluster]
        numbers = dict(zip(nodes, stage.tolist(), strict=True))
        places = dict(zip(stage.tolist(), timeline.placement[cluster].tolist(), strict=True))
        self.stages = _stages(program, numbers, places)
        self._results = {*program.results}
        self._last: dict[int, int] = {}  # stage after which a value is not needed
        self._targets: dict[int, set[int]] = {}  # devices that need a value
        for number, one in enumerate(self.stages):
            for value in one.inputs:
                self._last[value] = number
                self._targets.setdefault(value, set()).add(one.device)
        self._constants: tuple[Any, dict] = ((), {})  # devices, and what they hold of the constants
        self._functions: list[Callable] = []

    def __repr__(self) -> str:
        made = [(stage.device, value) for stage in self.stages for value in stage.outputs]
        moved = sum(to != device for device, value in made for to in self._targets.get(value, ()))
        what = f"{counted(len(self.stages), 'stage')}, {counted(self.devices, 'device')}"
        return f"{self.program.name}: {what}, {counted(moved, 'value')} sent"

    def __call__(self, *arguments: Any, devices: Sequence[Any] | None = None, **keywords: Any) -> Any:
        """Run the program.

        Args:
            *arguments: As of the function, with the structure, shapes and types that it was placed for.
            devices: JAX devices; by default the first ones of ``jax.devices()``.
            **keywords: As of the function.

        Raises:
            SettingsError: There are fewer devices than the placement has.
            CallError: An argument has another structure, shape, type or static value, or is traced.
        """
        import jax

        chosen = tuple(jax.devices() if devices is None else devices)
        if len(chosen) < self.devices:
            raise SettingsError(
                "devices",
                f"{len(chosen)} are here, {self.devices} wanted. Place it on devices={len(chosen)},"
                f" or try a CPU with XLA_FLAGS=--xla_force_host_platform_device_count={self.devices}",
            )
        leaves = self._leaves(arguments, keywords)
        if not self._functions:
            self._functions = [jax.jit(partial(stage.run, self.program.constants)) for stage in self.stages]
        if self._constants[0] != chosen:
            self._constants = (chosen, self._sent(self.program.constants, chosen))
        home: dict[int, Any] = dict(zip(self.program.arguments, leaves.arrays.values(), strict=True))
        held = self._constants[1] | self._sent(home, chosen)
        for number, (stage, function) in enumerate(zip(self.stages, self._functions, strict=True)):
            with jax.default_device(chosen[stage.device]):
                outputs = function(*[held[value, stage.device] for value in stage.inputs])
            made = dict(zip(stage.outputs, outputs, strict=True))
            for value in stage.inputs:
                if self._last[value] == number:
                    for target in self._targets[value]:
                        del held[value, target]
            held |= self._sent(made, chosen, stage.device)
            home |= {value: array for value, array in made.items() if value in self._results}
        home = self.program.constants | home
        results = [jax.numpy.asarray(home[value]) for value in self.program.results]
        return self.program.signature.results_of(results, leaves, wrap=False)

    def _sent(self, made: Mapping[int, Any], devices: Sequence[Any], source: int = -1) -> dict:
        """Return values on the devices that need them, by number and device; ``source`` has them already."""
        import jax

        pairs = [(value, target) for value in made for target in self._targets.get(value, ())]
        moved = [(value, target) for value, target in pairs if target != source]
        arrays = jax.device_put([made[v] for v, _ in moved], [devices[to] for _, to in moved])
        held = {(value, target): made[value] for value, target in pairs if target == source}
        return held | dict(zip(moved, arrays, strict=True))

    def _leaves(self, arguments: tuple, keywords: Mapping[str, Any]) -> Leaves:
        import jax

        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((arguments, keywords))):
            remedy = "place the function that jax.jit, jax.grad or jax.vmap gives"
            raise CallError(f"an argument is traced, but a placed function runs on its own: {remedy}")
        return self.program.signature.bind(arguments, keywords, "placed")


def stage_numbers(timeline: Timeline, graph: CostGraph) -> np.ndarray:
    """Return the stage of each operator of a schedule, numbered by first operator: (N,) int64."""
    place = timeline.placement.tolist()
    position = np.argsort(timeline.order).tolist()
    arrival = {(t.producer, t.target): t.finish for t in timeline.transfers}
    stage = np.zeros(len(place), np.int64)
    count = 0
    running: dict[int, int] = {}  # first operator of the stage that each device is in
    for node in timeline.order.tolist():
        device = place[node]
        first = running.get(device, node)
        far = [p for p in graph.producers[node] if place[p] != device]
        late = [p for p in far if arrival[p, device] > timeline.start[first] or position[p] > position[first]]
        if device not in running or late:
            first = running[device] = node
            stage[node] = count
            count += 1
        stage[node] = stage[first]
        if any(place[consumer] != device for consumer in graph.consumers[node]):
            del running[device]
    return stage


def _stages(program: JaxProgram, numbers: Mapping[int, int], places: Mapping[int, int]) -> list[Stage]:
    """Return the stages with the values that they exchange, for the device of each (``places``).

    ``numbers`` has the stage of each operator by position, but of those that every device does for itself.
    """
    maker = {v: position for position, o in enumerate(program.operators) for v in o.outputs}
    seen: list[set[int]] = [set() for _ in places]
    needed: list[set[int]] = [set() for _ in places]

    def need(number: int, value: int) -> None:
        """Let a stage have a value: as an input, or by an operator that it does for itself."""
        position = maker.get(value)
        if position is None:  # an argument or a constant, of which a number is part of the code
            if value not in program.constants or program.shapes[value].shape:
                needed[number].add(value)
        elif numbers.get(position, number) != number:
            needed[number].add(value)
        elif position not in seen[number]:
            seen[number].add(position)
            for read in program.operators[position].inputs:
                need(number, read)

    for position, number in numbers.items():
        for value in program.operators[position].outputs:
            need(number, value)
    for value in program.results:
        if value in maker:
            need(numbers.get(maker[value], 0), value)
    sent = {*program.results}.union(*needed)
    stages = []
    for number, positions in enumerate(seen):
        operators = tuple(program.operators[position] for position in sorted(positions))
        made = [value for operator in operators for value in operator.outputs if value in sent]
        outputs = tuple(value for value in made if numbers.get(maker[value], 0) == number)
        stages.append(Stage(places[number], operators, tuple(sorted(needed[number])), outputs))
    return stages
