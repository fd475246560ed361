"""Luminal: a tensor compiler that lets search decide."""
from __future__ import annotations

from luminal.dim import Dim, dim
from luminal.dtype import DType, bf16, bool_, dtype_of, f4e2m1, f8e4m3fn, f8e5m2, f16, f32, f64, i8, i16, i32, i64, u8
from luminal.errors import LuminalError

__all__ = [
    "DType", "Dim", "LuminalError", "bf16", "bool_", "dim", "dtype_of", "f16", "f32", "f4e2m1", "f64", "f8e4m3fn",
    "f8e5m2", "i16", "i32", "i64", "i8", "u8",
]
