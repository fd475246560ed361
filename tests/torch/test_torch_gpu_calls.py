"""torch.compile and torch.export for GPUs, on a double of the device: models, caches, sizes, views, and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.testing import assert_close

pytest.importorskip("triton", reason="Triton is not installed")

import luminal as lm
from luminal.bench import peak
from luminal.errors import DeviceError, IndexOutOfRangeError, NoDeviceError
from luminal.runtimes.gpu_targets import target_of_device
from luminal.torch.backend import Backend, check_results, device_of
from tests.emit_triton.double import Double, use_double

BACKEND = Backend("luminal_for_gpu", "sm_90")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Double:
    found = Double()
    use_double(monkeypatch, found)
    torch._dynamo.reset()
    return found


def compiled(model: Any, *, dynamic: bool = False, **options: Any) -> Any:
    chosen = {"strict": True, "candidates": 1, "cache": False, **options}
    return torch.compile(model, backend=BACKEND, dynamic=dynamic, fullgraph=True, options=chosen)


class Layer(torch.nn.Module):
    """A layer of an encoder, as small as it can be."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = self.first(x + self.out(mixed.transpose(1, 2).reshape(b, s, w)))
        return self.second(x + self.down(torch.nn.functional.gelu(self.up(x))))


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 16)
        self.layers = torch.nn.Sequential(Layer(), Layer())

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states = self.layers(self.embedding(tokens))
        return states, states.mean(1)


@pytest.mark.slow
def test_an_encoder_of_two_layers_at_several_sizes(device: Double) -> None:
    torch.manual_seed(0)
    model = Encoder().eval()
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for batch, length in ((2, 5), (3, 7), (2, 5)):
            tokens = torch.randint(0, 32, (batch, length))
            for found, wanted in zip(run(tokens), model(tokens), strict=True):
                assert_close(found, wanted, rtol=1e-4, atol=1e-5)
                assert found.stride() == wanted.stride()
        assert device.launches
        with pytest.raises(IndexOutOfRangeError):
            run(torch.full((2, 5), 32))
        torch.nn.init.ones_(model.embedding.weight)
        tokens = torch.randint(0, 32, (2, 5))
        assert_close(run(tokens)[1], model(tokens)[1], rtol=1e-4, atol=1e-5)


class Decoder(torch.nn.Module):
    """One layer of a decoder with a cache of keys and values, which a step writes one row of."""

    def __init__(self, width: int = 16, heads: int = 4, kept: int = 2, longest: int = 12) -> None:
        super().__init__()
        self.heads, self.kept, self.size = heads, kept, width // heads
        self.q = torch.nn.Linear(width, width, bias=False)
        self.k, self.v = (torch.nn.Linear(width, kept * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (torch.nn.Linear(width, 24, bias=False) for _ in range(2))
        self.down, self.norm = torch.nn.Linear(24, width, bias=False), torch.nn.RMSNorm(width)
        self.register_buffer("keys", torch.zeros(1, kept, longest, self.size))
        self.register_buffer("values", torch.zeros(1, kept, longest, self.size))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        q = self.q(h).view(1, 1, self.heads, self.size).transpose(1, 2)
        k, v = (p(h).view(1, 1, self.kept, self.size).transpose(1, 2) for p in (self.k, self.v))
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        seen = torch.arange(self.keys.size(2)) <= position
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=seen[None, None, None], enable_gqa=True
        )
        x = x + mixed.transpose(1, 2).reshape(1, 1, -1)
        return x + self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


@pytest.mark.slow
def test_decoding_updates_the_cache_in_place(device: Double) -> None:
    torch.manual_seed(1)
    mine, theirs = Decoder().eval(), Decoder().eval()
    theirs.load_state_dict(mine.state_dict())
    run = compiled(mine)
    address = mine.keys.data_ptr()
    with torch.no_grad():
        for step in range(4):
            x, position = torch.randn(1, 1, 16), torch.tensor([step])
            assert_close(run(x, position), theirs(x, position), rtol=1e-4, atol=1e-5)
            assert_close(mine.keys, theirs.keys, rtol=1e-4, atol=1e-5)
            assert_close(mine.values, theirs.values, rtol=1e-4, atol=1e-5)
        assert mine.keys.data_ptr() == address
        before = mine.keys.clone()
        with pytest.raises(IndexOutOfRangeError):
            run(torch.randn(1, 1, 16), torch.tensor([12]))
        assert torch.equal(mine.keys, before)


def test_views_mutated_inputs_and_strides(device: Double) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(y[:, 1:])
        return x.t(), x.t() * 2.0, y[::2].exp(), torch.stack([y, y]).permute(2, 0, 1)

    mine = torch.randn(7, 5)[1:].contiguous(), torch.randn(12, 6)[::2]
    theirs = mine[0].clone(), mine[1].clone()
    found, wanted = compiled(function)(*mine), function(*theirs)
    assert_close(mine[0], theirs[0])
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert found[0].data_ptr() == mine[0].data_ptr()


@pytest.mark.slow
def test_an_exported_program(device: Double) -> None:
    torch.manual_seed(2)
    model = Layer().eval()
    rows = torch.export.Dim("rows", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(model, (torch.randn(2, 5, 16),), dynamic_shapes=({1: rows},))
        run = lm.compile(program, target="sm_90", options={"candidates": 1, "cache": False})
        x = torch.randn(2, 9, 16)
        assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def test_candidates_are_compared_and_timed_on_the_device(device: Double) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    x = torch.randn(8, 16)
    with lm_dump() as levels:
        run = compiled(function, candidates=3, verify="ordinary")
        assert_close(run(x), function(x), rtol=1e-5, atol=1e-6)
    (found,) = levels
    assert found["search"].count("measured") == 3 and "tl.load" in found["triton"]


def lm_dump() -> Any:
    from luminal.dump import collect

    return collect()


def test_without_a_device_it_is_compiled_and_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_double(monkeypatch, None)
    for name in ("peak_gflops", "memory_gbytes"):
        monkeypatch.setattr(peak, name, lambda threads: 100.0 * threads)
    torch._dynamo.reset()
    x = torch.randn(3, 4)
    text = lm.explain(torch.nn.functional.gelu, x, target="sm_90")
    assert "==== triton" in text and "@triton.jit" in text and "by the model" in text
    graph = lm.Graph()
    graph.tensor((4, 8), name="x").exp().output()
    assert "@triton.jit" in lm.explain(graph, target="sm_90", html=tmp_path / "page.html")
    assert "<summary>triton <span>" in (tmp_path / "page.html").read_text()
    with pytest.raises(NoDeviceError, match="sm_90"):
        compiled(torch.nn.functional.gelu)(x)
    program = torch.export.export(torch.nn.Linear(4, 4), (x,))
    assert "@triton.jit" in lm.explain(program, target="gfx942")
    run = lm.compile(program, target="sm_90")
    with pytest.raises(NoDeviceError):
        run(x)


def test_mistakes() -> None:
    with pytest.raises(BackendCompilerFailed, match="the inputs are on cpu; luminal_cuda serves cuda"):
        torch.compile(torch.exp, backend=lm.luminal_cuda)(torch.ones(3))
    meta = torch.empty((), device="meta")
    assert device_of([torch.empty(()), torch.empty(2, device="meta")]).type == "meta"
    assert device_of([meta]).type == "meta"
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = meta
    graph.output((node,))
    with pytest.raises(DeviceError, match="the result x is on meta, the inputs are on cpu"):
        check_results(torch.fx.GraphModule({}, graph), torch.device("cpu"))


@pytest.mark.parametrize(
    ("name", "architecture", "target"),
    [
        ("NVIDIA H200", "sm_90", "h200"),
        ("NVIDIA GeForce RTX 4090", "sm_89", "rtx4090"),
        ("AMD Instinct MI300X", "gfx942", "mi300x"),
        ("Another", "sm_80", "a100"),
    ],
)
def test_a_device_has_a_target(name: str, architecture: str, target: str) -> None:
    assert target_of_device(name, architecture).name == target


def test_a_device_that_no_target_describes() -> None:
    with pytest.raises(lm.LuminalError, match=r"no target describes Old \(sm_61\)"):
        target_of_device("Old", "sm_61")


def _spelled(name: str) -> Any:
    op = getattr(torch.ops.aten, f"_scaled_dot_product_{name}_attention")
    if name == "flash":
        return lambda q, k, v, m: op(q, k, v, 0.0, True)[0]
    return lambda q, k, v, m: op(q, k, v, m, True)[0]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("flash", "cpu"),
        ("efficient", "cpu"),
        ("cudnn", "cpu"),
        pytest.param("efficient", "sm_90", marks=pytest.mark.slow),
    ],
)
def test_the_backward_pass_of_attention_as_torch_spells_it_on_a_gpu(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_double(monkeypatch, Double())
    given = [torch.randn(1, 2, 16, 16, requires_grad=True) for _ in range(3)]
    mask = torch.randn(1, 1, 16, 16, requires_grad=name == "efficient")
    leaves = [*given, mask] if mask.requires_grad else given
    direction = torch.randn(1, 2, 16, 16)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *given, None if name == "flash" else mask, is_causal=name == "flash"
    )
    expected = torch.autograd.grad(wanted, leaves, direction)
    options = {"strict": True, "candidates": 1}
    run = torch.compile(
        _spelled(name), backend=Backend("luminal_traced", target), options=options, fullgraph=True
    )
    found = run(*given, mask)
    assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for a, b in zip(torch.autograd.grad(found, leaves, direction), expected, strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_attention_as_torch_spells_it_on_a_gpu() -> None:
    """The ops of CUDA have no kernels here, but they can be traced."""
    aten = torch.ops.aten
    spellings: list[Any] = [
        lambda q, k, v, m: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0],
        lambda q, k, v, m: aten._scaled_dot_product_efficient_attention(q, k, v, m, False)[0],
        lambda q, k, v, m: aten._scaled_dot_product_cudnn_attention(q, k, v, m, False)[0],
    ]
    q, k, v = (torch.randn(1, 2, 8, 16) for _ in range(3))
    mask = torch.randn(1, 2, 8, 8)
    for number, spelling in enumerate(spellings):
        wanted = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, None if number == 0 else mask, is_causal=number == 0
        )
        run = torch.compile(spelling, backend=Backend("luminal_traced", "cpu"), options={"strict": True})
        assert_close(run(q, k, v, mask), wanted, rtol=1e-4, atol=1e-5)
