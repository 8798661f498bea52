"""Feature building: complete or absent, resumed where it stopped, redone just where something changed."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import fastslow.features.build
import fastslow.steps.features
from fastslow.competition.catalog import SPLITS, get_collection
from fastslow.core.errors import DataError, SettingsError
from fastslow.features.build import build_graph, merge_duplicates
from fastslow.features.configs.copies import COPIES_THROUGH
from fastslow.features.graph import Graph, expand_nodes
from fastslow.features.scaling import NODE_BLOCKS
from fastslow.runs.features_folder import Features
from fastslow.steps.features import FeatureSettings, build_features
from helpers.cases import cases
from helpers.competition_files import ROOT, competition_arrays, layout_arrays, write_data_root, write_npz
from helpers.random_graphs import make_graph, structures
from helpers.scalers import fit_scaler

KINDS = {"layout": "layout:nlp:default", "tile": "tile:xla"}


@pytest.fixture(params=KINDS)
def settings(request, tmp_path):
    """Settings for a small data root in a folder whose name has a space."""
    collection = KINDS[request.param]
    root = write_data_root(tmp_path / "my data", collection)
    where = {"data_root": str(root), "folder": str(tmp_path / "my features")}
    return FeatureSettings(collection=collection, workers=1, **where)


def data_path(settings, split, name):
    return get_collection(settings.collection).folder(settings.data_root, split) / f"{name}.npz"


def stamps(settings):
    """When each file of the features was written, and which file it is."""
    paths = [path for path in Path(settings.folder).rglob("*") if path.is_file() and path.name != ".lock"]
    return {p.relative_to(settings.folder).as_posix(): (p.stat().st_mtime_ns, p.stat().st_ino) for p in paths}


def rewritten(settings, before):
    """Names of the graphs and other files that are new since ``before``."""
    return {name for name, stamp in stamps(settings).items() if before.get(name) != stamp and "/" in name}


def graph_files(*names):
    return {f"{name}{end}" for name in names for end in (".npz", ".choices.npy", ".config_feat.npy")}


def content(settings):
    """All arrays of all graphs and both scalers, to compare two folders."""
    features = Features(settings.folder)
    arrays = {}
    for split in SPLITS:
        for name in features.names(split):
            fields = dict(vars(features.graph(split, name)))
            fields |= vars(fields.pop("choices"))
            arrays |= {(split, name, field): np.asarray(value) for field, value in fields.items()}
    for name in ("node", "config"):
        for part, value in vars(features.scaler(name)).items():
            arrays[name, part] = value
    return arrays


def assert_same_content(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key], err_msg=str(key))


def test_a_folder_holds_what_its_index_says(settings):
    index = build_features(settings)
    assert index[["split", "name"]].values.tolist() == [
        ["train", "a"],
        ["train", "b"],
        ["valid", "v"],
        ["test", "t"],
    ]
    features = Features(settings.folder)
    assert (features.index.fillna(0) == index.fillna(0)).all(axis=None)
    for row in index.itertuples():
        graph = features.graph(row.split, row.name)
        arrays = np.load(data_path(settings, row.split, row.name))
        assert (graph.num_nodes, len(graph.edge_index), len(graph.config_index), graph.num_configs) == (
            row.nodes,
            row.edges,
            row.configurable,
            row.configs,
        )
        assert graph.config_feat.shape[1] == len(features.config_columns)
        assert row.configs + row.merged == len(arrays["config_runtime"])
        assert np.isnan(row.spread) == (row.split == "test")
        label = arrays["config_runtime"] / arrays.get("config_runtime_normalizers", 1)
        np.testing.assert_array_equal(graph.file_runtime, label)
        np.testing.assert_allclose((graph.runtime * np.bincount(graph.config_row)).sum(), label.sum())
        assert features.num_configs(row.split)[row.name] == len(label)
        if get_collection(settings.collection).kind == "layout":
            feat = arrays["node_config_feat"]
            codes = graph.choices.layout_codes(graph.config_row)
            np.testing.assert_array_equal(graph.layouts[codes].reshape(feat.shape), feat)
    assert features.manifest["settings"]["padding"] == -1 and features.manifest["graphs"] == 4


def test_a_second_call_redoes_nothing(settings):
    first = build_features(settings)
    before = stamps(settings)
    again = build_features(settings.replace(workers=2))  # which says how fast
    assert stamps(settings) == before
    assert (first.fillna(0) == again.fillna(0)).all(axis=None)


def test_an_interrupted_build_goes_on_where_it_stopped(settings, monkeypatch):
    build = fastslow.steps.features.graph_of
    built = []

    def stop_after_two(program, *options):
        if len(built) == 2:
            raise KeyboardInterrupt
        built.append(program.name)
        return build(program, *options)

    monkeypatch.setattr(fastslow.steps.features, "graph_of", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        build_features(settings)
    with pytest.raises(DataError, match="not finished"):
        Features(settings.folder)
    before = stamps(settings)
    assert before.keys() == graph_files("train/a", "train/b")
    monkeypatch.setattr(fastslow.steps.features, "graph_of", build)
    build_features(settings)
    assert rewritten(settings, before) == graph_files("valid/v", "test/t")
    fresh = settings.replace(folder=settings.folder + " 2")
    build_features(fresh)
    assert_same_content(content(settings), content(fresh))


def test_a_changed_file_redoes_its_graph_alone(settings):
    build_features(settings)
    before, old = stamps(settings), content(settings)
    kind = get_collection(settings.collection).kind
    write_npz(data_path(settings, "valid", "v"), competition_arrays(kind, seed=99))
    build_features(settings)
    assert rewritten(settings, before) == graph_files("valid/v")
    new = content(settings)
    assert (old["valid", "v", "file_runtime"] != new["valid", "v", "file_runtime"]).any()


def test_a_changed_setting_redoes_every_graph(settings):
    build_features(settings)
    before = stamps(settings)
    padding = content(settings)
    changed = settings.replace(padding=0)
    assert changed.artifact().changes() == ["padding: -1 -> 0"]
    build_features(changed)
    assert rewritten(settings, before) == graph_files("train/a", "train/b", "valid/v", "test/t")
    build_features(settings)
    assert_same_content(content(settings), padding)


def test_a_new_file_is_added_and_a_removed_one_disappears(settings):
    build_features(settings)
    kind = get_collection(settings.collection).kind
    write_npz(data_path(settings, "train", "c.choices"), competition_arrays(kind, seed=5))
    data_path(settings, "train", "a").unlink()
    (Path(settings.folder) / "train" / ".b.npz.1.tmp.npz").touch()  # left by a killed writer
    before = stamps(settings)
    index = build_features(settings)
    assert index["name"].tolist() == ["b", "c.choices", "v", "t"]
    assert rewritten(settings, before) == graph_files("train/c.choices")
    assert {name for name in stamps(settings) if "/" in name} == graph_files(
        "train/b", "train/c.choices", "valid/v", "test/t"
    )


@pytest.mark.parametrize("settings", ["layout"], indirect=True)
def test_a_broken_file_leaves_no_finished_folder(settings):
    build_features(settings)
    path = data_path(settings, "valid", "v")
    data = bytearray(path.read_bytes())
    data[200] ^= 255
    path.write_bytes(data)
    path.with_name("w.npz").write_bytes(data)
    with pytest.raises(DataError, match=r"v\.npz: cannot be read|w\.npz: cannot be read"):
        build_features(settings)
    with pytest.raises(DataError, match="not finished"):
        Features(settings.folder)


def test_scalers_come_from_train_alone(settings):
    build_features(settings)
    old = content(settings)
    train = [Features(settings.folder).graph("train", name) for name in ("a", "b")]
    for name, matrices in (
        ("node", [expand_nodes(graph) for graph in train]),
        ("config", [graph.config_feat for graph in train]),
    ):
        expected = fit_scaler(matrices, *NODE_BLOCKS) if name == "node" else fit_scaler(matrices)
        np.testing.assert_array_equal(old[name, "mean"], expected.mean)
        np.testing.assert_array_equal(old[name, "std"], expected.std)
    kind = get_collection(settings.collection).kind
    write_npz(data_path(settings, "valid", "v"), competition_arrays(kind, seed=99))
    write_npz(data_path(settings, "test", "t"), competition_arrays(kind, seed=98, labelled=False))
    build_features(settings)
    scalers = [key for key in old if key[0] in ("node", "config")]
    assert len(scalers) == 4
    for key in scalers:
        np.testing.assert_array_equal(content(settings)[key], old[key])
    write_npz(data_path(settings, "train", "a"), competition_arrays(kind, seed=5))
    build_features(settings)
    for key in scalers:
        assert (content(settings)[key] != old[key]).any()


@given(structure=structures(max_configs=9), seed=st.integers(0, 99))
@hypothesis_settings(max_examples=60)
def test_merging_matches_a_loop(structure, seed):
    *rest, codes = structure
    again = np.random.default_rng(seed).integers(
        0, len(codes) // 2 + 1, len(codes)
    )  # some of them more than once
    codes = codes[again]
    graph = make_graph((*rest, codes), seed)
    if not len(graph.config_index):  # a kernel: configurations differ by their features
        graph = dataclasses.replace(graph, config_feat=graph.config_feat[again])
    groups = {}
    for config in range(graph.num_configs):
        row = codes[config] if len(graph.config_index) else graph.config_feat[config]
        groups.setdefault(tuple(row.ravel().tolist()), []).append(config)
    merged = merge_duplicates(graph)
    assert merged.num_configs == len(groups)
    np.testing.assert_array_equal(merged.file_runtime, graph.runtime)
    for row, members in enumerate(groups.values()):  # in the order of their first members
        assert merged.config_ids[row] == members[0]
        np.testing.assert_array_equal(merged.config_row[members], row)
        assert merged.runtime[row] == pytest.approx(graph.runtime[members].mean())
        np.testing.assert_array_equal(merged.choices.layout_codes()[row], codes[members[0]])
        np.testing.assert_array_equal(merged.config_feat[row], graph.config_feat[members[0]])


@cases("hops, nodes", [(0, 3), (1, 10), (-1, 10)])  # the dots alone; with operands and users: all
def test_hops_decide_which_nodes_stay_and_nothing_else(tmp_path, hops, nodes):
    root = write_data_root(tmp_path, "layout:xla:random")
    settings = FeatureSettings(data_root=str(root), merge_duplicates=False)
    program, *_ = settings.programs()
    graph, whole = (build_graph(program, settings.replace(hops=hop_limit))[0] for hop_limit in (hops, -1))
    assert graph.num_nodes == nodes
    np.testing.assert_array_equal(graph.node_opcode[graph.config_index], 34)
    feat = layout_arrays(seed=sum(b"a"))["node_config_feat"]
    np.testing.assert_array_equal(graph.layouts[graph.choices.layout_codes()].reshape(feat.shape), feat)
    np.testing.assert_array_equal(graph.config_feat, whole.config_feat)


def test_copies_are_looked_for_through_as_many_nodes_as_the_constant_says(tmp_path, monkeypatch):
    """A chain of three dots, each followed by a tanh."""
    settings = FeatureSettings(data_root=str(write_data_root(tmp_path, "layout:xla:random")))
    program, *_ = settings.programs()
    for count, pairs in ((0, 0), (1, 2), (COPIES_THROUGH, 2)):
        monkeypatch.setattr(fastslow.features.build, "COPIES_THROUGH", count)
        assert len(build_graph(program, settings)[0].pairs) == pairs


@cases(
    "field, value", [("collection", "xla"), ("hops", -2), ("hops", 10**7), ("padding", 1), ("workers", -1)]
)
def test_a_setting_out_of_range_is_refused(field, value):
    with pytest.raises(SettingsError, match=f"^{field}: "):
        FeatureSettings(**{field: value})


def test_valid_programs_can_be_left_out_by_name(tmp_path):
    """Damaged labels of a valid graph choose nothing; a graph of that name in another split stays."""
    names = {"train": ("a", "unet"), "valid": ("v", "unet3d"), "test": ("t", "unet")}
    root = write_data_root(tmp_path, "layout:xla:default", **names)
    where = {"data_root": str(root), "folder": str(tmp_path / "f"), "collection": "layout:xla:default"}
    settings = FeatureSettings(workers=1, skip_valid=["layout:xla:*:*unet*", "tile:*"], **where)
    assert [program.name for program in settings.skipped()] == ["unet3d"]
    build_features(settings)
    features = Features(settings.folder)
    assert {split: features.names(split) for split in SPLITS} == {
        "train": ["a", "unet"],
        "valid": ["v"],
        "test": ["t", "unet"],
    }
    assert settings.artifact().is_current()
    assert not settings.replace(skip_valid=[]).artifact().is_current()
    with pytest.raises(SettingsError, match="skip_valid: .* leaves no valid program of .* Name fewer"):
        settings.replace(skip_valid=["layout:*"]).programs()


@cases("kind", KINDS)
def test_every_column_is_in_the_data_dictionary(tmp_path, kind):
    collection = KINDS[kind]
    root = write_data_root(tmp_path, collection)
    settings = FeatureSettings(
        collection=collection, data_root=str(root), folder=str(tmp_path / "f"), workers=1
    )
    build_features(settings)
    documented = set(re.findall(r"`([a-z0-9_<>]+)`", (ROOT / "features" / "README.md").read_text()))
    columns = Features(settings.folder).config_columns
    assert len(set(columns)) == len(columns)
    for column in columns:
        pattern = re.sub(r"\d", "<d>", column)
        by_group = re.sub(r"^(kernel|output|input)_", "<group>_", pattern)
        by_role = re.sub(r"^(convolution|dot|reshape)_(kernel|output|input)_", "<kind>_<role>_", column)
        assert documented & {column, pattern, by_group, by_role}, f"{column} is not in features/README.md"


def test_the_data_dictionary_lists_the_arrays_in_the_order_of_the_code():
    rows = re.findall(r"^\| `([a-z_]+)` \| \(", (ROOT / "features" / "README.md").read_text(), re.MULTILINE)
    assert rows == [field.name for field in dataclasses.fields(Graph)][1:]
