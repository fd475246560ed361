"""Every mistake has its own error, which names what was given, what would be right, and the user's line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch_harness import BACKEND, TARGET, assert_same, compiled

from luminal.errors import DeviceError, IndexOutOfRangeError, LuminalError, OptionError
from luminal.torch.backend import device_of, target_of
from luminal.torch.options import TorchOptions, parse_options
from luminal.torch.source import _source_of_trace

RUNTIME = pytest.mark.skipif(
    TARGET not in ("cpu", "reference"), reason="these errors come from the running program"
)


def _inner(error: BackendCompilerFailed) -> BaseException:
    return error.inner_exception


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("reduce-overhead", None, "mode 'reduce-overhead' is not known; modes are 'default', 'max-autotune'"),
        (None, {"fast": True}, "option 'fast' is not known; options are 'candidates', 'cache'"),
        (None, {"freeze": 1}, "option 'freeze' must be a bool, not 1"),
        (None, {"buckets": "many"}, "buckets 'many' is not known; known are 'auto', 'declared'"),
        (None, {"licences": "contract"}, "option 'licences' must be a tuple, not 'contract'"),
    ],
)
def test_unknown_options(mode: str | None, options: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(mode, options)


def test_an_option_error_reaches_the_user() -> None:
    with pytest.raises(BackendCompilerFailed, match="option 'fast' is not known") as caught:
        torch.compile(lambda x: x + 1, backend=BACKEND, options={"fast": True})(torch.randn(3))
    assert isinstance(_inner(caught.value), OptionError)


def test_options_are_taken() -> None:
    expected = TorchOptions(
        freeze=True, strict=True, licences=("contract", "reassociate"), mode="max-autotune"
    )
    given = {"freeze": True, "strict": True, "licences": ["reassociate", "contract"]}
    assert parse_options("max-autotune", given) == expected


def test_an_unknown_licence() -> None:
    with pytest.raises(BackendCompilerFailed, match="no licence 'fast-maths'"):
        compiled(lambda x: x + 1, licences=["fast-maths"])(torch.randn(3))


def test_strict_names_the_op_and_the_line() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return torch.linalg.svdvals(y)

    with pytest.raises(BackendCompilerFailed) as caught:
        compiled(function, strict=True)(torch.randn(3, 3))
    message = str(_inner(caught.value))
    assert "linalg_svd" in message
    assert "test_torch_errors.py" in message and "in function" in message


def test_devices() -> None:
    with pytest.raises(DeviceError, match="the inputs are on meta; Luminal serves cpu and cuda"):
        target_of(device_of([torch.empty(3, device="meta")]))
    with pytest.raises(DeviceError, match="cpu, meta"):
        device_of([torch.empty(3, device="meta"), torch.empty(3)])
    assert target_of(device_of([3, torch.empty(3)])) == "cpu"


@RUNTIME
def test_an_index_out_of_range_is_found_before_anything_is_written() -> None:
    def function(cache: torch.Tensor, table: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        cache.add_(1)
        return table[place] + cache

    run = compiled(function)
    cache, table = torch.zeros(2), torch.randn(5)
    run(cache, table, torch.tensor([0, 4]))
    for place in ([0, 5], [-6, 0]):
        with pytest.raises(IndexError) as caught:
            run(cache, table, torch.tensor(place))
        assert isinstance(caught.value, IndexOutOfRangeError) and isinstance(caught.value, LuminalError)
        assert "test_torch_errors.py" in str(caught.value)
    assert torch.equal(cache, torch.ones(2))


@RUNTIME
@pytest.mark.parametrize(
    "name",
    ["embedding", "gather", "scatter", "index_add", "index_copy", "index_fill", "index_put", "max_unpool"],
)
def test_every_kind_of_index_is_checked(name: str) -> None:
    functions: dict[str, Any] = {
        "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
        "gather": lambda x, i: x.gather(0, i[:, None]),
        "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
        "index_add": lambda x, i: x.index_add(0, i, x[:2]),
        "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
        "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
        "index_put": lambda x, i: x.index_put((i,), torch.tensor(1.0)),
        "max_unpool": lambda x, i: torch.nn.functional.max_unpool1d(x[:2, :1], i[:, None], 5),
    }
    run = compiled(functions[name])
    from_end = name in ("index_fill", "index_put")
    for right in (4, -2 if from_end else 3):
        x, index = torch.randn(5, 3), torch.tensor([0, right])
        assert_same(run(x, index), functions[name](x, index))
    for wrong in (7, -6 if from_end else -1):
        with pytest.raises(IndexError):
            run(torch.randn(5, 3), torch.tensor([0, wrong]))


def test_source_lines() -> None:
    inside = torch.__file__.replace("__init__.py", "nn/modules/linear.py")
    trace = f'  File "/home/me/model.py", line 12, in forward\n    y = f(x)\n  File "{inside}", line 134, in forward\n'
    assert _source_of_trace(trace) == "/home/me/model.py:12 in forward"
    assert _source_of_trace(f'  File "{inside}", line 134, in forward\n') == f"{inside}:134 in forward"
    assert _source_of_trace("") is None


def test_the_backend_by_name_and_as_an_object() -> None:
    import luminal

    x = torch.randn(3)
    assert "luminal" in torch._dynamo.list_backends()
    for backend in ("luminal", luminal.luminal_cpu):
        torch._dynamo.reset()
        before = luminal.stats()["compilations"]
        assert torch.equal(torch.compile(lambda x: x * 2 + 1, backend=backend)(x), x * 2 + 1)
        assert luminal.stats()["compilations"] == before + 1
    assert not luminal.fallbacks()


def test_what_is_copied_and_how_long_importing_took_is_in_the_statistics() -> None:
    import luminal

    before = luminal.stats()
    compiled(lambda x: x + 1)(torch.randn(4, 6)[:, ::2])
    after = luminal.stats()
    assert after["copied_bytes"] - before["copied_bytes"] == 4 * 3 * 4
    assert after["compile_seconds"]["import"] > before["compile_seconds"].get("import", 0.0)
