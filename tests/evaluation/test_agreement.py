"""Agreement of two submissions: by row and by collection."""

import numpy as np
import pytest

from fastslow import cli
from fastslow.competition.metrics import kendall_tau
from fastslow.core.errors import DataError
from fastslow.evaluation.agreement import agreement, summary, without_counterpart
from fastslow.evaluation.submission_record import write_record
from helpers.competition_files import REAL, needs_real

TILE, LAYOUT = "tile:xla:a", "layout:nlp:default:b"


def write(path, rows):
    lines = [f"{key},{';'.join(map(str, order))}" for key, order in rows.items()]
    path.write_text("\n".join(["ID,TopConfigs", *lines, ""]))
    return path


def test_each_row_is_compared(tmp_path, rng, capsys):
    one, other = rng.permutation(50), rng.permutation(50)
    first = write(tmp_path / "1.csv", {LAYOUT: one, TILE: [7, 1, 2, 3, 4], "layout:xla:random:c": [1, 0]})
    second = write(tmp_path / "2.csv", {TILE: [7, 9, 2, 8, 6], LAYOUT: other})
    rows = agreement(first, second).set_index("id")
    assert [*rows.index] == [LAYOUT, TILE]
    places = [np.empty(50, int), np.empty(50, int)]
    for place, order in zip(places, (one, other), strict=True):
        place[order] = np.arange(50)
    assert rows["tau"][LAYOUT] == pytest.approx(kendall_tau(*places))
    assert rows["top_5"][LAYOUT] == len({*one[:5]} & {*other[:5]}) / 5
    assert np.isnan(rows["tau"][TILE]) and rows["top_5"][TILE] == 0.4
    (lacking,) = without_counterpart(first, second)
    assert lacking == f"not compared: {second} lacks 1 of 3 rows: layout:xla:random:c"
    assert cli.main(["compare", str(first), str(second)]) == 0 and lacking in capsys.readouterr().out
    assert cli.main(["compare", str(first), str(first)]) == 0
    said = capsys.readouterr().out
    assert "data/sample scores other programs, without layout:nlp:default:b, layout:xla:random:c" in said
    root = tmp_path / "data"  # as the record beside a CSV has it
    root.mkdir()
    lines = [
        f"{key},{i},{9 + i}"
        for key, count in ((LAYOUT, 50), (TILE, 9), ("layout:xla:random:c", 2))
        for i in range(count)
    ]
    (root / "solution.csv").write_text("\n".join(["ID,config_index,runtime", *lines, ""]))
    write_record(first, [], {}, {}, data_root=str(root))
    assert cli.main(["compare", str(first), str(first)]) == 0
    assert "mean score on test: too few programs" in capsys.readouterr().out
    table = summary(agreement(first, second))
    assert [*table.index] == ["tile:xla", "layout:nlp:default"]
    assert table["chance"]["layout:nlp:default"] == 0.1 and np.isnan(table["chance"]["tile:xla"])


def test_rankings_of_other_configurations_have_no_tau_and_no_common_row_is_refused(tmp_path):
    first = write(tmp_path / "1.csv", {LAYOUT: [0, 1, 2]})
    assert agreement(first, write(tmp_path / "2.csv", {LAYOUT: [1, 0]}))["tau"].isna().all()
    with pytest.raises(DataError, match="2.csv: has no row in common with"):
        agreement(first, write(tmp_path / "2.csv", {TILE: [0]}))
    with pytest.raises(DataError, match="2.csv: .*no test graph has this ID"):
        agreement(first, write(tmp_path / "2.csv", {"ID7": [0]}))


def test_the_command_shows_the_collections_whose_rows_have_another_order(tmp_path, rng, capsys):
    keys = [f"layout:{source}:default:g" for source in ("xla", "nlp")]
    rows = {key: rng.permutation(1000) for key in keys}
    first = write(tmp_path / "1.csv", rows)
    second = write(tmp_path / "2.csv", {**rows, keys[1]: rng.permutation(1000)})
    assert cli.main(["compare", str(first), str(second)]) == 0
    tau = {
        line.split("|")[1].strip(): line.split("|")[3].strip()
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    }
    assert tau["xla:default"] == "1.000" and abs(float(tau["nlp:default"])) < 0.1
    assert cli.main(["compare", str(first), str(tmp_path)]) == 1
    assert f"other: {tmp_path} is a folder, {first} a submission; name two of" in capsys.readouterr().err


@needs_real
def test_the_published_sample_submission_agrees_with_itself():
    table = summary(agreement(REAL / "sample_submission.csv", REAL / "sample_submission.csv"))
    assert table["rows"].sum() == 894 and (table["top_5"] == 1).all()
