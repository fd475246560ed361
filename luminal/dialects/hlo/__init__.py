"""hlo: the level of named tensor operations. Every op is a row of one table; see `table`."""

from luminal.dialects.hlo import rows as _rows
from luminal.dialects.hlo.builder import HloBuilder
from luminal.dialects.hlo.table import OPERATIONS, TABLE, HloOp, dialect

__all__ = ["OPERATIONS", "TABLE", "HloBuilder", "HloOp", "dialect"]
