"""Words of messages."""

import inspect
import re
from pathlib import Path

import fastslow
from fastslow.core.errors import with_article
from helpers.cases import cases


@cases(
    "name, named",
    [("add", "an add"), ("dot", "a dot"), ("rng-bit-generator", "an rng-bit-generator"), ("int", "an int")]
    + [("fft", "an fft"), ("ndarray", "an ndarray"), ("NoneType", "a NoneType"), ("reduce", "a reduce")],
)
def test_a_name_has_the_article_with_which_it_is_spoken(name, named):
    assert with_article(name) == named


def test_no_message_writes_the_article_of_a_name_itself():
    for path in Path(inspect.getfile(fastslow)).parents[1].rglob("*.py"):
        written = re.findall(r"\b[Aa] \{(?:type\(|opcode_name\().*", path.read_text())
        assert not written, path
