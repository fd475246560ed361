"""Random programs that write in place: into inputs, through views, between reads; torch.compile against eager.

Numbers are small multiples of 1/16, so that every order of operations gives the same bits. A program is lines of text
over its values; a line is kept if eager runs it at all sizes and its numbers stay exact. What PyTorch's own tracing
gets wrong (backend "aot_eager") is left out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo

from tests.property.check import shared
from tests.property.data import lay_out
from tests.property.levels import schedules
from tests.property.maker import Mismatch
from tests.property.program import Program
from tests.property.torch_path import again, strides_of

LIMITS = {torch.bfloat16: 16, torch.float16: 128, torch.float32: 2**18, torch.float64: 2**40}
"""The largest number of each dtype beside which 1/16 is exact."""
REFUSED = "does not fill its memory"
"""What the error of a view by strides says that cannot be compiled."""
SIZES = ((4, 6), (6, 4), (5, 5), (3, 9))
SHAPES = (("n",), ("n", "m"), ("n", "m"), ("m", "n"), ("2", "n", "m"), ("n", "1"))
LAYOUTS = ("contiguous", "contiguous", "transposed", "strided")
VIEWS = (
    "{x}[1:]", "{x}[:-1]", "{x}[::2]", "{x}[0]", "{x}[-1]", "{x}[..., 1:3]", "{x}[..., 0]", "{x}[:, None]", "{x}.mT",
    "{x}.unsqueeze(0)", "{x}.squeeze()", "{x}.view(-1)", "{x}.reshape(-1)", "{x}.chunk(2)[{i}]", "{x}.transpose(0, -1)",
    "{x}.narrow(-1, 1, 2)", "{x}.diagonal()", "{x}.unbind(0)[{i}]", "{x}.detach()", "{x}.expand(2, *{x}.shape)",
    "{x}.split(2, -1)[{i}]", "{x}[n // 2:]", "{x}[:m - 1]", "{x}.flatten()", "{x}.view_as({x})", "{x}.movedim(0, -1)",
)  # fmt: skip
WRITES = (
    "{x}.add_({y})", "{x}.sub_({y})", "{x}.mul_({k})", "{x}.copy_({y})", "{x}.zero_()", "{x}.fill_({k})", "{x}.neg_()",
    "{x}[1:] = {y}", "{x}[0] = {k}", "{x}[..., 1:3] = {k}", "{x}[::2] += {k}", "{x}[{x} > {k}] = {k}",
    "{x}[torch.arange(2)] = {k}", "{x}[[0, 1]] = {y}", "{x} += {y}", "{x} -= {k}", "{x}.clamp_(-2, {k})", "{x}.relu_()",
    "{x}.masked_fill_({x} < 0, {k})", "{x}.index_add_(0, torch.arange(2), {y}[:2])", "{x}.mT.add_({k})",
    "{x}.index_copy_(0, torch.tensor([1, 0]), {y}[:2])", "{x}.index_fill_(0, torch.tensor([1]), {k})",
    "{x}.scatter_(0, torch.zeros_like({x}[:1], dtype=torch.int64), {k})", "{x}[:, 1:].mul_({k})", "{x}[-1].add_({y})",
    "{x}.scatter_add_(0, torch.ones_like({x}, dtype=torch.int64), {x}.clone())", "{x}.view(-1)[1:].sub_({k})",
    "{x}.add_({y}, alpha=2)", "{x}.lerp_({y}, 0.5)", "{x}.addcmul_({y}, {x})", "{x}[n // 2] = {y}",
    "{x}.fill_diagonal_(1)",
    "{x}.index_put_((torch.tensor([0, 0]),), {y}[0], accumulate=True)", "torch.add({x}, {y}, out={x})", "{x}.square_()",
)  # fmt: skip
READS = (
    "{x} + {y}", "{x} * {k}", "{x} - {y}", "{x}.sum(0)", "{x}.sum(-1, keepdim=True)", "{x}.amax(-1)", "{x}.clone()",
    "torch.cat([{x}, {y}])", "torch.where({x} > {y}, {x}, {y})", "{x}.contiguous()", "{x}.to(torch.float64)", "-{x}",
    "torch.stack([{x}, {x}])", "{x}.flip(0)", "{x}.roll(1, 0)", "{x}.relu()", "{x}.to(torch.bfloat16)", "{x} * n",
    "{x}.cumsum(0)", "{x}.sort(0).values", "{x}.max(0).values", "torch.zeros_like({x})", "{x}.repeat(2, 1)",
    "{x}.index_select(0, torch.tensor([1, 0]))", "torch.full_like({x}, {k})", "{x}.tril()", "{x}.reshape(-1)",
)  # fmt: skip


def check_mutation(seed: int) -> None:
    """Mismatch where the compiled program of a seed differs from eager: values, what inputs hold, strides, aliases."""
    chance = random.Random(f"mutation {seed}")
    kinds = [
        (chance.choice(SHAPES), chance.choice((*LIMITS, torch.float32, torch.int64)), chance.choice(LAYOUTS))
        for _ in range(chance.randint(1, 3))
    ]
    inputs = [[_tensor(chance, kind, sizes) for kind in kinds] for sizes in SIZES]
    text = _generate(chance, inputs)
    dynamic = chance.random() < 0.5
    eager = _function(text)
    torch._dynamo.reset()
    compiled: Any = torch.compile(eager, backend="luminal", dynamic=dynamic, options={"cache": False})
    traced: Any = torch.compile(eager, backend="aot_eager", dynamic=dynamic)
    with schedules(seed):
        for sizes, given in list(zip(SIZES, inputs, strict=True))[: None if dynamic else 1]:
            for _ in range(2):
                problem = _problem(eager, compiled, given, sizes)
                if REFUSED in problem:
                    return
                if problem and not _problem(eager, traced, given, sizes):  # else it is PyTorch's own
                    where = f"# inputs {kinds}, sizes {sizes}, dynamic {dynamic}\n{text}"
                    empty = Program((), (), (), (), ({},), "mutation", None, seed)
                    raise Mismatch("mutation", f"{problem}\n{where}", empty)


def _tensor(
    chance: random.Random, kind: tuple[Sequence[str], torch.dtype, str], sizes: tuple[int, int]
) -> torch.Tensor:
    shape = [int(name) if name.isdigit() else sizes["nm".index(name)] for name in kind[0]]
    data = torch.tensor([chance.randint(-24, 24) for _ in range(math.prod(shape))]) / 16
    return lay_out(data.mul(16 if kind[1] == torch.int64 else 1).to(kind[1]).reshape(shape), kind[2])


def _function(text: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(text, "<mutation>", "exec"), scope)
    return scope["program"]


def _source(count: int, lines: Sequence[str], outputs: Sequence[str]) -> str:
    head = f"def program({', '.join(f'v{n}' for n in range(count))}, n, m):"
    return "\n    ".join([head, *lines, f"return ({''.join(f'{name}, ' for name in outputs)})"]) + "\n"


def _generate(chance: random.Random, inputs: Sequence[Sequence[torch.Tensor]]) -> str:
    """The text of a program that eager runs at all sizes, with exact numbers all the way."""
    count = len(inputs[0])
    names, lines = [f"v{n}" for n in range(count)], list[str]()
    wanted, tries = chance.randint(2, 10), 0
    while len(lines) < wanted and tries < 100:
        tries += 1
        x, y = (chance.choice(names[-4:] if chance.random() < 0.6 else names) for _ in range(2))
        form = chance.choice(chance.choice((VIEWS, VIEWS, WRITES, WRITES, READS)))
        line = form.format(x=x, y=y, k=chance.choice((0, 1, -1, 2, 0.5)), i=chance.randint(0, 1))
        made = f"v{len(names)}"
        line = line if form in WRITES else f"{made} = {line}"
        values = names if form in WRITES else [*names, made]
        if _runs(_source(count, [*lines, line], values), inputs):
            lines.append(line)
            names = values
    outputs = chance.sample(names, min(len(names), chance.randint(1, 4)))
    return _source(count, lines, outputs)


def _runs(text: str, inputs: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Whether eager runs the text, the numbers stay exact, and nobody writes what it reads elsewhere."""
    function = _function(text)
    for sizes, given in zip(SIZES, inputs, strict=True):
        try:
            results = function(*again(given), *sizes)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return False
        if not all(_is_exact(x) for x in results):
            return False
    return True


def _is_exact(x: torch.Tensor) -> bool:
    if x.numel() > 2000 or x.ndim > 4:
        return False
    if x.dtype not in LIMITS:
        return True
    wide = x.double() * 16
    return bool((wide == wide.round()).all() and (wide.abs() <= 16 * LIMITS[x.dtype]).all())


def _problem(eager: Any, compiled: Any, given: Sequence[torch.Tensor], sizes: tuple[int, int]) -> str:
    """What the compiled program does otherwise than eager; nothing if all is the same."""
    mine, theirs = again(given), again(given)
    expected = eager(*theirs, *sizes)
    try:
        with torch.no_grad():
            found = compiled(*mine, *sizes)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:1000]}"
    for number, (a, b) in enumerate(zip((*found, *mine), (*expected, *theirs), strict=True)):
        name = f"output {number}" if number < len(found) else f"input {number - len(found)} afterwards"
        if a.dtype != b.dtype or a.shape != b.shape or not torch.equal(a, b):
            return f"{name} is {a.dtype} {a.tolist()}, in eager {b.dtype} {b.tolist()}"
        if strides_of(a) != strides_of(b):
            return f"{name} has strides {a.stride()}, in eager {b.stride()}"
        ours, others = shared(a, [*mine, *found]), shared(b, [*theirs, *expected])
        if a.numel() and ours != others:
            return f"{name} shares memory with inputs and outputs {ours}, in eager {others}"
    return ""
