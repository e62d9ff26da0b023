"""Reverse mode as transforms: `grad`, `grad_and_value`, `vjp`, `jacrev`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.tracebacks import shorten
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import enable_grad, is_grad_enabled
from rushlight._engine.functorch.batched import for_all, levels_shared, lifted
from rushlight._engine.functorch.gradients import cut, depends_on_others, fresh, vjp_through
from rushlight._engine.functorch.transformed import LEVELS, Level, tensors_in
from rushlight._surface.functorch.trees import (
    check_argnums,
    check_aux,
    check_real,
    chosen,
    name_of,
    replaced,
    tensors_of,
    tree_flatten,
    tree_unflatten,
)
from rushlight._surface.functorch.vmap import vmap
from rushlight._surface.registry import SPACES

T = SPACES["torch"]

__all__ = ["grad", "grad_and_value", "jacrev", "vjp"]


def _own(x: Any) -> Any:
    """An argument as a leaf of the transform: one for every item of the batches that are running."""
    if not isinstance(x, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
    for level in LEVELS.stack:
        if level.kind == "vmap":
            x = lifted(x, level.number, level.size)
    return fresh(x)


def _without(tree: Any, own: Sequence[Any]) -> Any:
    leaves, structure = tree_flatten(tree)
    return tree_unflatten([_shown(leaf, own) for leaf in leaves], structure)


def _shown(x: Any, own: Sequence[Any]) -> Any:
    """The result as seen outside: cut from the transform; one tensor for all items where `_own` alone made it a batch."""
    return for_all(cut(x, own), levels_shared([x])) if isinstance(x, Tensor) else x


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of `func` and its value: `(gradient, value)`, or `(gradient, (value, aux))`
    with `has_aux`.

    See `grad` for the arguments.

        >>> import rushlight as torch
        >>> torch.func.grad_and_value(lambda x: (x * x).sum())(torch.tensor([1.0, 2.0]))
        (tensor([2., 4.]), tensor(5.))
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            leaves, structure = tree_flatten(chosen(args, argnums))
            with Level("grad", given=list(tensors_in((args, kwargs)))), enable_grad():
                own = [_own(x) for x in leaves]
                output = func(*replaced(args, argnums, tree_unflatten(own, structure)), **kwargs)
                aux = None
                if has_aux:
                    if not (isinstance(output, tuple) and len(output) == 2):
                        raise RuntimeError(
                            "grad_and_value(f)(*args): output of function f should be a tuple: (output, aux) if has_aux is True"
                        )
                    output, aux = output
                    check_aux(aux)
                if not isinstance(output, Tensor):
                    raise RuntimeError(
                        f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(output)}"
                    )
                if output.ndim:
                    raise RuntimeError(
                        f"grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with {output.ndim} dims. Maybe you wanted to use "
                        "the vjp or jacrev APIs instead?"
                    )
                if not output.dtype.is_floating_point and output.requires_grad:
                    raise RuntimeError(
                        f"grad can be implicitly created only for real scalar outputs but got {output.dtype!r}"
                    )
                graph = depends_on_others([output], own)
                found = (
                    vjp_through([output], own, [T["ones_like"](output)], graph, keep=False)
                    if output.requires_grad
                    else [None] * len(own)
                )
            same = levels_shared([output])
            grads = [
                T["zeros_like"](x) if g is None else for_all(cut(g, own), same)
                for x, g in zip(leaves, found, strict=True)
            ]
            gradient = tree_unflatten(grads, structure)
            value = _shown(output, own)
            return (gradient, (value, _without(aux, own))) if has_aux else (gradient, value)
        except BaseException as error:
            shorten(error)
            raise

    return wrapped


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of `func`, whose result is a tensor without dims.

    - `argnums`: the argument to differentiate by, or a tuple of them (then a tuple comes back); an argument may be
      nested.
    - `has_aux`: `func` returns `(result, aux)`, and the new function `(gradient, aux)`.

    RuntimeError where the result is no scalar tensor.  Gradients of gradients, and of batches, are taken by nesting.

        >>> import rushlight as torch
        >>> torch.func.grad(torch.sin)(torch.tensor(0.0))
        tensor(1.)
        >>> per_sample = torch.func.vmap(torch.func.grad(lambda w, x: (w * x).sum() ** 2), in_dims=(None, 0))
        >>> per_sample(torch.ones(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[ 6., 12.],
                [42., 56.]])
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            gradient, value = both(*args, **kwargs)
            return (gradient, value[1]) if has_aux else gradient
        except BaseException as error:
            shorten(error)
            raise

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`(func(*primals), vjp_fn)`: `vjp_fn(cotangents)` is the product of the cotangents with the Jacobian, a tuple with
    one entry a primal.

    With `has_aux`, `func` returns `(result, aux)` and this `(result, vjp_fn, aux)`.  RuntimeError where the result
    holds anything but tensors, or where the cotangents are not nested like it.

        >>> import rushlight as torch
        >>> value, pull = torch.func.vjp(torch.sin, torch.tensor([0.0, 1.0]))
        >>> pull(torch.ones(2))
        (tensor([1.0000, 0.5403]),)
    """
    return recorded_vjp(func, primals, has_aux, primals)


def recorded_vjp(func: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool, changeable: Any) -> Any:
    """`vjp`, of a function that may change the tensors in `changeable`."""
    leaves, structure = tree_flatten(primals)
    aux = None
    with Level("grad", given=list(tensors_in((changeable,)))), enable_grad():
        own = [_own(x) for x in leaves]
        output = func(*tree_unflatten(own, structure))
        if has_aux:
            if not (isinstance(output, tuple) and len(output) == 2):
                raise RuntimeError(
                    "vjp(f, *primals): output of function f should be a tuple: (output, aux) if has_aux is True"
                )
            output, aux = output
            check_aux(aux)
        outs, shape = tensors_of(output, "vjp(f, *primals): expected f(*primals) to return only tensors")
        if not outs:
            raise RuntimeError(
                "vjp(f, *primals): Expected f to be a function that has non-empty output (got output = [])"
            )
        for out in outs:
            if not (out.dtype.is_floating_point or out.dtype.is_complex):
                raise RuntimeError(
                    f"vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype {out.dtype}"
                )
    shown = tree_unflatten([_shown(o, own) for o in outs], shape)

    def vjp_fn(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given: Any = cotangents[0] if len(cotangents) == 1 else cotangents
        cts, found = tree_flatten(given)
        if len(cotangents) != 1 or found != shape:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. cotangents: "
                f"{_short(given)}, primal output: {_short(output)}"
            )
        if any(ct is None and out.numel() != 1 for ct, out in zip(cts, outs, strict=True)):
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        cts = [T["ones_like"](out).detach() if ct is None else ct for ct, out in zip(cts, outs, strict=True)]
        for i, (ct, out) in enumerate(zip(cts, outs, strict=True)):
            if ct.shape != out.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {ct.shape!r} and output[{i}] has a shape of {out.shape!r}."
                )
        cts = [ct if ct.dtype is out.dtype else ct.to(out.dtype) for ct, out in zip(cts, outs, strict=True)]
        graph = (
            create_graph if create_graph is not None else is_grad_enabled() and depends_on_others([*outs, *cts], own)
        )
        grads = vjp_through(outs, own, cts, graph)
        same = levels_shared([*outs, *cts])
        filled = [
            T["zeros_like"](x) if g is None else for_all(cut(g, own), same) for x, g in zip(leaves, grads, strict=True)
        ]
        return tree_unflatten(filled, structure)

    return (shown, vjp_fn, _without(aux, own)) if has_aux else (shown, vjp_fn)


def _short(tree: Any) -> str:
    if isinstance(tree, (tuple, list)):
        inner = ", ".join(_short(t) for t in tree)
        return f"({inner}{',' if len(tree) == 1 else ''})" if isinstance(tree, tuple) else f"[{inner}]"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{k!r}: {_short(v)}" for k, v in tree.items()) + "}"
    return "*"


def basis(tensors: Sequence[Tensor]) -> list[Any]:
    """The unit vectors of the space of all these tensors together: for each tensor one row a unit vector, its own shape
    after that.
    """
    total = sum(t.numel() for t in tensors)
    made, start = [], 0
    for t in tensors:
        count = t.numel()
        rows = T["zeros"](total, count, dtype=t.dtype, device=t.device)
        rows.diagonal(-start).fill_(1)
        made.append(rows.reshape(total, *t.shape))
        start += count
    return made


def jacrev(
    func: Callable[..., Any],
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func` by reverse mode: one row for each element of the result, all rows as
    one batch.

    The Jacobian has the result's dims, then the argument's; where result and arguments are nested, so is it (results
    outside).  `chunk_size` rows are computed at a time.  See `grad` for `argnums` and `has_aux`.

        >>> import rushlight as torch
        >>> torch.func.jacrev(lambda x: x * x)(torch.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            check_argnums(argnums, len(args))
            check_real("jacrev", tree_flatten(args)[0], "input")

            def reduced(*values: Any) -> Any:
                return func(*replaced(args, argnums, values[0] if isinstance(argnums, int) else values), **kwargs)

            found = recorded_vjp(reduced, chosen(args, argnums, as_tuple=True), has_aux, (args, kwargs))
            output, vjp_fn = found[0], found[1]
            outs, shape = tensors_of(output, "jacrev: expected f(*args) to return only tensors")
            check_real("jacrev", outs, "output")
            inputs, structure = tree_flatten(chosen(args, argnums))
            rows = vmap(lambda *cts: tree_flatten(vjp_fn(tree_unflatten(list(cts), shape)))[0], chunk_size=chunk_size)(
                *basis(outs)
            )
            jacobian, start = [], 0
            for out in outs:
                parts = [
                    r[start : start + out.numel()].reshape(*out.shape, *x.shape)
                    for r, x in zip(rows, inputs, strict=True)
                ]
                jacobian.append(tree_unflatten(parts, structure))
                start += out.numel()
            made = tree_unflatten(jacobian, shape)
            return (made, found[2]) if has_aux else made
        except BaseException as error:
            shorten(error)
            raise

    return wrapped


__all__ += ["basis", "name_of", "recorded_vjp"]
