"""A sample competition: its files, programs left out by rule, and one committed program reproduced."""

import base64
import importlib.metadata
import importlib.util
import random
import re
import zipfile
from collections import Counter
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from fastslow.competition.catalog import COLLECTIONS, SPLITS, TEST, VALID, get_collection, list_programs
from fastslow.competition.opcodes import distance, opcode_shares
from fastslow.competition.submission_checks import check_submission
from fastslow.core.errors import SettingsError
from fastslow.core.settings import find_data
from fastslow.evaluation.scores import read_solution, score_submission
from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.layout_choices import default_configuration, layouts_of, tie
from fastslow_programs.compiler.layout_space import configurable_nodes, encode
from helpers.cases import cases
from helpers.competition_files import competition_arrays, npz_program
from helpers.dot_module import add, rich_module
from helpers.workspace import SAMPLE
from make_sample import compiled, sample, sample_readme
from make_sample.layout_search import SEARCHES, Search
from make_sample.sample import CONFIGURATIONS, LabelledProgram, SampleSettings, label_programs, make_sample
from make_sample.sample_files import (
    MAX_CANDIDATES,
    SampleGraph,
    layout_graphs,
    ordered,
    structure,
    tile_graphs,
    why_left_out,
    write_competition,
)
from make_sample.zoo import LONGER, PROGRAMS, split_of
from make_sample.zoo.families import APART


def made_up_graphs():
    """Return two graphs of every collection and split, whose labels are equal except for the first."""
    graphs = []
    for collection in COLLECTIONS:
        for number, split in enumerate(SPLITS * 2):
            arrays = competition_arrays(collection.kind, seed=number, configs=8)
            arrays["config_runtime"][1:] = 10_000
            graphs.append(
                SampleGraph(collection.name, split, f"{split}-{number}", f"p{number}", arrays, None)
            )
    return ordered(graphs[::-1])


@pytest.fixture(scope="module")
def competition(tmp_path_factory):
    """A written competition and its graphs."""
    out, graphs = tmp_path_factory.mktemp("competition") / "made", made_up_graphs()
    write_competition(graphs, "# About\n", out)
    return out, graphs


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def members(path_or_bytes):
    """Return the bytes of the arrays of an npz, as their compression depends on the machine's zlib."""
    with zipfile.ZipFile(path_or_bytes) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_every_file_is_read_as_one_of_the_competition(competition):
    out, graphs = competition
    for collection in COLLECTIONS:
        for split in SPLITS:
            programs = list_programs(out, collection, split)
            by_name = {g.name: g for g in graphs if (g.collection, g.split) == (collection.name, split)}
            assert {program.name for program in programs} == set(by_name) and len(by_name) == 2
            for program in programs:
                file = npz_program(program.path, collection.kind, labelled=split != "test")
                graph = by_name[program.name]
                assert np.array_equal(file.node_feat, graph.arrays["node_feat"])
                assert np.array_equal(file.runtime, 0 * graph.labels if split == "test" else graph.labels)
                if collection.kind == "tile" and split == "test":
                    assert (file.normalizers == 1).all()
    assert (out / "README.md").read_text() == "# About\n"


def test_solution_and_submission_hold_the_test_graphs(competition):
    out, graphs = competition
    test = {f"{g.collection}:{g.name}": g.labels for g in graphs if g.split == "test"}
    solution = read_solution(out / "solution.csv")
    assert list(solution) == list(test)
    assert all(np.array_equal(solution[row_id], test[row_id]) for row_id in test)
    checked = check_submission(out / "sample_submission.csv", out)
    assert checked["rows"] == {collection.name: 2 for collection in COLLECTIONS}
    scores = score_submission(out / "sample_submission.csv", solution)
    assert scores["tile:xla"]["mean"] == pytest.approx(1), "the fastest is the first of five"


def test_labels_of_test_files_are_nowhere_but_in_the_solution(competition):
    out, graphs = competition
    labels = next(g for g in graphs if g.split == "test" and g.collection == "tile:xla").labels
    holding = []
    for path in (path for path in out.rglob("*") if path.is_file()):
        content = b"".join(members(path).values()) if path.suffix == ".npz" else path.read_bytes()
        if labels.tobytes() in content or str(labels[0]).encode() in content:
            holding.append(path.name)
    assert holding == ["solution.csv"]


def test_a_folder_is_replaced_whole_by_the_same_bytes(competition):
    out, graphs = competition
    before = contents(out)
    (out / "npz_all" / "stray.npz").write_bytes(b"old")
    write_competition(graphs, "# About\n", out)
    assert contents(out) == before
    assert [path.name for path in out.parent.iterdir()] == [out.name], "nothing is left beside it"


def test_a_failure_leaves_the_old_folder(competition):
    out, graphs = competition
    before = contents(out)
    with pytest.raises(AttributeError):
        write_competition([*graphs, None], "", out)
    assert contents(out) == before and len(list(out.parent.iterdir())) == 1


def graph_of(labels, kind="random"):
    return SampleGraph(f"layout:xla:{kind}", "train", "a", "a", {"config_runtime": np.array(labels)}, None)


@cases(
    "labels, why",
    [
        (range(100, 148), ""),
        (range(100, 132), ""),
        (range(100, 131), "random: 31 of 48 labels"),
        ([100] * 24 + [104] * 24, "random: the slowest is only 1.040 times the fastest"),
        ([100] * 42 + [106, 107, 108, 109, 110, 111], "random: 7 distinct among 48 labels"),
        ([100] * 41 + [105, 106, 107, 108, 109, 110, 111], ""),
    ],
)
def test_programs_are_left_out_by_rule(labels, why):
    good = graph_of(range(100, 148), "default")
    assert why_left_out([good, graph_of(labels)], 48) == why
    assert why_left_out([good], 48) == why_left_out([], 48) == "no configurable node, or no label"


def labelled_program(split="train", seed=0, leaves=("parameter",)):
    """Return a program with ten labels of each search, two of them failures, and a kernel of each sort."""
    module = rich_module()
    program = SimpleNamespace(name="small_forward", source="xla", family="small")
    nodes, rng = configurable_nodes(module), random.Random(seed)
    searches = {kind: Search(kind, tie(nodes), kind) for kind in SEARCHES}
    for search in searches.values():
        search.labels += [(c, rng.randrange(1_000, 9_000)) for c in search.propose(8)]
        search.labels += [(c, None) for c in search.propose(2)]
    return LabelledProgram(program, split, 8, module, nodes, searches, tile_record(leaves), [])


def tile_record(leaves=("parameter",)):
    """Return the record of fusions with candidates of every sort, one no longer in the optimised module.

    All call one computation, of some operands and a sum.
    """
    module = Module(name="whole", entry_computation_id=1)
    main, fused = (module.computations.add(name=name, id=n) for n, name in enumerate(("main", "fused"), 1))
    main.root_id, fused.root_id = 1, add(fused, "add", (8, 4), *(add(fused, leaf, (8, 4)) for leaf in leaves))
    for _ in range(6):
        add(main, "fusion", (8, 4), called_computation_ids=[2])

    def candidates(count, kernel=(), rank=2, equal=False):
        rows = [[list(kernel), [n + 1] * rank, 100 + (0 if equal else n)] for n in range(count)]
        return {"chosen": 100, "candidates": rows}

    kernels = {
        "fusion.1": candidates(9),
        "fusion.2": candidates(5, kernel=(2, 3)),
        "fusion.3": candidates(9),  # as fusion.1
        "fusion.4": candidates(3),
        "fusion.5": candidates(MAX_CANDIDATES + 50),
        "fusion.6": candidates(9, rank=7),
        "fusion.7": candidates(12),  # the optimised module has it no more
        "fusion.8": candidates(12, equal=True),
    }
    return {"kernels": kernels, "module": base64.b64encode(module.SerializeToString()).decode()}


def test_rows_of_a_layout_graph_are_the_labelled_configurations():
    labelled = labelled_program()
    for graph in layout_graphs(labelled, seed=0):
        search = labelled.searches[graph.collection.rsplit(":", 1)[1]]
        rows = zip(graph.arrays["node_config_feat"], graph.labels.tolist(), strict=True)
        found = Counter((features.tobytes(), label) for features, label in rows)
        expected = Counter(
            (encode(layouts_of(c, search.choices), labelled.nodes).tobytes(), label)
            for c, label in search.succeeded()
        )
        assert found == expected and len(graph.labels) == 8
        assert graph.arrays["node_config_ids"].tolist() == [node.node for node in labelled.nodes]
        assert graph.labels.tolist() != [label for _, label in search.succeeded()], "shuffled"
        default = default_configuration(search.choices)
        assert graph.chosen == dict(search.succeeded()).get(default)
        assert (graph.chosen is not None) == (graph.collection == "layout:xla:default")
        for key, array in graph_arrays(labelled.module).items():
            assert np.array_equal(graph.arrays[key], array)


def test_only_names_of_test_graphs_hide_the_program():
    assert {g.name for g in layout_graphs(labelled_program(), 0)} == {"small_forward"}
    (name,) = {g.name for g in layout_graphs(labelled_program("test"), 0)}
    assert len(name) == 32 and int(name, 16)


def test_kernels_with_a_choice_become_tile_graphs():
    labelled = labelled_program()
    graphs = list(tile_graphs(labelled, 5, 0, {}))
    # the convolution first, then by number of candidates; equal tables once
    assert [len(g.labels) for g in graphs] == [5, MAX_CANDIDATES, 9]
    for graph in graphs:
        features, labels = graph.arrays["config_feat"], graph.labels
        assert features.shape == (len(labels), 24) and labels.min() == graph.chosen == 100
        assert (graph.arrays["config_runtime_normalizers"] == 100).all()
        output = features[:, 8:16]
        assert np.array_equal(output[:, 0], labels - 99), "a row's tile and label belong together"
        assert np.array_equal(output[:, 6], 2 * output[:, 0])
        assert np.array_equal(output[:, 7], output[:, 0] ** 2)
        assert not features[:, 16:].any()
    assert graphs[0].arrays["config_feat"][0, :8].tolist() == [2, 3, 0, 0, 0, 0, 5, 6]
    assert not graphs[1].arrays["config_feat"][:, :8].any()


def test_kernels_are_counted_and_kept_apart_over_programs():
    seen = {}
    assert len(list(tile_graphs(labelled_program(), 2, 0, seen))) == 2
    assert [len(g.labels) for g in tile_graphs(labelled_program(), 5, 0, seen)] == [9]


@cases("splits", [("train", "test"), ("valid", "train"), ("valid", "test")])
def test_no_structure_of_a_kernel_is_in_two_splits(splits):
    """All kernels are isomorphic, with nodes in another order by program: the later split alone has them."""
    leaves = ("parameter", "constant"), ("constant", "parameter")
    programs = [labelled_program(split, leaves=order) for split, order in zip(splits, leaves, strict=True)]
    (first, *_), (second, *_) = (tile_graphs(program, 5, 0, {}) for program in programs)
    assert first.arrays["node_opcode"].tolist() != second.arrays["node_opcode"].tolist()
    assert isomorphic(first.arrays, second.arrays)
    graphs = sample.kernel_graphs(programs, 5, 0, {})
    assert {g.split for g in graphs} == {"test" if "test" in splits else "valid"}


@pytest.fixture
def compiles(monkeypatch):
    """A stub compiler of three programs, of which one fails; the number of its compiles by task."""
    asked = Counter()

    class Labeller:
        def __init__(self, cache, task=None, **limits):
            self.task = getattr(task, "__name__", "layout_label")

        def workers(self):
            return self

        def __enter__(self):
            return self.label

        def __exit__(self, *_):
            pass

        def label(self, modules, title=""):
            asked[self.task] += len(modules)
            return [getattr(self, self.task)(module) for module in modules]

        def program_before_layout(self, module):
            if module == b"bad":
                return {"failure": "refused", "message": "no"}
            module = base64.b64encode(rich_module().SerializeToString()).decode()
            return {"module": module, "layouts": {"dot.3": [[0, 1], [1, 0], [1, 0]]}}

        def tile_label(self, module):
            return tile_record()

        def layout_label(self, module):
            if len(module) % 7 == 0:
                return {"failure": "crashed", "message": "so it did"}
            return {"cycles": 1_000 + sum(module) % 997, "estimated": 3, "without_estimate": 1}

    monkeypatch.setattr(compiled, "is_installed", lambda: True)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0.0")
    monkeypatch.setattr(compiled, "Labeller", Labeller)
    monkeypatch.setattr(sample, "lower", lambda name: name)
    monkeypatch.setattr(SampleSettings, "zoo", lambda self: fake_zoo(self.size))
    return asked


def settings_in(folder, name="made", **more):
    """Settings of a sample whose labels and compiled values are in a folder, too."""
    return SampleSettings(out=f"{folder}/{name}", labels=str(folder), compiled=f"{folder}/compiled", **more)


def fake_zoo(size):
    families = {program.source: program.family for program in PROGRAMS.values()}
    return [
        SimpleNamespace(
            name=name, source=source, family=families[source], size=size, build=lambda code=code: (code,)
        )
        for name, source, code in (("one", "xla", b"1"), ("two", "nlp", b"2"), ("broken", "nlp", b"bad"))
    ]


def test_a_sample_is_made_and_made_again_without_the_compiler(compiles, tmp_path, monkeypatch):
    folder = make_sample(settings_in(tmp_path))
    assert compiles["program_before_layout"] == 3 and compiles["tile_label"] == 1, "the two are one module"
    # as many labels as wanted of two searches, and more for those that failed
    wanted = CONFIGURATIONS["small"]
    assert 2 * wanted < compiles["layout_label"] < 8 * wanted
    first = contents(folder)
    readme = (folder / "README.md").read_text()
    for said in ("broken (refused: no)", "libtpu: 1.0.0", "crashed", "25% of those", "SIZE=small"):
        assert said in readme
    assert "{" not in readme
    layouts = {name: content for name, content in first.items() if "/layout/" in name}
    other = make_sample(settings_in(tmp_path, "other", seed=1))
    assert layouts and all((other / name).read_bytes() != content for name, content in layouts.items())
    more = make_sample(settings_in(tmp_path, "more", size="more"))
    assert {name for name in contents(more) if name.endswith(".npz")} == layouts.keys()
    assert compiles["tile_label"] == 2, "of the first two runs"
    assert "### Tile kernels, by program\n\nnone\n" in (more / "README.md").read_text()
    monkeypatch.setattr(compiled, "is_installed", lambda: False)
    compiles.clear()
    again = contents(make_sample(settings_in(tmp_path, "again")))
    assert not compiles and {name: again[name] for name in again if "/layout/" in name} == layouts
    assert "libtpu: 1.0.0" in (tmp_path / "again" / "README.md").read_text()
    with pytest.raises(SettingsError, match="none gave a graph .*one: not tried: .* libtpu is not installed"):
        make_sample(settings_in(tmp_path, "v4", generation="v4"))
    assert not (tmp_path / "v4").exists()


def test_an_interrupted_run_goes_on_after_the_programs_that_are_done(compiles, tmp_path, monkeypatch, capsys):
    whole = contents(make_sample(settings_in(tmp_path / "whole")))
    monkeypatch.setattr(sample, "TOGETHER", 1)
    lowered = []

    def lower(name):
        lowered.append(name)
        if len(lowered) == 2:
            raise KeyboardInterrupt
        return name

    monkeypatch.setattr(sample, "lower", lower)
    settings = settings_in(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        make_sample(settings)
    capsys.readouterr()
    assert contents(make_sample(settings)) == whole
    assert lowered == [b"1", b"2", b"2", b"bad"]
    assert "1 of 3 programs were labelled before\n2 of 3 programs, 0 not" in capsys.readouterr().out

    lowered.extend("nothing")
    for path in (tmp_path / "cut" / "finished").iterdir():
        path.write_text(path.read_text()[:-50])
    again = contents(make_sample(settings))
    assert {**again, "README.md": whole["README.md"]} == whole, "it counts what this run has compiled"
    assert lowered[-3:] == [b"1", b"2", b"bad"] and "labelled again" in capsys.readouterr().out


def test_sizes_choose_programs_and_folders():
    small, large, more = (SampleSettings(size=size) for size in ("small", "large", "more"))
    assert [{p.size for p in settings.zoo()} for settings in (small, more, large)] == [
        {"small"},
        {"more"},
        {"small", "large"},
    ]
    assert [settings.folder.name for settings in (small, large, more)] == ["sample", "large", "more"]
    usual, longer = PROGRAMS["lstm_train_w64_d2_b16"], PROGRAMS[LONGER[0]]
    assert [settings.configurations(usual) for settings in (small, large, more)] == [24, 200, 24]
    assert [settings.configurations(longer) for settings in (small, large)] == [96, 200]


def test_programs_with_longer_searches_are_valid_and_test_ones_of_the_committed_sample():
    table = (SAMPLE / "README.md").read_text()
    for name in LONGER:
        assert PROGRAMS[name].size == "small" and split_of(PROGRAMS[name]) in (VALID, TEST)
        assert len(re.findall(rf"\| {name} \| \d+ \| \d+ \| 96 \|", table)) == len(SEARCHES)


def test_the_readme_of_the_committed_sample_is_the_generated_text():
    pattern = re.sub(r"\\{[^}]+\\}", ".*", re.escape(sample_readme._TEXT))
    committed = (SAMPLE / "README.md").read_text()
    assert re.fullmatch(pattern, committed, re.DOTALL)
    layouts = list((SAMPLE / "npz_all/npz/layout").rglob("*.npz"))
    rows = [line for line in committed.splitlines() if re.match(r"\| (xla|nlp):", line)]
    assert len(rows) == len(layouts)


def test_no_held_out_program_of_the_committed_sample_is_near_another_split():
    paths = {
        (split, program.path)
        for collection in COLLECTIONS
        if collection.kind == "layout"
        for split in SPLITS
        for program in list_programs(SAMPLE, collection, split)
    }
    split_of = np.array([split for split, _ in paths])
    shares = opcode_shares(np.load(path)["node_opcode"] for _, path in paths)
    apart = distance(shares, shares)[split_of[:, None] != split_of]
    assert apart.min() >= APART


def directed_graph(arrays):
    import networkx

    graph = networkx.DiGraph(arrays["edge_index"].tolist())
    graph.add_nodes_from((node, {"opcode": int(opcode)}) for node, opcode in enumerate(arrays["node_opcode"]))
    return graph


def isomorphic(first, second):
    """Whether networkx maps the nodes of one graph to the other's such that opcodes and edges agree."""
    import networkx

    return networkx.is_isomorphic(*map(directed_graph, (first, second)), node_match=dict.__eq__)


def test_no_kernel_of_the_committed_sample_is_isomorphic_to_one_of_another_split():
    alike = {}  # isomorphic kernels have the same counts
    for split in SPLITS:
        for program in list_programs(SAMPLE, get_collection("tile:xla"), split):
            with np.load(program.path) as archive:
                arrays = {key: archive[key] for key in ("node_opcode", "edge_index")}
            counts = *np.sort(arrays["node_opcode"]).tolist(), len(arrays["edge_index"])
            alike.setdefault(counts, []).append((split, arrays))
    pairs = [
        pair for kernels in alike.values() for pair in combinations(kernels, 2) if pair[0][0] != pair[1][0]
    ]
    assert len(pairs) > 5, "pairs that need the edges"
    assert not any(
        structure(first) == structure(second) or isomorphic(first, second)
        for (_, first), (_, second) in pairs
    )


@pytest.fixture
def own_versions():
    """Skip where JAX, or libtpu if it is installed, is not what the committed sample was made with."""
    pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")
    readme, versions = (SAMPLE / "README.md").read_text(), SampleSettings().versions()
    if any(f"{name}: {versions[name]}" not in readme for name in ("jax", "libtpu")):
        pytest.skip(f"the committed sample was made with other versions than {versions}")
    return versions


def test_a_program_of_the_committed_sample_is_made_again_from_what_is_kept(own_versions, tmp_path):
    paths = [p for p in (SAMPLE / "npz_all/npz/layout").rglob("*.npz") if "/random/train/" in str(p)]
    tiled = {path.stem[:-17] for path in (SAMPLE / "npz_all/npz/tile/xla/train").iterdir()}
    path = min((path for path in paths if path.stem in tiled), key=lambda path: path.stat().st_size)
    made = make_sample(SampleSettings(programs=path.stem, labels=str(tmp_path), out=str(tmp_path / "made")))
    files = {str(file.relative_to(made)): file for file in made.rglob("*.npz")}
    assert sum("/layout/" in name for name in files) == 2 and len(files) > 2, "and tile kernels"
    assert all(members(file) == members(SAMPLE / name) for name, file in files.items())


def test_the_compiler_says_again_what_is_kept(own_versions, tmp_path, monkeypatch):
    pytest.importorskip("libtpu", reason="libtpu, an optional requirement, is not installed")
    monkeypatch.setitem(CONFIGURATIONS, "small", 2)
    label_programs(settings_in(tmp_path, programs="perceptron_train_w96_d2_b48"))
    for name in compiled.MOST:
        folders = tmp_path / "compiled", find_data("data/compiled")
        said, kept = (compiled.read_values(folder / own_versions["libtpu"], name) for folder in folders)
        assert said and said.items() <= kept.items()
