"""Warnings about what the programs of these tests do on purpose, such as the variance of one number, say nothing."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/property/" in str(item.path.as_posix()):
            item.add_marker(pytest.mark.filterwarnings("ignore"))
