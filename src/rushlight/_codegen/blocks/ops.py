"""The operations of the block IR: one record each, with its meaning and the rule for the types of its results.

`OPS[kind].infer(types, attributes, regions)` gives the types of the results, and raises `BlockError` for operands that
do not fit.  The builder and the verifier ask the same rules.  Operations are strict, as primitives are: equal shapes,
no broadcasting, no promotion.

Pointwise arithmetic is the primitives' own (`_prims`): `pointwise` names one, and the primitive's record says what it
means; `_codegen.scalar` lowers it on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rushlight._prims import PRIMITIVES
from rushlight._types.dtype import BOOL, INT32, DType

from .ir import Region
from .types import Pointer, Tile

__all__ = ["ATOMICS", "OPS", "BlockError", "OpRecord"]

Types = Sequence[Tile]
Attributes = Mapping[str, Any]
Rule = Callable[[Types, Attributes, Sequence[Region]], list[Tile]]


class BlockError(ValueError):
    """Operands, attributes or regions that do not fit an operation of the block IR."""


class OpRecord(NamedTuple):
    """The meaning of an operation, and the rule for the types of its results.  `effect`: it may not be removed or moved
    over others.
    """

    kind: str
    doc: str
    infer: Rule
    effect: bool = False


OPS: dict[str, OpRecord] = {}
ATOMICS = frozenset({"add", "max", "min", "and", "or", "xor", "xchg"})


def operation(kind: str, doc: str, effect: bool = False) -> Callable[[Rule], Rule]:
    """Declare an operation by its rule."""

    def declare(rule: Rule) -> Rule:
        if kind in OPS:
            raise ValueError(f"operation {kind!r} is declared twice")
        OPS[kind] = OpRecord(kind, doc, rule, effect)
        return rule

    return declare


def need(condition: bool, kind: str, what: str) -> None:
    """BlockError unless the condition holds."""
    if not condition:
        raise BlockError(f"{kind}: {what}")


def is_integer(type: Tile) -> bool:
    return isinstance(type.element, DType) and type.element.kind in "iu"


def is_mask(type: Tile, shape: tuple[int, ...]) -> bool:
    return type.element is BOOL and type.shape == shape


# ***** sources *****


@operation("constant", "The number `value` as a scalar of `dtype`.")
def _constant(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(isinstance(attributes.get("dtype"), DType), "constant", "`dtype` names the type of the number")
    need(type(attributes.get("value")) in (bool, int, float), "constant", "`value` is a Python number")
    return [Tile(attributes["dtype"])]


@operation("program_id", "Which program this is along `axis` (0, 1, 2) of the grid: int32.")
def _program_id(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(attributes.get("axis") in (0, 1, 2), "program_id", f"`axis` is 0, 1 or 2, not {attributes.get('axis')}")
    return [Tile(INT32)]


@operation("num_programs", "How many programs there are along `axis` of the grid: int32.")
def _num_programs(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(attributes.get("axis") in (0, 1, 2), "num_programs", f"`axis` is 0, 1 or 2, not {attributes.get('axis')}")
    return [Tile(INT32)]


@operation(
    "choose", "(index, xs...): the scalar of this index among scalars of one type; an index out of range is undefined."
)
def _choose(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    index, *xs = types
    need(is_integer(index) and not index.shape, "choose", f"the index is a scalar integer, not {index!r}")
    need(bool(xs) and not xs[0].shape and all(x == xs[0] for x in xs), "choose", f"scalars of one type, not {xs}")
    return [xs[0]]


@operation("arange", "The integers from `start` to before `end`: int32 of one dim.")
def _arange(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    start, end = attributes["start"], attributes["end"]
    need(start < end, "arange", f"`start` {start} lies before `end` {end}")
    return [Tile(INT32, (end - start,))]


# ***** shapes *****


@operation("splat", "A scalar at each place of `shape`.")
def _splat(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(types[0].shape == (), "splat", f"the operand is a scalar, not {types[0]!r}")
    return [Tile(types[0].element, tuple(attributes["shape"]))]


@operation("expand_dims", "A dim of size 1 more, at `axis`.")
def _expand_dims(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    shape, axis = types[0].shape, attributes["axis"]
    need(0 <= axis <= len(shape), "expand_dims", f"`axis` {axis} is no place in {types[0]!r}")
    return [Tile(types[0].element, (*shape[:axis], 1, *shape[axis:]))]


@operation("broadcast", "Dims of size 1 repeated to those of `shape`, which has as many dims.")
def _broadcast(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    old, new = types[0].shape, tuple(attributes["shape"])
    fits = len(old) == len(new) and all(a in (1, b) for a, b in zip(old, new, strict=True))
    need(fits, "broadcast", f"{types[0]!r} does not broadcast to {list(new)}")
    return [Tile(types[0].element, new)]


@operation("reshape", "The same elements in row-major order in another `shape`.")
def _reshape(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    new = Tile(types[0].element, tuple(attributes["shape"]))
    need(new.numel == types[0].numel, "reshape", f"{types[0]!r} has other elements than {new!r}")
    return [new]


@operation("permute", "Dims in another `order`: dim i of the result is dim `order[i]` of the operand.")
def _permute(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    order = tuple(attributes["order"])
    need(sorted(order) == list(range(types[0].ndim)), "permute", f"`order` {order} is none of the dims of {types[0]!r}")
    return [Tile(types[0].element, tuple(types[0].shape[d] for d in order))]


@operation("join", "Two tiles of one type side by side in a new last dim of size 2.")
def _join(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(types[0] == types[1], "join", f"{types[0]!r} and {types[1]!r} differ")
    return [Tile(types[0].element, (*types[0].shape, 2))]


@operation("split", "The two halves along a last dim of size 2, without it: what `join` put together.")
def _split(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(types[0].shape[-1:] == (2,), "split", f"the last dim of {types[0]!r} has size 2")
    return [Tile(types[0].element, types[0].shape[:-1])] * 2


@operation("cat", "The elements of the first tile, then those of the second, along dim 0.")
def _cat(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    a, b = types
    fits = a.element == b.element and a.ndim == b.ndim >= 1 and a.shape[1:] == b.shape[1:]
    need(fits, "cat", f"{a!r} and {b!r} do not fit together")
    return [Tile(a.element, (a.shape[0] + b.shape[0], *a.shape[1:]))]


@operation(
    "gather", "out[..., i, ...] = x[..., index[..., i, ...], ...] along `axis`; an index out of range is undefined."
)
def _gather(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    x, index = types
    axis = attributes["axis"]
    need(is_integer(index) and x.ndim == index.ndim, "gather", f"{index!r} is no index into {x!r}")
    others = [d for d in range(x.ndim) if d != axis]
    need(all(x.shape[d] == index.shape[d] for d in others), "gather", f"{index!r} differs from {x!r} outside of `axis`")
    return [index.of(x.element)]


# ***** arithmetic *****


@operation(
    "pointwise",
    "The primitive named `prim`, with its `params`, at each place.  `approximate`: an instruction of a GPU will do that has "
    "a relative error of 2**-22 and gives 0 for subnormal numbers.",
)
def _pointwise(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    name, params = attributes["prim"], attributes.get("params", {})
    record = PRIMITIVES.get(name)
    need(record is not None and record.lower[0] == "scalar", "pointwise", f"{name!r} is no pointwise primitive")
    assert record is not None
    try:
        shape, dtype = record.spec(*types, **params)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise BlockError(f"pointwise {name}: {error}") from error
    return [Tile(dtype, tuple(shape))]


@operation("multiply_high", "The upper half of the product of two integers of one type.")
def _multiply_high(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(is_integer(types[0]) and types[0] == types[1], "multiply_high", f"{types[0]!r} and {types[1]!r}")
    return [types[0]]


# ***** memory *****


@operation("offset", "Pointers moved by a number of elements each.")
def _offset(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    pointer, by = types
    need(isinstance(pointer.element, Pointer), "offset", f"{pointer!r} is no pointer")
    need(is_integer(by) and by.shape == pointer.shape, "offset", f"{by!r} does not move {pointer!r}")
    return [pointer]


@operation("pointer_cast", "The same addresses as pointers `to` a dtype; of an int64, too.")
def _pointer_cast(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    element = types[0].element
    fits = isinstance(element, Pointer) or (element.kind in "iu" and element.itemsize == 8)
    need(fits, "pointer_cast", f"{types[0]!r} holds no addresses")
    return [types[0].of(Pointer(attributes["to"]))]


@operation("address", "The addresses of pointers, in bytes, as `dtype` (int64 or uint64).")
def _address(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(isinstance(types[0].element, Pointer), "address", f"{types[0]!r} is no pointer")
    return [types[0].of(attributes["dtype"])]


@operation(
    "load",
    "What pointers point to: (pointer[, mask[, other]]).  Where the mask is false, memory is not touched, and the result "
    "is `other`, or undefined without it.  `cache`, `eviction`, `volatile` are hints.",
    effect=True,
)
def _load(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    pointer = types[0]
    need(isinstance(pointer.element, Pointer), "load", f"{pointer!r} is no pointer")
    assert isinstance(pointer.element, Pointer)
    result = pointer.of(pointer.element.to)
    need(len(types) < 2 or is_mask(types[1], pointer.shape), "load", f"{types[1:2]} is no mask for {pointer!r}")
    need(len(types) < 3 or types[2] == result, "load", f"`other` {types[2:]} is not {result!r}")
    return [result]


@operation(
    "load_tile",
    "(pointer, sizes..., strides..., starts...): a tile of `shape` of the array at a pointer, from `starts` on, which are not "
    "negative; 0 outside of the array.  Sizes and strides, in elements, are those of the array, one for each dim.",
    effect=True,
)
def _load_tile(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    pointer, shape = types[0], tuple(attributes["shape"])
    need(isinstance(pointer.element, Pointer) and not pointer.shape, "load_tile", f"{pointer!r} is no scalar pointer")
    assert isinstance(pointer.element, Pointer)
    need(len(types) == 1 + 3 * len(shape), "load_tile", f"{len(types) - 1} numbers do not describe {len(shape)} dims")
    need(all(is_integer(t) and not t.shape for t in types[1:]), "load_tile", "sizes, strides and starts are integers")
    return [Tile(pointer.element.to, shape)]


@operation(
    "load_windows",
    "(pointer, sizes..., strides..., positions..., starts..., offsets..., channel): a tile [rows, channels] of the array [N, *S, C] "
    "at a pointer, for convolutions.  Row r is the r-th position from `starts` (an image, and a place among `positions` along each "
    "of S) on, row by row and image by image; it reads, along a dim of S, place * stride + offset - lo, and channels from `channel` "
    "on.  0 outside of the array.  `stride` and `lo` are attributes.",
    effect=True,
)
def _load_windows(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    pointer, shape, n = types[0], tuple(attributes["shape"]), len(attributes["stride"])
    need(
        isinstance(pointer.element, Pointer) and not pointer.shape, "load_windows", f"{pointer!r} is no scalar pointer"
    )
    assert isinstance(pointer.element, Pointer)
    need(len(shape) == 2 and len(attributes["lo"]) == n > 0, "load_windows", f"{shape} and {n} dims are no windows")
    need(len(types) == 5 * n + 7, "load_windows", f"{len(types) - 1} numbers do not describe windows of {n} dims")
    need(all(is_integer(t) and not t.shape for t in types[1:]), "load_windows", "numbers are integers")
    return [Tile(pointer.element.to, shape)]


@operation(
    "store",
    "(pointer, value[, mask]): writes where the mask is true.  `as_held`: by the threads that hold the values, however they lie.",
    effect=True,
)
def _store(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    pointer, value = types[:2]
    need(isinstance(pointer.element, Pointer), "store", f"{pointer!r} is no pointer")
    assert isinstance(pointer.element, Pointer)
    need(value == pointer.of(pointer.element.to), "store", f"{value!r} is not what {pointer!r} points to")
    need(len(types) < 3 or is_mask(types[2], pointer.shape), "store", f"{types[2:]} is no mask for {pointer!r}")
    return []


@operation(
    "atomic",
    "(pointer, value[, mask]): combines in memory by `combine` (a name in ATOMICS) and gives what was there before.  "
    "`order` is relaxed, acquire, release or acq_rel; `scope` is cta, gpu or sys.",
    effect=True,
)
def _atomic(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(attributes.get("combine") in ATOMICS, "atomic", f"`combine` {attributes.get('combine')!r} is not in {ATOMICS}")
    _store(types, attributes, regions)
    return [types[1]]


@operation(
    "atomic_cas", "(pointer, expected, value): writes `value` where `expected` was; gives what was.", effect=True
)
def _atomic_cas(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(types[1] == types[2], "atomic_cas", f"{types[1]!r} and {types[2]!r} differ")
    _store(types[:2], attributes, regions)
    return [types[1]]


# ***** over tiles *****


@operation(
    "dot",
    "(a, b, c): the matrix products of the last two dims, plus c; any other dims are a batch.  Products and sums are of c's "
    "dtype.  `precision` is ieee, tf32 or tf32x3, for float32 operands.",
)
def _dot(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    a, b, c = types
    fits = a.ndim == b.ndim == c.ndim >= 2 and a.shape[:-2] == b.shape[:-2] == c.shape[:-2]
    fits = fits and a.shape[-1] == b.shape[-2] and c.shape[-2:] == (a.shape[-2], b.shape[-1])
    need(fits, "dot", f"shapes of {a!r}, {b!r} and {c!r} do not fit")
    need(
        attributes.get("precision", "ieee") in ("ieee", "tf32", "tf32x3"), "dot", "`precision` is ieee, tf32 or tf32x3"
    )
    return [c]


def _combining(kind: str, types: Types, attributes: Attributes, regions: Sequence[Region]) -> None:
    axis, n = attributes["axis"], len(types)
    need(n >= 1 and len(regions) == 1, kind, "operands, and one region that combines two elements of each")
    need(all(t.shape == types[0].shape for t in types), kind, f"operands of different shapes: {types}")
    need(0 <= axis < types[0].ndim, kind, f"`axis` {axis} is no dim of {types[0]!r}")
    elements = [Tile(t.element) for t in types]
    need([p.type for p in regions[0].params] == elements * 2, kind, "the region takes two scalars of each operand")
    need([v.type for v in regions[0].yielded] == elements, kind, "the region gives a scalar for each operand")


@operation(
    "reduce",
    "Tiles combined along `axis` by the region (left elements, right elements) -> elements, which is associative; the dim "
    "is gone.  The left operand has the smaller indices.  `order`, where it is given, has the dims of the tile, that first along "
    "which a thread has neighbours: then the order of the combinations follows from types alone.",
)
def _reduce(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    _combining("reduce", types, attributes, regions)
    axis = attributes["axis"]
    return [Tile(t.element, (*t.shape[:axis], *t.shape[axis + 1 :])) for t in types]


@operation("scan", "Inclusive prefixes along `axis` by the region, as in `reduce`; from the end with `reverse`.")
def _scan(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    _combining("scan", types, attributes, regions)
    return list(types)


@operation(
    "histogram", "How often each of 0 ... `bins` - 1 occurs in integers of one dim[, where a mask is true]: int32."
)
def _histogram(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(is_integer(types[0]) and types[0].ndim == 1, "histogram", f"{types[0]!r} is no tile of integers of one dim")
    need(len(types) < 2 or is_mask(types[1], types[0].shape), "histogram", f"{types[1:]} is no mask")
    return [Tile(INT32, (attributes["bins"],))]


# ***** control flow *****


@operation("yield", "What a region gives; the last operation of every region.", effect=True)
def _yield(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    return []


@operation(
    "for",
    "(low, high, step, values...): the region (index, values...) for each index from low to before high; the results are the "
    "values after the last turn.  Bounds are scalars of one integer dtype; step is positive.",
    effect=True,
)
def _for(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    bound, carried = types[0], list(types[3:])
    need(is_integer(bound) and not bound.shape, "for", f"bounds are scalar integers, not {bound!r}")
    need(types[1] == bound == types[2], "for", f"bounds of different types: {list(types[:3])}")
    need([p.type for p in regions[0].params] == [bound, *carried], "for", "the region takes the index and the values")
    need(
        [v.type for v in regions[0].yielded] == carried,
        "for",
        "the region gives the values with the types that they had",
    )
    return carried


@operation(
    "while",
    "(values...): the first region (values...) gives a bool and values; while it is true, the second region takes those and "
    "gives the values of the next turn.  The results are what the first region gave last.",
    effect=True,
)
def _while(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    before, after = regions
    need([p.type for p in before.params] == list(types), "while", "the first region takes the values")
    need(before.yielded[0].type == Tile(BOOL), "while", "the first region gives a scalar bool first")
    given = [v.type for v in before.yielded[1:]]
    need([p.type for p in after.params] == given, "while", "the second region takes what the first gives")
    need([v.type for v in after.yielded] == list(types), "while", "the second region gives the values of the next turn")
    return given


@operation(
    "if", "(condition): the first region where the scalar bool is true, else the second; both give alike.", effect=True
)
def _if(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(types[0] == Tile(BOOL), "if", f"the condition is a scalar bool, not {types[0]!r}")
    first, second = ([v.type for v in region.yielded] for region in regions)
    need(first == second, "if", f"the regions give {first} and {second}")
    return first


# ***** what a program says *****


@operation("assert", "(condition): stops the kernel with `message` where any element is false.", effect=True)
def _assert(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    need(types[0].element is BOOL, "assert", f"{types[0]!r} is no bool")
    return []


@operation("print", "Prints `prefix` and tiles, with the program's place in the grid; `hex` for integers.", effect=True)
def _print(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    return []


@operation("barrier", "Memory that the program wrote before is seen by all of its threads afterwards.", effect=True)
def _barrier(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    return []


@operation("assume", "Emitters may count on the scalar bool being true.", effect=True)
def _assume(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    return []


@operation(
    "hint",
    "The same tile; emitters may count on it: along each dim runs of `contiguous` neighbours step by one, begin at multiples "
    "of `multiple`, or `constant` neighbours are equal (tuples with a number for each dim).",
)
def _hint(types: Types, attributes: Attributes, regions: Sequence[Region]) -> list[Tile]:
    return [types[0]]
