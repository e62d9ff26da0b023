"""In which ways a primitive can be computed on parts of its operands: for each primitive, the dims that may be divided.

A *placement* says what a process of a group has of an array: all of it (`None`), a part along a dim (the dim's number),
or a term of it: the reduction over all processes by "sum", "prod", "max" or "min" is the array.

An `Option` is one way: a placement for each operand and each result.  A process computes its parts of the results from
its parts of the operands, without communication.  Element-wise primitives need no rule: any dim may be divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from rushlight._graph.core import Node
from rushlight._prims import build
from rushlight._prims.record import prim
from rushlight._types.dtype import BOOL, INT64
from rushlight._types.layout import numel

__all__ = ["WHOLE", "Option", "Part", "Placement", "has_rule", "options_of"]

Ints = tuple[int, ...]
Placement = int | str | None


class Part:
    """The part of a dim that one process of `size` has: as `torch.chunk` divides, so the last ones may be smaller.

    >>> [Part(4, k).span(10) for k in range(4)]
    [(0, 3), (3, 6), (6, 9), (9, 10)]
    """

    __slots__ = ("coordinate", "size")

    def __init__(self, size: int, coordinate: int) -> None:
        self.size, self.coordinate = size, coordinate

    def span(self, extent: int) -> tuple[int, int]:
        """First and last (exclusive) index of the part of a dim of `extent` elements."""
        step = -(-extent // self.size)
        return min(self.coordinate * step, extent), min((self.coordinate + 1) * step, extent)

    def length(self, extent: int) -> int:
        """The size of the part of a dim of `extent` elements."""
        start, stop = self.span(extent)
        return stop - start


Build = Callable[[Part, Node, Sequence[Any]], Any]


class Option(NamedTuple):
    """One way to compute a node on parts; `build` emits it where the parameters of the node would not do."""

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    build: Build | None = None


Rule = Callable[[Node, int], Iterator[Option]]
RULES: dict[str, Rule] = {}

# Primitives that are computed whole by every process, with the reason.
WHOLE = {
    "recurrence": "sequences of a batch are packed: a row's sequence depends on the sizes of all",
    "recurrence_grad": "sequences of a batch are packed: a row's sequence depends on the sizes of all",
    "ragged_attention": "sequences lie behind each other in one dim: where one begins depends on all before",
    "ragged_attention_grad": "sequences lie behind each other in one dim: where one begins depends on all before",
    "paged_attention": "a table of all pages says which keys belong to a sequence",
    "grouped_dot": "where groups end along a dim is data",
    "window_dot": "it is made of `dot` for one processor, behind the division into parts",
}


def options_of(node: Node, size: int) -> list[Option]:
    """The ways to compute a node on parts in a group of `size` processes, dims first."""
    rule = RULES.get(node.prim.name)
    if rule is None:
        if node.prim.lower[0] != "scalar":
            return []
        rule = _pointwise
    return list(rule(node, size))


def has_rule(name: str, lower: Sequence[Any]) -> bool:
    """Whether a primitive can be computed on parts."""
    return name in RULES or lower[0] == "scalar"


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for name in names:
            RULES[name] = rule
        return rule

    return add


def _shape(node: Node, i: int = 0) -> Ints:
    return node.inputs[i].shape


def _all(node: Node, placement: Placement) -> Option:
    """All operands and all results placed alike."""
    return Option((placement,) * len(node.inputs), (placement,) * len(node.outputs))


def _moved(node: Node) -> Iterator[Option]:
    """Terms of any kind, of primitives that only move elements."""
    for kind in ("sum", "prod", "max", "min"):
        yield _all(node, kind)


def _never_empty(extent: int, size: int) -> bool:
    """Whether every process has an element of a dim."""
    return 0 < -(-extent // size) * (size - 1) < extent or (size == 1 and extent > 0)


def _replaced(values: Sequence[int], d: int, value: int) -> Ints:
    return (*values[:d], value, *values[d + 1 :])


# ***** element by element *****

# Those whose result is linear in the operands together, and in each operand while the others are whole.
_LINEAR = {"neg", "add", "sub", "real", "imag", "conj", "complex"}
_LINEAR_IN = {"mul": (0, 1), "div": (0,)}


def _pointwise(node: Node, size: int) -> Iterator[Option]:
    name, count = node.prim.name, len(node.inputs)
    for d in range(len(node.outputs[0].shape)):
        yield _all(node, d)
    if node.outputs[0].dtype.is_integer or node.outputs[0].dtype is BOOL:
        return  # a division truncates, and a sum may wrap: PyTorch reduces first
    if name in _LINEAR or (name == "convert" and _keeps_sums(node)):
        yield _all(node, "sum")
    for i in _LINEAR_IN.get(name, ()):
        yield Option(tuple("sum" if j == i else None for j in range(count)), ("sum",))
    if name == "select":
        yield Option((None, "sum", "sum"), ("sum",))


def _keeps_sums(node: Node) -> bool:
    """Whether terms may be converted before they are added: not to a narrower dtype."""
    before, after = node.inputs[0].dtype, node.outputs[0].dtype
    return not before.is_integer and before is not BOOL and after.itemsize >= before.itemsize


# ***** arrays without operands *****


def _full_part(d: int, part: Part, node: Node, xs: Sequence[Any]) -> Any:
    p = node.params
    return build.full(_replaced(p["shape"], d, part.length(p["shape"][d])), p["value"], p["dtype"])


def _iota_part(d: int, part: Part, node: Node, xs: Sequence[Any]) -> Any:
    shape, dim, dtype = node.params["shape"], node.params["dim"], node.params["dtype"]
    local = _replaced(shape, d, part.length(shape[d]))
    if d != dim:
        return prim.iota(shape=local, dim=dim, dtype=dtype)
    index = prim.iota(shape=local, dim=dim, dtype=INT64)
    return build.convert(index + build.full(local, part.span(shape[d])[0], INT64), dtype)


@_rule("full", "iota")
def _created(node: Node, size: int) -> Iterator[Option]:
    emit = _full_part if node.prim.name == "full" else _iota_part
    for d in range(len(node.params["shape"])):
        yield Option((), (d,), partial(emit, d))


# ***** shapes *****


def _with(**changes: Callable[[Part, Any], Any]) -> Build:
    """The primitive with some parameters changed."""

    def emit(part: Part, node: Node, xs: Sequence[Any]) -> Any:
        params = {name: changes[name](part, value) if name in changes else value for name, value in node.params.items()}
        return node.prim(*xs, **params)

    return emit


def _part_of(d: int) -> Callable[[Part, Ints], Ints]:
    """A shape whose dim d is divided."""
    return lambda part, shape: _replaced(shape, d, part.length(shape[d]))


@_rule("broadcast")
def _broadcast(node: Node, size: int) -> Iterator[Option]:
    shape, dims = node.params["shape"], node.params["dims"]
    for d in range(len(shape)):
        i = dims.index(d) if d in dims else None
        grows = i is None or _shape(node)[i] != shape[d]
        yield Option((None if grows else i,), (d,), _with(shape=_part_of(d)))
    yield from _moved(node)


@_rule("reshape")
def _reshape(node: Node, size: int) -> Iterator[Option]:
    before, after = _shape(node), node.params["shape"]
    if numel(before):
        for i, j in _leading(before, after):
            whole = before[i] == after[j] and numel(before[i + 1 :]) == numel(after[j + 1 :])
            if whole or before[i] % size == after[j] % size == 0:
                yield Option((i,), (j,), _with(shape=_part_of(j)))
    yield from _moved(node)


def _leading(before: Ints, after: Ints) -> Iterator[tuple[int, int]]:
    """Pairs of dims with which a run of dims that is reshaped into another begins: a part of one is a part of the
    other.
    """
    i = j = 0
    while i < len(before) and j < len(after):
        if before[i] == 1 != after[j]:
            i += 1
        elif after[j] == 1 != before[i]:
            j += 1
        else:
            yield i, j
            left, right = before[i], after[j]
            i, j = i + 1, j + 1
            while left != right:
                if left < right:
                    left, i = left * before[i], i + 1
                else:
                    right, j = right * after[j], j + 1


@_rule("transpose")
def _transpose(node: Node, size: int) -> Iterator[Option]:
    for j, i in enumerate(node.params["perm"]):
        yield Option((i,), (j,))
    yield from _moved(node)


@_rule("slice")
def _slice(node: Node, size: int) -> Iterator[Option]:
    p = node.params
    for d, n in enumerate(_shape(node)):
        if (p["starts"][d], p["stops"][d], p["steps"][d]) == (0, n, 1):
            yield Option((d,), (d,), _with(stops=_part_of(d)))
    yield from _moved(node)


@_rule("pad")
def _pad(node: Node, size: int) -> Iterator[Option]:
    p = node.params
    for d in range(len(_shape(node))):
        if not (p["lo"][d] or p["hi"][d] or p["interior"][d]):
            yield Option((d,), (d,))
    if not p["value"] and node.outputs[0].dtype is not BOOL:
        yield _all(node, "sum")


@_rule("flip")
def _flip(node: Node, size: int) -> Iterator[Option]:
    for d in range(len(_shape(node))):
        if d not in node.params["dims"]:
            yield _all(node, d)
    yield from _moved(node)


@_rule("cat")
def _cat(node: Node, size: int) -> Iterator[Option]:
    for d in range(len(_shape(node))):
        if d != node.params["dim"]:
            yield _all(node, d)
    yield from _moved(node)


@_rule("window")
def _window(node: Node, size: int) -> Iterator[Option]:
    for d in range(len(_shape(node))):
        if d not in node.params["dims"]:
            yield _all(node, d)
    yield _all(node, "sum")


@_rule("unwindow")
def _unwindow(node: Node, size: int) -> Iterator[Option]:
    for d in range(len(node.params["shape"])):
        if d not in node.params["dims"]:
            yield Option((d,), (d,), _with(shape=_part_of(d)))
    yield _all(node, "sum")


@_rule("diagonal")
def _diagonal(node: Node, size: int) -> Iterator[Option]:
    for d in range(len(_shape(node)) - 2):
        yield _all(node, d)
    yield _all(node, "sum")


# ***** reductions, and what goes along one dim *****

_TERMS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min"}


@_rule("sum", "prod", "amax", "amin")
def _reduce(node: Node, size: int) -> Iterator[Option]:
    dims, kind = node.params["dims"], _TERMS[node.prim.name]
    kept = [d for d in range(len(_shape(node))) if d not in dims]
    for d in kept:
        yield Option((d,), (kept.index(d),))
    for d in dims:
        if kind in ("sum", "prod") or _never_empty(_shape(node)[d], size):
            yield Option((d,), (kind,))
    yield _all(node, kind)


@_rule("argmax", "argmin")
def _arg_reduce(node: Node, size: int) -> Iterator[Option]:
    dim = node.params["dim"]
    for d in range(len(_shape(node))):
        if d != dim:
            yield Option((d,), (d - (d > dim),))


@_rule("cumsum", "cumprod", "cummax", "cummin", "sort", "topk", "kth")
def _along(node: Node, size: int) -> Iterator[Option]:
    for d in range(len(_shape(node))):
        if d != node.params["dim"]:
            yield _all(node, d)
    if node.prim.name == "cumsum":
        yield _all(node, "sum")


@_rule("fft", "rfft", "irfft")
def _fourier(node: Node, size: int) -> Iterator[Option]:
    dims = node.params.get("dims") or (node.params["dim"],)
    for d in range(len(_shape(node))):
        if d not in dims:
            yield _all(node, d)
    yield _all(node, "sum")


# ***** indices that are data *****


@_rule("gather")
def _gather(node: Node, size: int) -> Iterator[Option]:
    dim = node.params["dim"]
    for d, (n, extent) in enumerate(zip(_shape(node, 1), _shape(node), strict=True)):
        if d == dim:
            yield Option((None, d), (d,))
        elif n == extent:
            yield Option((d, d), (d,))
    yield Option(("sum", None), ("sum",))


@_rule("scatter")
def _scatter(node: Node, size: int) -> Iterator[Option]:
    dim, reduce = node.params["dim"], node.params["reduce"]
    for d, (n, extent) in enumerate(zip(_shape(node, 1), _shape(node), strict=True)):
        if d != dim and n == extent:
            yield Option((d, d, d), (d,))
    if reduce == "add":
        yield Option(("sum", dim, dim), ("sum",))
    if reduce in ("add", "set"):
        yield Option(("sum", None, "sum"), ("sum",))


@_rule("index")
def _index(node: Node, size: int) -> Iterator[Option]:
    k, places = len(node.inputs) - 1, len(_shape(node, 1))
    for d in range(places):
        yield Option((None, *(d,) * k), (d,))
    for d in range(k, len(_shape(node))):
        yield Option((d, *(None,) * k), (d - k + places,))
    if k == 1 and not node.outputs[0].dtype.is_complex and _never_empty(_shape(node)[0], size):
        yield Option((0, None), ("max" if node.outputs[0].dtype is BOOL else "sum",), _masked_index)
    yield Option(("sum", *(None,) * k), ("sum",))


def _masked_index(part: Part, node: Node, xs: Sequence[Any]) -> Any:
    """Entries in another process's rows are 0 here.  The index is checked against all rows, and wrapped, by reading."""
    x, index = xs
    extent = _shape(node)[0]
    start, stop = part.span(extent)
    wrapped = prim.index(prim.iota(shape=(extent,), dim=0, dtype=INT64), index)
    mine = (wrapped >= start) & (wrapped < stop)
    rows = prim.index(x, build.select(mine, wrapped - start, build.zeros_like(wrapped)))
    dims = tuple(range(len(index.shape)))
    return build.select(prim.broadcast(mine, shape=rows.shape, dims=dims), rows, build.zeros_like(rows))


@_rule("index_put")
def _index_put(node: Node, size: int) -> Iterator[Option]:
    k = len(node.inputs) - 2
    places = len(_shape(node, 2))
    for d in range(k, len(_shape(node))):
        yield Option((d, d - k + places, *(None,) * k), (d,))
    if node.params["accumulate"]:
        for d in range(places):
            yield Option(("sum", d, *(d,) * k), ("sum",))
    yield Option(("sum", "sum", *(None,) * k), ("sum",))


@_rule("reduce_terms")
def _reduce_terms(node: Node, size: int) -> Iterator[Option]:
    """Reductions along two axes of a mesh go in either order, if they are of one kind."""
    for d in range(len(_shape(node))):
        yield _all(node, d)
    yield _all(node, node.params["kind"])


# ***** products, convolutions, attention *****


@_rule("dot")
def _dot(node: Node, size: int) -> Iterator[Option]:
    n = len(_shape(node))
    for d in range(n - 2):
        yield _all(node, d)
    yield Option((n - 2, None), (n - 2,))
    yield Option((None, n - 1), (n - 1,))
    yield Option((n - 1, n - 2), ("sum",))
    yield Option(("sum", None), ("sum",))
    yield Option((None, "sum"), ("sum",))


@_rule("conv")
def _conv(node: Node, size: int) -> Iterator[Option]:
    groups = node.params["groups"]
    yield Option((0, None), (0,))
    if groups == 1:
        yield Option((None, 0), (1,))
        yield Option((1, 1), ("sum",))
    elif groups % size == 0:
        yield Option((1, 0), (1,), _with(groups=lambda part, groups: groups // part.size))
    yield Option(("sum", None), ("sum",))
    yield Option((None, "sum"), ("sum",))


@_rule("conv_windows")
def _conv_windows(node: Node, size: int) -> Iterator[Option]:
    bias = len(node.inputs) - 2
    yield Option((0, None, *(None,) * bias), (0,))
    yield Option((1, 0, *(0,) * bias), (1,))
    yield Option((None, 1, *(1,) * bias), (2,))
    if not bias:
        yield Option((2, 2), ("sum",))
        yield Option(("sum", None), ("sum",))
        yield Option((None, "sum"), ("sum",))


@_rule("resample", "resample_back")
def _resample(node: Node, size: int) -> Iterator[Option]:
    tables = (None,) * (len(node.inputs) - 1)
    dims = node.params["dims"] if "dims" in node.params else (node.params["dim"],)
    for d in range(len(_shape(node))):
        if d not in dims:
            yield Option((d, *tables), (d,))
    yield Option(("sum", *tables), ("sum",))


@_rule("weighted_gather", "weighted_scatter")
def _weighted(node: Node, size: int) -> Iterator[Option]:
    count = len(node.inputs) - 1
    yield _all(node, 0)
    yield Option((1, *(None,) * count), (1,))
    if node.prim.name == "weighted_gather":
        yield Option((None, *(1,) * count), (2,))
    else:
        yield Option((2, *(1,) * count), ("sum",))
    yield Option(("sum", *(None,) * count), ("sum",))


@_rule("gather_weights")
def _gather_weights(node: Node, size: int) -> Iterator[Option]:
    count, results = len(node.inputs) - 2, len(node.outputs)
    yield _all(node, 0)
    yield Option((1, 1, *(None,) * count), ("sum",) * results)
    yield Option((2, None, *(1,) * count), (1,) * results)


@_rule("unpool")
def _unpool(node: Node, size: int) -> Iterator[Option]:
    yield _all(node, 0)
    yield _all(node, 1)
    yield Option(("sum", None), ("sum",))


@_rule("attention")
def _attention(node: Node, size: int) -> Iterator[Option]:
    n, mask = len(_shape(node)), len(node.inputs) - 3
    for d in range(n - 2):
        yield _all(node, d)
    if not node.params["causal"]:
        yield Option((n - 2, None, None, *(n - 2,) * mask), (n - 2, n - 2))
    yield Option((None, None, n - 1, *(None,) * mask), (n - 1, None))


@_rule("attention_grad")
def _attention_grad(node: Node, size: int) -> Iterator[Option]:
    n, mask = len(_shape(node)), len(node.inputs) - 6
    for d in range(n - 2):
        yield _all(node, d)
    if not node.params["causal"]:
        rows = n - 2
        yield Option((rows, rows, None, None, rows, rows, *(rows,) * mask), (rows, "sum", "sum"))


# ***** matrices: every matrix by itself *****


@_rule(
    "cholesky", "lu", "permutation", "reflections", "qr", "eigh", "eig", "svd", "minors", "ldl", "least_squares",
    "triangular_solve", "ldl_solve",
)  # fmt: skip
def _matrices(node: Node, size: int) -> Iterator[Option]:
    n = len(_shape(node))
    lead = n - (1 if node.prim.name == "permutation" else 2)
    for d in range(lead):
        yield _all(node, d)
    if node.prim.name in ("triangular_solve", "ldl_solve"):
        yield Option((*(None,) * (len(node.inputs) - 1), n - 1), (n - 1,))
