"""What the benchmarks share: options, timing, peak memory, tables, and the JSON object of the last line."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Protocol

import torch

from common.graph_files import default_files, program_of
from fastslow.core.artifacts import commit
from fastslow.presets import network_settings, preset_settings
from fastslow.steps import parse_overrides


class Contest(Protocol):
    """Contenders on one file.

    Args:
        contenders: Their names.
        limited: Those that hold all configurations at once, densely, and so may not fit in memory.
        num_configs: C.
        parts: Parts of the work of a contender that are timed by themselves, by name.
        nodes: N by kind of graph.
    """

    contenders: tuple[str, ...]
    limited: tuple[str, ...]
    num_configs: int
    parts: dict[str, Callable[[], object]]
    nodes: dict[str, int]

    def run(self, contender: str, num_configs: int) -> object:
        """Do the work for so many configurations."""

    def exactness(self, memory: dict[str, dict]) -> dict:
        """How far ours and dense differ, over as many configurations as ``memory`` says that fit."""


def make_parser(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a small check that everything runs")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where networks run")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="settings of our network, as for make: gnn.layout.hidden_channels=64",
    )
    return parser


def parse_timing_options(description: str, arguments: list[str]) -> argparse.Namespace:
    """The command line of a benchmark that times single files."""
    parser = make_parser(description)
    parser.add_argument("--files", nargs="+", type=Path, metavar="NPZ", help="layout files (test files)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of timing (default 3, quick 1)")
    parser.add_argument("--limit", type=float, default=8.0, help="GB for a dense run (default 8)")
    parser.add_argument("--preset", default="sample", help="settings of our network (default sample)")
    parser.add_argument("--memory-of", metavar="CONTENDER", help="only peak memory, of one on the first file")
    options = parser.parse_args(arguments)
    options.files = options.files or default_files(options.quick)
    options.repeats = 1 if options.quick else options.repeats
    torch.set_num_threads(options.threads)
    return options


def our_settings(options: argparse.Namespace, step: str) -> dict:
    """Settings of our ``features`` or ``gnn`` step for layouts, by preset and ``--set``."""
    overrides = parse_overrides(options.set)
    if step == "gnn":
        return network_settings(options.preset, overrides, "layout")[0]
    return preset_settings(options.preset, overrides, step, "layout")


def seconds(run: Callable[[], object], device: torch.device) -> float:
    """Wall time of one call; on a GPU until all of its work is done."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - began


def _status(key: str) -> int:
    """A figure of /proc/self/status in bytes. (ru_maxrss would start from the parent process's peak.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


def peak_bytes(run: Callable[[], object], device: torch.device) -> tuple[int, int]:
    """Peak memory of one call: above what was held before, and of the whole process so far (Linux).

    On a GPU it is the memory that torch allocated there.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        peak = torch.cuda.max_memory_allocated(device)
        return peak - before, peak
    before, earlier_peak = _status("VmRSS"), _status("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak
    run()
    peak = _status("VmHWM")
    return max(0, peak - before), max(peak, earlier_peak)


def peak_memory(contest: Contest, contender: str, options: argparse.Namespace) -> dict:
    """Peak memory of a contender in MB, and of how many configurations: as many as ``--limit`` allows."""
    device, num_configs = torch.device(options.device), contest.num_configs
    if contender in contest.limited:
        few = min(16, num_configs)
        above, _ = peak_bytes(lambda: contest.run(contender, few), device)
        num_configs = max(2, min(num_configs, int(options.limit * 1e9 * few / max(1, above))))
    above, process = peak_bytes(lambda: contest.run(contender, num_configs), device)
    return {"configs": num_configs, "above": above / 2**20, "process": process / 2**20}


def in_own_process(script: str, path: Path, contender: str) -> dict:
    """Run a script again with ``--memory-of`` in a process of its own; the JSON object it prints."""
    command = [sys.executable, str(Path(script).resolve()), *sys.argv[1:]]
    command += ["--files", str(path.resolve()), "--memory-of", contender]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {run.returncode}")
    return json.loads(run.stdout.splitlines()[-1])


def compete(contest: Contest, script: str, path: Path, options: argparse.Namespace) -> dict:
    """Peak memory of every contender in a process of its own (quick: in this one), then interleaved timing.

    Where not all configurations fit, seconds and memory are those of the ones that do, times C over their
    number; ``memory`` says how many they were, and ``estimated`` names the contenders.
    """
    device, total = torch.device(options.device), contest.num_configs
    memory = {
        name: peak_memory(contest, name, options) if options.quick else in_own_process(script, path, name)
        for name in contest.contenders
    }
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
    """Every figure of every file; with ``--memory-of`` it prints that figure alone and returns nothing.

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
        print(f"{program.id} ...", flush=True)
        contest = make_contest(program, options)
        result = {"file": program.id, "nodes": contest.nodes, **compete(contest, script, path, options)}
        results.append(result | contest.exactness(result["memory"]))
    return results


def report(results: list[dict], heading: str) -> dict:
    """Print the tables of seconds, memory and ratios; seconds and ratios over all files together."""
    print(f"\n{heading}; ~ estimated from the configurations that fit in memory\n")
    print(table([_row(result) | _seconds_cells(result) for result in results]))
    print("\nPeak memory in MB above the loaded process (and of the whole process)\n")
    print(table([_row(result) | _memory_cells(result) for result in results]))
    total = {name: sum(result["seconds"][name] for result in results) for name in results[0]["seconds"]}
    each = [ratios(result["seconds"]) for result in results]
    summary = {
        name: {"all files": value, "least of a file": min(ratio[name] for ratio in each)}
        for name, value in ratios(total).items()
    }
    print("\nSeconds of the others over seconds of ours, preparation included\n")
    print(table([{"": name} | {k: f"{v:.1f}" for k, v in row.items()} for name, row in summary.items()]))
    return {"seconds": total, "ratios": summary}


def ratios(seconds: dict[str, float]) -> dict[str, float]:
    """How many times slower the others are: dense on the same graph, the winner's on its own."""
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


def table(rows: list[dict]) -> str:
    """Rows of equal keys as a Markdown table."""
    lines = [list(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(lines[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    padded.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def environment(options: argparse.Namespace) -> dict:
    """Where and with what the figures were measured."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": options.threads,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
    }


def keeping_results(run: Callable[[argparse.Namespace, Path], None], options: argparse.Namespace) -> int:
    """Run a benchmark that keeps what it trained in ``benchmarks/results``; the exit status.

    With ``--quick`` its folder is a temporary one.
    """
    if options.quick:
        with tempfile.TemporaryDirectory() as place:
            run(options, Path(place))
    else:
        run(options, Path(__file__).resolve().parent / "results")
    return 0


def finish(result: dict) -> None:
    """Print every figure as the last line, one JSON object."""
    print(json.dumps(_rounded(result)), flush=True)


def _rounded(value):
    """Floats to five significant digits."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
