"""Forward mode as transforms: `jvp`, `jacfwd`, `linearize`; and `hessian`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight._base.tracebacks import shorten
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import enable_grad, is_grad_enabled
from rushlight._engine.functorch.dual import dual, parts
from rushlight._engine.functorch.gradients import cut, depends_on_others, fresh, vjp_through
from rushlight._engine.functorch.transformed import Level, tensors_in
from rushlight._surface.functorch.reverse import _own, basis, jacrev
from rushlight._surface.functorch.trees import (
    check_argnums,
    check_aux,
    check_real,
    chosen,
    replaced,
    spec_text,
    tensors_of,
    tree_flatten,
    tree_unflatten,
)
from rushlight._surface.functorch.vmap import over_tangents
from rushlight._surface.registry import SPACES

T = SPACES["torch"]

__all__ = ["hessian", "jacfwd", "jvp", "linearize"]

OTHER_SIZE = (
    "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of size {} while "
    "the given forward gradient is of size {}."
)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """`(func(*primals), the product of its Jacobian with the tangents)`, computed side by side.

    `primals` and `tangents` are tuples nested alike.  With `has_aux`, `func` returns `(result, aux)` and this `(result,
    product, aux)`.  RuntimeError where they are no tuples, differ in structure or shape, or where the result holds
    anything but tensors.

        >>> import rushlight as torch
        >>> torch.func.jvp(torch.sin, (torch.tensor(0.0),), (torch.tensor(2.0),))
        (tensor(0.), tensor(2.))
    """
    return _pushing(func, primals, tangents, strict, has_aux, primals)


def _pushing(
    func: Callable[..., Any], primals: Any, tangents: Any, strict: bool, has_aux: bool, changeable: Any
) -> Any:
    """`jvp`, of a function that may change the tensors in `changeable`."""
    if not isinstance(primals, tuple):
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    values, structure = tree_flatten(primals)
    moves, other = tree_flatten(tangents)
    if structure != other:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python structure. For example, if primals is a tuple of 3 "
            f"tensors, tangents also must be. Got primals with structure {spec_text(primals)} and tangents with structure {spec_text(tangents)}"
        )
    for value in (*values, *moves):
        if not isinstance(value, Tensor):
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected primals to only contain Tensors, got {type(value)}"
            )
    if not values:
        raise RuntimeError("jvp(f, primals, tangents): Expected primals to contain at least one Tensor.")
    for value, move in zip(values, moves, strict=True):
        for which, x in (("primal", value), ("tangent", move)):
            if not (x.dtype.is_floating_point or x.dtype.is_complex):
                raise ValueError(f"Expected {which} to be floating point or complex, but got: {x.dtype}")
        if tuple(value.shape) != tuple(move.shape):
            raise RuntimeError(OTHER_SIZE.format(list(value.shape), list(move.shape)))
    with Level("jvp", given=[*tensors_in((changeable,)), *moves]) as level:
        given = [
            dual(v, m if m.dtype is v.dtype else m.to(v.dtype), level.number)
            for v, m in zip(values, moves, strict=True)
        ]
        output = func(*tree_unflatten(given, structure))
        aux = None
        if has_aux:
            if not (isinstance(output, tuple) and len(output) == 2):
                raise RuntimeError(
                    "jvp(f, primals, tangents): output of function f should be a tuple: (output, aux) if has_aux is True"
                )
            output, aux = output
            check_aux(aux)
        outs, shape = tensors_of(output, "jvp(f, primals, tangents): expected f(*primals) to return only tensors")
        pairs = [parts(o, level.number) for o in outs]
        if strict and any(p is None for p in pairs):
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with strict=True."
            )
        result = tree_unflatten([o if p is None else p[0] for o, p in zip(outs, pairs, strict=True)], shape)
        moved = tree_unflatten(
            [T["zeros_like"](o) if p is None else p[1] for o, p in zip(outs, pairs, strict=True)], shape
        )
        if not has_aux:
            return result, moved
        leaves, tree = tree_flatten(aux)
        plain = [leaf if not isinstance(leaf, Tensor) else (parts(leaf, level.number) or (leaf,))[0] for leaf in leaves]
        return result, moved, tree_unflatten(plain, tree)


def jacfwd(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func` by forward mode: one column for each element of the argument, all as
    one batch.

    Better than `jacrev` where the result has more elements than the argument; see there for the form of the Jacobian.

        >>> import rushlight as torch
        >>> torch.func.jacfwd(lambda x: x * x)(torch.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            check_argnums(argnums, len(args))
            check_real("jacfwd", tree_flatten(args)[0], "input")
            values = chosen(args, argnums, as_tuple=True)
            leaves, structure = tree_flatten(values)
            seen: dict[str, Any] = {}

            def reduced(*given: Any) -> Any:
                return func(*replaced(args, argnums, given[0] if isinstance(argnums, int) else given), **kwargs)

            def push(*tangents: Any) -> Any:
                found = _pushing(
                    reduced, values, tree_unflatten(list(tangents), structure), False, has_aux, (args, kwargs)
                )
                flat, seen["shape"] = tree_flatten(found[1])
                check_real("jacfwd", flat, "output")
                return (flat, found[2]) if has_aux else flat

            rows = over_tangents(push, basis(leaves), randomness)
            if has_aux:
                rows, aux = rows
                flat, tree = tree_flatten(aux)
                aux = tree_unflatten([a[0] for a in flat], tree)
            inner = tree_flatten(chosen(args, argnums))[1]
            jacobian = []
            for row in rows:
                columns, start = [], 0
                for x in leaves:
                    part = row[start : start + x.numel()].movedim(0, -1)
                    columns.append(part.reshape(*row.shape[1:], *x.shape))
                    start += x.numel()
                jacobian.append(tree_unflatten(columns, inner))
            made = tree_unflatten(jacobian, seen["shape"])
            return (made, aux) if has_aux else made
        except BaseException as error:
            shorten(error)
            raise

    return wrapped


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """A function that gives the second derivatives of `func`: forward over reverse mode.

    >>> import rushlight as torch
    >>> torch.func.hessian(lambda x: (x ** 3).sum())(torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`(func(*primals), jvp_fn)`: `jvp_fn(*tangents)` is the Jacobian at `primals` times the tangents, without running
    `func` again.

    The gradient is linear in its cotangents; `jvp_fn` is the transpose of that linear map.

        >>> import rushlight as torch
        >>> value, push = torch.func.linearize(torch.sin, torch.tensor(0.0))
        >>> push(torch.tensor(3.0))
        tensor(3.)
    """
    leaves, structure = tree_flatten(primals)
    with Level("grad"), enable_grad():
        own = [_own(x) for x in leaves]
        output = func(*tree_unflatten(own, structure))
        outs, shape = tensors_of(output, "linearize(f, *primals): expected f(*primals) to return only tensors")
        seeds = [fresh(T["ones_like"](o).detach()) for o in outs]
        grads = vjp_through(outs, own, seeds, True)

    def jvp_fn(*tangents: Any) -> Any:
        moves, other = tree_flatten(tangents)
        if other != structure:
            raise RuntimeError(
                f"Expected the tangents {spec_text(tangents)} to have the same argspec as the primals {spec_text(primals)}"
            )
        for i, (move, x) in enumerate(zip(moves, leaves, strict=True)):
            if move.shape != x.shape:
                raise RuntimeError(
                    f"tangent:{i} with shape {move.shape!r} in flattened pytree doesn't match the shape {x.shape!r} of the corresponding primal."
                )
            if move.dtype is not x.dtype:
                raise RuntimeError(
                    f"tangent:{i} with dtype {move.dtype!r} in flattened pytree doesn't match the dtype {x.dtype!r} of the corresponding primal."
                )
        pairs = [(g, m) for g, m in zip(grads, moves, strict=True) if g is not None]
        mine = [*own, *seeds]
        graph = is_grad_enabled() and depends_on_others([x for pair in pairs for x in pair], mine)
        found = vjp_through([g for g, _ in pairs], seeds, [m for _, m in pairs], graph)
        return tree_unflatten(
            [T["zeros_like"](o).detach() if t is None else cut(t, mine) for o, t in zip(outs, found, strict=True)],
            shape,
        )

    return tree_unflatten([cut(o, own) for o in outs], shape), jvp_fn
