"""The operator table, the functions that are made from it, and what composites are registered and checked with."""

from __future__ import annotations

from rushlight._engine.dispatch.autocast import casts
from rushlight._engine.dispatch.determinism import MODE, alert
from rushlight._engine.dispatch.lower import trace_operator
from rushlight._engine.dispatch.plans.bind import only_tensors
from rushlight._engine.dispatch.plans.native_lookup import not_cacheable
from rushlight._engine.dispatch.plans.native_plans import is_function
from rushlight._ops.dtypes import refuse_dtype
from rushlight._ops.nn.gguf_blocks import BLOCK_TYPES
from rushlight._ops.table import OPERATORS
from rushlight._surface.composites.attention import ALLOWED, INSTEAD
from rushlight._surface.registry import SPACES, asking, composite, function_of, inplace_of, row_of
from rushlight._surface.result_types import result_type, result_types
from rushlight._surface.settings import FP32_PRECISION, LIBRARIES, TypedTensor

__all__ = [
    # Functions.
    "SPACES",  # name space -> name -> function
    "function_of",  # the function of a row of the table
    "inplace_of",  # its in-place form
    "row_of",  # the row that a function was made from
    "composite",  # decorator: registers a function over tensors
    "asking",  # a function that asks modes and subclasses first
    "OPERATORS",  # name -> row
    "is_function",  # whether an object is a function: of Python, or one of ours
    "trace_operator",  # the graph of primitives of a call
    "result_type",  # the named tuple that a function returns
    "result_types",  # the names of all of them
    # Inside of composites.
    "casts",  # decorator: how a function follows autocast, on GPUs last: "lower", "single", "widest", "keep", or None
    "only_tensors",  # TypeError for other arguments
    "alert",  # this function gives other results each time
    "MODE",  # deterministic mode and its settings
    "not_cacheable",  # keep no plan of the call that runs
    "refuse_dtype",  # raise what PyTorch raises for a dtype
    # Settings that other pages share.
    "BLOCK_TYPES",  # the types of blocks of GGUF files
    "ALLOWED",  # which ways of computing attention are on
    "INSTEAD",  # functions that compute attention instead
    "FP32_PRECISION",  # precision of float32 products, by backend and operator
    "LIBRARIES",  # what programs ask of the libraries of GPUs
    "TypedTensor",  # metaclass of `torch.FloatTensor` and its like
]
