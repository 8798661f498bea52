"""Place, schedule or fuse one program with every rule and a search, and compare them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastslow.core.artifacts import MANIFEST, Artifact, read_manifest
from fastslow.core.errors import DataError, SettingsError, counted
from fastslow.core.figures import save_figure
from fastslow.core.files import atomic_path, file_digest, write_json
from fastslow.core.progress import TICK_SECONDS, progress, ticking
from fastslow.core.settings import find_typed, path_text, resolve
from fastslow.core.shown import Number, Section, Shown, picture, sentences
from fastslow.core.tables import number_text, table_html, two_digits
from fastslow_placement.base.problem import Problem
from fastslow_placement.base.search import Found, anneal, best_of
from fastslow_placement.baselines import rules_of
from fastslow_placement.explain import ONE_DEVICE, decision_table, device_table, explain, gains
from fastslow_placement.figures import plot_decision, plot_memory, plot_search
from fastslow_placement.jax_program import JaxProgram
from fastslow_placement.programs.fusion import contract
from fastslow_placement.programs.joint import JointProblem
from fastslow_placement.programs.problems import FusionProblem, PlacementProblem, SchedulingProblem
from fastslow_placement.programs.program_graph import read_cost_graph
from fastslow_placement.programs.region_search import anneal_regions
from fastslow_placement.programs.zoo_graphs import read_zoo_graph
from fastslow_placement.settings import ZOO, PlaceSettings
from fastslow_placement.staged import Staged
from fastslow_programs.program.user_program import Source

TABLE, DECISION = "comparison.csv", "decision.json"
PAGE = "placement.html"
PLACEMENT, DEVICE_TABLE, WORDS = "placement.csv", "devices.csv", "explanation.txt"
PICTURES = {"decision.png": plot_decision, "memory.png": plot_memory, "search.png": plot_search}
REGIONS, ANNEALING, LEARNED = "annealing of regions", "annealing", "learned list scheduler"
_EQUAL = 1e-9  # of a cost: closer ones are equal
_SIMULATED = 100_000_000  # operators that a search simulates at most: minutes
_SLOWER = 24  # by which the evaluations of the search are divided where they take longer


@dataclass(frozen=True)
class Placed(Shown):
    """A program and what each method decided.

    Args:
        problem: The problem.
        found: Best decision by method.
        seconds: CPU seconds by method.
        program: The JAX function, if it is one.
        bounded: A sentence on a search that evaluated fewer decisions than were asked for, if one did.
    """

    kind = "Placement on several devices"
    problem: Problem
    found: dict[str, Found]
    seconds: dict[str, float]
    program: JaxProgram | None = None
    bounded: str = ""

    @property
    def best(self) -> str:
        """The method with the lowest cost."""
        return min(self.found, key=lambda name: self.found[name].cost)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per method, best first: cost, over the default's and the bound, evaluations."""
        rows = [
            {
                "method": name,
                "cost": result.cost,
                "of default": result.cost / self.problem.baseline,
                "over bound": result.cost / self.problem.bound if self.problem.bound else np.nan,
                "evaluations": result.evaluations,
                "CPU seconds": round(self.seconds[name], 2),
            }
            for name, result in self.found.items()
        ]
        return pd.DataFrame(rows).sort_values("cost", kind="stable", ignore_index=True)

    @property
    def gain(self) -> dict[str, float | None]:
        """What a placement gains over one device and simple splits; empty for another task."""
        return gains(self) if isinstance(self.problem, PlacementProblem) else {}

    def words(self) -> list[str]:
        """Return the findings in sentences: the time of the best decision, its gain, and the reasons."""
        return explain(self).split("\n")

    def figures(self) -> list[Figure]:
        """Return the figures that show something: the best decision, the memory over time, the searches."""
        return [plot(self) for _, plot in self.drawn]

    def verdict(self) -> str:
        """Return in one line what the best decision gains."""
        count = 1 if self.best == ONE_DEVICE else 2
        return " ".join(self.words()[:count])

    def numbers(self) -> list[Number]:
        """Return the best cost, against the default's, and against the lower bound."""
        best = self.found[self.best]
        ratio = best.cost / self.problem.baseline
        change = f"{two_digits(100 * abs(1 - ratio))} % {'below' if ratio < 1 else 'above'} the default"
        if abs(1 - ratio) < _EQUAL:
            change = "equal to the default"
        numbers = [
            Number(
                "runtime by the cost model",
                f"{number_text(1e3 * best.cost)} ms",
                f"by {self.best}; nothing ran",
            ),
            Number("best decision", change, f"of {counted(len(self.found), 'method')}"),
        ]
        if self.problem.bound:
            over = best.cost / self.problem.bound
            value = f"{over:.3g}" if over > 1 + _EQUAL else "1"
            numbers.append(Number("best over the lower bound", value, "1 cannot be beaten"))
        return numbers

    @property
    def drawn(self) -> list[tuple[str, Callable[["Placed"], Figure]]]:
        """The pictures that show something, each with the question that it answers.

        Where one device works, or all methods end alike, there is nothing to see.
        """
        costs = [found.cost for found in self.found.values()]
        problem = self.problem
        drawn: list[tuple[str, Callable[[Placed], Figure]]] = []
        if isinstance(problem, (PlacementProblem, SchedulingProblem)):
            timeline = problem.timeline(self.found[self.best].decision)
            if len(np.unique(timeline.placement)) > 1:
                drawn.append(("When does each device work?", plot_decision))
            if len(problem.graph) > 1:
                drawn.append(("Does the memory suffice?", plot_memory))
        else:
            drawn.append(("Which options are taken?", plot_decision))
        if max(costs) > min(costs) * (1 + _EQUAL):
            drawn.append(("What did each method find?", plot_search))
        return drawn

    def first_rows(self) -> pd.DataFrame:
        """Return the methods for a reader."""
        return readable_methods(self.table)

    def sections(self) -> list[Section]:
        """Return the methods, the figures, and the words folded."""
        drawn = self.drawn
        heading = "Methods, the best first"
        if len(self.found) > 1 and plot_search not in [plot for _, plot in drawn]:
            heading = "All methods end with the same cost"
        parts = [Section(heading, table_html(self.first_rows()))]
        parts += [Section(question, picture(plot(self))) for question, plot in drawn]
        return [*parts, Section("All sentences", sentences(self.words()), folded=True)]

    def staged(self, method: str = "") -> Staged:
        """Return the function in the placement of a method, by default the best: it runs.

        Raises:
            SettingsError: The program is no JAX function, the task is another, or there is no such method.
        """
        method = method or self.best
        if self.program is None or not isinstance(self.problem, PlacementProblem):
            remedy = "give a JAX function or model.py:FUNCTION, and the task placement"
            raise SettingsError(
                "source", f"the {self.problem.task} of {self.problem.name} cannot run; {remedy}"
            )
        if method not in self.found:
            raise SettingsError("method", f"{method!r} is none of {', '.join(self.found)}")
        return Staged(self.program, self.problem, self.found[method].decision)


def readable_methods(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of methods, as :attr:`Placed.table`, for a reader: costs are in milliseconds."""
    cost = 1e3 * table["cost"]
    seconds = table["CPU seconds"].map("{:.2f}".format)
    return table.assign(cost=cost, **{"CPU seconds": seconds}).rename(columns={"cost": "cost, ms"})


def read_function(settings: PlaceSettings) -> JaxProgram | None:
    """Return the JAX function that the settings name; None for an HLO file, an npz or the zoo.

    Raises:
        SettingsError: JAX is not installed.
        DataError: The file or the function is missing or wrong, or JAX cannot trace it.
    """
    if not settings.function:
        return None
    source = Source.of(f"{settings.path}:{settings.function}")
    function, arguments, keywords = source.call_of_function()
    return JaxProgram(function, arguments, settings.name, keywords)


def read_problem(settings: PlaceSettings, program: JaxProgram | None = None) -> Problem:
    """Return the problem of a function, or of the program that the settings name.

    Raises:
        SettingsError: There is no such zoo program, or no valid decision.
        DataError: The file is missing, of no known kind, or holds a graph that is wrong.
    """
    device = settings.device_model
    path = None if program else settings.path
    if program:
        graph, _ = program.graph(device)
    elif path is None:
        graph = read_zoo_graph(settings.source.removeprefix(ZOO), device)
    else:
        graph = read_cost_graph(path, device)
    if settings.task == "joint":
        return JointProblem(graph, settings.devices, device, settings.memory)
    if settings.task == "fusion":
        return FusionProblem(graph, device)
    graph = contract(graph, device)
    placement = PlacementProblem(graph, settings.devices, device, settings.memory)
    if settings.task == "placement":
        return placement
    return SchedulingProblem(graph, placement.place(placement.default), settings.devices, device)


def compare(settings: PlaceSettings, problem: Problem, program: JaxProgram | None = None) -> Placed:
    """Run every rule and the search on a problem.

    Args:
        settings: Seed and evaluations of the search.
        problem: The placement, schedule or fusion to decide.
        program: The JAX program that the graph was made from, if it was.

    Raises:
        SettingsError: No method found a valid decision.
    """
    methods: dict[str, Found] = {}
    seconds: dict[str, float] = {}

    def keep(name: str, method: Callable[[], Found]) -> None:
        begin = time.process_time()
        with progress(total=1, desc=name, unit="method", delay=TICK_SECONDS) as bar, ticking(bar):
            methods[name] = method()
            bar.update()
        seconds[name] = time.process_time() - begin

    for name, rule in rules_of(problem).items():
        keep(name, lambda rule=rule: best_of(problem, rule(problem)[None]))
    if isinstance(problem, PlacementProblem):
        keep(LEARNED, lambda: best_of(problem, problem.learned_starts))
    evaluations, bounded = _evaluations(settings, problem)

    def searched() -> Found:
        """Search from the best of the rules and of the problem's starts."""
        start = min(methods.values(), key=lambda rule: rule.cost).decision
        if isinstance(problem, PlacementProblem):  # the rules of other tasks are all of their starts
            start = best_of(problem, np.concatenate([problem.starts, start[None]])).decision
            return anneal_regions(problem, evaluations, settings.seed, start)
        return anneal(problem, evaluations, settings.seed, start)

    if evaluations:
        keep(REGIONS if isinstance(problem, PlacementProblem) else ANNEALING, searched)
    if not any(np.isfinite(one.cost) for one in methods.values()):
        raise SettingsError(f"no method found a valid decision for {problem.name!r}; raise memory or devices")
    return Placed(problem, methods, seconds, program, bounded)


def _evaluations(settings: PlaceSettings, problem: Problem) -> tuple[int, str]:
    """Return how many decisions the search evaluates, and a sentence where the program cut them down."""
    if not isinstance(problem, PlacementProblem):
        return -(-settings.search // _SLOWER), ""
    most = max(_SIMULATED // len(problem.graph), 1)
    if settings.search <= most:
        return settings.search, ""
    said = f"The search was cut from {settings.search:,} to {most:,} evaluations: each simulates"
    return most, f"{said} {len(problem.graph):,} operators, and a search about {_SIMULATED:,} at most."


def place_and_write(settings: PlaceSettings) -> Placed:
    """Compare all methods on a program and write the table, the best decision and the figures.

    Raises:
        SettingsError: A setting does not fit the program, or no decision is valid.
        DataError: As for :func:`read_problem`, or the folder has the placement of another program.
    """
    program = read_function(settings)
    refuse_another_program(settings, program)
    problem = read_problem(settings, program)
    placed = compare(settings, problem, program)
    write_placed(placed, settings)
    return placed


def _inputs(settings: PlaceSettings, program: JaxProgram | None) -> dict[str, str]:
    """Return the digest of the program that is placed, and of the device's file, if it is one."""
    source = settings.source
    if program:
        source = program.digest
    elif settings.path:
        source = file_digest(settings.path)
    return {"source": source} | settings.device_inputs


def refuse_another_program(settings: PlaceSettings, program: JaxProgram | None) -> None:
    """Refuse to replace the placement of another program, whose file has the same name.

    Raises:
        DataError: The folder has one, of another path and of another content.
    """
    folder = resolve(settings.folder)
    if not (folder / MANIFEST).is_file():
        return
    placed = read_manifest(folder)
    source = placed["settings"].get("source", settings.source)
    if source != settings.source and placed["inputs"].get("source") != _inputs(settings, program)["source"]:
        remedy = f"Give another folder (out={settings.out}-2), or delete this one"
        raise DataError(folder, f"has the placement of {source}", remedy)


def write_placed(placed: Placed, settings: PlaceSettings) -> None:
    """Write the table, the best decision, the figures and a page with all of them.

    Raises:
        DataError: The folder has the placement of another program.
    """
    problem = placed.problem
    inputs = _inputs(settings, placed.program)
    artifact = Artifact(resolve(settings.folder), settings.identity(), inputs)
    with artifact.building():
        refuse_another_program(settings, placed.program)
        best = placed.found[placed.best].decision
        tables = {TABLE: placed.table, PLACEMENT: decision_table(problem, best)}
        if isinstance(problem, (PlacementProblem, SchedulingProblem)):
            tables[DEVICE_TABLE] = device_table(problem, best)
        for name, table in tables.items():
            with atomic_path(artifact.folder / name) as temporary:
                table.to_csv(temporary, index=False)
        with atomic_path(artifact.folder / WORDS) as temporary:
            temporary.write_text(explain(placed) + "\n")
        methods = {
            name: {
                "cost": result.cost if np.isfinite(result.cost) else None,  # JSON has no infinity
                "evaluations": result.evaluations,
                "decision": result.decision.tolist(),
            }
            for name, result in placed.found.items()
        }
        decision = {"best": placed.best, "units": problem.unit_names(), "methods": methods}
        write_json(artifact.folder / DECISION, decision | {"gain": placed.gain})
        with atomic_path(artifact.folder / PAGE) as temporary:
            temporary.write_text(placed.page(problem.name))
        drawn = [plot for _, plot in placed.drawn]
        for name, plot in PICTURES.items():
            if plot in drawn:
                save_figure(plot(placed), artifact.folder / name)
            else:
                (artifact.folder / name).unlink(missing_ok=True)  # of an earlier run
        summary = {"program": problem.name, "task": problem.task, "units": len(problem.choices)}
        summary |= {"best": placed.best, "cost": placed.found[placed.best].cost}
        artifact.finish(summary=summary, decision=best.tolist())


def load_placed(
    folder: str | Path,
    function: Callable | None = None,
    *arguments: Any,
    keywords: Mapping[str, Any] | None = None,
) -> Staged:
    """Return a placed function that was written to a folder; it runs.

    Args:
        folder: Folder of a placement (``OUT/NAME-placement-DEVICES``).
        function: The function or module that was placed; not needed where it was ``model.py:make``.
        *arguments: Its arguments, as for :func:`fastslow.place`.
        keywords: Its keyword arguments.

    Raises:
        SettingsError: JAX is not installed, or ``folder`` is no path.
        DataError: The folder holds no placement, or one of another function or another version of fastslow.
    """
    folder = find_typed(path_text("folder", folder))
    again = "Place it again with out="
    manifest = read_manifest(folder, again)
    try:
        settings = PlaceSettings(**manifest["settings"])
    except SettingsError as error:
        raise DataError(folder, f"was placed by another version of fastslow ({error})", again) from None
    program = read_function(settings)
    if function:
        program = JaxProgram(function, arguments, settings.source, keywords)
    if program is None or program.digest != manifest["inputs"]["source"]:
        problem = f"belongs to {settings.source}, whose operators and shapes differ from the given ones"
        raise DataError(folder, problem, "Give the function that was placed, and its arguments")
    return Staged(program, read_problem(settings, program), np.array(manifest["decision"]))
