"""The plan: which notebook with which settings, for every preset, and what it refuses."""

from pathlib import Path

import pytest

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.errors import SettingsError
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.workflow.begun_run import make_plan
from fastslow.workflow.settings.presets import BASE, MODELS, PRESETS, STAGES
from fastslow.workflow.settings.published_presets import PUBLISHED
from fastslow.workflow.settings.run_settings import RunSettings
from fastslow.workflow.settings.sections import SECTIONS, preset_settings
from fastslow.workflow.steps import Plan, parse_overrides
from helpers.cases import cases

LAYOUTS = [c.slug for c in COLLECTIONS if c.kind == "layout"]


def plan(preset="sample", seeds=1, overrides=None, data="sample", name="r"):
    return Plan(data, name, preset, seeds, overrides or {}, 1)


def by_folder(plan):
    return {step.settings.folder: step for step in plan.steps()}


@cases("preset", PRESETS)
@cases("seeds", [1, 3])
def test_every_preset_makes_every_step(preset, seeds):
    steps = plan(preset, seeds).steps()
    counts = {stage: sum(step.stage == stage for step in steps) for stage in STAGES}
    if preset in PUBLISHED:  # a network for each collection, no rankers
        size = {("layout",): 4, ("tile",): 1, ("layout", "tile"): 5}[PUBLISHED[preset].kinds]
        submission = int(size == 5)
        assert counts == {"features": size, "train": size * seeds, "ensemble": size, "submission": submission}
    else:
        # networks: one for each collection, or one for all layouts; rankers: for each, or for each source
        trainings = 5 + 5 if preset.startswith("kaggle") else 2 + 3
        assert counts == {"features": 5, "train": trainings * seeds, "ensemble": 5, "submission": 1}
    stages = [STAGES.index(step.stage) for step in steps]
    assert stages == sorted(stages)
    assert len({step.settings.folder for step in steps}) == len(steps)
    assert len({step.name for step in steps}) == len(steps)
    for step in steps:
        assert step.notebook.is_file() and step.notebook.parent.name == "notebooks"


@cases(
    "preset, layout, tile",
    [("sample", 3, 1), ("smoke", 1, 1), ("kaggle", 3, 3), ("kaggle-full", 5, 5), ("tpugraphs-mlp", 0, 3)],
)
def test_without_a_number_of_seeds_each_kind_has_those_of_its_preset(preset, layout, tile):
    steps = plan(preset, seeds=0).steps()
    counts = {kind: {} for kind in ("layout", "tile")}
    for step in steps:
        if step.stage == "train":
            model, _, rest = step.name.rpartition("-s")
            model_seeds = counts["tile" if "tile" in model else "layout"]
            model_seeds.setdefault(model, set()).add(int(rest))
    assert all(seeds == set(range(layout)) for seeds in counts["layout"].values())
    assert counts["tile"] and all(seeds == set(range(tile)) for seeds in counts["tile"].values())
    runs = {Path(run).name for step in steps if step.stage == "ensemble" for run in step.settings.runs}
    assert {f"gnn-tile-xla-s{seed}" for seed in range(tile)} <= runs and f"gnn-tile-xla-s{tile}" not in runs


@cases("preset", [BASE, *PRESETS.values()])
def test_a_preset_holds_only_what_differs_from_the_defaults(preset):
    for section, settings in preset.items():
        step, _, only = section.partition(".")
        default = SECTIONS[step]().asdict()
        for kind in (only,) if only else ("layout", "tile"):
            base = {} if preset is BASE else BASE.get(f"{step}.{kind}", {})
            changed = {name for name, value in settings.items() if (default | base)[name] != value}
            assert changed == set(settings), section


@cases(
    "train_on, groups",
    [
        ("layout", {"layout": LAYOUTS}),
        ("source", {"layout-xla": LAYOUTS[:2], "layout-nlp": LAYOUTS[2:]}),
        ("collection", {slug: [slug] for slug in LAYOUTS}),
    ],
)
def test_a_network_learns_from_a_group_of_collections_and_scores_them(train_on, groups):
    steps = by_folder(plan(seeds=2, overrides=parse_overrides([f"gnn.layout.train_on={train_on}"])))
    trainings = {f for f in steps if f.startswith("runs/r/training-layout")}
    assert trainings == {f"runs/r/training-{name}-s{seed}" for name in groups for seed in (0, 1)}
    for name, slugs in groups.items():
        settings = steps[f"runs/r/training-{name}-s1"].settings
        assert settings.features == [f"features/r/{slug}" for slug in slugs]
        assert settings.runs == [f"runs/r/gnn-{slug}-s1" for slug in slugs]
        assert settings.seed == 1
    assert steps["runs/r/training-tile-s0"].settings.runs == ["runs/r/gnn-tile-xla-s0"]


def test_steps_take_each_others_folders_and_the_seeds():
    steps = by_folder(plan("smoke", seeds=2, data="/a b", name="my run"))
    networks = {
        run
        for step in steps.values()
        if step.settings.folder.startswith("runs/my run/training")
        for run in step.settings.runs
    }
    for c in COLLECTIONS:
        features = steps[f"features/my run/{c.slug}"].settings
        assert (features.collection, features.data_root) == (c.name, "/a b")
        runs = [f"runs/my run/{model}-{c.slug}-s{seed}" for model in MODELS[c.kind] for seed in (0, 1)]
        rankers = [run for run in runs if run not in networks]
        if c.name.endswith("random"):  # written by the training of the source's other search
            other = [steps[run.replace("random", "default")].settings for run in rankers]
            assert [ranker.runs for ranker in other] == [[run] for run in rankers]
        else:
            assert [steps[run].settings.seed for run in rankers] == [0, 1]
            assert {steps[run].settings.features for run in rankers} == {features.folder}
        ensemble = steps[f"runs/my run/ensemble-{c.slug}"].settings
        assert (ensemble.runs, ensemble.features) == (runs, features.folder)
    submission = steps["runs/my run/submission"].settings
    assert submission.ensembles == [f"runs/my run/ensemble-{c.slug}" for c in COLLECTIONS]
    assert submission.features == [f"features/my run/{c.slug}" for c in COLLECTIONS]
    assert (submission.csv, submission.data_root) == ("submissions/my run.csv", "/a b")


@cases("chosen", ["ranker", " gnn", "gnn, ranker"])
def test_chosen_models_alone_are_trained_and_combined(chosen):
    names = chosen.replace(" ", "").split(",")
    steps = by_folder(Plan("sample", "r", "sample", 1, {}, 1, chosen))
    for c in COLLECTIONS:
        runs = [f"runs/r/{model}-{c.slug}-s0" for model in MODELS[c.kind] if model in names]
        assert steps[f"runs/r/ensemble-{c.slug}"].settings.runs == runs
    assert any("training" in folder for folder in steps) == ("gnn" in names)
    assert any("/ranker-" in folder for folder in steps) == ("ranker" in names)


@cases(
    "only, groups, ranker",
    [
        (LAYOUTS[1:2], [LAYOUTS[1:2]], "collection"),
        (LAYOUTS[2:], [LAYOUTS[2:]], "source"),
        (LAYOUTS[1:3], [LAYOUTS[1:2], LAYOUTS[2:3]], "collection"),
        (LAYOUTS[1:], [[slug] for slug in LAYOUTS[1:]], "collection"),
    ],
)
def test_a_choice_of_collections_trains_these_alone(only, groups, ranker):
    """No model learns from a collection that is not chosen."""
    only = tuple(slug.replace("-", ":") for slug in only)
    steps = [step.settings for step in Plan("sample", "r", "sample", 1, {}, 1, only=only).steps()]
    names = [Path(settings.folder).name for settings in steps]
    chosen = [slug for group in groups for slug in group]
    for start in ("", "ensemble-"):
        folders = [name for name in names if name.startswith(f"{start}layout")]
        assert sorted(folders) == sorted(f"{start}{slug}" for slug in chosen)
    networks = [settings for settings in steps if isinstance(settings, TrainSettings)]
    assert [s.features for s in networks] == [[f"features/r/{slug}" for slug in slugs] for slugs in groups]
    rankers = [settings for settings in steps if isinstance(settings, RankerSettings)]
    assert {settings.train_on for settings in rankers} == {ranker}
    trained = [r for s in reversed(rankers) for r in (s.folder, *s.runs)]
    assert trained == [f"runs/r/ranker-{slug}-s0" for slug in chosen]
    with pytest.raises(SettingsError, match=f"^collections: only {only[0]}.*; a submission needs all five"):
        Plan("sample", "r", "sample", 1, {}, 1, only=only).steps("submission")


def test_features_that_take_longest_start_first():
    slugs = ["layout-nlp-random", "tile-xla", "layout-nlp-default", "layout-xla-random", "layout-xla-default"]
    steps = Plan("sample", "r", "sample", 0, {}, 0).steps("features")
    assert [step.name for step in steps] == [f"features {slug}" for slug in slugs]


def test_a_setting_of_a_collection_that_is_not_chosen_is_refused():
    for preset, texts, said in (
        ("sample", ["gnn.layout-nlp.epochs=3"], "gnn.layout-nlp: .* no such step; it trains layout:xla:ran"),
        ("tpugraphs-mlp", [], "^collections: preset tpugraphs-mlp predicts none of layout:xla:random"),
    ):
        with pytest.raises(SettingsError, match=said):
            Plan("sample", "r", preset, 1, parse_overrides(texts), 1, only=("layout:xla:random",)).steps()


@cases(
    "settings, said",
    [
        (
            "models=rules gnn.layout.epochs=2",
            "gnn.layout: this choice .*trains nothing .see models",
        ),
        (
            "collections=xla:random gnn.tile.epochs=2",
            "gnn.tile: .*layout:xla:random .see collections",
        ),
        (
            "collections=xla:random features.tile.hops=2",
            "features.tile: .* layout:xla:random .see collections",
        ),
        ("models=ranker collections=tile:xla gnn.epochs=2", "gnn: .* it trains ranker of tile .see models"),
        ("predict_with=runs/sample hours=1", "hours: .* which trains nothing; leave it out, or do without"),
        ("folds=5 hours=1", "hours: .* with folds, all of which are trained in full; leave it out, or do"),
        ("folds=5 seeds=2", "seeds: .* with folds: a member for each; leave it at 0, or do"),
    ],
)
def test_a_refusal_tells_what_decides_and_a_remedy_that_is_taken(settings, said):
    with pytest.raises(SettingsError, match=f"^{said}"):
        make_plan(RunSettings.from_texts(settings.split())).steps()


@cases(
    "preset, chosen, overrides, said",
    [
        ("sample", "gnn,gnn", [], "^models: 'gnn,gnn' names gnn more than once"),
        ("sample", "gnn,trees", [], "models: preset sample has no 'trees'; it has gnn, ranker"),
        ("tpugraphs", "ranker", [], "models: preset tpugraphs has no 'ranker'; it has gnn"),
        ("sample", "ranker", ["gnn.epochs=1"], "gnn: this choice of models has no such step"),
        ("tpugraphs", "", ["ranker.num_leaves=9"], "ranker: preset tpugraphs has no such .*see models"),
        *(
            (
                preset,
                "",
                [f"{section}=3"],
                f"^{section.rpartition('.')[0]}: preset {preset} has no such step; it trains gnn of",
            )
            for preset, section in (
                ("tpugraphs-mlp", "gnn.layout.epochs"),
                ("tpugraphs-mlp", "features.layout.hops"),
                ("harvard", "ranker.num_leaves"),
            )
        ),
    ],
)
def test_wrong_choices_of_models_and_settings_of_steps_that_are_not_chosen_are_refused(
    preset, chosen, overrides, said
):
    with pytest.raises(SettingsError, match=said):
        Plan("sample", "r", preset, 1, parse_overrides(overrides), 1, chosen).steps("train")


def test_from_general_to_particular(monkeypatch):
    monkeypatch.setitem(BASE, "gnn.tile", {})
    monkeypatch.setitem(PRESETS, "p", {"gnn": {"epochs": 1, "hidden_channels": 8}, "gnn.tile": {"epochs": 2}})
    assert preset_settings("p", {}, "gnn", "layout") == {"epochs": 1, "hidden_channels": 8}
    assert preset_settings("p", {}, "gnn", "tile") == {"epochs": 2, "hidden_channels": 8}
    overrides = parse_overrides(["gnn.tile.hidden_channels=16", "gnn.epochs=5"])
    assert preset_settings("p", overrides, "gnn", "tile") == {"epochs": 5, "hidden_channels": 16}
    assert preset_settings("p", overrides, "gnn", "layout") == {"epochs": 5, "hidden_channels": 8}
    overrides = parse_overrides(["gnn.epochs=5", "gnn.tile.epochs=6"])
    steps = by_folder(plan("p", overrides=overrides))
    assert steps["runs/r/training-tile-s0"].settings.epochs == 6
    assert steps["runs/r/training-layout-s0"].settings.epochs == 5


def test_the_settings_of_a_source_and_of_a_collection():
    texts = [
        "gnn.layout.train_on=collection",
        "gnn.epochs=5",
        "gnn.layout.epochs=6",
        "gnn.layout-xla.epochs=7",
    ]
    texts += ["gnn.layout-xla-random.epochs=8", "gnn.tile-xla.epochs=9", "features.layout-nlp.hops=3"]
    steps = by_folder(plan(overrides=parse_overrides([*texts, "ranker.layout-nlp.num_leaves=9"])))
    trained = {"tile": 9, "layout-xla-default": 7, "layout-xla-random": 8, "layout-nlp-default": 6}
    for name, epochs in trained.items():
        assert steps[f"runs/r/training-{name}-s0"].settings.epochs == epochs
    assert [steps[f"features/r/{slug}"].settings.hops for slug in LAYOUTS] == [2, 2, 3, 3]
    leaves = [steps[f"runs/r/ranker-layout-{each}-default-s0"].settings.num_leaves for each in ("xla", "nlp")]
    assert leaves == [15, 9]


@cases(
    "text, said",
    [
        (
            "gnn.layout-xla.epochs=3",
            "^gnn.layout-xla: is trained together with other collections; set gnn.layout.train_on='coll",
        ),
        (
            "ranker.layout-nlp-random.num_leaves=9",
            "^ranker.layout-nlp-random: is trained together with other",
        ),
        (
            "gnn.layout-xla.train_on=collection",
            "^gnn.layout-xla.train_on: is chosen for a kind: gnn.layout.tr",
        ),
        ("features.layout-xla.hop=3", "^features.layout-xla.hop: no such setting; did you mean 'hops'"),
    ],
)
def test_a_setting_of_a_part_of_what_is_trained_together_is_refused(text, said):
    with pytest.raises(SettingsError, match=said):
        plan(overrides=parse_overrides([text])).steps()


@cases(
    "text, section, value",
    [
        ("gnn.epochs=20", "gnn", {"epochs": 20}),
        ("gnn.layout.learning_rate=1e-3", "gnn.layout", {"learning_rate": 1e-3}),
        ("features.merge_duplicates=False", "features", {"merge_duplicates": False}),
        ("ensemble.normalisation=rank", "ensemble", {"normalisation": "rank"}),
        ("features.layout.hlo_folder=a=b", "features.layout", {"hlo_folder": "a=b"}),
    ],
)
def test_a_value_is_a_literal_or_a_string(text, section, value):
    assert parse_overrides([text]) == {section: value}


def test_settings_of_one_section_add_up_and_none_is_given_twice():
    texts = ["gnn.epochs=1", "gnn.hidden_channels=8", "gnn.layout.epochs=2"]
    wanted = {"gnn": {"epochs": 1, "hidden_channels": 8}, "gnn.layout": {"epochs": 2}}
    assert parse_overrides(texts) == wanted
    with pytest.raises(SettingsError, match="^gnn.epochs: is given twice, as 1 and '2'; give it once"):
        parse_overrides([*texts, "gnn.epochs=2"])


@cases(
    "text",
    [
        "epochs=3",
        "gnn.epochs",
        "net.epochs=3",
        "gnn.layout-random.epochs=3",
        "gnn.tile.x.y=1",
        "gnn..epochs=3",
    ],
)
def test_a_setting_of_no_section_is_refused(text):
    with pytest.raises(SettingsError, match="SECTION.NAME=VALUE.*for example gnn.layout.epochs=20") as caught:
        parse_overrides([text])
    assert repr(text) in str(caught.value)
    assert all(section in str(caught.value) for section in SECTIONS)


@cases(
    "text, said",
    [
        ("gnn.epoch=3", "^gnn.epoch: no such setting; did you mean 'epochs'"),
        ("gnn.layout.train_on=all", "train_on: 'all' is not one of collection, source, layout"),
        ("gnn.tile.train_on=source", "gnn.tile.train_on: 'source' has no effect for tile"),
        ("gnn.kind=tile", "gnn.kind: is set by the workflow"),
        ("features.tile.hops=1", "features.tile.hops: 1 has no effect for tile; leave it at 2"),
        ("gnn.layout.hidden_channels='64'", "hidden_channels: '64' is a text, a whole number wanted"),
        ("gnn.learning_rate=1e400", "^gnn.learning_rate: inf is not a finite number"),
        (
            "ranker.layout.num_threads=1000000",
            "^ranker.layout.num_threads: 1000000 is not 0 or more, at most",
        ),
        (
            "ranker.tile.train_on=layout",
            "^ranker.tile.train_on: 'layout' has no effect for tile; leave it at",
        ),
        ("ranker.evaluate_every=3", "^ranker.evaluate_every: 3 has no effect with early_stopping_rounds=0"),
        ("ensemble.runs=[]", "ensemble.runs: is set by the workflow"),
        ("ensemble.trained=runs/x", "ensemble.trained: is set by the workflow"),
        ("features.train=False", "features.train: is set by the workflow"),
        ("features.layout.train=True", "features.layout.train: is set by the workflow"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(text, said):
    with pytest.raises(SettingsError, match=said):
        plan("smoke", overrides=parse_overrides([text])).steps()


def test_a_preset_of_one_kind_has_no_submission():
    assert plan("tpugraphs-mlp").steps("ensemble")[-1].stage == "ensemble"
    with pytest.raises(SettingsError, match="preset: tpugraphs-mlp predicts only tile; a submission needs"):
        plan("tpugraphs-mlp").steps("submission")


def test_an_objective_may_be_chosen_although_the_preset_sets_what_it_does_not_read():
    chosen = preset_settings("kaggle", {"ranker": {"objective": "regression"}}, "ranker", "layout")
    assert "pairs_per_config" not in chosen and RankerSettings(**chosen).objective == "regression"
    assert preset_settings("kaggle", {}, "ranker", "layout")["pairs_per_config"] == 4
    overrides = {"ranker": {"objective": "regression", "pairs_per_config": 4}}
    with pytest.raises(SettingsError, match="pairs_per_config: 4 has no effect with objective='regression'"):
        RankerSettings(**preset_settings("kaggle", overrides, "ranker", "layout"))
