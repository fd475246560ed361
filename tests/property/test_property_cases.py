"""Programs that once gave a wrong result, each under the invariant that it broke; they run at every level."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.property.program import Input, Name, Program, Size, Step
from tests.property.runner import check_program

S = (("s", 0, 9),)
SIZES = ({"s": 3}, {"s": 0}, {"s": 1})


def case(
    inputs: list[Input],
    *steps: tuple[Any, ...],
    symbols: tuple[tuple[str, int, int], ...] = (),
    licences: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] = (0, 1),
    kind: str = "float",
) -> tuple[Program, ...]:
    """Steps are (operation, operands, attributes, results); the last step's results are the outputs."""
    made = [
        Step(name, operands, tuple(given[0].items()) if given else (), *given[1:])
        for name, operands, *given in steps
    ]
    first = len(inputs) + sum(step.results for step in made[:-1])
    outputs = tuple(range(first, first + made[-1].results))
    sizes = SIZES if symbols else ({},)
    return tuple(
        Program(symbols, tuple(inputs), tuple(made), outputs, sizes, kind, licences, seed) for seed in seeds
    )


def held(*data: Any, dtype: torch.dtype = torch.float32) -> Input:
    """An input of this data."""
    tensor = torch.tensor(data, dtype=dtype)
    names = {
        torch.float32: "f32",
        torch.float64: "f64",
        torch.int64: "i64",
        torch.bool: "bool_",
        torch.float16: "f16",
        torch.bfloat16: "bf16",
        torch.int32: "i32",
    }
    return Input(names[dtype], tuple(map(str, tensor.shape)), data=tensor)


CASES: dict[str, tuple[Program, ...]] = {
    "a size that is zero divides nothing of an empty tensor": case(
        [Input("i64", ("s", "s"))], ("remainder_number", (0,), {"other": Size("s")}), symbols=S
    ),
    "a divisor at a position that no result takes may be zero": case(
        [held(*[[2] * 4] * 6, dtype=torch.int64)], ("remainder", (0, 0)), seeds=tuple(range(8))
    ),
    "a number keeps the sign of its zero": case(
        [held(True, False, dtype=torch.bool), held(1.0, 2.0, dtype=torch.float16)],
        ("where_yes", (0, 1), {"yes": -0.0}),
    ),
    "a convolution of nothing is nothing": case(
        [Input("f32", ("0", "2", "3")), Input("f32", ("2", "2", "2"))],
        (
            "convolution",
            (0, 1),
            {
                "stride": (1,),
                "padding": (1,),
                "dilation": (1,),
                "transposed": False,
                "extra": (0,),
                "groups": 1,
            },
        ),
    ),
    "an index of no positions fits every tensor": (
        *case([Input("f32", ("2", "3")), Input("i64", ("5", "0"))], ("gather", (0, 1), {"dim": 1})),
        *case(
            [Input("f32", ("2", "3")), Input("i64", ("5", "0")), Input("f32", ("1", "0"))],
            ("scatter_add", (0, 1, 2), {"dim": 1}),
        ),
    ),
    "an axis of stride 0 may be empty": case(
        [Input("f32", ("1", "3"))],
        ("expand", (0,), {"shape": (Size("4"), Size("0"), Size("3"))}),
        kind="torch",
    )
    + case(
        [Input("f32", ("1", "1", "3"))],
        ("expand", (0,), {"shape": (Size("4"), Size("0"), Size("-1"))}),
        kind="torch",
    ),
    "a dim may stand in a slice alone": (
        Program(
            (("s", 0, 9), ("n", 0, 5)),
            (Input("f32", ("s",)),),
            (
                Step("index", (0,), (("index", Name("n:")),)),
                Step("mul_number", (1,), (("other", Size("n")),)),
            ),
            (2,),
            ({"s": 7, "n": 2}, {"s": 2, "n": 3}, {"s": 0, "n": 0}),
        ),
    ),
    "a sum over no axes starts from 0.0": case(
        [Input("f32", (), data=torch.tensor(-0.0))], ("sum", (0,), {"dim": (), "keepdim": False})
    ),
    "a sum of one number in registers counts each position": case(
        [Input("f32", ()), Input("i64", ())],
        ("expand", (0,), {"shape": (Size("2"), Size("37"))}),
        ("expand", (1,), {"shape": (Size("40"),)}),
        ("sum", (3,), {"dim": (0,), "keepdim": False}),
        ("var", (2,), {"dim": (1,), "correction": 1, "keepdim": False}),
        ("add", (4, 5)),
        seeds=tuple(range(8)),
    ),
    "a kept reduction has no place for the index that it reduces": case(
        [Input("i64", ("3", "4", "1", "8"))],
        ("sin", (0,)),
        ("log_softmax", (1,), {"dim": 1}),
        ("layer_norm", (2,), {"shape": (Size("1"), Size("8")), "eps": 1e-12}),
        seeds=tuple(range(12)),
    ),
    "loops that read kept loops have a schedule": case(
        [Input("f32", ("3", "2", "6"))],
        ("layer_norm", (0,), {"shape": (Size("6"),), "eps": 1e-5}),
        ("gelu", (1,), {"approximate": "none"}),
        ("logsumexp", (2,), {"dim": (0, 1), "keepdim": False}),
        licences=(),
        seeds=tuple(range(4)),
    ),
    "attention of narrow floats may round its weights before it multiplies them": case(
        [Input("bf16", ("8", "8", "2"))],
        ("flip", (0,), {"dims": (0, 1, 2)}),
        ("attention", (0, 1, 0), {"causal": False}),
        seeds=(800163,),
    )
    + case(
        [Input("f16", ("8", "8", "2"))],
        ("flip", (0,), {"dims": (0, 1, 2)}),
        ("attention", (0, 1, 0), {"causal": False}),
        licences=(),
        seeds=(800163,),
    ),
    "attention may overflow where its sum does and its mean does not": case(
        [held(*[[[size] for size in (1.7e308, 1.0, 1.7e308, 0.0)]] * 2, dtype=torch.float64)],
        ("mul_number", (0,), {"other": 0.0}),
        ("attention", (1, 1, 0), {"causal": False}),
    ),
    "an instruction for products of bf16 takes a subnormal factor for zero": case(
        [
            held(*[[0.5, 2.0**-128] * 8] * 16, dtype=torch.bfloat16),
            held(*[[1.5] * 16, [3.0e38] * 16] * 8, dtype=torch.bfloat16),
        ],
        ("matmul", (0, 1)),
        seeds=tuple(range(8)),
    ),
    "squares that overflow are infinite, not NaN": case(
        [held(1e30, -2e30, 3e30)], ("var", (0,), {"dim": (0,), "correction": 1, "keepdim": False})
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    for program in CASES[name]:
        check_program(program)
