"""JAX functions: their cost is that of their HLO, and they run in stages on several devices."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import fastslow
from fastslow.core import progress
from fastslow.core.artifacts import read_manifest, write_manifest
from fastslow.core.errors import DataError, FastslowError, SettingsError
from fastslow.hlo.messages import Module
from fastslow_placement import place
from fastslow_placement.jax_program import JaxProgram
from fastslow_placement.programs.fusion import contract
from fastslow_placement.programs.hlo_graph import graph_of_module
from fastslow_placement.programs.roofline import DEVICES
from fastslow_placement.programs.schedule import Scheduler
from fastslow_placement.staged import stage_numbers
from fastslow_programs.compiler.tracing import Call
from fastslow_programs.program.torch_module import as_jax
from fastslow_programs.tuning import target
from helpers.cases import cases
from helpers.cost_graphs import DEVICE, random_graph
from helpers.four_devices import FOUR_DEVICES

jax = pytest.importorskip("jax")
from helpers.jax_functions import arguments, loops, network  # noqa: E402

pytestmark = pytest.mark.usefixtures("undrawn")
RUN = """
import sys, jax, numpy as np, fastslow
sys.path.insert(0, sys.argv[2])
from helpers import jax_functions as model
from fastslow.core import figures
from helpers.cost_graphs import drawn
from helpers.undrawn import one_pixel
from fastslow_placement.staged import Staged

figures._raster, figures._lay_out = one_pixel, lambda figure: None

rng = np.random.default_rng(0)
for function in (model.network, model.loops):
    given = model.arguments()
    wanted = jax.jit(function)(*given)
    placed = fastslow.place(function, *given, devices=4, search=20, out=sys.argv[1])
    problem = placed.problem
    own = Staged(placed.program, problem, drawn(problem, 1, rng)[0])
    stored = fastslow.load_placed(f"{sys.argv[1]}/{function.__name__}-placement-4", function, *given)
    assert repr(stored) == repr(placed.staged()) and len(jax.devices()) == 4
    for staged in (stored, placed.staged("one device"), own):
        for found in (staged(*given), staged(*given)):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, wanted)
            assert jax.tree.structure(found) == jax.tree.structure(wanted)
    used = {device for leaf in jax.tree.leaves(own(*given)) for device in leaf.devices()}
    assert len(used) > 1 and len({stage.device for stage in own.stages}) > 2
    order = {value: number for number, stage in enumerate(own.stages) for value in stage.outputs}
    assert all(order.get(value, -1) < n for n, stage in enumerate(own.stages) for value in stage.inputs)
fastslow.place(f"{model.__file__}:make", search=0, out=sys.argv[1])
print(len(fastslow.load_placed(f"{sys.argv[1]}/jax_functions-make-placement-4").stages))
"""


def test_placed_functions_run_on_four_devices_as_on_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", FOUR_DEVICES["XLA_FLAGS"])
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    words = [sys.executable, "-c", RUN, str(tmp_path), str(Path(__file__).parents[1])]
    found = subprocess.run(words, capture_output=True, text=True)
    assert found.returncode == 0 and int(found.stdout) >= 1, found.stderr


def slopes(weights, x):
    return jax.grad(lambda layers: jax.nn.softmax(jax.nn.relu(x @ layers[0]) @ layers[1]).sum())(
        weights["layers"][0]
    )


def normalised(weights, x):
    """The axis of a batch has a name, as equinox's BatchNorm wants it."""
    centred = jax.vmap(lambda row: row - jax.lax.pmean(row, "batch"), axis_name="batch")(x)
    return slopes(weights, centred)


def graphs_of(function, *given):
    """The cost graphs of a function, and of its HLO."""
    name, device = function.__name__, DEVICES["h100"]
    hlo = jax.jit(function).trace(*given).lower().compiler_ir("hlo")
    module = Module.FromString(hlo.as_serialized_hlo_module_proto())
    graph, nodes = JaxProgram(function, given, name).graph(device)
    assert len(nodes) == len(graph)
    return graph, graph_of_module(module, name, name, device)


@cases("function, most", [(slopes, 1e-6), (normalised, 1e-6), (network, 0.15), (loops, 10.0)])
def test_the_cost_of_a_function_is_that_of_its_hlo(function, most):
    """Of tiny operators, of which HLO has more for rematerialised parts and random numbers (ten times)."""
    graph, hlo_graph = graphs_of(function, *arguments())
    wanted, found = (contract(one, DEVICES["h100"]) for one in (hlo_graph, graph))
    assert len(graph) == len({*graph.names})
    dots = [sorted(g.flops[[opcode == "dot" for opcode in g.opcodes]]) for g in (graph, hlo_graph)]
    assert dots[0] == dots[1] and len(dots[0]) > 2
    assert wanted.seconds.sum() == pytest.approx(found.seconds.sum(), rel=most)


def looped(condition, body, *start):
    """A function of a matrix, which a loop squares in each round."""
    return lambda x: jax.lax.while_loop(
        lambda s: condition(*s), lambda s: (s[0] @ s[0], *body(*s[1:])), (x, *start)
    )


KNOWN = looped(lambda x, i: i < 70, lambda i: (i + 1,), 0)
UNKNOWN = looped(lambda x: x.sum() < 70, lambda: ())


@cases(
    "function, rounds, uncounted",
    [
        (KNOWN, 70, 0),
        (looped(lambda x, i: i < 70, lambda i: (2 + i,), 4), 33, 0),
        (looped(lambda x, i, n: i < n, lambda i, n: (i + 1, n), 0, 70), 70, 0),
        (looped(lambda x, i, n: i < n, lambda i, n: (i + 1, n - 1), 0, 70), 1, 1),
        (looped(lambda x, i: i > 0, lambda i: (i - 1,), 70), 1, 1),
        (UNKNOWN, 1, 1),
        (lambda x: jax.lax.scan(lambda s, _: (KNOWN(s)[0], None), x, None, length=40), 2800, 0),
        (lambda x: UNKNOWN(KNOWN(UNKNOWN(x)[0])[0]), 72, 2),
        (lambda x: jax.lax.fori_loop(0, 3, lambda i, s: UNKNOWN(s)[0], x), 3, 1),
    ],
)
def test_a_loop_counts_as_often_as_in_its_hlo(function, rounds, uncounted):
    for graph in graphs_of(function, jax.numpy.eye(8)):
        assert graph.flops.sum() == pytest.approx(rounds * 2 * 8**3, rel=0.15)
        assert graph.uncounted_loops == uncounted


def test_loops_that_count_once_are_said():
    text = str(fastslow.place(UNKNOWN, np.eye(8), devices=1, search=0))
    assert "\n1 loop has no known count; it is counted once.\n" in text
    twice = fastslow.place(lambda x: UNKNOWN(UNKNOWN(x)[0]), np.eye(8), task="fusion", search=0)
    assert "2 loops have no known count; each is counted once." in twice.words()
    assert "count" not in str(fastslow.place(KNOWN, np.eye(8), devices=1, search=0))


@cases("seed", range(20))
def test_stages_are_runs_of_a_device_that_send_at_their_end(seed):
    graph, rng = random_graph(seed, 14, 0.2), np.random.default_rng(seed)
    timeline = Scheduler(graph, 3, DEVICE).run(rng.integers(0, 3, 14))
    stage, place = stage_numbers(timeline, graph), timeline.placement
    last = {stage[node]: node for node in timeline.order}
    for producer, consumer in graph.edges:
        far = place[producer] != place[consumer]
        assert stage[producer] < stage[consumer] or not far and stage[producer] == stage[consumer]
        assert not far or last[stage[producer]] == producer
    assert all(len({*place[stage == number]}) == 1 for number in stage)


def test_what_cannot_be_placed_or_run_is_refused_with_the_remedy(tmp_path):
    weights, x = arguments()
    for function, given, said in (
        (lambda x: jax.debug.print("{}", x) or x + 1, (x,), "calls Python while it runs .*Leave jax.debug"),
        (lambda x: x, (x,), "holds no operator that takes time"),
    ):
        with pytest.raises(FastslowError, match=said):
            fastslow.place(function, *given)
    with pytest.raises(SettingsError, match="source: <lambda> cannot be traced .*static_argnums"):
        fastslow.place(lambda x: 1 if x > 0 else 2, 1.0)
    placed = fastslow.place(network, weights, x, devices=3, search=0, out=tmp_path)
    staged = placed.staged()
    with pytest.raises(SettingsError, match="devices: 1 are here, 3 wanted.*XLA_FLAGS"):
        staged(weights, x, devices=jax.devices()[:1])
    three = jax.devices()[:1] * 3
    for given, said in (
        ((weights,), r"\[1\] is missing, but"),
        ((weights, x[0]), r"\[1\] is .* was placed"),
        ((weights | {"none": ()}, x), r"structure: .* where the placed function has "),
    ):
        with pytest.raises(TypeError, match=said):
            staged(*given, devices=three)
    with pytest.raises(TypeError, match="runs on its own: place the function that jax.jit"):
        jax.grad(lambda x: staged(weights, x, devices=three)["loss"])(x)
    with pytest.raises(SettingsError, match="method: 'best' is none of one device, human"):
        placed.staged("best")
    with pytest.raises(SettingsError, match="cannot run; give a JAX function"):
        fastslow.place("zoo:inception_b32", devices=2, search=0).staged()
    with pytest.raises(DataError, match="whose operators and shapes differ"):
        fastslow.load_placed(tmp_path / "network-placement-3", loops, weights, x)
    folder = tmp_path / "network-placement-3"
    made = {name: value for name, value in read_manifest(folder).items() if name != "checksum"}
    write_manifest(folder, made | {"settings": made["settings"] | {"updates": 180}})
    with pytest.raises(DataError, match="another version of fastslow .updates: no such.* Place it again"):
        fastslow.load_placed(folder, network, weights, x)
    with pytest.raises(SettingsError, match="arguments: 1 given"):
        fastslow.place("zoo:inception_b32", 3)


def test_static_and_keyword_arguments_of_a_placed_function():
    def power(x, times, *, scale):
        for _ in range(times):
            x = x @ x
        return x * scale

    matrix = np.eye(8, dtype=np.float32)
    function = jax.jit(power, static_argnums=1, donate_argnums=0)
    staged = fastslow.place(function, matrix, 2, keywords={"scale": 3.0}, devices=1, search=0).staged()
    np.testing.assert_allclose(staged(matrix, 2, scale=3.0), 3 * matrix)
    with pytest.raises(TypeError, match=r"arguments\[1\] is 3, but 2 was placed"):
        staged(matrix, 3, scale=3.0)


def test_a_module_of_torch_is_placed_and_loaded_as_the_other_functions_take_it(tmp_path):
    pytest.importorskip("torchax")
    module = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.LayerNorm(3))
    x = torch.linspace(-1, 1, 12).reshape(2, 6)
    placed = fastslow.place(module, x, devices=1, search=0, out=tmp_path)
    loaded = place.load_placed(tmp_path / "Sequential-placement-1", module, x)
    for staged in (placed.staged(), loaded):
        (result,) = staged(*as_jax(Call(module, (x,))).arguments)
        np.testing.assert_allclose(result, module(x).detach(), rtol=1e-5, atol=1e-6)


def test_a_search_and_a_trace_that_take_long_show_a_line(monkeypatch, capsys):
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.02)
    anneal = place.anneal_regions
    monkeypatch.setattr(place, "anneal_regions", lambda *given: time.sleep(0.1) or anneal(*given))
    monkeypatch.setattr(target, "lower_function", lambda *_: time.sleep(0.1) or 1 / 0)
    fastslow.place(lambda x: x @ x, np.eye(8), devices=2, search=20)
    assert "annealing of regions:   0%" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        fastslow.measure(lambda x: x @ x, np.eye(8))
    assert "tracing:   0%" in capsys.readouterr().err
