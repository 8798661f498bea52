"""The benchmarks run, and the reference model is what its description says."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import extractor
import quality
from common import graph_files, measure
from fastslow.competition.catalog import get_collection
from fastslow.competition.metrics import kendall_tau
from fastslow.core.errors import DataError
from fastslow.core.settings import PROJECT
from fastslow.xla.graph_arrays import graph_arrays
from fastslow.xla.messages import ModuleTuningData
from fastslow.xla.reader import read_program
from helpers.random_graphs import make_graph
from reference import winner, winner_recipe

pytest.importorskip("torch_geometric", reason="pip install -r benchmarks/requirements.txt")
BENCHMARKS = PROJECT / "benchmarks"
CPU = torch.device("cpu")
DEFAULT, RANDOM = get_collection("layout:xla:default"), get_collection("layout:xla:random")


@pytest.fixture(scope="module")
def quick_runs():
    """Every script with --quick, side by side."""
    options = ["--quick", "--threads", "1"]
    settings = {
        "quality": [],
        "inference": ["--set", "gnn.hidden_channels=16"],
        "train_step": ["--set", "gnn.hidden_channels=16"],
    }
    running = {
        name: subprocess.Popen(
            [sys.executable, str(BENCHMARKS / f"{name}.py"), *options, *extra],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, extra in settings.items()
    }
    return {
        name: (*process.communicate(timeout=300), process.returncode) for name, process in running.items()
    }


def result_of(quick_runs, name: str) -> dict:
    output, errors, status = quick_runs[name]
    assert status == 0, output + errors
    return json.loads(output.splitlines()[-1])


def test_inference(quick_runs):
    result = result_of(quick_runs, "inference")
    file = result["files"][0]
    contenders = {"ours whole", "dense whole", "ours pruned", "dense pruned", "winner"}
    assert set(file["memory"]) == contenders < set(file["seconds"])
    assert all(seconds > 0 for seconds in file["seconds"].values())
    assert 0 < result["largest difference"] < 1e-5
    assert 0 < file["difference"]["in chunks"] < 1e-5
    assert file["nodes"]["whole"] > file["nodes"]["pruned"] > file["nodes"]["winner"]
    ratio = file["seconds"]["dense whole"] / file["seconds"]["ours whole"]
    assert result["total"]["ratios"]["dense whole / ours whole"]["all files"] == pytest.approx(
        ratio, rel=1e-3
    )


def test_train_step(quick_runs):
    result = result_of(quick_runs, "train_step")
    assert set(result["files"][0]["memory"]) == {"ours", "dense", "winner"}
    assert 0 < result["largest difference"]["score"] < 1e-5
    assert 0 < result["largest difference"]["gradient"] < 1e-4


def published_pair(folder, change=lambda arrays: None):
    """A made-up pair of a TpuGraphs protobuf and its npz, changed."""
    module = extractor.made_up_module(30)
    run = {"module_config": {"layout_config": {"nodes": [{}]}}, "profile": {"compute_time_ns": 5}}
    tuned = ModuleTuningData(module=module, fingerprint=1, runs=[run], config_index_to_node=[2])
    paths = folder / "made_up.pb", folder / "made_up.npz"
    paths[0].write_bytes(tuned.SerializeToString())
    arrays = graph_arrays(module) | read_program(paths[0]).runs
    change(arrays)
    np.savez(paths[1], **arrays)
    return ["--quick", "--pair", *map(str, paths)]


def test_extractor(tmp_path, capsys):
    assert extractor.main(published_pair(tmp_path)) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(result["equality"]["equal"].values())
    assert result["equality"]["columns"]["equal"] == 140
    assert result["equality"]["runs"] == {"protobuf": 1, "equal": 1, "npz": 1}
    assert result["equality"]["padding"]["told wrongly"] == 0
    assert result["speed"]["made up"]["nodes"] == pytest.approx(extractor.NODES[True], rel=0.02)
    assert result["speed"]["made up"]["nodes per second"] > 100


def test_extractor_says_what_differs(tmp_path, capsys):
    def change(arrays):
        arrays["node_feat"][3, 22] += 1
        arrays["config_runtime"] += 1

    assert extractor.main(published_pair(tmp_path, change)) == 1
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["equality"]["columns"]["unequal"] == ["shape_1"]
    assert result["equality"]["runs"]["equal"] == 0
    assert not result["equality"]["equal"].pop("node_feat") and all(result["equality"]["equal"].values())


def test_extractor_without_a_pair_measures_speed(capsys):
    assert extractor.main(["--quick", "--pair", "none.pb", "none.npz"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["equality"] is None


def test_quality(quick_runs):
    result = result_of(quick_runs, "quality")
    ours, equal_time, equal_steps = result["runs"]
    assert [run["contender"] for run in result["runs"]] == list(quality.CONTENDERS)
    programs = PROJECT / "data/sample/npz_all/npz/layout/xla/random"
    train, test = (len(list((programs / split).glob("*.npz"))) for split in ("train", "test"))
    assert equal_steps["steps"] == ours["steps"] == train  # one epoch, a graph a step
    assert equal_time["seconds"] < ours["seconds"] + 2  # at least one step is taken
    assert len(ours["test"]["per_graph"]) == test
    assert set(result["mean of collections by seed"]["ours"]) == {"valid", "test"}


def test_quality_finds_finished_runs(tmp_path, monkeypatch, capsys):
    options = quality.parse_arguments(["--quick", "--threads", "1"])
    quality.compare(options, tmp_path)
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    for name in ("train", "train_winner"):
        monkeypatch.setattr(quality, name, lambda *_, **__: pytest.fail("trained again"))
    quality.compare(options, tmp_path)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == first


def sample_graph(hops: int = winner.HOPS):
    return graph_files.load_graph(graph_files.program_of(graph_files.default_files(quick=True)[0]), hops)


def winner_inputs(graph) -> winner.WinnerInputs:
    return winner.WinnerInputs(graph, winner.standardisation([graph]), CPU)


STRUCTURE = (
    np.array([[0, 1], [2, 0], [3, 2], [4, 3], [1, 4]]),  # (consumer, operand)
    6,
    np.array([2, 5]),
    np.array([[[0, 0, 0], [1, 1, 1]], [[0, 0, 1], [1, 1, 1]], [[0, 0, 0], [1, 1, 1]]], np.uint8),
)


def test_pruning_keeps_edges_at_configurable_nodes():
    graph = make_graph(STRUCTURE)
    pruned = winner.winner_graph(graph)
    kept = [0, 2, 3, 5]  # 5 has no edge, but is configurable
    assert pruned.edge_index.tolist() == [[1, 0], [2, 1]]
    assert pruned.config_index.tolist() == [1, 3]
    np.testing.assert_array_equal(pruned.node_feat, graph.node_feat[kept])
    np.testing.assert_array_equal(pruned.node_opcode, graph.node_opcode[kept])


def test_first_of_equal_configurations_stays():
    graph = make_graph(STRUCTURE)
    assert winner_recipe.without_duplicates(graph).config_ids.tolist() == [0, 1]


def test_batch_holds_layouts_of_configurable_nodes_alone():
    graph = make_graph(STRUCTURE)
    inputs = winner_inputs(graph)
    batch = inputs.batch(np.array([1, 0]))
    assert batch.layout.shape == (2, 6, 18)
    for position, config in enumerate([1, 0]):
        for node in range(6):
            expected = np.full(18, -2)
            if node in graph.config_index:
                row = graph.config_index.tolist().index(node)
                expected = np.concatenate([graph.layouts[code] for code in graph.codes[config, row]])
            np.testing.assert_array_equal(batch.layout[position, node], expected + 2)
    np.testing.assert_allclose(inputs.numeric.mean(0), 0, atol=1e-5)


def test_messages_go_from_consumer_to_operand():
    graph = make_graph(STRUCTURE)
    adjacency = winner_inputs(graph).adjacency(2).to_dense()
    expected = torch.zeros(12, 12)
    for copy in range(2):
        for consumer, operand in graph.edge_index:
            expected[6 * copy + operand, 6 * copy + consumer] = 1
    assert torch.equal(adjacency, expected)


def test_sage_block_equals_its_formula():
    torch.manual_seed(0)
    graph = make_graph(STRUCTURE)
    block = winner.SageBlock(cross_config=False).eval()
    x = torch.randn(2, 6, 256)
    y = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    mean = torch.zeros_like(y)
    for node in range(6):
        consumers = graph.edge_index[graph.edge_index[:, 1] == node, 0]
        if len(consumers):
            mean[:, node] = y[:, consumers].mean(1)
    y = block.conv.lin_l(mean) + block.conv.lin_r(y)
    expected = torch.nn.functional.gelu(x + y * block.attention.gate(y))
    torch.testing.assert_close(block(x, winner_inputs(graph).adjacency(2)), expected, rtol=1e-4, atol=1e-5)


def test_cross_config_attention_is_a_softmax_over_configurations():
    attention = winner.Attention(16, cross_config=True)
    x = torch.randn(3, 4, 16)
    both = attention(x)
    y = x * attention.gate(x)
    weight = (y / 0.5).exp() / (y / 0.5).exp().sum(0)
    torch.testing.assert_close(both, torch.cat([y, y * weight], -1))


@pytest.mark.parametrize("collection", [DEFAULT, RANDOM], ids=lambda c: c.slug)
def test_network(collection):
    inputs = winner_inputs(winner.winner_graph(sample_graph()))
    network = winner_recipe.WinnerTraining(collection, 0, CPU).network
    cross = winner_recipe.is_default(collection)
    assert network.first.linear.in_features == 246
    assert network.first.linear.out_features == (128 if cross else 256)
    together = winner_recipe.predict(network, inputs, 32)
    assert together.shape == (inputs.graph.num_configs,)
    apart = winner_recipe.predict(network, inputs, 8)
    # only where configurations are compared does a score depend on those beside it
    assert np.allclose(together, apart, atol=1e-5) is not cross


def test_hinge_and_schedule():
    score, runtime = torch.randn(5), torch.tensor([3, 1, 1, 2, 5])
    pairs = [(i, j) for i in range(5) for j in range(5)]
    expected = sum(max(0, 1 - (score[i] - score[j])) for i, j in pairs if runtime[i] > runtime[j]) / 25
    torch.testing.assert_close(winner_recipe.hinge(score, runtime), expected)
    rates = [winner_recipe.schedule(done) for done in (0, 0.025, 0.05, 0.525, 1)]
    np.testing.assert_allclose(rates, [0, 0.5, 1, 0.5, 0], atol=1e-12)


def test_recipe_learns():
    graph = winner.winner_graph(sample_graph())
    # a label that layouts decide: what the first configurable node's output code is
    graph = replace(graph, runtime=1.0 + graph.codes[:, :, 0].sum(1))
    inputs = winner_inputs(graph)
    training = winner_recipe.WinnerTraining(RANDOM, 0, CPU)
    for _ in range(15):
        training.step(inputs, 0.1)
    assert kendall_tau(graph.runtime, training.scores({"g": inputs})["g"]) > 0.5


def test_a_path_must_name_its_collection(tmp_path):
    with pytest.raises(DataError, match="layout/SOURCE/SEARCH"):
        graph_files.program_of(tmp_path / "graph.npz")


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_peak_memory_is_that_of_the_call_alone():
    script = """
import numpy as np, torch
from common import measure
held = np.ones(2**24)  # 128 MB that are let go before the call must not count
del held
print(*measure.peak_bytes(lambda: np.ones(2**23).sum(), torch.device("cpu")))
"""
    run = subprocess.run([sys.executable, "-c", script], cwd=BENCHMARKS, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    above, process = map(int, run.stdout.split())
    assert 60 * 2**20 < above < 80 * 2**20
    assert process > above


def test_own_process(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text("import sys, json\nprint('text')\nprint(json.dumps(sys.argv[1:]))")
    monkeypatch.setattr(sys, "argv", ["script.py", "--threads", "1"])
    expected = ["--threads", "1", "--files", str(tmp_path / "a.npz"), "--memory-of", "winner"]
    assert measure.in_own_process(str(script), tmp_path / "a.npz", "winner") == expected
    script.write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match="exit status 3"):
        measure.in_own_process(str(script), tmp_path / "a.npz", "winner")


def test_table_is_markdown():
    rows = [{"a": 1, "b": "long cell"}, {"a": 22, "b": ""}]
    assert measure.table(rows).splitlines() == [
        "| a   | b         |",
        "| --- | --------- |",
        "| 1   | long cell |",
        "| 22  |           |",
    ]
