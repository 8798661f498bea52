"""The ensemble: normalisations, equal and searched weights, and members that are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.competition.metrics import collection_score
from fastslow.core.artifacts import Artifact, read_manifest
from fastslow.core.errors import DataError, SettingsError
from fastslow.ensemble.weights import (
    NORMALISATIONS,
    combine,
    equal_weights,
    pull_to_equal,
    search_weights,
)
from fastslow.runs.predictions import read_predictions
from fastslow.runs.predictions import write_run as write_custom
from fastslow.runs.run_manifest import find_members, models_of
from fastslow.steps.ensemble import EnsembleSettings, build_ensemble
from helpers.cases import cases
from helpers.good_artifacts import change_json, reseal
from helpers.runs import ensemble_settings, make_features, overwrite_predictions, random_scores, write_run

WILD = st.floats(-1e15, 1e15, allow_subnormal=False) | st.integers(-2, 2).map(float)


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    return make_features(tmp_path_factory.mktemp("layout"), "layout:xla:random")


@pytest.fixture(scope="module")
def tile(tmp_path_factory):
    return make_features(tmp_path_factory.mktemp("tile"), "tile:xla")


@given(st.lists(WILD, min_size=1, max_size=12).map(np.array))
def test_normalisations_against_their_definitions(prediction):
    rank = [(sum(s < t for s in prediction) + (sum(s == t for s in prediction) - 1) / 2) for t in prediction]
    np.testing.assert_allclose(
        NORMALISATIONS["rank"](prediction), np.array(rank) / max(len(prediction) - 1, 1)
    )
    low, high = min(prediction), max(prediction)
    wanted = [(s - low) / (high - low) if high > low else 0 for s in prediction]
    np.testing.assert_array_equal(NORMALISATIONS["min_max"](prediction), wanted)
    assert NORMALISATIONS["raw"](prediction) is prediction


def test_a_combination_is_the_weighted_mean():
    members = {
        "a": {"test": {"g": np.array([0.0, 10.0, 5.0])}},
        "b": {"test": {"g": np.array([3.0, 2.0, 1.0])}},
        "c": {"test": {"g": np.array([7.0, 7.0, 7.0])}},
    }
    (mixed,) = combine(members, "test", "min_max", {"a": 0.75, "b": 0.25, "c": 0.0}).values()
    np.testing.assert_allclose(mixed, 0.75 * np.array([0, 1, 0.5]) + 0.25 * np.array([1, 0.5, 0]))
    (alone,) = combine(members, "test", "min_max", {"a": 1.0, "b": 0.0, "c": 0.0}).values()
    np.testing.assert_array_equal(alone, [0, 10, 5])


def predicted(*values, split="valid", graph="g"):
    return {split: {graph: np.array(values)}}


GOOD = {"a": predicted(1.0, 2.0, 3.0), "b": predicted(3.0, 2.0, 1.0)}
HALVES = {"a": 0.5, "b": 0.5}
UNEQUAL = "^b: its prediction of valid graph {}, of shape {}, is not {} finite numbers"


@cases(
    "members, normalisation, weights, said",
    [
        *(
            ({**GOOD, "b": predicted(1.0, odd, 2.0)}, name, HALVES, UNEQUAL.format("g", r"\(3,\)", 3))
            for odd in (np.nan, np.inf)
            for name in NORMALISATIONS
        ),
        ({**GOOD, "b": predicted("1", "2", "3")}, "raw", HALVES, UNEQUAL.format("g", r"\(3,\)", 3)),
        ({**GOOD, "b": predicted(1.0)}, "raw", HALVES, UNEQUAL.format("g", r"\(1,\)", 3)),
        ({**GOOD, "b": {"valid": {}}}, "raw", HALVES, UNEQUAL.format("g", r"\(0,\)", 3)),
        ({**GOOD, "a": {"valid": {}}}, "raw", HALVES, UNEQUAL.format("g", r"\(3,\)", 0)),
        ({**GOOD, "b": {}}, "raw", HALVES, "^split of b: 'valid' is none of "),
        (
            {**GOOD, "b": {"valid": {**GOOD["b"]["valid"], "h": np.ones(2)}}},
            "raw",
            HALVES,
            UNEQUAL.format("h", r"\(2,\)", 0),
        ),
        (GOOD, "softmax", HALVES, "^normalisation: 'softmax' is none of min_max, rank, raw"),
        (GOOD, "raw", {"a": 0.5, "c": 0.5}, "^weights: 'c' is none of a, b"),
        *(
            (GOOD, "raw", weights, "^weights: .* are not 0 or more, of which one is above 0")
            for weights in ({}, {"a": 0.0, "b": 0.0}, {"a": 2.0, "b": -1.0}, {"a": np.nan, "b": 1.0})
        ),
    ],
)
def test_members_that_have_no_mean_are_refused_by_name(members, normalisation, weights, said):
    with pytest.raises((DataError, SettingsError), match=said):
        combine(members, "valid", normalisation, weights)
    if weights == HALVES:
        with pytest.raises((DataError, SettingsError), match=said):
            search_weights(members, normalisation, 2, lambda mixture: 0.0, [["a"], ["b"]])


@cases(
    "most, score, models, said",
    [
        (0, 0.0, [["a"], ["b"]], "^max_models: 0 is not 1 or more"),
        (2, np.nan, [["a"], ["b"]], "^valid_score: nan of .* is no score"),
        (2, 0.0, [["a"]], r"^models: \[\['a'\]\] are not made of the members a, b"),
        (2, 0.0, [], r"^models: \[\] are not made of the members a, b"),
        (2, 0.0, [["a"], ["b"], ["a"]], "^models: .* are not made of the members a, b, each once"),
        (2, 0.0, [["a", "b", "b"]], "^models: .* are not made of the members a, b, each once"),
        (2, 0.0, [["a"], [], ["b"]], "^models: .* are not made of the members a, b, each once"),
    ],
)
def test_a_search_without_an_answer_is_refused(most, score, models, said):
    with pytest.raises((DataError, SettingsError), match=said):
        search_weights(GOOD, "raw", most, lambda mixture: score, models)


def test_no_prediction_is_too_large_to_be_scaled():
    large = np.array([-1.7e308, 1.7e308, 0.0, 1.0])
    np.testing.assert_array_equal(NORMALISATIONS["min_max"](large), [0, 1, 0.5, 0.5])


@cases(
    "values, kind",
    [
        ([-3e38, 3e38, 0, 0], np.float32),
        ([-6e4, 6e4, 0, 0], np.float16),
        ([-127, 127, 0, 0], np.int8),
        ([-(2**63), 2**63 - 1, 0, 0], np.int64),
        ([False, True, False, False], bool),
        ([1.0, 2.0, 1.5, 1.5], list),
    ],
)
def test_predictions_of_any_type_are_combined_in_float64(values, kind):
    """A range of float16 or float32 overflowed to NaN, one of int8 to a wrong order; a list failed."""
    prediction = values if kind is list else np.array(values, kind)
    members = {name: {"test": {"g": prediction}} for name in "ab"}
    expected = {
        "min_max": [0, 1, 0, 0] if kind is bool else [0, 1, 0.5, 0.5],
        "raw": np.asarray(values, np.float64),
    }
    for normalisation, combined in expected.items():
        (mixed,) = combine(members, "test", normalisation, HALVES).values()
        assert mixed.dtype == np.float64
        np.testing.assert_allclose(mixed, combined)


def test_the_search_stops_at_the_best_mixture_it_saw():
    members = {name: {"valid": {"g": np.array([value])}} for name, value in (("a", 0.0), ("b", 1.0))}
    models = [["a"], ["b"]]
    weights = search_weights(members, "raw", 3, lambda mixture: -abs(mixture["g"][0] - 0.5), models)
    assert weights == {"a": 0.5, "b": 0.5}, "a third member makes it worse"
    weights = search_weights(members, "raw", 10, lambda mixture: -abs(mixture["g"][0] - 0.3), models)
    assert weights == pytest.approx({"a": 0.7, "b": 0.3})


def test_the_search_scores_what_is_combined_and_normalises_each_prediction_once(monkeypatch, rng):
    members = {name: {"valid": {g: rng.standard_normal(5) for g in "gh"}} for name in "abc"}
    scored, calls, rank = [], [], NORMALISATIONS["rank"]
    models = [[name] for name in members]
    search_weights(members, "rank", 4, lambda predictions: scored.append(predictions) or -len(scored), models)
    monkeypatch.setitem(NORMALISATIONS, "rank", lambda values: calls.append(1) or rank(values))
    search_weights(members, "rank", 4, lambda predictions: 0.0, models)
    assert len(calls) == 3 * 2
    shares = [{"a": 1.0, "b": 0.0, "c": 0.0}, {"a": 0.0, "b": 1.0, "c": 0.0}, {"a": 0.0, "b": 0.0, "c": 1.0}]
    shares += [{"a": 1.0, "b": 0.0, "c": 0.0}, {"a": 0.5, "b": 0.5, "c": 0.0}, {"a": 0.5, "b": 0.0, "c": 0.5}]
    for weights, found in zip(shares, scored, strict=False):
        for graph, wanted in combine(members, "valid", "rank", weights).items():
            np.testing.assert_array_equal(found[graph], wanted)


def test_a_mixture_is_scored_in_the_order_of_sums_in_which_it_is_combined():
    values = {"a": 0.1, "b": 0.1, "c": 0.4}  # whose weighted sum depends on the order by one rounding
    members = {name: {"valid": {"g": np.array([value])}} for name, value in values.items()}
    scored = []

    def valid_score(predictions):
        (mean,) = predictions["g"]
        scored.append(mean)
        return -abs(mean - 0.175)

    weights = search_weights(members, "raw", 2, valid_score, [["a", "c"], ["b"]])
    assert weights == {"a": 0.25, "b": 0.5, "c": 0.25}
    (mean,) = combine(members, "valid", "raw", weights)["g"]
    assert mean in scored


@given(data=st.data(), max_models=st.integers(1, 6), kind=st.sampled_from(["layout", "tile"]))
@settings(max_examples=40)
@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_members_of_a_model_share_its_weight_and_it_is_never_worse_than_one_model(
    normalisation, data, max_models, kind
):
    labels = {"g": np.array([5, 3, 9, 1, 4, 8, 2]), "h": np.array([2, 1, 2])}
    vectors = {g: st.lists(WILD, min_size=len(r), max_size=len(r)).map(np.array) for g, r in labels.items()}
    members = {name: {"valid": data.draw(st.fixed_dictionaries(vectors))} for name in "abcde"}
    models = [["a", "d"], ["b"], ["c", "e"]]

    def valid_score(predictions):
        return collection_score(kind, labels, predictions)["mean"]

    weights = search_weights(members, normalisation, max_models, valid_score, models)
    assert list(weights) == list("abcde") and sum(weights.values()) == pytest.approx(1)
    assert weights["a"] == weights["d"] and weights["c"] == weights["e"] and min(weights.values()) >= 0
    assert sum(weights[first] > 0 for first, *_ in models) <= max_models
    value = valid_score(combine(members, "valid", normalisation, weights))
    for model in models:
        share = dict.fromkeys(model, 1 / len(model))
        alone = combine(members, "valid", "raw" if len(model) == 1 else normalisation, share)
        assert value >= valid_score(alone)


def test_weights_are_pulled_half_way_to_equal_ones():
    weights = pull_to_equal({"a": 0.5, "b": 0.0, "c": 0.5}, [["a", "c"], ["b"]])
    assert weights == {"a": 0.375, "b": 0.25, "c": 0.375}
    assert pull_to_equal({"a": 1.0}, [["a"]]) == {"a": 1.0}


def test_runs_that_differ_in_their_seed_alone_are_one_model(layout, tmp_path, rng):
    options = {
        "a0": {"seed": 0, "width": 8},
        "b0": {"seed": 0, "width": 16},
        "a1": {"seed": 1, "width": 8},
        "c": {"width": 8},
        "d": {"width": 8},
        "e1": {"seed": 1, "width": 8},
        "f0": {"seed": 0, "width": 8},
    }
    runs = []
    for name, run_options in options.items():
        predictions = random_scores(layout, rng, 2.0)
        runs.append(write_run(tmp_path / name, layout, predictions, **run_options))
    trained_elsewhere = read_manifest(tmp_path / "e1")
    inputs = {**trained_elsewhere["inputs"], "features": "others"}
    again = Artifact(tmp_path / "e1", trained_elsewhere["settings"], inputs)
    again.finish(["predictions.npz"], valid=trained_elsewhere["valid"])
    manifests = {name: read_manifest(tmp_path / name) for name in options}
    assert models_of(manifests) == {n[0]: n for n in (["a0", "a1"], ["b0"], ["c"], ["d"], ["e1"], ["f0"])}
    members = build_ensemble(ensemble_settings(layout, tmp_path / "all", runs))["members"]
    assert {name: member["model"] for name, member in members.items()} == {name: name for name in options} | {
        "a1": "a0"
    }
    assert members["a0"]["weight"] == members["a1"]["weight"]


def test_two_models_of_one_short_name_keep_their_full_names():
    manifests = {
        f"gnn-s{seed}": {"settings": {"seed": seed, "width": 8 + seed}, "inputs": {}} for seed in (0, 1)
    }
    assert models_of(manifests) == {"gnn-s0": ["gnn-s0"], "gnn-s1": ["gnn-s1"]}
    manifests["gnn-s1"]["settings"]["width"] = 8
    assert models_of(manifests) == {"gnn": ["gnn-s0", "gnn-s1"]}
    elsewhere = {"gnn-s1": manifests["gnn-s1"] | {"inputs": {"features": "others"}}}
    assert len(models_of(manifests | elsewhere)) == 2
    copies = {run: manifests["gnn-s0"] | {"code": "c"} for run in ("x/gnn-s0", "y/gnn-s0")}
    assert [*models_of(copies).values()] == [["x/gnn-s0"], ["y/gnn-s0"]]


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_an_ensemble_of_noisy_members(request, tmp_path, rng, kind, normalisation):
    features = request.getfixturevalue(kind)
    runs = [write_run(tmp_path / f"m{i}", features, random_scores(features, rng, 0.5)) for i in range(3)]
    manifest = build_ensemble(
        ensemble_settings(features, tmp_path / "both", runs, normalisation=normalisation)
    )
    members = manifest["members"]
    assert list(members) == ["m0", "m1", "m2"] and [m["folder"] for m in members.values()] == runs
    for run, member in zip(runs, members.values(), strict=True):
        assert member["valid"] == read_manifest(tmp_path / run)["valid"]["mean"]
    best = max(member["valid"] for member in members.values())
    used = sum(member["weight"] > 0 for member in members.values())
    assert manifest["valid"]["weights"] == f"{used} of 3 members"
    assert manifest["gain"] == manifest["valid"]["mean"] - best >= 0
    assert manifest["normalisation"] == normalisation
    predictions = read_predictions(tmp_path / "both")
    score = collection_score(kind, features.labels("valid"), predictions["valid"])
    assert score["mean"] == manifest["valid"]["mean"]
    parts = {name: read_predictions(tmp_path / name) for name in members}
    weights = {name: member["weight"] for name, member in members.items()}
    wanted = combine(parts, "test", manifest["normalisation"], weights)
    np.testing.assert_array_equal(predictions["test"]["t"], wanted["t"])


def test_equal_weights_are_of_models_and_shared_by_their_seeds():
    weights = equal_weights([["a0", "a1"], ["b"]])
    assert weights == {"a0": 0.25, "a1": 0.25, "b": 0.5}


def test_ensembles_of_ensembles_and_runs_of_one_name(layout, tmp_path, rng):
    runs = [write_run(tmp_path / part / "gnn", layout, random_scores(layout, rng)) for part in "xy"]
    inner = build_ensemble(ensemble_settings(layout, tmp_path / "inner", runs))
    assert set(inner["members"]) == set(runs)
    third = write_run(tmp_path / "z" / "gnn", layout, random_scores(layout, rng))
    outer = build_ensemble(ensemble_settings(layout, tmp_path / "outer", [str(tmp_path / "inner"), third]))
    assert list(outer["members"]) == ["inner", "gnn"]
    weights = [member["weight"] for member in outer["members"].values()]
    assert sum(weights) == pytest.approx(1) and min(weights) >= 0.25


def test_a_member_has_the_name_of_no_other_input(layout, tmp_path, rng):
    names = "data", "features", "m"
    runs = [write_run(tmp_path / name, layout, random_scores(layout, rng)) for name in names]
    made = build_ensemble(ensemble_settings(layout, tmp_path / "e", runs))
    assert list(made["members"]) == [*runs[:2], "m"]
    assert made["inputs"]["data"] == layout.data and made["inputs"]["features"] == layout.fingerprint
    assert [*map(str, find_members(tmp_path / "e", made).values())] == runs


def test_a_member_without_folds_beside_others_is_named(layout, tmp_path, rng):
    """Of models of one's own the setting ``folds`` has no meaning: a file shows what was left out."""
    left_out = {
        name: rng.random(len(layout.graph("train", name).config_row)) for name in layout.names("train")
    }
    runs = []
    for name in ("folded", "whole"):
        held_out = left_out if name == "folded" else None
        write_custom(tmp_path / name, layout, random_scores(layout, rng), held_out, model=name)
        runs.append(str(tmp_path / name))
    made = build_ensemble(ensemble_settings(layout, tmp_path / "e", runs))
    warning = "weights are searched on valid: whole left out no train programs (folds)"
    assert made["warnings"] == [warning]
    assert not build_ensemble(ensemble_settings(layout, tmp_path / "one", runs[1:]))["warnings"]


def test_models_of_ones_own_choose_weights_on_what_they_left_out(layout, tmp_path, rng):
    """The better one on left-out train programs has all the weight, though it is the worse one on valid."""
    runs = []
    for name, sign in (("good", 1), ("bad", -1)):
        left_out = {
            graph: sign * layout.graph("train", graph).file_runtime for graph in layout.names("train")
        }
        write_custom(tmp_path / name, layout, random_scores(layout, rng), left_out, model=name)
        runs.append(str(tmp_path / name))
    made = build_ensemble(ensemble_settings(layout, tmp_path / "e", runs))
    assert {name: member["weight"] for name, member in made["members"].items()} == {"good": 1, "bad": 0}
    assert "chosen on left-out train programs" in made["valid"]["weights"]


def test_it_is_built_again_only_where_a_member_changed(layout, tmp_path, rng):
    runs = [write_run(tmp_path / f"m{i}", layout, random_scores(layout, rng)) for i in range(2)]
    settings = ensemble_settings(layout, tmp_path / "e", runs)
    build_ensemble(settings)
    made = (tmp_path / "e" / "predictions.npz").stat().st_mtime_ns
    build_ensemble(ensemble_settings(layout, tmp_path / "e", runs[::-1]))
    assert (tmp_path / "e" / "predictions.npz").stat().st_mtime_ns == made
    folder = tmp_path / "m1"
    Artifact(folder, {"collection": layout.collection.name, "seed": 1}, {"data": layout.data}).finish(
        ["predictions.npz"], valid={"mean": 0.0, "per_graph": {"v": 0.0}}
    )
    assert not settings.artifact().is_current()
    assert not ensemble_settings(layout, tmp_path / "e", runs, max_models=3).artifact().is_current()


@cases("file", ["predictions.npz", "held_out.npz"])
def test_a_member_that_was_trained_again_to_other_values_changed(layout, tmp_path, rng, file):
    """Its settings, inputs and code are the same, and so its fingerprint."""
    run = write_run(tmp_path / "m", layout, random_scores(layout, rng))
    settings = ensemble_settings(layout, tmp_path / "e", [run])
    older = read_manifest(tmp_path / "m")["fingerprint"]
    made = build_ensemble(settings)
    change_json(tmp_path / "m/manifest.json", lambda run: run["outputs"].update({file: {"sha256": "1"}}))
    reseal(tmp_path / "m")
    assert not settings.artifact().is_current()
    with pytest.raises(DataError, match="its member .*m is missing, or was trained again since"):
        find_members(tmp_path / "e", made)
    made["inputs"]["m"] = older
    assert list(find_members(tmp_path / "e", made)) == ["m"], "as before, when it was the fingerprint"


def test_a_member_of_another_collection_is_refused_by_name(layout, tmp_path, rng):
    """``tests/bad_input`` has the members that are damaged."""
    scores = random_scores(layout, rng)
    runs = [write_run(tmp_path / "good", layout, scores)]
    runs += [write_run(tmp_path / "bad", layout, scores, collection="layout:nlp:random")]
    with pytest.raises(
        DataError, match=f"^{tmp_path / 'bad'}.*: is a run of layout:nlp:random, not of layout:xla"
    ):
        build_ensemble(ensemble_settings(layout, tmp_path / "e", runs))
    assert not (tmp_path / "e" / "manifest.json").exists()


def test_models_of_ones_own_are_members_beside_those_of_the_run(layout, tmp_path, rng, monkeypatch):
    tmp_path = tmp_path / "[a]*"  # the name of a folder above them is no pattern
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    runs, scores = tmp_path / "runs" / "r", random_scores(layout, rng)
    first = write_run(runs / "gnn", layout, scores)
    for path in (runs / "mine", tmp_path / "runs" / "own" / "trees", tmp_path / "runs" / "own" / "net"):
        write_run(path, layout, random_scores(layout, rng), model=path.name)
    write_run(tmp_path / "runs" / "own" / "tiles", layout, scores, collection="tile:xla")
    Artifact(runs / "training", {"model": "gnn"}, {}).finish()
    ours = runs / "gnn-s1"
    write_run(ours, layout, scores)
    change_json(ours / "manifest.json", lambda made: made.update(code={"fastslow.networks": "1"}))
    reseal(ours)
    settings = ensemble_settings(layout, runs / "e", [first], extra="runs/own/*,runs/r/*")
    settings.check_extra()
    manifest = build_ensemble(settings)
    assert [*manifest["members"]] == ["gnn", "net", "trees", "mine"]
    assert manifest["members"]["net"]["folder"] == "runs/own/net"
    elsewhere = [tmp_path / "runs" / "own" / name for name in ("net", "trees")]
    folders = [*find_members(runs / "e", manifest).values()]
    assert folders == [runs / "gnn", *elsewhere, runs / "mine"]
    assert settings.artifact().is_current()
    assert [*build_ensemble(settings)["members"]] == [*manifest["members"]], "it is no member of itself"
    with pytest.raises(SettingsError, match=r"extra: .* of run folders \(runs/owm/\* matches none\)"):
        settings.replace(extra=["runs/owm/*"]).check_extra()


@cases(
    "damage, said",
    [
        (lambda scores: scores["test"].clear(), "no predictions for test graph t"),
        (lambda scores: scores["valid"].update(v=np.ones(3)), r"graph v has predictions of shape \(3,\)"),
        (lambda scores: scores["test"]["t"].fill(np.nan), "test graph t has a prediction that is not finite"),
        (
            lambda scores: scores["test"].update(t=scores["test"]["t"] > 0),
            "test graph t has predictions of type bool, float64 wanted",
        ),
        ("predictions.npz", "lost"),
        ("manifest.json", "not finished"),
        ({"collection": "layout:xla:mine"}, "collection is 'layout:xla:mine'"),
        ({"data": "0" * 16}, "trained on other data files than the features"),
    ],
)
def test_a_broken_model_of_ones_own_is_refused_by_name(layout, tmp_path, damage, said):
    scores, folder = random_scores(layout, np.random.default_rng(0)), tmp_path / "own" / "bad"
    good = write_run(tmp_path / "good", layout, scores)
    write_run(folder, layout, scores, **(damage if isinstance(damage, dict) else {}))
    if isinstance(damage, str):
        (folder / damage).unlink()
    elif callable(damage):
        damage(scores)
        overwrite_predictions(folder, scores)
    with pytest.raises(DataError, match=f"^{folder}.*{said}"):
        ensemble_settings(layout, tmp_path / "e", [good], extra=[f"{tmp_path}/own/*"]).check_extra()


@cases(
    "options, said",
    [
        ({"runs": ["r/a", "r/b", "r/../r/a"]}, "runs: .* without repetition"),
        ({"runs": ["r/a", 3]}, "runs: 3 in the list is a whole number, a text wanted"),
        ({"max_models": 0}, "max_models: 0"),
        ({"normalisation": "softmax"}, "normalisation: 'softmax' is not one of min_max, rank, raw"),
    ],
)
def test_wrong_settings_are_refused(options, said):
    with pytest.raises(SettingsError, match=said):
        EnsembleSettings(**options)
