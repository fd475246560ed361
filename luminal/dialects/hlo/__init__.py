"""hlo: the level of named tensor operations. Every op is a row of one table; see `table`."""

from __future__ import annotations

from importlib import import_module

from luminal.dialects.hlo.builder import HloBuilder
from luminal.dialects.hlo.table import OPERATIONS, TABLE, HloOp, dialect

ROWS = ("elementwise", "movement", "reduction", "contraction", "normalisation", "pooling", "indexing")
"""The modules that fill the table."""

for _module in ROWS:
    import_module(f"{__name__}.{_module}")

__all__ = ["OPERATIONS", "ROWS", "TABLE", "HloBuilder", "HloOp", "dialect"]
