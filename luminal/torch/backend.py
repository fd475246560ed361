"""`torch.compile(model, backend="luminal")`: Dynamo's graph through AOTAutograd to compiled hlo modules."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.eval_frame import innermost_fn
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes

from luminal.errors import DeviceError, LuminalError
from luminal.torch.calling import CompiledGraph, on_device
from luminal.torch.decompositions import decompositions, kept_whole
from luminal.torch.extern import FALLBACKS
from luminal.torch.import_fx import FxImporter, ImportedGraph
from luminal.torch.laid_over import lay_over_inputs
from luminal.torch.mutation import fuse_part_writes
from luminal.torch.options import TorchOptions, parse_options
from luminal.torch.overlap import guard_overlap
from luminal.torch.program import build_program
from luminal.torch.repeated_draws import trace_repeated_draws


class Backend:
    """A Dynamo backend. `target` None picks the one that serves the inputs' device, which must be of the kind `device`
    where one is stated.

    `torch.compile(model, backend=luminal.luminal_cpu, mode="max-autotune", options={"freeze": True})`
    """

    def __init__(self, name: str, target: str | None, device: str | None = None) -> None:
        self.__name__ = name
        self.target, self.device = target, device

    def __repr__(self) -> str:
        return f"<luminal backend {self.__name__}>"

    def __call__(
        self,
        module: torch.fx.GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Compile Dynamo's graph; called by torch.compile.

        Raises OptionError for an unknown mode or option, DeviceError where no target serves the inputs, and in strict
        mode UnsupportedOpError; Dynamo wraps them in BackendCompilerFailed.
        """
        chosen = parse_options(mode, options)
        device = device_of(inputs)
        if self.device is not None and device.type != self.device:
            raise DeviceError(f"the inputs are on {device.type}; {self.__name__} serves {self.device}")
        target = chosen.target or self.target or target_of(device)
        compiler = GraphCompiler(chosen, target, device)
        lower = aot_autograd(
            fw_compiler=compiler.forward,
            bw_compiler=compiler.backward,
            inference_compiler=compiler.inference,
            decompositions=decompositions(),
            partition_fn=min_cut_rematerialization_partition,
            keep_inference_input_mutations=True,
        )
        with kept_whole():
            compiled = lower(module, inputs)
        # Dynamo keeps away from what a backend gives it: AOTAutograd's own fence around it would be a second one
        return guard_overlap(module, innermost_fn(compiled), compiler.written, compiler.static)


class GraphCompiler:
    """Compiles the graphs that AOTAutograd makes of one Dynamo graph."""

    def __init__(self, options: TorchOptions, target: str, device: torch.device) -> None:
        self.options, self.target, self.device = options, target, device
        self.written: frozenset[int] = frozenset()
        self.static: frozenset[int] = frozenset()

    def inference(self, module: torch.fx.GraphModule, fakes: Sequence[Any]) -> CompiledGraph:
        metadata = _metadata()
        if metadata is None:
            return self._compile(module, fakes, frozenset(), "inference")
        lay_over_inputs(module.graph, metadata)
        return self._compile(module, fakes, frozenset(metadata.static_input_indices or ()), "inference")

    def forward(self, module: torch.fx.GraphModule, fakes: Sequence[Any]) -> CompiledGraph:
        metadata = _metadata()
        if metadata is not None:
            lay_over_inputs(module.graph, metadata)
        return self._compile(module, fakes, frozenset(), "forward")

    def backward(self, module: torch.fx.GraphModule, fakes: Sequence[Any]) -> CompiledGraph:
        return self._compile(module, fakes, frozenset(), "backward")

    def _compile(
        self, module: torch.fx.GraphModule, fakes: Sequence[Any], static: frozenset[int], kind: str
    ) -> CompiledGraph:
        check_results(module, self.device)
        with _disable_current_modes(), on_device(self.device):  # constants of the graph are real tensors
            imported = import_graph(module, fakes, self.options, kind)
            written = {imported.inputs[position].argument for _, position in imported.updates}
            if kind != "backward":
                self.written, self.static = frozenset(written), static
            constants = constant_positions(imported, static - written)
            program = build_program(imported, self.target, self.options, constants)
            return CompiledGraph(imported, program, constants, self.options.freeze, device=self.device)


def _metadata() -> ViewAndMutationMeta | None:
    """What AOTAutograd says of the graph that it has just traced."""
    context = TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def import_graph(
    module: torch.fx.GraphModule,
    fakes: Sequence[Any],
    options: TorchOptions,
    name: str,
    promised: Mapping[Any, Any] | None = None,
) -> ImportedGraph:
    """The hlo module of an ATen graph, with the time it took counted as the stage "import"; `promised`: the ranges of
    an exported program."""
    from luminal.stats import TOTALS

    start = time.perf_counter()
    fuse_part_writes(module.graph)
    trace_repeated_draws(module.graph)
    env = shape_env_of(fakes)
    imported = None
    while imported is None:
        importer = FxImporter(
            module,
            shape_env=env,
            promised=promised,
            strict=options.strict,
            licences=options.licences,
            name=name,
        )
        imported = _run_once(importer, env)
    FALLBACKS.update(imported.fallbacks)
    TOTALS.add_seconds("import", time.perf_counter() - start)
    return imported


def _run_once(importer: FxImporter, env: ShapeEnv | None) -> ImportedGraph | None:
    """What is imported; None where a guard found meanwhile that symbols are others, or plain numbers: what was imported
    before that has the old names of these sizes."""
    known = _sizes_replaced(env)
    try:
        imported = importer.run()
    except LuminalError:
        if _sizes_replaced(env) == known:
            raise
        return None
    return imported if _sizes_replaced(env) == known else None


def _sizes_replaced(env: ShapeEnv | None) -> int:
    """Of how many symbols it is known that they are others, or plain numbers."""
    return len(env.replacements) if env is not None else 0


def constant_positions(imported: ImportedGraph, static: frozenset[int] | set[int]) -> list[int]:
    """Graph inputs that do not change from call to call: parameters, and constant tensors of the graph."""
    return [
        position
        for position, slot in enumerate(imported.inputs)
        if slot.constant is not None
        or (slot.argument in static and not _is_symbolic(slot.layout.stored.shape))
    ]


def _is_symbolic(shape: Sequence[Any]) -> bool:
    return any(size.constant is None for size in shape)


def shape_env_of(fakes: Sequence[Any]) -> ShapeEnv | None:
    """The shape environment that the graph was traced in, if any size is symbolic."""
    for fake in fakes:
        sizes: Sequence[Any] = (fake,)
        if isinstance(fake, torch.Tensor):
            sizes = [*fake.shape, *fake.stride()]
        for size in sizes:
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


def device_of(inputs: Sequence[Any]) -> torch.device:
    """The one device of the tensors, but that numbers of the host may stand beside those of a GPU; DeviceError where
    they are on several."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    found = {tensor.device for tensor in tensors if tensor.ndim or tensor.device.type != "cpu"}
    if len(found) > 1:
        listed = ", ".join(sorted(map(str, found)))
        raise DeviceError(f"the inputs are on {listed}; Luminal serves one device at a time")
    return found.pop() if found else torch.device("cpu")


def target_of(device: torch.device) -> str:
    """The target that serves a device of torch; DeviceError where there is none."""
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise DeviceError(f"the inputs are on {device}; Luminal serves cpu and cuda")
    from luminal.runtimes.gpu_targets import current_target

    return current_target(device.index or 0)


def check_results(module: torch.fx.GraphModule, device: torch.device) -> None:
    """DeviceError where a traced graph gives a tensor on another device than that of its inputs."""
    (results,) = module.graph.find_nodes(op="output")[0].args
    for node in results:
        value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if isinstance(value, torch.Tensor) and value.device.type != device.type:
            raise DeviceError(
                f"the result {node.name} is on {value.device}, the inputs are on {device}; move it outside of what is "
                "compiled"
            )


luminal = Backend("luminal", None)
luminal_cpu = Backend("luminal_cpu", "cpu")
luminal_cuda = Backend("luminal_cuda", None, "cuda")
