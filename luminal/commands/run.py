"""`luminal run graph.mlir`: compile a graph, execute it, and print what it gives.

Inputs come from .npy files, or are drawn: floats near one, small integers (all indices below 2), from a seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from luminal.commands.graph_file import add_dims, add_file, read_dims, read_graph, read_pairs
from luminal.compiler import TARGETS, compile_module
from luminal.dialects.graph_op import GraphOp
from luminal.dialects.tensor_type import TensorType
from luminal.errors import DataSizeError, DTypeError, OptionError, UnsetDimError
from luminal.runtimes.reference import graph_of

Array = np.ndarray[Any, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_dims(parser, "the size of a symbolic dim")
    parser.add_argument(
        "--target", default="cpu", help=f"{', '.join(TARGETS)}, or that of a plug-in (default: cpu)"
    )
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy", help="the data of an input"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the inputs that are drawn (default: 0)")
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="write the results, named 0, 1, ...")


def run(options: argparse.Namespace) -> int:
    module = read_graph(options.file)
    graph = graph_of(module)
    dims = read_dims(options.dim, graph.symbols)
    for symbol in graph.symbols:
        if symbol.name not in dims:
            raise UnsetDimError(f"dim {symbol.range_text()} has no size; give --dim {symbol.name}=SIZE")
    inputs = make_inputs(graph, dims, read_pairs(options.input, "--input"), options.seed)
    executable = compile_module(module, options.target)
    results = executable.run(inputs, dims)
    for position, (type_, result) in enumerate(zip(executable.output_types, results, strict=True)):
        print(f"{position}: {type_} {list(result.shape)}")
        print(np.array2string(result, threshold=64, edgeitems=3))
    if options.output is not None:
        named: Any = {str(position): result for position, result in enumerate(results)}
        np.savez(options.output, **named)
    return 0


def make_inputs(graph: GraphOp, dims: Mapping[str, int], files: Mapping[str, str], seed: int) -> list[Array]:
    """The inputs in order. OptionError, DTypeError and DataSizeError name the input that a file does not fit."""
    names = [argument.name_hint or str(argument.index) for argument in graph.block.args]
    for name in files:
        if name not in names:
            raise OptionError(f"the graph has no input {name!r}; its inputs are {', '.join(names) or 'none'}")
    generator = np.random.default_rng(seed)
    return [
        _read(name, type_, dims, files[name]) if name in files else _draw(type_, dims, generator)
        for name, type_ in zip(names, graph.input_types, strict=True)
    ]


def _read(name: str, type_: TensorType, dims: Mapping[str, int], file: str) -> Array:
    try:
        array = np.load(file)
    except (OSError, ValueError) as error:
        raise OptionError(f"input {name!r}: {file}: {error}") from None
    shape = tuple(size.evaluate(dims) for size in type_.shape)
    if array.dtype != type_.dtype.numpy:
        raise DTypeError(f"input {name!r} is {type_}, but {file} has dtype {array.dtype}")
    if array.shape != shape:
        raise DataSizeError(f"input {name!r} has shape {list(shape)}, but {file} has {list(array.shape)}")
    return np.ascontiguousarray(array)


def _draw(type_: TensorType, dims: Mapping[str, int], generator: np.random.Generator) -> Array:
    shape = tuple(size.evaluate(dims) for size in type_.shape)
    if type_.dtype.is_float:
        return generator.normal(1.0, 0.25, shape).astype(type_.dtype.numpy)
    return generator.integers(0, 2, shape).astype(type_.dtype.numpy)
