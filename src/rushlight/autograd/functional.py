"""Jacobians, Hessians and their products with vectors, of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor, enable_grad
from rushlight._interface.functorch import basis, vjp_rows
from rushlight.autograd import grad
from rushlight.func import hessian as func_hessian
from rushlight.func import jacfwd

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _as_tuple(value: Any, what: str, where: str) -> tuple[bool, tuple[Tensor, ...]]:
    single = not isinstance(value, tuple)
    if single and not isinstance(value, Tensor):
        raise TypeError(
            f"The {what} given to {where} must be either a Tensor or a tuple of Tensors but the given {what} has type {type(value)}."
        )
    items = (value,) if single else value
    for i, item in enumerate(items):
        if not isinstance(item, Tensor):
            raise TypeError(
                f"The {what} given to {where} must be either a Tensor or a tuple of Tensors but the value at index {i} has type {type(item)}."
            )
    return single, items


def _prepare(inputs: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.clone().requires_grad_() for x in inputs)
    return tuple(x.detach().requires_grad_() for x in inputs)


def _filled(
    grads: Sequence[Any],
    like: Sequence[Tensor],
    strict: bool,
    what: str = "The output of the user-provided function",
    linear: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients, zeros where there is none; in strict mode RuntimeError there and, `linear`, where they do not
    depend on the inputs.
    """
    for i, g in enumerate(grads):
        if strict and g is None:
            raise RuntimeError(f"{what} is independent of input {i}. This is not allowed in strict mode.")
        if strict and linear and not g.requires_grad:
            raise RuntimeError(
                f"The jacobian of the user-provided function is independent of input {i}. This is not allowed in strict mode when create_graph=True."
            )
    return tuple(rushlight.zeros_like(x) if g is None else g for g, x in zip(grads, like, strict=True))


def _differentiable(outputs: Sequence[Tensor], strict: bool) -> None:
    """RuntimeError in strict mode for outputs that no gradient reaches."""
    for i, out in enumerate(outputs):
        if strict and not out.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in a differentiable manner from the "
                "input when running in strict mode."
            )


def _single_element(out: Any, strict: bool, where: str) -> Tensor:
    """The result of a function whose second derivatives are asked for: RuntimeError unless it is one tensor with one element."""
    single, outputs = _as_tuple(out, "outputs of the user-provided function", where)
    _differentiable(outputs, strict)
    if not single:
        raise RuntimeError(f"The function given to {where} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {where} should contain a single element")
    return outputs[0]


def _depends(first: Sequence[Tensor], strict: bool) -> None:
    """RuntimeError in strict mode for first derivatives that do not depend on the inputs."""
    for i, f in enumerate(first):
        if strict and not f.requires_grad:
            raise RuntimeError(
                f"While computing the hessian, found that the jacobian of the user-provided function with respect to input {i} is independent of the "
                "input. This is not allowed in strict mode. You should ensure that your function is twice differentiable and that the jacobian depends "
                "on the inputs (this would be violated by a linear function for example)."
            )


def _directions(v: Any, like: Sequence[Tensor], where: str) -> tuple[Tensor, ...]:
    """The vectors `v`, one for each tensor and of its shape."""
    found = _as_tuple(v, "v", where)[1]
    if len(like) == 1 != len(found):
        raise RuntimeError("The given v should contain a single Tensor.")
    if len(found) != len(like):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(found)}.")
    for i, (each, x) in enumerate(zip(found, like, strict=True)):
        if each.shape != x.shape:
            entry = "" if len(like) == 1 else f"Entry {i} in "
            raise RuntimeError(f"{entry}v has invalid size: should be {x.shape!r} but got {each.shape!r}.")
    return found


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
            if len(outputs) != 1 or outputs[0].numel() != 1:
                raise RuntimeError(
                    "The vector v can only be None if the user-provided function returns a single Tensor with a single element."
                )
            seeds: Any = (None,)
        else:
            seeds = _directions(v, outputs, "vjp")
        _differentiable(outputs, strict)
        reached = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
        grads: Any = (None,) * len(given)
        if reached:
            grads = grad(
                [o for o, _ in reached],
                given,
                [s for _, s in reached],
                create_graph=create_graph,
                retain_graph=True,
                allow_unused=True,
            )
        found = _filled(grads, given, strict, linear=create_graph)
    result = _finish(outputs, create_graph)
    found = _finish(found, create_graph)
    return result[0] if out_single else result, found[0] if single else found


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), Jacobian @ v), by differentiating the vector-Jacobian product in its vector (the double-backward
    trick).
    """
    with enable_grad():
        _, given = _as_tuple(inputs, "inputs", "jvp")
        given = _prepare(given, create_graph)
        tangents = tuple(rushlight.ones_like(x) for x in given) if v is None else _directions(v, given, "jvp")
        out_single, outputs = _as_tuple(func(*given), "outputs of the user-provided function", "jvp")
        if v is None and (len(given) != 1 or given[0].numel() != 1):
            raise RuntimeError(
                "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
            )
        _differentiable(outputs, strict)
        dummies = tuple(rushlight.zeros_like(o, requires_grad=True) for o in outputs)
        moving = [(o, s) for o, s in zip(outputs, dummies, strict=True) if o.requires_grad]
        rows: Any = (None,) * len(given)
        if moving:
            rows = grad([o for o, _ in moving], given, [s for _, s in moving], create_graph=True, allow_unused=True)
        first = _filled(rows, given, strict)
        reached = [(f, t) for f, t in zip(first, tangents, strict=True) if f.requires_grad]
        grads: Any = (None,) * len(dummies)
        if reached:
            grads = grad(
                [f for f, _ in reached], dummies, [t for _, t in reached], create_graph=create_graph, allow_unused=True
            )
        found = _filled(grads, outputs, strict, linear=create_graph)
    result, found = _finish(outputs, create_graph), _finish(found, create_graph)
    return (result[0], found[0]) if out_single else (result, found)


def _forward(strategy: str, create_graph: bool, strict: bool, vectorize: bool) -> bool:
    """Whether a Jacobian is computed by columns; raises for what does not go together."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs than inputs, "forward-mode" tends to '
            'be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "reverse-mode":
        return False
    both = "are not supported together (yet). Please either set"
    if create_graph:
        raise NotImplementedError(
            f'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` {both} `create_graph=False` or '
            '`strategy="reverse-mode"`.'
        )
    if strict:
        raise RuntimeError(
            f'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` {both} `strict=False` or `strategy="reverse-mode"`.'
        )
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for `vectorize=True`."
        )
    return True


def _rows_at_once(outputs: Sequence[Tensor], given: Sequence[Tensor], create_graph: bool) -> list[Any]:
    """All rows of the Jacobian from one backward over a batch."""
    found = vjp_rows(outputs, given, basis(outputs), create_graph)
    rows, start = [], 0
    for out in outputs:
        row = []
        for g, x in zip(found, given, strict=True):
            shape = (*out.shape, *x.shape)
            row.append(x.new_zeros(shape) if g is None else g[start : start + out.numel()].reshape(shape))
        rows.append(tuple(row))
        start += out.numel()
    return rows


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """d out[i] / d in[j], with shape out.shape + in.shape for each pair.

    `vectorize` computes all rows at once; `strategy="forward-mode"` (which needs `vectorize`) all columns, which is
    better where the results have more elements than the inputs.  RuntimeError for `strict` together with either,
    NotImplementedError for `create_graph` with forward mode.

        >>> import rushlight as torch
        >>> torch.autograd.functional.jacobian(lambda x: x * x, torch.tensor([1.0, 2.0]), vectorize=True)
        tensor([[2., 0.],
                [0., 4.]])
    """
    if _forward(strategy, create_graph, strict, vectorize):
        single, given = _as_tuple(inputs, "inputs", "jacobian")
        rows: Any = jacfwd(func, tuple(range(len(given))))(*given)
        several = isinstance(rows, (tuple, list)) and rows and isinstance(rows[0], (tuple, list))
        if not several:
            return rows[0] if single else rows
        return tuple(r[0] for r in rows) if single else tuple(rows)
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please either set `strict=False` or "
            "`vectorize=False`."
        )
    with enable_grad():
        single, given = _as_tuple(inputs, "inputs", "jacobian")
        given = _prepare(given, create_graph)
        out_single, outputs = _as_tuple(func(*given), "outputs of the user-provided function", "jacobian")
        _differentiable(outputs, strict)
        rows = []
        if vectorize:
            rows = _rows_at_once(outputs, given, create_graph)
        for i, out in enumerate(() if vectorize else outputs):
            what = f"Output {i} of the user-provided function"
            found: list[list[Tensor]] = [[] for _ in given]
            for element in out.reshape(-1).unbind(0) if out.numel() else ():
                grads: Any = (None,) * len(given)
                if element.requires_grad:
                    grads = grad(element, given, retain_graph=True, create_graph=create_graph, allow_unused=True)
                for held, g in zip(found, _filled(grads, given, strict, what, linear=create_graph), strict=True):
                    held.append(g)
            rows.append(
                tuple(
                    rushlight.stack(held).view(out.shape + x.shape)
                    if held
                    else rushlight.zeros(*out.shape, *x.shape, device=x.device)
                    for held, x in zip(found, given, strict=True)
                )
            )
    rows = [_finish(r, create_graph) for r in rows]
    if single:
        rows = [r[0] for r in rows]
    return rows[0] if out_single else tuple(rows)


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Second derivatives of a function with one scalar result; `vectorize` and the strategy for the outer derivative as
    for `jacobian`.
    """
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    single, given = _as_tuple(inputs, "inputs", "hessian")

    def gradient(*args: Tensor) -> Any:
        out = _single_element(func(*args), strict, "hessian")
        grads: Any = (None,) * len(args)
        if out.requires_grad:
            grads = grad(out.reshape(()), args, create_graph=True, allow_unused=True)
        found = _filled(grads, args, strict=False)  # zeros that depend on nothing: the next line refuses them
        _depends(found, strict)
        return found

    if outer_jacobian_strategy == "forward-mode":
        _forward(outer_jacobian_strategy, create_graph, strict, vectorize)
        found = func_hessian(lambda *args: func(*args).reshape(()), tuple(range(len(given))))(*given)
    else:
        found = jacobian(gradient, given, create_graph=create_graph, strict=strict, vectorize=vectorize)
    return found[0][0] if single else found


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), v @ Hessian)."""
    return _hessian_product(func, inputs, v, create_graph, strict, "vhp")


def _hessian_product(
    func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool, where: str
) -> Any:
    with enable_grad():
        single, given = _as_tuple(inputs, "inputs", where)
        given = _prepare(given, create_graph)
        if v is None and (len(given) != 1 or given[0].numel() != 1):
            raise RuntimeError(
                "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
            )
        seeds: Any = None if v is None else _directions(v, given, where)
        out = _single_element(func(*given), strict, where)
        first = _filled(
            grad(out, given, create_graph=True, allow_unused=True) if out.requires_grad else (None,) * len(given),
            given,
            strict,
        )
        _depends(first, strict)
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
    return _hessian_product(func, inputs, v, create_graph, strict, "hvp")
