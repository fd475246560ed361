"""Published times of GPU kernels, and what the roofline says: `python -m benchmarks.published_kernels` prints both.

No figure here was used to choose a constant of the model, but for `CALIBRATION`; targets.py and gpu_roofline.py name
those that were.  Where a source gives operations per second, the time is computed from it.  Attention counts
4 * queries * keys * width operations for each head, half of them where it is causal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.published_launches import Kind, attention, latent_decode, product, stream, vector_product
from luminal.emit_triton.targets import TARGETS
from luminal.search.gpu_roofline import Launch, estimate


@dataclass(frozen=True, slots=True)
class Published:
    """One measurement: `seconds` of `launch` on a device, by `source`."""

    name: str
    device: str
    launch: Launch
    seconds: float
    source: str

    @property
    def predicted(self) -> float:
        """Seconds by the roofline."""
        return estimate(self.launch, TARGETS[self.device].machine).seconds

    @property
    def error(self) -> float:
        """The relative error of the prediction."""
        return self.predicted / self.seconds - 1


def _rated(operations: float, tera: float) -> float:
    return operations / (tera * 1e12)


def _attention(
    name: str,
    device: str,
    shape: tuple[int, int, int, int, int],
    tera: float,
    source: str,
    causal: bool = False,
    kind: Kind = "specialised",
) -> Published:
    launch = attention(*shape, causal=causal, kind=kind)
    text = f"{name}, {'x'.join(map(str, shape))}{', causal' if causal else ''}"
    return Published(text, device, launch, _rated(launch.matrix_flops, tera), source)


def _product(
    name: str,
    device: str,
    shape: tuple[int, int, int],
    tera: float,
    source: str,
    dtype: str = "bf16",
    size: float = 2.0,
    tile: tuple[int, int] = (128, 256),
    cluster: int = 2,
) -> Published:
    launch = product(*shape, dtype=dtype, size=size, tile=tile, cluster=cluster)
    text = f"{name} {dtype}, {'x'.join(map(str, shape))}"
    return Published(text, device, launch, _rated(launch.matrix_flops, tera), source)


TORCHBENCH = "pytorch/benchmark pull request 2391"
FIGURE = "arXiv 2407.08608 (FlashAttention-3), figure 5"
DATABASE = "zzc0721/torch-performance-test-data issue 79"
GIB, MIB = 1 << 30, 1 << 20

PUBLISHED = (
    _attention("FlashAttention-3", "h100", (32, 16, 512, 512, 128), 430.32, TORCHBENCH),
    _attention("FlashAttention-3", "h100", (16, 16, 1024, 1024, 128), 517.099, TORCHBENCH),
    _attention("FlashAttention-3", "h100", (8, 16, 2048, 2048, 128), 565.544, TORCHBENCH),
    _attention("FlashAttention-3", "h100", (4, 16, 4096, 4096, 128), 590.233, TORCHBENCH),
    _attention("FlashAttention-3", "h100", (2, 16, 8192, 8192, 128), 614.234, TORCHBENCH),
    _attention("FlashAttention-3", "h100", (1, 16, 16384, 16384, 128), 620.73, TORCHBENCH),
    _attention("Triton tutorial", "h100", (8, 16, 2048, 2048, 128), 433.721, TORCHBENCH, kind="asynchronous"),
    _attention(
        "Triton tutorial", "h100", (1, 16, 16384, 16384, 128), 476.753, TORCHBENCH, kind="asynchronous"
    ),
    _attention("FlashAttention-3", "h100", (1, 32, 16384, 16384, 64), 497, FIGURE),
    _attention("FlashAttention-3", "h100", (1, 8, 16384, 16384, 256), 642, FIGURE, causal=True),
    _attention(
        "FlashAttention-2",
        "h100",
        (1, 16, 16384, 16384, 128),
        370,
        FIGURE,
        kind="synchronous",
    ),
    Published(
        "CUTLASS attention, 128x8x4096x4096x128",
        "h100",
        attention(128, 8, 4096, 4096, 128, kind="asynchronous"),
        20.8335e-3,
        "pytorch/benchmark pull request 2296",
    ),
    Published(
        "FlashAttention-4, 4x16x8192x8192x128",
        "b200",
        attention(4, 16, 8192, 8192, 128, rows=256),
        1.433e-3,
        "Dao-AILab/flash-attention pull request 2280",
    ),
    Published(
        "FlashAttention-4, 4x16x8192x8192x128, causal",
        "b200",
        attention(4, 16, 8192, 8192, 128, causal=True, rows=256),
        0.775e-3,
        "Dao-AILab/flash-attention pull request 2280",
    ),
    _attention(
        "FlashAttention-2",
        "a100",
        (4, 32, 2048, 2048, 128),
        179.5,
        "microsoft/onnxruntime pull request 21449",
        kind="synchronous",
    ),
    *(
        Published(
            f"FlashAttention-2, {batch}x{heads}x{length}x{length}x{width}",
            "a100",
            attention(batch, heads, length, length, width, kind="synchronous"),
            seconds,
            "pytorch/pytorch pull request 126122",
        )
        for batch, heads, length, width, seconds in (
            (1, 32, 4096, 64, 799.391e-6),
            (1, 16, 4096, 128, 750.131e-6),
            (1, 32, 8192, 64, 3211.84e-6),
        )
    ),
    _attention(
        "cuDNN attention",
        "rtx5090",
        (1, 8, 4096, 8192, 128),
        203.61,
        "gau-nernst, 'Writing Speed-of-Light Flash Attention for 5090 in CUDA C++'",
        kind="synchronous",
    ),
    _product("cuBLAS", "a100", (4096, 4096, 4096), 212.706, "triton-lang/triton issue 743", "f16", cluster=1),
    _product("cuBLAS", "a100", (8192, 8192, 8192), 272.731, "triton-lang/triton issue 743", "f16", cluster=1),
    Published(
        "cuBLAS f32, 5120x4096x4096",
        "a100",
        vector_product(5120, 4096, 4096),
        _rated(2 * 5120 * 4096 * 4096, 18.88),
        "Yinghan-Li/YHs_Sample issue 4",
    ),
    _product("cuBLAS", "h100", (1024, 1024, 1024), 176.62, DATABASE, tile=(128, 128)),
    _product("cuBLAS", "h100", (2048, 2048, 2048), 676.59, DATABASE),
    _product("cuBLAS", "h100", (4096, 4096, 4096), 788.72, DATABASE),
    _product("cuBLAS", "h100", (8192, 8192, 8192), 797.51, DATABASE),
    _product("cuBLAS", "h100", (4096, 4096, 4096), 402.15, DATABASE, "tf32", 4.0),
    Published(
        "cuBLAS f32, 8192x8192x8192",
        "h100",
        vector_product(8192, 8192, 8192),
        _rated(2 * 8192**3, 51.81),
        DATABASE,
    ),
    _product(
        "cuBLAS",
        "h100",
        (8192, 8192, 4096),
        1278.215,
        "triton-lang/triton pull request 5461",
        "f8e4m3fn",
        1.0,
    ),
    _product(
        "cuBLAS",
        "h100",
        (1024, 9216, 14336),
        1402.6,
        "stas00/ml-engineering, compute/accelerator/README.md, FP8 table",
        "f8e4m3fn",
        1.0,
    ),
    _product(
        "cuBLAS",
        "b200",
        (15360, 4096, 3072),
        3432.5,
        "stas00/ml-engineering, compute/accelerator/README.md, FP8 table",
        "f8e4m3fn",
        1.0,
    ),
    _product(
        "cuBLAS (mxfp8)",
        "b200",
        (8192, 8192, 8192),
        2849.882,
        "triton-lang/triton pull request 9044",
        "f8e4m3fn",
        1.0,
        (256, 256),
    ),
    _product("cuBLAS", "rtx4090", (8192, 8192, 8192), 163.5, "xytpai/gpuk, README.md", "f16", cluster=1),
    _product(
        "cuBLAS", "rtx5090", (4096, 28672, 8192), 233, "vllm-project/vllm pull request 38338", cluster=1
    ),
    _product(
        "cuBLAS",
        "rtx5090",
        (1024, 1024, 1024),
        95.3,
        "Hugging Face data set dnakov/consumer-mamf",
        tile=(128, 64),
        cluster=1,
    ),
    _product(
        "hipBLASLt",
        "mi300x",
        (4096, 4864, 10240),
        781.9,
        "stas00/ml-engineering, compute/accelerator/README.md, older table",
        tile=(256, 256),
        cluster=1,
    ),
    _product(
        "hipBLASLt",
        "mi355x",
        (4096, 8448, 7168),
        1313.3,
        "ROCm/aiter pull request 4772",
        tile=(256, 256),
        cluster=1,
    ),
    _product(
        "hipBLASLt",
        "mi355x",
        (4096, 1536, 7168),
        944.4,
        "ROCm/aiter pull request 4772",
        tile=(256, 192),
        cluster=1,
    ),
    Published(
        "FlashMLA, 16 heads", "h100", latent_decode(16), 0.215e-3, "ai-bot-pro/achatbot pull request 123"
    ),
    Published(
        "FlashMLA, 64 heads", "h100", latent_decode(64), 0.223e-3, "ai-bot-pro/achatbot pull request 123"
    ),
    Published(
        "FlashInfer MLA decode, 256x16384",
        "rtx4090",
        stream(4.502 * GIB + 2 * MIB, 4096, 2),
        5.126e-3,
        "flashinfer-ai/flashinfer pull request 551",
    ),
    Published(
        "FlashInfer MLA decode, 256x1024",
        "rtx4090",
        stream(290.268 * MIB + 2 * MIB, 4096, 2),
        387.508e-6,
        "flashinfer-ai/flashinfer pull request 551",
    ),
    Published(
        "layer norm f16, 16384x1024",
        "a100-40gb",
        stream(2 * 16384 * 1024 * 2, 4096),
        53.5e-6,
        "NVIDIA/apex pull request 1037",
    ),
    Published(
        "RMS norm f16, 65536x4096",
        "b200",
        stream(2 * 65536 * 4096 * 2, 65536),
        158e-6,
        "pytorch/pytorch pull request 159682",
    ),
    Published(
        "RMS norm f16, 32768x4096",
        "b200",
        stream(2 * 32768 * 4096 * 2, 32768),
        86e-6,
        "pytorch/pytorch pull request 159682",
    ),
    Published(
        "softmax backward bf16, 32768x8192",
        "mi355x",
        stream(3 * 32768 * 8192 * 2, 32768),
        269.7e-6,
        "ROCm/FlyDSL pull request 1019",
    ),
    Published(
        "softmax backward f32, 16384x8192",
        "mi355x",
        stream(3 * 16384 * 8192 * 4, 16384),
        286.0e-6,
        "ROCm/FlyDSL pull request 1019",
    ),
    Published(
        "softmax backward bf16, 4096x4097",
        "mi355x",
        stream(3 * 4096 * 4097 * 2, 4096),
        16.3e-6,
        "ROCm/FlyDSL pull request 1019",
    ),
)


SHAPES = "meta-pytorch/tritonbench pull request 1254"
HOPPER = "facebookexperimental/triton pull request 206"
MAXIMUM = "stas00/ml-engineering, compute/accelerator/README.md, BF16 table"
CALIBRATION = (
    _product("cuBLAS", "a100", (1024, 10240, 5120), 271.2, MAXIMUM, cluster=1),
    _product("cuBLAS", "h100", (2048, 2048, 13312), 794.5, MAXIMUM),
    _product("cuBLAS", "b200", (1792, 16128, 3072), 1745.0, MAXIMUM, tile=(256, 256)),
    _product("hipBLASLt", "mi300x", (10240, 15360, 8192), 668.4, MAXIMUM, tile=(256, 256), cluster=1),
    _product("hipBLASLt", "mi355x", (12288, 8192, 8192), 1565.0, MAXIMUM, tile=(256, 256), cluster=1),
    _attention("FlashAttention-3", "h100", (1, 16, 16384, 16384, 128), 648, FIGURE),
    _attention(
        "FlashAttention-2",
        "b200",
        (8, 16, 8192, 8192, 128),
        361.591,
        "meta-pytorch/tritonbench pull request 171",
        kind="synchronous",
    ),
    _attention(
        "FlashAttention-2",
        "a100",
        (1, 16, 16384, 16384, 128),
        230,
        "arXiv 2307.08691 (FlashAttention-2), section 4.1",
        kind="synchronous",
    ),
    _attention("Triton", "h100", (4, 32, 16384, 16384, 128), 486.99, HOPPER, kind="asynchronous"),
)
"""What the model was set by, to see that it gives it back."""


LATER = (
    _attention("FlashAttention-3", "h100", (4, 48, 1024, 1024, 128), 541.291, SHAPES),
    _attention("FlashAttention-3", "h100", (4, 48, 2048, 2048, 128), 617.773, SHAPES),
    _attention("FlashAttention-3", "h100", (4, 48, 4096, 4096, 128), 628.363, SHAPES),
    _attention("FlashAttention-3", "h100", (4, 48, 8192, 8192, 128), 638.572, SHAPES),
    _attention("Triton", "h100", (4, 32, 1024, 1024, 128), 406.8, HOPPER, kind="asynchronous"),
    _attention("Triton with roles", "h100", (4, 32, 1024, 1024, 128), 478.069, HOPPER),
    _attention("Triton with roles", "h100", (4, 32, 16384, 16384, 128), 611.52, HOPPER),
    _attention(
        "FlashAttention-2",
        "b200",
        (8, 16, 1024, 1024, 128),
        315.111,
        "meta-pytorch/tritonbench pull request 171",
        kind="synchronous",
    ),
    _product("cuBLAS", "h100", (65536, 1024, 1024), 584.429, "facebookexperimental/triton pull request 1038"),
    _product(
        "cuBLAS",
        "h200",
        (1280, 4096, 12032),
        1453.4,
        "stas00/ml-engineering, compute/accelerator/README.md, FP8 table",
        "f8e4m3fn",
        1.0,
    ),
    _product(
        "cuBLAS",
        "rtx5090",
        (4096, 8192, 8192),
        213,
        "vllm-project/vllm pull request 38338",
        cluster=1,
    ),
    _product(
        "cuBLAS",
        "rtx4090",
        (2048, 2048, 2048),
        167.112,
        "mli/transformers-benchmarks issue 4",
        "f16",
        tile=(128, 128),
        cluster=1,
    ),
    _product(
        "cuBLAS",
        "rtx4090",
        (8192, 8192, 8192),
        158.596,
        "mli/transformers-benchmarks issue 4",
        "f16",
        cluster=1,
    ),
    _product(
        "hipBLASLt",
        "mi355x",
        (512, 1536, 7168),
        337.9,
        "ROCm/aiter pull request 4772",
        tile=(64, 96),
        cluster=1,
    ),
    Published(
        "RMS norm f16, 65536x2048",
        "b200",
        stream(2 * 65536 * 2048 * 2, 65536),
        83e-6,
        "pytorch/pytorch pull request 159682",
    ),
    Published(
        "RMS norm f16, 16384x4096",
        "b200",
        stream(2 * 16384 * 4096 * 2, 16384),
        47e-6,
        "pytorch/pytorch pull request 159682",
    ),
    Published(
        "softmax backward f16, 32768x8192",
        "mi355x",
        stream(3 * 32768 * 8192 * 2, 32768),
        283.1e-6,
        "ROCm/FlyDSL pull request 1019",
    ),
)
"""Looked up when the form of the model was settled, too, and nothing changed since."""


def median_error(entries: Sequence[Published]) -> float:
    """The median of the absolute relative errors."""
    return median(abs(entry.error) for entry in entries)


def table(entries: Sequence[Published]) -> str:
    """Measurements as a Markdown table."""
    head = "| kernel | device | published, ms | predicted, ms | error | source |\n|---|---|---|---|---|---|"
    rows = (
        f"| {e.name} | {e.device} | {e.seconds * 1e3:.3f} | {e.predicted * 1e3:.3f} | {e.error:+.0%} | {e.source} |"
        for e in entries
    )
    return "\n".join((head, *rows))


if __name__ == "__main__":
    for entries in (PUBLISHED, LATER):
        print(table(entries))
        print(f"\n{len(entries)} kernels, median error {median_error(entries):.1%}\n")
