"""A config from `lm.explain` compiles a model of PyTorch again without a search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch._dynamo
from torch._dynamo.exc import BackendCompilerFailed

import luminal as lm


def test_a_model_is_compiled_as_a_config_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path))
    model = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.ReLU(), torch.nn.Softmax(-1))
    x = torch.randn(8, 24)
    text = lm.explain(model, x)
    config = text[text.index("{", text.index("==== config")) :]
    assert len(json.loads(config)["graphs"]) == 1
    assert "sum_r0" in text and "passes" in text

    def refuse(*_: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr("luminal.search.cut_search.CutSearch.run", refuse)
    monkeypatch.setattr("luminal.search.chooser.TimedChooser.choose", refuse)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend="luminal", options={"config": config, "cache": False})
        torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(BackendCompilerFailed, match="searched"):
        lm.explain(model, x)
