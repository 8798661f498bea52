"""Plain English in pages and notebooks: no dialect, "0.65" in full, sentences of at most 40 words."""

import re

from helpers.competition_files import ROOT
from helpers.notebook_parameters import NOTEBOOKS, read

FOLDERS = [".", "benchmarks", "data", "data/sample", "docs", "features", "notebooks", "submissions"]
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]
PAGES += sorted((ROOT / "src").rglob("*.md"))
PAGES.remove(ROOT / "CHANGELOG.md")
LONGEST = 40
FORBIDDEN = [  # as regular expressions, between boundaries of words
    r"(that|those) of",
    r"alone(?=[.,;:)]|$)",
    r"(is|are|was|were) of",
    r"says|gets|flatters|dealt",
    r"stands? for",
    r"(has|have|had) [-+]?0?\.\d+",
    r"what (it costs|tells?|would tell|stands for|they|runs|is (read|left|kept|known))",
    r"(is|are|was|were|be) refused",
    r"is taken on",
    r"unless told|(is|are|was|be) told|tells? apart|told apart",
    r"teach(es)? no|the fewest|less the (least|smallest)|goes on where|no vector",
]


def without_code(page):
    """The text of a page with its figures, code and the targets of its links left out."""
    page = re.sub(r"^( *)```.*?^ *```", "", page, flags=re.S | re.M)
    page = re.sub(r"`[^`]*`", "CODE", page)
    page = re.sub(r"!\[[^\]]*\]\([^)]*\)|<https?:[^>]*>", "", page)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)


def sentences(text):
    """Sentences of paragraphs and of items of lists; tables and headings are none."""
    text = re.sub(r"^ *(\|.*|#.*)$", "", text, flags=re.M)
    text = re.sub(r"^ *([-*+]|\d+\.) ", "\n\n", text, flags=re.M)
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.!?])[)\"*']*\s+", " ".join(paragraph.split()))


def faults(page):
    """What is wrong with a page, a line for each fault."""
    text = without_code(page)
    plain = re.sub(r"\s+", " ", text)
    found = [f"no leading zero: {hit[0]}" for hit in re.finditer(r"(?<![\w.*/])\.\d\S*", plain)]
    for phrase in FORBIDDEN:
        for hit in re.finditer(rf"\b({phrase})(?!\w)", plain, re.I):
            found.append(f"forbidden: {plain[max(0, hit.start() - 30) : hit.end() + 20]}")
    for sentence in sentences(text):
        words = len(re.findall(r"\S*\w\S*", sentence))
        if words > LONGEST:
            found.append(f"{words} words: {sentence}")
    return found


def test_pages_and_notebooks_are_plain_english():
    texts = [(page, page.read_text()) for page in PAGES]
    for path in NOTEBOOKS:
        texts += [(path, cell.source) for cell in read(path).cells if cell.cell_type == "markdown"]
    found = [f"{path.relative_to(ROOT)}: {fault}" for path, text in texts for fault in faults(text)]
    assert not found, "\n".join(found)


def test_each_kind_of_fault_is_noticed():
    for page, fault in (
        ("It scores .65 on\nAlexNet.", "no leading zero: .65"),
        ("| tau |\n|---|\n| -.4 |", "no leading zero: .4"),
        *((f"A model {phrase} it.", "forbidden") for phrase in ("has 0.65 of", "says", "stands\nfor")),
        ("- the trees alone", "forbidden"),
        ("- " + "word " * 41 + "\n- a", "41 words"),
        ("word " * 30 + "\n" + "word " * 11, "41 words"),
        ("`.65` v0.65 a.5 ...5 [x](y/.65)\n\n```\n.65 says\n```\n" + "- word\n" * 41 + "w. " * 41, ""),
    ):
        (found,) = faults(page) or [""]
        assert found.startswith(fault) and bool(found) == bool(fault), page
