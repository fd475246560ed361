"""Generated schedules: the same in every process, parsed back, and never without one that is legal."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.dim import dim
from luminal.search.candidates import is_legal, legal_candidates, plain_candidate
from luminal.search.generate import Candidate, Generator
from luminal.search.machine import Machine
from luminal.search.nests import PAGE_BYTES
from luminal.search.ordering import ordered
from luminal.search.roofline import Estimate
from luminal.search.samples import Samples
from luminal.search.shapes import Shapes
from tests.kernel import regions
from tests.kernel.test_place import CASES, run_and_compare
from tests.search.seeds import outputs_of_seeds

HOST = Machine(4, 16)
WINDOWS = """\
index c = 8
index y = 14
index x = 14
index r0 = 3
index r1 = 3
argument 0 = f32 [2048]
argument 1 = f32 [72] constant
argument 2 = f32 [8] constant
%0 = load 0 [(256)*c + (16)*y + x + (16)*r0 + r1] : f32
%1 = load 1 [(9)*c + (3)*r0 + r1] : f32
%2 = mul %0 %1 : f32
%3 = reduce.sum [r0 r1] %2 : f32
%4 = load 2 [c] : f32
%5 = add %3 %4 : f32
output 0 = %5 at [(196)*c + (14)*y + x] of [1568] over [c y x]
"""


def candidates(region: Region, hint: Mapping[str, int]) -> list[Candidate]:
    return Generator(region, HOST, Shapes(region, hint)).candidates()


def fallbacks(region: Region, hint: Mapping[str, int]) -> list[Candidate]:
    return Generator(region, HOST, Shapes(region, hint)).fallbacks()


def sum_of_running_sums() -> Region:
    """out[i] = sum over j of cumsum(x, 1)[i, j]"""
    b = regions.Builder()
    value = b.total(b.table.scan("sum", "j", b.read(0, {"i": 7, "j": 1})), "j")
    return b.region({"i": 5, "j": 7}, [35], [(value, {"i": 1})])


def two_running_sums() -> Region:
    """out[i, j] = cumsum(x, 0)[i, j] * cumsum(x, 1)[i, j]: no nest has each index inside the other."""
    b = regions.Builder()
    x = b.read(0, {"i": 7, "j": 1})
    value = b.apply("mul", b.table.scan("sum", "i", x), b.table.scan("sum", "j", x))
    return b.region({"i": 5, "j": 7}, [35], [(value, {"i": 7, "j": 1})])


def sums_of_both_axes() -> Region:
    """out[i, j] = x[i, j] * sum over i of x[i, j] * sum over j of x[i, j]: no output loop is outside of both."""
    b = regions.Builder()
    x = b.read(0, {"i": 7, "j": 1})
    value = b.apply("mul", x, b.apply("mul", b.total(x, "i"), b.total(x, "j")))
    return b.region({"i": 5, "j": 7}, [35], [(value, {"i": 7, "j": 1})])


CROSSED = {f.__name__: f for f in (sum_of_running_sums, two_running_sums, sums_of_both_axes)}


@pytest.mark.parametrize("name", CASES)
def test_candidates_are_ordered_and_end_in_the_fallbacks(name: str) -> None:
    region, hint = CASES[name]
    found = candidates(region, hint)
    assert found[-2:] == fallbacks(region, hint)
    assert {candidate.kind for candidate in found} <= {"scalar", "rows", "contraction", "merged"}
    legal = [str(candidate.schedule) for candidate, _ in legal_candidates(region, HOST, Samples(dict(hint)))]
    assert legal and len(set(legal)) == len(legal)
    assert any(is_legal(region, candidate) for candidate in fallbacks(region, hint))


@pytest.mark.parametrize("name", CROSSED)
def test_memory_of_its_own_is_legal_where_one_nest_is_not(name: str) -> None:
    region = CROSSED[name]()
    plain, kept = fallbacks(region, {})
    assert not is_legal(region, plain)
    assert is_legal(region, kept)
    run_and_compare(region, kept.schedule, {})
    assert plain_candidate(region, HOST, {}) == kept


@pytest.mark.parametrize(
    ("along", "registers"), [("i", ("j:8:tile", "j:4:lane")), ("j", ("i:4:tile",))], ids=["columns", "rows"]
)
def test_a_scan_carries_several_values_at_once(along: str, registers: tuple[str, ...]) -> None:
    """Vectors along what is contiguous; where that is scanned, several rows."""
    b = regions.Builder()
    value = b.table.scan("sum", along, b.read(0, {"i": 64, "j": 1}))
    region = b.region({"i": 12, "j": 64}, [12 * 64], [(value, {"i": 64, "j": 1})])
    first = candidates(region, {})[0]
    assert first.family == ("", *registers)
    run_and_compare(region, first.schedule, {})


def test_one_nest_is_preferred_where_it_is_legal() -> None:
    region = regions.matmul(dim("m"), 8, 8)
    assert plain_candidate(region, HOST, {"m": 3}) == fallbacks(region, {"m": 3})[0]


def test_candidates_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.search.test_generate import *\n"
        "for name, (region, hint) in CASES.items():\n"
        "    for candidate in candidates(region, hint):\n"
        "        print(name, candidate.schedule, candidate.estimate)\n"
    )
    first, *others = outputs_of_seeds(code)
    assert first.count("\n") > 10 * len(CASES)
    assert all(other == first for other in others)


def test_a_schedule_for_several_sizes_loses_least_over_all_of_them() -> None:
    region = regions.matmul(dim("m"), 64, 32)
    small, large = (Shapes(region, {"m": m}) for m in (8, 512))
    found = Generator(region, HOST, small, others=[large]).candidates()
    alone = [Generator(region, HOST, shapes).candidates() for shapes in (small, large)]
    assert {c.schedule for c in found} == {c.schedule for column in alone for c in column}
    for position, column in enumerate(alone):
        priced = {c.schedule: c.estimates[position] for c in found}
        assert all(
            priced[c.schedule].seconds(HOST) == pytest.approx(c.estimate.seconds(HOST)) for c in column
        )
    seconds = [[e.seconds(HOST) for e in c.estimates] for c in found if c.kind != "scalar"]
    least = [min(column) for column in zip(*seconds, strict=True)]
    losses = [sum(each / best for each, best in zip(given, least, strict=True)) for given in seconds]
    assert losses[0] == min(losses)


def test_a_schedule_that_one_of_the_sizes_suggests_is_priced_for_all() -> None:
    """A single element has no lanes; vectors are wasted on it, and priced so."""
    b = regions.Builder()
    region = b.region({"i": dim("n")}, [dim("n")], [(b.apply("exp2", b.read(0, {"i": 1})), {"i": 1})])
    one, many = (Shapes(region, {"n": n}) for n in (1, 512))
    assert [c.kind for c in Generator(region, HOST, one).candidates()] == ["scalar", "scalar"]
    found = [c for c in Generator(region, HOST, one, others=[many]).candidates() if c.kind != "scalar"]
    assert found
    for candidate in found:
        single, all_of_them = (e.core_seconds for e in candidate.estimates)
        assert all_of_them / 512 < single < all_of_them


def test_short_sums_of_windows_are_written_out_for_several_rows() -> None:
    region = parse_region(WINDOWS)
    best, *others = candidates(region, {})
    assert "r0:3:unroll r1:* r1:3:unroll y:14:tile x:4:lane" in str(best.schedule)
    assert {t for t in (2, 7, 14) for c in others if f"r1:3:unroll y:{t}:tile" in str(c.schedule)} == {2, 7}
    run_and_compare(region, best.schedule, {})


def test_rows_of_windows_that_overlap_share_what_they_read() -> None:
    """14 rows of 3 x 3 windows read 16 x 3 vectors, one row alone 3 x 3."""
    found = [str(c.schedule) for c in candidates(parse_region(WINDOWS), {}) if c.kind == "rows"]
    places = [
        next(n for n, text in enumerate(found) if f"unroll {tile}x:4:lane" in text)
        for tile in ("y:14:tile ", "")
    ]
    assert places[0] < places[1]


def test_a_sum_of_many_addends_is_a_loop() -> None:
    region = parse_region(WINDOWS.replace("index r0 = 3", "index r0 = 30").replace("[2048]", "[9000]"))
    assert not any("r0:30:unroll" in str(candidate.schedule) for candidate in candidates(region, {}))


def test_lanes_run_along_an_image_not_along_the_parameters_of_its_channels() -> None:
    found = [c for c in candidates(parse_region(WINDOWS), {}) if c.kind == "rows"]
    assert str(found[0].schedule).endswith("x:4:lane")


def test_forms_and_in_them_register_tiles_take_turns_where_the_model_hardly_tells_them_apart() -> None:
    nests = {"a": "i:*", "b": "i:* i:2:tile"}
    given = ["a", "b", "a fold", "b fold", "a", "a far"]
    suggested = [
        Candidate(
            parse_schedule(f"out0: {nests[name[0]]}"),
            (Estimate(1.0 + number / 100 + ("far" in name), 1),),
            "rows",
            "fold" * ("fold" in name),
        )
        for number, name in enumerate(given)
    ]
    numbers = [suggested.index(candidate) for candidate in ordered(suggested, HOST)]
    assert numbers == [0, 2, 1, 3, 4, 5]


TRANSPOSED = """\
index i = 2048
index j = 2048
argument 0 = f32 [4194304]
%0 = load 0 [i + (2048)*j] : f32
output 0 = %0 at [(2048)*i + j] of [4194304] over [i j]
"""
COLUMNS = """\
index i = 2048
index r0 = 2048
argument 0 = f32 [4194304]
%0 = load 0 [i + (2048)*r0] : f32
%1 = reduce.sum [r0] %0 : f32
output 0 = %1 at [i] of [2048] over [i]
"""


def first_schedule(text: str, machine: Machine) -> str:
    region = parse_region(text)
    return str(Generator(region, machine, Shapes(region, {})).candidates()[0].schedule)


@pytest.mark.parametrize("lanes, registers, line", [(4, 32, "j:4 "), (8, 16, "j:2 "), (16, 32, "")])
def test_what_is_read_across_its_rows_is_transposed_in_registers(
    lanes: int, registers: int, line: str
) -> None:
    """In whole lines of the cache, where those hold several vectors."""
    first = first_schedule(TRANSPOSED, Machine(lanes, registers))
    assert first == f"out0: i:*:parallel@i j:* i:8 {line}i:{lanes}:tile j:{lanes}:lane"


def test_lines_that_do_not_divide_a_row_are_not_walked_as_a_whole() -> None:
    first = first_schedule(TRANSPOSED.replace("2048", "2040"), Machine(8, 16))
    assert "i:8:tile j:8:lane" in first and "j:2 " not in first


CHANNELS_LAST = """\
index i = 8
index p = 3136
index c = 64
argument 0 = f32 [1605632]
%0 = load 0 [(200704)*i + p + (3136)*c] : f32
output 0 = %0 at [(200704)*i + (64)*p + c] of [1605632] over [i p c]
"""


def test_rows_of_the_source_are_read_from_end_to_end_where_results_lie_close() -> None:
    """A page of the result has whole squares: blocks would leave rows of the source, which are in other pages."""
    first = first_schedule(CHANNELS_LAST, Machine(16, 32))
    assert first == "out0: i:*:parallel@i c:* p:* p:16:tile c:16:lane"


PERMUTED = """\
index b = 8
index h = 12
index t = 512
index w = 64
argument 0 = f32 [3145728]
%0 = load 0 [(393216)*b + (64)*h + (768)*t + w] : f32
output 0 = %0 at [(393216)*b + (32768)*h + (64)*t + w] of [3145728] over [b h t w]
"""


def test_a_permuted_copy_is_walked_as_its_source_lies() -> None:
    """Loads are waited for, stores are not."""
    first = first_schedule(PERMUTED, Machine(16, 32))
    assert first == "out0: b:*:parallel@b t:*@t h:*@h w:* w:4:tile w:16:lane"


@pytest.mark.parametrize("registers, tile", [(16, 8), (32, 16)])
def test_sums_over_rows_read_wide_pieces_of_each(registers: int, tile: int) -> None:
    """A row is another page: what is read of it at once should be worth the way."""
    assert f"i:{tile}:tile i:16:lane" in first_schedule(COLUMNS, Machine(16, registers))


NARROW_SOFTMAX = """\
index i = 512
index j = 2048
argument 0 = bf16 [1048576]
%0 = load 0 [(2048)*i + j] : bf16
%1 = cast.none %0 : f32
%2 = exp2.e %1 : f32
%3 = reduce.sum [j] %2 : f32
%4 = recip.none %2 %3 : f32
%5 = cast.none %4 : bf16
output 0 = %5 at [(2048)*i + j] of [1048576] over [i j]
"""
DIFFERENCES = """\
index i = 1048575
argument 0 = f32 [1048576]
%0 = load 0 [i] : f32
%1 = load 0 [i + (1)] : f32
%2 = add %0 %1 : f32
output 0 = %2 at [i] of [1048575] over [i]
"""


def test_exponentials_are_kept_for_a_row_whose_result_is_narrower() -> None:
    assert "keep %2 as j:* from i at i" in first_schedule(NARROW_SOFTMAX, Machine(16, 32))


def test_a_long_index_has_tiles_that_do_not_divide_it() -> None:
    assert "i:4:tile i:16:lane" in first_schedule(DIFFERENCES, Machine(16, 32))


def product_with_a_vector(rows: int, depth: int) -> Region:
    b = regions.Builder()
    product = b.apply("mul", b.read(0, {"i": depth, "k": 1}), b.read(1, {"k": 1}))
    value = b.total(product, "k")
    return b.region({"i": rows, "k": depth}, [rows * depth, depth], [(value, {"i": 1})])


def rows_at_once(candidate: Candidate) -> list[int | None]:
    factors = candidate.schedule.roots[0].factors
    return [factor.extent for factor in factors if factor.index == "i" and factor.role == "tile"]


def test_rows_from_memory_are_summed_several_at_once() -> None:
    """One stream waits at the end of every page; where rows lie in a cache none does."""
    far = product_with_a_vector(4096, 4096)
    first, _ = next(legal_candidates(far, HOST, Samples({})))
    assert rows_at_once(first) == [4]
    gains: list[float] = []
    for region in (far, product_with_a_vector(1024, 1024)):
        found = Generator(region, HOST, Shapes(region, {})).suggested()
        alone, several = (
            min(c.estimate.seconds(HOST) for c in found if rows_at_once(c) == rows) for rows in ([], [4])
        )
        gains.append(1 - several / alone)
    assert gains[0] > 3 * gains[1]


def test_a_few_rows_that_no_tile_divides_are_summed_alone() -> None:
    assert not any(map(rows_at_once, candidates(product_with_a_vector(7, 4096), {})))


@pytest.mark.parametrize(("keys", "apart"), [(16, True), (8, False)])
def test_rows_in_other_pages_are_summed_at_once_too(keys: int, apart: bool) -> None:
    """Those of several heads, 64 numbers long, where the keys of a head fill a page."""
    b = regions.Builder()
    key = b.read(0, {"h": keys * 64, "j": 64, "k": 1})
    value = b.total(b.apply("mul", key, b.read(1, {"h": 64, "k": 1})), "k")
    sizes = {"h": 8, "j": keys, "k": 64}
    region = b.region(sizes, [8 * keys * 64, 512], [(value, {"h": keys, "j": 1})])
    assert (keys * 64 * 4 >= PAGE_BYTES) is apart
    summed = [c for c in candidates(region, {}) if "k:4:lane" in str(c.schedule) and is_legal(region, c)]
    of_heads = [c for c in summed if "h:4:tile" in str(c.schedule)]
    assert bool(of_heads) is apart and any("j:4:tile" in str(c.schedule) for c in summed)
    for candidate in of_heads[:2]:
        run_and_compare(region, candidate.schedule, {})


@pytest.mark.parametrize(("rows", "depth"), [(256, 37), (259, 64), (1027, 70)])
def test_rows_at_once_are_summed_as_alone(rows: int, depth: int) -> None:
    region = product_with_a_vector(rows, depth)
    several = [c for c in candidates(region, {}) if rows_at_once(c) and is_legal(region, c)]
    assert several
    for candidate in several[:4]:
        run_and_compare(region, candidate.schedule, {})
