"""Ranking a program: equal to a submission's row, for every kind of source, and errors by name."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fastslow.competition.catalog import COLLECTIONS, TEST, get_collection, list_programs
from fastslow.competition.metrics import fastest_first as submitted
from fastslow.competition.metrics import ranking_tau
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import read_json
from fastslow.core.settings import resolve
from fastslow.hlo.messages import TuningData
from fastslow.runs.predictions import read_predictions
from fastslow_programs.ranking import settings
from fastslow_programs.ranking.rank import (
    EFFECTS,
    ENDS,
    FACTS,
    PAGE,
    TABLE,
    _advice,
    _to_measure,
    rank_source,
    write_ranking,
)
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.target import read_target
from helpers.competition_files import layout_arrays, write_npz
from helpers.dot_module import measured_module, varied_module
from helpers.stub_labeller import WithoutConstraintsFirst

pytestmark = pytest.mark.usefixtures("undrawn")

RankSettings = partial(settings.RankSettings, run="runs/smoke")  # by default a smoke run is not taken


def test_program(slug):
    return list_programs(resolve("data/sample"), get_collection(slug), TEST)[0]


test_program.__test__ = False


@pytest.fixture
def dots(home):
    """A chain of dots as an HLO file."""
    path = home / "dots.pb"
    path.write_bytes(varied_module(3).SerializeToString())
    return str(path)


@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda c: c.slug)
def test_a_test_file_gives_the_row_of_the_submission(home, collection):
    program = test_program(collection.slug)
    ranking = rank_source(RankSettings(source=str(program.path)))
    rows = pd.read_csv(resolve("submissions/smoke.csv")).set_index("ID")["TopConfigs"]
    order = ranking.table["config"].tolist()
    row = [int(config) for config in rows[program.id].split(";")]
    stored = read_predictions(resolve(f"runs/smoke/ensemble-{collection.slug}"))[TEST][program.name]
    prediction = ranking.table.sort_values("config")["prediction"].to_numpy()
    np.testing.assert_allclose(prediction, stored, rtol=1e-5, atol=1e-6)
    assert submitted(stored, collection.kind).tolist() == row, "what the submission was made from"
    assert order[: len(row)] == row
    known = collection.kind == "layout"  # a random file has its default file beside it
    assert ranking.run == f"smoke/ensemble-{collection.slug}" and (ranking.default is not None) == known
    assert list(ranking.weights) == list(ranking.table.columns[3:-1].drop("faster", errors="ignore"))


def test_an_hlo_file_is_converted_and_compared_with_its_default(home, dots):
    settings = RankSettings(source=dots, configs=40)
    ranking = rank_source(settings)
    table, folder = ranking.table, resolve("data/converted/rankings/dots")
    assert not folder.exists(), "nothing is written before it is asked for"
    assert write_ranking(ranking, settings) == folder
    assert {PAGE, FACTS} < {path.name for path in folder.iterdir()}
    facts = read_json(folder / FACTS)
    assert facts["words"] == ranking.words() and facts["trust"]["trained_on"] is ranking.trust.trained_on
    assert {name: facts[name] for name in ranking.facts()} == json.loads(json.dumps(ranking.facts()))
    assert (facts["default"], facts["compared_with"]) == (None, 0), "it takes the default's part"
    assert (folder / PAGE).read_text().count("data:image/png;base64,") == 3
    assert sorted(table["config"]) == list(range(len(table))) and len(table) == 40
    assert table["prediction"].is_monotonic_increasing and ranking.default is None
    pd.testing.assert_frame_equal(pd.read_csv(folder / TABLE), table)
    assert len(pd.read_csv(folder / EFFECTS)) == len(ranking.effects) > 0
    assert set(ranking.differences(4)["rank"]) <= {1, 2, 3, 4, 37, 38, 39, 40}
    rows = pd.read_csv(folder / ENDS)
    pd.testing.assert_frame_equal(rows, ranking.differences(10), check_dtype=False)
    assert rows["node"].str.match(r"(dot|reshape)\.\d+").all() and (rows["layout"] != rows["default"]).all()
    default = table.loc[table["config"] == 0, "rank"].item()
    unknown = "row-major: the compiler's own is not known"
    assert ranking.summary()["default"] == f"configuration 0, {unknown}, place {default}"
    assert ranking.changes().empty and "to change: no advice" in str(ranking)
    space = read_target(TuneSettings(source=dots, run="none", evaluator="command", command="true")).space
    assert ranking.summary()["choices"] == len(space.choices), "the choices that a search has"
    assert ranking.words()[2].startswith("to keep: the compiler's default")
    assert ranking.words()[3].endswith(
        f"configs=8, then fastslow rank {dots} known={resolve('data/converted/measured/dots.csv')}"
    )
    assert "runtime" not in table and ranking.estimates().empty
    assert ranking.trust.remedy.startswith("Measure some configurations with fastslow measure;")
    assert re.match("not known, .*SET=estimate=10", ranking.summary()["compiler's own layouts"])


def test_what_was_measured_of_the_compilers_default_is_not_told_of_one_that_is_set(home, dots):
    ranking = rank_source(RankSettings(source=dots, configs=8, default=3))
    assert ranking.advice == () and ranking.facts()["compared_with"] == 3
    assert not any("the compiler's default" in said for said in [*ranking.words(), ranking.verdict()])


def test_a_tile_protobuf_is_ranked_and_scored_by_the_tile_metric(home):
    tuned = measured_module(10 * np.arange(1, 7), default=0, bounds=[[n + 1, 2] for n in range(6)])
    path = home / "tile.pb"
    path.write_bytes(TuningData(modules=[tuned]).SerializeToString())
    ranking = rank_source(RankSettings(source=str(path)))
    table, facts = ranking.table, ranking.summary()
    assert table["over_default"].tolist() == (table["runtime"] / 10).tolist() and len(table) == 6
    place = table.loc[table["config"] == 0, "rank"].item()
    assert facts["default"] == f"configuration 0, whose runtime is the file's normaliser, place {place}"
    assert {choice.options[choice.default] for choice in ranking.choices} == {"1"}, "not the commonest"
    for k in (5, 1):
        score = 2 - table["runtime"].head(k).min() / 10
        assert facts[f"1 - slowdown of the top {k}"] == f"{score:.3f}"
        assert ranking.scores()[f"top_{k}_error"] == pytest.approx(table["runtime"].head(k).min() / 10 - 1)
    assert not any(said.startswith("to keep") for said in ranking.words()), "runtimes are known"


def test_what_no_model_reads_is_not_missed(home, dots, monkeypatch):
    recipe = {"settings": {"compiler_defaults": False}}
    monkeypatch.setattr("fastslow_programs.ranking.rank.read_recipe", lambda folder: recipe)
    assert "compiler's own layouts" not in rank_source(RankSettings(source=dots, configs=8)).summary()


def test_an_npz_is_not_to_be_measured_by_a_command_that_refuses_it(home, tmp_path):
    """A remedy is there where another order can be better, and where it can be followed."""
    path = test_program("layout-xla-default").path
    said = " ".join(rank_source(RankSettings(source=str(path))).trust.words())
    assert (
        "Write the id and the runtime of those that you measured" in said and "fastslow measure" not in said
    )
    with np.load(path) as file:
        alike = {key: file[key] for key in file.files}
    alike["node_config_feat"] = np.repeat(alike["node_config_feat"][:1], len(alike["config_runtime"]), 0)
    one = rank_source(RankSettings(source=str(write_npz(tmp_path / "one.npz", alike))))
    assert one.verdict().endswith("are one program: any will do.") and one.trust.remedy == ""


def test_a_random_file_alone_lacks_its_default_file(home, tmp_path):
    random_path = test_program("layout-xla-random").path
    for path, said in ((random_path, False), (Path(shutil.copy(random_path, tmp_path / "alone.npz")), True)):
        facts = rank_source(RankSettings(source=str(path), collection="layout:xla:random")).summary()
        assert ("default/SPLIT/NAME.npz beside" in facts.get("compiler's own layouts", "")) == said


def test_measured_runs_are_compared_with_the_ranking(home):
    tuned = measured_module([500, 300, 400], layouts=[[0, 1], [1, 0], [1]], nodes=(2, 3))
    (home / "tuned.pb").write_bytes(tuned.SerializeToString())
    ranking = rank_source(RankSettings(source=str(home / "tuned.pb"), configs=0))
    table = ranking.table.sort_values("config")
    assert table["runtime"].tolist() == [500, 300, 400] and ranking.default is None
    tau = ranking_tau(table["runtime"].to_numpy(), table["prediction"].to_numpy())
    assert ranking.summary()["Kendall's tau with runtime"] == f"{tau:.3f}"


def test_the_fastest_are_estimated_by_the_compiler(home, dots, monkeypatch):
    labeller = WithoutConstraintsFirst
    monkeypatch.setattr("fastslow_programs.program.program_settings.Labeller", labeller)
    for module in ("program.user_program", "ranking.rank"):
        monkeypatch.setattr(f"fastslow_programs.{module}.require_compiler", lambda: None)
    ranking = rank_source(RankSettings(source=dots, configs=20, estimate=5))
    # the stub estimates 100, 102, 103, 105 cycles for programs 0 (the default), 2, 3, 5 and refuses 1 and 4
    # beside 106 for the program without constraints
    assert (ranking.default_cycles, ranking.cycles_as_compiled, ranking.default) == (100, 106, 0)
    assert ranking.table["estimated_cycles"].head(5).fillna(0).tolist() == [0, 102, 103, 0, 105]
    assert ranking.table["estimated_cycles"].iloc[5:].isna().all()
    found = ranking.estimates()
    assert found["rank"].tolist() == [2, 3, 5] and found["vs_default"].tolist() == [1.02, 1.03, 1.05]
    assert ranking.summary()["best estimate"].endswith("1.020 of the default's cycles")
    bound = "106 cycles, without constraints; the default, bound by them, has 100"
    assert ranking.summary()["as compiled"] == bound
    fewer = replace(ranking, default_cycles=104)
    assert fewer.summary()["best estimate"].endswith("0.981 of the default's cycles")
    first = [said for said in fewer.words() if said.startswith(("to measure first", "to change"))]
    assert "0.981 of the default's cycles by the compiler's estimate: " in first[0]
    assert not any("nothing" in said for said in first), "an estimate below the default's is advice"
    assert "compiler's own layouts" not in ranking.summary()
    kept = replace(fewer, cycles_as_compiled=51)
    first = [said for said in kept.words() if said.startswith(("to measure first", "to change"))]
    assert first[0].startswith("to measure first: nothing; none of 3 estimated configurations is below")
    assert first[0].endswith(f"the best one, {found['config'].iloc[0]}, has 2.000 of its cycles")
    assert kept.summary()["best estimate"].endswith("2.000 of the cycles of the program as compiled")
    assert kept.estimates()["vs_default"].tolist() == [c / 104 for c in (102, 103, 105)]
    refused = "the compiler's estimates: none for 2 of 5 configurations (2 refused: no)"
    assert refused in ranking.words()
    monkeypatch.setattr(labeller, "refuses_others", True)
    said = "the compiler takes the program, but not with the constraints .*refused: no.*fastslow measure"
    with pytest.raises(DataError, match=said):
        rank_source(RankSettings(source=dots, configs=20, estimate=5))


def test_a_single_model_ranks_too(home, dots):
    ranking = rank_source(RankSettings(source=dots, configs=12, run="runs/smoke/ranker-layout-xla-random-s0"))
    assert ranking.weights == {"ranker-layout-xla-random-s0": 1.0}
    np.testing.assert_array_equal(ranking.table["prediction"], ranking.table["ranker-layout-xla-random-s0"])


def test_the_collection_is_that_of_the_folder_or_of_the_setting(home, tmp_path, monkeypatch):
    path = test_program("layout-nlp-default").path
    assert RankSettings(source=str(path)).find_collection().name == "layout:nlp:default"
    user_file = write_npz(tmp_path / "own.npz", layout_arrays(1))
    assert RankSettings(source=str(user_file)).find_collection().name == "layout:xla:random"
    assert (
        RankSettings(source=str(user_file), collection="layout:nlp:random")
        .find_run()
        .name.endswith("nlp-random")
    )
    tile = test_program("tile-xla").path.rename(tmp_path / "k.npz")
    assert RankSettings(source=str(tile)).find_collection().name == "tile:xla"
    monkeypatch.setattr(Path, "absolute", lambda path: Path("/", path.name))  # no folder is above the root
    assert RankSettings(source=str(user_file)).find_collection().name == "layout:xla:random"


@pytest.mark.parametrize(
    ("name", "content", "settings", "error", "said"),
    [
        ("a.pb", b"not HLO", {}, DataError, r"a\.pb: is not HLO, or is truncated"),
        ("a.npz", layout_arrays(1), {"collection": "tile:xla"}, DataError, "key config_feat is missing"),
        ("a.npz", layout_arrays(1), {"run": "runs/nothing"}, DataError, "runs/nothing: no such folder"),
        (
            "a.npz",
            layout_arrays(1),
            {"run": "runs/smoke/ensemble-layout-nlp-random"},
            DataError,
            "is a run of layout:nlp:random, not of layout:xla:random",
        ),
        ("a.npz", layout_arrays(1), {"estimate": 3}, SettingsError, "estimate: 3 is not 0 for an npz"),
        ("a.npz", layout_arrays(1), {"default": 8}, SettingsError, "default: 8 is not a position below 8"),
        ("a.pb", b"x", {"collection": "tile:xla"}, SettingsError, "collection: 'tile:xla' is not a layout"),
        ("a.npz", None, {}, DataError, r"a\.npz: no such file\. Check the path"),
    ],
)
def test_bad_input_is_refused_by_name(home, tmp_path, name, content, settings, error, said):
    path = tmp_path / name
    if isinstance(content, dict):
        write_npz(path, content)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=said):
        rank_source(RankSettings(source=str(path), **settings))
    assert not resolve("data/converted/rankings").exists()


def test_known_runtimes_decide_the_order(home, dots, tmp_path):
    """Runtimes that are the reverse of the prediction turn the ranking around."""
    before = rank_source(RankSettings(source=dots, configs=40))
    runtime = 41.0 - before.table["rank"]
    known = before.table[["id"]].assign(runtime=runtime).iloc[::2]
    known.to_csv(tmp_path / "known.csv", index=False)
    after = rank_source(RankSettings(source=dots, configs=40, known=str(tmp_path / "known.csv")))
    truth = runtime.set_axis(before.table["config"])[after.table["config"]].to_numpy()
    assert ranking_tau(truth, after.table["prediction"].to_numpy()) > 0.7
    assert len(known) == after.table["known"].notna().sum()
    assert any(sentence.startswith("sure: ") for sentence in after.words())
    np.testing.assert_array_equal(after.table["faster"], after.faster(0)[after.table["config"]])
    assert any(sentence.startswith("known runtimes: 20, of 20") for sentence in after.words())
    again = rank_source(RankSettings(source=dots, configs=40), known=known)
    pd.testing.assert_frame_equal(after.table, again.table)
    one = known.head(1)
    slow_once = pd.concat([known, one, one.assign(runtime=1e6)])
    medians = rank_source(RankSettings(source=dots, configs=40), known=slow_once).table.set_index("id")
    assert medians["known"][one["id"].iloc[0]] == one["runtime"].iloc[0], "the mean is an outlier's"
    with pytest.raises(DataError, match=r"row \d+ has id c\w+, which is no configuration"):
        rank_source(RankSettings(source=dots, configs=20, seed=1), known=known)
    for rows, said in (
        (
            before.table[["config"]].assign(runtime=runtime),
            "config without id: another draw.*Give",
        ),
        (known.assign(config=7), r"row 1 has config 7 and id c\w+, which are two configurations"),
    ):
        with pytest.raises(DataError, match=said):
            rank_source(RankSettings(source=dots, configs=40), known=rows)


def test_known_neighbours_of_the_default_are_told_from_configurations_that_were_drawn(home, dots):
    """After a search a tau of 0.83 was expected of others, and the true one was below 0."""
    ranking = rank_source(RankSettings(source=dots, configs=40))
    changed = np.sum([choice.values != choice.default for choice in ranking.choices], 0)
    ids = ranking.table.set_index("config")["id"]
    rounds = [0, 1] * 6
    for chosen, near in ((np.argsort(changed, kind="stable")[:12], True), (np.arange(12), False)):
        table = pd.DataFrame({"id": ids[chosen], "runtime": 1.0 + np.arange(12), "round": rounds})
        learnt = rank_source(RankSettings(source=dots, configs=40), known=table)
        others = np.delete(changed, chosen)
        assert learnt.learnt.changed == pytest.approx((changed[chosen].mean(), others.mean()))
        assert (learnt.learnt.expected_tau is None) == near
        assert (
            learnt.known["id"].tolist() == ids[chosen].tolist() and learnt.known["round"].tolist() == rounds
        )
    unchanged = rank_source(RankSettings(source=dots, configs=40), known=table.drop(columns="round"))
    pd.testing.assert_frame_equal(unchanged.table, learnt.table)


def test_a_function_of_a_file_is_measured_as_it_is(tmp_path):
    (tmp_path / "model.py").write_text("def make(): ...\n")
    source = f"{tmp_path}/model.py:make"
    said = _to_measure(settings.RankSettings(source=source, seed=3, data_root="my data"), 8)
    assert said.startswith(
        f"How: make measure SRC={source} SET='configs=8 '\"'\"'data_root=my data'\"'\"' seed=3', or "
    )
    assert f"fastslow measure {source} configs=8 'data_root=my data' seed=3. " in said
    said = _to_measure(settings.RankSettings(source=source), 8)
    assert said.startswith(f"How: make measure SRC={source} SET=configs=8, or fastslow measure {source} ")
    assert said.endswith("others than these; it ends with the command that ranks with them")
    program = SimpleNamespace(choices=SimpleNamespace(varying=[0]), runtime=np.zeros(4))
    subject = SimpleNamespace(program=program, known=None)
    _, gain = _advice(settings.RankSettings(source=source), subject)
    assert gain.startswith("to gain: measure 8 configurations"), "its four are not those of this machine"
