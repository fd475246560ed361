"""Configs: what a search found, as text, gives the same program again without a search, or says why it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import dump
from luminal.compiler import compile_module
from luminal.errors import ConfigError, LuminalError, OptionError
from luminal.options import CompileOptions
from luminal.passes.cuts import Cuts, parse_cuts
from luminal.plan import choosers
from luminal.search.config import Chosen, SearchConfig, UnknownGraphWarning
from luminal.torch.options import parse_options


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path / "cache"))


def block(cx: lm.Graph) -> lm.Tensor:
    x, w = cx.tensor((32, 48), name="x"), cx.tensor((48, 64), name="w")
    return x.matmul(w).softmax(dim=1).output()


def two_sums(cx: lm.Graph) -> lm.Tensor:
    x = cx.tensor((8, 6), name="x")
    x.sum(0).output()
    return x.sum(1).output()


def module_of(build: Callable[[lm.Graph], Any]) -> Any:
    cx = lm.Graph()
    build(cx)
    return cx.module()


def compiled(build: Callable[[lm.Graph], Any], config: object = "", target: str = "cpu") -> dump.Levels:
    with dump.collect() as found:
        compile_module(module_of(build), target, {"config": config})
    return found[-1]


def changed(config: str, change: Callable[[dict[str, Any]], object]) -> str:
    content = json.loads(config)
    change(content)
    return json.dumps(content)


def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr("luminal.search.cut_search.CutSearch.run", refuse)
    monkeypatch.setattr("luminal.search.chooser.TimedChooser.choose", refuse)


def test_a_config_gives_the_same_program_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled(block)
    no_search(monkeypatch)
    again = compiled(block, first["config"])
    for level in ("regions", "schedules", "placed", "llvm", "plan"):
        assert again[level] == first[level]
    assert again["config"] == first["config"]
    assert "as the config says" in again["search"]


def test_a_config_may_be_a_file_and_say_other_schedules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = dict(
        line.split(": ", 1) for line in compiled(two_sums, target="kernel")["schedules"].splitlines()
    )
    given = json.loads(compiled(two_sums)["config"])
    assert all(given["regions"][key]["schedule"] != schedule for key, schedule in plain.items())
    for key, schedule in plain.items():
        given["regions"][key]["schedule"] = schedule
    path = tmp_path / "config.json"
    path.write_text(json.dumps(given))
    no_search(monkeypatch)
    with dump.collect() as found:
        executable = compile_module(module_of(two_sums), "cpu", {"config": path})
    assert dict(line.split(": ", 1) for line in found[0]["schedules"].splitlines()) == plain
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    assert [result.tolist() for result in executable.run([x], {})] == [x.sum(0).tolist(), x.sum(1).tolist()]


def test_what_a_config_says_is_part_of_the_key() -> None:
    config = SearchConfig({}, {"a": Chosen("", "out0: .", 1)}).text()
    assert CompileOptions(config=config).key != CompileOptions().key


def test_a_region_that_a_config_does_not_know_is_searched() -> None:
    given = compiled(two_sums)["config"]
    known = json.loads(given)["regions"]
    assert len(known) == 2
    gone = next(iter(known))
    levels = compiled(two_sums, changed(given, lambda content: content["regions"].pop(gone)))
    (report,) = levels.reports
    assert {kernel.key: kernel.source == "config" for kernel in report.kernels} == {
        key: key != gone for key in known
    }


def test_another_graph_is_cut_anew_and_says_so() -> None:
    given = compiled(block)["config"]
    with pytest.warns(UnknownGraphWarning, match="has cuts for the graphs"):
        levels = compiled(two_sums, given)
    assert levels["schedules"] == compiled(two_sums)["schedules"]


def test_the_user_s_lines_are_not_part_of_the_graph() -> None:
    digests = [
        json.loads(compiled(build)["config"])["graphs"].keys()
        for build in (lambda cx: block(cx), lambda cx: block(cx), two_sums)
    ]
    assert digests[0] == digests[1] != digests[2]


def set_schedule(schedule: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: [entry.update(schedule=schedule) for entry in content["regions"].values()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_schedule("out0: i0:*:paralel"), "region .* a schedule that is not legal .* the role is one of"),
        (set_schedule("nonsense"), "region .* a schedule that is not legal .* expected 'TARGETS: FACTORS'"),
        (set_schedule("out0: i9:*"), "region .* a schedule that is not legal .* no index 'i9'"),
        (
            lambda content: [entry.update(form="folds of 7") for entry in content["regions"].values()],
            "region .* the form 'folds of 7', which it does not have",
        ),
        (
            lambda content: content.update(graphs=dict.fromkeys(content["graphs"], "keep 99; merge; join")),
            "cuts of graph .*: 99 is none of its",
        ),
        (
            lambda content: content.update(graphs=dict.fromkeys(content["graphs"], "keep all")),
            "cuts of graph .*: 'keep all': expected",
        ),
        (lambda content: content.update(luminal=7), "has no \"luminal\": 1"),
        (lambda content: content.update(regions=[]), "regions must be an object"),
        (lambda content: content.update(graphs={"a": 1}), "cuts of graph a must be text"),
        (lambda content: content.update(regions={"a": {"form": ""}}), "gives region a .* expected a form"),
    ],
)  # fmt: skip
def test_mistakes_are_named(change: Callable[[dict[str, Any]], object], message: str) -> None:
    given = compiled(two_sums)["config"]
    with pytest.raises(ConfigError, match=message):
        compiled(two_sums, changed(given, change))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("{", ConfigError, "is no JSON"),
        ("none.json", OptionError, "config none.json: No such file"),
        (7, OptionError, "config must be a text or a path, not 7"),
    ],
)
def test_what_is_no_config(given: object, error: type[LuminalError], message: str) -> None:
    with pytest.raises(error, match=message):
        CompileOptions.of({"config": given})


def test_torch_options_take_a_config(tmp_path: Path) -> None:
    text = SearchConfig({"g": "keep; merge; join"}, {}).text()
    path = tmp_path / "c.json"
    path.write_text(text)
    for given in (text, path, str(path)):
        assert parse_options(None, {"config": given}).config == text
    with pytest.raises(OptionError, match="option 'config' must be a str, not 7"):
        parse_options(None, {"config": 7})


def test_configs_are_merged() -> None:
    one = SearchConfig({"g": "keep; merge; join"}, {"a": Chosen("", "out0: .", 1)})
    two = SearchConfig(
        {"h": "keep 1; merge; join"}, {"a": Chosen("f", "out0: .", 2), "b": Chosen("", "x", 3)}
    )
    both = SearchConfig.merged([one, two])
    assert SearchConfig.parse(both.text()) == both
    assert both.graphs.keys() == {"g", "h"} and both.regions["a"].cost == 2


def test_cuts_print_and_parse() -> None:
    cuts = Cuts(frozenset({3, 10}), frozenset({3}), frozenset({(4, 7), (1, 2)}))
    assert parse_cuts(str(cuts)) == cuts
    assert parse_cuts(str(Cuts())) == Cuts()
    for text in ("", "keep 1", "keep 1+2; merge; join", "keep; merge; join -1", "keep x; merge; join"):
        with pytest.raises(ValueError):
            parse_cuts(text)


def test_what_was_timed_is_remembered_with_the_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    several = choosers.BUDGETS["max-autotune"]
    monkeypatch.setattr(choosers, "BUDGETS", {**choosers.BUDGETS, "default": several})
    reports = []
    for _ in range(2):
        with dump.collect() as found:
            compile_module(module_of(two_sums), "cpu", {"candidates": 3})
        reports += found[-1].reports
    first, again = (sorted(report.kernels, key=lambda kernel: kernel.key) for report in reports)
    assert {kernel.source for kernel in first} == {"timed"}
    assert {kernel.source for kernel in again} == {"database"}
    for one, other in zip(first, again, strict=True):
        assert one.considered == other.considered and len(one.considered.tried) > 1
        assert one.seconds == other.seconds
        assert one.seconds in [tried.seconds for tried in one.considered.tried]
