"""Programs for several devices are compiled for their mesh, or refused by name at every other door."""

import os
import subprocess
import sys

import pytest

import fastslow
from fastslow.core.errors import DataError
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
settings = {"options": "auto", "evaluations": 7, "batch": 2, "name": "sharded"}
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


@cases("sharding", ["replicated", "maximal device=0"])
def test_hlo_for_one_device_that_names_it_is_read(tmp_path, sharding):
    text = FORMS["a header"][0].replace("=4", "=1, replica_count=1").format(f", sharding={{{sharding}}}")
    (tmp_path / "one.hlo").write_text(text)
    assert len(fastslow.convert(tmp_path / "one.hlo", configs=2).table) == 1


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
