"""What is said of a ranker: importances, contributions, layouts."""

import numpy as np
import pytest

from fastslow.core.errors import SettingsError
from fastslow.features.build import FeatureSettings, build_features
from fastslow.rankers.settings import RankerSettings
from fastslow.rankers.train import train_ranker
from fastslow.views import ranker_explanations
from fastslow.views.ranker_explanations import (
    ExplainSettings,
    Explanation,
    plot_contributions,
    plot_importances,
    plot_layout_effects,
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
    table = explanation.permutation()
    assert table["drop"].is_monotonic_decreasing and not table["column"].str.startswith("graph_").any()


def test_contributions_tell_the_differences_of_scores(explanation):
    total = explanation.contributions.to_numpy().sum(1)
    if explanation.fitted.objective == "regression":  # what is left out is the same for all
        np.testing.assert_allclose(np.diff(total), np.diff(explanation.predictions), atol=1e-9)
    assert len(total) == len(explanation.predictions)


def test_layout_effects_against_plain_means(explanation):
    effects = explanation.layout_effects(min_configs=1)
    assert effects["effect"].is_monotonic_decreasing
    graph = explanation.features.graph("valid", explanation.name)
    score = (explanation.predictions - explanation.predictions.mean()) / explanation.predictions.std()
    for row in effects.itertuples():
        node = graph.config_index.tolist().index(row.node)
        role = ("output", "input", "kernel").index(row.tensor)
        layouts = graph.layouts[graph.expand(graph.choices.layout_codes())[:, node, role]]
        wanted = [-1] * 6 if row.layout == "compiler" else [int(a) for a in row.layout.strip("{}").split(",")]
        has = np.array([[a for a in layout if a >= 0] == [a for a in wanted if a >= 0] for layout in layouts])
        assert row.configs == has.sum()
        assert row.effect == pytest.approx(score[has].mean() - score[~has].mean())
        assert row.sizes == " x ".join(str(s) for s in graph.tensor_sizes[node, role] if s)


def test_plots_show_the_most_important_columns(explanation, monkeypatch):
    monkeypatch.setattr(ranker_explanations, "_COLUMNS", 4)
    left, _ = plot_importances(explanation).axes
    assert [label.get_text() for label in left.get_yticklabels()][::-1] == explanation.gain["column"][
        :4
    ].tolist()
    dots = plot_contributions(explanation).axes[0]
    assert len(dots.get_yticklabels()) == 4
    assert plot_layout_effects(explanation).axes[0].get_title().startswith(explanation.name)


def test_an_unknown_graph_is_refused(explanation):
    settings = ExplainSettings(
        run=explanation.settings.run, features=explanation.settings.features, graph="x"
    )
    with pytest.raises(SettingsError, match="graph: 'x' is not one of v"):
        Explanation(settings)
