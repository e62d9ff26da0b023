"""`register_dataclass`: dataclasses as containers of inputs and results."""

from __future__ import annotations

import dataclasses
from typing import Any

from rushlight.utils._pytree import GetAttrKey, register_pytree_node

__all__ = ["registered"]


def registered(
    cls: type, serialized_type_name: str | None, field_names: Any = None, drop_field_names: Any = None
) -> None:
    """See `torch.export.register_dataclass`."""
    if not dataclasses.is_dataclass(cls):
        raise AssertionError(f"Only dataclasses can be registered with this function: {cls}")
    names = [f.name for f in dataclasses.fields(cls) if f.init] if field_names is None else list(field_names)

    def apart(value: Any) -> tuple[list[Any], Any]:
        given = [n for n in names if getattr(value, n) is not None]
        return [getattr(value, n) for n in given], [given, [n for n in names if n not in given]]

    def keyed(value: Any) -> tuple[list[Any], Any]:
        parts, context = apart(value)
        return [(GetAttrKey(n), p) for n, p in zip(context[0], parts, strict=True)], context

    def together(values: Any, context: Any) -> Any:
        given, absent = context
        return cls(**dict(zip(given, values, strict=True)), **dict.fromkeys(absent))

    register_pytree_node(
        cls,
        apart,
        together,
        serialized_type_name=serialized_type_name or f"{cls.__module__}.{cls.__qualname__}",
        flatten_with_keys_fn=keyed,
    )
