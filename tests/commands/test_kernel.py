"""The command ``kernel`` refuses a run that would end on Kaggle's machine, before anything is written."""

from fastslow import cli
from helpers.cases import cases
from helpers.kaggle_stub import clean_environment


@cases(
    "setting, said",
    [
        ("gnn.layout.epoch=3", "gnn.layout.epoch: no such setting; did you mean 'epochs'?"),
        ("gnn.tile.hops=3", "hops: no such setting"),
        ("ranker.objective=pairs", "objective: 'pairs' is not one of"),
        ("network.epochs=3", "a section of features, gnn"),
        ("gnn.layout.seed=1", "seed: is set by the workflow"),
        ("preset=kagle", "preset: 'kagle' is not one of"),
        ("preset=tpugraphs-mlp", "preset: tpugraphs-mlp predicts tile alone"),
        ("seeds=9999", "seeds: 9999 is not"),
    ],
)
def test_a_wrong_setting_of_the_run(monkeypatch, tmp_path, capsys, setting, said):
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("FASTSLOW_HOME", str(tmp_path / "home"))
    assert cli.main(["kernel", setting]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "home").exists()
