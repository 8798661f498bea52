"""Compare the arrays made from a published protobuf with its npz, value by value, and time their extraction.

``python benchmarks/extractor.py [--quick] [--pair PB NPZ]``. Without a pair, only the speed is measured.
It does not need torch_geometric.
"""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

import numpy as np

from common import report
from common.options import make_parser
from fastslow.competition.node_columns import COLUMN_NAMES
from fastslow.competition.reader import read_competition_file
from fastslow.core.settings import PROJECT
from fastslow.features.list_padding import PADDING, pad
from fastslow.xla.graph_arrays import graph_arrays
from fastslow.xla.messages import PRIMITIVE_TYPES, Module
from fastslow.xla.reader import HloProgram, read_program

REAL = PROJECT.parent / "shared" / "real"
PAIR = (
    REAL / "pb" / "module_tuning_data_layout.pb",
    REAL / "npz_all" / "npz" / "layout" / "xla" / "default" / "valid" / "unet_3d.4x4.bf16.npz",
)
NODES = {False: 40_000, True: 2_000}
"""Nodes of the synthetic module, by --quick."""
GRAPH_KEYS = ("node_feat", "node_opcode", "edge_index", "node_splits")


def compare(protobuf: Path, npz: Path) -> dict:
    """Compare the arrays of a protobuf with its npz, per key, and ``node_feat`` also per column."""
    program = read_program(protobuf)
    with np.load(npz, allow_pickle=False) as arrays:
        published = {key: arrays[key] for key in arrays.files}
    ours = graph_arrays(program.module) | {"node_config_ids": program.runs["node_config_ids"]}
    feat, wanted = ours["node_feat"], published["node_feat"]
    same_nodes = feat.shape == wanted.shape
    unequal = [
        name for name, *pair in zip(COLUMN_NAMES, feat.T, wanted.T, strict=True) if not np.array_equal(*pair)
    ]
    return {
        "nodes": len(feat),
        "edges": len(ours["edge_index"]),
        "equal": {key: _same(ours[key], published[key]) for key in (*GRAPH_KEYS, "node_config_ids")},
        "columns": {
            "equal": len(COLUMN_NAMES) - len(unequal),
            "unequal": unequal,
            "varying": int((wanted != wanted[0]).any(0).sum()),
        },
        "padding": _compare_padding(program, npz) if same_nodes else None,
        "runs": _compare_runs(program, published),
    }


def _same(ours: np.ndarray, published: np.ndarray) -> bool:
    """Return whether dtype, shape and every value are equal."""
    return ours.dtype == published.dtype and np.array_equal(ours, published)


def _compare_padding(program: HloProgram, npz: Path) -> dict:
    """Count the padding values, and those of all that :func:`pad` gets wrong from the npz alone."""
    file = read_competition_file(npz, "layout")
    inferred = pad(file.node_feat, file.node_opcode, file.edge_index)
    exact = graph_arrays(program.module, PADDING)["node_feat"]
    return {"values": int((exact != file.node_feat).sum()), "wrong": int((inferred != exact).sum())}


def _compare_runs(program: HloProgram, published: dict[str, np.ndarray]) -> dict:
    """Count the protobuf's runs that the npz holds with the same configuration and runtime."""
    ours, theirs = (
        Counter(
            (int(runtime), settings.tobytes())
            for runtime, settings in zip(runs["config_runtime"], runs["node_config_feat"], strict=True)
        )
        for runs in (program.runs, published)
    )
    return {"protobuf": ours.total(), "equal": (ours & theirs).total(), "npz": theirs.total()}


def synthetic_module(nodes: int) -> Module:
    """Build a module of about ``nodes`` nodes: convolution, bias, reshape, reduce, transpose, repeated."""
    module = Module(name="synthetic", entry_computation_id=1, entry_computation_name="main")
    main, reducer = module.computations.add(id=1, name="main"), module.computations.add(id=2, name="add")

    def add(computation, opcode: str, dims=(), operands=(), **fields) -> int:
        node = len(computation.instructions)
        layout = {"minor_to_major": range(len(dims))[::-1]}
        shape = {"element_type": PRIMITIVE_TYPES["f32"], "dimensions": dims, "layout": layout}
        computation.instructions.add(
            name=f"{opcode}.{node}", opcode=opcode, id=node, operand_ids=operands, shape=shape, **fields
        )
        return node

    terms = [add(reducer, "parameter", parameter_number=number) for number in (0, 1)]
    reducer.root_id = add(reducer, "add", operands=terms)
    side = {
        "size": 3,
        "stride": 1,
        "padding_low": 1,
        "padding_high": 1,
        "window_dilation": 1,
        "base_dilation": 1,
    }
    axes = {
        "input_feature": 3,
        "input_spatial": [1, 2],
        "kernel_input_feature": 2,
        "kernel_output_feature": 3,
        "kernel_spatial": [0, 1],
        "output_feature": 3,
        "output_spatial": [1, 2],
    }
    image = (32, 64, 64, 128)
    last = add(main, "parameter", image)
    while len(main.instructions) < nodes - 10:
        kernel = add(main, "parameter", (3, 3, 128, 128), parameter_number=1)
        last = add(
            main,
            "convolution",
            image,
            [last, kernel],
            window={"dimensions": [side, side]},
            convolution=axes,
            feature_group_count=1,
            batch_group_count=1,
        )
        bias = add(main, "parameter", (128,), parameter_number=2)
        wide = add(main, "broadcast", image, [bias], dimensions=[3])
        last = add(main, "add", image, [last, wide])
        flat = add(main, "reshape", (32, 4096, 128), [last])
        zero = add(main, "constant")
        add(main, "reduce", (32, 128), [flat, zero], dimensions=[1], called_computation_ids=[2])
        add(main, "transpose", (128, 32, 4096), [flat], dimensions=[2, 0, 1])
    main.root_id = last
    return module


def time_extraction(path: Path, repeats: int) -> dict:
    """Return median processor seconds, on one thread, of reading a file and of making its arrays.

    Processor time depends little on other load. ``nodes per second`` is of both together.
    """
    rounds = []
    for _ in range(repeats):
        began = time.process_time()
        program = read_program(path)
        read = time.process_time()
        arrays = graph_arrays(program.module)
        made = time.process_time()
        graph_arrays(program.module, extra=True)
        rounds.append((read - began, made - read, time.process_time() - made))
    reading, making, with_extra = map(median, zip(*rounds, strict=True))
    nodes = len(arrays["node_opcode"])
    return {
        "nodes": nodes,
        "bytes": path.stat().st_size,
        "seconds": {"read": reading, "arrays": making, "arrays with extra features": with_extra},
        "nodes per second": nodes / (reading + making),
    }


def main(arguments: list[str]) -> int:
    """Run from the command line and return the exit status, 1 where a value differs."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--pair",
        nargs=2,
        type=Path,
        default=PAIR,
        metavar=("PB", "NPZ"),
        help="the same program as protobuf and npz (default ../shared/real)",
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds of timing (default 5, quick 1)")
    options = parser.parse_args(arguments)
    has_pair = all(path.is_file() for path in options.pair)
    equality = compare(*options.pair) if has_pair else None
    if equality:
        _print_equality(equality)
    else:
        print(f"Nothing compared: no published pair at {' and '.join(map(str, options.pair))}")

    repeats = 1 if options.quick else options.repeats
    speed = {options.pair[0].stem: time_extraction(options.pair[0], repeats)} if has_pair else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.pb"
        path.write_bytes(synthetic_module(NODES[options.quick]).SerializeToString())
        speed["synthetic"] = time_extraction(path, repeats)
    print("\nProcessor seconds, median over rounds\n")
    print(report.table([_speed_row(name, result) for name, result in speed.items()]))
    report.finish(
        {
            "benchmark": "extractor",
            "environment": report.environment(),
            "equality": equality,
            "speed": speed,
        }
    )
    return int(equality is not None and not is_equal(equality))


def is_equal(equality: dict) -> bool:
    """Return whether nothing at all differs."""
    return all(equality["equal"].values()) and equality["runs"]["equal"] == equality["runs"]["protobuf"]


def _print_equality(equality: dict) -> None:
    columns, runs, padding = (equality[part] for part in ("columns", "runs", "padding"))
    print(f"{equality['nodes']} nodes and {equality['edges']} edges against the published npz\n")
    print(report.table([{"key": key, "equal": same} for key, same in equality["equal"].items()]))
    share = f"{columns['equal']} of {len(COLUMN_NAMES)} columns equal"
    unequal = ", ".join(columns["unequal"]) or "none"
    print(f"\nnode_feat: {share} ({columns['varying']} vary in this file); unequal: {unequal}")
    print(f"runs: {runs['equal']} of {runs['protobuf']} equal by configuration and runtime")
    if padding:
        print(
            f"padding: {padding['values']} values, {padding['wrong']} wrong when inferred from the npz alone"
        )


def _speed_row(name: str, result: dict) -> dict[str, str]:
    seconds = {part: f"{value:.3f}" for part, value in result["seconds"].items()}
    return {
        "module": name,
        "N": result["nodes"],
        **seconds,
        "nodes per second": f"{result['nodes per second']:,.0f}",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
