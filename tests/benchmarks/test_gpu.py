"""The GPU's benchmark runs on a machine without one, with a message, and notices a network that differs."""

import json

import pytest
import torch

import gpu

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="what it does without a GPU")


def test_without_a_gpu_it_runs_the_smallest_size_and_says_so(capsys):
    assert gpu.main(["--only", "exactness", "large"]) == 0
    said = capsys.readouterr()
    assert "No GPU" in said.err
    parts = json.loads(said.out.splitlines()[-1])["parts"]
    assert [row["precision"] for row in parts["exactness"]] == ["float32"]
    assert all(row["seconds"] > 0 for row in parts["large"])


def test_a_network_that_differs_fails_the_benchmark(monkeypatch, capsys):
    answers = gpu._answers
    calls = iter(range(99))

    def shifted(one, name):
        prediction, gradient = answers(one, name)
        return prediction * (1 + 0.01 * (next(calls) % 2)), gradient

    monkeypatch.setattr(gpu, "_answers", shifted)
    assert gpu.main(["--only", "exactness"]) == 1
    assert "False" in capsys.readouterr().out
