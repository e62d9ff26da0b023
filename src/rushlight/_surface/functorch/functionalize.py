"""`functionalize` and `debug_unwrap`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch_types.base import DispatchType, ask_dispatch_types, call_name
from rushlight._engine.functorch.batched import BatchedTensor
from rushlight._engine.functorch.functional import FunctionalTensor, functional, value_of
from rushlight._engine.functorch.transformed import Level, Transformed, tensors_in
from rushlight._surface.function_modes import TorchFunctionMode
from rushlight._surface.functorch.trees import tree_flatten, tree_unflatten

__all__ = ["debug_unwrap", "functionalize"]


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The tensor inside a transformed tensor: the whole batch, or the value without its tangent; for looking at, not
    for computing.

    With `recurse`, through all levels.
    """
    while isinstance(tensor, Transformed):
        if isinstance(tensor, FunctionalTensor):
            tensor = value_of(tensor)
        else:
            tensor = tensor.value if isinstance(tensor, BatchedTensor) else tensor.primal
        if not recurse:
            break
    return tensor


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """A function that computes what `func` does by operators that change nothing: where it is traced, no change in
    place is seen.

    With `remove="mutations_and_views"` results never share memory either: views are copied.  Arguments that `func`
    changes in place are changed, once, when it is done.  RuntimeError for another `remove`, and where tensors that are
    no arguments would be changed.

        >>> import rushlight as torch
        >>> def f(x):
        ...     y = x.clone()
        ...     y[0].mul_(10)
        ...     return y
        >>> torch.func.functionalize(f)(torch.ones(2, 2))
        tensor([[10., 10.],
                [ 1.,  1.]])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): received invalid argument for remove=. Valid options are:\n     remove='mutations': all inplace and "
            f"out= operators will be removed.\n     remove='mutations_and_views': ... but got {remove!r}."
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        with Level("functionalize", 0, "copies" if remove == "mutations_and_views" else "views") as level:
            given = [functional(x, level.number) if isinstance(x, Tensor) else x for x in leaves]
            inside, named = tree_unflatten(given, structure)
            with _Made(level.number):
                made, shape = tree_flatten(func(*inside, **named))
            originals = {id(w): x for w, x in zip(given, leaves, strict=True) if isinstance(w, FunctionalTensor)}
            results = [originals.get(id(m), value_of(m)) if _mine(m, level.number) else m for m in made]
        for tensor, original in zip(given, leaves, strict=True):
            if isinstance(tensor, FunctionalTensor) and tensor.version:
                original.copy_(value_of(tensor))
        return tree_unflatten(results, shape)

    return wrapped


class _Made(TorchFunctionMode):
    """Tensors that are made from nothing inside of the function may be changed in place there too."""

    def __init__(self, level: int) -> None:
        self.level = level

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = list(tensors_in((args, kwargs or {})))
        if call_name(func) in FunctionalTensor.handlers and any(isinstance(t, FunctionalTensor) for t in given):
            return ask_dispatch_types(func, [t for t in given if isinstance(t, DispatchType)], args, kwargs or {})
        made = func(*args, **(kwargs or {}))
        if type(made) is Tensor and not given:
            return functional(made, self.level)
        return made


def _mine(x: Any, level: int) -> bool:
    return isinstance(x, FunctionalTensor) and x.level == level
