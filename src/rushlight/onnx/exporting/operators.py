"""The operators behind `torch.onnx.ops`: `onnx_symbolic::_symbolic`, `onnx::Attention.opset23`, `onnx::RotaryEmbedding.opset23`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.library import Library
from rushlight.onnx.exporting.table import TABLE, Call, translates
from rushlight.onnx.exporting.values import Value, element_type

__all__ = ["FUNCTION", "OTHERS", "attention", "decompositions", "library", "rotary", "symbolic"]

_ATTRS = (
    "str[] attr_keys, str[] attr_types, int[] attr_pos, int[] attr_ints, float[] attr_floats, str[] attr_strs, "
    'str[] metadata_props_keys, str[] metadata_props_values, str domain="", int? version=None'
)
_DTYPES = (
    "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "bool", "float16", "float64", "uint32", "uint64", "complex64", "complex128",
    "bfloat16", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip


def _dtype(number: int) -> Any:
    for name in _DTYPES:
        dtype = getattr(rushlight, name, None)
        if dtype is not None and element_type(dtype) == number:
            return dtype
    raise ValueError(f"rushlight has no dtype for ONNX's element type {number}")


@cache
def library() -> tuple[Library, Library]:
    """The operators, defined when they are first asked for."""
    made = Library("onnx_symbolic", "FRAGMENT"), Library("onnx", "FRAGMENT")
    one, many = "_symbolic", "_symbolic_multi_out"
    made[0].define(f"{one}(Tensor?[] inputs, str op_type, int onnx_dtype, *, SymInt[] shape, {_ATTRS}) -> Tensor")
    made[0].define(
        f"{many}(Tensor?[] inputs, str op_type, int[] onnx_dtypes, *, SymInt[] sizes, int[] ranks, {_ATTRS}) -> Tensor[]"
    )
    made[0].impl(one, _zeros, "CompositeExplicitAutograd")
    made[0].impl(many, _many_zeros, "CompositeExplicitAutograd")
    return made


def _zeros(inputs: Any, op_type: str, onnx_dtype: int, *, shape: Sequence[Any], **_: Any) -> Tensor:
    return rushlight.zeros(list(shape), dtype=_dtype(onnx_dtype))


def _many_zeros(
    inputs: Any, op_type: str, onnx_dtypes: Sequence[int], *, sizes: Sequence[Any], ranks: Sequence[int], **_: Any
) -> list[Tensor]:
    return [rushlight.zeros(list(s), dtype=_dtype(d)) for s, d in zip(_split(sizes, ranks), onnx_dtypes, strict=True)]


def _split(sizes: Sequence[Any], ranks: Sequence[int]) -> list[list[Any]]:
    made, start = [], 0
    for rank in ranks:
        made.append(list(sizes[start : start + rank]))
        start += rank
    return made


def _encoded(attrs: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Attributes as lists of each type; an attribute is a range of one of them."""
    made: dict[str, list[Any]] = {
        k: [] for k in ("attr_keys", "attr_types", "attr_pos", "attr_ints", "attr_floats", "attr_strs")
    }
    for key, value in attrs.items():
        many = isinstance(value, (list, tuple))
        items = list(value) if many else [value]
        kind = "s" if all(isinstance(i, str) for i in items) else "i" if all(isinstance(i, int) for i in items) else "f"
        if kind == "f" and not all(isinstance(i, (int, float)) for i in items):
            raise ValueError(f"the attribute {key!r} is {value!r}: attributes are numbers, texts, and lists of them")
        into = made[{"s": "attr_strs", "i": "attr_ints", "f": "attr_floats"}[kind]]
        made["attr_keys"].append(key)
        made["attr_types"].append(kind + "s" * many)
        made["attr_pos"] += [len(into), len(into) + len(items)]
        into += [float(i) if kind == "f" else int(i) if kind == "i" else i for i in items]
    return made


def symbolic(
    domain_op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], dtypes: Sequence[Any], shapes: Sequence[Any], version: int | None,
    metadata: Mapping[str, str], many: bool = False,
) -> list[Tensor]:  # fmt: skip
    """See `torch.onnx.ops.symbolic_multi_out`."""
    domain, mark, name = domain_op.partition("::")
    if not mark:
        raise ValueError(f"expected an operator's name as domain::Name, got {domain_op!r}")
    library()
    rest: dict[str, Any] = _encoded(attrs) | {
        "metadata_props_keys": list(metadata), "metadata_props_values": list(metadata.values()), "domain": domain, "version": version,
    }  # fmt: skip
    numbers = [d if isinstance(d, int) else element_type(d) for d in dtypes]
    operators = rushlight.ops.onnx_symbolic
    if not many:
        return [operators._symbolic.default(list(inputs), name, numbers[0], shape=list(shapes[0]), **rest)]
    sizes = [s for shape in shapes for s in shape]
    return list(
        operators._symbolic_multi_out.default(
            list(inputs), name, numbers, sizes=sizes, ranks=[len(s) for s in shapes], **rest
        )
    )


def _decoded(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for i, (key, kind) in enumerate(zip(kwargs["attr_keys"], kwargs["attr_types"], strict=True)):
        start, end = kwargs["attr_pos"][2 * i : 2 * i + 2]
        items = kwargs[{"s": "attr_strs", "i": "attr_ints", "f": "attr_floats"}[kind[0]]][start:end]
        made[key] = list(items) if len(kind) > 1 else items[0]
    return made


FUNCTION = "rushlight.function"  # domain of nodes that functions write
OTHERS: dict[str, Callable[..., list[Value]]] = {}  # domains whose nodes become others


def _written(call: Call, inputs: Sequence[Value | None], kind: str, kwargs: Mapping[str, Any]) -> list[Value]:
    domain = kwargs.get("domain") or ""
    if domain in OTHERS:
        return OTHERS[domain](call, inputs, _decoded(kwargs))
    domain = "" if domain == "ai.onnx" else domain
    version = kwargs.get("version")
    if domain:
        call.writer.domains[domain] = version or call.writer.domains.get(domain, 1)
    attrs = _decoded(kwargs)
    results = call.results
    return call.writer.ops(kind, *inputs, results=results, domain=domain, **attrs)


@translates("onnx_symbolic::_symbolic")
def _(call: Call, node: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Value:
    return _written(call, args[0], args[1], kwargs)[0]


@translates("onnx_symbolic::_symbolic_multi_out")
def _(call: Call, node: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Value]:
    return _written(call, args[0], args[1], kwargs)


def _takes_node() -> None:
    for name in ("_symbolic", "_symbolic_multi_out"):
        TABLE[f"onnx_symbolic::{name}"].takes_node = True  # type: ignore[attr-defined]


_takes_node()


# ***** operators that run too *****


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Operators of `torch.ops.onnx`, and the functions that compute them: none is registered, they are functions already."""
    return {}


def _heads(x: Tensor, count: int) -> Tensor:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    return x if x.ndim == 4 else x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def rotary(
    x: Tensor, cos: Tensor, sin: Tensor, places: Tensor | None, interleaved: bool, heads: int, width: int
) -> Tensor:
    """See `torch.onnx.ops.rotary_embedding`."""
    if x.ndim == 3 and not heads:
        raise ValueError("rotary_embedding: X of three dims needs num_heads")
    lead = x.shape
    by_length = x if x.ndim == 3 else x.transpose(1, 2)
    parts = by_length.reshape(by_length.shape[0], by_length.shape[1], heads or by_length.shape[2], -1)
    width = width or parts.shape[-1]
    turned, rest = parts[..., :width], parts[..., width:]
    cos, sin = (c if places is None else c[places] for c in (cos, sin))
    cos, sin = (c[..., : width // 2].unsqueeze(2) for c in (cos, sin))
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned[..., : width // 2], turned[..., width // 2 :]
    real, imaginary = cos * a - sin * b, sin * a + cos * b
    if interleaved:
        made = rushlight.stack((real, imaginary), -1).flatten(-2)
    else:
        made = rushlight.cat((real, imaginary), -1)
    made = rushlight.cat((made, rest), -1)
    return made.reshape(lead) if x.ndim == 3 else made.transpose(1, 2)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    past_k: Tensor | None,
    past_v: Tensor | None,
    how: tuple[Any, ...],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `torch.onnx.ops.attention`; `how` has its keyword-only arguments in order."""
    causal, kv_heads, q_heads, mode, scale, softcap, precision = how
    flat = q.ndim == 3
    q, k, v = _heads(q, q_heads), _heads(k, kv_heads), _heads(v, kv_heads)
    keys = k if past_k is None else rushlight.cat((past_k, k), 2)
    values = v if past_v is None else rushlight.cat((past_v, v), 2)
    times = q.shape[1] // keys.shape[1]
    wide_k, wide_v = (t.repeat_interleave(times, 1) if times > 1 else t for t in (keys, values))
    factor = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = (q * factor) @ (wide_k * factor).transpose(-1, -2)
    shown = scores
    if causal:
        rows, columns = scores.shape[-2:]
        keep = rushlight.ones(rows, columns, dtype=rushlight.bool).tril(columns - rows if past_k is not None else 0)
        scores = scores.masked_fill(~keep, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == rushlight.bool else scores + mask
    shown = scores if mode == 1 else shown
    if softcap:
        scores = softcap * rushlight.tanh(scores / softcap)
        shown = scores if mode == 2 else shown
    weights = scores.softmax(-1, dtype=None if precision is None else _dtype(precision)).to(q.dtype)
    shown = weights if mode == 3 else shown
    made = weights @ wide_v
    if flat:
        made = made.transpose(1, 2).reshape(made.shape[0], made.shape[2], -1)
    return made, keys, values, shown
