"""Quantized tensors as objects: integers with a scale and a zero point.

A `QuantTensor` holds its integers as a plain tensor (uint8, int8 or int32, one element each, also where the dtype packs
several into a byte) and a `Quantizer`: one scale and zero point, or one for each place along an axis.  A number is
(integer - zero point) * scale.  Views share the integers' memory.  What operators mean for it is said in
`_surface/quantized.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch_types.base import DispatchType, make_dispatch_tensor
from rushlight._engine.sharing.pickling import form_there
from rushlight._types.dtype import BY_NAME, DType
from rushlight._types.spec import Spec

__all__ = ["RANGES", "SCHEMES", "QScheme", "QuantTensor", "Quantizer", "make_quantized"]


class QScheme:
    """How the scale of a quantized tensor is laid out."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return scheme_of, (self.name,)


QScheme.__name__, QScheme.__qualname__, QScheme.__module__ = "qscheme", "qscheme", "torch"
SCHEMES = {
    name: QScheme(name)
    for name in (
        "per_tensor_affine",
        "per_channel_affine",
        "per_tensor_symmetric",
        "per_channel_symmetric",
        "per_channel_affine_float_qparams",
    )
}


def scheme_of(name: str) -> QScheme:
    """The scheme with this name."""
    return SCHEMES[name]


# The integers of each dtype: what holds them, and their range.
RANGES: dict[DType, tuple[DType, int, int]] = {
    BY_NAME["quint8"]: (BY_NAME["uint8"], 0, 255),
    BY_NAME["qint8"]: (BY_NAME["int8"], -128, 127),
    BY_NAME["qint32"]: (BY_NAME["int32"], -(2**31), 2**31 - 1),
    BY_NAME["quint4x2"]: (BY_NAME["uint8"], 0, 15),
    BY_NAME["quint2x4"]: (BY_NAME["uint8"], 0, 3),
}


class Quantizer(NamedTuple):
    """Scale and zero point: a float and an int, or (per channel) two vectors along `axis`."""

    scheme: QScheme
    scale: Any
    zero_point: Any
    axis: int | None = None


class QuantTensor(DispatchType):
    """Integers (`_ints`) with their scale and zero point (`_quantizer`)."""

    __slots__ = ("_ints", "_quantizer")

    backend: ClassVar[str] = "QuantizedCPU"
    is_quantized = True
    _ints: Tensor
    _quantizer: Quantizer

    @classmethod
    def otherwise(cls, function: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Views are views of the integers."""
        op = getattr(function, "operator", None)
        if op is not None and op.kind == "view" and isinstance(args[0], QuantTensor):
            return seen_through(function, *args, **kwargs)
        return super().otherwise(function, name, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = make_quantized(self._ints.__deepcopy__(memo), self.dtype, self._quantizer)
        return memo[id(self)]

    def __copy__(self) -> Any:
        return make_quantized(self._ints, self.dtype, self._quantizer)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return form_there(self) or (make_quantized, (self._ints, self.dtype, self._quantizer))


def make_quantized(ints: Tensor, dtype: DType, quantizer: Quantizer) -> Any:
    """A quantized tensor over these integers."""
    made = make_dispatch_tensor(QuantTensor, Spec.of(dtype, ints._spec.device, ints._spec.shape, ints._spec.strides))
    made._ints, made._quantizer = ints, Quantizer(*quantizer)
    return made


def seen_through(function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of the integers' places, for tensors with one scale."""
    if x._quantizer.axis is not None:
        raise RuntimeError("Setting strides is possible only on uniformly quantized tensor")
    found = function(x._ints, *args, **kwargs)
    if isinstance(found, (tuple, list)):
        return type(found)(make_quantized(f, x.dtype, x._quantizer) for f in found)
    return make_quantized(found, x.dtype, x._quantizer)
