"""What a study evaluated is known to later studies and rankings of the program; the study records it."""

import zlib

import numpy as np
import pandas as pd
import pytest

from fastslow.hlo.reader import read_hlo
from fastslow_programs.compiler.layout_space import encode
from fastslow_programs.program.convert import make_program
from fastslow_programs.program.user_program import Source
from fastslow_programs.ranking.rank import rank_source
from fastslow_programs.ranking.settings import RankSettings
from fastslow_programs.tuning import target as target_module
from fastslow_programs.tuning.confirmation import CONFIRMS
from fastslow_programs.tuning.evaluators import Compiled
from fastslow_programs.tuning.history import KNOWN
from fastslow_programs.tuning.result import summarise_study, write_result
from fastslow_programs.tuning.settings import TuneSettings
from fastslow_programs.tuning.tune import complete_study
from helpers.cases import cases
from helpers.dot_module import rich_module, small_module
from helpers.stub_labeller import StubLabeller

pytest.importorskip("optuna", reason="optuna is not installed (pip install -e '.[test]')")

pytestmark = pytest.mark.usefixtures("undrawn")


class Labeller(StubLabeller):
    """Estimates by the content of a program, and counts what it estimates."""

    asked: list = []

    def label(self, modules, title=""):
        self.asked.extend(modules)
        return [{"cycles": 100 + zlib.crc32(module) % 1000} for module in modules]


@pytest.fixture
def settings_of(tmp_path, monkeypatch):
    """Makes the settings of a study of a program, whose compiler is a stub."""
    monkeypatch.setattr("fastslow_programs.program.program_settings.Labeller", Labeller)
    monkeypatch.setattr(target_module, "require_compiler", lambda: None)
    monkeypatch.setattr(Source, "read", lambda self, *_, **__: read_hlo(self.path))
    Labeller.asked.clear()

    def make(name, module=None, **more):
        path = tmp_path / "program.pb"
        path.write_bytes((module or rich_module()).SerializeToString())
        common = {"run": "none", "evaluations": 8, "batch": 4, "data_root": str(tmp_path / "out")}
        return TuneSettings(source=str(path), name=name, **common | more)

    return make


def codes(study, known):
    return {proposal.codes for proposal, _ in study.history.done if (proposal.by == KNOWN) == known}


def test_a_later_study_begins_with_what_is_known_and_evaluates_only_the_rest(settings_of, tmp_path):
    first = complete_study(settings_of("first"))
    # the program without constraints is no evaluation
    assert len(Labeller.asked) == 8 + 1 and first.history.spent == 8 and not codes(first, known=True)
    second = complete_study(settings_of("second", seed=1))
    assert codes(second, known=True) == codes(first, known=False) and second.history.spent == 8
    assert not codes(second, known=True) & codes(second, known=False) and len(Labeller.asked) == 2 * 9
    assert second.history.best[1] <= first.history.best[1] and second.default == first.default
    facts = summarise_study(second)
    assert facts["known"].startswith("8 configurations") and facts["evaluations"].startswith("8, 0 of them")
    write_result(second)
    (settings_of("second").journal.parent / "manifest.json").unlink()  # as if it ended before its result
    journal, done = settings_of("second").journal, second.history.done
    for kept in (18, 10, 12):  # all, what was known, and half of a batch beyond it
        for file in (tmp_path / "out" / "measured").glob("*.json"):
            file.unlink()
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(lines[:kept]))
        assert complete_study(settings_of("second", seed=1)).history.done == done, "the study has it all"


def test_the_fastest_that_is_known_is_the_result_where_none_is_faster(settings_of):
    whole = complete_study(settings_of("whole", small_module(2), evaluations=4000))
    again = complete_study(settings_of("again", small_module(2), evaluations=4))
    assert whole.exhausted and again.exhausted and again.history.spent == 0
    assert (again.best[0].codes, again.best[1]) == (whole.best[0].codes, whole.best[1])
    assert summarise_study(again)["best"].endswith(", known before")


def test_where_values_are_noisy_the_fastest_that_is_known_is_measured_again(settings_of, monkeypatch):
    first = complete_study(settings_of("first"))
    monkeypatch.setattr(Compiled, "noisy", True)
    again = complete_study(settings_of("again", evaluations=40, strategy="random"))
    assert again.history.spent <= 40 and len(codes(again, known=True)) == 8
    measured = {proposal.codes for proposal, _ in again.history.done if proposal.by == CONFIRMS}
    best = min(again.history.means(), key=again.history.means().get)
    assert {best, *map(tuple, [again.target.space.default.tolist()])} <= measured
    assert again.verdict.proposal.codes == best and again.best[1] <= 1.000001 * first.history.best[1]


@cases("more", [{"cache": False}, {"generation": "v4"}, {"module": small_module(3)}])
def test_nothing_is_known_of_another_program_or_by_another_evaluator(settings_of, tmp_path, more):
    common = {"evaluations": 4, "data_root": str(tmp_path)}
    complete_study(settings_of("first", **common))
    second = complete_study(settings_of("second", **common, **more))
    assert not codes(second, known=True) and "known" not in summarise_study(second)
    third = complete_study(settings_of("third", **common))
    assert len(codes(third, known=True)) == 4, "and a study without the cache keeps nothing"


def test_a_ranking_knows_what_a_study_evaluated(settings_of, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path))  # no runs: the models in the package rank
    tuning = settings_of("first", evaluations=20)
    common = {"source": tuning.source, "data_root": tuning.data_root, "configs": 12}
    before = rank_source(RankSettings(**common))
    study = complete_study(tuning)
    after = rank_source(RankSettings(**common))
    known = after.table.dropna(subset="known")
    assert study.exhausted and before.learnt is None
    assert after.learnt.measurements == len(known) == study.history.spent > 12
    assert sorted(known["known"]) == sorted(e.value for _, e in study.history.done)
    assert any(said.startswith("known from: ") and "compiler v3 1" in said for said in after.words())
    drawn = after.table[after.table["config"] < 12].sort_values("config")
    assert drawn["id"].tolist() == before.table.sort_values("config")["id"].tolist(), "positions stay"
    ranked = make_program(tuning.ranking().conversion().replace(configs=12, cache=True))
    row = ranked.arrays["node_config_feat"][known.loc[known["known"].idxmin(), "config"]]
    wanted = encode(study.target.layouts(study.history.best[0].codes), ranked.nodes)
    np.testing.assert_array_equal(row[:, :6], wanted[:, :6])
    ids = drawn["id"].tolist()[:2]
    given = rank_source(RankSettings(**common), known=pd.DataFrame({"id": ids, "runtime": [2, 3]}))
    assert given.learnt.measurements == 2 and not any("known from" in said for said in given.words())
    without = rank_source(RankSettings(**common, cache=False))
    pd.testing.assert_frame_equal(without.table, before.table)
