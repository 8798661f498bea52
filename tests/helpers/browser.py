"""Check a page: its structure, and what headless Chromium says of it, where that is installed."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

_VOID = {"meta", "link", "img", "br", "wbr"}
_PROBE = """<script>addEventListener("load", () => document.documentElement.setAttribute(
"data-widths", document.documentElement.scrollWidth + " " + window.innerWidth))</script>"""
_SECONDS = 120


class Structure(HTMLParser):
    """The elements of a page, as (tag, attributes); ``wrong`` lists what is not closed or not allowed."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.wrong: list[str] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += [f"{tag} is not closed" for tag in self._open]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.wrong += [f"{tag} has {name}" for name, _ in attrs if name.startswith("on")]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if not self._open or self._open[-1] != tag:
            self.wrong.append(f"{tag} is closed inside {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data):
        if data.strip() and self._open[-1:] != ["style"]:
            self.text.append(" ".join(data.split()))


def check_page(path: Path, most_bytes: int = 2_000_000) -> Structure:
    """Check a page of a result, and return its structure.

    It is HTML with language and viewport, needs no other file, describes its pictures and has no script.
    """
    text = path.read_text()
    assert text.startswith("<!doctype html>") and len(text.encode()) < most_bytes
    page = Structure(text)
    assert not page.wrong, page.wrong
    tags = [tag for tag, _ in page.elements]
    assert tags.count("h1") == tags.count("title") == 1 and "script" not in tags
    assert ("html", {"lang": "en"}) in page.elements
    assert any(a.get("name") == "viewport" for tag, a in page.elements if tag == "meta")
    for tag, attributes in page.elements:
        if tag == "img":
            assert attributes["alt"] and attributes["src"].startswith("data:image/png;base64,")
    return page


def open_page(path: Path, width: int = 500) -> None:
    """Open a page in headless Chromium: no message in the console, and no sideways scroll.

    Where Chromium is not installed the test is skipped.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("Chromium is not installed (apt-get install chromium): the structure alone is checked")
    probed = path.with_name("probed.html")
    probed.write_text(path.read_text().replace("</body>", f"{_PROBE}</body>"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]
    folder = path.with_name("chromium")
    options += [f"--user-data-dir={folder}", f"--window-size={width},900", "--enable-logging=stderr"]
    command = [chromium, *options, f"file://{probed.resolve()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    scroll, inner = map(int, re.search(r'data-widths="(\d+) (\d+)"', done.stdout).groups())
    assert scroll <= inner <= width + 20, (scroll, inner)
