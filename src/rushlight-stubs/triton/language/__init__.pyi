"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import int as _int
from rushlight.triton._semantics.constants import constexpr as _constexpr
from rushlight.triton._semantics.dtypes import dtype as _dtype, pointer_type as _pointer_type

CONSTEXPR_0: _constexpr
from rushlight.triton._semantics.arithmetic import PropagateNan as PropagateNan
TRITON_MAX_TENSOR_NUMEL: _int
from rushlight.triton._semantics.mathematics import abs as abs
from rushlight.triton._semantics.arithmetic import add as add
from rushlight.triton._semantics.memory import advance as advance
from rushlight.triton._semantics.shapes import arange as arange
from rushlight.triton._semantics.reductions import argmax as argmax
from rushlight.triton._semantics.reductions import argmin as argmin
from rushlight.triton._semantics.reductions import associative_scan as associative_scan
from rushlight.triton._semantics.program import assume as assume
from rushlight.triton._semantics.memory import atomic_add as atomic_add
from rushlight.triton._semantics.memory import atomic_and as atomic_and
from rushlight.triton._semantics.memory import atomic_cas as atomic_cas
from rushlight.triton._semantics.memory import atomic_load as atomic_load
from rushlight.triton._semantics.memory import atomic_max as atomic_max
from rushlight.triton._semantics.memory import atomic_min as atomic_min
from rushlight.triton._semantics.memory import atomic_or as atomic_or
from rushlight.triton._semantics.memory import atomic_store as atomic_store
from rushlight.triton._semantics.memory import atomic_xchg as atomic_xchg
from rushlight.triton._semantics.memory import atomic_xor as atomic_xor
bfloat16: _dtype
from rushlight.triton._semantics.reductions import bitonic_merge as bitonic_merge
from rushlight.triton._semantics.dtypes import block_type as block_type
from rushlight.triton._semantics.shapes import broadcast as broadcast
from rushlight.triton._semantics.shapes import broadcast_to as broadcast_to
from rushlight.triton._semantics.ambient import builtin as builtin
from rushlight.triton._semantics.arithmetic import cast as cast
from rushlight.triton._semantics.shapes import cat as cat
from rushlight.triton._semantics.mathematics import cdiv as cdiv
from rushlight.triton._semantics.mathematics import ceil as ceil
from rushlight.triton._semantics.arithmetic import clamp as clamp
from rushlight.triton._semantics.program import condition as condition
from rushlight.triton.language.types import const as const
from rushlight.triton._semantics.constants import constexpr as constexpr
from rushlight.triton.language import core as core
from rushlight.triton._semantics.mathematics import cos as cos
from rushlight.triton._semantics.reductions import cumprod as cumprod
from rushlight.triton._semantics.reductions import cumsum as cumsum
from rushlight.triton._semantics.program import debug_barrier as debug_barrier
from rushlight.triton._semantics.program import device_assert as device_assert
from rushlight.triton._semantics.program import device_print as device_print
from rushlight.triton._semantics.mathematics import div_rn as div_rn
from rushlight.triton._semantics.products import dot as dot
from rushlight.triton._semantics.products import dot_scaled as dot_scaled
from rushlight.triton._semantics.dtypes import dtype as dtype
from rushlight.triton._semantics.mathematics import erf as erf
from rushlight.triton._semantics.mathematics import exp as exp
from rushlight.triton._semantics.mathematics import exp2 as exp2
from rushlight.triton._semantics.shapes import expand_dims as expand_dims
from rushlight.triton._semantics.program import expect_zero as expect_zero
from rushlight.triton.language import extra as extra
from rushlight.triton._semantics.mathematics import fdiv as fdiv
from rushlight.triton._semantics.shapes import flip as flip
float16: _dtype
float32: _dtype
float64: _dtype
float8e4b15: _dtype
float8e4b8: _dtype
float8e4nv: _dtype
float8e5: _dtype
float8e5b16: _dtype
from rushlight.triton._semantics.mathematics import floor as floor
from rushlight.triton._semantics.mathematics import fma as fma
from rushlight.triton._semantics.shapes import full as full
from rushlight.triton._semantics.shapes import gather as gather
from rushlight.triton.language.core import get_int_dtype as get_int_dtype
from rushlight.triton._semantics.reductions import histogram as histogram
from rushlight.triton._semantics.program import inline_asm_elementwise as inline_asm_elementwise
int1: _dtype
int16: _dtype
int32: _dtype
int64: _dtype
int8: _dtype
from rushlight.triton._semantics.shapes import interleave as interleave
from rushlight.triton._semantics.shapes import join as join
from rushlight.triton._semantics.memory import load as load
from rushlight.triton._semantics.memory import load_tensor_descriptor as load_tensor_descriptor
from rushlight.triton._semantics.mathematics import log as log
from rushlight.triton._semantics.mathematics import log2 as log2
from rushlight.triton._semantics.memory import make_block_ptr as make_block_ptr
from rushlight.triton._semantics.memory import make_tensor_descriptor as make_tensor_descriptor
from rushlight.triton._semantics.reductions import map_elementwise as map_elementwise
from rushlight.triton.language import math as math
from rushlight.triton._semantics.reductions import max as max
from rushlight.triton._semantics.program import max_constancy as max_constancy
from rushlight.triton._semantics.program import max_contiguous as max_contiguous
from rushlight.triton._semantics.arithmetic import maximum as maximum
from rushlight.triton._semantics.reductions import min as min
from rushlight.triton._semantics.arithmetic import minimum as minimum
from rushlight.triton._semantics.arithmetic import mul as mul
from rushlight.triton._semantics.program import multiple_of as multiple_of
from rushlight.triton._semantics.shapes import num_programs as num_programs
from rushlight.triton._semantics.philox import pair_uniform_to_normal as pair_uniform_to_normal
from rushlight.triton._semantics.shapes import permute as permute
from rushlight.triton._semantics.philox import philox as philox
from rushlight.triton._semantics.philox import philox_impl as philox_impl
pi32_t: _pointer_type
from rushlight.triton._semantics.dtypes import pointer_type as pointer_type
from rushlight.triton._semantics.shapes import program_id as program_id
from rushlight.triton._semantics.philox import rand as rand
from rushlight.triton._semantics.philox import rand4x as rand4x
from rushlight.triton._semantics.philox import randint as randint
from rushlight.triton._semantics.philox import randint4x as randint4x
from rushlight.triton._semantics.philox import randn as randn
from rushlight.triton._semantics.philox import randn4x as randn4x
from rushlight.triton.language import random as random
from rushlight.triton._semantics.program import range as range
from rushlight.triton._semantics.shapes import ravel as ravel
from rushlight.triton._semantics.reductions import reduce as reduce
from rushlight.triton._semantics.reductions import reduce_or as reduce_or
from rushlight.triton._semantics.shapes import reshape as reshape
from rushlight.triton._semantics.mathematics import rsqrt as rsqrt
from rushlight.triton._semantics.mathematics import sigmoid as sigmoid
from rushlight.triton._semantics.mathematics import sin as sin
class slice: ...
from rushlight.triton._semantics.reductions import softmax as softmax
from rushlight.triton._semantics.reductions import sort as sort
from rushlight.triton._semantics.shapes import split as split
from rushlight.triton._semantics.mathematics import sqrt as sqrt
from rushlight.triton._semantics.mathematics import sqrt_rn as sqrt_rn
from rushlight.triton._semantics.shapes import squeeze as squeeze
from rushlight.triton.language import standard as standard
from rushlight.triton._semantics.program import static_assert as static_assert
from rushlight.triton._semantics.program import static_print as static_print
from rushlight.triton._semantics.program import static_range as static_range
from rushlight.triton._semantics.memory import store as store
from rushlight.triton._semantics.memory import store_tensor_descriptor as store_tensor_descriptor
from rushlight.triton._semantics.arithmetic import sub as sub
from rushlight.triton._semantics.reductions import sum as sum
from rushlight.triton._semantics.shapes import swizzle2d as swizzle2d
from rushlight.triton.language import target_info as target_info
from rushlight.triton._semantics.values import tensor as tensor
from rushlight.triton._semantics.memory import tensor_descriptor as tensor_descriptor
from rushlight.triton._semantics.values import to_tensor as to_tensor
from rushlight.triton._semantics.reductions import topk as topk
from rushlight.triton._semantics.shapes import trans as trans
class tuple: ...
from rushlight.triton.language.types import tuple_type as tuple_type
from rushlight.triton.language import types as types
uint16: _dtype
uint32: _dtype
uint64: _dtype
uint8: _dtype
from rushlight.triton._semantics.philox import uint_to_uniform_float as uint_to_uniform_float
from rushlight.triton._semantics.mathematics import umulhi as umulhi
from rushlight.triton._semantics.shapes import unsqueeze as unsqueeze
from rushlight.triton._semantics.shapes import view as view
void: _dtype
from rushlight.triton._semantics.arithmetic import where as where
from rushlight.triton._semantics.reductions import xor_sum as xor_sum
from rushlight.triton._semantics.shapes import zeros as zeros
from rushlight.triton._semantics.shapes import zeros_like as zeros_like
