"""`gradcheck` for functions of sparse tensors: strided tensors stand for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.autograd.function import Function
from rushlight.autograd.gradcheck import GradcheckError, set_stand_in
from rushlight.sparse.parts import gather, in_layout_of, is_sparse, to_dense, with_parts, with_values
from rushlight.sparse.tensors import bare

__all__ = ["as_sparse_gradcheck", "strided_problem"]


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """`gradcheck` that also takes functions with sparse results, and varies every element of a sparse input.

    With `masked=True` only the entries that the inputs have are varied.

    >>> import rushlight as torch
    >>> check = torch.sparse.as_sparse_gradcheck(torch.autograd.gradcheck)
    >>> x = torch.tensor([[0.0, 1.5], [2.5, 0.0]], dtype=torch.float64).to_sparse().requires_grad_()
    >>> check(lambda s: s * s, (x,), masked=True)
    True
    """

    @functools.wraps(gradcheck)
    def check(func: Any, inputs: Any, **options: Any) -> Any:
        masked = bool(options.pop("masked", False))
        given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        pairs = [_by_values(x, masked) for x in given]

        def strided_func(*args: Any) -> Any:
            found = func(*[maker(a) for (_, maker), a in zip(pairs, args, strict=True)])
            several = isinstance(found, (tuple, list))
            outs = tuple(
                to_dense(o, masked_grad=False) if is_sparse(o) else o for o in (found if several else (found,))
            )
            return outs if several else outs[0]

        return gradcheck(strided_func, tuple(value for value, _ in pairs), **options)

    return check


def _by_values(x: Any, masked: bool) -> tuple[Any, Callable[[Any], Any]]:
    """The values of `x` (of all its elements, unless `masked`) and the function that makes the sparse tensor from them."""
    if not is_sparse(x):
        return x, lambda a: a
    pattern = bare(x)
    if not masked:
        everywhere = in_layout_of(rushlight.ones(tuple(x.shape), dtype=x.dtype, device=x.device), pattern)
        pattern = with_parts(everywhere, gather(to_dense(pattern), everywhere))
    values = pattern._held.detach().clone().requires_grad_(x.requires_grad)
    return values, lambda v: with_values(pattern, v)


# ***** gradcheck of functions as they are *****


class _Elements(Function):
    """All elements of a strided tensor as a sparse one; its gradient is what arrives, made strided."""

    @staticmethod
    def forward(ctx: Any, dense: Any, pattern: Any) -> Any:
        """The places of `pattern` where they are enough, else all that are not zero."""
        there = gather(dense.detach(), pattern)
        made = with_parts(pattern, there)
        whole: Any = to_dense(made) == dense
        return made if bool(whole.all()) else in_layout_of(dense.detach(), pattern)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Strided."""
        return to_dense(grad), None


class _Entries(Function):
    """Values at the places of a pattern; a gradient anywhere else is an error."""

    @staticmethod
    def forward(ctx: Any, values: Any, pattern: Any) -> Any:
        """Sparse."""
        ctx.pattern = pattern
        return with_parts(pattern, values.detach())

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """The gradients of the entries."""
        dense = to_dense(grad)
        kept = gather(dense, ctx.pattern)
        same: Any = to_dense(with_parts(ctx.pattern, kept.detach())) == dense
        if not bool(same.all()):
            raise GradcheckError(
                "Jacobian mismatch: the gradient of a masked sparse input has entries that the input has not"
            )
        return kept, None


def strided_problem(
    func: Callable[..., Any], inputs: tuple[Any, ...], masked: bool
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of strided tensors, and these, that stand for `func` and its inputs."""
    values: list[Any] = []
    patterns = [bare(x) if is_sparse(x) else None for x in inputs]
    for x, pattern in zip(inputs, patterns, strict=True):
        if pattern is None:
            values.append(x)
        else:
            plain = pattern._held if masked else to_dense(pattern)
            values.append(plain.detach().clone().requires_grad_(x.requires_grad))

    def strided_func(*args: Any) -> Any:
        maker = _Entries if masked else _Elements
        made = [a if p is None else maker.apply(a, p) for a, p in zip(args, patterns, strict=True)]
        found = func(*made)
        if any(is_sparse(o) for o in (found if isinstance(found, (tuple, list)) else (found,))):
            raise ValueError(
                "Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of fn for gradcheck."
            )
        return found

    return strided_func, tuple(values)


set_stand_in(strided_problem)
