"""Triton's text becomes machine code for GPUs that are not here: what it takes, which instructions it has, and how
compilers fail."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="GPU code needs the package triton")

from luminal.dim import as_dim
from luminal.dtype import DTYPES, DType, bf16, bool_, f4e2m1, f8e4m3fn, f8e5m2, f16, f32, f64, i32, i64
from luminal.emit_cpu.cache import cache_directory
from luminal.emit_triton import aot
from luminal.emit_triton.aot import attributes_of, compile_kernel, signature_type
from luminal.emit_triton.kernel import Options, Parameter, TritonKernel
from luminal.emit_triton.resources import occupancy, refusal
from luminal.emit_triton.targets import target_named
from luminal.errors import CompilationError, UnsupportedTargetError
from tests.emit_triton import kernels
from tests.emit_triton.support import elementwise, emit

ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950")
MATRIX = {
    "sm_80": "mma.sync",
    "sm_89": "mma.sync",
    "sm_90": "wgmma",
    "sm_100": "tcgen05",
    "sm_120": "mma.sync",
    "gfx942": "mfma",
    "gfx950": "mfma",
}
ASYNCHRONOUS = {
    "gfx942": None,
    "gfx950": None if aot.triton_version().startswith(aot.EARLIER) else "lds load",
}
"""How a pipelined loop copies; cp.async or TMA on NVIDIA's."""


def f32_product(architecture: str) -> TritonKernel:
    precision = "ieee" if architecture.startswith("gfx") else "tf32"
    return kernels.product(f32, precision, (64, 64, 32), Options(4, 3))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("form", ["elementwise f32", "elementwise bf16", "softmax"])
def test_kernels_without_products(architecture: str, form: str) -> None:
    kernel = kernels.softmax() if form == "softmax" else kernels.elementwise(f32 if "f32" in form else bf16)
    compiled, target = compile_kernel(kernel, architecture), target_named(architecture)
    assert refusal(compiled.resources, target) is None and compiled.resources.stack == 0
    assert not set(compiled.resources.instructions) - {"barrier"}
    assert ("barrier" in compiled.resources.instructions) == (form == "softmax")
    warps = compiled.resources.warps * occupancy(compiled.resources, target)
    assert warps == target.machine.unit_warps, "nothing but warps is scarce"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("form", ["bf16", "f16", "f32", "attention"])
def test_kernels_with_products(architecture: str, form: str) -> None:
    kernel = {
        "bf16": lambda: kernels.product(bf16),
        "f16": lambda: kernels.product(f16),
        "f32": lambda: f32_product(architecture),
        "attention": kernels.attention,
    }[form]()
    compiled, target = compile_kernel(kernel, architecture), target_named(architecture)
    found = compiled.resources
    assert refusal(found, target) is None and found.spills == 0
    assert occupancy(found, target) >= 1
    assert set(found.instructions) & set(MATRIX.values()) == {MATRIX[architecture]}
    copies = {"cp.async", "tma", "lds load"} & set(found.instructions)
    expected = ASYNCHRONOUS.get(architecture, "cp.async")
    assert copies == ({expected} if expected else set())
    assert (found.tensor_memory > 0) == (architecture == "sm_100")


@pytest.mark.parametrize("architecture", ["sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("has_roles", [False, True], ids=["plain", "roles"])
def test_tensor_descriptors_become_tma_and_roles_registers_that_move(
    architecture: str, has_roles: bool
) -> None:
    compiled = compile_kernel(kernels.described_product(has_roles), architecture)
    found = compiled.resources
    assert refusal(found, target_named(architecture)) is None
    assert set(found.instructions) - {"barrier"} == {
        MATRIX[architecture],
        "tma",
        *(("setmaxnreg",) if has_roles else ()),
    }
    assert (found.warps > 4) == has_roles
    assert compiled.metadata["global_scratch_size"] > 0, "of the descriptors"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_binary_is_for_the_architecture(architecture: str) -> None:
    compiled = compile_kernel(kernels.elementwise(), architecture)
    assert compiled.binary.startswith(b"\x7fELF")
    assert compiled.metadata["name"] == "elementwise" and compiled.metadata["num_warps"] == 4
    assert re.search(rf"\.(?:amdgcn_)?target .*\b{architecture}", compiled.assembly)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_registers_are_what_the_binary_says(architecture: str, tmp_path: Path) -> None:
    import triton

    compiled = compile_kernel(kernels.product(bf16), architecture)
    path = tmp_path / "kernel.cubin"
    path.write_bytes(compiled.binary)
    tool = triton.knobs.nvidia.cuobjdump.path
    said = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True)
    assert f"REG:{compiled.resources.registers} STACK:{compiled.resources.stack} " in said.stdout


def test_registers_allow_the_waves_that_amd_says() -> None:
    compiled = compile_kernel(f32_product("gfx942"), "gfx942")
    said = re.search(r"; Occupancy: (\d+)", compiled.assembly)
    assert said
    alone = replace(compiled.resources, shared=0, warps=1)
    assert occupancy(alone, target_named("gfx942")) == 4 * int(said[1])


def test_a_kernel_that_spills_is_refused() -> None:
    compiled = compile_kernel(kernels.product(f32, "tf32", (128, 256, 64), Options(4, 2)), "sm_80")
    said = refusal(compiled.resources, target_named("sm_80"))
    assert said and re.search(r"spills \d+ bytes of each thread's registers, of which it uses 255", said)


def test_a_kernel_over_the_limit_of_shared_memory_is_refused() -> None:
    compiled = compile_kernel(kernels.product(bf16, options=Options(8, 12)), "sm_90")
    said = refusal(compiled.resources, target_named("sm_90"))
    assert said == "it needs 393216 bytes of shared memory, h100 has 232448 for a program"


def _with_head(lines: str, name: str = "elementwise") -> TritonKernel:
    kernel = kernels.elementwise()
    return replace(kernel, name=name, source=f"{lines}\n{kernel.source.replace('elementwise', name)}")


WRONG_PTX = """
i = tl.arange(0, 128)
value = tl.load(x + i)
wrong = tl.inline_asm_elementwise("nonsense.f32 $0, $1;", "=r,r", [value], tl.float32, True, 1)
tl.store(y + i, wrong)
"""


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (replace(kernels.elementwise(), source="def elementwise(x:\n"), "SyntaxError"),
        (replace(kernels.elementwise(), name="other"), "KeyError: 'other'"),
        (kernels.elementwise(f8e4m3fn), "fp8e4nv not supported in this architecture"),
        (
            kernels.kernel(
                "wrong", WRONG_PTX, (kernels.pointer("x", f32), kernels.pointer("y", f32)), Options(4)
            ),
            "PTXASError: ptxas .*nonsense",
        ),
        (
            replace(
                kernels.elementwise(),
                source=kernels.elementwise().source.replace("+ 1.0", "+ tl.sum(tl.load(x + n[:]), 0)"),
            ),
            "CompilationError: ",
        ),
        (_with_head("import os; print('a word', flush=True); os.abort()"), "has crashed: a word"),
        (
            _with_head("import os; print('a word\\nLLVM ERROR: the last', flush=True); os.abort()"),
            "has crashed: LLVM ERROR: the last",
        ),
    ],
    ids=["syntax", "name", "dtype", "ptxas", "front end", "abort", "LLVM"],
)
def test_a_compiler_that_fails_is_an_error_with_one_line_and_a_log(
    kernel: TritonKernel, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CompilationError) as caught:
        compile_kernel(kernel, "sm_80")
    error = caught.value
    assert re.search(reason, error.reason) and "\n" not in str(error)
    assert "kernel " in str(error) and "a100" in str(error) and error.log in str(error)
    assert Path(error.log).is_relative_to(cache_directory())
    assert Path(error.log).read_text()
    assert capfd.readouterr() == ("", "")
    assert compile_kernel(kernels.elementwise(), "sm_80").binary, "the next one compiles"


def test_the_log_of_a_failing_assembler_has_what_it_was_given() -> None:
    with pytest.raises(CompilationError) as caught:
        parameters = (kernels.pointer("x", f32), kernels.pointer("y", f32))
        compile_kernel(kernels.kernel("wrong", WRONG_PTX, parameters, Options(4)), "sm_90")
    assert ".visible .entry wrong" in Path(caught.value.log).read_text()


def test_a_compiler_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    lines = (
        "import pathlib, subprocess, time\n"
        f"pathlib.Path({str(note)!r}).write_text(str(subprocess.Popen(['sleep', '600']).pid))\n"
        "time.sleep(600)"
    )
    with pytest.raises(CompilationError, match="takes longer than 3 seconds"):
        compile_kernel(_with_head(lines), "sm_80", seconds=3)
    child = int(note.read_text())
    for _ in range(50):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child of an ended compiler lives on")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path))
    return tmp_path


def _forbidden() -> aot._Bench:
    raise AssertionError("a worker is asked")


def test_what_is_kept_is_not_compiled_again(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_kernel(kernels.product(bf16), "sm_90")
    monkeypatch.setattr(aot, "_bench", _forbidden)
    assert compile_kernel(kernels.product(bf16), "sm_90") == first
    assert compile_kernel(kernels.product(bf16), "h200") == first, "the same architecture"
    changed = (
        (kernels.product(f16), "sm_90"),
        (kernels.product(bf16, options=Options(8, 4)), "sm_90"),
        (kernels.product(bf16, options=Options(8, 3, fuses=False)), "sm_90"),
        (kernels.product(bf16, divisor=8), "sm_90"),
        (kernels.product(bf16), "sm_100"),
    )
    for kernel, target in changed:
        with pytest.raises(AssertionError, match="a worker is asked"):
            compile_kernel(kernel, target)
    monkeypatch.setattr(aot, "triton_version", lambda: "0")
    with pytest.raises(AssertionError, match="a worker is asked"):
        compile_kernel(kernels.product(bf16), "sm_90")


def test_a_damaged_entry_is_compiled_again(fresh: Path) -> None:
    first = compile_kernel(kernels.elementwise(), "gfx942")
    (entry,) = (fresh / "objects").glob("*/*")
    entry.write_bytes(entry.read_bytes()[:-1])
    assert compile_kernel(kernels.elementwise(), "gfx942") == first
    assert not list(fresh.glob("reports/triton/*")), "a log is kept of failures alone"


def test_the_users_settings_of_triton_change_nothing(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(fresh / "triton"))
    bench = aot._Bench(os.getpid())
    monkeypatch.setattr(aot, "_bench", lambda: bench)
    assert compile_kernel(kernels.elementwise(), "sm_80").binary
    assert not (fresh / "triton").exists()
    bench.close()


def test_a_worker_that_has_died_while_it_waited_is_replaced(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = aot._Bench(os.getpid())
    monkeypatch.setattr(aot, "_bench", lambda: bench)
    with bench.worker() as worker:
        pass
    worker.process.kill()
    worker.process.wait()
    assert compile_kernel(kernels.elementwise(), "sm_80").binary
    bench.close()


def test_threads_compile_side_by_side(fresh: Path) -> None:
    forms = [kernels.elementwise(dtype) for dtype in (f32, f16, bf16)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda kernel: compile_kernel(kernel, "sm_80").binary, forms))
    assert len(set(found)) == 3


def test_without_triton_gpu_targets_are_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise aot.packages.PackageNotFoundError(name)

    aot.triton_version.cache_clear()
    monkeypatch.setattr(aot.packages, "version", missing)
    with pytest.raises(UnsupportedTargetError, match="triton, which is not installed"):
        compile_kernel(kernels.elementwise(), "sm_80")


def test_an_unknown_target_is_an_error() -> None:
    with pytest.raises(UnsupportedTargetError, match="'sm_70' is not known"):
        compile_kernel(kernels.elementwise(), "sm_70")


@pytest.mark.parametrize(
    ("dtype", "is_pointer", "expected"),
    [
        (bf16, True, "*bf16"),
        (f8e4m3fn, True, "*fp8e4nv"),
        (f8e5m2, True, "*fp8e5"),
        (f4e2m1, True, "*u8"),
        (bool_, True, "*i1"),
        (i32, False, "i32"),
        (i64, False, "i64"),
        (f32, False, "fp32"),
    ],
)
def test_types_of_parameters(dtype: DType, is_pointer: bool, expected: str) -> None:
    assert signature_type(Parameter("p", dtype, is_pointer)) == expected


@pytest.mark.parametrize("architecture", ["sm_90", "gfx942"])
@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_every_dtype_is_a_pointer_and_every_size_a_number(architecture: str, dtype: DType) -> None:
    body = """
i = tl.program_id(0).to(tl.int64) * 128 + tl.arange(0, 128)
tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)
"""
    for kind in (i32, i64):
        pointers = (kernels.pointer("x", dtype), kernels.pointer("y", dtype))
        kernel = kernels.kernel("copy", body, (*pointers, kernels.size("n", dtype=kind)), Options(4))
        assert compile_kernel(kernel, architecture).resources.spills == 0


@pytest.mark.parametrize(
    ("divisor", "is_near", "backend", "expected"),
    [
        (1, False, "cuda", ()),
        (3, False, "cuda", ()),
        (48, True, "cuda", (("tt.divisibility", 16),)),
        (16, True, "hip", (("tt.divisibility", 16), ("tt.pointer_range", 32))),
        (1, True, "hip", (("tt.pointer_range", 32),)),
    ],
)
def test_what_triton_is_told_of_a_parameter(
    divisor: int, is_near: bool, backend: str, expected: tuple[tuple[str, int], ...]
) -> None:
    elements = as_dim(1 << 20 if is_near else 1 << 32)
    assert attributes_of(Parameter("p", bf16, True, divisor, elements), backend) == expected


def test_divisors_and_ranges_reach_the_code() -> None:
    aligned, odd = (compile_kernel(kernels.product(bf16, divisor=d), "sm_80") for d in (16, 1))
    assert "cp.async" in aligned.resources.instructions and "cp.async" not in odd.resources.instructions
    near, far = (
        compile_kernel(kernels.product(bf16, is_near=near), "gfx942").assembly for near in (True, False)
    )
    assert "buffer_load" in near and "global_load" not in near
    assert "global_load" in far and "buffer_load" not in far


def test_contraction_is_as_asked() -> None:
    fused, apart = (
        compile_kernel(replace(kernels.elementwise(), options=Options(4, fuses=fuses)), "sm_80").assembly
        for fuses in (True, False)
    )
    assert "fma.rn.f32" in fused and "fma.rn.f32" not in apart


@pytest.mark.parametrize("architecture", ["sm_90", "gfx942"])
def test_the_exact_remainder_of_f64_is_compiled(architecture: str) -> None:
    region = elementwise(
        4096, lambda table, loads: table.apply("mod", tuple(loads), "floor", f64), [f64, f64]
    )
    (kernel,) = emit(region, "out0: i:*:parallel i:256:block")
    assert refusal(compile_kernel(kernel, architecture).resources, target_named(architecture)) is None
