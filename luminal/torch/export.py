"""`lm.compile(exported_program)`: a torch.export program as a callable with the module's own signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from luminal.errors import OptionError, UnsupportedOpError
from luminal.torch.backend import constant_positions, device_of, import_graph, target_of
from luminal.torch.calling import CompiledGraph, on_device
from luminal.torch.decompositions import decompositions, kept_whole
from luminal.torch.import_fx import ImportedGraph
from luminal.torch.options import TorchOptions, parse_options
from luminal.torch.product import ProductCall
from luminal.torch.program import build_program
from luminal.torch.signature import Signature

PARAMETERS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
UPDATES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


class ExportedCallable:
    """A compiled exported program: call it as the module that was exported.

    Parameters and buffers are those of the program. Buffers that the module updates are updated in place.
    """

    def __init__(
        self, program: ExportedProgram, graph: CompiledGraph, arguments: list[Any], inputs: Signature
    ) -> None:
        self.program, self._graph, self._signature = program, graph, inputs
        self._fixed, self._is_placed = arguments, False
        self._inputs = [spec.kind for spec in program.graph_signature.input_specs]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result. Raises OptionError for arguments of another structure than the exported ones, DTypeError
        and ShapeError for tensors of another dtype or shape."""
        flat, structure = pytree.tree_flatten((args, kwargs))
        expected = self.program.call_spec.in_spec
        if structure != expected:
            raise OptionError(f"the arguments have the structure {structure}, exported was {expected}")
        given = iter(flat)
        self._place()
        arguments = [
            next(given) if kind is InputKind.USER_INPUT else fixed
            for kind, fixed in zip(self._inputs, self._fixed, strict=True)
        ]
        self._signature.check(arguments)
        returned = self._graph(arguments)
        return pytree.tree_unflatten(returned, cast(pytree.TreeSpec, self.program.call_spec.out_spec))

    def _place(self) -> None:
        """Copy parameters and buffers to where the compiled program runs, once."""
        if not self._is_placed:
            place = self._graph.place
            self._fixed = [
                value.to(place) if isinstance(value, torch.Tensor) else value for value in self._fixed
            ]
            self._is_placed = True


def compile_exported(
    program: ExportedProgram,
    *,
    target: str | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ExportedCallable:
    """Compile a program of torch.export; options are those of the torch.compile backend.

    `target`: "cpu", or a GPU by name or architecture ("sm_90"), which need not be here until the program is called;
    None for the one that serves the program's parameters.  For a GPU the parameters are copied there.

    Raises OptionError for an unknown option, UnsupportedOpError in strict mode for an op without a lowering.
    """
    chosen = parse_options(mode, options)
    found = import_exported(program, chosen)
    imported, constants, specs = found.imported, found.constants, found.program.graph_signature.input_specs
    device = device_of([value for value in (*found.arguments, *found.fakes) if value is not None])
    target = target or chosen.target or target_of(device)
    with on_device(device):
        built = build_program(imported, target, chosen, constants)
    compiled = CompiledGraph(imported, built, constants, chosen.freeze, checked=True, device=device)
    given = [
        (number, spec.arg.name, fake)
        for number, (spec, fake) in enumerate(zip(specs, found.fakes, strict=True))
        if spec.kind is InputKind.USER_INPUT
    ]
    return ExportedCallable(found.program, compiled, found.arguments, Signature(given))


@dataclass(frozen=True)
class ImportedProgram:
    """An exported program in decomposed form, its hlo module, and the positions of inputs that never change.

    `fakes` and `arguments`: of each placeholder, its traced value, and the tensor behind it, None for what users give.
    """

    program: ExportedProgram
    imported: ImportedGraph
    constants: list[int]
    fakes: list[Any]
    arguments: list[Any]


def import_exported(program: ExportedProgram, options: TorchOptions) -> ImportedProgram:
    """The hlo module of a program; UnsupportedOpError in strict mode for an op without a lowering."""
    with kept_whole():
        lowered = program.run_decompositions(decompositions())
    module = _write_in_place(lowered)
    fakes = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    arguments = [_fixed_value(lowered, spec) for spec in lowered.graph_signature.input_specs]
    imported = import_graph(module, fakes, options, "exported", program.range_constraints)
    static = {n for n, spec in enumerate(lowered.graph_signature.input_specs) if spec.kind in PARAMETERS}
    written = {spec.target for spec in lowered.graph_signature.output_specs if spec.kind in UPDATES}
    static -= {n for n, spec in enumerate(lowered.graph_signature.input_specs) if spec.target in written}
    return ImportedProgram(lowered, imported, constant_positions(imported, static), fakes, arguments)


def _write_in_place(program: ExportedProgram) -> torch.fx.GraphModule:
    """The graph of a program with what is written into its inputs as copies into them, as AOTAutograd has it; its
    outputs are the results alone."""
    signature, graph = program.graph_signature, program.graph_module.graph
    inputs: dict[str, torch.fx.Node] = {}
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    for spec, node in zip(signature.input_specs, nodes, strict=True):
        inputs |= {spec.arg.name: node} | ({spec.target: node} if spec.target else {})
    output = graph.output_node()
    results: list[Any] = []
    with graph.inserting_before(output):
        for spec, value in zip(signature.output_specs, cast("Sequence[Any]", output.args[0]), strict=True):
            if spec.kind not in UPDATES:
                results.append(value)
                continue
            target = inputs[spec.target or ""]
            written = graph.call_function(torch.ops.aten.copy_.default, (target, value))
            written.meta = dict(target.meta)
    output.args = (tuple(results),)
    return program.graph_module


def exported_call(found: ImportedProgram) -> ProductCall:
    """How the program of an import is called, for a product of it."""
    spec = found.program.call_spec
    structure = (
        pytree.treespec_dumps(cast(pytree.TreeSpec, spec.in_spec)),
        pytree.treespec_dumps(cast(pytree.TreeSpec, spec.out_spec)),
    )
    graph = found.imported
    return ProductCall(
        graph.inputs,
        graph.outputs,
        graph.updates,
        graph.bindings,
        found.arguments,
        found.constants,
        structure,
        graph.conditions,
    )


def _fixed_value(program: ExportedProgram, spec: Any) -> Any:
    """The parameter, buffer or constant behind an input of the graph; None for an input of the user."""
    if spec.kind is InputKind.USER_INPUT:
        return None
    if spec.kind not in PARAMETERS:
        raise UnsupportedOpError(f"the exported program takes {spec.kind.name}, which Luminal does not")
    found = program.state_dict.get(spec.target)
    return found if found is not None else program.constants[spec.target]
