"""Nothing that is read is executed, and credentials are shown nowhere."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastslow
from fastslow import cli
from fastslow.core.errors import DataError
from fastslow.kaggle.api_process import CallError
from helpers.cases import cases
from helpers.competition_files import ROOT

TOKEN = "KGAT_0123456789abcdef0123456789abcdef"
SOURCES = sorted(Path(fastslow.__file__).parents[1].rglob("*.py"))
EXECUTE = {"eval", "exec", "system", "popen", "read_pickle", "Unpickler", "loads_pickle", "execfile"}
UNSAFE = {"allow_pickle": True, "weights_only": False, "shell": True}


def calls(path):
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def test_no_module_executes_what_it_reads():
    for path in SOURCES:
        check_module(path)


def check_module(path):
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    imported = {name.split(".")[0] for name in names}
    if path.parent.name != "cluster":  # it sends our own objects to our own workers, and reads no folder
        assert not imported & {"pickle", "dill", "cloudpickle", "marshal", "shelve", "yaml"}, path
    for call in calls(path):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        is_method = isinstance(call.func, ast.Attribute)
        assert name not in EXECUTE or (is_method and name in ("eval",)), (
            f"{path}: {name} in line {call.lineno}"
        )
        given = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
        for option, value in UNSAFE.items():
            assert given.get(option) is not value, f"{path}: {option}={value} in line {call.lineno}"
        if name == "load" and is_method and ast.unparse(call.func) in ("np.load", "numpy.load", "torch.load"):
            option = {"np.load": "allow_pickle", "torch.load": "weights_only"}[ast.unparse(call.func)]
            assert option in given, f"{path}: no {option} in line {call.lineno}"


def test_credentials_are_read_in_one_package_alone():
    readers = {
        path.parent.name for path in SOURCES if re.search(r"KAGGLE_(API_TOKEN|KEY)\W", path.read_text())
    }
    assert readers <= {"kaggle", "workflow"}  # a remedy names the variable


@pytest.fixture
def token(tmp_path, monkeypatch):
    """A fake token in every place where Kaggle's may be."""
    home = tmp_path / "home"
    (home / ".kaggle").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    monkeypatch.setenv("KAGGLE_USERNAME", "me")
    monkeypatch.setenv("KAGGLE_KEY", TOKEN[::-1])
    (home / ".kaggle" / "access_token").write_text(TOKEN.lower())
    (home / ".kaggle" / "kaggle.json").write_text(f'{{"username": "me", "key": "{TOKEN}x"}}')
    return (TOKEN, TOKEN[::-1], TOKEN.lower())


LEAKS = [
    "{token}",
    "Authorization: Bearer {token}",
    "authorization='Basic {token}'",
    "https://user:{token}@host/path",
    "http://{token}@host:80/",
    "https://host/path?token={token}&x=1",
    "ProxyError(http://me:{token}@proxy:8080)",
    "HTTPSConnectionPool(host='h'): Max retries exceeded with url: /x?key={token}",
]


@pytest.mark.parametrize("text", LEAKS)
def test_an_error_that_holds_a_token_is_printed_without_it(token, capsys, monkeypatch, text):
    for secret in token:
        said = text.format(token=secret)

        def fail(_, said=said):
            raise DataError(said, said, said)

        monkeypatch.setattr(
            cli, "_load", lambda name, fail=fail, real=cli._load: real(name) if ":run" not in name else fail
        )
        assert cli.main(["features", "data=x"]) == 1
        out, err = capsys.readouterr()
        assert err.startswith("error: ") and secret not in out + err
        assert secret not in str(CallError("other", said))


def test_no_process_of_ours_writes_its_environment(token, tmp_path):
    """A command with a token in the environment fails, and leaves it neither in its output nor on disk.

    Three commands start, which takes seconds.
    """
    environment = {**os.environ, "FASTSLOW_HOME": str(tmp_path / "work"), "OMP_NUM_THREADS": "1"}
    for words in (["features", "data=/nowhere"], ["compare", "a", "b"], ["submit", "jobs=-1"]):
        done = subprocess.run(
            [sys.executable, "-m", "fastslow", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1 and "Traceback" not in done.stderr
        files = [path for path in (tmp_path / "work").rglob("*") if path.is_file()]
        shown = done.stdout + done.stderr + "".join(path.read_text(errors="replace") for path in files)
        assert not any(secret in shown for secret in token)


@cases(
    "does, line",
    [
        ("exit 0", "pip-audit: no known vulnerabilities"),
        ("echo 'ConnectionError: no route'; exit 1", "pip-audit: not checked, .*: ConnectionError: no route"),
        ("echo 'No module named pip_audit'; exit 1", "pip-audit: not checked, .*No module named pip_audit"),
        (
            "echo 'Found 1 known vulnerability in 1 package'; exit 1",
            "pip-audit: Found 1 known vulnerability .*",
        ),
    ],
)
def test_the_audit_reports_in_one_line_and_never_fails(tmp_path, does, line):
    stub = tmp_path / "python"
    stub.write_text(f"#!/bin/sh\n{does}\n")
    stub.chmod(0o755)
    done = subprocess.run([ROOT / ".ci" / "audit", stub], capture_output=True, text=True)
    assert done.returncode == 0 and re.fullmatch(line, done.stdout.strip())
