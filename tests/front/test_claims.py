"""Every number of a README, of a page in docs or of a notebook is a cell of a table, or has its source."""

import json

from helpers.cases import cases
from helpers.claims import read_claims, unproved
from helpers.competition_files import ROOT

CLAIMS = read_claims((ROOT / "benchmarks" / "claims.txt").read_text())
TABLES = {path.stem: path.read_text() for path in (ROOT / "benchmarks" / "tables").glob("*.md")}
READMES = ["README.md", "data/README.md", "features/README.md", "notebooks/README.md"]
READMES += ["src/fastslow/networks/README.md", "src/fastslow_placement/README.md"]
NOTEBOOKS = sorted(f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb"))
DOCUMENTS = [*READMES, *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")), *NOTEBOOKS]

TABLE = {"speed": "# speed\n\n## Means\n\n| model | seconds |\n|---|---|\n| ours | 1.256 (1.1 to 1.4) |\n"}
CLAIM = read_claims("# page.md\nours needs {speed: Means; model=ours; seconds} seconds")


@cases("document", DOCUMENTS)
def test_every_number_has_a_source(document):
    text = (ROOT / document).read_text()
    if document in NOTEBOOKS:
        prose = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(lines) for lines in prose)
    assert unproved(document, text, CLAIMS, TABLES) == []


def test_every_claim_belongs_to_a_document():
    assert {claim.document for claim in CLAIMS} <= {*DOCUMENTS}


@cases(
    "page",
    ["ours needs 1.26 seconds", "It says: ours needs\n1.256 seconds.", "[ours needs](a.md) 1.3 seconds"],
)
def test_a_rounded_number_is_accepted(page):
    assert unproved("page.md", page, CLAIM, TABLE) == []


@cases(
    "page",
    [
        "ours needs 1.27 seconds",  # another number
        "ours needs 1.26 seconds, theirs 2.5",  # a number without a claim
        "ours took 1.26 seconds",  # other words
        "ours needs 1.26 seconds in 80 % of cases",
    ],
)
def test_what_no_table_has_is_found(page):
    assert len(unproved("page.md", page, CLAIM, TABLE)) >= 1


def test_a_share_may_be_written_in_percent():
    table = {"share": "## All\n\n| what | share |\n|---|---|\n| a | 0.256 |"}
    claim = read_claims("# page.md\na is {share: All; what=a; share} %")
    assert unproved("page.md", "a is 26 %", claim, table) == []
    assert len(unproved("page.md", "a is 25 %", claim, table)) == 1


def test_another_number_of_a_cell():
    claim = read_claims("# page.md\nat most {speed: Means; model=ours; seconds#3}")
    assert unproved("page.md", "at most 1.4", claim, TABLE) == []
