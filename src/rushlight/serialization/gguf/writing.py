"""Writing GGUF files, version 3: the file appears whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rushlight
from rushlight.serialization.gguf.block_types import ALIGNMENT, CODES, LIST, MAGIC, NUMBERS, PLAIN, TEXT, library
from rushlight.serialization.gguf.packed import PackedWeight
from rushlight.serialization.replacing import replacing

__all__ = ["save_file"]

_KINDS = {dtype: kind for kind, dtype in PLAIN.items()}


def save_file(
    tensors: Mapping[str, Any], path: Any, *, metadata: Mapping[str, Any] | None = None, kinds: Any = None
) -> None:
    """Write tensors and `PackedWeight`s by name, with values beside them.

    `kinds` names the types to which tensors are packed before: one for all matrices (such as "Q8_0"), or a dict by tensor;
    this needs the package `gguf`.  ValueError names what the format cannot hold.
    """
    values = dict(metadata or {})
    parts = {name: _packed(name, x, _wanted(kinds, name, x)) for name, x in tensors.items()}
    alignment = values.get("general.alignment", ALIGNMENT)
    head = [MAGIC, _number(4, 3), _number(10, len(parts)), _number(10, len(values))]
    for name, value in values.items():
        code = _code(name, value)
        head += [_text(name), _number(4, code), _value(name, code, value)]
    start = 0
    for name, x in parts.items():
        shape, kind = tuple(x.shape), x.kind if isinstance(x, PackedWeight) else _KINDS[x.dtype.name]
        head += [_text(name), _number(4, len(shape)), *(_number(10, size) for size in shape[::-1])]
        head += [_number(4, CODES[kind]), _number(10, start)]
        start = _after(start + _blocks(x).nbytes, alignment)
    with replacing(path) as out:
        at = out.write(b"".join(head))
        for x in parts.values():
            at += out.write(bytes(_after(at, alignment) - at))
            block = _blocks(x).contiguous()
            at += out.write(bytes(block.view(-1).view(rushlight.uint8).numpy()) if block.numel() else b"")


def _after(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


def _blocks(x: Any) -> Any:
    return x.blocks if isinstance(x, PackedWeight) else x


def _wanted(kinds: Any, name: str, x: Any) -> str | None:
    if isinstance(kinds, str):
        return kinds if not isinstance(x, PackedWeight) and x.ndim == 2 and x.is_floating_point() else None
    return kinds.get(name) if kinds else None


def _packed(name: str, x: Any, kind: str | None) -> Any:
    if isinstance(x, PackedWeight):
        return x
    if not isinstance(x, rushlight.Tensor) or x.layout is not rushlight.strided or x.is_quantized:
        raise ValueError(f"{name!r} is no dense tensor, and no PackedWeight: {type(x).__name__}")
    x = x.detach()
    if kind is None:
        if x.dtype.name not in _KINDS:
            raise ValueError(f"the GGUF format has no {x.dtype}, the dtype of {name!r}")
        return x
    if kind in PLAIN:
        return x.to(getattr(rushlight, PLAIN[kind]))
    if kind not in CODES:
        raise ValueError(f"{name!r}: the GGUF format has no type {kind!r}; there are {', '.join(CODES)}")
    quants = library.quants
    try:
        raw = quants.quantize(x.float().numpy(), library.GGMLQuantizationType[kind])
    except (NotImplementedError, quants.QuantError) as why:
        raise ValueError(f"{name!r} of shape {list(x.shape)} cannot be packed to {kind}: {why}") from None
    size = library.GGML_QUANT_SIZES[library.GGMLQuantizationType[kind]][1]
    return PackedWeight(rushlight.from_numpy(raw.reshape(*raw.shape[:-1], -1, size).copy()), kind)


# ***** values of the metadata *****


def _number(code: int, value: Any) -> bytes:
    return NUMBERS[code].pack(value)


def _text(value: str) -> bytes:
    raw = value.encode()
    return _number(10, len(raw)) + raw


def _code(name: str, value: Any) -> int:
    if isinstance(value, bool):
        return 7
    if isinstance(value, int):
        for code, low, high in ((4, 0, 1 << 32), (5, -(1 << 31), 1 << 31), (10, 0, 1 << 64), (11, -(1 << 63), 1 << 63)):
            if low <= value < high:
                return code
    if isinstance(value, float):
        return 6
    if isinstance(value, str):
        return TEXT
    if isinstance(value, (list, tuple)):
        return LIST
    raise ValueError(
        f"metadata {name!r} is {value!r}: it must be a bool, a number of 64 bits, a text, or a list of one of them"
    )


def _value(name: str, code: int, value: Any) -> bytes:
    if code in NUMBERS:
        return _number(code, value)
    if code == TEXT:
        return _text(value)
    codes = {_code(name, item) for item in value}
    if len(codes) > 1:
        if not codes <= {4, 5, 10, 11}:
            raise ValueError(f"metadata {name!r}: the items of a list have one type, got {value!r}")
        codes = {11} if min(value) < 0 else {10}
    inner = codes.pop() if codes else 4
    return _number(4, inner) + _number(10, len(value)) + b"".join(_value(name, inner, item) for item in value)
