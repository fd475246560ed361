"""Modules for torch models: layers with block-quantised weights, and a decoder made of them."""

from __future__ import annotations

from luminal.nn.decoder import Decoder, DecoderShape
from luminal.nn.quantised import QuantisedEmbedding, QuantisedLinear, quantise

__all__ = ["Decoder", "DecoderShape", "QuantisedEmbedding", "QuantisedLinear", "quantise"]
