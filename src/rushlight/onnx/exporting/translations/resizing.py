"""Padding, interpolation, sampling at points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value, numpy_dtype

np: Any = LazyModule("numpy")

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded(call: Call, x: Value, pad: Sequence[Any], mode: str, value: Any = None) -> Value:
    """`pad` as PyTorch has it: pairs from the last dim on."""
    pairs: list[tuple[Any, ...]] = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    for d, pair in enumerate(pairs):
        for side, amount in enumerate(pair):
            if isinstance(amount, int) and amount < 0:  # cut first: runtimes differ on negative pads
                axis = x.ndim - 1 - d
                start, end = (-amount, 2**63 - 1) if side == 0 else (0, amount)
                x = call.slice(x, axis, start, end, shape=tuple(f"p{i}" for i in range(x.ndim)))
    pairs = [tuple([0 if isinstance(p, int) and p < 0 else p for p in pair]) for pair in pairs]
    if all(isinstance(p, int) and p == 0 for pair in pairs for p in pair):
        x.shape = call.shape if x.shape is None else x.shape
        return x
    wide: list[Any] = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    if mode == "circular":  # runtimes know "wrap" of Pad late, if at all
        return _wrapped(call, x, wide)
    pads = call.ints([p[0] for p in wide] + [p[1] for p in wide])
    fill = None if mode != "constant" else call.scalar(0 if value is None else value, x.dtype)
    if x.dtype == rushlight.bool:
        made = call.op(
            "Pad",
            call.cast(x, rushlight.int32),
            pads,
            None if fill is None else call.cast(fill, rushlight.int32),
            mode=_MODES[mode],
        )
        return call.cast(made, rushlight.bool)
    return call.op("Pad", x, pads, fill, mode=_MODES[mode] if mode != "constant" else None, shape=call.shape)


def _wrapped(call: Call, x: Value, pairs: Sequence[tuple[Any, Any]]) -> Value:
    """Pieces of the other end beside a dim."""
    for axis, (before, after) in enumerate(pairs):
        parts = []
        if before:
            parts.append(call.slice(x, axis, -before, 2**63 - 1))
        parts.append(x)
        if after:
            parts.append(call.slice(x, axis, 0, after))
        x = call.concat(parts, axis)
    return x


@translates("aten::constant_pad_nd")
def constant_pad(call: Call, x: Value, pad: Sequence[Any], value: Any = 0) -> Value:
    return padded(call, x, pad, "constant", value)


@translates("aten::pad")
def pad_(call: Call, x: Value, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Value:
    return padded(call, x, pad, mode, value)


@translates(*[f"aten::{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)])
def edge_pad(call: Call, x: Value, pad: Sequence[Any]) -> Value:
    return padded(call, x, pad, "reflect" if "reflection" in call.name else "replicate")


@translates("aten::_pad_circular")
def circular_pad(call: Call, x: Value, pad: Sequence[Any]) -> Value:
    return padded(call, x, pad, "circular")


# ***** interpolation *****


def _resize(
    call: Call,
    x: Value,
    sizes: Any,
    scales: Sequence[float] | None,
    mode: str,
    corners: bool | None,
    antialias: bool = False,
) -> Value:
    """Resize of images, by scales where the program gave those (the coordinates follow from them), else to sizes."""
    lead = x.ndim - 2
    attrs: dict[str, Any] = {"mode": mode}
    if mode == "nearest-exact":
        attrs = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    elif mode == "nearest":
        attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        attrs["coordinate_transformation_mode"] = "align_corners" if corners else "pytorch_half_pixel"
        if mode == "cubic":
            attrs["cubic_coeff_a"] = -0.5 if antialias else -0.75
    if antialias:
        call.need(18)
        attrs["antialias"] = 1
    if scales is not None and all(isinstance(s, (int, float)) for s in scales) and not corners:
        vector = call.array(_floats([1.0, 1.0, *scales]), rushlight.float32)
        whole = all(isinstance(i, int) for i in (*(x.shape or ())[2:],))
        shape = (call.shape or ())[2:]
        # A size is the floor of a product in double precision: where float32 would say another one, sizes are given.
        if whole and all(int(i * s) == o for i, s, o in zip((x.shape or ())[2:], scales, shape, strict=True)):  # type: ignore[operator]
            rounded = [math.floor(float(_floats([s])[0]) * i) for i, s in zip((x.shape or ())[2:], scales, strict=True)]  # type: ignore[operator]
            if tuple(rounded) == tuple(shape):
                return call.op("Resize", x, None, vector, shape=call.shape, **attrs)
        elif not whole:
            return call.op("Resize", x, None, vector, shape=call.shape, **attrs)
    known = (call.shape or ())[2:]
    spatial = list(known) if all(type(s) is int for s in known) else list(sizes)
    assert len(spatial) == lead
    if call.opset >= 18:
        return call.op(
            "Resize", x, None, None, call.ints(spatial), axes=list(range(2, x.ndim)), shape=call.shape, **attrs
        )
    return call.op("Resize", x, None, None, call.ints([*call.dims(x)[:2], *spatial]), shape=call.shape, **attrs)


def _floats(items: Sequence[float]) -> Any:
    return np.array(items, np.float32)


def _upsample(call: Call, x: Value, sizes: Any, rest: tuple[Any, ...], mode: str, antialias: bool = False) -> Value:
    """`rest` is what the overloads have after the sizes: align_corners where the mode knows it, then scales or a list of them."""
    given = list(rest)
    corners = None if mode.startswith("nearest") else given.pop(0)
    scales: Any = None
    if len(given) == 1 and isinstance(given[0], (list, tuple)):
        scales = given[0]
    elif given and all(g is not None for g in given):
        scales = given
    return _resize(call, x, sizes, scales, mode, corners, antialias)


_MODE_OF = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def _upsampling(name: str, mode: str, antialias: bool) -> None:
    @translates(f"aten::{name}", f"aten::{name}.vec")
    def translate(call: Call, x: Value, sizes: Any, *rest: Any) -> Value:
        return _upsample(call, x, sizes, rest, mode, antialias)


for _n in (1, 2, 3):
    _upsampling(f"upsample_nearest{_n}d", "nearest", False)
for _name in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d"):
    _upsampling(f"upsample_{_name}", _MODE_OF[_name[:-2]], False)
for _name in ("bilinear2d", "bicubic2d"):
    _upsampling(f"_upsample_{_name}_aa", _MODE_OF[_name[:-2]], True)


@translates(*[f"aten::_upsample_nearest_exact{n}d{o}" for n in (1, 2, 3) for o in ("", ".vec")])
def nearest_exact(call: Call, x: Value, sizes: Any, *rest: Any) -> Value:
    return _upsample(call, x, sizes, rest, "nearest-exact")


# ***** sampling *****

_SAMPLING = ("bilinear", "nearest", "bicubic")
_BEYOND = ("zeros", "border", "reflection")


@translates("aten::grid_sampler", "aten::grid_sampler_2d", "aten::grid_sampler_3d")
def grid_sampler(call: Call, x: Value, grid: Value, mode: int, padding: int, corners: bool) -> Value:
    if x.ndim == 5:
        call.need(20, "sample images")
    name = _SAMPLING[mode]
    if call.opset >= 20:
        name = {"bilinear": "linear", "bicubic": "cubic"}.get(name, name)
    return call.out("GridSample", x, grid, mode=name, padding_mode=_BEYOND[padding], align_corners=int(bool(corners)))


@translates("aten::affine_grid_generator")
def affine_grid(call: Call, theta: Value, size: Sequence[Any], corners: bool) -> Value:
    if call.opset >= 20:
        return call.out("AffineGrid", theta, call.ints(size), align_corners=int(corners))
    if not all(isinstance(s, int) for s in size):
        call.need(20, "give the sizes")
    lines = []
    for n in size[2:]:
        line = np.linspace(-1, 1, n) if corners else (np.arange(n) * 2 + 1) / n - 1
        lines.append(line if n > 1 or not corners else np.zeros(1))
    points = np.stack([*np.meshgrid(*lines, indexing="ij")][::-1] + [np.ones(tuple(size[2:]))], -1)
    flat = points.reshape(1, -1, points.shape[-1]).astype(numpy_dtype(theta.dtype))
    made = call.op("MatMul", call.array(flat, theta.dtype), call.transpose(theta, [0, 2, 1]))
    return call.reshape(made, [size[0], *size[2:], len(lines)], shape=call.shape)
