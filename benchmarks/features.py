"""CPU time, memory and disk of building layout features from tied choices, and without them as before.

``python benchmarks/features.py [--quick] [--files NPZ ...] [--configs N] [--repeats N]``. Each measurement is
a process of its own; CPU seconds are its resource usage, the minimum of the repeats: other work on the
machine only adds. One pass of decompression is that of the standard library. Without ``--files``: the real
files in ../shared/real, where present, and two graphs of 43,614 nodes made by repeating real programs,
written to a temporary folder.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import zipfile
from argparse import Namespace
from pathlib import Path

import numpy as np

from common import report
from common.graph_files import REAL, SAMPLE, program_of
from common.made_graphs import write_repeated
from common.options import make_parser
from fastslow.competition.reader import read_choices, read_competition_file
from fastslow.features.build import build_graph_of
from fastslow.features.settings import FeatureSettings
from fastslow.features.store import write_graph
from reference import untied_features

_FILES = "npz_all/npz/layout/*/*/*/*.npz"
_MADE = (  # program that is repeated, N, K
    ("layout/nlp/default/test/3a0c5517a87df8d82fd637b83298a3ba.npz", 43_614, 848),
    ("layout/xla/default/test/cd708819d3f5103afd6460b15e74eaf3.npz", 43_614, 3_143),
)
_CONFIGS = 100_040
_BEFORE = 10_004  # configurations that the former path is measured on at most; the rest is extrapolated
_TABLES = ("choices_group", "choices_codes", "choices_options", "config_feat_values", "config_feat_sizes")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process so far, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Stopwatch:
    """CPU seconds of each part of a run, and its peak memory above that as loaded."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._loaded, self._last = self._peak(), cpu_seconds()

    def stop(self, part: str | None = None) -> None:
        """Note the time since the last stop as that of a part; of none: it does not count."""
        if part:
            self.seconds[part] = cpu_seconds() - self._last
        self._last = cpu_seconds()

    @staticmethod
    def _peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def result(self, **more) -> dict:
        """Return all figures."""
        return {"seconds": self.seconds, "MB": self._peak() - self._loaded, **more}


def measure_plain(path: Path, folder: Path) -> dict:
    """Decompress the layouts as zipfile and numpy do it, and do nothing with them."""
    watch = Stopwatch()
    with zipfile.ZipFile(path) as archive, archive.open("node_config_feat.npy") as member:
        while member.read(1 << 20):
            pass
    watch.stop("read")
    return watch.result()


def measure_after(path: Path, folder: Path) -> dict:
    """Read tied choices, build features from them and write the store."""
    watch = Stopwatch()
    read_choices(path)
    watch.stop("read")
    file, program = read_competition_file(path, "layout"), program_of(path)
    watch.stop()
    graph, _ = build_graph_of(program, file, FeatureSettings(collection=program.collection.name))
    watch.stop("build")
    write_graph(folder, program.split, graph, "")
    watch.stop("write")
    npz = folder / program.split / f"{program.name}.npz"
    with np.load(npz) as arrays:
        tables = sum(arrays[key].nbytes for key in _TABLES)
    size = sum(path.stat().st_size for path in npz.parent.glob("*.npy")) + tables
    shape = {"configs": len(file.choices), "distinct": graph.num_configs, "groups": file.choices.num_groups}
    nodes = {"nodes": len(file.node_opcode), "configurable": len(file.choices.group)}
    return watch.result(bytes=size, **nodes, **shape)


def measure_before(path: Path, folder: Path) -> dict:
    """Read a code for each tensor, build features from them and write them, at most ``_BEFORE`` of them."""
    watch, settings = Stopwatch(), FeatureSettings()
    layouts, codes = untied_features.read_codes(path, _BEFORE)
    watch.stop("read")
    file = read_competition_file(path, "layout")
    watch.stop()
    parts = untied_features.graph_part(file, settings)
    watch.stop("graph")
    arrays = untied_features.config_part(file, *parts, layouts, codes, settings)
    watch.stop("build")
    for name, array in zip(("codes", "config_feat"), arrays, strict=True):
        np.save(folder / f"{name}.npy", array)
    watch.stop("write")
    size = sum(path.stat().st_size for path in folder.glob("*.npy"))
    return watch.result(bytes=size, configs=len(codes))


MEASURES = {"plain": measure_plain, "after": measure_after, "before": measure_before}


def measure(which: str, path: Path, repeats: int) -> dict:
    """Measure in processes of their own; return the minimum of each part's seconds."""
    command = [sys.executable, __file__, "--measure", which, "--files", str(path)]
    threads = {key: "1" for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    runs = []
    for _ in range(repeats):
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads})
        if run.returncode:
            raise SystemExit(f"{' '.join(command)}: exit status {run.returncode}")
        runs.append(json.loads(run.stdout.splitlines()[-1]))
    seconds = {part: min(run["seconds"][part] for run in runs) for part in runs[0]["seconds"]}
    return {**runs[0], "seconds": seconds, "MB": min(run["MB"] for run in runs)}


def compare(path: Path, repeats: int) -> dict:
    """Measure one file before and after, extrapolate the former path to all configurations, and compare."""
    plain, after, before = (measure(which, path, repeats) for which in MEASURES)
    scale = after["configs"] / before["configs"]
    seconds = {part: scale * value for part, value in before["seconds"].items()}
    seconds["build"] += before["seconds"]["graph"]
    own, read = after["seconds"], plain["seconds"]["read"]
    row = {
        "file": path.stem[:18],
        **{key: after[key] for key in ("nodes", "configurable", "configs", "distinct", "groups")},
        "extrapolated": scale > 1,
        "decompression s": read,
        "read before s": seconds["read"],
        "read s": own["read"],
        "read / decompression": own["read"] / read,
        "build before s": seconds["build"],
        "of which graph s": before["seconds"]["graph"],
        "build s": own["build"],
        "build ratio": seconds["build"] / own["build"],
        "write before s": seconds["write"],
        "write s": own["write"],
        "bytes before": int(scale * before["bytes"]),
        "bytes": after["bytes"],
        "bytes ratio": scale * before["bytes"] / after["bytes"],
        "peak MB before": before["MB"],
        "peak MB": after["MB"],
    }
    print(json.dumps(row), file=sys.stderr, flush=True)  # a run of all files takes long
    return row


def made_files(options: Namespace, folder: Path):
    """Write and yield the made graphs, one at a time."""
    root, made = (SAMPLE, ((None, 600, 40),)) if options.quick else (REAL, _MADE)
    for name, num_nodes, num_configurable in made:
        source = root / "npz_all" / "npz" / name if name else sorted(root.glob(_FILES))[0]
        if not source.is_file():
            continue
        place = folder.joinpath(*source.parts[-5:-2], "test")
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"made of {num_configurable}.npz"
        num_configs = 300 if options.quick else options.configs
        write_repeated(
            path, read_competition_file(source, "layout"), num_nodes, num_configurable, num_configs
        )
        yield path
        path.unlink()


def parse(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--files", nargs="+", type=Path, metavar="NPZ", help="layout files, as published")
    parser.add_argument("--configs", type=int, default=_CONFIGS, help="configurations of the made graphs")
    parser.add_argument("--repeats", type=int, default=3, help="processes per measurement of a given file")
    parser.add_argument("--measure", choices=MEASURES, help="measure the first file in this process only")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        if options.measure:
            report.finish(MEASURES[options.measure](options.files[0], Path(temporary)))
            return 0
        default = sorted((SAMPLE if options.quick else REAL).glob(_FILES))
        files = options.files or (default[:1] if options.quick else default)
        repeats = 1 if options.quick else options.repeats
        rows = [compare(path, repeats) for path in files]
        if not options.files:
            rows += [compare(path, 1) for path in made_files(options, Path(temporary))]
    shown = [{key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
             for row in rows]  # fmt: skip
    print(report.table(shown), "\n", flush=True)
    report.finish({"benchmark": "features", "environment": report.environment(), "files": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
