"""The printed form of tensors, the same as PyTorch's to the character.

Everything here is a pure function of a NumPy array (bfloat16 as its 16-bit patterns) or of `Elements` over the tensor's
memory, a dtype and a few flags; the tensor's own `__repr__` gathers them.  Of a large tensor only the elements that are
shown are ever read, so printing a gigabyte costs what printing a line costs.

    >>> import numpy
    >>> from rushlight._types.dtype import FLOAT32
    >>> print(tensor_repr(numpy.array([1.5, 2.0], "float32"), dtype=FLOAT32, default_dtype=FLOAT32))
    tensor([1.5000, 2.0000])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rushlight._base.trace_marks import changes_later_calls
from rushlight._engine.core.elements import Elements
from rushlight._types.dtype import BFLOAT16, BOOL, COMPLEX64, COMPLEX128, FLOAT64, INT64, DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "OPTIONS",
    "PrintOptions",
    "append_suffixes",
    "contents",
    "get_printoptions",
    "printoptions",
    "set_printoptions",
    "tensor_repr",
]


class PrintOptions:
    """How tensors are printed; `sci_mode` None means that the values decide."""

    __slots__ = ("edgeitems", "linewidth", "precision", "sci_mode", "threshold")

    def __init__(self) -> None:
        self.precision: int = 4
        self.threshold: float = 1000
        self.edgeitems: int = 3
        self.linewidth: int = 80
        self.sci_mode: bool | None = None


OPTIONS = PrintOptions()

# Settings of each profile: precision, threshold, edgeitems, linewidth.
_PROFILES: dict[str, tuple[int, float, int, int]] = {
    "default": (4, 1000, 3, 80),
    "short": (2, 1000, 2, 80),
    "full": (4, math.inf, 3, 80),
}


@changes_later_calls
def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed.

    Args:
        precision: digits after the point of floating-point elements (4).
        threshold: tensors with more elements than this are summarised (1000).
        edgeitems: how many elements a summary shows at each end of a dimension (3).
        linewidth: characters in a line before it is broken (80).
        profile: `default`, `short` or `full`; the other arguments refine it.
        sci_mode: scientific notation always (True), never (False), or where it helps (None).

    Every argument left out keeps its value, except `sci_mode`, which returns to None, as in PyTorch.

        >>> import rushlight as torch
        >>> torch.set_printoptions(precision=2)
        >>> torch.tensor([1.12345])
        tensor([1.12])
        >>> torch.set_printoptions(profile="default")
    """
    if profile in _PROFILES:
        OPTIONS.precision, OPTIONS.threshold, OPTIONS.edgeitems, OPTIONS.linewidth = _PROFILES[profile]
    if precision is not None:
        OPTIONS.precision = precision
    if threshold is not None:
        OPTIONS.threshold = threshold
    if edgeitems is not None:
        OPTIONS.edgeitems = edgeitems
    if linewidth is not None:
        OPTIONS.linewidth = linewidth
    OPTIONS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options in force, as keyword arguments for `set_printoptions`."""
    names = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")
    return {name: getattr(OPTIONS, name) for name in names}


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Print tensors otherwise inside a `with` block; takes what `set_printoptions` takes.

    >>> with printoptions(precision=2):
    ...     get_printoptions()["precision"]
    2
    """
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


# ***** one element *****


class _Style:
    """How the elements of one tensor are written: all alike, decided by the finite nonzero ones among those shown."""

    __slots__ = ("floating", "precision", "scientific", "whole", "width")

    def __init__(self, values: Sequence[Any], floating: bool, options: PrintOptions, powers: bool = False) -> None:
        self.floating, self.precision = floating, options.precision
        self.whole, self.scientific, self.width = True, False, 1
        if not floating:
            self.width = max([1, *(len(str(v)) for v in values)])
            return
        # In float8_e8m0fnu, which has powers of two alone, PyTorch's test against zero finds the smallest, and NaN
        # passes for finite.
        telling = (
            [v for v in values if v != 2.0**-127] if powers else [v for v in values if v != 0 and math.isfinite(v)]
        )
        if not telling:
            return
        self.whole = all(math.isfinite(v) and v == math.floor(v) for v in telling)
        self.scientific = _wants_exponent(telling) if options.sci_mode is None else options.sci_mode
        # Zeros, infinities and NaN are not measured: a column of them alone is as narrow as it can be.
        self.width = max(len(self._number(v)) for v in telling)

    def _number(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{self.precision}e}"
        if self.whole:
            return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
        return f"{value:.{self.precision}f}"

    def text(self, value: Any) -> str:
        """`value` as it is printed, aligned to the right."""
        return (self._number(value) if self.floating else str(value)).rjust(self.width)


def _wants_exponent(values: list[float]) -> bool:
    """Whether fixed point would hide digits: a wide range, or very large or very small values."""
    if any(map(math.isnan, values)):
        return False
    smallest, largest = min(map(abs, values)), max(map(abs, values))
    return largest / smallest > 1000.0 or largest > 1.0e8 or smallest < 1.0e-4


class _Real:
    """Writes real, integer and bool elements."""

    __slots__ = ("length", "style")

    def __init__(self, values: Sequence[Any], floating: bool, options: PrintOptions, powers: bool = False) -> None:
        self.style = _Style(values, floating, options, powers)
        self.length = self.style.width

    def text(self, value: Any) -> str:
        return self.style.text(value)


class _Complex:
    """Writes complex elements: both parts have a style of their own."""

    __slots__ = ("imag", "length", "real")

    def __init__(self, values: Sequence[complex], options: PrintOptions) -> None:
        self.real = _Style([v.real for v in values], True, options)
        self.imag = _Style([v.imag for v in values], True, options)
        self.length = self.real.width + self.imag.width + 1

    def text(self, value: complex) -> str:
        imag = self.imag.text(value.imag).lstrip() + "j"
        return self.real.text(value.real) + ("" if imag[0] in "+-" else "+") + imag


# ***** the elements that are shown, as nested lists *****


def _numbers(array: NDArray[Any] | Elements, dtype: DType) -> Any:
    """Python numbers for a small array."""
    if dtype is BFLOAT16 and not isinstance(array, Elements):
        # A bfloat16 is the upper half of a float32.
        return (array.astype("uint32") << 16).view("float32").tolist()
    return array.tolist()


def _shown(array: NDArray[Any] | Elements, dtype: DType, edge: int | None) -> Any:
    """The elements to print as nested lists; `...` stands for what is left out, nothing is when `edge` is None."""
    if edge is None or array.ndim == 0:
        return _numbers(array, dtype)
    size = array.shape[0]
    cut = size > 2 * edge
    if array.ndim == 1:
        if not cut:
            return _numbers(array, dtype)
        return [*_numbers(array[:edge], dtype), ..., *_numbers(array[size - edge :], dtype)]
    if not cut:
        return [_shown(row, dtype, edge) for row in array]
    head = [_shown(array[i], dtype, edge) for i in range(edge)]
    return [*head, ..., *(_shown(array[i], dtype, edge) for i in range(size - edge, size))]


def leaves(nested: Any) -> list[Any]:
    """The numbers in nested lists, without the gaps."""
    if not isinstance(nested, list):
        return [] if nested is ... else [nested]
    return [leaf for item in nested for leaf in leaves(item)]


# ***** brackets and lines *****


def _lay_out(nested: Any, ndim: int, indent: int, writer: _Real | _Complex, linewidth: int) -> str:
    """Nested lists as text; `indent` is the column of the opening bracket."""
    if ndim == 0:
        return writer.text(nested)
    if ndim == 1:
        a_line = max(1, (linewidth - indent) // (writer.length + 2))
        alone = len(nested) == 1 and nested[0] is ...
        words = [("..." if alone else " ...") if v is ... else writer.text(v) for v in nested]
        lines = [", ".join(words[i : i + a_line]) for i in range(0, len(words), a_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = ["..." if v is ... else _lay_out(v, ndim - 1, indent + 1, writer, linewidth) for v in nested]
    return "[" + ("," + "\n" * (ndim - 1) + " " * (indent + 1)).join(rows) + "]"


def contents(array: NDArray[Any] | Elements, dtype: DType, indent: int, options: PrintOptions) -> str:
    """The text between `tensor(` and the first suffix."""
    nested = _shown(array, dtype, options.edgeitems if array.size > options.threshold else None)
    values = leaves(nested)
    writer = (
        _Complex(values, options)
        if dtype.is_complex
        else _Real(values, dtype.is_floating_point, options, dtype.name == "float8_e8m0fnu")
    )
    return _lay_out(nested, array.ndim, indent, writer, options.linewidth)


def append_suffixes(text: str, suffixes: list[str], indent: int, linewidth: int, apart: bool = False) -> str:
    """`text` and its suffixes, each on the last line where it fits, else on a line of its own; `apart` begins a new
    line in any case.
    """
    parts = [text]
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if apart or column + len(suffix) + 2 > linewidth:
            apart = False
            parts.append(",\n" + " " * indent + suffix)
            column = indent + len(suffix)
        else:
            parts.append(", " + suffix)
            column += len(suffix) + 2
    return "".join(parts) + ")"


def _size_and_dtype(
    shown: bool, shape: tuple[int, ...], dtype: DType, default_dtype: DType, edgeitems: int
) -> list[str]:
    """The suffixes for what the numbers alone do not tell."""
    size, kind = f"size={tuple(shape)}", f"dtype={dtype!r}"
    if not shown:  # nothing to infer from
        return [size] if dtype is default_dtype else [size, kind]
    if 0 in shape:
        return ([size] if len(shape) != 1 else []) + ([] if dtype is default_dtype else [kind])
    natural = (default_dtype, COMPLEX128 if default_dtype is FLOAT64 else COMPLEX64, INT64, BOOL)
    return ([] if edgeitems else [size]) + ([] if dtype in natural else [kind])


def tensor_repr(
    array: NDArray[Any] | Elements | None,
    *,
    dtype: DType,
    default_dtype: DType,
    shape: Sequence[int] | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    grad_fn: str | None = None,
    tangent: str | None = None,
    type_name: str = "tensor",
    text: str | None = None,
    options: PrintOptions = OPTIONS,
) -> str:
    """The printed form of a tensor.

    Args:
        array: its elements (a NumPy array of any strides, or `Elements`), or None for a tensor without memory (`meta`), which then needs `shape`.
        dtype: its dtype; where it is bfloat16 the array has the bit patterns (uint16).
        default_dtype: the dtype which goes without saying.
        shape: its shape, where `array` is None.
        device: the device's name where it is to be shown, which is wherever it is not the CPU.
        requires_grad: whether it is a leaf that wants a gradient.
        grad_fn: the name of the node that made it (`AddBackward0`); it replaces `requires_grad=True`.
        tangent: the printed tangent of a dual tensor.
        type_name: `tensor`, or the name of a subclass.
        text: stands for the elements.
        options: how to print.

        >>> tensor_repr(None, shape=(2, 3), device="meta", dtype=BFLOAT16, default_dtype=BFLOAT16)
        "tensor(..., device='meta', size=(2, 3))"
    """
    full_shape = tuple(array.shape if array is not None else shape or ())
    prefix = type_name + "("
    indent = len(prefix)
    suffixes = [] if device is None else [f"device={device!r}"]
    shown = array is not None or text is not None and device != "meta"
    suffixes += _size_and_dtype(shown, full_shape, dtype, default_dtype, options.edgeitems)
    if grad_fn is not None:
        suffixes.append(f"grad_fn=<{grad_fn}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    if tangent is not None:
        suffixes.append(f"tangent={tangent}")
    if text is None:
        text = "..." if array is None else "[]" if array.size == 0 else contents(array, dtype, indent, options)
    return append_suffixes(prefix + text, suffixes, indent, options.linewidth)
