"""Device and precision, on machines with and without GPUs: torch's questions are answered by the test."""

import numpy as np
import pytest
import torch

from fastslow.core.errors import SettingsError
from fastslow.networks.hardware import devices
from fastslow.networks.hardware import gpus as gpus_of_torch
from fastslow.networks.hardware.devices import autocast, pick_device, pick_precision
from fastslow.networks.model.graph_batch import PreparedGraph
from fastslow.networks.model.losses import pairwise_hinge
from fastslow.steps.network_settings import TrainSettings
from fastslow.workflow import job_plan
from helpers.networks import all_configs, close, make_network, program
from helpers.random_graphs import make_scalers

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
H100, T4, P100 = (9, 0), (7, 5), (6, 0)
NO_IMAGE = "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might"


@pytest.fixture
def gpus(monkeypatch):
    """Make torch find GPUs of these compute capabilities."""

    def pretend(*capabilities):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(capabilities))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
        monkeypatch.setattr(gpus_of_torch, "why_unusable", lambda index=None: "")
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda device: capabilities[device.index or 0]
        )

    return pretend


@pytest.mark.parametrize(
    "name, found, wanted",
    [("auto", [], "cpu"), ("auto", [T4], "cuda"), ("cpu", [T4], "cpu"), ("cuda:1", [T4, H100], "cuda:1")],
)
def test_the_device_of_the_setting(gpus, name, found, wanted):
    gpus(*found)
    assert pick_device(name) == torch.device(wanted)


@pytest.mark.parametrize(
    "name, found, message",
    [
        ("cuda", [], r"available\(\) is False, .*count\(\) is 0.*use 'auto' or 'cpu', or a CUDA build"),
        ("cuda:1", [T4], r"is_available\(\) is True, .*device_count\(\) is 1.*one of cuda:0 to cuda:0"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused_by_field_finding_and_remedy(gpus, name, found, message):
    gpus(*found)
    with pytest.raises(SettingsError, match=f"^device: '{name}' is not there .*{message}"):
        pick_device(name)
    with pytest.raises(SettingsError, match=f"^device: '{name}'"):
        TrainSettings(device=name).identity()


@pytest.mark.parametrize(
    "name, found, precision",
    [
        ("cpu", [H100], "float32"),
        ("auto", [], "float32"),
        ("cuda:0", [(8, 0)], "bfloat16"),
        ("cuda", [T4], "float16"),
        ("cuda:1", [H100, T4], "float16"),
    ],
)
def test_the_precision_is_that_of_the_gpu(gpus, name, found, precision):
    gpus(*found)
    assert pick_precision(pick_device(name)) == getattr(torch, precision)
    identity = TrainSettings(device=name).identity()
    assert (identity["device_type"], identity["precision"]) == (pick_device(name).type, precision)


@pytest.fixture
def p100(gpus, monkeypatch):
    """A GPU that torch finds, and on which every operation fails."""
    real = gpus_of_torch.why_unusable
    gpus(P100)
    monkeypatch.setattr(gpus_of_torch, "why_unusable", real)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla P100-PCIE-16GB")

    def fail(*_, **__):
        raise RuntimeError(NO_IMAGE)

    monkeypatch.setattr(torch, "ones", fail)
    for cached in (gpus_of_torch.why_unusable, gpus_of_torch.warn_of_unusable):
        cached.cache_clear()
    yield
    for cached in (real, gpus_of_torch.warn_of_unusable):
        cached.cache_clear()


def test_a_gpu_that_torch_cannot_use_is_left_alone_and_said_so_once(p100, capsys):
    for _ in range(2):
        assert pick_device("auto") == torch.device("cpu")
    assert TrainSettings(device="auto").identity()["precision"] == "float32"
    said = capsys.readouterr().err
    assert said.count("the CPU computes") == 1 and "choose the accelerator GPU T4 x2" in said
    assert "Tesla P100-PCIE-16GB of compute capability 6.0" in said and "kernel errors" not in said
    for name in ("cuda", "cuda:0"):
        with pytest.raises(
            SettingsError, match=f"^device: '{name}' cannot be used: torch .*sm_75 sm_90.*P100"
        ):
            pick_device(name)


def test_a_notebook_on_kaggle_refuses_a_p100_and_names_the_accelerator_to_choose(p100):
    with pytest.raises(SettingsError, match="^accelerator: torch .*P100.*choose the accelerator GPU T4 x2"):
        gpus_of_torch.usable_gpus()


def test_the_usable_gpus_are_named(gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"Tesla T4 of slot {index}")
    gpus(T4, T4)
    assert gpus_of_torch.usable_gpus() == ["Tesla T4 of slot 0", "Tesla T4 of slot 1"]
    gpus()
    assert gpus_of_torch.usable_gpus() == []


def test_a_plan_gives_no_step_to_a_gpu_that_torch_cannot_use(p100, monkeypatch):
    monkeypatch.setattr(job_plan.os.path, "exists", lambda path: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert job_plan._gpus() == ()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert job_plan._gpus() == ()


@pytest.fixture
def float16(monkeypatch):
    """Compute in float16 on whatever device there is."""
    monkeypatch.setattr(devices, "pick_precision", lambda device: torch.float16)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_float16_keeps_predictions_and_scaled_gradients_close(float16, device):
    device, graph = torch.device(device), program()
    network = make_network().to(device)
    batch = (
        PreparedGraph(graph, *make_scalers(graph)).batch(all_configs(graph), network.num_layers).to(device)
    )
    runtime = torch.arange(graph.num_configs, dtype=torch.float64, device=device)

    def gradient(prediction, scale):
        network.zero_grad()
        (scale * pairwise_hinge(prediction, runtime)).backward()
        return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]) / scale

    exact = network(batch)
    with autocast(device):
        assert network.trunk.input[1](torch.zeros(1, 8, device=device)).dtype == torch.float16
        prediction = network(batch)
    assert prediction.dtype == torch.float32 and not torch.equal(prediction, exact)
    close(prediction, exact, 1e-2)
    wanted, found = gradient(exact, 1.0), gradient(prediction, 2.0**12)
    assert (found - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_the_head_stays_in_float64_in_float16(float16, device):
    """Sums over nodes go beyond float16's largest number, 65504, and differ by less than it resolves."""
    device = torch.device(device)
    head = make_network().head.to(device)
    x = 1e6 + torch.randn(5, 11, dtype=torch.float64, device=device)
    joined = torch.cat([x, head.norm(x)], 1)
    with autocast(device):
        prediction = head.mlp(joined)
    assert prediction.dtype == torch.float64
    np.testing.assert_array_equal(prediction.detach().cpu(), head.mlp(joined).detach().cpu())
