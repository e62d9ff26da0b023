"""Lists of dtypes, as `torch.testing._internal.common_dtype`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight as torch

__all__ = [
    "all_mps_types", "all_mps_types_and", "all_types", "all_types_and", "all_types_and_complex", "all_types_and_complex_and", "all_types_and_half",
    "all_types_complex_float8_and", "complex_types", "complex_types_and", "custom_types", "double_types", "empty_types", "float8_types", "float8_types_and",
    "float_to_corresponding_complex_type_map", "floating_and_complex_types", "floating_and_complex_types_and", "floating_types", "floating_types_and",
    "floating_types_and_half", "get_all_complex_dtypes", "get_all_dtypes", "get_all_fp_dtypes", "get_all_int_dtypes", "get_all_math_dtypes",
    "get_all_qint_dtypes", "highest_precision_complex", "highest_precision_float", "integral_types", "integral_types_and",
]  # fmt: skip


class _DTypes(tuple[Any, ...]):
    """A tuple of dtypes that stays one when another is added."""

    __slots__ = ()

    def __add__(self, other: Any) -> _DTypes:
        if not isinstance(other, tuple):
            raise AssertionError(f"Expected other to be a tuple, got {type(other)}")
        return _DTypes(tuple.__add__(self, other))


def _checked(dtypes: tuple[Any, ...]) -> tuple[Any, ...]:
    for each in dtypes:
        if not isinstance(each, torch.dtype):
            raise AssertionError(f"Expected torch.dtype, got {type(each)}")
    return dtypes


def _list(text: str, dtypes: tuple[Any, ...]) -> tuple[Callable[[], _DTypes], Callable[..., _DTypes]]:
    """The function that gives a list, and the one that gives it with further dtypes."""
    found = _DTypes(dtypes)

    def plain() -> _DTypes:
        return found

    def more(*dtypes: Any) -> _DTypes:
        return found + _checked(dtypes)

    plain.__doc__, more.__doc__ = f"{text}.", f"{text}, and `dtypes`."
    return plain, more


_FLOATS, _INTEGERS = (torch.float32, torch.float64), (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_COMPLEX = (torch.complex64, torch.complex128)
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)

empty_types, custom_types = _list("No dtypes", ())
floating_types, floating_types_and = _list("float32 and float64", _FLOATS)
floating_types_and_half, _ = _list("float32, float64 and float16", (*_FLOATS, torch.float16))
floating_and_complex_types, floating_and_complex_types_and = _list("Floats and complex numbers", (*_FLOATS, *_COMPLEX))
double_types, _ = _list("float64 and complex128", (torch.float64, torch.complex128))
integral_types, integral_types_and = _list("Integers, of unsigned ones uint8 alone", _INTEGERS)
all_types, all_types_and = _list("Floats and integers", (*_FLOATS, *_INTEGERS))
complex_types, complex_types_and = _list("complex64 and complex128", _COMPLEX)
all_types_and_complex, all_types_and_complex_and = _list(
    "Floats, integers and complex numbers", (*_FLOATS, *_INTEGERS, *_COMPLEX)
)
all_types_and_half, _ = _list("Floats, integers and float16", (*_FLOATS, *_INTEGERS, torch.float16))
all_mps_types, all_mps_types_and = _list(
    "What Apple's GPUs compute with", (torch.float32, torch.float16, torch.bfloat16, *_INTEGERS)
)
float8_types, float8_types_and = _list("Floats of eight bits", _FLOAT8)
_, all_types_complex_float8_and = _list(
    "Floats, integers, complex numbers and floats of eight bits", (*_FLOATS, *_INTEGERS, *_COMPLEX, *_FLOAT8)
)
del _

float_to_corresponding_complex_type_map = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}


def get_all_int_dtypes() -> list[Any]:
    """Integers."""
    return list(_INTEGERS)


def get_all_fp_dtypes(include_half: bool = True, include_bfloat16: bool = True) -> list[Any]:
    """Floats."""
    return [*_FLOATS, *[torch.float16] * include_half, *[torch.bfloat16] * include_bfloat16]


def get_all_complex_dtypes(include_complex32: bool = False) -> list[Any]:
    """Complex numbers."""
    return [*[torch.complex32] * include_complex32, *_COMPLEX]


def get_all_qint_dtypes() -> list[Any]:
    """Quantized numbers."""
    return [torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4]


def get_all_math_dtypes(device: str) -> list[Any]:
    """Dtypes of arithmetic on a device."""
    return (
        get_all_int_dtypes()
        + get_all_fp_dtypes(device.startswith("cuda"), include_bfloat16=False)
        + get_all_complex_dtypes()
    )


def get_all_dtypes(
    include_half: bool = True,
    include_bfloat16: bool = True,
    include_bool: bool = True,
    include_complex: bool = True,
    include_complex32: bool = False,
    include_qint: bool = False,
) -> list[Any]:
    """All dtypes but those that are left out."""
    found = get_all_int_dtypes() + get_all_fp_dtypes(include_half, include_bfloat16) + [torch.bool] * include_bool
    found += get_all_complex_dtypes(include_complex32) if include_complex else []
    return found + (get_all_qint_dtypes() if include_qint else [])


def highest_precision_float(device: Any) -> Any:
    """The widest float of a device."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64


def highest_precision_complex(device: Any) -> Any:
    """The widest complex number of a device."""
    return torch.complex64 if torch.device(device).type == "mps" else torch.complex128
