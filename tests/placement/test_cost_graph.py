"""Cost graphs: from HLO and npz, checked, renumbered."""

import numpy as np
import pytest

from fastslow.core.errors import DataError
from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.messages import OpMetadata
from fastslow_placement.programs.cost_graph import build
from fastslow_placement.programs.fusion import contract, fuse, single_consumer_clusters
from fastslow_placement.programs.hlo_graph import graph_of_module
from fastslow_placement.programs.program_graph import graph_of_arrays, read_cost_graph
from fastslow_placement.programs.roofline import DEVICES, operator_flops
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph
from helpers.dot_module import add, rich_module, small_module

ZEROS = {name: [0.0] * 3 for name in ("seconds", "flops", "output_bytes", "parameter_bytes", "read_bytes")}


def three(edges, **changed):
    return build("a.hlo", "a", ["add"] * 3, [()] * 3, edges, **{**ZEROS, **changed})


@cases(
    "edges, changed, said",
    [
        ([(0, 1), (1, 2), (2, 1)], {}, r"a\.hlo: its edges form a cycle through 'add [12]'"),
        ([(0, 7)], {}, r"edge \[0, 7\] names no node"),
        ([], {"output_bytes": [0, -4, 0]}, "output_bytes of 'add 1' is -4"),
        ([], {"seconds": [0, 0, np.inf]}, "seconds of 'add 2' is inf"),
    ],
)
def test_what_is_wrong_with_a_graph_is_named(edges, changed, said):
    with pytest.raises(DataError, match=said):
        three(edges, **changed)


def test_nodes_are_renumbered_in_topological_order():
    graph = three([(2, 0), (0, 1), (2, 0)], seconds=[1, 2, 3], groups=[5, 5, 9])
    assert graph.seconds.tolist() == [3, 1, 2] and graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.groups.tolist() == [1, 0, 0] and graph.critical_path == 6


@cases("seed", range(5))
def test_upward_rank_is_the_longest_path(seed):
    graph = random_graph(seed)

    def longest(node):
        return graph.seconds[node] + max((longest(c) for c in graph.consumers[node]), default=0)

    assert graph.upward_rank.tolist() == [longest(node) for node in range(len(graph))]


def test_flops_of_operators():
    assert operator_flops("dot", (8, 3), [(8, 4), (4, 3)]) == 2 * 8 * 3 * 4
    assert operator_flops("dot", (5, 8, 3), [(5, 8, 4), (5, 4, 3)]) == pytest.approx(2 * 5 * 8 * 3 * 4)
    assert operator_flops("dot", (8, 3), [(4, 8), (4, 3)], contracted=4) == 2 * 8 * 3 * 4
    assert operator_flops("convolution", (2, 6, 6, 5), [(2, 6, 6, 3), (3, 3, 3, 5)]) == 2 * 2 * 36 * 5 * 27
    assert operator_flops("reduce", (3,), [(8, 3)]) == 24
    assert operator_flops("transpose", (3, 8), [(8, 3)]) == 0 and operator_flops("add", (3, 8), []) == 24


def test_hlo_becomes_operators_with_flops_bytes_and_parameters():
    graph = graph_of_module(small_module(2), "small", "small", DEVICE)
    assert graph.opcodes == ("dot", "reshape", "reshape", "dot", "reshape", "reshape", "tanh")
    assert graph.edges.tolist() == [[n, n + 1] for n in range(6)]
    assert graph.flops[0] == 2 * 8 * 4 * 4 and graph.output_bytes.tolist() == [128] * 7
    assert graph.parameter_bytes.tolist() == [128 + 64, 0, 0, 64, 0, 0, 0]
    assert graph.seconds[0] == DEVICE.seconds(256.0, 128 + 64 + 128.0)


def test_operators_keep_their_names():
    module = small_module(2)
    dot, reshape = (i for i in module.computations[0].instructions if i.name in ("dot.3", "reshape.4"))
    dot.metadata = OpMetadata(op_name="jit(f)/dense/dot_general").SerializeToString()
    reshape.metadata = b"\xff\xff no message"
    graph = graph_of_module(module, "small", "small", DEVICE)
    assert graph.names[:2] == ("dot.3 (jit(f)/dense/dot_general)", "reshape.4")
    clusters = contract(graph, DEVICE, of=np.array([0, 0, 0, 1, 1, 1, 1]))
    assert clusters.names == (graph.names[0], graph.names[3])


def loop_module(trips):
    """A while over (counter, matrix) with a dot in its body."""
    module = small_module(0)
    main = module.computations[0]
    del main.instructions[1:]
    condition, body = module.computations.add(name="cond", id=2), module.computations.add(name="body", id=3)
    state = add(condition, "parameter", ())
    counter = add(condition, "get-tuple-element", (), state, tuple_index=0)
    bound = add(condition, "constant", (), literal={"s32s": [trips]})
    condition.root_id = add(condition, "compare", (), counter, bound, comparison_direction="LT")
    state = add(body, "parameter", ())
    counter = add(body, "get-tuple-element", (), state, tuple_index=0)
    matrix = add(body, "get-tuple-element", (8, 4), state, tuple_index=1)
    weight = add(body, "constant", (4, 4))
    numbers = {"lhs_contracting": [1], "rhs_contracting": [0]}
    product = add(body, "dot", (8, 4), matrix, weight, dot=numbers)
    body.root_id = add(body, "tuple", (), counter, product)
    zero = add(main, "constant", ())
    both = add(main, "tuple", (), zero, 1)
    found = add(main, "while", (), both, called_computation_ids=[3, 2])
    last = add(main, "get-tuple-element", (8, 4), found, tuple_index=1)
    main.root_id = add(main, "tanh", (8, 4), last)
    return module


def test_a_short_loop_is_unrolled_and_a_long_one_is_one_operator():
    graph = graph_of_module(loop_module(3), "loop", "loop", DEVICE)
    assert graph.opcodes == ("dot", "dot", "dot", "tanh")
    assert graph.names[1:3] == tuple(f"{graph.names[0]} #{number}" for number in (2, 3))
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert graph_of_module(loop_module(32), "loop", "loop", DEVICE).opcodes == ("dot",) * 32 + ("tanh",)
    whole = graph_of_module(loop_module(33), "loop", "loop", DEVICE)
    assert whole.opcodes == ("while", "tanh") and whole.flops[0] == 11 * graph.flops[:3].sum()
    assert whole.seconds[0] == pytest.approx(11 * graph.seconds[:3].sum())


def test_cycles_of_the_compiler_are_the_time():
    module = small_module(1)
    module.computations[0].instructions[2].backend_config = b'{"window_config":{"estimated_cycles":"77"}}'
    graph = graph_of_module(module, "small", "small", DEVICES["tpu-v3"])
    assert graph.seconds[0] == 77 / 0.94e9


NO_ESTIMATES = [b"", b"null", b"[1]", b"{", b"\xff", b"[" * 10**5]
NO_ESTIMATES += [b'{kernel = "triton"}', b'{"window_config": null}']
NO_ESTIMATES += [
    b'{"window_config": {"estimated_cycles": %s}}' % value for value in (b'"x"', b"-5", b"NaN", b"true")
]


@cases("config", NO_ESTIMATES)
def test_what_another_compiler_notes_is_no_estimate(config):
    module = small_module(1)
    module.computations[0].instructions[2].backend_config = config
    graph = graph_of_module(module, "small", "small", DEVICE)
    plain = graph_of_module(small_module(1), "small", "small", DEVICE)
    assert np.array_equal(graph.seconds, plain.seconds)


def test_an_unknown_opcode_is_named_and_counts_as_element_wise(capsys):
    module = small_module(1)
    module.computations[0].instructions[2].opcode = "magic"
    graph = graph_of_module(module, "small.pb", "small", DEVICE)
    assert "small.pb: magic count as element-wise" in capsys.readouterr().err
    assert graph.opcodes[0] == "magic" and graph.flops[0] == 8 * 4


@cases("module", [small_module(3), rich_module()])
def test_a_competition_file_gives_the_graph_of_its_program(module, tmp_path):
    np.savez(tmp_path / "small.npz", **graph_arrays(module))
    from_file = read_cost_graph(tmp_path / "small.npz", DEVICE)
    direct = graph_of_arrays(graph_arrays(module), "x", "small", DEVICE)
    assert from_file.seconds.tolist() == direct.seconds.tolist()
    if len(module.computations) == 1:
        whole = graph_of_module(module, "x", "small", DEVICE)
        assert from_file.opcodes == whole.opcodes and from_file.edges.tolist() == whole.edges.tolist()
        assert from_file.flops.tolist() == whole.flops.tolist()
    else:
        assert from_file.uncounted_loops == 1, "a file of the competition has no trip counts"


@cases("name", ["small", "SMALL.NPZ", "small.npz.copy"])
def test_a_competition_file_is_known_by_its_content(name, tmp_path):
    """As rank and tune know it."""
    np.savez(tmp_path / "x.npz", **graph_arrays(small_module(3)))
    expected = read_cost_graph(tmp_path / "x.npz", DEVICE)
    renamed = (tmp_path / "x.npz").rename(tmp_path / name)
    assert read_cost_graph(renamed, DEVICE).seconds.tolist() == expected.seconds.tolist()


@cases("seed", range(8))
def test_contracting_keeps_work_and_never_makes_a_cycle(seed):
    graph = random_graph(seed, count=12)
    for of in (single_consumer_clusters(graph), np.array(fuse(graph, np.ones(12, int), DEVICE).of)):
        small = contract(graph, DEVICE, of)  # refuses a cycle
        assert len(small) == len(set(of.tolist()))
        assert small.flops.sum() == graph.flops.sum()
        assert small.parameter_bytes.sum() == graph.parameter_bytes.sum()
