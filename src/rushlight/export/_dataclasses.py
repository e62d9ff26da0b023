"""`register_dataclass`: dataclasses as containers of inputs and results."""

from __future__ import annotations

import dataclasses
from typing import Any

from rushlight.utils._pytree import register_dataclass

__all__ = ["registered"]


def registered(
    cls: type, serialized_type_name: str | None, field_names: Any = None, drop_field_names: Any = None
) -> None:
    """See `torch.export.register_dataclass`."""
    if not dataclasses.is_dataclass(cls):
        raise AssertionError(f"Only dataclasses can be registered with this function: {cls}")
    register_dataclass(
        cls,
        field_names=field_names,
        drop_field_names=drop_field_names,
        serialized_type_name=serialized_type_name or f"{cls.__module__}.{cls.__qualname__}",
    )
