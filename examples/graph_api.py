"""The Graph API: build a graph, search for its fastest program, run it; then the same with a symbolic size.

python examples/graph_api.py
"""

from __future__ import annotations

import luminal as lm


def fixed_sizes() -> list[float]:
    """A column times a row: the outer product, f32 [3, 4], flattened."""
    cx = lm.Graph()
    a = cx.tensor((3, 1))
    b = cx.tensor((1, 4))
    c = a.matmul(b).output()

    cx.build_search_space(lm.CPURuntime)
    rt = cx.search(lm.CPURuntime(), 10)
    rt.set_data(a, [1.0, 2.0, 3.0])
    rt.set_data(b, [1.0, 2.0, 3.0, 3.0])
    rt.execute(cx.dyn_map)
    return [float(value) for value in rt.get_f32(c)]


def symbolic_sizes(lengths: tuple[int, ...]) -> list[float]:
    """The mean of a softmax over rows of any length: 1 / length each time, from one compilation."""
    cx = lm.Graph()
    length = lm.dim("length", min=1, max=4096)
    x = cx.tensor((2, length))
    mean = x.softmax(dim=1).mean().output()

    cx.build_search_space(lm.CPURuntime)
    rt = cx.search(lm.CPURuntime(), 10)
    means: list[float] = []
    for size in lengths:
        cx.set_dim("length", size)
        rt.set_data(x, [float(index % 5) for index in range(2 * size)])
        rt.execute(cx.dyn_map)
        means.append(float(rt.get_f32(mean)[0]))
    return means


if __name__ == "__main__":
    print(fixed_sizes())
    print(symbolic_sizes((1, 4, 250)))
