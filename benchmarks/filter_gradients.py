"""Say where models, labels and measured runs of the two 3-D U-Nets disagree, choice by choice.

``python benchmarks/filter_gradients.py [--quick] [--runs runs/sample] [--real ../shared/real]``, after ``make
submit`` and ``pip install -e '.[compiler]'``. The whole programs do not compile in ten minutes. Yet of their
convolutions' outputs the measured configurations change filter gradients alone: the first of each tied choice
is compiled by itself for TPU v3, under each of its layouts, by the rule of the labels. So the estimate that
stands behind a label can be scored as a predictor. Labels are kept, so a run may be interrupted.
"""

import argparse
import base64
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common import report
from common.graph_files import REAL
from common.measured_runs import Measured, name_groups
from common.options import make_parser
from fastslow.choices.tied_choices import Choices
from fastslow.competition.catalog import TEST, get_collection
from fastslow.competition.metrics import kendall_tau
from fastslow.competition.reader import CompetitionFile, read_competition_file
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import SettingsError
from fastslow.core.files import atomic_path
from fastslow.evaluation.baselines import predict_configs
from fastslow.features.config_tensors import config_tensors
from fastslow.features.scaling import standardise, unit_ranks
from fastslow.features.unseen import read_unseen
from fastslow.ranking.inference import runs_folder
from fastslow.xla.compile_pool import Labeller, layout_label, program_before_layout
from fastslow.xla.layout_constraints import constrain
from fastslow.xla.layout_space import Layout, configurable_nodes
from fastslow.xla.libtpu import Compiler, lower, require_compiler
from fastslow.xla.messages import Module
from zero_shot import Pretrained

COLLECTION = "layout:xla:default"
FILES = ("train/unet3d.npz", "valid/unet_3d.4x4.bf16.npz")
TABLE = Path(__file__).parent / "tables" / "filter_gradients.md"
SECONDS = 600.0  # time limit of a compile, which takes 5 to 60
NOTABLE = 10.0  # places of 100 from which an effect is in the table
FEATURE = 4  # the channels of an image
_DTYPES = {2: "bfloat16", 4: "float32"}

_INTRODUCTION = """# filter_gradients.py: the U-Nets' choices, as measured, as labelled and as predicted

```
.venv/bin/python benchmarks/filter_gradients.py
```

Run `{run}` of commit {commit}. Of the outputs of convolutions the measured configurations of the two 3-D
U-Nets change filter gradients alone. *Estimated*: the first gradient of the choice, alone in a program that
subtracts it from the weights, compiled for TPU v3 by libtpu {libtpu} by the rule of the labels: million
cycles with the uncommon layout minus those with the commonest. *Own layout*: which of them this compiler
takes by itself. *Measured*: median time with the uncommon layout against that with the commonest, the other
gradients being common. *Places*: by how many of 100 the uncommon layout moves a configuration in the
ranking, positive is slower; least squares on all tied choices at once. Choices that neither time nor a
predictor notices (less than {notable:.0f} places) are left out.

What follows from it is in [zero_shot.md](zero_shot.md).
"""


@dataclass(frozen=True)
class Gradient:
    """A filter gradient of a program, whose output's layout is a tied choice.

    Args:
        group: The choice.
        nodes: Number of convolutions that it sets.
        shapes: Sizes of the gradient, the input and the output's gradient, channels last.
        element_bytes: Bytes of an element.
        layouts: The two minor-most dimensions of the gradient under each option.
    """

    group: int
    nodes: int
    shapes: tuple[tuple[int, ...], ...]
    element_bytes: int
    layouts: tuple[Layout, ...]


def filter_gradients(file: CompetitionFile) -> list[Gradient]:
    """Return the filter gradients of 3-D convolutions, stride 1, among the outputs that a file's choices set.

    A choice whose first output is none is left out.
    """
    choices = file.choices
    tensors = config_tensors(file.node_feat, file.node_opcode, file.edge_index, file.node_config_ids)
    found = []
    for group in choices.varying:
        nodes = np.flatnonzero((choices.group[:, 0] == group) & tensors.known.all(1))
        if not len(nodes):
            continue
        node = nodes[0]
        shapes = tuple(
            tuple(d[:r].tolist()) for d, r in zip(tensors.dims[node], tensors.rank[node], strict=True)
        )
        output, image, gradient = shapes
        if (
            len(output) == 5
            and output[3:] == (image[FEATURE], gradient[FEATURE])
            and image[:4] == gradient[:4]
        ):
            codes = choices.codes[node, 0, : choices.options[group]]
            layouts = tuple(tuple(int(d) for d in file.layouts[code] if d >= 0) for code in codes)
            size = int(tensors.element_bytes[node, 0])
            found.append(Gradient(int(group), len(nodes), shapes, size, layouts))
    return found


def program_of(gradient: Gradient) -> bytes:
    """Return a step that subtracts a convolution's filter gradient from its weights, lowered for a TPU."""
    import jax

    def step(weights, image, wanted):
        numbers = ("NDHWC", "DHWIO", "NDHWC")

        def convolve(kernel):
            return jax.lax.conv_general_dilated(image, kernel, (1, 1, 1), "SAME", dimension_numbers=numbers)

        return weights - 0.01 * jax.vjp(convolve, weights)[1](wanted)[0]

    dtype = _DTYPES[gradient.element_bytes]
    return lower(step, tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in gradient.shapes))


def estimate_all(gradients: Sequence[Gradient], cache: Path, processes: int) -> tuple[list, list]:
    """Compile gradients alone, under each of their layouts.

    Returns:
        Per gradient the compiler's own layout of the output (its two minor-most dimensions), and the cycles
        under each option, NaN where a program did not compile.
    """
    limits = {"processes": processes, "seconds": SECONDS}
    with Labeller(cache, task=program_before_layout, **limits).workers() as label:
        before = label([program_of(gradient) for gradient in gradients], "before layout assignment")
    own, imposed = [], []
    for gradient, record in zip(gradients, before, strict=True):
        if "failure" in record:
            raise SettingsError(f"the gradient {gradient.shapes[0]} does not compile: {record['message']}")
        module = Module.FromString(base64.b64decode(record["module"]))
        nodes = configurable_nodes(module, record["layouts"])
        (node,) = (node for node in nodes if node.opcode == "convolution")
        own.append(node.default[0][:2])
        imposed += [
            constrain(module, {node.node: (layout, (), ())}, nodes).SerializeToString(deterministic=True)
            for layout in gradient.layouts
        ]
    with Labeller(cache, task=layout_label, **limits).workers() as label:
        records = iter(label(imposed, "under each layout"))
    return own, [
        np.array([next(records).get("cycles", np.nan) for _ in gradient.layouts]) for gradient in gradients
    ]


def places(choices: Choices, cost: np.ndarray) -> dict[int, float]:
    """Return how far the uncommon options of each choice move a configuration in the ranking.

    Args:
        choices: The configurations.
        cost: ``(C,)`` runtimes or predictions.

    Returns:
        By varying choice, the difference in places of 100: least squares on all choices at once.
    """
    uncommon = [choices.values[:, g] != np.bincount(choices.values[:, g]).argmax() for g in choices.varying]
    columns = np.stack([np.ones(len(cost)), *uncommon], 1)
    found = np.linalg.lstsq(columns, 100 * unit_ranks(cost), rcond=None)[0]
    return dict(zip(choices.varying.tolist(), found[1:].tolist(), strict=True))


def predictions_of(path: Path, pretrained: Pretrained) -> dict[str, np.ndarray]:
    """Return ``(C,)`` by model, the mean over its seeds, and by baseline."""
    graph = read_unseen(pretrained.features.folder, [path]).graph(TEST, path.stem)
    by_model: dict[str, list[np.ndarray]] = {}
    for run, values in pretrained.predict(graph)[0].items():
        by_model.setdefault(pretrained.models.get(run, "ensemble"), []).append(values)
    found = {model: standardise(np.stack(own, 1)).mean(1) for model, own in by_model.items()}
    return found | {name: predict_configs(own, graph) for name, own in pretrained.baselines.items()}


def compare(file: CompetitionFile, predictions: dict[str, np.ndarray], options: argparse.Namespace) -> dict:
    """Return the taus of a program's predictors, and a row for every choice that one of them notices."""
    choices, names = file.choices, name_groups(file, file.choices)
    gradients = filter_gradients(file)
    compiled = sorted(gradients, key=lambda g: g.shapes[1])[:1] if options.quick else gradients
    own, cycles = estimate_all(compiled, options.labels / "labels.sqlite", options.processes)
    estimate = sum(g.nodes * c[choices.values[:, g.group]] for g, c in zip(compiled, cycles, strict=True))
    decisive = np.array([gradient.group for gradient in gradients])
    measured = Measured(file.runtime, choices, names, decisive)
    effects = {"measured": file.runtime, **predictions}
    moved = {name: places(choices, cost) for name, cost in effects.items()}
    estimated = {g.group: (g, layout, c) for g, layout, c in zip(compiled, own, cycles, strict=True)}
    rows = []
    for group in choices.varying.tolist():
        if max(abs(effect[group]) for effect in moved.values()) < NOTABLE:
            continue
        row = {"tied choice": names[group], "estimated": None, "own layout": None}
        if group in estimated:
            gradient, layout, own_cycles = estimated[group]
            commonest = int(np.bincount(choices.values[:, group]).argmax())
            other = np.delete(own_cycles, commonest).mean()
            row["estimated"] = float(other - own_cycles[commonest]) / 1e6
            row["own layout"] = "commonest" if layout == gradient.layouts[commonest] else "the other"
        change = measured.effect(group, file.runtime)
        row["measured"] = change[0] if change else None
        rows.append(row | {f"places: {name}": effect[group] for name, effect in moved.items()})
    taus = {name: kendall_tau(file.runtime, cost) for name, cost in predictions.items()}
    classes = choices.partition(decisive)[0]
    medians = np.array([np.median(file.runtime[classes == c]) for c in range(classes.max() + 1)])
    taus = {"estimates of the gradients": kendall_tau(file.runtime, estimate), **taus}
    taus["median time of the same gradients (bound)"] = kendall_tau(file.runtime, medians[classes])
    return {"tau": taus, "choices": rows}


def page(results: dict[str, dict], facts: dict) -> str:
    """Return the table's page in Markdown."""
    parts = [_INTRODUCTION.format(**facts, notable=NOTABLE), "## Kendall's tau with measured time\n"]
    taus = [{"program": name} | report.cells(found["tau"]) for name, found in results.items()]
    parts.append(report.table(taus))
    formats = {"estimated": "{:+.2f}", "measured": "{:+.1%}", "own layout": "{}", "tied choice": "{}"}
    for name, found in results.items():
        rows = [
            {
                key: "" if value is None else formats.get(key, "{:+.0f}").format(value)
                for key, value in row.items()
            }
            for row in found["choices"]
        ]
        parts += [f"\n## {name}\n", report.table(rows)]
    return "\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status, 1 where the compiler is missing."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, help="folder of a run of make submit (default: newest)")
    parser.add_argument(
        "--real", type=Path, default=REAL, help="folder with npz_all/ (default ../shared/real)"
    )
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument(
        "--labels", type=Path, default=report.RESULTS / "filter_gradients", help="folder of labels"
    )
    parser.add_argument("--table", type=Path, help=f"where to write the page (default {TABLE.name})")
    options = parser.parse_args(arguments)
    collection = get_collection(COLLECTION)
    paths = [collection.folder(options.real, split) / name for split, name in (f.split("/") for f in FILES)]
    if not all(path.is_file() for path in paths):
        print(f"skipped: {' or '.join(map(str, paths))} is missing. Name the published files with --real")
        return 0
    try:
        require_compiler()
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    runs = runs_folder(options.runs).resolve()
    pretrained = Pretrained(runs, collection)
    results = {
        path.stem: compare(
            read_competition_file(path, "layout", labelled=True), predictions_of(path, pretrained), options
        )
        for path in (paths[:1] if options.quick else paths)
    }
    trained = read_manifest(runs / "submission")["commit"]
    facts = {"run": runs.name, "commit": trained, "libtpu": Compiler.version()}
    text = page(results, facts)
    print(text)
    table = options.table or (None if options.quick else TABLE)
    if table:
        with atomic_path(table) as temporary:
            temporary.write_text(text)
    report.finish({"benchmark": "filter_gradients", **facts, "programs": results})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
