"""Every test of the torch backend starts with nothing compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from luminal.torch import report


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    report.reset_fallbacks()
    yield
    torch._dynamo.reset()
