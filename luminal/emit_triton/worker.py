"""What a worker process does for the compilation of Triton's text: a compiler that aborts takes this process alone."""

from __future__ import annotations

import contextlib
import importlib
import linecache
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

from luminal.search.worker_loop import serve

KEPT = (
    "name",
    "num_warps",
    "shared",
    "tmem_size",
    "global_scratch_size",
    "global_scratch_align",
    "profile_scratch_size",
    "profile_scratch_align",
)
"""What a launch, or a judgement of the kernel, needs of Triton's metadata."""
BINARY = {"cuda": "cubin", "hip": "hsaco"}
ASSEMBLY = {"cuda": "ptx", "hip": "amdgcn"}


@dataclass(frozen=True, slots=True)
class Request:
    """One compilation, in Triton's terms: types of parameters in their order, attributes of some by their position."""

    name: str
    source: str
    signature: Mapping[str, str]
    attributes: Mapping[int, tuple[tuple[str, int], ...]]
    options: Mapping[str, int | bool]
    backend: str
    arch: str
    warp: int


@dataclass(frozen=True, slots=True)
class Product:
    """What a compilation gives; `report`: what the assembler said of the registers, for NVIDIA alone."""

    binary: bytes
    assembly: str
    metadata: Mapping[str, Any]
    report: str


class Desk:
    """The jobs: each method is one, by its name."""

    def compile(self, request: Request, folder: str, log: str) -> Product | str:
        """Compile in `folder`; all that is said goes to the file `log`.  The reason where Triton refuses."""
        with _output_to(log):
            try:
                return _compiled(request, folder)
            except Exception as error:
                traceback.print_exc()
                sys.stderr.flush()
                return one_line(error, Path(log).read_text(errors="replace"))


def one_line(error: Exception, said: str) -> str:
    """The line that says most of an exception and of what was `said` beside it: an assembler's, one of MLIR's passes,
    or else the exception's last."""
    own = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = [line for line in own if line.startswith("ptxas")]
    found += re.findall(r"^<triton .*: error: (.*)$", said, re.MULTILINE)
    return f"{type(error).__name__}: {(found or own[-1:] or [''])[0]}"


@contextlib.contextmanager
def _output_to(path: str) -> Generator[None]:
    """What this process, the libraries in it and the programs it starts write goes to a file."""
    kept = [os.dup(number) for number in (1, 2)]
    with open(path, "ab", buffering=0) as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in zip((1, 2), kept):
            os.dup2(copy, number)
            os.close(copy)


def _loaded(source: str, name: str) -> Any:
    """The jitted function of a module's text; Triton asks linecache for the text."""
    file = f"<triton {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = ModuleType(f"luminal_emitted_{name}")
    exec(compile(source, file, "exec"), module.__dict__)
    return module.__dict__[name]


def _compiled(request: Request, folder: str) -> Product:
    triton: Any = importlib.import_module("triton")
    targets: Any = importlib.import_module("triton.backends.compiler")
    compilers: Any = importlib.import_module("triton.compiler")
    triton.knobs.cache.dir = tempfile.tempdir = folder
    triton.knobs.nvidia.dump_ptxas_log = True
    source = compilers.ASTSource(
        fn=_loaded(request.source, request.name),
        signature=dict(request.signature),
        attrs={(position,): [list(a) for a in found] for position, found in request.attributes.items()},
    )
    arch = int(request.arch) if request.backend == "cuda" else request.arch
    target = targets.GPUTarget(request.backend, arch, request.warp)
    report = StringIO()
    with contextlib.redirect_stdout(report):
        try:
            kernel = triton.compile(source, target=target, options=dict(request.options))
        finally:
            sys.stderr.write(report.getvalue())
    metadata = kernel.metadata._asdict()
    return Product(
        binary=kernel.asm[BINARY[request.backend]],
        assembly=kernel.asm[ASSEMBLY[request.backend]],
        metadata={name: metadata[name] for name in KEPT if metadata.get(name) is not None},
        report=report.getvalue() if request.backend == "cuda" else "",
    )


def main(parent: int, jobs: int) -> None:
    """Serve, with Triton imported before the first job comes and unmoved by the user's settings of it."""

    def make() -> Desk:
        for name in [name for name in os.environ if name.startswith("TRITON_")]:
            del os.environ[name]
        importlib.import_module("triton.compiler")
        return Desk()

    serve(parent, jobs, make)


if __name__ == "__main__":
    # Of this very module the program knows the classes; of __main__ it does not.
    importlib.import_module("luminal.emit_triton.worker").main(*map(int, sys.argv[1:3]))
