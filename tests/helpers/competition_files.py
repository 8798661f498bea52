"""Small competition files made up at random with valid values, and where the published ones lie."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fastslow.competition import node_columns
from fastslow.competition.catalog import COLLECTIONS, SPLITS, TEST, ProgramFile, get_collection
from fastslow.competition.opcodes import OPCODES
from fastslow.competition.reader import read_npz
from fastslow.competition.rules.program_rules import check_program
from fastslow.competition.submission_csv import format_submission
from fastslow.steps.features import FeatureSettings, build_features

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "real"
needs_real = pytest.mark.skipif(
    not (REAL / "npz_all").is_dir(),
    reason="no published TpuGraphs files beside the repository (../shared/real)",
)
LAYOUT_FILES, PUBLISHED_LAYOUT_FILES = (
    sorted((root / "npz_all" / "npz" / "layout").rglob("*.npz")) for root in (ROOT / "data" / "sample", REAL)
)
SOME_LAYOUT_FILES = LAYOUT_FILES[::28] + PUBLISHED_LAYOUT_FILES[-1:]
PUBLISHED_MODULE = REAL / "pb" / "module_tuning_data_layout.pb"
PUBLISHED_GRAPH = REAL / "npz_all" / "npz" / "layout" / "xla" / "default" / "valid" / "unet_3d.4x4.bf16.npz"
needs_pair = pytest.mark.skipif(
    not PUBLISHED_MODULE.is_file(), reason=f"no published protobuf and npz of one program under {REAL}"
)
_PRODUCTS = [i for i, name in enumerate(node_columns.COLUMN_NAMES) if name.endswith("_product")]


def node_row(dims=(), minor_to_major=None, is_root=False, element_type="f32"):
    """The 140 features of a node: shape, element type and layout (row-major if not given)."""
    row = np.zeros(140, np.float32)
    row[_PRODUCTS] = 1  # of an empty list
    row[node_columns.IS_ROOT] = is_root
    row[node_columns.ELEMENT_TYPE.start + node_columns.ELEMENT_TYPES.index(element_type)] = 1
    row[node_columns.SHAPE.start : node_columns.SHAPE.start + len(dims)] = dims
    row[node_columns.SHAPE_SUM], row[node_columns.SHAPE_PRODUCT] = sum(dims), np.prod(dims)
    order = range(len(dims))[::-1] if minor_to_major is None else minor_to_major
    row[node_columns.LAYOUT.start : node_columns.LAYOUT.start + len(dims)] = list(order)
    return row


def graph_arrays(nodes, edges):
    """node_feat, node_opcode and edge_index; nodes are ``(opcode name, arguments of node_row)``.

    Parameters are numbered in their order, as those of one computation.
    """
    node_feat = np.stack([node_row(*rest) for _, *rest in nodes])
    parameters = [node for node, (name, *_) in enumerate(nodes) if name == "parameter"]
    node_feat[parameters, node_columns.LISTS["parameter_number"][0].start] = range(len(parameters))
    return {
        "node_feat": node_feat,
        "node_opcode": np.array([OPCODES[name] for name, *_ in nodes], np.uint8),
        "edge_index": np.array(edges, np.int64).reshape(-1, 2),
    }


def random_layouts(rng, *shape):
    """Layouts ``(*shape, 6)`` of one or two dimensions in any order, one in four left to the compiler."""
    layouts = np.full((*shape, 6), -1.0, np.float32)
    layouts[..., :2] = np.where(rng.random((*shape, 1)) < 0.5, [0, 1], [1, 0])
    layouts[rng.random(shape) < 0.25] = -1
    return layouts


def layout_arrays(seed=0, dots=3, configs=8, labelled=True):
    """A layout file: a chain of dots, each followed by a tanh; every second configuration is given twice."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 300, dots + 1).tolist()
    nodes, edges, ids, last = [("parameter", (8, sizes[0]))], [], [], 0
    for rows, width in zip(sizes, sizes[1:], strict=False):
        weights, dot, tanh = len(nodes), len(nodes) + 1, len(nodes) + 2
        nodes += [("parameter", (rows, width)), ("dot", (8, width)), ("tanh", (8, width))]
        edges += [(dot, last), (dot, weights), (tanh, dot)]
        ids.append(dot)
        last = tanh
    nodes[-1] = (*nodes[-1], None, True)
    choice = random_layouts(rng, configs, dots, 3).reshape(configs, dots, 18)
    choice[1::4] = choice[0::4][: len(choice[1::4])]
    runtime = rng.integers(1_000, 9_000, configs) if labelled else np.zeros(configs, int)
    return {
        **graph_arrays(nodes, sorted(edges)),
        "node_config_ids": np.array(ids, np.int64),
        "node_config_feat": choice,
        "config_runtime": runtime.astype(np.int64),
        "node_splits": np.array([[0, len(nodes)]], np.int64),
    }


def tile_arrays(seed=0, configs=6, labelled=True):
    """A tile file: one fused dot with random bounds."""
    rng = np.random.default_rng(seed)
    rows, inner, width = rng.integers(64, 600, 3).tolist()
    nodes = [("parameter", (rows, inner)), ("parameter", (inner, width)), ("dot", (rows, width), None, True)]
    bounds = np.zeros((configs, 3, 8), np.float32)
    bounds[:, :2, :2] = rng.integers(1, 5, (configs, 2, 2))
    bounds[..., 6] = bounds[..., :6].sum(-1)
    bounds[:, :2, 7] = bounds[:, :2, :2].prod(-1)
    runtime = rng.integers(1_000, 9_000, configs) if labelled else np.zeros(configs, int)
    return {
        **graph_arrays(nodes, [(2, 0), (2, 1)]),
        "config_feat": bounds.reshape(configs, 24),
        "config_runtime": runtime.astype(np.int64),
        "config_runtime_normalizers": np.full(configs, 1_000 if labelled else 1, np.int64),
    }


def competition_arrays(kind, **options):
    """Arrays of a file of that kind."""
    return layout_arrays(**options) if kind == "layout" else tile_arrays(**options)


def write_npz(path, arrays):
    """Write a competition file, compressed as the published ones are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


def write_submission(path, predictions, data_root=None):
    """Write the CSV of predictions by ID, see :func:`format_submission`."""
    path.write_bytes(format_submission(path, predictions, data_root))


def npz_program(path, kind, labelled=False):
    """The program of an npz file of a kind, ``layout`` or ``tile``, in the first collection of that kind."""
    collection = next(collection for collection in COLLECTIONS if collection.kind == kind)
    program = read_npz(ProgramFile(collection, TEST, Path(path)), labelled)
    check_program(program)
    return program


def write_data_root(root, collection, train=("a", "b"), valid=("v",), test=("t",)):
    """A data root with programs of one collection; each is made up from its name."""
    collection = get_collection(collection)
    for split, names in (("train", train), ("valid", valid), ("test", test)):
        for name in names:
            arrays = competition_arrays(collection.kind, seed=sum(name.encode()), labelled=split != "test")
            write_npz(collection.folder(root, split) / f"{name}.npz", arrays)
    return root


def build_sample(folder, collection, hops=1, count=1, **programs):
    """Features of the first programs of the sample, a few a split; ``programs`` names others of a split."""
    for split in SPLITS:
        target = collection.folder(folder / "data", split)
        target.mkdir(parents=True, exist_ok=True)
        source = collection.folder(ROOT / "data" / "sample", split)
        for path in programs.get(split) or sorted(source.glob("*.npz"))[:count]:
            shutil.copy(path, target)
    hops_setting = {"hops": hops} if collection.kind == "layout" else {}
    where = {"data_root": str(folder / "data"), "folder": str(folder / "features" / collection.slug)}
    build_features(FeatureSettings(collection=collection.name, workers=1, **where, **hops_setting))
    return folder / "features" / collection.slug
