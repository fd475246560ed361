"""Which entries of torch's operator database a tensor compiler is not asked to compile, and why.

`EXCLUDED` maps a reason to the names it covers: a name is an entry's full name ("div.floor_rounding") or, with a
trailing "*", a prefix of one. What is in no row is run by operator_database.py.
"""

from __future__ import annotations

EXCLUDED: dict[str, tuple[str, ...]] = {
    "linear algebra: factorisations and solvers are library calls": (
        "cholesky",
        "cholesky_inverse",
        "cholesky_solve",
        "geqrf",
        "lu",
        "lu_solve",
        "lu_unpack",
        "ormqr",
        "qr",
        "svd",
        "svd_lowrank",
        "pca_lowrank",
        "pinverse",
        "triangular_solve",
        "logdet",
        "matrix_exp",
        "norm.nuc",
        "linalg.cholesky*",
        "linalg.cond",
        "linalg.det",
        "linalg.eig*",
        "linalg.householder_product",
        "linalg.inv*",
        "linalg.ldl*",
        "linalg.lstsq*",
        "linalg.lu*",
        "linalg.matrix_rank*",
        "linalg.pinv*",
        "linalg.qr",
        "linalg.slogdet",
        "linalg.solve*",
        "linalg.svd*",
        "linalg.tensorinv",
        "linalg.tensorsolve",
    ),
    "special functions": (
        "i0",
        "igamma",
        "igammac",
        "polygamma*",
        "mvlgamma*",
        "digamma",
        "lgamma",
        "erfinv",
        "special.i0e",
        "special.i1",
        "special.i1e",
        "special.polygamma*",
        "special.zeta",
        "special.ndtri",
        "special.erfcx",
        "special.airy_ai",
        "special.bessel*",
        "special.chebyshev*",
        "special.hermite*",
        "special.laguerre*",
        "special.legendre*",
        "special.modified*",
        "special.scaled*",
        "special.shifted*",
        "special.spherical*",
        "signal.windows.kaiser",
        "nextafter",
    ),
    "random numbers: the values have no reference": (
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "normal*",
        "uniform",
        "randn",
        "randn_like",
        "rand_like",
        "randint",
        "randint_like",
        "multinomial",
        "bernoulli",
        "nn.functional.dropout*",
        "nn.functional.alpha_dropout",
        "nn.functional.feature_alpha_dropout*",
        "nn.functional.rrelu",
        "nn.functional.fractional_max_pool*",
    ),
    "Fourier transforms": ("fft.*", "stft", "istft"),
    "sparse tensors": ("sparse.*", "to_sparse"),
    "complex numbers": (
        "complex",
        "polar",
        "view_as_complex",
        "view_as_real",
        "cdouble",
        "cfloat",
        "chalf",
        "nn.functional.silu.complex",
        "imag",
    ),
    "the shape of the result depends on data, or the result is a Python value": (
        "masked_select",
        "nonzero",
        "argwhere",
        "unique",
        "unique_consecutive",
        "histogram",
        "histogramdd",
        "bincount",
        "item",
        "allclose",
        "equal",
        "broadcast_shapes",
        "hash_tensor",
    ),
    "storage: the test is about memory, not values": (
        "resize_",
        "resize_as_",
        "empty",
        "empty_like",
        "new_empty",
        "new_empty_strided",
        "empty_strided",
        "empty_permuted",
    ),
    "made for another device": (
        "jiterator*",
        "bmm.triton_optimized",
        "torch._scaled_mm*",
        "torch.ops.aten._flash_attention_forward",
        "torch.ops.aten._efficient_attention_forward",
    ),
}


def exclusion_reason(name: str) -> str | None:
    """Why the entry is left out, or None for one that is run.

    >>> exclusion_reason("fft.fft2")
    'Fourier transforms'
    >>> exclusion_reason("add") is None
    True
    """
    for reason, patterns in EXCLUDED.items():
        for pattern in patterns:
            if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                return reason
    return None
