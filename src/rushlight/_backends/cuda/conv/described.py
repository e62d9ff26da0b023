"""A `conv_windows` as cuDNN describes convolutions: forward, the gradient by the images, or that by the weights.

All three are one primitive here, so which it was is read from its numbers: a spread is the stride of a gradient by images,
whose kernel is flipped and whose channels are exchanged; images and channels that are exchanged, or a kernel larger than the
result, are the gradient by weights.  What is none of them, or lies in no packed memory, is left to our kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.program.steps import Operand
from rushlight._types.layout import numel

__all__ = ["Described", "described", "is_packed", "weights_format"]

Ints = tuple[int, ...]


class Described(NamedTuple):
    """The images, the weights and the result of the convolution [N, C, *S], [O, C / groups, *K], [N, O, *P] that is meant,
    whichever of them is computed.
    """

    kind: str  # forward, images, weights
    images: Operand
    weights: Operand
    results: Operand
    padding: Ints
    stride: Ints
    dilation: Ints
    flip: bool
    groups: int

    @property
    def operands(self) -> tuple[Operand, Operand, Operand]:
        """In the order of the library's arguments: two that are read, one that is written."""
        if self.kind == "forward":
            return self.images, self.weights, self.results
        if self.kind == "images":
            return self.weights, self.results, self.images
        return self.images, self.results, self.weights


def described(call: ExternCall, out: Operand) -> Described | None:
    """A call in the library's terms, with its result in `out` [N, G, O, *size]; None where the library cannot compute it."""
    x, w = call.inputs[:2]
    p = call.params
    stride, spread, dilation, lo, size = (tuple(p[name]) for name in ("stride", "spread", "dilation", "lo", "size"))
    kernel, groups, flip = w.shape[3:], w.shape[0], bool(p["flip"])

    def forward() -> Described | None:
        return _checked("forward", _joined(x), _joined_outs(w), _joined(out), (lo, stride, dilation), flip, groups)

    def by_weights() -> Described | None:
        """x is [C, G, N, *S], w [G, O, N, *P], the result [C, G, O, *K]."""
        images, results, weights = _joined(_exchanged(x)), _joined(_of_groups(w)), _joined_weights(out)
        return _checked("weights", images, weights, results, (lo, dilation, stride), False, groups)

    def by_images() -> Described | None:
        """x is [N, G, O, *P], w [G, C, O, *K], the result [N, G, C, *S]."""
        before = tuple(d * (k - 1) - a for d, k, a in zip(dilation, kernel, lo, strict=True))
        weights = _joined_outs(_swapped(w))
        form = before, spread, dilation
        return _checked("images", _joined(out), weights, _joined(x), form, not flip, groups)

    plain = all(s == 1 for s in spread)
    if not plain or flip:
        return by_images() if all(s == 1 for s in stride) else None
    if numel(kernel) > 4 * numel(size):
        return by_weights() or forward()
    return forward() or by_weights()


def _checked(
    kind: str,
    images: Operand | None,
    weights: Operand | None,
    results: Operand | None,
    form: tuple[Ints, Ints, Ints],
    flip: bool,
    groups: int,
) -> Described | None:
    """None unless all lie packed, and the sizes are those that the library computes from one another."""
    padding, stride, dilation = form
    if images is None or weights is None or results is None or min(padding) < 0 or len(padding) not in (1, 2, 3):
        return None
    sizes = zip(images.shape[2:], weights.shape[2:], padding, stride, dilation, strict=True)
    expected = tuple((s + 2 * a - d * (k - 1) - 1) // step + 1 for s, k, a, step, d in sizes)
    if expected != results.shape[2:] or weights_format(weights) is None:
        return None
    if not all(is_packed(x) for x in (images, results)):
        return None
    made = Described(kind, images, weights, results, padding, stride, dilation, flip, groups)
    return made if len(padding) > 1 else _with_a_row(made)


def _with_a_row(x: Described) -> Described:
    """A convolution of rows as one of images of one row: the library takes no less."""

    def wider(a: Operand) -> Operand:
        shape, strides = ((*of[:2], one, of[2]) for of, one in ((a.shape, 1), (a.strides, a.shape[2] * a.strides[2])))
        return Operand(a.memory, a.dtype, shape, strides, a.offset)

    images, weights, results = wider(x.images), wider(x.weights), wider(x.results)
    sizes = (0, *x.padding), (1, *x.stride), (1, *x.dilation)
    return Described(x.kind, images, weights, results, *sizes, x.flip, x.groups)


# ***** dims *****


def _view(x: Operand, order: Sequence[int]) -> Operand:
    return Operand(x.memory, x.dtype, [x.shape[d] for d in order], [x.strides[d] for d in order], x.offset)


def _exchanged(x: Operand) -> Operand:
    """[C, G, N, ...] as [N, G, C, ...]."""
    return _view(x, (2, 1, 0, *range(3, len(x.shape))))


def _of_groups(w: Operand) -> Operand:
    """[G, O, N, ...] as [N, G, O, ...]."""
    return _view(w, (2, 0, 1, *range(3, len(w.shape))))


def _swapped(w: Operand) -> Operand:
    """[G, C, O, ...] as [G, O, C, ...]."""
    return _view(w, (0, 2, 1, *range(3, len(w.shape))))


def _join(x: Operand, first: int) -> Operand | None:
    """Two dims, from `first` on, as one; None where they are not one stride."""
    (a, b), (down, across) = x.shape[first : first + 2], x.strides[first : first + 2]
    if a > 1 and b > 1 and down != b * across:
        return None
    step = down if b == 1 else across
    shape, strides = ((*of[:first], one, *of[first + 2 :]) for of, one in ((x.shape, a * b), (x.strides, step)))
    return Operand(x.memory, x.dtype, shape, strides, x.offset)


def _joined(x: Operand) -> Operand | None:
    """[N, G, C, ...] as [N, G C, ...]."""
    return _join(x, 1)


def _joined_outs(w: Operand) -> Operand | None:
    """[G, O, C, ...] as [G O, C, ...]."""
    return _join(w, 0)


def _joined_weights(out: Operand) -> Operand | None:
    """[C, G, O, ...] as [G O, C, ...]."""
    return _join(_view(out, (1, 2, 0, *range(3, len(out.shape)))), 0)


# ***** layouts *****


def _dense(shape: Sequence[int], order: Sequence[int]) -> dict[int, int]:
    strides, step = {}, 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
    return strides


def _lies(x: Operand, order: Sequence[int]) -> bool:
    wanted = _dense(x.shape, order)
    return all(n == 1 or x.strides[d] == wanted[d] for d, n in enumerate(x.shape))


def _orders(ndim: int) -> tuple[Ints, Ints]:
    return tuple(range(ndim)), (0, *range(2, ndim), 1)


def is_packed(x: Operand) -> bool:
    """Whether an array lies row-major or channels last."""
    return any(_lies(x, order) for order in _orders(len(x.shape)))


def weights_format(w: Operand) -> bool | None:
    """Whether channels of weights are inner; None for weights that are not dense."""
    rows, channels = (_lies(w, order) for order in _orders(len(w.shape)))
    return False if rows else True if channels else None
