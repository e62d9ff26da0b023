"""`triton.language`: what kernels are written with.

The functions here run within functions under `@triton.jit`, and take and give blocks of numbers or pointers.
"""

from __future__ import annotations

import builtins
from typing import Any

from .._semantics.mathematics import (
    abs,
    cdiv,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    rsqrt,
    sigmoid,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
)
from .._semantics.philox import (
    pair_uniform_to_normal,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from .._semantics.reductions import (
    argmax,
    argmin,
    bitonic_merge,
    cumprod,
    cumsum,
    max,
    min,
    reduce_or,
    softmax,
    sort,
    sum,
    topk,
    xor_sum,
)
from .._semantics.shapes import flip, interleave, ravel, squeeze, swizzle2d, unsqueeze, zeros, zeros_like
from . import core, extra, math, random, standard, target_info
from .core import *
from .core import load_tensor_descriptor, make_tensor_descriptor, store_tensor_descriptor, tensor, tensor_descriptor
from .types import const, tuple_type

TRITON_MAX_TENSOR_NUMEL = 2**20
tuple, slice = builtins.tuple, builtins.slice  # tuples of values, and slices, are Python's

# Names of former versions.
_experimental_make_tensor_descriptor = make_tensor_descriptor


def _experimental_descriptor_load(desc: Any, offsets: Any, shape: Any = None, dtype: Any = None) -> tensor:
    """As `desc.load(offsets)`."""
    return load_tensor_descriptor(_descriptor(desc), offsets)


def _experimental_descriptor_store(desc: Any, value: Any, offsets: Any) -> None:
    """As `desc.store(offsets, value)`."""
    store_tensor_descriptor(_descriptor(desc), offsets, value)


def _descriptor(desc: Any) -> Any:
    if not isinstance(desc, tensor_descriptor):
        raise NotImplementedError(
            "descriptors that the host has encoded for a GPU: pass a TensorDescriptor, or make one by tl.make_tensor_descriptor"
        )
    return desc


for _function in (_experimental_descriptor_load, _experimental_descriptor_store):
    vars(_function)["__triton_builtin__"] = True

# What `core` shows is shown here, but for what kernels do not say.
_INNER = ("CONSTEXPR_0", "builtin", "get_int_dtype")

__all__ = [  # noqa: PLE0604
    *(name for name in core.__all__ if name not in _INNER),
    "TRITON_MAX_TENSOR_NUMEL",
    "abs",
    "argmax",
    "argmin",
    "bitonic_merge",
    "cdiv",
    "const",
    "ceil",
    "core",
    "cos",
    "cumprod",
    "cumsum",
    "div_rn",
    "erf",
    "exp",
    "exp2",
    "extra",
    "fdiv",
    "flip",
    "floor",
    "fma",
    "interleave",
    "log",
    "log2",
    "math",
    "max",
    "min",
    "pair_uniform_to_normal",
    "philox",
    "philox_impl",
    "rand",
    "rand4x",
    "randint",
    "randint4x",
    "randn",
    "randn4x",
    "random",
    "ravel",
    "reduce_or",
    "rsqrt",
    "sigmoid",
    "sin",
    "slice",
    "softmax",
    "sort",
    "sqrt",
    "sqrt_rn",
    "squeeze",
    "standard",
    "sum",
    "swizzle2d",
    "target_info",
    "topk",
    "tuple",
    "tuple_type",
    "uint_to_uniform_float",
    "umulhi",
    "unsqueeze",
    "xor_sum",
    "zeros",
    "zeros_like",
]
