"""`torch.ops.prims`: operators of PyTorch's primitives that graphs of other programs name."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.library.libraries import Library

__all__: list[str] = []

_library = Library("prims", "FRAGMENT")
_library.define("convert_element_type(Tensor a, ScalarType dtype) -> Tensor")


def _converted(a: Any, dtype: Any) -> Any:
    return a.to(dtype)


def _like(a: Any, dtype: Any) -> Any:
    return rushlight.empty_like(a, dtype=dtype)


_library.impl("convert_element_type", _converted, "CompositeExplicitAutograd")
_library.impl("convert_element_type", _like, "Meta")
