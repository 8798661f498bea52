"""The report on configuration features against runtime."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from fastslow.core.errors import SettingsError
from fastslow.views import feature_figures
from fastslow.views.feature_figures import ViolationSettings, correlate, plot_violation
from helpers.cases import cases


@cases("panels", [1, 2, 4, 12])
def test_a_panel_a_graph(features, panels, monkeypatch):
    monkeypatch.setattr(feature_figures, "_PANELS", panels)
    settings = ViolationSettings(features=str(features.folder))
    figure = plot_violation(settings)
    shown = [axes for axes in figure.axes if axes.axison]
    names = features.names("train")[:panels]
    assert [axes.get_title().split("\n")[0] for axes in shown] == names
    position = features.config_columns.index("violation_ratio")
    for axes, name in zip(shown, names, strict=True):
        graph = features.graph("train", name)
        wanted = np.stack([graph.config_feat[:, position], graph.runtime / min(graph.runtime)], 1)
        np.testing.assert_allclose(axes.collections[0].get_offsets(), wanted)
        tau = kendalltau(graph.runtime, graph.config_feat[:, position]).statistic
        assert axes.get_title().endswith(f"tau {0 if np.isnan(tau) else tau:+.2f}")
        assert axes.get_xlabel() == "violation ratio"


def test_correlations_of_every_feature(features):
    taus = correlate(ViolationSettings(features=str(features.folder)))
    name = features.names("train")[0]
    assert list(taus.index) == features.names("train") and list(taus.columns) == features.config_columns
    graph = features.graph("train", name)
    for position, column in enumerate(taus.columns):
        tau = kendalltau(graph.runtime, graph.config_feat[:, position]).statistic
        assert taus.loc[name, column] == pytest.approx(0 if np.isnan(tau) else tau)


def test_an_unknown_column_is_refused(features):
    with pytest.raises(SettingsError, match="column: 'violations' is not one of violation_ratio"):
        plot_violation(ViolationSettings(features=str(features.folder), column="violations"))
