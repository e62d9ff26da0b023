"""Calls that a trace writes down in another form than they run in, so that the graph serves tensors of other sizes."""

from __future__ import annotations

from typing import Any

import rushlight

__all__ = ["recorded_form", "without_whole_slices"]

_CONVOLUTIONS = frozenset(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))


def recorded_form(name: str, overload: str, values: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """(operator, overload, arguments) as a graph has them: those that ran, or what stands for them."""
    if name in _CONVOLUTIONS and overload in ("", "input"):
        return "_convolution", "", _convolution(values)
    if "upsample_" in name and overload == "" and "output_size" in values:
        return name, "vec", _upsample(values)
    return name, overload, values


def _convolution(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `aten::_convolution` for those of a convolution of 1 to 3 dims."""
    transposed = "output_padding" in values
    dims = len(values["weight"].shape) - 2
    lists = {name: values.get(name, [0] * dims) for name in ("stride", "padding", "dilation", "output_padding")}
    wide = {name: list(v) * (dims // len(v)) for name, v in lists.items()}
    return {
        "input": next(iter(values.values())), "weight": values["weight"], "bias": values["bias"], "stride": wide["stride"], "padding": wide["padding"],
        "dilation": wide["dilation"], "transposed": transposed, "output_padding": wide["output_padding"], "groups": values["groups"], "benchmark": False,
        "deterministic": False, "cudnn_enabled": True, "allow_tf32": True,
    }  # fmt: skip


def _upsample(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the form that takes a size or factors: where there are factors, the size follows from them."""
    factors = [v for k, v in values.items() if k.startswith("scales")]
    known = bool(factors) and all(f is not None for f in factors)
    rest = {"align_corners": values["align_corners"]} if "align_corners" in values else {}
    first = next(iter(values))
    size = None if known else values["output_size"]
    return {"input": values[first], "output_size": size, **rest, "scale_factors": list(factors) if known else None}


def without_whole_slices(x: Any, index: Any) -> tuple[Any, Any] | None:
    """`x` and an index after the slices that take all of a dim and say its end; None where there are none.

    Such a slice does nothing to these sizes, and must still be written down: it does something to larger ones.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    if not any(isinstance(i, slice) and i.stop is not None for i in items):
        return None
    used = sum(map(_dims, items))
    dim, found = 0, False
    for place, item in enumerate(items):
        if item is Ellipsis:
            dim += x.dim() - used
        elif isinstance(item, slice) and dim < x.dim() and _is_whole(item, int(x.shape[dim])):
            x = rushlight.ops.aten.slice.Tensor(x, dim, 0 if item.start is None else item.start, item.stop, 1)
            items[place], found = slice(None), True
        dim += _dims(item)
    return (x, tuple(items)) if found else None


def _is_whole(item: slice, size: int) -> bool:
    bounds = [n for n in (item.start, item.stop, item.step) if n is not None]
    if not all(isinstance(n, int) for n in bounds) or item.stop is None:
        return False
    return not item.start and item.stop >= size and item.step in (None, 1)


def _dims(item: Any) -> int:
    """How many dims an item of an index takes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, rushlight.Tensor) and item.dtype in (rushlight.bool, rushlight.uint8):
        return item.dim()
    return 1
