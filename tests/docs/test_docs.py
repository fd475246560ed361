"""The documents are true where a program can tell: quoted code stands in the files named, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "tests" / "extending" / "plugin"
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_quoted_code_is_that_of_the_files() -> None:
    text = (ROOT / "docs" / "extending.md").read_text()
    quoted = re.findall(r"```python\n# (luminal_extras/\S+)\n(.*?)```", text, re.DOTALL)
    assert len(quoted) >= 5
    for name, code in quoted:
        assert code in (PLUGIN / name).read_text(), f"docs/extending.md quotes {name} wrongly:\n{code}"


def test_the_emitted_loops_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from luminal.graph import Graph
    from luminal.runtimes.plugin import PluginRuntime

    monkeypatch.syspath_prepend(PLUGIN)
    cx = Graph()
    (cx.tensor(("n", 3), name="x") + 1.5).sum(dim=1).output()
    cx.build_search_space(PluginRuntime)
    rt = cx.search(PluginRuntime("loops"), 1)
    assert f"```\n{rt.executable.text}```" in (ROOT / "docs" / "extending.md").read_text()


def test_the_buckets_of_the_readme_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "buckets=" in block]
    exec("import luminal as lm\n" + block, {})
    assert capsys.readouterr().out.strip() == re.findall(r"# (\[.*\])$", block, re.MULTILINE)[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"
    for path in re.findall(r"`((?:luminal|docs|examples|tests|benchmarks)/[\w./-]+\w)`", text):
        assert (ROOT / path).exists(), f"{page.name} names {path}"
