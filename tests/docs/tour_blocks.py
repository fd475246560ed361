"""The blocks of docs/tour.md, made from the compiler: `python -m tests.docs.tour_blocks` writes them anew.

A block stands behind a comment `<!-- block: matmul hlo -->`, which names an example and a level.
"""

from __future__ import annotations

import re
from pathlib import Path

import luminal as lm
from luminal.dialects.graph_op import DEFAULT_LICENCES
from luminal.dialects.kernel.region_math import region_math
from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.emit_triton.emit import emit_function
from luminal.emit_triton.kernel import Options
from luminal.graph import Graph
from luminal.passes.cut_choices import initial_cuts
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.form_regions import form_regions
from luminal.passes.lower_hlo import lower_hlo
from luminal.passes.place import place
from luminal.passes.region_graph import RegionStep
from luminal.passes.simplify import simplify
from luminal.runtimes.reference import graph_of
from luminal.search.forms import forms

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tour.md"
BLOCK = re.compile(r"(<!-- block: (\w+ \w+) -->\n```\w*\n)(.*?)(```)", re.DOTALL)
MATMUL_SCHEDULE = (
    "out0: i1:*:parallel@panel i0:*@rows i0:8 r0:* r0:4:unroll i0:8:tile i1:2:tile i1:16:lane; "
    "keep %1 as r0:* i1:32 from panel at panel: r0:* i1:2:tile i1:16:lane"
)
ATTENTION_SCHEDULE = (
    "out0: i0:*:parallel i1:*:parallel@rows i2:* r1:* i1:8:tile i2:16:lane; "
    "keep %5 as i1:8 r1:* from rows at rows: r1:* r0:* i1:8:tile r1:16:lane; "
    "keep %12 as i1:8 r1:* from rows at rows: i1:8 r1:* r1:16:lane"
)

BLOCK_SCHEDULE = "out0: i0:*:parallel i1:*:parallel r1o:* i1:64:block r1i:64:block i2:64:block r0:64:block"


def matmul() -> Graph:
    cx = Graph()
    x = cx.tensor((512, 384), name="x")
    w = cx.tensor((384, 1536), name="w")
    b = cx.tensor((1536,), name="b")
    (x.matmul(w) + b).relu().output()
    return cx


def attention() -> Graph:
    cx = Graph()
    s = lm.dim("s", min=1, max=4096)
    q, k, v = (cx.tensor((8, s, 64), name=name) for name in "qkv")
    scores = (q * 0.125).matmul(k.transpose(1, 2))
    scores.softmax(dim=2).matmul(v).output()
    return cx


def blocks() -> dict[str, str]:
    """The text of every block by its name."""
    found: dict[str, str] = {}
    for name, make in (("matmul", matmul), ("attention", attention)):
        cx = make()
        module = cx.module()
        found[f"{name} hlo"] = graph_text(module)
        lower_hlo(module)
        simplify(module)
        found[f"{name} primitive"] = graph_text(module)
        partition = Partition.of(graph_of(module))
        cuts = initial_cuts(partition)
        first = regions(partition, cuts)
        found[f"{name} regions"] = "\n".join(map(region_text, first))
        merged = regions(partition, Cuts(cuts.kept, cuts.kept, cuts.joined))
        found[f"{name} merged"] = region_text(merged[-1])
        found[f"{name} math"] = region_math(
            merged[-1], {n: tensor.name for n, tensor in enumerate(cx.inputs)}
        )
        for form in list(forms(merged[-1], frozenset(DEFAULT_LICENCES)))[:1]:
            found[f"{name} fold"] = region_text(form.region)
            found[f"{name} foldmath"] = region_math(form.region, dict(enumerate("qkv")))
            blocks = place(form.region, parse_schedule(BLOCK_SCHEDULE), name, ["contract", "reassociate"])
            (kernel,) = emit_function(blocks, Options())
            found[f"{name} blockschedule"] = BLOCK_SCHEDULE
            found[f"{name} triton"] = kernel.source.partition("@triton.jit\ndef attention")[2].join(
                ["@triton.jit\ndef attention", ""]
            )
        schedule = parse_schedule(MATMUL_SCHEDULE if name == "matmul" else ATTENTION_SCHEDULE)
        found[f"{name} schedule"] = "\n".join(str(schedule).split("; "))
        found[f"{name} placed"] = shortened(
            str(place(merged[-1], schedule, name, ["contract", "reassociate"]))
        )
    return {name: text.strip() + "\n" for name, text in found.items()}


def regions(partition: Partition, cuts: Cuts) -> list[Region]:
    return [step.region for step in form_regions(partition, cuts).steps if isinstance(step, RegionStep)]


def graph_text(module: object) -> str:
    """The graph of a module without the module, sources and the attributes of its border."""
    lines = str(module).splitlines()[1:-1]
    text = "\n".join(line.removeprefix("  ") for line in lines)
    text = re.sub(r", source = \"[^\"]*\"|\{source = \"[^\"]*\"\} ", "", text)
    return re.sub(r" attributes ?\{.*?\} \{$", " {", text, flags=re.MULTILINE)


def shortened(text: str) -> str:
    """The placed form without operand types and without yields of nothing."""
    text = re.sub(r"(, )?operandSegmentSizes = array<[^>]*>", "", text)
    text = text.replace(" <{}>", "")
    text = re.sub(r"#kernel\.\w+<(\"[^\"]*\")>", r"\1", text)
    text = re.sub(r"#builtin\.int<(-?\d+)>", r"\1", text)
    text = re.sub(r" : \([^()]*\) -> \(\)$", "", text, flags=re.MULTILINE)
    text = re.sub(r" : \([^()]*\) -> ", " : ", text)
    text = re.sub(r"!kernel\.(tile|ref)<\"([^\"]*)\">", r"\1<\2>", text)
    text = re.sub(r"\"(kernel\.\w+)\"", r"\1", text)
    return re.sub(r"^ *kernel\.yield\(\)\n", "", text, flags=re.MULTILINE)


def page_with(page: str, made: dict[str, str]) -> str:
    """The page with every block as it is made now."""
    return BLOCK.sub(lambda found: found[1] + made[found[2]] + found[4], page)


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(), blocks()))
