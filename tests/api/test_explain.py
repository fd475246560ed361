"""luminal.explain: every level and the search of a graph, as text and as a page that stands alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import luminal as lm
from luminal.bench import peak
from luminal.dump import LEVELS, TIMED
from luminal.errors import OptionError

NATIVE = [level for level in LEVELS if level != "triton"]

VOID = {"meta", "br"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path / "cache"))


def graph() -> lm.Graph:
    cx = lm.Graph()
    x, w = cx.tensor((32, 48), name="x"), cx.tensor((48, 64), name="w")
    x.matmul(w).relu().output()
    (x * 2 < 1).sum(1).output()
    return cx


def parts_of(text: str) -> dict[str, str]:
    parts = re.split(r"^==== (\w+) =+$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_text_has_every_level_and_all_but_the_timed_are_the_same_twice() -> None:
    first, again = (parts_of(lm.explain(graph())) for _ in range(2))
    assert list(first) == NATIVE
    for level in NATIVE:
        if level not in TIMED:
            assert first[level] == again[level]
    search = first["search"]
    assert "out0[i0, i1] = max(sum_r0 x[i0, r0] * w[r0, i1], 0)" in search
    assert "w f32 [3072]: passes" in search and "FLOP a byte; bound" in search
    assert re.search(r"^    chosen +\S+ us \(model", search, re.MULTILINE)
    assert re.search(r"^    rejected +\S+ us \(model", search, re.MULTILINE)
    assert "e-graph: none was needed" in search


def test_softmax_tells_its_e_graph() -> None:
    cx = lm.Graph()
    cx.tensor((16, 24), name="x").softmax(dim=1).output()
    assert re.search(r"e-graph: \d+ classes, \d+ nodes, \d+ rounds, saturated", lm.explain(cx))


class Page(HTMLParser):
    """Checks that what opens closes, and finds the addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.classes: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        self.classes += [value or "" for name, value in attrs if name == "class"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "peak_gflops", lambda threads: 100.0 * threads)
    monkeypatch.setattr(peak, "memory_gbytes", lambda threads: 10.0 * threads)
    path = tmp_path / "page.html"
    text = lm.explain(graph(), html=path)
    page = path.read_text()
    parsed = Page(page)
    assert not parsed.open and not parsed.addresses
    assert "<script" not in page and "url(" not in page and "@import" not in page and "http" not in page
    assert "prefers-color-scheme: dark" in page
    assert {"chosen", "rejected", "roof", "curve", "point measured"} <= set(parsed.classes)
    for level in NATIVE:
        assert f"<summary>{level} <span>" in page
    assert "max(sum_r0 x[i0, r0] * w[r0, i1], 0)" in page
    assert "x[i0, r0] * 2 &lt; 1" in page and "* 2 < 1" not in page
    assert parts_of(text)["schedules"].strip().splitlines()[0].split(": ", 1)[1] in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        width, height = 640, 320
        for dot in ElementTree.fromstring(svg).iter("circle"):
            assert 0 <= float(dot.attrib["cx"]) <= width and 0 <= float(dot.attrib["cy"]) <= height


def test_this_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "COPIED", 1 << 16)
    assert peak.memory_gbytes(2) > 0


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="a graph takes no inputs; 2 were given"):
        lm.explain(graph(), 1, x=2)
    monkeypatch.setattr(peak, "peak_gflops", lambda threads: 100.0)
    monkeypatch.setattr(peak, "memory_gbytes", lambda threads: 10.0)
    with pytest.raises(OptionError, match="No such file"):
        lm.explain(graph(), html=tmp_path / "none" / "page.html")
