import itertools

import numpy as np
import pytest
import torch

import fastslow.networks.hardware.devices
import fastslow.networks.training.train
import fastslow.networks.training.validation
import fastslow.steps.network
from fastslow.competition.catalog import SPLITS, get_collection
from fastslow.competition.metrics import ranking_tau
from fastslow.core.artifacts import read_manifest
from fastslow.core.errors import SettingsError
from fastslow.core.settings import PROJECT
from fastslow.networks.model.graph_batch import PreparedGraph
from fastslow.networks.model.losses import Loss
from fastslow.networks.predict.dataset import GraphDataset, make_network, predict
from fastslow.networks.training.train import Training, learning_rate
from fastslow.networks.training.validation import Validation
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import check_predictions, read_predictions
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.network import read_graphs, run_training, train_gnn
from fastslow.steps.network_settings import TrainSettings
from helpers.competition_files import build_sample
from helpers.networks import (
    Interrupted,
    interrupt,
    into,
    lines_of,
    same_run,
    small_training,
    train_until,
    weights_of,
)

SAMPLE = PROJECT / "data" / "sample"
LAYOUT, TILE = get_collection("layout:xla:random"), get_collection("tile:xla")
PROGRAMS = {
    "train": ("mobilenet_forward_w32_d5_b8", "vgg_forward_w16_d8_b8"),
    "valid": ("vovnet_forward_w64_d4_b8",),
    "test": ("0ab742f1fd91e8ea20dabe4bd366251a",),
}
ORDERS = np.array(list(itertools.permutations(range(4))))


def one_node_decides(arrays):
    """24 configurations that differ in the output layout of the first convolution, which sets the runtime."""
    num_rows = arrays["node_config_feat"].shape[1]
    node = int(np.argmax(arrays["node_opcode"][arrays["node_config_ids"]] == 26))
    arrays["node_config_feat"] = np.full((len(ORDERS), num_rows, 18), -1, np.float32)
    arrays["node_config_feat"][:, node, :4] = ORDERS
    arrays["config_runtime"] = 1000 + ORDERS @ [100, 10, 1, 0]


def one_configuration(arrays):
    """The same configuration over and over; its runtimes differ by noise."""
    arrays["node_config_feat"][:] = arrays["node_config_feat"][0]


def a_single_one(arrays):
    for key in ("node_config_feat", "config_runtime"):
        arrays[key] = arrays[key][:1]


def build_layout(folder, change=one_node_decides, **changes):
    """Features of four sample programs, changed by a function of the file's arrays, another for some."""
    for split, names in PROGRAMS.items():
        target = LAYOUT.folder(folder / "data", split)
        target.mkdir(parents=True)
        for name in names:
            with np.load(LAYOUT.folder(SAMPLE, split) / f"{name}.npz", allow_pickle=False) as archive:
                arrays = dict(archive)
            changes.get(name, changes.get(split, change))(arrays)
            if split == "test":
                arrays["config_runtime"] = np.zeros(len(arrays["config_runtime"]), np.int64)
            np.savez(target / f"{name}.npz", **arrays)
    settings = {"collection": LAYOUT.name, "data_root": str(folder / "data"), "workers": 1, "hops": 1}
    build_features(FeatureSettings(folder=str(folder / "features"), **settings))
    return folder / "features"


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Features of the toy; read-only."""
    return build_layout(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Features of three tile kernels a split; read-only."""
    return build_sample(tmp_path_factory.mktemp("kernels"), TILE, count=3)


def tile_settings(kernels, **settings):
    """A small run on the kernels; one run folder for the one features folder."""
    small = {"device": "cpu", "hidden_channels": 8, "num_layers": 1, "dropout": 0.1, "graphs_per_step": 4}
    return TrainSettings(kind="tile", features=[str(kernels)], runs=["runs/tile"], **{**small, **settings})


@pytest.fixture
def settings(toy, tmp_path):
    """A small run on the toy."""
    return toy_settings(toy, tmp_path)


def toy_settings(toy, folder, **changes):
    size = {"num_layers": 1, "epochs": 2, "configs_per_step": 16, "average_last": 2, "learning_rate": 3e-3}
    return small_training(Features(toy), folder, **{**size, **changes})


def make_training(settings):
    return Training(settings, read_graphs(settings))


def forbid_training(monkeypatch):
    interrupt(monkeypatch, "run_epoch", 0)


PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture
def precision(request, monkeypatch):
    """Compute in this precision whatever the device."""
    monkeypatch.setattr(
        fastslow.networks.hardware.devices, "pick_precision", lambda device: PRECISIONS[request.param]
    )
    monkeypatch.setattr(fastslow.steps.network_settings, "_DRIVERS", ("/",))  # ask torch
    return request.param


@pytest.mark.parametrize("precision", ["float32", "float16"], indirect=True)
def test_a_run_learns_that_one_nodes_layout_decides(settings, tmp_path, precision):
    """It takes 30 epochs until both rankings are nearly right."""
    settings = settings.replace(hidden_channels=16, epochs=30, dropout=0.0, learning_rate=2e-2)
    manifest = train_gnn(settings.replace(configs_per_step=24, evaluate_every=10))
    history = lines_of(tmp_path)
    assert [row["epoch"] for row in history] == [10, 20, 30]
    assert history[-1]["loss"] < history[0]["loss"]

    dataset = read_graphs(settings)
    network = make_network(settings, dataset)
    network.load_state_dict(weights_of(tmp_path))
    scores = predict(network, dataset, LAYOUT.slug, "train")
    runtimes = dataset.sources[LAYOUT.slug].labels("train")
    assert min(ranking_tau(runtimes[name], scores[name]) for name in PROGRAMS["train"]) > 0.9
    assert manifest["valid"]["mean"] == pytest.approx(np.mean(list(manifest["valid"]["per_graph"].values())))


def files(folder):
    return {path.name for path in folder.iterdir() if path.is_file()} - {".lock"}


def test_the_folders_are_whole(settings, tmp_path):
    training = train_gnn(settings)
    assert files(tmp_path / "run") == {"manifest.json", "model.pt", "predictions.npz", "scalers.npz"}
    assert files(tmp_path / "training") == {"manifest.json", "metrics.jsonl", "training.png"}
    features = Features(*settings.features)
    scores = read_predictions(tmp_path / "run")
    check_predictions(tmp_path / "run", scores, features)
    (name,) = PROGRAMS["valid"]
    tau = ranking_tau(features.labels("valid")[name], scores["valid"][name])
    manifest = read_manifest(tmp_path / "run")
    assert manifest["valid"]["per_graph"] == {name: tau}
    assert manifest["epochs"] == training["epochs"] == settings.epochs
    assert manifest["settings"]["model"] == "gnn"
    assert manifest["settings"]["collection"] == LAYOUT.name
    assert training["valid"]["per_graph"] == {f"{LAYOUT.slug}/{name}": tau}
    assert training["valid"]["by_collection"] == {LAYOUT.slug: tau}


@pytest.mark.parametrize("lost", ["run/manifest.json", "training/manifest.json"])
def test_a_training_counts_as_done_with_its_runs_alone(settings, tmp_path, monkeypatch, lost):
    train_gnn(settings)
    assert settings.artifact().is_current()
    (tmp_path / lost).unlink()
    assert not settings.artifact().is_current()
    forbid_training(monkeypatch)
    with pytest.raises(Interrupted):
        train_gnn(settings)
    assert not (tmp_path / "run" / "manifest.json").exists(), "what is made anew does not count as done"


def test_equal_seeds_give_equal_runs_and_others_do_not(settings, tmp_path):
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder, seed in zip(folders, (7, 7, 8), strict=True):
        train_gnn(into(settings, folder, seed=seed))
    assert same_run(folders[0], folders[1])
    assert not same_run(folders[0], folders[2])


LONG = {"epochs": 6, "evaluate_every": 2, "dropout": 0.3}


@pytest.fixture(scope="module")
def whole(toy, tmp_path_factory):
    """A run that nothing interrupts: two graphs, a checkpoint after epochs 2, 4 and 6; dropout, sampling."""
    folder = tmp_path_factory.mktemp("whole")
    train_gnn(toy_settings(toy, folder, **LONG))
    return folder


@pytest.mark.parametrize(
    "method, calls, epoch",
    [("graph_loss", 1, 0), ("graph_loss", 9, 4), ("evaluate", 2, 4), ("choose_weights", 0, 6)],
)
def test_a_resumed_run_equals_an_uninterrupted_one(whole, toy, tmp_path, capsys, method, calls, epoch):
    settings = toy_settings(toy, tmp_path, **LONG)
    train_until(settings, method, calls)
    assert not (tmp_path / "run" / "manifest.json").exists()
    capsys.readouterr()
    manifest = train_gnn(settings)
    assert (f"training: resumed after epoch {epoch}" in capsys.readouterr().out) == (epoch > 0)
    assert same_run(tmp_path, whole)
    assert manifest["valid"] == read_manifest(whole / "training")["valid"]
    assert not (tmp_path / "training" / "checkpoint.pt").exists()


def test_a_checkpoint_of_other_settings_is_not_continued(settings, tmp_path):
    other = settings.replace(learning_rate=1e-4)
    train_gnn(into(other, tmp_path / "whole"))
    train_until(settings, "choose_weights", 0)
    assert (tmp_path / "training" / "checkpoint.pt").exists()
    train_gnn(other)
    assert same_run(tmp_path, tmp_path / "whole")


def test_a_finished_run_is_not_trained_again(settings, monkeypatch):
    manifest = train_gnn(settings)
    forbid_training(monkeypatch)
    assert train_gnn(settings) == manifest
    # excluded from the cache key: they affect location or speed only
    assert train_gnn(settings.replace(configs_together=9)) == manifest


def test_features_of_the_other_kind_are_refused(settings, kernels, tmp_path):
    with pytest.raises(SettingsError, match="^features: .* layout collection"):
        train_gnn(settings.replace(features=[str(kernels)]))
    with pytest.raises(SettingsError, match="^features: .* tile collection"):
        train_gnn(into(settings.replace(kind="tile"), tmp_path / "tile"))


def script_valid(monkeypatch, *scores):
    """Let evaluations on valid give these scores, one after the other."""
    remaining = iter(scores)
    module = fastslow.networks.training.validation
    monkeypatch.setattr(module, "collection_score", lambda *_: {"mean": next(remaining), "per_graph": {}})


@pytest.mark.parametrize(
    "changes, scores, evaluated",
    [
        ({"epochs": 20, "evaluate_every": 2, "patience": 3}, [0.1, 0.3, 0.3, 0.2, 0.1], [2, 4, 6, 8, 10]),
        ({"epochs": 7, "evaluate_every": 3}, [0.3, 0.2, 0.1], [3, 6, 7]),  # the last epoch always
    ],
)
def test_patience_counts_evaluations_without_a_better_score(
    settings, monkeypatch, tmp_path, changes, scores, evaluated
):
    script_valid(monkeypatch, *scores, 0.3)  # the last one is that of the chosen weights
    manifest = train_gnn(settings.replace(average_last=0, **changes))
    assert [row["epoch"] for row in lines_of(tmp_path)] == evaluated and manifest["epochs"] == evaluated[-1]
    assert manifest["valid"]["weights"] == f"epoch {evaluated[scores.index(0.3)]}"


def test_a_training_stops_when_its_hours_are_over_and_goes_on_no_longer(settings, tmp_path, capsys):
    slow = settings.replace(epochs=40, evaluate_every=30, hours=1e-9)
    manifest = train_gnn(slow)
    said = "stopped after epoch 1 of 40: its time is over (hours=1e-09)"
    assert manifest["epochs"] == 1 and said in manifest["warnings"]
    assert [row["epoch"] for row in lines_of(tmp_path)] == [1]
    assert settings.replace(hours=3.0).artifact().fingerprint == settings.artifact().fingerprint
    for other in (slow, slow.replace(hours=1e-10)):
        assert other.artifact().is_current(), "no more time than it had"
    larger = slow.replace(hours=1e-8).artifact()
    assert not larger.is_current()
    assert larger.changes() == ["hours: 1e-09 -> 1e-08; it stopped after epoch 1 of 40"]
    cut = train_gnn(slow.replace(epochs=3))
    whole = train_gnn(slow.replace(epochs=3, hours=0.0))
    assert (cut["epochs"], whole["epochs"]) == (1, 3)
    assert cut["fingerprint"] != whole["fingerprint"], "an ensemble of it is made again, too"
    assert slow.replace(epochs=3).artifact().is_current(), "whole, in whatever time"
    checkpointed = settings.replace(epochs=3, evaluate_every=1)
    train_until(checkpointed, "run_epoch", 2)
    training = make_training(checkpointed.replace(hours=1e-9))
    run_training(training, checkpointed.artifact(), hours=1e-9)
    assert training.epoch == 2 and training.seconds > 0, "the time before the interruption counts"


def test_what_ended_a_training_is_told_after_an_interruption(settings, monkeypatch):
    slow = settings.replace(epochs=40, hours=1e-9)
    with monkeypatch.context() as patched:
        patched.setattr(fastslow.steps.network, "write_runs", raise_interrupted)
        with pytest.raises(Interrupted):
            train_gnn(slow)
    assert "stopped after epoch 1 of 40: its time is over (hours=1e-09)" in train_gnn(slow)["warnings"]


def raise_interrupted(*_):
    raise Interrupted


def test_the_best_weights_so_far_survive_an_interruption(settings):
    settings = settings.replace(epochs=3, evaluate_every=1, average_last=0)
    with pytest.MonkeyPatch.context() as monkeypatch:
        script_valid(monkeypatch, 0.5)
        interrupt(monkeypatch, "run_epoch", 1)
        with pytest.raises(Interrupted):
            train_gnn(settings)
    with pytest.MonkeyPatch.context() as monkeypatch:
        script_valid(monkeypatch, 0.2, 0.3, 0.5)
        assert train_gnn(settings)["valid"]["weights"] == "epoch 1"


@pytest.mark.parametrize("average_score, chosen", [(0.35, "epoch 2"), (0.4, "average")])
def test_averaged_weights_are_taken_where_they_are_no_worse(
    settings, monkeypatch, tmp_path, average_score, chosen
):
    """The predictions that are written are those of the chosen weights."""
    script_valid(monkeypatch, 0.2, 0.4, 0.3, average_score, 0.4)
    kept = []
    evaluate = Validation.evaluate

    def record(self, epoch, loss):
        evaluate(self, epoch, loss)
        kept.append({name: value.clone() for name, value in self.network.state_dict().items()})

    monkeypatch.setattr(Validation, "evaluate", record)
    settings = settings.replace(epochs=3, learning_rate=2e-2)
    manifest = train_gnn(settings)
    assert manifest["valid"]["weights"].startswith(chosen)
    assert manifest["valid"]["mean"] == max(average_score, 0.4)
    for name, value in weights_of(tmp_path).items():
        average = (kept[1][name] + kept[2][name]) / 2
        torch.testing.assert_close(value, kept[1][name] if chosen == "epoch 2" else average)
    training = make_training(settings)
    training.network.load_state_dict(weights_of(tmp_path))
    again = predict(training.network, training.dataset, LAYOUT.slug, "valid")
    written = read_predictions(tmp_path / "run")["valid"]
    assert again.keys() == written.keys()
    for name, prediction in again.items():
        np.testing.assert_array_equal(written[name], prediction)


def test_a_part_of_valid_steers_and_all_of_it_is_reported(settings, monkeypatch, tmp_path):
    sizes = []

    def record(network, dataset, slug, split, only=None):
        scores = predict(network, dataset, slug, split, only)
        sizes.append((split, *{len(score) for score in scores.values()}))
        return scores

    monkeypatch.setattr(fastslow.networks.training.validation, "predict", record)
    manifest = train_gnn(settings.replace(epochs=2, evaluate_every=1, average_last=1, valid_configs=10))
    assert sizes[:2] == [("valid", 10)] * 2
    assert sizes[2:] == [("valid", 24)] * 2 + [("test", 24)]
    (name,) = PROGRAMS["valid"]
    labels, scores = Features(*settings.features).labels("valid"), read_predictions(tmp_path / "run")["valid"]
    assert manifest["valid"]["mean"] == ranking_tau(labels[name], scores[name])


def test_graphs_with_one_configuration_are_scored(settings, tmp_path):
    features = build_layout(
        tmp_path, mobilenet_forward_w32_d5_b8=one_configuration, valid=a_single_one, test=a_single_one
    )
    assert Features(features).graph("train", "mobilenet_forward_w32_d5_b8").num_configs == 1
    manifest = train_gnn(settings.replace(features=[str(features)]))
    assert manifest["valid"]["mean"] == 0
    scores = read_predictions(tmp_path / "run")
    for split in ("valid", "test"):
        assert [score.shape for score in scores[split].values()] == [(1,)]


def test_a_kernel_is_embedded_once_for_all_its_configurations(kernels, tmp_path, monkeypatch):
    settings = tile_settings(kernels)
    dataset = GraphDataset(settings, settings.sources(), configs_together=2)
    network = make_network(settings, dataset)
    embedded = []
    monkeypatch.setattr(
        network.trunk,
        "forward",
        lambda *args, run=network.trunk.forward: embedded.append(1) or run(*args),
    )
    scores = predict(network, dataset, TILE.slug, "valid")
    assert len(embedded) == len(scores) == 3
    assert {name: len(score) for name, score in scores.items()} == Features(kernels).num_configs("valid")
    assert min(map(len, scores.values())) > 2


def test_the_batch_of_all_configurations_of_a_train_or_valid_graph_is_made_once(settings):
    dataset = GraphDataset(settings, settings.sources())
    every = {split: f"{LAYOUT.slug}/{dataset.sources[LAYOUT.slug].names(split)[0]}" for split in SPLITS}
    for split, name in every.items():
        configs = np.arange(dataset.num_configs(split, name))
        batches = [dataset.batch(split, name, configs) for _ in range(2)]
        assert (batches[0] is batches[1]) == (split != "test")
    some = dataset.batch("valid", every["valid"], np.arange(3)[::-1])
    assert some.config_feat.shape[0] == 3, "other configurations have a batch of their own"


def test_prediction_uses_no_dropout_and_training_does(settings):
    training = make_training(settings.replace(dropout=0.5))
    training.network.train()
    one, other = (predict(training.network, training.dataset, LAYOUT.slug, "valid") for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    training.run_epoch()
    assert training.network.training
    example = training.example((training.names[0], np.arange(24), None))
    assert training.graph_loss(example) != training.graph_loss(example)


@pytest.mark.parametrize("configs_per_step, drawn, batches", [(16, 16, 4), (100, 24, 2)], ids=["part", "all"])
def test_a_step_draws_other_configurations_or_takes_all(
    settings, monkeypatch, configs_per_step, drawn, batches
):
    """Four steps on two graphs; a batch of all configurations is made once."""
    training = make_training(settings.replace(configs_per_step=configs_per_step))
    made, losses = [], []
    batch, loss = PreparedGraph.batch, training.graph_loss
    monkeypatch.setattr(
        PreparedGraph,
        "batch",
        lambda prepared, drawn, *others: made.append(drawn) or batch(prepared, drawn, *others),
    )
    monkeypatch.setattr(
        training,
        "graph_loss",
        lambda graph_batch: losses.append(len(graph_batch.runtime)) or loss(graph_batch),
    )
    training.run_epoch()
    training.run_epoch()
    assert losses == [drawn] * 4
    assert [len(set(configs.tolist())) for configs in made] == [drawn] * batches
    assert batches == 2 or len({tuple(configs) for configs in made}) == 4


def test_a_step_drops_other_edges_each_time_and_the_same_ones_again_with_the_same_seed(settings, monkeypatch):
    """Also where it takes all configurations: its batch is not the one of the whole graph."""
    kept = []
    for _ in range(2):
        training = make_training(settings.replace(edge_dropout=0.5, configs_per_step=24))
        batch = training.dataset.batch
        monkeypatch.setattr(
            training.dataset, "batch", lambda *args, batch=batch: kept.append(args[3]) or batch(*args)
        )
        training.run_epoch()
        training.run_epoch()
    assert len(kept) == 8
    assert all(np.array_equal(one, other) for one, other in zip(kept[:4], kept[4:], strict=True))
    assert len({edges.tobytes() for edges in kept}) == 4
    assert 0.3 < np.concatenate(kept).mean() < 0.7


@pytest.mark.parametrize("text", ["pairwise_hinge", "list_mle:1+mse_log:0.02"])
def test_the_gradient_of_a_step_is_the_mean_over_its_graphs(settings, monkeypatch, text):
    settings = settings.replace(
        graphs_per_step=2, configs_per_step=24, dropout=0.0, max_grad_norm=1e9, loss=text
    )
    training = make_training(settings)
    parameters = list(training.network.parameters())
    examples = [training.example((name, np.arange(24), None)) for name in training.names]
    losses = [Loss(text)(training.network(batch), batch.runtime) for batch in examples]
    wanted = torch.autograd.grad(sum(losses) / 2, parameters, allow_unused=True)
    taken = []
    monkeypatch.setattr(training.optimizer, "step", lambda: taken.extend(p.grad.clone() for p in parameters))
    loss = training.run_epoch()
    assert loss == pytest.approx(sum(losses).item() / 2, rel=1e-5)
    for gradient, expected in zip(taken, wanted, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-5)


def test_the_gradient_is_clipped(settings, monkeypatch):
    training = make_training(settings.replace(max_grad_norm=1e-3))
    norms = []

    def record():
        norms.append(torch.cat([p.grad.flatten() for p in training.network.parameters()]).norm().item())

    monkeypatch.setattr(training.optimizer, "step", record)
    training.run_epoch()
    assert norms == pytest.approx([1e-3, 1e-3], rel=1e-2)


def test_the_learning_rate_warms_up_and_falls_to_0():
    settings = TrainSettings(learning_rate=1.0, warmup=0.2)
    rates = [learning_rate(settings, step, 100) for step in range(100)]
    warm, falling = np.array(rates[:20]), np.array(rates[20:])
    np.testing.assert_allclose(np.diff(warm), warm[0])
    assert falling[0] == 1.0 and (np.diff(falling) < 0).all() and 0 < falling[-1] < 1e-3
    assert falling[40] == pytest.approx(0.5)
    assert learning_rate(TrainSettings(learning_rate=1.0, warmup=0.0), 0, 1) == 1.0


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_learning_rate_runs_through_all_epochs(settings, monkeypatch, schedule):
    settings = settings.replace(schedule=schedule, epochs=4)
    training = make_training(settings)
    rates, step = [], training.optimizer.step
    monkeypatch.setattr(
        training.optimizer, "step", lambda: rates.append(training.optimizer.param_groups[0]["lr"]) or step()
    )
    for _ in range(settings.epochs):
        training.run_epoch()
    assert rates == [learning_rate(settings, step, 8) for step in range(8)]
    assert {*rates[1:]} == {settings.learning_rate} if schedule == "constant" else rates[-1] < rates[1] / 10


def test_weights_decay_where_nothing_is_learned(settings, monkeypatch):
    rate = {"learning_rate": 0.01, "warmup": 0.0, "schedule": "constant"}
    training = make_training(settings.replace(weight_decay=0.5, **rate))
    parameters = [*training.network.parameters()]
    wanted = [0.995**2 * parameter.detach() for parameter in parameters]
    monkeypatch.setattr(training, "graph_loss", lambda *_: 0 * sum(p.sum() for p in parameters))
    training.run_epoch()  # of two steps
    torch.testing.assert_close([parameter.detach() for parameter in parameters], wanted)


def test_tile_kernels_train(kernels, tmp_path):
    settings = tile_settings(kernels, epochs=3)
    train_gnn(into(settings, tmp_path))
    manifest = read_manifest(tmp_path / "run")
    check_predictions(tmp_path / "run", read_predictions(tmp_path / "run"), Features(kernels))
    assert not any("cross" in name for name in weights_of(tmp_path))
    # selected by what counts: the best runtime among the five that score best
    labels, scores = Features(kernels).labels("valid"), read_predictions(tmp_path / "run")["valid"]
    best = {
        name: 2 - label[np.argsort(scores[name])[:5]].min() / label.min() for name, label in labels.items()
    }
    assert manifest["valid"]["per_graph"] == pytest.approx(best)
    assert manifest["valid"]["mean"] >= max(row["valid"] for row in lines_of(tmp_path))


@pytest.mark.parametrize("precision", ["float16"], indirect=True)
def test_a_run_in_half_precision_is_resumed_exactly(settings, tmp_path, precision):
    """On the CPU, as on a GPU: the loss scale of float16 is part of the checkpoint."""
    settings = settings.replace(epochs=4, evaluate_every=2)
    assert settings.artifact().settings["precision"] == precision
    assert {part.settings["precision"] for part in settings.artifact().parts} == {precision}
    train_gnn(into(settings, tmp_path / "whole"))
    train_until(settings, "graph_loss", 5)
    train_gnn(settings)
    assert same_run(tmp_path, tmp_path / "whole")
    assert np.isfinite([row["loss"] for row in lines_of(tmp_path)]).all()
    assert all(weight.isfinite().all() for weight in weights_of(tmp_path).values())


@pytest.mark.parametrize("precision", ["float16"], indirect=True)
def test_a_float16_step_that_overflows_is_skipped_and_scales_down(settings, monkeypatch, precision):
    training = make_training(settings)
    parameters = list(training.network.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    monkeypatch.setattr(training, "graph_loss", lambda *_: 1e38 * sum(p.sum() for p in parameters))
    training.run_epoch()
    assert all(map(torch.equal, before, parameters))
    assert training.scaler.get_scale() == 2.0**16 / 4  # halved by each of two steps


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["bfloat16", "float16"], indirect=True)
def test_the_host_never_waits_for_the_gpu_within_a_step(settings, precision):
    training = make_training(settings.replace(device="cuda"))
    training.run_epoch()
    drawn = [(name, np.arange(16), None) for name in training.names]
    examples = iter([training.example(item) for item in drawn])
    torch.cuda.set_sync_debug_mode("error")
    try:
        losses = training.step(examples, [0] * len(drawn), len(drawn), 1e-3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.stack(losses).isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["bfloat16", "float16"], indirect=True)
def test_a_run_on_a_gpu_is_resumed(settings, tmp_path, precision):
    settings = settings.replace(device="cuda", epochs=6, average_last=3)
    train_until(settings, "graph_loss", 9)
    manifest = train_gnn(settings)
    assert manifest["epochs"] == 6
    check_predictions(tmp_path / "run", read_predictions(tmp_path / "run"), Features(*settings.features))
