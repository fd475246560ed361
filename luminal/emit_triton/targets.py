"""The GPUs that Triton compiles for: their names, what their matrix units take, how fast and how large they are.

Every figure has its source in `sources`; peaks are of dense operands.  An architecture's name stands for its usual
device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from luminal.errors import UnsupportedTargetError
from luminal.search.gpu_machine import GpuMachine


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """One device.

    `backend` and `arch` are Triton's ("cuda" and "90", "hip" and "gfx942").  `dot`: the dtypes of operands that
    `tl.dot` multiplies natively; `dot_scaled`: the formats of operands that `tl.dot_scaled` does ("e4m3", "e5m2",
    "e2m1" with scales of 32 elements, "nvfp4": e2m1 with scales of 16).  `tensor_memory`: columns of 512 bytes for
    accumulators, which the programs of a multiprocessor share; on sm_100 alone.
    """

    name: str
    backend: str
    arch: str
    machine: GpuMachine
    dot: frozenset[str]
    dot_scaled: frozenset[str]
    sources: tuple[str, ...]
    tensor_memory: int = 0

    @property
    def architecture(self) -> str:
        """The name under which code is generated: what runs on one device of it runs on the others."""
        return f"sm_{self.arch}" if self.backend == "cuda" else self.arch


GUIDE = "CUDA C++ Programming Guide 13.0, 'Technical Specifications per Compute Capability'"
MAMF = "stas00/ml-engineering, compute/accelerator/README.md, 'Maximum Achievable Matmul FLOPS' (BF16)"


def _rates(**tera: float) -> Mapping[str, float]:
    return MappingProxyType({dtype: value * 1e12 for dtype, value in tera.items()})


A100 = GpuTarget(
    "a100",
    "cuda",
    "80",
    GpuMachine(
        units=108,
        clock=1.41e9,
        bandwidth=2.039e12,
        cache_bandwidth=7.219e12,
        l2=40 << 20,
        matrix=_rates(f64=19.5, tf32=156, f16=312, bf16=312, i8=624),
        vector=19.5e12,
        special=16,
        matrix_part=0.869,
        memory_part=0.9,
        unit_shared=164 << 10,
        program_shared=163 << 10,
    ),
    dot=frozenset({"f32", "f16", "bf16", "i8", "f64"}),
    dot_scaled=frozenset(),
    sources=(
        "NVIDIA A100 Tensor Core GPU datasheet (SXM4 80 GB): bandwidth, peaks",
        "NVIDIA A100 Tensor Core GPU Architecture (whitepaper): 108 SMs, 1410 MHz, 40 MB L2, 16 special units an SM",
        "PMC10448217, table 3: L2 bandwidth",
        f"{GUIDE}: registers, shared memory, warps",
        f"{MAMF}: 271.2 of 312",
        "memory_part: usual for HBM, assumed",
    ),
)
A100_40 = replace(
    A100,
    name="a100-40gb",
    machine=replace(A100.machine, bandwidth=1.555e12),
    sources=("NVIDIA A100 datasheet (SXM4 40 GB): bandwidth", *A100.sources),
)
H100 = GpuTarget(
    "h100",
    "cuda",
    "90",
    GpuMachine(
        units=132,
        clock=1.83e9,
        bandwidth=3.352e12,
        cache_bandwidth=8.986e12,
        l2=50 << 20,
        matrix=_rates(f64=66.9, tf32=494.7, f16=989.4, bf16=989.4, f8e4m3fn=1978.9, f8e5m2=1978.9, i8=1978.9),
        vector=66.9e12,
        special=16,
        matrix_part=0.803,
        memory_part=0.92,
        synchronous_part=0.629,
        describes=True,
    ),
    dot=frozenset({"f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "i8", "f64"}),
    dot_scaled=frozenset(),
    sources=(
        "NVIDIA H100 Tensor Core GPU datasheet (SXM5): bandwidth, peaks without sparsity",
        "NVIDIA H100 Tensor Core GPU Architecture (whitepaper): 132 SMs, 50 MB L2, 16 special units an SM",
        "clock: that at which the advertised matrix peak is reached",
        "PMC10448217, table 3: L2 bandwidth",
        f"{GUIDE}: registers, shared memory, warps",
        f"{MAMF}: 794.5 of 989.4",
        "arXiv 2402.13499 (Benchmarking and Dissecting the Nvidia Hopper GPU Architecture): synchronous_part",
        "pytorch/ao issue 4054: 92 % of the bandwidth can be reached",
    ),
)
H200 = replace(
    H100,
    name="h200",
    machine=replace(H100.machine, bandwidth=4.8e12),
    sources=("NVIDIA H200 Tensor Core GPU datasheet: bandwidth", *H100.sources),
)
B200 = GpuTarget(
    "b200",
    "cuda",
    "100",
    GpuMachine(
        units=148,
        clock=1.85e9,
        bandwidth=7.672e12,
        cache_bandwidth=17.5e12,
        l2=126 << 20,
        matrix=_rates(
            f64=37, tf32=1125, f16=2250, bf16=2250, f8e4m3fn=4500, f8e5m2=4500, i8=4500, f4e2m1=9000
        ),
        vector=75e12,
        special=16,
        matrix_part=0.776,
        memory_part=0.92,
        synchronous_part=0.19,
        scaled=frozenset({"e4m3", "e5m2", "e2m1", "nvfp4"}),
        describes=True,
    ),
    dot=frozenset({"f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "i8", "f64"}),
    dot_scaled=frozenset({"e4m3", "e5m2", "e2m1", "nvfp4"}),
    sources=(
        "NVIDIA HGX B200 datasheet, an eighth of eight devices: peaks without sparsity",
        "pytorch/ao pull request 4002, from the driver: 148 SMs, 126 MB L2, 7.672 TB/s",
        "arXiv 2603.05451 (FlashAttention-4): 16 exponentials a cycle and SM",
        "clock: that at which the advertised matrix peak is reached",
        f"{GUIDE}: registers, shared memory, warps",
        f"{MAMF}: 1745 of 2250",
        "meta-pytorch/tritonbench pull request 171: synchronous_part, so that FlashAttention-2 takes its time",
        "cache_bandwidth: 64 bytes a cycle and SM, assumed; memory_part: as H100",
    ),
    tensor_memory=512,
)
RTX4090 = GpuTarget(
    "rtx4090",
    "cuda",
    "89",
    GpuMachine(
        units=128,
        clock=2.52e9,
        bandwidth=1.008e12,
        cache_bandwidth=5e12,
        l2=72 << 20,
        matrix=_rates(tf32=82.6, f16=165.2, bf16=165.2, f8e4m3fn=330.3, f8e5m2=330.3, i8=660.6),
        vector=82.6e12,
        special=16,
        matrix_part=1.0,
        memory_part=0.914,
        unit_shared=100 << 10,
        program_shared=99 << 10,
        unit_warps=48,
        unit_programs=24,
    ),
    dot=frozenset({"f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "i8"}),
    dot_scaled=frozenset(),
    sources=(
        "NVIDIA Ada GPU Architecture (whitepaper), appendix A: peaks (f32 accumulators), 128 SMs, 2520 MHz, 72 MB L2",
        f"{GUIDE}: registers, shared memory, warps",
        "zzc0721/torch-performance-test-data, database.md: 165 to 173 of 165.2, above the boost clock",
        "krrishnarraj/clpeak issue 106: 921 of 1008 GB/s",
        "cache_bandwidth: assumed",
    ),
)
RTX5090 = GpuTarget(
    "rtx5090",
    "cuda",
    "120",
    GpuMachine(
        units=170,
        clock=2.407e9,
        bandwidth=1.792e12,
        cache_bandwidth=8e12,
        l2=96 << 20,
        matrix=_rates(tf32=104.8, f16=209.5, bf16=209.5, f8e4m3fn=419, f8e5m2=419, i8=838, f4e2m1=1676),
        vector=104.8e12,
        special=16,
        matrix_part=1.0,
        memory_part=0.914,
        unit_shared=100 << 10,
        program_shared=99 << 10,
        unit_warps=48,
        unit_programs=24,
        scaled=frozenset({"e4m3", "e5m2", "e2m1", "nvfp4"}),
        describes=True,
    ),
    dot=frozenset({"f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "i8"}),
    dot_scaled=frozenset({"e4m3", "e5m2", "e2m1", "nvfp4"}),
    sources=(
        "NVIDIA RTX Blackwell GPU Architecture (whitepaper), appendix A: peaks (f32 sums), bandwidth, 170 SMs, L2",
        f"{GUIDE}: registers, shared memory, warps",
        "zzc0721/torch-performance-test-data, pull request 15: 236 of 209.5, above the boost clock",
        "cache_bandwidth, memory_part: assumed, as RTX 4090",
    ),
)
MI300X = GpuTarget(
    "mi300x",
    "hip",
    "gfx942",
    GpuMachine(
        units=304,
        clock=2.1e9,
        bandwidth=5.325e12,
        cache_bandwidth=17.2e12,
        l2=32 << 20,
        matrix=_rates(
            f64=163.4,
            f32=163.4,
            tf32=653.7,
            f16=1307.4,
            bf16=1307.4,
            f8e4m3fnuz=2614.9,
            f8e5m2fnuz=2614.9,
            i8=2614.9,
        ),
        vector=163.4e12,
        special=16,
        matrix_part=0.511,
        memory_part=0.79,
        warp=64,
        registers=131072,
        thread_registers=512,
        unit_shared=64 << 10,
        program_shared=64 << 10,
        reserved_shared=0,
        unit_warps=32,
        unit_programs=32,
        latency=0.9e-6,
    ),
    dot=frozenset({"f32", "f16", "bf16", "i8", "f64"}),
    dot_scaled=frozenset(),
    sources=(
        "AMD Instinct MI300X datasheet: peaks without sparsity, bandwidth, 2100 MHz",
        "AMD CDNA 3 Architecture (whitepaper): 304 compute units, 64 KB LDS, 4 MB L2 a die, last cache 17.2 TB/s",
        "AMD Instinct MI300 ISA: 512 registers of a thread, 16 transcendental results a cycle",
        f"{MAMF}: 668.4 of 1307.4",
        "ROCm/legacy-rocm-build issue 5070: 4.2 of 5.3 TB/s",
        "latency: assumed",
    ),
)
MI355X = GpuTarget(
    "mi355x",
    "hip",
    "gfx950",
    GpuMachine(
        units=256,
        clock=2.4e9,
        bandwidth=8e12,
        cache_bandwidth=17.2e12,
        l2=32 << 20,
        matrix=_rates(
            f64=78.6,
            f32=157.3,
            f16=2516.6,
            bf16=2516.6,
            f8e4m3fn=5033.2,
            f8e5m2=5033.2,
            i8=5033.2,
            f4e2m1=10066.3,
        ),
        vector=157.3e12,
        special=32,
        matrix_part=0.622,
        memory_part=0.79,
        warp=64,
        registers=131072,
        thread_registers=512,
        unit_shared=160 << 10,
        program_shared=160 << 10,
        reserved_shared=0,
        unit_warps=32,
        unit_programs=32,
        latency=0.9e-6,
        scaled=frozenset({"e4m3", "e5m2", "e2m1"}),
    ),
    dot=frozenset({"f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "i8", "f64"}),
    dot_scaled=frozenset({"e4m3", "e5m2", "e2m1"}),
    sources=(
        "AMD Instinct MI355X datasheet: peaks without sparsity, bandwidth, 2400 MHz",
        "AMD CDNA 4 Architecture (whitepaper): 256 compute units, 160 KB LDS, 4 MB L2 a die, transcendentals doubled",
        f"{MAMF}: 1565 of 2516.6",
        "memory_part, cache_bandwidth and latency: as MI300X",
    ),
)
DEVICES = (A100, A100_40, H100, H200, B200, RTX4090, RTX5090, MI300X, MI355X)
USUAL = {target.architecture: target for target in (A100, RTX4090, H100, B200, RTX5090, MI300X, MI355X)}
TARGETS: Mapping[str, GpuTarget] = MappingProxyType({**{d.name: d for d in DEVICES}, **USUAL})


def target_named(name: str) -> GpuTarget:
    """The device of a name ("h200"), or the usual one of an architecture ("sm_90", "gfx942").

    Raises UnsupportedTargetError for any other name.
    """
    found = TARGETS.get(name.lower())
    if found is None:
        raise UnsupportedTargetError(
            f"GPU target {name!r} is not known; those known are {', '.join(TARGETS)}"
        )
    return found
