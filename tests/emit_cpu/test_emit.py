"""Placed kernels in machine code against the interpreter of the placed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np
import pytest

from luminal.dialects.kernel.placed_interpreter import interpret_placed
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, Term, TermTable
from luminal.dim import Dim, as_dim, dim
from luminal.dtype import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, to_bits, u8
from luminal.emit_cpu.emit import emit_function
from luminal.emit_cpu.jit import Target, assembly, compile_object
from luminal.emit_cpu.pool import process_pool
from luminal.passes.place import place
from tests.emit_cpu.kernels import EVERYWHERE, HOST, X86, kernel_for
from tests.emit_cpu.native_kernel import NativeKernel, compile_function

LICENCES = ("contract", "reassociate")
Arrays = list[np.ndarray]


def random_array(rng: np.random.Generator, size: int, dtype: DType) -> np.ndarray:
    """Values near one, with NaN, infinities, zeros of both signs and subnormals among floats."""
    if dtype.is_bool:
        return rng.integers(0, 2, size).astype(np.bool_)
    if not dtype.is_float:
        low = max(int(dtype.lowest), -9) if dtype.is_signed else 0
        return rng.integers(low, 10, size).astype(dtype.numpy)
    values = rng.standard_normal(size).astype(np.float32)
    return values.astype(dtype.numpy)


def with_specials(values: np.ndarray) -> np.ndarray:
    specials = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-42]
    flat = values.copy()
    flat[: len(specials)] = np.array(specials)[: len(flat)].astype(values.dtype)
    return flat


def check(
    region: Region,
    schedule: str,
    inputs: Arrays,
    dims: dict[str, int],
    target: Target = HOST,
    licences: Sequence[str] = LICENCES,
    threads: int = 1,
    tolerance: float = 1e-5,
    exact: bool = False,
) -> NativeKernel:
    """Run a region natively and in the interpreter, from the same memory, and compare."""
    function = place(region, parse_schedule(schedule), "kernel", licences)
    function.verify()
    kernel = kernel_for(function, target)
    aliased = {output.alias for output in region.outputs if output.alias >= 0}

    def memory() -> Arrays:
        arrays = [array.copy() for array in inputs]
        for output in region.outputs:
            fresh = np.full(output.elements.evaluate(dims) + 64, 3).astype(output.dtype.numpy)
            start = -fresh.ctypes.data % 64 // fresh.itemsize
            arrays.append(arrays[output.alias] if output.alias >= 0 else fresh[start:][: len(fresh) - 64])
        return arrays

    got, expected = memory(), memory()
    pool = process_pool().handle if threads > 1 else 0
    assert kernel.run([array.ctypes.data for array in got], dims, threads, pool) == 0
    interpret_placed(function, expected, dims)
    for number in [*aliased, *range(len(inputs), len(got))]:
        left, right = got[number], expected[number]
        if exact or not region_dtype(region, number).is_float:
            np.testing.assert_array_equal(left.view(f"u{left.itemsize}"), right.view(f"u{left.itemsize}"))
        else:
            wide = (left.astype(np.float64), right.astype(np.float64))
            np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance)
    for before, after in zip(inputs, got, strict=False):
        if not aliased:
            np.testing.assert_array_equal(before, after)
    return kernel


def region_dtype(region: Region, number: int) -> DType:
    count = len(region.arguments)
    return region.arguments[number].dtype if number < count else region.outputs[number - count].dtype


def elementwise(
    size: Dim | int, build: Callable[[TermTable, list[Term]], Term], dtypes: Sequence[DType] = (f32,)
) -> Region:
    table, n = TermTable(), as_dim(size)
    loads = [table.read(number, Affine.of({"i": 1}), dtype) for number, dtype in enumerate(dtypes)]
    result = build(table, loads)
    output = Output(result, n, Affine.of({"i": 1}), indices=frozenset("i"))
    return Region(table, {"i": n}, [Argument(dtype, n) for dtype in dtypes], [output])


def constant(table: TermTable, value: float, dtype: DType = f32) -> Term:
    return table.constant(to_bits(value, dtype), dtype)


def matmul(m: Dim | int, n: Dim | int, k: Dim | int, dtype: DType = f32) -> Region:
    rows, columns, inner = map(as_dim, (m, n, k))
    table = TermTable()
    a = table.read(0, Affine.of({"i": inner, "k": 1}), dtype)
    b = table.read(1, Affine.of({"k": columns, "j": 1}), dtype)
    if dtype in (f16, bf16):
        a, b = (table.apply("cast", (x,), "none", f32) for x in (a, b))
    total = table.reduce("sum", ["k"], (table.apply("mul", (a, b), None, a.dtype),))
    if dtype in (f16, bf16):
        total = table.apply("cast", (total,), "none", dtype)
    output = Output(total, rows * columns, Affine.of({"i": columns, "j": 1}), indices=frozenset("ij"))
    extents = {"i": rows, "j": columns, "k": inner}
    return Region(table, extents, [Argument(dtype, rows * inner), Argument(dtype, inner * columns)], [output])


def softmax(rows: Dim | int, columns: Dim | int) -> Region:
    r, c = as_dim(rows), as_dim(columns)
    table = TermTable()
    x = table.read(0, Affine.of({"i": c, "j": 1}), f32)
    largest = table.reduce("max", ["j"], (x,))
    shifted = table.apply(
        "add", (x, table.apply("mul", (largest, constant(table, -1.0)), None, f32)), None, f32
    )
    power = table.apply("exp2", (shifted,), "e", f32)
    total = table.reduce("sum", ["j"], (power,))
    output = Output(
        table.apply("recip", (power, total), "none", f32),
        r * c,
        Affine.of({"i": c, "j": 1}),
        indices=frozenset("ij"),
    )
    return Region(table, {"i": r, "j": c}, [Argument(f32, r * c)], [output])


ROW_SCHEDULES = [
    "out0: i:* i:16:lane",
    "out0: i:*:masked i:16:lane",
    "out0: i:*:parallel i:2:tile i:8:lane",
    "out0: i:* i:3:unroll i:2:tile i:4:lane",
    "out0: i:* i:2 i:5:tile",
    "out0: i:*",
]


@pytest.mark.parametrize("schedule", ROW_SCHEDULES)
@pytest.mark.parametrize("target", EVERYWHERE, ids=lambda target: target.cpu)
def test_elementwise_chain_of_any_size(schedule: str, target: Target) -> None:
    def build(table: TermTable, x: list[Term]) -> Term:
        product = table.apply("mul", (x[0], x[1]), None, f32)
        power = table.apply("exp2", (product,), "e", f32)
        return table.apply("max", (table.apply("add", (power, x[0]), None, f32), x[1]), None, f32)

    rng = np.random.default_rng(1)
    s = dim("s", 0, 1000)
    for size in (0, 1, 7, 16, 53, 64):
        inputs = [with_specials(random_array(rng, size, f32)) for _ in range(2)]
        check(elementwise(s, build, (f32, f32)), schedule, inputs, {"s": size}, target)
        if size:
            check(elementwise(size, build, (f32, f32)), schedule, inputs, {}, target)


@pytest.mark.parametrize("dtype", [f64, f32, f16, bf16, i64, i32, i16, i8, u8, bool_], ids=str)
@pytest.mark.parametrize("target", EVERYWHERE, ids=lambda target: target.cpu)
def test_moving_every_dtype_is_exact(dtype: DType, target: Target) -> None:
    """Strided gathers, a select and masked edges."""
    rng = np.random.default_rng(2)
    s = dim("s", 1)
    table = TermTable()
    read = table.read(0, Affine.of({"i": 1, "j": s}), dtype)
    flag = table.read(1, Affine.of({"j": 1}), bool_)
    picked = table.apply("select", (flag, read, table.constant(to_bits(1, dtype), dtype)), None, dtype)
    output = Output(picked, s * 5, Affine.of({"i": 5, "j": 1}), indices=frozenset("ij"))
    region = Region(
        table, {"i": s, "j": as_dim(5)}, [Argument(dtype, s * 5), Argument(bool_, as_dim(5))], [output]
    )
    for size in (1, 9, 40):
        inputs = [random_array(rng, size * 5, dtype), random_array(rng, 5, bool_)]
        for schedule in (
            "out0: i:* j:* j:8:lane",
            "out0: j:* i:* i:16:lane",
            "out0: j:5:unroll i:* i:3:tile",
        ):
            check(region, schedule, inputs, {"s": size}, target, exact=True)


@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 40), (4, 64), (2, 7)])
def test_softmax_rows(rows: int, columns: int) -> None:
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(rows * columns).astype(np.float32)]
    r, c = dim("r", 1), dim("c", 1)
    for schedule in (
        "out0: i:* j:* j:16:lane",
        "out0: i:*:parallel j:* j:2:tile j:8:lane",
        "out0: i:* j:*:masked j:4:lane",
        "out0: i:* j:* i:2:block j:4:block",
    ):
        check(softmax(rows, columns), schedule, inputs, {})
        check(softmax(r, c), schedule, inputs, {"r": rows, "c": columns})


PACKED = (
    "out0: i:*@ic j:*@jp i:2 i:4:tile j:2:tile j:8:lane k:* k:4:unroll;"
    " keep %0 as i:2 k:* i:4 from ic at ic: k:* i:2 i:4:tile;"
    " keep %1 as j:* k:* j:16 at kernel: k:* j:* j:2:tile j:8:lane"
)


BLOCKS = "out0: i:* j:* k:* i:4:block j:2:block k:4:block j:8:lane"


@pytest.mark.parametrize("m, n, k", [(8, 16, 8), (9, 33, 7), (30, 70, 19), (1, 1, 1), (5, 3, 0)])
@pytest.mark.parametrize("schedule", ["out0: i:* j:* k:* i:4:tile j:2:tile j:8:lane", BLOCKS, PACKED])
def test_matmul_ragged_in_every_dim(m: int, n: int, k: int, schedule: str) -> None:
    rng = np.random.default_rng(4)
    inputs = [random_array(rng, m * k, f32), random_array(rng, k * n, f32)]
    symbols = [dim(name, 0) for name in "mnk"]
    check(matmul(*symbols), schedule, inputs, {"m": m, "n": n, "k": k})
    if k:
        check(matmul(m, n, k), schedule, inputs, {})


@pytest.mark.parametrize("dtype", [f64, f16, bf16, i64, i32, u8], ids=str)
def test_matmul_dtypes(dtype: DType) -> None:
    rng = np.random.default_rng(5)
    inputs = [random_array(rng, 12 * 10, dtype), random_array(rng, 10 * 20, dtype)]
    tolerance = 1e-2 if dtype in (f16, bf16) else 1e-6
    region = matmul(12, 20, 10, dtype)
    check(region, "out0: i:* j:* k:* i:4:tile j:8:lane", inputs, {}, tolerance=tolerance)


@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_a_sum_of_one_vector_of_products_of_bytes(lanes: int) -> None:
    size, rng = as_dim(lanes), np.random.default_rng(7)
    table = TermTable()
    nibbles = table.apply(
        "bits", (table.read(0, Affine.of({"j": 1}), u8), constant(table, 15, u8)), "and", u8
    )
    factors = [
        table.apply("cast", (x,), "none", i32) for x in (nibbles, table.read(1, Affine.of({"j": 1}), i8))
    ]
    total = table.reduce("sum", ["j"], (table.apply("mul", factors, None, i32),))
    output = Output(total, as_dim(1), Affine.of({}), indices=frozenset())
    region = Region(table, {"j": size}, [Argument(u8, size), Argument(i8, size)], [output])
    inputs = [rng.integers(0, 256, lanes).astype(np.uint8), rng.integers(-128, 128, lanes).astype(np.int8)]
    check(region, f"out0: j:{lanes}:lane", inputs, {})


def test_without_licences_products_and_sums_round_twice() -> None:
    """(1 + e)^2 - (1 + 2e) is e^2 fused and 0 rounded twice."""
    e = np.float32(2.0**-12)
    inputs = [np.full(4, 1 + e, np.float32), np.full(4, -(1 + 2 * e), np.float32)]
    table = TermTable()
    x, y = (table.read(number, Affine.of({"i": 1}), f32) for number in range(2))
    both = table.apply("add", (table.apply("mul", (x, x), None, f32), y), None, f32)
    four = as_dim(4)
    output = Output(both, four, Affine.of({"i": 1}), indices=frozenset("i"))
    region = Region(table, {"i": four}, [Argument(f32, four)] * 2, [output])
    results: dict[tuple[str, ...], float] = {}
    for licences in ((), ("contract",)):
        function = place(region, parse_schedule("out0: i:4:lane"), "kernel", licences)
        out = np.zeros(4, np.float32)
        compile_function(function).run([*(a.ctypes.data for a in inputs), out.ctypes.data], {})
        results[licences] = float(out[0])
    assert results[()] == 0.0
    if X86:
        assert results[("contract",)] == float(e) ** 2


@pytest.mark.parametrize("schedule", ["out0: r:* r:4:lane", "out0: r:*"])
def test_a_product_that_is_compared_is_not_fused(schedule: str) -> None:
    """x - max(x) is at most 0 where x is a product, whose rounding may be much more than 1."""
    table, four = TermTable(), as_dim(4)
    a, b = (table.read(number, Affine.of({"r": 1}), f32) for number in range(2))
    x = table.apply("mul", (a, b), None, f32)
    most = table.apply("mul", (table.reduce("max", {"r"}, (x,)), table.constant(0xBF800000, f32)), None, f32)
    distance = table.reduce("max", {"r"}, (table.apply("add", (x, most), None, f32),))
    region = Region(
        table, {"r": four}, [Argument(f32, four)] * 2, [Output(distance, as_dim(1), Affine.of({}))]
    )
    function = place(region, parse_schedule(schedule), "kernel", ("contract", "reassociate"))
    generator = np.random.default_rng(0)
    for _ in range(50):
        inputs = [generator.standard_normal(4).astype(np.float32) * 1e15 for _ in range(2)]
        out = np.ones(1, np.float32)
        compile_function(function).run([*(x.ctypes.data for x in inputs), out.ctypes.data], {})
        assert out[0] == 0.0


@pytest.mark.parametrize("monoid", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [f32, f64, i64, i16, u8], ids=str)
def test_reductions(monoid: str, dtype: DType) -> None:
    rng = np.random.default_rng(6)
    r, c = dim("r", 1), dim("c", 1)
    table = TermTable()
    x = table.read(0, Affine.of({"i": c, "j": 1}), dtype)
    operands = (x, table.index(Affine.of({"j": 1}))) if monoid.startswith("arg") else (x,)
    result = table.reduce(monoid, ["j"], operands)
    output = Output(result, r, Affine.of({"i": 1}), indices=frozenset("i"))
    region = Region(table, {"i": r, "j": c}, [Argument(dtype, r * c)], [output])
    for rows, columns in ((3, 1), (2, 45)):
        values = random_array(rng, rows * columns, dtype)
        if dtype.is_float and monoid not in ("sum", "prod") and columns > 8:
            values[3], values[5], values[7] = np.inf, np.nan, np.nan
        for schedule in (
            "out0: i:* j:* j:8:lane",
            "out0: i:* j:* j:4:tile",
            "out0: i:* i:2:tile j:* j:3:unroll",
        ):
            check(region, schedule, [values], {"r": rows, "c": columns}, tolerance=1e-4)


def test_scan_in_order() -> None:
    n = dim("n", 1)
    table = TermTable()
    x = table.read(0, Affine.of({"i": n, "j": 1}), f32)
    output = Output(table.scan("sum", "j", x), n * 3, Affine.of({"i": n, "j": 1}), indices=frozenset("ij"))
    region = Region(table, {"i": as_dim(3), "j": n}, [Argument(f32, n * 3)], [output])
    inputs = [np.random.default_rng(7).standard_normal(3 * 21).astype(np.float32)]
    check(region, "out0: i:3 j:*", inputs, {"n": 21})
    check(region, "out0: j:* i:3:lane", inputs, {"n": 21})


def gather(dtype: DType = f32) -> Region:
    """out[i, j] = x[index[i], j] where 0 <= index[i] < 6, else 0."""
    n, c = dim("n", 0), dim("c", 1)
    table = TermTable()
    index = table.read(0, Affine.of({"i": 1}), i64)
    low = table.apply("less_than", (table.constant(to_bits(0, i64), i64), index), "le", bool_)
    high = table.apply("less_than", (index, table.constant(to_bits(6, i64), i64)), "lt", bool_)
    guard = table.apply("bits", (low, high), "and", bool_)
    address = table.apply("mul", (index, table.dimension(c)), None, i64)
    read = table.read(1, Affine.of({"j": 1}), dtype, address, guard)
    output = Output(read, n * c, Affine.of({"i": c, "j": 1}), indices=frozenset("ij"))
    return Region(table, {"i": n, "j": c}, [Argument(i64, n), Argument(dtype, c * 6)], [output])


@pytest.mark.parametrize(
    "schedule", ["out0: i:* j:* j:8:lane", "out0: j:* i:* i:8:lane", "out0: i:* i:2:tile j:*"]
)
def test_guarded_gather_reads_nothing_out_of_range(schedule: str) -> None:
    rng = np.random.default_rng(8)
    for count, columns in ((1, 3), (13, 20)):
        index = rng.integers(-2, 8, count)
        index[0] = 2**60
        inputs = [index, rng.standard_normal(6 * columns).astype(np.float32)]
        check(gather(), schedule, inputs, {"n": count, "c": columns}, exact=True)


@pytest.mark.parametrize("combine", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [f32, i32, bf16], ids=str)
@pytest.mark.parametrize("schedule", ["out0: i:*", "out0: i:* i:8:lane"])
def test_scatter_in_row_major_order(combine: str, dtype: DType, schedule: str) -> None:
    """Duplicate targets within one vector combine one after the other."""
    rng = np.random.default_rng(9)
    n = dim("n", 1)
    table = TermTable()
    index = table.read(0, Affine.of({"i": 1}), i64)
    value = table.read(1, Affine.of({"i": 1}), dtype)
    five = as_dim(5)
    output = Output(value, five, Affine.of({}), index, None, combine, 2, frozenset("i"))
    region = Region(table, {"i": n}, [Argument(i64, n), Argument(dtype, n), Argument(dtype, five)], [output])
    base = random_array(rng, 5, dtype)
    inputs = [rng.integers(0, 5, 27), random_array(rng, 27, dtype), base]
    check(region, schedule, inputs, {"n": 27}, licences=(), exact=True)


@pytest.mark.parametrize("schedule", ["out0: i:* i:2:tile i:8:lane", "out0: i:* i:4:unroll"])
def test_in_place(schedule: str) -> None:
    """x = x * x + x, where the output is the argument's own memory."""
    n = dim("n", 1)
    table = TermTable()
    x = table.read(0, Affine.of({"i": 1}), f32)
    result = table.apply("add", (table.apply("mul", (x, x), None, f32), x), None, f32)
    output = Output(result, n, Affine.of({"i": 1}), alias=0, indices=frozenset("i"))
    region = Region(table, {"i": n}, [Argument(f32, n)], [output])
    check(region, schedule, [np.linspace(-2, 2, 37, dtype=np.float32)], {"n": 37})


def test_nontemporal_stores_where_vectors_are_aligned() -> None:
    def double(table: TermTable, x: list[Term]) -> Term:
        return table.apply("add", (x[0], x[0]), None, f32)

    region = elementwise(64, double)
    kernel = check(region, "out0!: i:* i:8:lane", [np.arange(64, dtype=np.float32)], {})
    assert "!nontemporal" in kernel.emitted.text
    shifted = Output(region.outputs[0].term, as_dim(65), Affine.of({"i": 1}, 1), indices=frozenset("i"))
    unaligned = Region(region.table, region.extents, region.arguments, [shifted])
    function = place(unaligned, parse_schedule("out0!: i:* i:8:lane"), "kernel")
    assert "!nontemporal" not in emit_function(function, HOST).text


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_grid_and_own_their_scratch(threads: int) -> None:
    rng = np.random.default_rng(10)
    inputs = [random_array(rng, 67 * 20, f32), random_array(rng, 20 * 50, f32)]
    schedule = (
        "out0: i:*:parallel@ic j:*:parallel j:16:lane i:4:tile k:*;"
        " keep %0 as k:* i:4 from ic at ic: k:* i:4:tile"
    )
    m, n, k = (dim(name, 1) for name in "mnk")
    kernel = check(matmul(m, n, k), schedule, inputs, {"m": 67, "n": 50, "k": 20}, threads=threads)
    assert kernel.emitted.private_bytes.evaluate({"m": 67, "n": 50, "k": 20}) >= 20 * 4 * 4
    check(matmul(67, 50, 20), schedule, inputs, {}, threads=threads)


def test_symbolic_strides_and_offsets() -> None:
    """A slice and a flip of a symbolic tensor: out[i, j] = x[(i + 1), c - 1 - j]."""
    r, c = dim("r", 2), dim("c", 1)
    table = TermTable()
    x = table.read(0, Affine.of({"i": c, "j": -1}, c + c - 1), f32)
    output = Output(x, (r - 1) * c, Affine.of({"i": c, "j": 1}), indices=frozenset("ij"))
    region = Region(table, {"i": r - 1, "j": c}, [Argument(f32, r * c)], [output])
    inputs = [np.arange(7 * 21, dtype=np.float32)]
    for schedule in ("out0: i:* j:* j:8:lane", "out0: i:* i:2:tile j:* j:4:unroll", "out0: j:* i:* i:4:lane"):
        check(region, schedule, inputs, {"r": 7, "c": 21}, exact=True)


def test_division_and_modulo_of_sizes() -> None:
    s = dim("s", 0)
    table = TermTable()
    x = table.read(0, Affine.of({"i": s % 3 + 1}, s // 4), f32)
    size = s // 2
    output = Output(x, size, Affine.of({"i": 1}), indices=frozenset("i"))
    region = Region(table, {"i": size}, [Argument(f32, s * 4)], [output])
    for value in (1, 6, 31):
        inputs = [np.arange(value * 4, dtype=np.float32)]
        check(region, "out0: i:* i:4:lane", inputs, {"s": value}, exact=True)


def test_long_chains_need_no_deep_stack() -> None:
    def build(table: TermTable, x: list[Term]) -> Term:
        value = x[0]
        for _ in range(90):
            value = table.apply(
                "add", (table.apply("mul", (value, x[0]), None, f32), constant(table, 0.5)), None, f32
            )
        return value

    inputs = [np.linspace(-0.9, 0.9, 40, dtype=np.float32)]
    check(elementwise(40, build), "out0: i:* i:2:tile i:8:lane", inputs, {}, licences=(), exact=True)


def test_every_target_compiles_and_aarch64_uses_its_vectors() -> None:
    function = place(
        matmul(64, 64, 64), parse_schedule("out0: i:* j:* k:* i:4:tile j:2:tile j:4:lane"), "kernel", LICENCES
    )
    for target in (Target.aarch64(), Target.avx2()):
        text = emit_function(function, target).text
        assert compile_object(text, target).startswith(b"\x7fELF")
    listing = assembly(emit_function(function, Target.aarch64()).text, Target.aarch64())
    assert "fmla" in listing


def test_the_same_function_gives_the_same_text() -> None:
    first, second = (
        emit_function(
            place(matmul(9, 33, dim("k", 1)), parse_schedule(PACKED), "kernel", LICENCES), HOST
        ).text
        for _ in range(2)
    )
    assert first == second
    for flag in ("nnan", "ninf", "nsz", "arcp", " fast "):
        assert flag not in first


@pytest.mark.parametrize("monoid", ["max", "min"])
@pytest.mark.parametrize("schedule", ["out0: i:* i:8:lane", "out0: i:*"])
def test_an_extremum_keeps_the_sign_of_a_zero(monoid: str, schedule: str) -> None:
    """max(0 - x, -3) of x = 0 is +0: that of two zeros either would do says nothing of one."""

    def build(table: TermTable, x: list[Term]) -> Term:
        negative = table.apply("mul", (x[0], constant(table, -1.0)), None, f32)
        zero = table.apply("add", (constant(table, 0.0), negative), None, f32)
        return table.apply(monoid, (zero, constant(table, -3.0 if monoid == "max" else 3.0)), None, f32)

    region = elementwise(21, build)
    given = np.array([0.0, -0.0, 1.0] * 7, np.float32)
    check(region, schedule, [given], {}, exact=True)


@pytest.mark.parametrize("monoid", ["max", "min"])
def test_a_running_extremum_is_one_instruction_and_a_repair(monoid: str) -> None:
    """A comparison that is joined with that for NaN would be two of them, one after the other."""
    target = Target.avx2()

    def build(table: TermTable, x: list[Term]) -> Term:
        return table.apply(monoid, (x[0], x[1]), None, f32)

    function = place(
        elementwise(64, build, (f32, f32)), parse_schedule("out0: i:* i:8:lane"), "kernel", LICENCES
    )
    listing = assembly(emit_function(function, target).text, target)
    assert f"v{monoid}ps" in listing and "vcmpunordps" in listing
    assert not any(found in listing for found in ("vcmpltps", "vcmpgtps", "vorps"))
