"""What is said of a ranker: importances and contributions."""

import shutil

import numpy as np
import pytest

from fastslow.core.errors import SettingsError
from fastslow.core.settings import resolve
from fastslow.steps.features import FeatureSettings, build_features
from fastslow.steps.ranker import train_ranker
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.views import ranker_explanations
from fastslow.views.ranker_explanations import (
    ExplainSettings,
    Explanation,
    plot_contributions,
    plot_importances,
    plot_spread,
)
from helpers.competition_files import write_data_root


@pytest.fixture(scope="module", params=["regression", "pairwise"])
def explanation(request, tmp_path_factory):
    """A ranker of made-up programs, explained."""
    root = write_data_root(tmp_path_factory.mktemp("data"), "layout:xla:random", train=("a", "b", "c"))
    features, run = str(root / "features"), str(root / "run")
    build_features(FeatureSettings(data_root=str(root), folder=features, workers=1))
    options = {
        "objective": request.param,
        "train_on": "collection",
        "num_iterations": 8,
        "min_data_in_leaf": 1,
        "num_threads": 1,
    }
    train_ranker(RankerSettings(features=features, folder=run, **options))
    return Explanation(ExplainSettings(run=run, features=features))


def test_gain_is_shared_out(explanation):
    assert explanation.gain["gain"].sum() == pytest.approx(1)
    assert explanation.gain["gain"].is_monotonic_decreasing


def test_shuffling_moves_a_feature_within_its_graph_alone(explanation):
    feature = "violation_ratio"
    shuffled = explanation._shuffled(feature, 0)
    for before, after in zip(explanation.table.rows, shuffled.rows, strict=True):
        for position, column in enumerate(explanation.table.columns):
            if column in (feature, f"{feature}_above_least"):
                np.testing.assert_array_equal(np.sort(after[:, position]), np.sort(before[:, position]))
            else:
                np.testing.assert_array_equal(after[:, position], before[:, position])
    table = explanation.permutation
    assert table["drop"].is_monotonic_decreasing and not table["column"].str.startswith("graph_").any()


def test_contributions_tell_the_differences_of_scores(explanation):
    total = explanation.contributions.to_numpy().sum(1)
    if explanation.fitted.objective == "regression":  # what is left out is the same for all
        np.testing.assert_allclose(np.diff(total), np.diff(explanation.predictions), atol=1e-9)
    assert len(total) == len(explanation.predictions)


def test_plots_show_the_most_important_columns(explanation, monkeypatch):
    monkeypatch.setattr(ranker_explanations, "_COLUMNS", 4)
    left, _ = plot_importances(explanation).axes
    assert [label.get_text() for label in left.get_yticklabels()][::-1] == explanation.gain["column"][
        :4
    ].tolist()
    figure = plot_contributions(explanation)
    assert figure.get_suptitle().endswith(f": {explanation.contributions.columns[0][:40]} moves it most")
    dots = figure.axes[0]
    assert len(dots.get_yticklabels()) == 4


def test_an_unknown_graph_is_refused(explanation):
    settings = ExplainSettings(
        run=explanation.settings.run, features=explanation.settings.features, graph="x"
    )
    with pytest.raises(SettingsError, match="graph: 'x' is not one of v"):
        Explanation(settings)


def test_the_importance_is_compared_over_seeds_and_runs(explanation, tmp_path, monkeypatch):
    """A copy is the same ranker: its features cost it the same."""
    monkeypatch.setattr(ranker_explanations, "_COMPARED", 3)
    run = resolve(explanation.settings.run)
    for name in ("mine/ranker-x-s0", "mine/ranker-x-s1", "theirs/ranker-x-s0"):
        shutil.copytree(run, tmp_path / name)
    given = {"run": str(tmp_path / "mine/ranker-x-s1"), "others": [str(tmp_path / "theirs")]}
    settings = explanation.settings.replace(**given)
    table = Explanation(settings, explanation.all_columns).spread()
    rankers = table[["run", "ranker"]].drop_duplicates().to_numpy().tolist()
    assert rankers == [["mine", "ranker-x-s0"], ["mine", "ranker-x-s1"], ["theirs", "ranker-x-s0"]]
    columns = explanation.permutation["column"].head(3)
    assert table["column"].tolist() == 3 * columns.tolist()
    assert table.groupby("column")["drop"].nunique().max() == 1
    as_drawn = explanation.permutation["drop"].head(len(columns))  # one ranker, one number in both figures
    np.testing.assert_array_equal(table["drop"].head(len(columns)), as_drawn)
    figure = plot_spread(table)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mine", "theirs"]
    assert figure.get_suptitle().endswith("features are needed by all of 3 rankers")
    alone = Explanation(settings.replace(others=[str(tmp_path)]), explanation.all_columns)
    with pytest.raises(SettingsError, match=r"others: .* folders of runs that hold ranker-x-s\[0-9\]\*"):
        alone.spread()


def test_a_ranker_of_other_features_is_refused(explanation):
    fewer = explanation.all_columns.select(explanation.all_columns.columns[1:])
    with pytest.raises(SettingsError, match="run: .* reads columns that .* lacks: "):
        Explanation(explanation.settings, fewer)
