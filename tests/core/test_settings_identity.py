"""A changed setting is another identity, so that its step runs again, unless it says where or how fast."""

import ast
from pathlib import Path

import fastslow
from fastslow.core.errors import SettingsError
from fastslow.core.setting_fields import choices_of, kind_of
from fastslow.rankers.libraries import LIBRARIES
from fastslow.steps.ensemble import EnsembleSettings
from fastslow.steps.features import FeatureSettings
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.steps.submission import SubmissionSettings
from helpers.cases import cases

UNKEYED = {
    "FeatureSettings": "data_root folder workers hlo_folder skip_valid train valid_configs",  # in `inputs`
    "RankerSettings": "features folder runs num_threads hours",
    "MachineSettings": "device processes hours configs_together",  # type and precision of the device count
    "TrainSettings": "features runs folder init logger",  # its fingerprint is in `inputs`
    "EnsembleSettings": "features trained folder",  # its fingerprint is in `inputs`
    "SubmissionSettings": "data_root folder",
    "ViolationSettings": "features",
    "ExplainSettings": "run features",
    "ProgramSettings": "data_root seconds",
    "RankSettings": "data_root hlo_folder",
    "MeasureSettings": "data_root",
    "SearchSettings": "budget_seconds seconds attempts processes data_root",
    "PlaceSettings": "out",
}
"""Fields by class of which a result does not depend, or only through the content of the files they name."""


def test_only_where_and_how_fast_is_left_out_of_an_identity():
    found = {}
    for path in Path(fastslow.__file__).parents[1].rglob("*.py"):
        for owner in (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)):
            names = [
                node.target.id
                for node in owner.body
                if isinstance(node, ast.AnnAssign) and ast.unparse(node.value or node).startswith("unkeyed(")
            ]
            found |= {owner.name: " ".join(names)} if names else {}
    assert found == UNKEYED


READ = {  # what some fields need beside them to be read, or a value that the class knows
    "collection": {"collection": "layout:nlp:random"},
    "convolution": {"convolution": "gcn"},
    "csv": {"csv": "submissions/other.csv"},
    "evaluate_every": {"early_stopping_rounds": 9},
    "folds": {"folds": 2},
    "library": {"library": "another"},
    "head_epochs": {"segment_training": "gst+ef"},
    "input_attention": {"block": "residual"},
    "joins_nodes": {"kind": "tile", "block": "residual"},
    "loss": {"loss": "list_mle"},
    "node_inputs": {"node_inputs": "picked"},
    "readout": {"readout": "mean"},
    "segment_border": {"segment_training": "gst"},
    "segment_nodes": {"segment_training": "gst"},
    "valid_configs": {"early_stopping_rounds": 9},
}


def others(settings, name):
    """The same settings with each other value of a field that fits them."""
    field, value = type(settings).model_fields[name], getattr(settings, name)
    values = [READ[name][name]] if name in READ.get(name, ()) else choices_of(field)
    kind = kind_of(field)
    if kind is list:
        values = [[*value, "other"], value[::-1]]
    elif not values:
        values = [not value] if kind is bool else [value / 2, value / 2 + 0.25, 2 * value + 1]
    for other in values:
        try:
            yield settings.replace(**{name: kind(other)})
        except SettingsError:
            continue  # it does not fit the others


@cases("made", [FeatureSettings, TrainSettings, RankerSettings, EnsembleSettings, SubmissionSettings])
def test_every_other_setting_is_part_of_the_identity(made, monkeypatch):
    monkeypatch.setitem(LIBRARIES, "another", LIBRARIES["lightgbm"])
    unkeyed = {name for owner in made.__mro__ for name in UNKEYED.get(owner.__name__, "").split()}
    for name in made.model_fields.keys() - unkeyed:
        given = {field: value for field, value in READ.get(name, {}).items() if field != name}
        settings = made(**{field: value for field, value in given.items() if field in made.model_fields})
        found = [other.identity() for other in others(settings, name) if other != settings]
        assert found and settings.identity() not in found, name


def test_features_of_tile_leave_out_what_is_for_layout_and_no_more():
    layout, tile = (FeatureSettings(collection=name).identity() for name in ("layout:xla:random", "tile:xla"))
    assert layout.keys() - tile.keys() == {"hops", "compiler_defaults"}
