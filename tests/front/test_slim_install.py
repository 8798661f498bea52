"""`pip install fastslow` brings rank, tune and convert, without Jupyter, papermill and kaggle."""

import re
import subprocess
import sys
import tomllib

from fastslow.core.settings import PROJECT

BLOCKED = """
import sys
JUPYTER = "IPython ipykernel jupyter_client jupyter_core nbclient nbformat papermill traitlets"
OTHERS = "kaggle requests tabulate"
sys.modules.update(dict.fromkeys([*JUPYTER.split(), *OTHERS.split()]))
from fastslow.cli import COMMANDS, _load, main
wanted = [own for name, own in COMMANDS.items() if name != "data" and not own.repository]
assert all((_load(own.settings), _load(own.run)) for own in wanted)
sys.exit(10 * main(["convert", sys.argv[1], f"data_root={sys.argv[2]}"]) + main(["data"]))
"""


def test_a_program_is_converted_and_what_the_rest_needs_is_named(tmp_path):
    source = tmp_path / "dot.hlo"
    source.write_text(
        "HloModule m\nENTRY e { a = f32[8,4] parameter(0) b = f32[4,2] parameter(1)\n"
        " ROOT c = f32[8,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
    )
    command = [sys.executable, "-c", BLOCKED, str(source), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "nodes" in done.stdout and "Traceback" not in done.stderr, done.stderr
    assert "is not installed: type pip install 'fastslow[notebooks,kaggle]'" in done.stderr


def test_make_installs_the_library_and_both_extras():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = re.findall(r"^\w.*$", (PROJECT / "requirements.txt").read_text(), re.M)
    assert sorted(lines) == sorted(project["dependencies"] + extras["notebooks"] + extras["kaggle"])
