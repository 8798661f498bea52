"""Programs for several devices are compiled for their mesh, or refused by name at every other door."""

import gzip
import os
import subprocess
import sys

import pytest

import fastslow
from fastslow.core.errors import DataError
from fastslow.hlo import forms
from helpers.cases import cases
from helpers.four_devices import FOUR_DEVICES

pytest.importorskip("jax", reason="jax, an optional requirement, is not installed")

BODY = """
  x = f32[8,8] parameter(0){0}
  ROOT d = f32[8,8] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
FORMS = {
    "a split parameter": (
        "HloModule m\n\nENTRY e {{" + BODY,
        ", sharding={devices=[4,1]<=[4]}",
        "sharding of x",
    ),
    "a header": ("HloModule m, num_partitions=4\n\nENTRY e {{" + BODY, "", "num_partitions=4"),
    "replicas": ("HloModule m, replica_count=4\n\nENTRY e {{" + BODY, "", "replica_count=4"),
    "another device": ("HloModule m\n\nENTRY e {{" + BODY, ", sharding={maximal device=7}", "sharding of x"),
    "a mesh of Shardy": (
        'HloModule m, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["d"=4]>}}}}\n\nENTRY e {{'
        + BODY,
        "",
        'the mesh "d"=4',
    ),
}
FUNCTION = """
import sys
import jax, numpy as np, fastslow
from jax.sharding import Mesh, NamedSharding, PartitionSpec
rows = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), PartitionSpec("d", None))
image = np.ones((8, 8), np.float32)
function = jax.jit(lambda x: (x @ x).sum(0), in_shardings=rows)
for door in (
    lambda: fastslow.tune(function, image, evaluator="device", models="none"),
    lambda: fastslow.measure(function, image),
    lambda: fastslow.rank(function, image),
):
    try:
        door()
    except Exception as error:
        print(type(error).__name__, error)
settings = {"options": "auto", "evaluations": 2, "confirm": 0, "models": "none", "name": "sharded"}
tuned = fastslow.tune(function, image, out=sys.argv[1], **settings)
loaded = fastslow.load_tuned(f"{sys.argv[1]}/tuned/sharded")
elsewhere = jax.device_put(image, jax.devices()[2])
called = [call(elsewhere).sum() for call in (loaded, jax.checkpoint(loaded))]
print(float(loaded(image).sum()), *map(float, called), tuned.table["failure"].any())
"""


@cases("name", FORMS)
@cases("door", ["rank", "measure", "tune"])
def test_hlo_for_several_devices_is_refused_by_name(tmp_path, name, door):
    text, sharding, said = FORMS[name]
    (tmp_path / "sharded.hlo").write_text(text.format(sharding))
    settings = {"evaluator": "device", "models": "none"} if door == "tune" else {}
    with pytest.raises(DataError, match=rf"a program for several devices \({said}.*\)\. Name the function"):
        getattr(fastslow, door)(tmp_path / "sharded.hlo", **settings)


def test_a_packed_text_and_a_dump_for_several_devices_are_refused(tmp_path):
    text = FORMS["a header"][0].format("")
    (tmp_path / "packed.hlo.gz").write_bytes(gzip.compress(text.encode()))
    one = forms.to_hlo(text.replace(", num_partitions=4", ""))
    (tmp_path / "dump.pb").write_bytes(
        one + b"\x7a\x0e\x08\x01\x10\x02" + b"\x1a\x03\n\x01\0\x1a\x03\n\x01\1"
    )  # device_assignment
    for name, said in (("packed.hlo.gz", "num_partitions=4"), ("dump.pb", "1 x 2 devices assigned")):
        with pytest.raises(DataError, match=rf"a program for several devices \({said}\)"):
            fastslow.convert(tmp_path / name, configs=2)


def test_each_module_of_a_text_has_its_header(tmp_path):
    (tmp_path / "two.hlo").write_text(
        FORMS["a header"][0].format("") + FORMS["a split parameter"][0].replace(" m", " n").format("")
    )
    assert len(fastslow.convert(tmp_path / "two.hlo", kernel="n", configs=2).table) == 1
    with pytest.raises(DataError, match="num_partitions=4"):
        fastslow.convert(tmp_path / "two.hlo", kernel="m", configs=2)


@cases("sharding", ["replicated", "maximal device=0", "devices=[1,1]<=[1]"])
def test_hlo_for_one_device_that_names_it_is_read(tmp_path, sharding):
    text = FORMS["a header"][0].replace("=4", "=1, replica_count=1").format(f", sharding={{{sharding}}}")
    (tmp_path / "one.hlo").write_text(text)
    assert len(fastslow.convert(tmp_path / "one.hlo", configs=2).table) == 1


def test_tuples_on_the_first_device_are_read(tmp_path):
    """JAX writes such shardings for results on a mesh of one device, and for callbacks."""
    text = (
        FORMS["a split parameter"][0]
        .format("")
        .replace("ROOT d", "d")
        .replace(
            "\n}",
            """
  ROOT t = (f32[8,8], f32[8,8]) tuple(d, x), sharding={{replicated}, {maximal device=0}}\n}""",
        )
    )
    (tmp_path / "tuple.hlo").write_text(text)
    assert len(fastslow.convert(tmp_path / "tuple.hlo", configs=2).table) == 1


def test_a_sharded_function_has_its_options_searched_and_all_else_refused(tmp_path):
    pytest.importorskip("libtpu", reason="the compiler, an optional requirement, is not installed")
    words = [sys.executable, "-c", FUNCTION, str(tmp_path)]
    done = subprocess.run(words, env=os.environ | FOUR_DEVICES, capture_output=True, text=True)
    tune, measure, rank, result = done.stdout.splitlines()
    for said in (tune, measure):
        assert "SettingsError source: layouts of a program for a mesh of 4 devices cannot be measured" in said
        assert "search options of the compiler (options=auto)" in said
    assert "SettingsError source: the program is for a mesh of 4 devices" in rank
    assert result == "512.0 512.0 512.0 False"
