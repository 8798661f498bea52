"""A tuned function takes and returns what the function does, under jit too, and refuses all else by name."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fastslow.core.errors import DataError
from fastslow_programs.compiler import tuned as tuned_module
from fastslow_programs.compiler.layout_constraints import bind_differences
from fastslow_programs.compiler.layout_space import configurable_nodes
from fastslow_programs.compiler.lowering import draw_inputs, lower_function, options_of
from fastslow_programs.compiler.signature import CallError
from fastslow_programs.compiler.tuned import EXPORTED, SIGNATURE, TUNED, load_tuned, write_signature
from fastslow_programs.tuning.evaluators import serialised
from helpers.cases import cases
from helpers.four_devices import FOUR_DEVICES

jax = pytest.importorskip("jax")
from helpers.device_programs import example, failures, other_layouts, predict  # noqa: E402


@pytest.fixture(scope="module")
def program():
    """The program as it is lowered here."""
    return lower_function(predict, example())


@pytest.fixture
def tuned(program, tmp_path):
    """The program in other layouts, written and loaded again."""
    (tmp_path / TUNED).write_bytes(serialised(other_layouts(program)[1]))
    write_signature(tmp_path, program)
    return load_tuned(tmp_path)


def test_a_tuned_program_is_a_function_like_the_one_that_was_tuned(tuned):
    arguments = example()
    found, wanted = tuned(*arguments), predict(*arguments)
    assert found.keys() == wanted.keys()
    np.testing.assert_allclose(found["scores"], wanted["scores"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["sum"], wanted["sum"], rtol=1e-4)
    with pytest.raises(TypeError, match="was tuned"):
        tuned(arguments[0])


def test_a_tuned_program_lives_in_a_program_and_checks_every_leaf(tuned):
    arguments = example()
    inside = jax.jit(lambda *operands: tuned(*operands)["scores"] * 2)
    np.testing.assert_allclose(inside(*arguments), 2 * predict(*arguments)["scores"], rtol=1e-4, atol=1e-4)
    assert inside.lower(*arguments).as_text().count("@LayoutConstraint") == 3
    leaves, tree = jax.tree.flatten(arguments)
    for change in (lambda x: x.astype(np.int32), lambda x: x[None], lambda x: x[:1], lambda x: x.T):
        for number, leaf in enumerate(leaves):
            if change(leaf).shape != leaf.shape or change(leaf).dtype != leaf.dtype:
                others = jax.tree.unflatten(tree, [*leaves[:number], change(leaf), *leaves[number + 1 :]])
                with pytest.raises(TypeError, match=r"arguments\[.* but float32\[.*\] was tuned"):
                    tuned(*others)


def test_the_first_call_shows_a_line_only_where_it_compiles_for_seconds(tuned, capfd, monkeypatch):
    arguments = example()
    jax.jit(tuned)(*arguments)  # whose own compile is not this one's
    monkeypatch.setattr(tuned_module, "TICK_SECONDS", 0.0)
    tuned(*arguments)
    assert "compiling" in capfd.readouterr().err
    tuned(*arguments)
    assert capfd.readouterr().err == ""


def test_a_short_compile_shows_nothing(tuned, capfd):
    tuned(*example())
    assert capfd.readouterr().err == ""


def test_a_shape_without_values_is_refused(tuned):
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example())
    with pytest.raises(CallError, match=r"arguments\[0\].* is a shape without values: give an array"):
        tuned(*arguments)
    assert jax.eval_shape(tuned, *arguments).keys() == predict(*example()).keys()


def test_a_derivative_and_a_batch_say_what_to_tune_instead(tuned):
    arguments = example()
    for within in (tuned, jax.jit(tuned)):
        for derived in (
            jax.grad(lambda *given, within=within: within(*given)["scores"].sum()),
            lambda *given, within=within: jax.jvp(within, given, given),
            lambda *given, within=within: jax.vjp(within, *given),
            jax.jacfwd(within),
        ):
            with pytest.raises(CallError, match="no derivative: tune the function that computes it, such as"):
                derived(*arguments)
        with pytest.raises(CallError, match="no batching rule: tune the function that computes it, such as"):
            jax.vmap(within)(*jax.tree.map(lambda x: np.stack([x, x]), arguments))


def test_an_hlo_file_has_drawn_inputs_and_a_list_of_outputs(program, tmp_path):
    drawn = draw_inputs(program.module)
    assert [(v.shape, v.dtype) for v in drawn] == [(v.shape, v.dtype) for v in program.inputs]
    (tmp_path / TUNED).write_bytes(serialised(program.module))
    write_signature(tmp_path, type(program)(program.module, drawn))
    assert len(load_tuned(tmp_path)(*drawn)) == 2


class Pair(NamedTuple):
    """A tree of the user's."""

    weights: object
    bias: object


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    """Another one, with a fact that is no array."""

    weights: object
    slope: float = dataclasses.field(metadata={"static": True}, default=0.1)


def step(pair, image):
    """A training step, whose state has the types of its arguments."""
    return {"state": Pair(pair.weights - (image.T @ image), None), "loss": image.sum()}


def of_layer(layer, image):
    return Layer(image @ layer.weights, layer.slope)


def draw(key, image):
    return image @ jax.random.normal(key, (8, 4)), jax.random.split(key)


def repeated(image, weights, times):
    for _ in range(times):
        image = image @ weights
    return image


class Scaled:
    """An object that is a static argument of its jitted method."""

    weights = 2.0

    @partial(jax.jit, static_argnums=(0, 2))
    def repeated(self, image, times):
        """It is counted without the object, as it is called."""
        return repeated(image, self.weights * EIGHT, times)


def small_floats(image):
    return image.astype(np.float32) @ image.astype(np.float32).T, image.reshape(2, 2, 8)


IMAGE = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
EIGHT = jax.numpy.eye(8)
OF_USERS = {
    "a named tuple": (step, (Pair(EIGHT, None), IMAGE)),
    "a dataclass": (of_layer, (Layer(EIGHT, 0.3), IMAGE)),
    "a random key": (draw, (jax.random.key(3), IMAGE)),
    "static": (jax.jit(repeated, static_argnums=2), (IMAGE, EIGHT * 2, 3)),
    "a method": (Scaled().repeated, (IMAGE, 3)),
    "donated": (jax.jit(lambda x: x + 1.0, donate_argnums=0), (jax.numpy.ones(3),)),
    "options": (jax.jit(lambda x: x * 2, compiler_options={"xla_backend_optimization_level": 0}), (IMAGE,)),
    "float8": (small_floats, (jax.numpy.asarray(IMAGE, jax.numpy.float8_e4m3fn),)),
    "four bits": (lambda x, w: (x @ w.astype(x.dtype), w), (IMAGE, jax.numpy.eye(8, dtype="int4"))),
    "an argument that is not used": (lambda x, y: x + 1, (IMAGE, EIGHT)),
}


def test_values_of_four_bits_are_drawn_and_are_not_all_zero():
    shape = jax.ShapeDtypeStruct((64,), "int4")
    (drawn,) = lower_function(lambda x: x + 1, (shape,)).inputs
    assert drawn.dtype.name == "int4" and {*drawn.tolist()} == {*range(8)}


@cases("name", OF_USERS)
def test_functions_as_users_write_them_run_and_are_loaded_again(name, tmp_path):
    function, arguments = OF_USERS[name]
    wanted = function(*jax.tree.map(jax.numpy.copy, arguments) if name == "donated" else arguments)
    local = lower_function(function, arguments)
    assert failures(local, local.module) == [""]
    (tmp_path / TUNED).write_bytes(serialised(local.module))
    write_signature(tmp_path, local)
    found = load_tuned(tmp_path)(*arguments)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        one, other = (
            jax.random.key_data(leaf) if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
            for leaf in (one, other)
        )
        np.testing.assert_allclose(
            np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=1e-5, atol=1e-5
        )


def test_what_a_user_gives_otherwise_than_tuned_is_refused(tmp_path):
    for name, others, said in (
        ("a named tuple", ((EIGHT, None), IMAGE), r"arguments\[0\]\[0\] is float32.*but nothing was tuned"),
        (
            "a dataclass",
            (Layer(EIGHT, 0.4), IMAGE),
            r"Layer \(0.4,\) where the tuned function has Layer \(0.3",
        ),
        (
            "a random key",
            (np.zeros(2, np.uint32), IMAGE),
            r"arguments\[0\] is uint32\[2\], but random key threefry2x32\[\] was tuned",
        ),
        ("static", (IMAGE, EIGHT, 4), r"arguments\[2\] is 4, but 3 was tuned"),
    ):
        local = lower_function(*OF_USERS[name])
        (tmp_path / TUNED).write_bytes(serialised(local.module))
        write_signature(tmp_path, local)
        with pytest.raises(TypeError, match=said):
            load_tuned(tmp_path)(*others)
    (tmp_path / SIGNATURE).write_text('{"arguments": "ab", "results": "ab"}')
    with pytest.raises(DataError, match="older version.*Run fastslow tune again"):
        load_tuned(tmp_path)
    image, weights, _ = OF_USERS["static"][1]
    local = lower_function(*OF_USERS["static"])
    (tmp_path / TUNED).write_bytes(serialised(local.module))
    write_signature(tmp_path, local)
    assert load_tuned(tmp_path)(image, weights).shape == image.shape, "without what is static, as JAX has it"


def test_options_of_the_compiler_stay_with_the_module(tmp_path):
    function, arguments = OF_USERS["options"]
    local = lower_function(function, arguments)
    bound = bind_differences(local.module, {}, configurable_nodes(local.module))
    for module in (local.module, bound):
        assert options_of(module.SerializeToString()) == {"xla_backend_optimization_level": 0}
    wrong = jax.jit(lambda x: x * 2, compiler_options={"xla_no_such_option": 1})
    broken = lower_function(wrong, arguments).module
    assert failures(local, broken)[0].startswith("refused: ")
    (tmp_path / TUNED).write_bytes(serialised(local.module))
    write_signature(tmp_path, local)
    inside = jax.jit(lambda x: load_tuned(tmp_path)(x) + 1)  # which has options of its own
    np.testing.assert_allclose(inside(*arguments), 2 * IMAGE + 1)
    (tmp_path / TUNED).write_bytes(serialised(broken))  # as of another device
    write_signature(tmp_path, local)
    with pytest.raises(DataError, match="refuses .*xla_no_such_option.*Tune the function again"):
        load_tuned(tmp_path)


def test_a_function_that_calls_lapack_is_loaded(tmp_path):
    local = lower_function(jax.numpy.linalg.cholesky, (4 * EIGHT,))
    (tmp_path / TUNED).write_bytes(serialised(local.module))
    write_signature(tmp_path, local)
    np.testing.assert_allclose(load_tuned(tmp_path)(4 * EIGHT), np.linalg.cholesky(4 * EIGHT))


MESH = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from fastslow_programs.compiler.bench import LoadedProgram
from fastslow_programs.compiler.lowering import lower_function
from fastslow_programs.compiler.signature import CallError
from fastslow_programs.compiler.tuned import TUNED, load_tuned, write_signature
from fastslow_programs.tuning.evaluators import serialised
from helpers.device_programs import failures

mesh = Mesh(np.array(jax.devices()), ("d",))
rows, whole = NamedSharding(mesh, PartitionSpec("d", None)), NamedSharding(mesh, PartitionSpec())
grid = Mesh(np.array(jax.devices()[::-1]).reshape(2, 2), ("data", "model"))
tiles = NamedSharding(grid, PartitionSpec("data", "model"))
columns = NamedSharding(grid, PartitionSpec(None, "model"))
specs = PartitionSpec("data", "model"), PartitionSpec("model", None)
product = lambda x, w: jax.lax.psum(x @ w, "model")
part = jax.shard_map(product, mesh=grid, in_specs=specs, out_specs=PartitionSpec("data"))
image = np.arange(64, dtype=np.float32).reshape(8, 8)
split = jax.device_put(image, rows)
functions = {
    "of jit": (jax.jit(lambda x: (x @ x).sum(0), in_shardings=rows), image),
    "of an array": (lambda x: (x @ x).sum(0), split),
    "inside": (lambda x: jax.lax.with_sharding_constraint(x @ x, rows).sum(0), image),
    "of results": (jax.jit(lambda x: x @ x, in_shardings=whole, out_shardings=rows), image),
    "two axes": (jax.jit(lambda x: x @ x, in_shardings=tiles, out_shardings=columns), image),
    "two axes of an array": (lambda x: x @ x, jax.device_put(image, tiles)),
    "two axes inside": (lambda x: jax.lax.with_sharding_constraint(x @ x, tiles), image),
    "two axes of a function within": (lambda x: jax.jit(lambda y: y @ y, in_shardings=tiles)(x), image),
    "shard_map": (lambda x: part(x, x), image),
}
for name, (function, given) in functions.items():
    local = lower_function(function, (given,))
    on_grid = name.startswith("two axes") or name == "shard_map"
    assert local.devices == ((3, 2, 1, 0) if on_grid else (0, 1, 2, 3)), name
    loaded = LoadedProgram(local.module.SerializeToString(), local.devices)
    code = loaded._compiled.hlo_modules()[0].to_string()
    assert "all-reduce" in code or "all-gather" in code or name == "of results" or on_grid, (name, code)
    assert failures(local, local.module) == [""]
    folder = Path(sys.argv[1]) / name
    folder.mkdir()
    (folder / TUNED).write_bytes(serialised(local.module))
    write_signature(folder, local)
    tuned, wanted = load_tuned(folder), jax.jit(function)(given)
    within = jax.jit(lambda x: tuned(x) + 0)
    for result in (tuned(given), tuned(image), within(given), within(image)):
        np.testing.assert_allclose(result, wanted)
    assert tuned(given).sharding == wanted.sharding or not on_grid, name
    assert tuned(given).sharding.is_equivalent_to(wanted.sharding, wanted.ndim), name

reverse = Mesh(np.array(jax.devices()[::-1]), ("d",))
half = Mesh(np.array(jax.devices()[:2]), ("d",))
elsewhere = [jax.device_put(image, NamedSharding(other, PartitionSpec("d"))) for other in (reverse, half)]
elsewhere += [jax.device_put(image, jax.devices()[2])]
tuned = load_tuned(Path(sys.argv[1]) / "inside")

def require_error(said, call, *arguments):
    try:
        call(*arguments)
    except CallError as error:
        assert said in str(error), error
    else:
        raise AssertionError("no error")

for argument in elsewhere:
    np.testing.assert_allclose(tuned(argument), (image @ image).sum(0))
    repeat = lambda x: jax.lax.scan(lambda carry, _: (carry, tuned(carry)), x, None, length=2)
    for program in (jax.jit(tuned), repeat, jax.jit(lambda x: tuned(x * 2) + 1)):
        require_error("tuned for cpu 0, 1, 2, 3, and called within a program on cpu", program, argument)
require_error("with whole arrays", jax.pmap(tuned), np.stack([image] * 4))
mapped = jax.shard_map(tuned, mesh=mesh, in_specs=whole.spec, out_specs=whole.spec)
require_error("with whole arrays", mapped, image)
with jax.set_mesh(reverse):
    require_error("a mesh of cpu 3, 2, 1, 0: give that program arguments on these devices", tuned, image)
with jax.set_mesh(half):
    require_error("within a mesh of 2 devices: give that program arguments on these", tuned, image)
"""


def test_a_function_on_a_mesh_is_compiled_for_it_and_keeps_its_shardings(tmp_path):
    """In a process of its own, as the number of devices is set before JAX starts."""
    words = [sys.executable, "-c", MESH, str(tmp_path), str(Path(__file__).parents[1])]
    done = subprocess.run(words, env=os.environ | FOUR_DEVICES, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    with pytest.raises(DataError, match="was tuned for a mesh of 4 devices, here: 1.*Tune the function"):
        load_tuned(tmp_path / "of jit")


def test_a_folder_without_a_tuned_program_says_what_writes_it(tmp_path):
    remedy = "no such file. Run fastslow tune with evaluator=device, which writes it"
    with pytest.raises(DataError, match=f"{TUNED}: {remedy}"):
        load_tuned(tmp_path)
    (tmp_path / TUNED).write_bytes(b"as evaluator=compiler leaves it")
    with pytest.raises(DataError, match=f"{SIGNATURE}: {remedy}"):
        load_tuned(tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with all files of a tuned function on a mesh, of one device here, and their contents."""
    folder = tmp_path_factory.mktemp("kept")
    function, arguments = OF_USERS["a dataclass"]
    local = lower_function(function, arguments)
    shapes = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in local.inputs]
    exported = jax.export.export(jax.jit(lambda weights, image: [image @ weights]))(*shapes).serialize()
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    whole = dataclasses.replace(local, exported=bytes(exported), mesh=mesh)
    (folder / TUNED).write_bytes(serialised(local.module))
    write_signature(folder, whole)
    return folder, {path.name: path.read_bytes() for path in folder.iterdir()}, (whole, arguments)


def other_values(value, change):
    """Yield copies of a JSON value in which one value or key at any depth is another one."""
    yield from (change, None, 7, "x", [], {})
    parts = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        parts = enumerate(value)
    for key, part in list(parts):
        copy = value.copy()
        for other in other_values(part, change):
            copy[key] = other
            yield copy.copy()
        del copy[key]
        yield copy
    if isinstance(value, dict):
        yield value | {"more": 1}


def damages(name, content):
    """Yield damaged contents of a file."""
    yield from (b"", content[: len(content) // 2], content[:-3], b"\xff\xfe", b"[" * 100_000)
    for place in range(0, len(content), max(1, len(content) // 40)):
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    if name.endswith(".json"):
        yield from (json.dumps(other).encode() for other in other_values(json.loads(content), "other"))


def test_no_damage_to_a_file_of_a_study_gives_another_error_or_result(kept):
    folder, contents, (_, arguments) = kept
    right = of_layer(*arguments)
    for name, content in contents.items():
        for damaged in damages(name, content):
            (folder / name).write_bytes(damaged)
            try:
                result = load_tuned(folder)(*arguments)
            except DataError as error:
                assert f"/{name}: " in str(error) or name == SIGNATURE, error
                assert re.search("Run fastslow tune (again|with)", str(error)), error
            else:
                np.testing.assert_allclose(result.weights, right.weights, rtol=1e-5)
        (folder / name).unlink()
        with pytest.raises(DataError, match=f"{name}: no such file. Run fastslow tune"):
            load_tuned(folder)
        (folder / name).write_bytes(content)


def test_what_another_version_of_jax_wrote_is_refused_by_the_name_of_the_file(kept, tmp_path):
    _, contents, (whole, _) = kept
    (tmp_path / TUNED).write_bytes(contents[TUNED])
    for exported in (b"of another version", contents["best.jax_export"][:200]):
        write_signature(tmp_path, dataclasses.replace(whole, exported=exported))
        with pytest.raises(DataError, match="best.jax_export: JAX here does not read it .*Tune the function"):
            load_tuned(tmp_path)
    exported = jax.export.deserialize(bytearray(contents[EXPORTED]))
    elsewhere = dataclasses.replace(exported, platforms=("tpu",)).serialize()
    write_signature(tmp_path, dataclasses.replace(whole, exported=bytes(elsewhere)))
    with pytest.raises(DataError, match="was tuned for tpu, and this machine has cpu.*Tune the function"):
        load_tuned(tmp_path)
    older = {"arrays": {}, "result_static": {}}
    (tmp_path / SIGNATURE).write_text(json.dumps(older))
    with pytest.raises(DataError, match="older version.*Run fastslow tune again"):
        load_tuned(tmp_path)


def scaled(image, weights, times, *, scale, mode):
    """A function with static and keyword arguments."""
    for _ in range(times):
        image = image @ weights
    return image * scale if mode == "scaled" else image


def test_arguments_by_keyword_static_by_name_and_donated(tmp_path):
    function = jax.jit(
        scaled, static_argnums=2, static_argnames="mode", donate_argnums=0, donate_argnames="scale"
    )
    keywords = {"scale": np.float32(3.0), "mode": "scaled"}
    local = lower_function(function, (IMAGE, EIGHT, 2), keywords=keywords)
    (tmp_path / TUNED).write_bytes(serialised(local.module))
    write_signature(tmp_path, local)
    found = load_tuned(tmp_path)
    np.testing.assert_allclose(found(IMAGE, EIGHT, 2, **keywords), 3 * IMAGE)
    np.testing.assert_allclose(found(IMAGE, EIGHT, scale=np.float32(3.0)), 3 * IMAGE)
    np.testing.assert_allclose(found(weights=EIGHT, image=IMAGE, times=2, **keywords), 3 * IMAGE)
    np.testing.assert_allclose(found(IMAGE, weights=EIGHT, **keywords), 3 * IMAGE)
    for arguments, others, said in (
        ((IMAGE, EIGHT, 3), keywords, r"arguments\[2\] is 3, but 2 was tuned"),
        ((IMAGE, EIGHT, 2), keywords | {"mode": "no"}, r"keywords\['mode'\] is 'no', but 'scaled' was tuned"),
        ((IMAGE, EIGHT, 2), {"mode": "scaled"}, r"keywords\['scale'\] is missing, but float32\[\] was tuned"),
        (
            (IMAGE, EIGHT, 2),
            keywords | {"more": 1},
            r"keywords\['more'\] is int32\[\], but nothing was tuned",
        ),
    ):
        with pytest.raises(CallError, match=said):
            found(*arguments, **others)


def with_defaults(image, weights, times=1, *, mode="scaled"):
    """As :func:`scaled`, with Python's defaults of the static arguments."""
    return scaled(image, weights, times, scale=3.0, mode=mode)


@cases(
    ("times", "mode", "said"),
    [
        (1, "scaled", ""),
        (2, "scaled", r"^arguments\[2\] is 1 \(its default\), but 2 was tuned$"),
        (1, "plain", r"^keywords\['mode'\] is 'scaled' \(its default\), but 'plain' was tuned$"),
    ],
)
def test_a_static_argument_is_left_out_only_where_the_function_has_the_tuned_default(
    tmp_path, times, mode, said
):
    function = jax.jit(with_defaults, static_argnums=2, static_argnames="mode")
    local = lower_function(function, (IMAGE, EIGHT, times), keywords={"mode": mode})
    (tmp_path / TUNED).write_bytes(serialised(local.module))
    write_signature(tmp_path, local)
    loaded = load_tuned(tmp_path)
    whole = with_defaults(IMAGE, EIGHT, times, mode=mode)
    np.testing.assert_allclose(loaded(IMAGE, EIGHT, times, mode=mode), whole, rtol=1e-6)
    if not said:
        np.testing.assert_allclose(loaded(IMAGE, EIGHT), whole, rtol=1e-6)
        return
    with pytest.raises(CallError, match=said):
        loaded(IMAGE, EIGHT)
