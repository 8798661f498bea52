"""Plain English in pages, tables, notebooks, docstrings, messages, helps and the sentences of settings.

No dialect, "0.65" in full, sentences of at most 40 words.
"""

import ast
import inspect
import re

from helpers.competition_files import ROOT
from notebook_parameters import FROM_SCRATCH, NOTEBOOKS, ON_KAGGLE, OWN_MODEL, SEARCH, read

FOLDERS = [
    ".",
    "benchmarks",
    "benchmarks/tables",
    "data",
    "data/sample",
    "docs",
    "features",
    "notebooks",
    "submissions",
]
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]
PAGES += sorted((ROOT / "src").rglob("*.md"))
PAGES = [page for page in PAGES if page.name != "CHANGELOG.md"]
MODULES = [
    path for folder in ("src", "data/make_sample", "benchmarks") for path in (ROOT / folder).rglob("*.py")
]
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
    page = re.sub(r"`+[^`]*`+", "CODE", page)
    page = re.sub(r"!\[[^\]]*\]\([^)]*\)|<https?:[^>]*>", "", page)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)


def texts_in(node):
    """The docstrings in a module, class or function, and the sentences below its settings and constants."""
    for statement in node.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from texts_in(statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            yield inspect.cleandoc(str(statement.value.value))


def docstrings(source):
    """The texts of a module as one page; an argument, an error or a key is an item of a list."""
    page = "\n\n".join(texts_in(ast.parse(source))) + "\n"
    page = re.sub(r"::\n\n(?: .*\n|\n)+", ":\n\n", page)  # a literal block
    return re.sub(r"^ +\**\w+(, \**\w+)*: ", "- ", page, flags=re.M)


def messages(source):
    """The texts in a module's code that people read: messages, helps, parts of them; a value is VALUE."""
    nodes = [*ast.walk(ast.parse(source))]
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    for node in nodes:
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"{[^{}]*}", "VALUE", node.value)


def is_prose(text):
    """Whether a text is words for people: not a table of names, a page, or a schema."""
    few_lines = text.count("\n") < 4
    return (
        few_lines
        and bool(re.search(r"[a-z]{2,} [A-Za-z]+,? [A-Za-z]+", text))
        and bool(re.search(r"[.,:;(]|^\w", text))
    )


def sentences(text):
    """Sentences of paragraphs and of items of lists; tables and headings are none."""
    text = re.sub(r"^(=+ +)+=+\n.*^(=+ +)+=+$", "", text, flags=re.M | re.S)
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
    for path in (FROM_SCRATCH, OWN_MODEL, SEARCH, ON_KAGGLE, *NOTEBOOKS):
        texts += [(path, cell.source) for cell in read(path).cells if cell.cell_type == "markdown"]
    found = [f"{path.relative_to(ROOT)}: {fault}" for path, text in texts for fault in faults(text)]
    assert not found, "\n".join(found)


def test_docstrings_and_sentences_of_settings_are_plain_english():
    found = [
        f"{m.relative_to(ROOT)}: {fault}" for m in MODULES for fault in faults(docstrings(m.read_text()))
    ]
    assert not found, "\n".join(found)


def public_docstrings(node, name):
    """The docstrings of public classes, functions and methods, by name."""
    for part in node.body:
        if isinstance(part, ast.ClassDef | ast.FunctionDef) and not part.name.startswith("_"):
            yield f"{name}.{part.name}", ast.get_docstring(part) or ""
            if isinstance(part, ast.ClassDef):
                yield from public_docstrings(part, f"{name}.{part.name}")


def test_public_docstrings_name_what_comes_back():
    """Return the contributions, not "what each column contributes": a reader looks for the noun."""
    found = [
        name
        for module in (ROOT / "src").rglob("*.py")
        for name, text in public_docstrings(ast.parse(module.read_text()), module.stem)
        if re.match(r"(Return|Yield) (what|whatever|who)\b", text)
    ]
    assert not found


def test_messages_and_helps_are_plain_english():
    found = [
        f"{module.relative_to(ROOT)}: {fault}"
        for module in MODULES
        for text in filter(is_prose, messages(module.read_text()))
        for fault in faults(text.replace("; ", "\n\n"))  # a list
    ]
    assert not found, "\n".join(found)


def test_a_message_is_read_with_its_values():
    source = """def f(x):
    "It says."
    raise DataError(x, f"a run of {x}, which says {x}", "Take the folder " "that of the run")
"""
    texts = [*messages(source)]
    assert [bool(faults(text)) for text in texts if is_prose(text)] == [True, True]
    assert "a run of VALUE, which says VALUE" in texts


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


def test_each_kind_of_text_in_a_module_is_read():
    source = '''"""A module.

The words of one item are a sentence of its own.
"""
class Settings:
    """A class."""
    rate: float = 0.1
    """Rate."""
    def method(self):
        """Return a number.

        Args:
            one: %s
            *two, three: %s
        """
        x = "says"
''' % (("word " * 35,) * 2)
    assert not faults(docstrings(source))
    for old in ("A module.", "A class.", "Rate.", "Return a number.", "*two, three: "):
        assert len(faults(docstrings(source.replace(old, f"{old} It scores .65 alone.")))) == 2, old
