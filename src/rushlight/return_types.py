"""The named tuples that functions with several results return, as `torch.return_types`.

>>> import rushlight as torch
>>> found = torch.max(torch.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=1)
>>> type(found) is torch.return_types.max, found.indices.tolist()
(True, [1, 0])

One name for each operator of the table whose results have names, and one for each composite below; with `_out` where
results were written to `out=`.  A name is there when its function is.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.operators import result_type, result_types


def pytree_register_structseq(cls: type[tuple[Any, ...]]) -> None:
    """Let functions over trees look into this type: they do already, for every tuple.  TypeError for other types."""
    if not (isinstance(cls, type) and issubclass(cls, tuple)):
        raise TypeError(f"expected a type of named results, found {cls!r}")


def __getattr__(name: str) -> Any:
    value: Any
    if name == "all_return_types":
        value = [result_type(each) for each in result_types()]
    elif name == "__all__":
        value = __dir__()
    else:
        value = result_type(name)
        if value is None:
            raise AttributeError(f"rushlight.return_types has no {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["all_return_types", "pytree_register_structseq", *result_types()]
