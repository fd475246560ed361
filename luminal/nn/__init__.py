"""Modules for torch models: layers with block-quantised weights."""

from __future__ import annotations

from luminal.nn.quantised import QuantisedEmbedding, QuantisedLinear, quantise

__all__ = ["QuantisedEmbedding", "QuantisedLinear", "quantise"]
