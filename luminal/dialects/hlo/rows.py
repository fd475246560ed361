"""Names, signatures and type inference of every hlo op."""

from __future__ import annotations

from typing import Any

from luminal.dialects.hlo import shapes
from luminal.dialects.hlo.table import define
from luminal.dtype import bool_


def _none(*_: Any, **__: Any) -> None:
    return None


FLOAT_UNARY = """exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh asin acos atan asinh acosh atanh
    sigmoid silu erf erfc sqrt rsqrt reciprocal floor ceil round trunc""".split()
for name in FLOAT_UNARY:
    define(name, "x", shapes.elementwise("float"), _none, _none, elementwise=True)
for name in ("neg", "abs", "sign", "square", "relu"):
    define(name, "x", shapes.elementwise("number"), _none, _none, elementwise=True)
define("gelu", "x | approximate:str='none'", shapes.elementwise("float"), _none, _none, elementwise=True)
define("softplus", "x | beta:float=1.0 threshold:float=20.0", shapes.elementwise("float"), _none, _none, elementwise=True)
for name in ("isnan", "isinf", "isfinite"):
    define(name, "x", shapes.elementwise("float", bool_), _none, _none, elementwise=True)
define("logical_not", "x", shapes.elementwise("computed", bool_), _none, _none, elementwise=True)
define("bitwise_not", "x", shapes.elementwise("bits"), _none, _none, elementwise=True)
for name in ("add", "mul", "maximum", "minimum"):
    define(name, "x y", shapes.elementwise("computed"), _none, _none, elementwise=True)
for name in ("sub", "floor_divide", "trunc_divide", "remainder", "fmod", "pow"):
    define(name, "x y", shapes.elementwise("number"), _none, _none, elementwise=True)
for name in ("div", "atan2", "copysign"):
    define(name, "x y", shapes.elementwise("float"), _none, _none, elementwise=True)
define("pow_scalar", "x | exponent:number", shapes.elementwise("number"), _none, _none, elementwise=True)
for name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"):
    define(name, "x y", shapes.elementwise("computed", bool_), _none, _none, elementwise=True)
for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    define(name, "x y", shapes.elementwise("bits"), _none, _none, elementwise=True)
for name in ("shift_left", "shift_right"):
    define(name, "x y", shapes.elementwise("integer"), _none, _none, elementwise=True)
define("where", "condition x y", shapes.where, _none, _none, elementwise=True)
define("clamp", "x | low:number? high:number?", shapes.elementwise("number"), _none, _none, elementwise=True)
define("cast", "x | dtype:dtype", shapes.cast, _none, _none)
define("bitcast", "x | dtype:dtype", shapes.bitcast, _none, _none)
define("constant", "| data:bytes shape:dims dtype:dtype", shapes.constant, _none, _none)
define("full", "| value:number shape:dims dtype:dtype", shapes.full, _none, _none)
define("iota", "| shape:dims axis:int dtype:dtype='i64'", shapes.iota, _none, _none)
define("dim_value", "| dim:dim", shapes.dim_value, _none, _none)

define("permute", "x | order:ints", shapes.permute, _none, _none)
define("reshape", "x | shape:dims", shapes.reshape, _none, _none)
define("expand", "x | shape:dims", shapes.expand, _none, _none)
define("slice", "x | starts:dims stops:dims steps:ints", shapes.slice_, _none, _none)
define("pad", "x | low:dims high:dims value:number=0", shapes.pad, _none, _none)
define("cat", "xs* | axis:int", shapes.cat, _none, _none)
define("stack", "xs* | axis:int", shapes.stack, _none, _none)
define("flip", "x | axes:ints", shapes.same(), _none, _none)
define("window", "x | axis:int size:int step:int=1 dilation:int=1", shapes.window, _none, _none)

for name in ("sum", "prod"):
    define(name, "x | axes:ints keepdim:bool=False", shapes.reduction("number"), _none, _none)
for name in ("max", "min"):
    define(name, "x | axes:ints keepdim:bool=False", shapes.reduction("computed", empty=False), _none, _none)
for name in ("any", "all"):
    define(name, "x | axes:ints keepdim:bool=False", shapes.reduction("computed", bool_), _none, _none)
for name in ("mean", "logsumexp"):
    define(name, "x | axes:ints keepdim:bool=False", shapes.reduction("float"), _none, _none)
define("var", "x | axes:ints correction:float=1.0 keepdim:bool=False", shapes.reduction("float"), _none, _none)
for name in ("argmax", "argmin"):
    define(name, "x | axis:int? keepdim:bool=False", shapes.arg_reduction, _none, _none)
for name in ("cumsum", "cumprod"):
    define(name, "x | axis:int", shapes.same("number"), _none, _none)
for name in ("cummax", "cummin"):
    define(name, "x | axis:int", shapes.with_indices, _none, _none)
define("sort", "x | axis:int descending:bool=False", shapes.with_indices, _none, _none)
define("topk", "x | axis:int count:dim largest:bool=True", shapes.topk, _none, _none)

define("matmul", "a b", shapes.matmul, _none, _none)
CONV = "stride:ints padding:ints dilation:ints groups:int=1 transposed:bool=False output_padding:ints?"
define("conv", f"x weight bias? | {CONV}", shapes.conv, _none, _none)
define("attention", "q k v mask? | causal:bool=False scale:float?", shapes.attention, _none, _none)
define("softmax", "x | axis:int", shapes.same("float"), _none, _none, wide=True)
define("log_softmax", "x | axis:int", shapes.same("float"), _none, _none, wide=True)
define("layer_norm", "x weight? bias? | axes:ints epsilon:float=1e-5", shapes.norm, _none, _none, wide=True)
define("rms_norm", "x weight? | axes:ints epsilon:float?", shapes.norm, _none, _none, wide=True)
define("group_norm", "x weight? bias? | groups:int epsilon:float=1e-5", shapes.group_norm, _none, _none, wide=True)
define("batch_norm", "x mean variance weight? bias? | epsilon:float=1e-5", shapes.batch_norm, _none, _none, wide=True)
POOL = "size:ints stride:ints padding:ints dilation:ints ceil:bool=False"
define("max_pool", f"x | {POOL}", shapes.pool("number"), _none, _none)
define("max_pool_index", f"x | {POOL}", shapes.pool("number"), _none, _none)
AVERAGE = "size:ints stride:ints padding:ints ceil:bool=False count_padding:bool=True divisor:int?"
define("avg_pool", f"x | {AVERAGE}", shapes.pool("float"), _none, _none)

define("gather", "x index | axis:int", shapes.gather, _none, _none)
define("scatter", "x index value | axis:int combine:str='set'", shapes.scatter, _none, _none)
define("index_select", "x index | axis:int", shapes.index_select, _none, _none)
define("embedding", "weight index", shapes.embedding, _none, _none)
define("index", "x indices* | axes:ints", shapes.index, _none, _none)
PUT = "x value indices* | axes:ints accumulate:bool=False"
define("index_put", PUT, shapes.index_put, _none, _none)
define("extern", "operands* | target:str payload:str types:types", shapes.extern, _none, _none)
