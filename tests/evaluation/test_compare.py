import shutil

import numpy as np
import pandas as pd
import pytest

import fastslow
from fastslow.competition.metrics import ALL_METRICS, mean_metrics, ranking_tau, tile_score
from fastslow.core.artifacts import Artifact
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.figures import MODEL_COLOURS
from fastslow.core.files import read_json, write_json
from fastslow.core.settings import resolve
from fastslow.evaluation.compare import (
    CompareSettings,
    compare_models,
    compare_runs,
    comparison_table,
)
from fastslow.evaluation.compare_plots import plot_comparison, plot_differences
from fastslow.evaluation.paired import paired_results
from fastslow.evaluation.scores import OPTIMISTIC
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import read_predictions
from fastslow.workflow.compare import compare, compare_two
from helpers.good_artifacts import reseal
from helpers.runs import make_features, overwrite_predictions, random_scores, write_run

LAYOUT, TILE = "layout:xla:random", "tile:xla"


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return make_features(tmp_path_factory.mktemp("features"), LAYOUT)


@pytest.fixture
def settings(features, tmp_path, monkeypatch):
    """Two runs of a collection, one of them nearer to the truth."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    rng = np.random.default_rng(0)
    runs = {
        name: write_run(tmp_path / "runs" / name, features, random_scores(features, rng, noise), model=name)
        for name, noise in (("near", 0.01), ("far", 2.0))
    }
    return CompareSettings(
        one=runs["near"], other=runs["far"], features=str(features.folder), data_root=str(tmp_path)
    )


def test_models_of_programs_with_other_runtimes_are_refused(home, monkeypatch):
    """Scores by other runtimes do not compare. Where the features of one are missing, a sentence says so."""
    shutil.copytree(home / "features" / "smoke", home / "features" / "old")
    shutil.copytree(home / "runs" / "smoke", home / "runs" / "old")
    for folder in ("ensemble-layout-xla-random", "ranker-layout-xla-random-s0"):
        path = home / "runs" / "old" / folder
        manifest = read_json(path / "manifest.json")
        write_json(path / "manifest.json", manifest | {"inputs": manifest["inputs"] | {"data": "0" * 16}})
        reseal(path)
    model = "ranker-layout-xla-random-s0"
    same = fastslow.compare(f"smoke/{model}", f"old/{model}")
    assert same.words()[1:] == [OPTIMISTIC], "the runtimes are the same"
    labels = Features.labels

    def doubled(self, split):
        of = labels(self, split)
        return {name: 2 * runtime for name, runtime in of.items()} if "old" in str(self.folder) else of

    monkeypatch.setattr(Features, "labels", doubled)
    with pytest.raises(DataError, match=f"old/{model}: graph .*: scored on other runtimes than .*smoke"):
        fastslow.compare(f"smoke/{model}", f"old/{model}")
    shutil.rmtree(home / "features" / "old")
    (*_, doubt) = fastslow.compare(f"smoke/{model}", f"old/{model}").words()
    assert doubt.startswith("not known: whether both were scored on the same runtimes of layout-xla-random")


def test_a_program_that_only_one_has_runtimes_of_raises_no_doubt(features, tmp_path, monkeypatch):
    """Such as after features were built again from fewer files."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    for run in ("one", "two"):
        scores = random_scores(features, np.random.default_rng(0))
        write_run(tmp_path / "runs" / run / "model", features, scores, data=run)
        shutil.copytree(features.folder, tmp_path / "features" / run / "layout-xla-random")
    pair = CompareSettings(one="one/model", other="two/model")
    labels = features.labels("valid")
    fewer = {"w": labels["w"]}
    for run in ("one", "two"):

        def of_folder(self, split, lacking=run):
            return fewer if lacking in self.folder.parts else labels

        monkeypatch.setattr(Features, "labels", of_folder)
        assert compare_models(pair).words()[-1] == OPTIMISTIC


def test_two_runs_are_compared_graph_by_graph(settings, features, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # the names are long paths
    (table,) = compare_runs(settings).programs.values()
    truth = features.labels("valid")
    for column in ("one", "other"):
        predictions = read_predictions(resolve(getattr(settings, column)))["valid"]
        assert table[column].to_dict() == {g: ranking_tau(truth[g], predictions[g]) for g in truth}
    difference = table["one"] - table["other"]
    assert table["difference"].tolist() == sorted(difference)
    (facts,) = compare_models(settings).results.to_dict("records")
    assert facts["difference"] == pytest.approx(difference.mean())
    assert facts["standard_error"] == pytest.approx(abs(difference.iloc[0] - difference.iloc[1]) / 2)
    assert (facts["higher"], facts["equal"], facts["lower"]) == (2, 0, 0)
    printed = capsys.readouterr().out
    assert (
        f" {facts['difference']:+.4f} ± {facts['standard_error']:.4f} " in printed and "| 2, 0, 0 " in printed
    )
    assert not any(f"| {graph} " in printed for graph in truth), "programs are printed with all=True"
    compare_runs(settings.replace(all=True))
    printed = capsys.readouterr().out
    assert all(f"| {graph} " in printed for graph in truth) and "runs/near minus runs/far: " in printed
    plot = tmp_path / "runs" / "comparisons" / "runs-near--runs-far--competition-valid.png"
    assert plot.stat().st_size > 5000
    shutil.rmtree(plot.parent)
    plot.parent.touch()  # no plot can be written there
    assert compare_runs(settings).results.equals(compare_models(settings).results)
    said = capsys.readouterr()
    assert " too few programs for a verdict" in said.out and "plot: " not in said.out
    assert said.err.startswith("warning: ") and "is no folder" in said.err


def test_a_manifest_with_the_scores_of_other_programs_is_refused(settings):
    """A missing score made the mean difference NaN, and a winner was named."""
    folder = resolve(settings.other)
    manifest = read_json(folder / "manifest.json")
    scores = manifest["valid"]["per_graph"]
    for odd, said in (
        ({"w": scores["w"]}, "lacks a score of v"),
        (scores | {"x": 0.0}, "scores x, which it does not predict"),
        ({"a": 0.0, "w": scores["w"]}, "scores a, which it does not predict"),
    ):
        valid = {"mean": sum(odd.values()) / len(odd), "per_graph": odd}
        write_json(folder / "manifest.json", manifest | {"valid": valid})
        reseal(folder)
        with pytest.raises(DataError, match=f"manifest.json: valid.per_graph {said}. Train this model again"):
            compare_runs(settings)


@pytest.mark.usefixtures("undrawn")
def test_a_run_is_compared_without_its_features(settings, features, tmp_path):
    """As one that was fetched from Kaggle: the runs hold the scores of valid, the solution those of test."""
    (table,) = compare_runs(settings).programs.values()
    bare = settings.replace(features="")
    (again,) = compare_runs(bare).programs.values()
    pd.testing.assert_frame_equal(table, again)
    rows = [
        "ID,config_index,runtime",
        *(f"{LAYOUT}:t,{i},{9 + i}" for i in range(features.num_configs("test")["t"])),
    ]
    (tmp_path / "solution.csv").write_text("\n".join(rows) + "\n")
    (table,) = compare_runs(bare.replace(split="test")).programs.values()
    runtime = np.arange(features.num_configs("test")["t"])
    predictions = [read_predictions(resolve(run))["test"]["t"] for run in (bare.one, bare.other)]
    taus = [ranking_tau(runtime, predicted) for predicted in predictions]
    assert table[["one", "other"]].to_dict("index") == {"t": dict(zip(("one", "other"), taus, strict=True))}
    remedy = "Build it with `make features NAME=runs`.* leave metric out"
    with pytest.raises(
        SettingsError, match=f"metric: opa on valid .*features/runs/layout-xla-random, which.*{remedy}"
    ):
        compare_runs(bare.replace(metric="opa"))


@pytest.mark.usefixtures("undrawn")
def test_programs_without_a_counterpart_are_named_and_the_others_compared(settings, features, tmp_path):
    """Such as of a run made with MODELS=, which predicts 1,000 of a program's, or one with skip_valid."""
    (whole,) = compare_models(settings).programs.values()
    far = tmp_path / "runs" / "far"
    scores = read_predictions(far)
    count = features.num_configs("valid")["v"]
    scores["valid"]["v"] = scores["valid"]["v"][1:]
    overwrite_predictions(far, scores)
    why = "of which the two predict other configurations, or one of them none"
    for metric in ("competition", "tau"):
        found = compare_models(settings.replace(metric=metric))
        assert f"not compared: 1 program of xla:random, {why}: v" in found.words()
        pd.testing.assert_frame_equal(found.programs["near"], whole.loc[["w"]])
    scores["valid"]["w"] = scores["valid"]["w"][1:]
    overwrite_predictions(far, scores)
    with pytest.raises(
        DataError, match=r"runs/far: predicts no program with as many .*\. Compare models of the same"
    ):
        compare_runs(settings)
    assert count == features.num_configs("valid")["v"]
    (tmp_path / "solution.csv").write_text(f"ID,config_index,runtime\n{LAYOUT}:t,0,9\n")
    with pytest.raises(DataError, match=rf"runs/near: graph t: \d+ predictions, {tmp_path} has 1"):
        compare_runs(settings.replace(split="test"))


@pytest.mark.usefixtures("undrawn")
def test_two_runs_are_compared_by_collection(features, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    rng = np.random.default_rng(0)
    for name, noise in (("one", 0.01), ("two", 2.0)):
        scores = random_scores(features, rng, noise)
        write_run(tmp_path / "runs" / name / "ensemble-layout-xla-random", features, scores, model="ensemble")
    runs = {"one": "runs/one", "other": "runs/two", "features": str(features.folder)}
    assert [*compare_runs(CompareSettings(**runs)).programs] == ["ensemble-layout-xla-random"]
    assert "| mean of" not in capsys.readouterr().out, "a single collection"
    other = tmp_path / "runs" / "one" / "ensemble-layout-nlp-random"
    shutil.copytree(tmp_path / "runs" / "one" / "ensemble-layout-xla-random", other)
    named = runs | {"one": "one", "other": "two"}
    assert [*compare_runs(CompareSettings(**named)).programs] == ["ensemble-layout-xla-random"]
    pictures = tmp_path / "runs" / "comparisons"
    assert (pictures / "one--two--competition-valid-differences.png").is_file()
    models = {name: f"runs/{name}/ensemble-layout-xla-random" for name in ("one", "two")}
    compare_runs(CompareSettings(one=models["one"], other=models["two"]))
    both = "one-ensemble-layout-xla-random--two-ensemble-layout-xla-random"
    assert (pictures / f"{both}--competition-valid-differences.png").is_file()
    errors = CompareSettings(**runs, metric="top_1_error")
    (table,) = compare_two(errors).programs.values()
    assert table["difference"].is_monotonic_decreasing, "the worst for the first one first"
    (figure,) = compare_two(errors).figures()
    assert "one is better" in figure.axes[0].get_xlabel()
    said = capsys.readouterr().out
    assert "mean score on valid: too few programs for a verdict (2, 6 are needed)" in said
    assert "not compared: layout:nlp:random (only one has it)" in said
    part = tmp_path / "runs" / "part"
    for name in ("ranker-layout-xla-random-s0", "gnn-layout-xla-random-s0"):
        write_run(part / name, features, random_scores(features, rng, 1.0))
    of_part = "name one of its models, such as part"
    for other, problem in (
        (
            "two/ensemble-layout-xla-random",
            "runs/one is a run, two/ensemble-layout-xla-random is one model of layout:xla:random. Compare "
            "two runs, or give one/ensemble-layout-xla-random and two/ensemble-layout-xla-random",
        ),
        ("part/rankr", f"'part/rankr' is no run, .*; {of_part}/gnn"),
        ("part", f"'part' is no folder .*, and no run with ensembles; {of_part}/gnn"),
        ("tow", "'tow' is no run, model or submission; .*; did you mean 'two'"),
    ):
        with pytest.raises(SettingsError, match=f"other: .*{problem}"):
            compare_runs(CompareSettings(**runs | {"other": other}))


@pytest.mark.usefixtures("undrawn")
def test_models_with_seeds_are_compared_over_their_collections(features, tmp_path, monkeypatch, capsys):
    """By the mean over seeds, as the leaderboard lists them: runs of one model, and a model of a run."""
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    rng = np.random.default_rng(0)
    collections = ("layout:xla:default", "layout:xla:random")
    made = {}
    for model, noise, of in (
        ("alpha", 0.01, collections),
        ("beta", 2.0, collections),
        ("one", 1.0, [LAYOUT]),
    ):
        for name in of:
            for seed in range(3):
                folder = tmp_path / "runs" / model / f"{model}-{name.replace(':', '-')}-s{seed}"
                made[model, name, seed] = random_scores(features, rng, noise)
                write_run(folder, features, made[model, name, seed], name, model=model, seed=seed)
    truth = features.labels("valid")
    found = fastslow.compare("alpha", "beta")
    assert [*found.programs] == [f"alpha-{name.replace(':', '-')}" for name in collections]
    for label, table, name in zip(found.results.index, found.programs.values(), collections, strict=False):
        for column, model in (("one", "alpha"), ("other", "beta")):
            taus = pd.DataFrame(
                {g: ranking_tau(truth[g], made[model, name, seed]["valid"][g]) for g in truth}
                for seed in range(3)
            )
            assert table[column].to_dict() == pytest.approx(taus.mean().to_dict())
            assert found.results.loc[label, column] == pytest.approx(taus.mean(axis=None))
            assert found.results.loc[label, f"{column}_seeds"] == pytest.approx(taus.mean(axis=1).std())
    assert found.results.loc["mean of 2", "other_seeds"] > 0 and "(0." in found.table["beta"].iloc[-1]
    for name, column in (("alpha", "one"), ("beta", "other")):
        assert found.table[name].iloc[0].startswith(f"{found.results[column].iloc[0]:.3f} (")
    assert "a score is the mean of the seeds; in brackets: their standard deviation" in found.words()
    for typed in ("alpha/alpha", "runs/alpha/alpha", "runs/alpha"):
        pd.testing.assert_frame_equal(fastslow.compare(typed, "beta").results, found.results)
    for typed, kind in (("one", "a run"), ("one/one", "a model of a run")):
        said = f"other: {typed} is {kind}, .* layout:xla:default, which {typed} has not"
        with pytest.raises(SettingsError, match=said):
            fastslow.compare(typed, "beta/beta-layout-xla-default-s0")
    assert "layout:xla:default (only beta has it)" in " ".join(fastslow.compare("one", "beta").words())
    titles = []
    monkeypatch.setattr(
        "fastslow.evaluation.compare_plots.plot_comparison",
        lambda table, names, title, models: titles.append(title) or plot_comparison(table, names, title),
    )
    compare_runs(CompareSettings(one="alpha/alpha", other="beta"))
    assert not any("better" in title or "chance" in title for title in titles)
    both = [f"alpha/{a} minus beta/{a.replace('alpha', 'beta')}" for a in found.programs]
    assert [title.partition(":")[0] for title in titles] == both
    pictures = {path.name for path in (tmp_path / "runs" / "comparisons").iterdir()}
    assert pictures == {
        "alpha-alpha--beta--competition-valid-differences.png",
        *(f"alpha-{a}--beta-{a.replace('alpha', 'beta')}--competition-valid.png" for a in found.programs),
    }
    seeds = [f"alpha/alpha-layout-xla-random-s{seed}" for seed in range(2)]
    for other in seeds:  # the first one with itself, too
        compare_runs(CompareSettings(one=seeds[0], other=other))
    picture = "--".join(name.replace("/", "-") for name in seeds)
    assert resolve(f"runs/comparisons/{picture}--competition-valid-differences.png").is_file()
    compare_runs(CompareSettings(one="one", other="beta"))
    assert titles[-1].startswith("too few programs for a verdict"), "of a single collection"
    kept = found.record()
    assert kept["results"][-1]["programs"] == 2 and kept["words"] == found.words()


def test_what_a_comparison_does_not_read_is_refused(settings, tmp_path):
    plain = {"one": settings.one, "other": settings.other}
    csv = tmp_path / "a.csv"
    csv.write_text("ID,TopConfigs\n")
    submissions = {"one": str(csv), "other": str(csv)}
    for given, said in (
        (plain | {"data_root": "no"}, "data_root: 'no' has no effect on valid, .* or give split=test"),
        (plain | {"features": "no"}, "features: 'no' has no effect .* or give split=valid and a metric"),
        (submissions | {"metric": "tau"}, "metric: 'tau' has no effect on submissions, .*name two runs"),
        (submissions | {"split": "test"}, "split: 'test' has no effect on submissions"),
    ):
        with pytest.raises(SettingsError, match=said):
            compare_two(CompareSettings(**given))


def test_what_cannot_be_compared_is_refused(settings, tmp_path):
    kernels = make_features(tmp_path / "tile", TILE)
    scores = random_scores(kernels, np.random.default_rng(0))
    run = write_run(tmp_path / "runs" / "tile", kernels, scores)
    with pytest.raises(SettingsError, match="other: .* predicts tile:xla, .* layout:xla:random"):
        compare_runs(settings.replace(other=run))
    with pytest.raises(SettingsError, match=r"split: test needs solution\.csv in .*; give data_root=FOLDER"):
        compare_runs(settings.replace(split="test"))
    runtime = 10 + np.arange(kernels.num_configs("test")["t"])
    rows = [f"{TILE}:t,{config},{measured}\n" for config, measured in enumerate(runtime)]
    (tmp_path / "solution.csv").write_text("ID,config_index,runtime\n" + "".join(rows))
    on_test = settings.replace(one=run, other=run, split="test", features="")
    (table,) = compare_models(on_test).programs.values()
    assert table.loc["t", "one"] == tile_score(runtime, scores["test"]["t"])
    (tmp_path / "runs" / "training").mkdir()
    Artifact(tmp_path / "runs" / "training", {"model": "gnn", "kind": "layout"}, {}).finish()
    with pytest.raises(SettingsError, match="other: .*training is no model; name a model's folder"):
        compare_runs(settings.replace(other="runs/training"))


def test_every_metric_is_computed_for_every_graph():
    truth = {"a": np.array([3, 1, 2, 2]), "b": np.array([5, 4])}
    predictions = {"a": np.array([1.0, 1.0, 2.0, 0.0]), "b": np.array([2.0, 1.0])}
    one = mean_metrics({"a": truth["a"]}, {"a": predictions["a"]})
    both = mean_metrics(truth, predictions)
    other = {name: metric(truth["b"], predictions["b"]) for name, metric in ALL_METRICS.items()}
    assert [other["tau"], other["opa"], other["top_1_error"]] == [1, 1, 0]
    assert both == pytest.approx({name: (one[name] + other[name]) / 2 for name in ALL_METRICS})


@pytest.mark.parametrize("count", [1, 3])
def test_the_differences_of_all_collections_are_drawn_with_their_errors(count):
    lines = {
        f"c{i}": {"difference": 0.1 * i, "standard_error": 0.02 if i else np.nan} for i in range(count)
    } | ({"mean of 3": {"difference": 0.1, "standard_error": 0.01}} if count > 1 else {})
    rows = pd.DataFrame.from_dict(lines, orient="index")
    figure = plot_differences(rows, ("a" * 80, "b"), "a is better")
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [*lines]
    markers = [drawn.lines[0].get_marker() for drawn in axes.containers]
    assert markers == (["o"] if count == 1 else ["o", "o", "o", "D"]), "a diamond is a mean"
    for drawn, line in zip(axes.containers, lines.values(), strict=True):
        mean, error = line["difference"], line["standard_error"]
        assert drawn.has_xerr == (error > 0)
        if drawn.has_xerr:
            assert drawn.lines[2][0].get_segments()[0][:, 0] == pytest.approx([mean - error, mean + error])
    told = [text.get_text() for text in axes.texts]
    assert told[0] == "+0.0000" and (count == 1 or told[1] == "+0.1000 ± 0.0200")
    assert figure.get_suptitle() == "a is better" and "±" in axes.get_xlabel()
    long = plot_differences(rows, ("a" * 80, "b" * 80), "a is better").axes[0].get_xlabel().split("\n")
    assert long[0].startswith("← bbb") and long[0].endswith("better"), "an arrow stays beside its name"
    assert long[1].startswith("aaa") and long[1].endswith("is better →")
    errors = plot_differences(rows, ("a", "b"), "a is better", "top_5_error")
    sides = [drawn.axes[0].get_xlabel().splitlines()[0] for drawn in (figure, errors)]
    assert sides[0].startswith("← b is better") and sides[1].startswith("← a is better")


@pytest.mark.parametrize(
    "differences, drawn, said",
    [
        ([0.0] * 5, 0, "; not drawn: 5 with equal scores"),
        ([0.0, 0.1, -0.2], 2, "; not drawn: 1 with equal scores"),
        (np.linspace(0.1, 0.9, 100), 40, "; not drawn: 60 with smaller differences"),
        ([0.1, -0.1], 2, ""),
    ],
)
def test_the_programs_of_a_comparison_are_those_that_differ_most(differences, drawn, said):
    """Of 160 kernels of which two differ a picture of 160 rows showed nothing."""
    table = pd.DataFrame({"one": differences, "other": 0.0, "difference": differences})
    (axes,) = plot_comparison(table, ("a", "b"), "title").axes
    assert len(axes.get_yticklabels()) == drawn and axes.get_xlabel() == f"score of a program{said}"
    assert axes.axison == (drawn > 0), "axes without a dot have no numbers"
    if not drawn:
        assert [text.get_text() for text in axes.texts] == ["5 programs, and no score differs"]


def test_both_sides_of_a_comparison_have_the_colours_of_their_models():
    table = pd.DataFrame({"one": [0.1, 0.2], "other": 0.0, "difference": [0.1, 0.2]})
    for models in (("ensemble", "ensemble"), ("gnn", "ranker")):
        (axes,) = plot_comparison(table, ("a", "b"), "title", models).axes
        full, ring = axes.get_lines()
        assert [full.get_color(), ring.get_color()] == [MODEL_COLOURS[model] for model in models]
        assert full.get_markerfacecolor() != ring.get_markerfacecolor() == "white"


def test_the_scores_of_two_submissions_are_compared_row_by_row(tmp_path):
    """Each wins one layout program, and the first one the kernel."""
    orders = {
        "layout:nlp:default:a": ("0;1;2", "2;1;0"),
        "layout:nlp:default:b": ("2;1;0", "0;1;2"),
        "tile:xla:k": ("0;1;2;3;4", "5;6;7;8;9"),
    }
    csvs = [tmp_path / "one.csv", tmp_path / "other.txt"]  # a file of any ending is one
    for place, csv in enumerate(csvs):
        rows = [f"{name},{of_both[place]}\n" for name, of_both in orders.items()]
        csv.write_text("ID,TopConfigs\n" + "".join(rows))
    runtimes = [
        f"{name},{config},{10 + config}\n"
        for name in orders
        for config in range(10 if name.startswith("tile") else 3)
    ]
    (tmp_path / "solution.csv").write_text("ID,config_index,runtime\n" + "".join(runtimes))
    given = CompareSettings(one=str(csvs[0]), other=str(csvs[1]), data_root=str(tmp_path))
    found = compare_two(given)
    rows = found.programs["layout-nlp-default"].to_dict("index")
    assert [*rows.items()] == [
        ("layout:nlp:default:b", {"one": -1, "other": 1, "difference": -2}),
        ("layout:nlp:default:a", {"one": 1, "other": -1, "difference": 2}),
    ]
    means = found.results[["one", "other", "difference"]]
    assert means.loc["nlp:default"].tolist() == [0, 0, 0]
    assert means.loc["tile:xla"].tolist() == pytest.approx([1, 0.5, 0.5])
    assert means.loc["mean of 2"].tolist() == pytest.approx([0.5, 0.25, 0.25])
    with pytest.raises(DataError, match=r"lost\.csv: no such file"):
        compare_two(given.replace(other=str(tmp_path / "lost.csv")))


@pytest.mark.parametrize("one", ["mine.csv", "submissions/mine.csv", "mine"])
@pytest.mark.parametrize("typed", ["mien.csv", "submissions/mien.csv"])
def test_a_submission_that_is_not_there_is_the_one_that_the_error_names(tmp_path, monkeypatch, one, typed):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))
    (tmp_path / "submissions").mkdir()
    (tmp_path / "submissions/mine.csv").write_text("ID,TopConfigs\n")
    with pytest.raises(DataError, match=r"submissions/mien\.csv: no such file\. .*did you mean 'mine'"):
        compare_two(CompareSettings(one=one, other=typed))


def test_tables_call_runs_by_their_whole_name_and_submissions_without_csv():
    assert CompareSettings(one="runs/try.1", other="submissions/try.2.csv").names() == ("try.1", "try.2")
    assert CompareSettings(one="a/mine.csv", other="b/mine.csv").names() == ("a/mine.csv", "b/mine.csv")


def test_no_difference_has_no_minus():
    table = pd.DataFrame({"one": [0.5, 0.5], "other": [0.5 + 1e-9, 0.5]})
    results = paired_results({"a": table}).assign(one_seeds=np.nan, other_seeds=np.nan)
    assert comparison_table(results, ("a", "b")).loc[0, "a - b"] == "+0.0000 ± 0.0000"


@pytest.mark.parametrize("compared", [compare, compare_two])
def test_a_comparison_with_itself_is_warned_of(settings, capsys, compared):
    settings = CompareSettings(one=settings.one, other=settings.other)
    compared(settings.replace(other=settings.one))
    warned = f"warning: {settings.one} is compared with itself, so no difference is seen; name another one"
    assert warned in capsys.readouterr().err
    compared(settings)
    assert "itself" not in capsys.readouterr().err
