"""Jacobians, Hessians and their products with vectors, of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight._engine.autograd.api import grad
from rushlight._engine.modes import enable_grad
from rushlight._engine.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _as_tuple(value: Any, what: str, where: str) -> tuple[bool, tuple[Tensor, ...]]:
    single = not isinstance(value, tuple)
    items = (value,) if single else value
    for i, item in enumerate(items):
        if not isinstance(item, Tensor):
            raise TypeError(
                f"The {what} given to {where} must be either a Tensor or a tuple of Tensors but the value at index {i} has type {type(item)}."
            )
    return single, items


def _prepare(inputs: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.clone().requires_grad_() for x in inputs)  # type: ignore[attr-defined]
    return tuple(x.detach().requires_grad_() for x in inputs)  # type: ignore[attr-defined]


def _filled(grads: Sequence[Any], like: Sequence[Tensor], strict: bool) -> tuple[Tensor, ...]:
    if strict and any(g is None for g in grads):
        raise RuntimeError(
            "The output of the user-provided function is independent of one of the inputs. This is not allowed in strict mode."
        )
    return tuple(rushlight.zeros_like(x) if g is None else g for g, x in zip(grads, like, strict=True))


def _finish(values: Any, create_graph: bool) -> Any:
    if create_graph:
        return values
    return tuple(v.detach() for v in values) if isinstance(values, tuple) else values.detach()


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), v @ Jacobian)."""
    with enable_grad():
        single, given = _as_tuple(inputs, "inputs", "vjp")
        given = _prepare(given, create_graph)
        out_single, outputs = _as_tuple(func(*given), "outputs of the user-provided function", "vjp")
        if v is None:
            if len(outputs) != 1 or outputs[0].numel() != 1:  # type: ignore[attr-defined]
                raise RuntimeError(
                    "The vector v can only be None if the user-provided function returns a single Tensor with a single element."
                )
            seeds: Any = (None,)
        else:
            _, seeds = _as_tuple(v, "v", "vjp")
        grads = grad(outputs, given, seeds, create_graph=create_graph, retain_graph=True, allow_unused=True)
        found = _filled(grads, given, strict)
    result = _finish(outputs, create_graph)
    found = _finish(found, create_graph)
    return result[0] if out_single else result, found[0] if single else found


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), Jacobian @ v), by differentiating the vector-Jacobian product in its vector (the double-backward trick)."""
    with enable_grad():
        _, given = _as_tuple(inputs, "inputs", "jvp")
        given = _prepare(given, create_graph)
        tangents = tuple(rushlight.ones_like(x) for x in given) if v is None else _as_tuple(v, "v", "jvp")[1]
        out_single, outputs = _as_tuple(func(*given), "outputs of the user-provided function", "jvp")
        if v is None and (len(given) != 1 or given[0].numel() != 1):  # type: ignore[attr-defined]
            raise RuntimeError(
                "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
            )
        dummies = tuple(rushlight.zeros_like(o, requires_grad=True) for o in outputs)
        first = _filled(grad(outputs, given, dummies, create_graph=True, allow_unused=True), given, strict)
        reached = [(f, t) for f, t in zip(first, tangents, strict=True) if f.requires_grad]
        grads: Any = (None,) * len(dummies)
        if reached:
            grads = grad(
                [f for f, _ in reached], dummies, [t for _, t in reached], create_graph=create_graph, allow_unused=True
            )
        found = _filled(grads, outputs, strict)
    result, found = _finish(outputs, create_graph), _finish(found, create_graph)
    return (result[0], found[0]) if out_single else (result, found)


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:  # fmt: skip
    """d out[i] / d in[j], with shape out.shape + in.shape for each pair."""
    with enable_grad():
        single, given = _as_tuple(inputs, "inputs", "jacobian")
        given = _prepare(given, create_graph)
        out_single, outputs = _as_tuple(func(*given), "outputs of the user-provided function", "jacobian")
        rows: list[Any] = []
        for out in outputs:
            found: list[list[Tensor]] = [[] for _ in given]
            for element in out.reshape(-1).unbind(0) if out.numel() else ():  # type: ignore[attr-defined]
                grads: Any = (None,) * len(given)
                if element.requires_grad:
                    grads = grad(element, given, retain_graph=True, create_graph=create_graph, allow_unused=True)
                for held, g in zip(found, _filled(grads, given, strict), strict=True):
                    held.append(g)
            rows.append(
                tuple(
                    rushlight.stack(held).view(out.shape + x.shape) if held else rushlight.zeros(*out.shape, *x.shape)
                    for held, x in zip(found, given, strict=True)
                )
            )
    rows = [_finish(r, create_graph) for r in rows]
    if single:
        rows = [r[0] for r in rows]
    return rows[0] if out_single else tuple(rows)


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:  # fmt: skip
    """Second derivatives of a function with one scalar result."""
    single, given = _as_tuple(inputs, "inputs", "hessian")

    def gradient(*args: Tensor) -> Any:
        out = func(*args)
        if not isinstance(out, Tensor) or out.numel() != 1:  # type: ignore[attr-defined]
            raise RuntimeError("The Tensor returned by the function given to hessian should contain a single element")
        return _filled(grad(out.reshape(()), args, create_graph=True, allow_unused=True), args, strict)  # type: ignore[attr-defined]

    found = jacobian(gradient, given, create_graph=create_graph, strict=strict)
    return found[0][0] if single else found


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), v @ Hessian)."""
    with enable_grad():
        single, given = _as_tuple(inputs, "inputs", "vhp")
        given = _prepare(given, create_graph)
        out = func(*given)
        seeds: Any = None if v is None else _as_tuple(v, "v", "vhp")[1]
        first = _filled(grad(out, given, create_graph=True, allow_unused=True), given, strict)
        reached = [(f, None if seeds is None else seeds[i]) for i, f in enumerate(first) if f.requires_grad]
        grads: Any = (None,) * len(given)
        if reached:
            grads = grad(
                [f for f, _ in reached], given, [s for _, s in reached], create_graph=create_graph, allow_unused=True
            )
        found = _filled(grads, given, strict)
    result, found = _finish(out, create_graph), _finish(found, create_graph)
    return result, found[0] if single else found


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), Hessian @ v); the Hessian is symmetric, so this is `vhp`."""
    return vhp(func, inputs, v, create_graph, strict)
