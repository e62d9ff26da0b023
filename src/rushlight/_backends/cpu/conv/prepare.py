"""Rewrites of convolutions for their routine: adjacent operations become its parameters.

Padding and dilation by zeros (both gradients and transposed convolutions are made of them), a flipped kernel and
operands widened from a narrow dtype are not written out; neither are an added bias and the rounding of the result.
Kernel taps that never meet the image, as distant ones of a small image, are left out, and so are positions whose taps
all miss it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._graph.core import rebuilt
from rushlight._prims import build
from rushlight._prims.record import PRIMITIVES
from rushlight._schedule.rewrites.convolutions import image_conv, spread_conv
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._backends.cpu.program.steps import ExternStep
    from rushlight._graph.core import Graph, Node, Value

__all__ = [
    "FEW_CHANNELS", "LONGEST_ROW", "conv_rule", "finished", "fits_routine", "has_few_channels", "position_step", "sums_over_positions", "takes_epilogue",
    "windowed",
]  # fmt: skip

_DTYPES = ("float32", "float64", "float16", "bfloat16")


def fits_routine(node: Node) -> bool:
    """Whether a `conv` (or `conv_windows`) has elements, a dtype that the routine supports, and at most three spatial
    dims."""
    dims = len(node.inputs[0].shape) - (2 if node.prim.name == "conv" else 3)
    return (
        dims <= 3
        and node.inputs[0].dtype.name in _DTYPES
        and all(numel(v.shape) for v in (*node.inputs, *node.outputs))
    )


FEW_CHANNELS = 8  # of a group, and results of one: such convolutions are not products of matrices
LONGEST_ROW, MOST_TAPS = 64, 1 << 12  # of an unrolled kernel


def has_few_channels(call: Node | ExternStep) -> bool:
    """Whether a `conv_windows` has so few channels a group that it is computed directly (except for weights of enormous
    kernels)."""
    outs, depth, *kernel = call.inputs[1].shape[1:]
    return max(outs, depth) <= FEW_CHANNELS and numel(kernel) <= MOST_TAPS and kernel[-1] <= LONGEST_ROW


def sums_over_positions(call: Node | ExternStep) -> bool:
    """Whether a `conv_windows` is the gradient by the weights of another: its kernel is as large as a result, its
    result as a kernel."""
    return numel(call.inputs[1].shape[3:]) > 4 * numel(call.params["size"]) and all(
        s == 1 for s in call.params["spread"]
    )


def takes_epilogue(node: Node) -> bool:
    """Whether a `conv_windows` can have an epilogue: all but gradients by the weights of few channels, whose sums are
    complete only at the end."""
    return not (has_few_channels(node) and sums_over_positions(node))


def position_step(node: Node) -> int:
    """The distance of result positions that are computed together: a transposed convolution takes those of one phase."""
    return int(node.params["spread"][-1]) if node.prim.name == "conv_windows" and not has_few_channels(node) else 1


def windowed(size: tuple[int, ...], x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """A `conv` with a result of `size`."""
    n, dtype, batch, outs = len(size), x.dtype, x.shape[0], w.shape[0]
    grouped = [(batch, groups, x.shape[1] // groups), (groups, outs // groups, w.shape[1])]
    plain = all(s == 1 for s in stride)

    def takes(node: Node) -> bool:
        lo, hi, gaps = (node.params[key] for key in ("lo", "hi", "interior"))
        outside = (
            any((*lo[:-n], *hi[:-n], *gaps[:-n])) or (any(padding) and min(*lo, *hi) < 0) or (any(gaps) and not plain)
        )
        return node.params["value"] == 0 and not outside and numel(node.inputs[0].shape) > 0

    images, kernel = _Moved(x, n, "pad", takes), _Moved(w, n, "flip", lambda node: set(node.params["dims"]) == set(range(len(node.inputs[0].shape)))
                                                        - set(range(len(node.inputs[0].shape) - n)))  # fmt: skip
    narrow = images.widened is not None and kernel.widened is not None and images.widened.dtype is kernel.widened.dtype
    lo, spread = tuple(padding), (1,) * n
    if images.special is not None:
        lo = tuple(p + q for p, q in zip(padding, images.special.params["lo"][-n:], strict=True))
        spread = tuple(gap + 1 for gap in images.special.params["interior"][-n:])
    params = {
        "stride": tuple(stride), "spread": spread, "dilation": tuple(dilation), "lo": lo, "size": tuple(size),
        "flip": kernel.special is not None, "dtype": dtype,
    }  # fmt: skip
    extents = [(s - 1) * apart + 1 for s, apart in zip(images.space, spread, strict=True)]
    taps, positions = (
        _that_meet(w.shape[2:], dilation, lo, size, stride, extents),
        _that_meet(size, stride, lo, w.shape[2:], dilation, extents),
    )
    if taps == _all(w.shape[2:]) and positions == _all(size):
        result = PRIMITIVES["conv_windows"](
            images.again(grouped[0], narrow), kernel.again(grouped[1], narrow), **params
        )
        return build.reshape(result, (batch, outs, *size))
    if any(first >= last for first, last in (*taps, *positions)):
        return build.full((batch, outs, *size), 0, dtype)
    kernel_size = tuple(last - first for first, last in positions)
    result = build.reshape(
        _of_taps_that_meet(images, kernel, grouped, narrow, taps, positions, params), (batch, outs, *kernel_size)
    )
    if positions == _all(size):
        return result
    before, after = (
        [first for first, _ in positions],
        [count - last for count, (_, last) in zip(size, positions, strict=True)],
    )
    return build.pad(result, (0, 0, *before), (0, 0, *after), (0,) * (n + 2))


Range = tuple[int, int]  # from the first to before the last


def _of_taps_that_meet(
    images: _Moved,
    kernel: _Moved,
    grouped: list[Any],
    narrow: bool,
    taps: list[Range],
    positions: list[Range],
    params: dict[str, Any],
) -> Any:
    """The result of a `conv_windows` with `params` at `positions`, of `taps` alone; one tap over all of the image is a
    product."""
    n, (dilation, stride) = images.n, (params["dilation"], params["stride"])
    lo = tuple(
        a - t[0] * gap - p[0] * step
        for a, t, gap, p, step in zip(params["lo"], taps, dilation, positions, stride, strict=True)
    )
    kernel_size = tuple(last - first for first, last in positions)
    product = kernel_size == tuple(images.space) and all(last - first == 1 for first, last in taps) and not any(lo)
    product = product and all(s == 1 for s in (*stride, *params["spread"]))
    narrow = narrow and not product  # a product widens its operands itself
    image, rows = images.again(grouped[0], narrow), kernel.again(grouped[1], narrow)
    if params["flip"]:
        taps = [(k - last, k - first) for k, (first, last) in zip(kernel.space, taps, strict=True)]
    starts, stops = (0, 0, 0, *(first for first, _ in taps)), (*rows.shape[:3], *(last for _, last in taps))
    rows = PRIMITIVES["slice"](rows, starts=starts, stops=stops, steps=(1,) * (n + 3))
    if not product:
        return PRIMITIVES["conv_windows"](image, rows, **{**params, "lo": lo, "size": kernel_size})
    matrix = build.broadcast_to(build.reshape(rows, (1, *grouped[1])), (image.shape[0], *grouped[1]))
    return build.dot(matrix, build.reshape(image, (*grouped[0], numel(kernel_size))))


def _all(counts: Any) -> list[Range]:
    return [(0, count) for count in counts]


def _that_meet(counts: Any, steps: Any, lo: Any, others: Any, gaps: Any, extents: Any) -> list[Range]:
    """For each dim the range of `counts` positions, `steps` apart, that meet an image of `extents` elements, from the
    first to the last of them.

    A position i meets it if some j of `others`, `gaps` apart, has 0 <= i step + j gap - lo < extent (those in the
    middle of the range may miss it).
    """
    ranges = []
    for count, step, before, other, gap, extent in zip(counts, steps, lo, others, gaps, extents, strict=True):
        first, last, reach = 0, count, (other - 1) * gap
        if reach < before:
            first = -((reach - before) // step)
        if (count - 1) * step - before >= extent:
            last = (extent + before - 1) // step + 1
        ranges.append((first, last))
    return ranges


class _Moved:
    """The derivation of an operand from a `base`: moves of the dims before the last `n`, one `special` primitive on the
    last ones, one widening.

    `widened` is the base in its narrow dtype, if the derivation began with a conversion to the dtype of the sums.
    """

    def __init__(self, value: Value, n: int, special: str, takes: Callable[[Node], bool]) -> None:
        self.n, self.special, self.widened = n, None, None
        self.moves: list[Node] = []
        pending: list[Node] = []
        self.base = value
        while value.node is not None:
            node = value.node
            if node.prim.name == special and self.special is None and takes(node):
                self.special, value = node, node.inputs[0]
                self.moves += pending
                pending, self.base = [], value
            elif _keeps_last(node, n):
                pending.append(node)
                value = node.inputs[0]
            else:
                break
        node = value.node
        if (
            node is not None
            and node.prim.name == "convert"
            and node.inputs[0].dtype.name in _DTYPES
            and node.inputs[0].dtype.wide is value.dtype
        ):
            self.moves, self.widened = self.moves + pending, node.inputs[0]
            self.base = value

    @property
    def space(self) -> tuple[int, ...]:
        """The last dims before the special primitive."""
        return self.base.shape[len(self.base.shape) - self.n :]

    def again(self, lead: tuple[int, ...], narrow: bool) -> Any:
        """The operand without its special primitive (and not widened), with `lead` for its dims before the last ones."""
        value, space = self.widened if narrow else self.base, self.space
        assert value is not None
        for node in reversed(self.moves):
            shape = node.outputs[0].shape
            if node.prim.name == "transpose":
                value = build.transpose(value, node.params["perm"])
            else:
                value = build.reshape(value, (*shape[: len(shape) - self.n], *space))
        return build.reshape(value, (*lead, *space))


def _keeps_last(node: Node, n: int) -> bool:
    """Whether a node moves elements without changing the last `n` dims."""
    x, out = node.inputs[0] if node.inputs else None, node.outputs[0]
    if x is None or len(x.shape) < n or x.shape[len(x.shape) - n :] != out.shape[len(out.shape) - n :]:
        return False
    if node.prim.name == "transpose":
        return tuple(node.params["perm"][-n:]) == tuple(range(len(x.shape) - n, len(x.shape)))
    return node.prim.name == "reshape" and numel(x.shape) > 0


# ***** what comes after *****


def finished(graph: Graph) -> Graph:
    """The graph with biases and roundings after a `conv_windows` merged into it, if nothing else reads the values
    between."""
    uses = Counter(id(x) for node in graph.nodes for x in node.inputs) + Counter(map(id, graph.outputs))
    alone: set[int] = set()  # results of the routine with a single reader

    def apply(node: Node, inputs: list[Any]) -> Any:
        name, result = node.prim.name, None
        begun = [id(x) in alone for x in node.inputs]
        if name == "add" and any(begun):
            i = begun.index(True)
            result = _with_bias(inputs[i], inputs[1 - i])
        elif name == "convert" and begun[0]:
            result = _rounded(inputs[0], node.params["dtype"])
        elif name in ("slice", "pad") and begun[0]:
            result = _cut(inputs[0], node)
        if (result is not None or name == "conv_windows" or (name == "reshape" and begun[0])) and uses[
            id(node.outputs[0])
        ] == 1:
            alone.add(id(node.outputs[0]))
        return result if result is not None else node.prim(*inputs, **node.params)

    return rebuilt(graph, apply)


def _routine_of(value: Any) -> Any:
    """The `conv_windows` without a bias that a value is a reshape of, or None."""
    node = value.node
    if node is None or node.prim.name != "reshape":
        return None
    node = node.inputs[0].node
    return node if node is not None and node.prim.name == "conv_windows" and len(node.inputs) == 2 else None


def _channel_row(value: Value, dtype: Any) -> Any:
    """The row [O] whose elements a value [N, O, *P] repeats for every position, or None."""
    node = value.node
    if node is None or node.prim.name != "broadcast":
        return None
    x, dims = node.inputs[0], node.params["dims"]
    kept = [(d, s) for d, s in zip(dims, x.shape, strict=True) if s != 1]
    whole = value.shape[1]
    if kept != ([(1, whole)] if whole != 1 else []):
        return None
    return build.reshape(x, (whole,))


def _with_bias(y: Any, other: Any) -> Any:
    """`y + other` if y is a result of the routine and other repeats a row of channels; else None."""
    node = _routine_of(y)
    row = None if node is None else _channel_row(other, y.dtype)
    if node is None or row is None:
        return None
    result = PRIMITIVES["conv_windows"](*node.inputs, build.reshape(row, node.inputs[1].shape[:2]), **node.params)
    return build.reshape(result, y.shape)


def _cut(y: Any, node: Node) -> Any:
    """The positions of `y` that a slice (or a negative padding) keeps; None for other slices, or if y is no result of
    the routine."""
    routine, p, shape = _routine_of(y), node.params, node.outputs[0].shape
    if routine is None or shape[:2] != y.shape[:2] or numel(shape) == 0:
        return None
    if node.prim.name == "slice":
        starts, steps = p["starts"], p["steps"]
    else:
        starts, steps = [-lo for lo in p["lo"]], [1] * len(shape)
        if any(p["interior"]) or max(*p["lo"], *p["hi"]) > 0:
            return None
    q = routine.params
    if any(step != 1 and apart != 1 for step, apart in zip(steps[2:], q["spread"], strict=True)):
        return None
    moved = {
        "lo": tuple(lo - start * stride for lo, start, stride in zip(q["lo"], starts[2:], q["stride"], strict=True)),
        "stride": tuple(stride * step for stride, step in zip(q["stride"], steps[2:], strict=True)),
        "size": tuple(shape[2:]),
    }
    return build.reshape(PRIMITIVES["conv_windows"](*routine.inputs, **{**q, **moved}), shape)


def _rounded(y: Any, dtype: Any) -> Any:
    """`y` in a narrow dtype if it is a result of the routine for operands of that dtype; else None."""
    node = y.node
    if node is None or node.prim.name != "reshape":
        return None
    node = node.inputs[0].node
    if (
        node is None
        or node.prim.name != "conv_windows"
        or node.inputs[0].dtype is not dtype
        or node.params["dtype"] is dtype
    ):
        return None
    bias = []
    for row in node.inputs[2:]:
        narrow = _narrow_row(row, dtype)
        if narrow is None:
            return None
        bias.append(narrow)
    result = PRIMITIVES["conv_windows"](*node.inputs[:2], *bias, **{**node.params, "dtype": dtype})
    return build.reshape(result, y.shape)


def _narrow_row(row: Value, dtype: Any) -> Any:
    """A bias before it was widened, or None."""
    x = row
    while x.node is not None and x.node.prim.name == "reshape":
        x = x.node.inputs[0]
    if x.node is None or x.node.prim.name != "convert" or x.node.inputs[0].dtype is not dtype:
        return None
    return build.reshape(x.node.inputs[0], row.shape)


# ***** which convolutions the routine takes *****


def conv_rule(node: Node) -> Any:
    x, out = node.inputs[0], node.outputs[0]
    if numel(out.shape) == 0 or numel(x.shape) == 0 or numel(node.inputs[1].shape) == 0:
        return node.prim.decompose
    if fits_routine(node) and not _is_product(node) and not _paints_one(node):
        return partial(windowed, tuple(out.shape[2:]))
    if _is_spread(node):

        def transposed(x: Any, w: Any, **params: Any) -> Any:
            cotangent = x.node.inputs[0]
            if cotangent.dtype.wide is cotangent.dtype:
                return spread_conv(cotangent, w, x.node.params, out.shape, **params)
            # Overlaps are added before rounding
            cotangent, taps = (build.convert(cotangent, cotangent.dtype.wide), build.convert(w, w.dtype.wide))
            return build.convert(spread_conv(cotangent, taps, x.node.params, out.shape, **params), x.dtype)

        return transposed
    return image_conv if numel(out.shape[2:]) >= 32 else node.prim.decompose


def _is_product(node: Node) -> bool:
    """Whether the windows are the image itself."""
    w, p = node.inputs[1], node.params
    return numel(w.shape[2:]) == 1 and all(s == 1 for s in p["stride"]) and not any(p["padding"])


def _is_spread(node: Node) -> bool:
    """Whether the images are dilated or padded with zeros: a transposed convolution, or the gradient of one."""
    source = node.inputs[0].node
    if source is None or source.prim.name != "pad" or source.params["value"] != 0:
        return False
    lo, hi, gaps = source.params["lo"], source.params["hi"], source.params["interior"]
    plain = all(s == 1 for s in node.params["stride"]) and not any(node.params["padding"])
    around = any(gaps) or min(*lo, *hi) >= 0
    return plain and around and not any((*lo[:2], *hi[:2], *gaps[:2])) and numel(source.inputs[0].shape) > 0


def _paints_one(node: Node) -> bool:
    """Whether the images are of one position, padded with zeros: the first layer of many generators, a product."""
    if not _is_spread(node):
        return False
    image = node.inputs[0].node.inputs[0]  # type: ignore[union-attr]
    return numel(image.shape[2:]) == 1 and numel(node.outputs[0].shape[2:]) > 1
