"""What a random program of each kind may do next, with weights: a proposal adds one or a few steps, or nothing."""

from __future__ import annotations

from tests.property.choices import Proposal
from tests.property.proposals_elementwise import (
    activation,
    binary,
    bits,
    cast,
    clamp,
    create,
    power,
    select,
    unary,
    with_number,
)
from tests.property.proposals_indexing import gather, index_put, index_select, index_tensors, scatter
from tests.property.proposals_reduction import (
    attention,
    convolution,
    matmul,
    norm,
    reduce,
    scan,
    softmax,
    sort,
    spread_reduction,
    statistics,
)
from tests.property.proposals_views import (
    cat,
    expand,
    flip,
    index,
    pad,
    permute,
    reshape,
    squeeze,
    stack,
    triangle,
    two_views,
    unfold,
    unsqueeze,
)

MOVEMENT: tuple[tuple[int, Proposal], ...] = (
    (3, permute), (3, expand), (2, unsqueeze), (1, squeeze), (5, reshape), (4, index), (2, flip), (2, unfold),
    (3, pad), (1, triangle), (3, cat), (1, stack),
)  # fmt: skip
READING: tuple[tuple[int, Proposal], ...] = ((1, gather), (1, index_select), (2, index_tensors))
PROPOSALS: dict[str, tuple[tuple[int, Proposal], ...]] = {
    "views": (*((2 * weight, one) for weight, one in MOVEMENT), *READING, (6, two_views), (1, select), (1, cast)),
    "dyadic": (
        *MOVEMENT, *READING, (5, unary), (10, binary), (6, with_number), (3, select), (2, clamp), (4, cast), (1, bits),
        (5, two_views), (8, reduce), (5, spread_reduction), (3, scan), (2, sort), (4, matmul), (2, convolution),
        (2, scatter), (2, index_put), (1, create),
    ),
    "float": (
        *MOVEMENT, *READING, (9, unary), (3, activation), (10, binary), (6, with_number), (2, power), (3, select),
        (2, clamp), (4, cast), (1, bits), (5, two_views), (8, reduce), (5, spread_reduction), (4, statistics),
        (5, softmax), (4, norm), (3, scan), (2, sort), (5, matmul), (3, attention), (2, convolution), (2, scatter),
        (2, index_put), (1, create),
    ),
}  # fmt: skip
"""What programs of each kind are made of, with weights."""
PROPOSALS["symbolic"] = PROPOSALS["torch"] = PROPOSALS["float"]
