"""Bytes, FLOPs and bounds of operations are those that a hand counts."""

import pytest
import torch

from common.operations import Cost, Machine, Operations
from common.options import add_model_options, make_parser, our_settings
from fastslow.steps.network_settings import TrainSettings
from train_step_operations import begin_training, rows_of

MACHINE = Machine(bandwidth=1e9, flops={torch.float32: 1e10, torch.float64: 5e9})


def test_forward_and_backward_pass_are_counted():
    x = torch.ones(2, 3, requires_grad=True)
    with Operations() as operations:
        (x @ torch.ones(3, 5)).sum().backward()
    product = operations.costs["mm"]
    assert product.calls == 2
    assert product.flops == {torch.float32: 2 * (2 * 3 * 5) * 2}
    assert product.moved == 4 * 2 * (2 * 3 + 3 * 5 + 2 * 5)
    assert operations.costs["t"].moved == 0


def test_the_bound_is_the_larger_of_bytes_and_flops():
    assert MACHINE.bound(Cost(moved=2_000_000)) == pytest.approx(0.002)
    flops = {torch.float32: 10**8, torch.float64: 10**8}
    assert MACHINE.bound(Cost(moved=2_000_000, flops=flops)) == pytest.approx(0.03)


def test_the_largest_gap_comes_first_and_a_step_has_them_all():
    costs = {
        "near": Cost(calls=20, seconds=0.03, moved=20_000_000),
        "far": Cost(calls=10, seconds=0.05, moved=10_000_000),
    }
    rows = rows_of(costs, MACHINE, steps=10, whole=0.1)
    assert [row["operation"] for row in rows] == ["far", "near", "others", "between them", "step"]
    assert rows[0] == {
        "operation": "far",
        "calls": "1",
        "ms": "5.000",
        "bound, ms": "1.000",
        "bound / time": "0.20",
    }
    assert rows[3]["ms"] == "2.000"
    assert rows[4]["bound, ms"] == "3.000"


def test_a_training_begins_on_a_part_of_the_sample():
    parser = make_parser("")
    add_model_options(parser, threads=1)
    settings = TrainSettings(**our_settings(parser.parse_args([]), "gnn"))
    assert begin_training(settings, every=40).names
