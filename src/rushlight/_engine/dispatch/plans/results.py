"""The named tuples of operators with several results, as `torch.return_types.max`.

They behave as PyTorch's: a tuple whose items are attributes too, made from one sequence, equal to the plain tuple, and
no `namedtuple` (collate functions of data loaders and such treat it as a tuple).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from rushlight._ops.table import Operator

__all__ = ["OUT", "result_name", "result_type_of", "with_out"]

OUT = "_out"  # PyTorch has another name for the type if results were written to `out=`
_RESULTS: dict[tuple[str, tuple[str, ...]], Any] = {}


def result_type_of(name: str, fields: tuple[str, ...]) -> Any:
    """The type of this public name (dots become underscores) with these fields; always the same object.

    >>> from rushlight._engine.dispatch.plans.results import result_type_of
    >>> result_type_of("max", ("values", "indices"))([3.0, 1]).indices
    1
    """
    key = (name.replace(".", "_"), fields)
    found = _RESULTS.get(key)
    if found is None:
        found = _RESULTS[key] = _make(*key)
    return found


def result_name(op: Operator) -> str:
    """The name of the type of an operator's named results: `max` for `torch.max`, `linalg_qr` for `torch.linalg.qr`."""
    public = op.public.removesuffix("_dim").removesuffix("_core")
    space = op.spaces[0] if op.spaces else "torch"
    return public if space in ("torch", "nn.functional") or public.startswith(f"{space}_") else f"{space}_{public}"


def with_out(cls: Any) -> Any:
    """The type of the same results when they were written to `out=`."""
    return result_type_of(cls.__name__ + OUT, cls.__match_args__)


def _make(name: str, fields: tuple[str, ...]) -> Any:
    count = len(fields)
    module = "torch.return_types"

    def new(cls: Any, sequence: Iterable[Any], dict: Any = None) -> Any:
        try:
            items = tuple(sequence)
        except TypeError:
            raise TypeError("constructor requires a sequence") from None
        if len(items) != count:
            raise TypeError(f"{module}.{name}() takes a {count}-sequence ({len(items)}-sequence given)")
        return tuple.__new__(cls, items)

    def text(self: Any) -> str:
        return (
            f"{module}.{name}(\n"
            + ",\n".join([f"{field}={value!r}" for field, value in zip(fields, self, strict=True)])
            + ")"
        )

    body: dict[str, Any] = {
        "__slots__": (), "__module__": module, "__new__": new, "__repr__": text, "__reduce__": _reduce, "__match_args__": fields,
        "n_fields": count, "n_sequence_fields": count, "n_unnamed_fields": 0,
    }  # fmt: skip
    body.update({field: property(_item(i)) for i, field in enumerate(fields)})
    return type(name, (tuple,), body)


def _item(i: int) -> Callable[[Any], Any]:
    return itemgetter(i)


def _reduce(self: Any) -> Any:
    return type(self), (tuple(self), {})
