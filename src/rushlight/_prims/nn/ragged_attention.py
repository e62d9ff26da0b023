"""Attention within sequences of different lengths that lie one behind the other, and over pages of a pool.

Kernels read where sequences begin from memory.  The decompositions lay sequences out to the largest count and call `attention`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._base.errors import DTypeError
from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import HALF, batch_items
from rushlight._prims.record import Aval, ByDecomposition, Primitive, not_differentiable, prim
from rushlight._prims.samples import Samples, any_dtype
from rushlight._types.dtype import FLOAT32, FLOAT64, INT32, INT64

__all__: list[str] = []

_FLOATS = frozenset((FLOAT32, FLOAT64, *HALF))
_INTEGERS = (INT32, INT64)

# ***** what all check *****


def _check(name: str, q: Any, k: Any, v: Any, *numbers: Any) -> None:
    if q.dtype not in _FLOATS:
        raise DTypeError(f"prim.{name} takes floats, got {q.dtype.name}", q.dtype)
    if not q.dtype is k.dtype is v.dtype:
        raise TypeError(
            f"prim.{name} takes operands of one dtype, got {q.dtype.name}, {k.dtype.name} and {v.dtype.name}"
        )
    if len(q.shape) != 3 or k.shape[-1] != q.shape[-1] or k.shape[:-1] != v.shape[:-1] or q.shape[1] % k.shape[-2]:
        raise ValueError(
            f"prim.{name} takes [T, H, E], [.., G, E] and [.., G, F] with H a multiple of G, got {list(q.shape)}, {list(k.shape)} and {list(v.shape)}"
        )
    for x in numbers:
        if x.dtype not in _INTEGERS:
            raise TypeError(f"prim.{name} takes integers that say where sequences lie, got {x.dtype.name}")


def _results(q: Any, v: Any) -> list[Aval]:
    tokens, heads, _ = q.shape
    return [((tokens, heads, v.shape[-1]), q.dtype), ((heads, tokens), q.dtype.wide)]


def _ragged_check(name: str, q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, used: Sequence[Any]) -> None:
    _check(name, q, k, v, starts_q, starts_k, *used)
    count = starts_q.shape[0] - 1
    if len(k.shape) != 3 or starts_q.shape != starts_k.shape or any(u.shape != (count,) for u in used) or count < 1:
        raise ValueError(
            f"prim.{name} takes [N + 1] starts of queries and of keys, and [N] counts of keys, got {list(starts_q.shape)}, {list(starts_k.shape)}"
        )


# ***** sequences laid out to the largest count *****


class _Sequences(NamedTuple):
    """Where sequences begin and how many tokens they have [N], and where each token of the array is."""

    begins: Any
    counts: Any
    which: Any
    within: Any
    owned: Any  # whether a token is of any sequence


def _part(x: Any, start: int, stop: int) -> Any:
    return prim.slice(x, starts=(start,), stops=(stop,), steps=(1,))


def _sequences(starts: Any, tokens: int, most: int) -> _Sequences:
    count = starts.shape[0] - 1
    starts = build.convert(starts, INT64)
    begins, ends = _part(starts, 0, count), _part(starts, 1, count + 1)
    token = prim.iota(shape=(tokens, count), dim=0, dtype=INT64)
    behind = prim.le(build.broadcast_to(ends, (tokens, count)), token)
    which = prim.minimum(prim.sum(build.convert(behind, INT64), dims=(1,)), build.full((tokens,), count - 1, INT64))
    within = prim.iota(shape=(tokens,), dim=0, dtype=INT64) - prim.index(begins, which)
    owned = prim.lt(within, prim.index(ends - begins, which))
    inside = prim.maximum(prim.minimum(within, build.full((tokens,), most - 1, INT64)), build.full((tokens,), 0, INT64))
    return _Sequences(begins, ends - begins, which, inside, owned)


def _padded(x: Any, of: _Sequences, most: int) -> Any:
    """[T, ...] to [N, most, ...]; what is behind a sequence's end is any token."""
    shape = (of.begins.shape[0], most)
    at = build.broadcast_to(build.expand_dims(of.begins, (1,)), shape) + prim.iota(shape=shape, dim=1, dtype=INT64)
    return prim.index(x, prim.minimum(at, build.full(shape, x.shape[0] - 1, INT64)))


def _grouped(x: Any, groups: int, each: int) -> Any:
    """[N, L, H, E] to [N, G, each, L, E]."""
    n, length, heads, width = x.shape
    x = build.reshape(x, (n, length, groups, heads // groups, width))
    x = build.transpose(x, (0, 2, 3, 1, 4))
    return build.broadcast_to(x, (n, groups, each, length, width))


def _tokens(x: Any, of: _Sequences, outside: float) -> Any:
    """[N, G, each, most, ...] to [T, H, ...]."""
    n, groups, each, most, *rest = x.shape
    rows = build.reshape(build.transpose(x, (0, 3, 1, 2, *range(4, len(x.shape)))), (n, most, groups * each, *rest))
    found = prim.index(rows, of.which, of.within)
    shape = (found.shape[0], *[1] * (len(found.shape) - 1))
    owned = build.broadcast_to(build.reshape(of.owned, shape), found.shape)
    return build.select(owned, found, outside)


def _taking(counts_q: Any, counts_k: Any, shape: Sequence[int], left: int, right: int) -> Any:
    """Which pairs take part [N, G, each, L, S]: the last query stands at the last key."""
    n, _, _, rows, keys = shape
    small = (n, rows, keys)
    row, key = (prim.iota(shape=small, dim=d, dtype=INT64) for d in (1, 2))
    queries, there = (build.broadcast_to(build.expand_dims(c, (1, 2)), small) for c in (counts_q, counts_k))
    taking = prim.bitwise_and(prim.lt(row, queries), prim.lt(key, there))
    stands = row + (there - queries)
    if left >= 0:
        taking = prim.bitwise_and(taking, prim.le(stands - left, key))
    if right >= 0:
        taking = prim.bitwise_and(taking, prim.le(key, stands + right))
    return build.broadcast_to(build.expand_dims(taking, (1, 2)), tuple(shape))


def _attend(q: Any, keys: Any, values: Any, of: _Sequences, there: Any, p: dict[str, Any]) -> tuple[Any, Any]:
    """Attention of padded keys and values [N, max_k, G, E]."""
    groups = keys.shape[2]
    each = q.shape[1] // groups
    query = _grouped(_padded(q, of, p["max_q"]), groups, each)
    key, value = (_grouped(x, groups, each) for x in (keys, values))
    mask = _taking(of.counts, there, (*query.shape[:-1], key.shape[-2]), p["left"], p["right"])
    out, norm = prim.attention(query, key, value, mask, causal=False, scale=p["scale"])
    return _tokens(out, of, 0.0), build.transpose(_tokens(norm, of, math.inf), (1, 0))


def _decompose(q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, *used: Any, **p: Any) -> tuple[Any, Any]:
    queries = _sequences(starts_q, q.shape[0], p["max_q"])
    keys = _sequences(starts_k, k.shape[0], p["max_k"])
    there = build.convert(used[0], INT64) if used else keys.counts
    key, value = (_padded(x, keys, p["max_k"]) for x in (k, v))
    return _attend(q, key, value, queries, there, p)


def _grad_decompose(
    ct: Any, q: Any, k: Any, v: Any, norm: Any, delta: Any, starts_q: Any, starts_k: Any, *used: Any, **p: Any
) -> tuple[Any, Any, Any]:
    queries = _sequences(starts_q, q.shape[0], p["max_q"])
    keys = _sequences(starts_k, k.shape[0], p["max_k"])
    there = build.convert(used[0], INT64) if used else keys.counts
    groups = k.shape[1]
    each = q.shape[1] // groups
    cotangent, query = (_grouped(_padded(x, queries, p["max_q"]), groups, each) for x in (ct, q))
    key, value = (_grouped(_padded(x, keys, p["max_k"]), groups, each) for x in (k, v))
    rows = []
    for x in (norm, delta):
        wide = _padded(build.expand_dims(build.transpose(x, (1, 0)), (2,)), queries, p["max_q"])
        rows.append(build.squeeze(_grouped(wide, groups, each), (4,)))
    mask = _taking(queries.counts, there, (*query.shape[:-1], key.shape[-2]), p["left"], p["right"])
    to_q, to_k, to_v = prim.attention_grad(cotangent, query, key, value, *rows, mask, causal=False, scale=p["scale"])
    shared = []
    for x in (to_k, to_v):
        total = build.in_single(lambda y: prim.sum(y, dims=(2,)), x)
        shared.append(build.keep_dims(total, (*x.shape[:2], 1, *x.shape[3:]), (2,)))
    return _tokens(to_q, queries, 0.0), *(_tokens(x, keys, 0.0) for x in shared)


# ***** the meaning *****


def _wider(x: Any) -> Any:
    return x.astype("float64")


def _np_pairs(rows: int, keys: int, left: int, right: int) -> Any:
    stands, key = np.arange(rows)[:, None] + (keys - rows), np.arange(keys)
    taking = np.ones((rows, keys), bool)
    if left >= 0:
        taking &= key >= stands - left
    if right >= 0:
        taking &= key <= stands + right
    return taking


def _np_weights(q: Any, k: Any, p: dict[str, Any]) -> tuple[Any, Any]:
    """Scores [H, L, S] of one sequence, -inf where a pair takes no part, and the keys [H, S, E]."""
    heads = np.repeat(_wider(k), q.shape[1] // k.shape[1], axis=1).transpose(1, 0, 2)
    scores = _wider(q).transpose(1, 0, 2) @ heads.transpose(0, 2, 1) * p["scale"]
    return np.where(_np_pairs(q.shape[0], k.shape[0], p["left"], p["right"]), scores, -np.inf), heads


def _np_attend(q: Any, k: Any, v: Any, p: dict[str, Any]) -> tuple[Any, Any]:
    scores, _ = _np_weights(q, k, p)
    top = scores.max(-1, initial=-np.inf)
    dead = top == -np.inf
    raised = np.exp(scores - np.where(dead, 0, top)[..., None])
    total = np.where(dead, 1, raised.sum(-1))
    values = np.repeat(_wider(v), q.shape[1] // v.shape[1], axis=1).transpose(1, 0, 2)
    return (raised @ values / total[..., None]).transpose(1, 0, 2), np.where(dead, np.inf, np.log(total) + top)


def _np_empty(q: Any, v: Any) -> tuple[Any, Any]:
    out = np.zeros((*q.shape[:2], v.shape[-1]), q.dtype)
    return out, np.full(q.shape[1::-1], np.inf, np.result_type(q.dtype, np.float32))


def _reference(q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, *used: Any, **p: Any) -> tuple[Any, Any]:
    out, norm = _np_empty(q, v)
    for n in range(len(starts_q) - 1):
        rows, first = slice(starts_q[n], starts_q[n + 1]), starts_k[n]
        keys = slice(first, first + used[0][n] if used else starts_k[n + 1])
        out[rows], norm[:, rows] = _np_attend(q[rows], k[keys], v[keys], p)
    return out, norm


def _paged_reference(q: Any, k: Any, v: Any, starts_q: Any, used: Any, table: Any, **p: Any) -> tuple[Any, Any]:
    out, norm = _np_empty(q, v)
    for n in range(len(starts_q) - 1):
        rows, token = slice(starts_q[n], starts_q[n + 1]), np.arange(used[n])
        at = table[n][token // k.shape[1]], token % k.shape[1]
        out[rows], norm[:, rows] = _np_attend(q[rows], k[at], v[at], p)
    return out, norm


def _grad_reference(
    ct: Any, q: Any, k: Any, v: Any, norm: Any, delta: Any, starts_q: Any, starts_k: Any, *used: Any, **p: Any
) -> tuple[Any, ...]:
    gradients = [np.zeros(x.shape, "float64") for x in (q, k, v)]
    each = q.shape[1] // k.shape[1]
    for n in range(len(starts_q) - 1):
        rows, first = slice(starts_q[n], starts_q[n + 1]), starts_k[n]
        keys = slice(first, first + used[0][n] if used else starts_k[n + 1])
        scores, heads = _np_weights(q[rows], k[keys], p)
        weights = np.exp(scores - norm[:, rows, None])
        cotangent, values = _wider(ct[rows]).transpose(1, 0, 2), np.repeat(_wider(v[keys]), each, axis=1)
        slopes = weights * (cotangent @ values.transpose(1, 2, 0) - delta[:, rows, None]) * p["scale"]
        gradients[0][rows] = (slopes @ heads).transpose(1, 0, 2)
        for to, part in (
            (gradients[1], slopes.transpose(0, 2, 1) @ _wider(q[rows]).transpose(1, 0, 2)),
            (gradients[2], weights.transpose(0, 2, 1) @ cotangent),
        ):
            to[keys] = part.reshape(k.shape[1], each, *part.shape[1:]).sum(1).transpose(1, 0, 2)
    return tuple(x.astype(q.dtype) for x in gradients)


# ***** rules *****


def _spec(q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, *used: Any, **p: Any) -> list[Aval]:
    _ragged_check("ragged_attention", q, k, v, starts_q, starts_k, used)
    return _results(q, v)


def _grad_spec(
    ct: Any, q: Any, k: Any, v: Any, norm: Any, delta: Any, starts_q: Any, starts_k: Any, *used: Any, **p: Any
) -> list[Aval]:
    _ragged_check("ragged_attention_grad", q, k, v, starts_q, starts_k, used)
    (out, dtype), (rows, wide) = _results(q, v)
    if (ct.shape, ct.dtype) != (out, dtype) or any((x.shape, x.dtype) != (rows, wide) for x in (norm, delta)):
        raise ValueError(
            f"prim.ragged_attention_grad takes a cotangent [T, H, F] and two numbers [H, T] of {wide.name} for each row, got {list(ct.shape)}, "
            f"{list(norm.shape)} and {list(delta.shape)}"
        )
    return [(x.shape, x.dtype) for x in (q, k, v)]


def _paged_spec(q: Any, k: Any, v: Any, starts_q: Any, used: Any, table: Any, **p: Any) -> list[Aval]:
    _check("paged_attention", q, k, v, starts_q, used, table)
    count = starts_q.shape[0] - 1
    if len(k.shape) != 4 or used.shape != (count,) or len(table.shape) != 2 or table.shape[0] != count or count < 1:
        raise ValueError(
            f"prim.paged_attention takes pools [P, page, G, E], [N] counts of keys and a table [N, pages], got {list(k.shape)}, {list(used.shape)} "
            f"and {list(table.shape)}"
        )
    return _results(q, v)


def _vjp(ct: Any, out: Any, q: Any, k: Any, v: Any, *numbers: Any, **p: Any) -> tuple[Any, ...]:
    result, norm = out
    cotangent = build.zeros_like(result) if ct[0] is None else ct[0]
    wide = q.dtype.wide
    delta = prim.sum(build.convert(cotangent, wide) * build.convert(result, wide), dims=(2,))
    delta = build.transpose(delta, (1, 0))
    if ct[1] is not None:  # the derivative of the logarithm of a row's sum is the row's weights
        delta = delta - ct[1]
    gradients = prim.ragged_attention_grad(cotangent, q, k, v, norm, delta, *numbers, **p)
    return (*gradients, *(None for _ in numbers))


def _pages(pool: Any, table: Any, most: int) -> Any:
    """The first tokens of each sequence, [N, most, G, E]; entries behind a sequence's last page may be anything."""
    pages, size = pool.shape[:2]
    shape = (table.shape[0], most)
    token = prim.iota(shape=shape, dim=1, dtype=INT64)
    place = prim.minimum(prim.div_trunc(token, build.full(shape, size, INT64)), build.full(shape, table.shape[1] - 1, INT64))  # fmt: skip
    page = prim.index(build.convert(table, INT64), prim.iota(shape=shape, dim=0, dtype=INT64), place)
    page = prim.maximum(prim.minimum(page, build.full(shape, pages - 1, INT64)), build.full(shape, 0, INT64))
    return prim.index(pool, page, prim.rem_trunc(token, build.full(shape, size, INT64)))


def _paged_decompose(q: Any, k: Any, v: Any, starts_q: Any, used: Any, table: Any, **p: Any) -> tuple[Any, Any]:
    queries = _sequences(starts_q, q.shape[0], p["max_q"])
    key, value = (_pages(x, table, p["max_k"]) for x in (k, v))
    return _attend(q, key, value, queries, build.convert(used, INT64), p)


# ***** samples *****

_PARAMS = {"scale": 0.5, "left": -1, "right": -1, "max_q": 4, "max_k": 5}


def _samples() -> Samples:
    for dtype, heads, groups in (("float64", 2, 1), ("float32", 1, 1), ("float64", 4, 2)):
        xs = [any_dtype(s, dtype, i) for i, s in enumerate(((6, heads, 3), (9, groups, 3), (9, groups, 2)))]
        starts = np.array([0, 2, 2, 6], np.int32), np.array([0, 4, 4, 9], np.int32)
        yield [*xs, *starts], _PARAMS
        yield [*xs, *starts], _PARAMS | {"right": 0, "left": 2}
        yield [*xs, *starts, np.array([3, 0, 2], np.int32)], _PARAMS


def _grad_samples() -> Samples:
    for (q, k, v, *numbers), params in _samples():
        ct = any_dtype((*q.shape[:2], v.shape[-1]), q.dtype.name, 7)
        rows = [any_dtype(q.shape[1::-1], q.dtype.name, seed, 1.0, 2.0) for seed in (8, 9)]
        yield [ct, q, k, v, *rows, *numbers], params


def _paged_samples() -> Samples:
    for dtype, heads in (("float64", 2), ("float32", 4)):
        xs = [any_dtype(s, dtype, i) for i, s in enumerate(((4, heads, 3), (5, 2, 2, 3), (5, 2, 2, 2)))]
        starts, used = np.array([0, 1, 4], np.int32), np.array([3, 5], np.int32)
        table = np.array([[4, 1, 0], [3, 0, 2]], np.int32)
        yield [*xs, starts, used, table], _PARAMS
        yield [*xs, starts, used, table], _PARAMS | {"right": 0}


Primitive(
    "ragged_attention", "Attention within sequences: q [T, H, E], k [S, G, E] and v [S, G, F], sequence n from starts[n] to starts[n + 1] of each, or so many "
    "keys as a fifth array says; `left` and `right` keys about a query's place take part, -1 for all, where the last query stands at the last key.  Gives "
    "[T, H, F] and log(sum(exp(scores))) [H, T]; 0 and inf for rows without keys or of no sequence.", family="heavy", spec=_spec, reference=_reference,
    lower=("extern", "ragged_attention"), multiple=True, samples=_samples, vjp=_vjp, jvp=ByDecomposition(), batch=batch_items("ragged_attention"),
    decompose=_decompose,
)  # fmt: skip

Primitive(
    "ragged_attention_grad", "The cotangents of q, k and v of `ragged_attention`, from that of its result, the rows' log(sum(exp(scores))), and `delta`, the "
    "rows' sums of cotangent times result.", family="heavy", spec=_grad_spec, reference=_grad_reference, lower=("extern", "ragged_attention_grad"),
    multiple=True, samples=_grad_samples, vjp=ByDecomposition(), jvp=ByDecomposition(), batch=batch_items("ragged_attention_grad"),
    decompose=_grad_decompose,
)  # fmt: skip

_NO_GRADIENT = not_differentiable("pages of a pool are for inference")

Primitive(
    "paged_attention", "`ragged_attention` to keys and values in pages: pools [P, page, G, E], of which sequence n has the first used[n] tokens in the pages "
    "of table[n].", family="heavy", spec=_paged_spec, reference=_paged_reference, lower=("extern", "paged_attention"), multiple=True,
    samples=_paged_samples, vjp=_NO_GRADIENT, jvp=_NO_GRADIENT, batch=batch_items("paged_attention"),
    decompose=_paged_decompose,
)  # fmt: skip
