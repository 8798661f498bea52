"""Time and peak memory of contenders that do the same work on one file."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Protocol

import torch

from common.graph_files import default_files, program_of
from common.options import add_model_options, add_timing_options, make_parser
from common.report import finish, in_process, table
from fastslow.core.npz_io import read_arrays


class Contest(Protocol):
    """Contenders on one file.

    Args:
        contenders: Their names.
        limited: Those that hold all configurations at once, densely, and so may not fit in memory.
        num_configs: C, number of configurations.
        parts: Parts of the work of a contender that are timed separately, by name.
        nodes: Number of nodes per kind of graph.
    """

    contenders: tuple[str, ...]
    limited: tuple[str, ...]
    num_configs: int
    parts: dict[str, Callable[[], object]]
    nodes: dict[str, int]

    def run(self, contender: str, num_configs: int) -> object:
        """Do the work for the first ``num_configs`` configurations."""

    def exactness(self, memory: dict[str, dict]) -> dict:
        """Compare ours with dense, on as many configurations as fit in memory."""


def parse_timing_options(description: str, arguments: list[str]) -> argparse.Namespace:
    """Parse the command line of a benchmark that times single files."""
    parser = make_parser(description)
    add_model_options(parser)
    add_timing_options(parser)
    options = parser.parse_args(arguments)
    options.files = options.files or [
        path
        for path in default_files(options.quick)
        if len(read_arrays(path, ["node_opcode"])["node_opcode"]) <= options.most_nodes
    ]
    options.repeats = 1 if options.quick else options.repeats
    torch.set_num_threads(options.threads)
    return options


def seconds(run: Callable[[], object], device: torch.device) -> float:
    """Measure one call: CPU time of one thread, which other work does not lengthen, else wall time.

    On a GPU the time ends when all of its work is done.
    """
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    wait()
    began = clock()
    run()
    wait()
    return clock() - began


def read_status(key: str) -> int:
    """Read a figure of /proc/self/status in bytes. (ru_maxrss starts from the parent process's peak.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


def peak_bytes(run: Callable[[], object], device: torch.device) -> tuple[int, int]:
    """Measure the peak memory of one call (Linux).

    Returns:
        Peak bytes above the memory before the call, and peak bytes of the whole process so far. On a GPU both
        count the memory that torch allocated there.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        peak = torch.cuda.max_memory_allocated(device)
        return peak - before, peak
    before, earlier_peak = read_status("VmRSS"), read_status("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak
    run()
    peak = read_status("VmHWM")
    return max(0, peak - before), max(peak, earlier_peak)


def peak_memory(contest: Contest, contender: str, options: argparse.Namespace) -> dict:
    """Measure the peak memory of a contender in MB, with as many configurations as ``--limit`` allows."""
    device, num_configs = torch.device(options.device), contest.num_configs
    if contender in contest.limited:
        few = min(16, num_configs)
        above, _ = peak_bytes(lambda: contest.run(contender, few), device)
        num_configs = max(2, min(num_configs, int(options.limit * 1e9 * few / max(1, above))))
    above, process = peak_bytes(lambda: contest.run(contender, num_configs), device)
    return {"configs": num_configs, "above": above / 2**20, "process": process / 2**20}


def compete(contest: Contest, script: str, path: Path, options: argparse.Namespace) -> dict:
    """Measure peak memory in a process per contender (quick: in this one), then time all in turn.

    Where not all configurations fit in memory, seconds and bytes are extrapolated linearly from those that
    do: ``memory`` has their number, ``estimated`` names the contenders.
    """
    device, total = torch.device(options.device), contest.num_configs

    def memory_of(name: str) -> dict:
        if options.quick:
            return peak_memory(contest, name, options)
        return in_process(script, "--files", str(path.resolve()), "--memory-of", name)

    memory = {name: memory_of(name) for name in contest.contenders}
    runs = {name: lambda name=name: contest.run(name, memory[name]["configs"]) for name in contest.contenders}
    runs |= contest.parts
    for name in contest.contenders:
        contest.run(name, min(16, total))  # warm up
    rounds = [{name: seconds(run, device) for name, run in runs.items()} for _ in range(options.repeats)]
    scale = {name: total / memory[name]["configs"] if name in memory else 1.0 for name in runs}
    return {
        "configs": total,
        "seconds": {name: median(times[name] for times in rounds) * scale[name] for name in runs},
        "rounds": rounds,
        "memory": memory,
        "estimated": [name for name in contest.contenders if scale[name] > 1],
    }


def run_files(script: str, make_contest, options: argparse.Namespace) -> list[dict]:
    """Return every figure of every file; with ``--memory-of`` print that figure alone and return nothing.

    Args:
        script: The calling file.
        make_contest: Makes a :class:`Contest` from a program and the options.
        options: The command line.
    """
    if options.memory_of:
        contest = make_contest(program_of(options.files[0]), options)
        finish(peak_memory(contest, options.memory_of, options))
        return []
    results = []
    for path in options.files:
        program = program_of(path)
        print(f"{program.id} ...", file=sys.stderr, flush=True)
        contest = make_contest(program, options)
        result = {"file": program.id, "nodes": contest.nodes, **compete(contest, script, path, options)}
        results.append(result | contest.exactness(result["memory"]))
    return results


def report(results: list[dict], heading: str) -> dict:
    """Print the tables of seconds, memory and ratios, and return seconds and ratios over all files."""
    print(f"\n{heading}; ~ extrapolated from the configurations that fit in memory\n")
    print(table([_row(result) | _seconds_cells(result) for result in results]))
    print("\nPeak memory in MB above the loaded process (and of the whole process)\n")
    print(table([_row(result) | _memory_cells(result) for result in results]))
    total = {name: sum(result["seconds"][name] for result in results) for name in results[0]["seconds"]}
    each = [ratios(result["seconds"]) for result in results]
    summary = {
        name: {"all files": value, "minimum over files": min(ratio[name] for ratio in each)}
        for name, value in ratios(total).items()
    }
    print("\nSeconds of the others divided by ours, preparation included\n")
    print(table([{"": name} | {k: f"{v:.1f}" for k, v in row.items()} for name, row in summary.items()]))
    return {"seconds": total, "ratios": summary}


def ratios(seconds: dict[str, float]) -> dict[str, float]:
    """Return how many times slower the others are: dense on the same graph, the winner's on its own."""
    found = {}
    for ours in (name for name in seconds if name.startswith("ours")):
        for other in (ours.replace("ours", "dense"), "winner"):
            found[f"{other} / {ours}"] = seconds[other] / seconds[ours]
    return found


def _row(result: dict) -> dict[str, str]:
    nodes = " / ".join(map(str, result["nodes"].values()))
    return {"file": result["file"][:28], "N": nodes, "C": str(result["configs"])}


def _seconds_cells(result: dict) -> dict[str, str]:
    marks = {name: "~" for name in result["estimated"]}
    return {name: f"{marks.get(name, '')}{value:.3f}" for name, value in result["seconds"].items()}


def _memory_cells(result: dict) -> dict[str, str]:
    cells = {}
    for name, part in result["memory"].items():
        scale = result["configs"] / part["configs"]
        cells[name] = (
            f"~{part['above'] * scale:.0f}" if scale > 1 else f"{part['above']:.0f} ({part['process']:.0f})"
        )
    return cells
