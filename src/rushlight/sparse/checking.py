"""`gradcheck` for functions of sparse tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight import Tensor
from rushlight._engine.autograd.function import Function
from rushlight._engine.sparse import bare
from rushlight.sparse.parts import gather, in_layout_of, is_sparse, to_dense, with_parts, with_values

__all__ = ["as_sparse_gradcheck"]


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """`gradcheck` that takes functions of sparse tensors: strided ones stand for them.

    With `masked=True` only the entries that the inputs have are varied; otherwise every element is.

    >>> import rushlight as torch
    >>> check = torch.sparse.as_sparse_gradcheck(torch.autograd.gradcheck)
    >>> x = torch.tensor([[0.0, 1.5], [2.5, 0.0]], dtype=torch.float64).to_sparse().requires_grad_()
    >>> check(lambda s: torch.sparse.sum(s * s), (x,), masked=True)
    True
    """

    @functools.wraps(gradcheck)
    def check(func: Any, inputs: Any, **options: Any) -> Any:
        masked = bool(options.pop("masked", False))
        given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        if not any(is_sparse(x) for x in given):
            return gradcheck(func, inputs, **options)
        made, makers = [], []
        for x in given:
            strided, maker = _stand_in(x, masked)
            made.append(strided)
            makers.append(maker)

        def strided_func(*args: Any) -> Any:
            found = func(*[maker(a) for maker, a in zip(makers, args, strict=True)])
            several = isinstance(found, (tuple, list))
            outs = tuple(_strided(o) for o in (found if several else (found,)))
            return outs if several else outs[0]

        return gradcheck(strided_func, tuple(made), **options)

    return check


def _strided(out: Any) -> Any:
    return to_dense(out, masked_grad=False) if is_sparse(out) else out


def _stand_in(x: Any, masked: bool) -> tuple[Any, Callable[[Any], Any]]:
    """A strided tensor for `x`, and the function that makes the sparse tensor from it."""
    if not is_sparse(x):
        return x, lambda a: a
    pattern = bare(x)
    if masked:
        values = pattern._held.detach().clone().requires_grad_(x.requires_grad)
        return values, lambda v: with_values(pattern, v)
    dense = to_dense(pattern).clone().requires_grad_(x.requires_grad)
    return dense, lambda d: _Everywhere.apply(d, pattern)


class _Everywhere(Function):
    """All elements of a strided tensor in the layout of `pattern`, whose places are among those that are not zero."""

    @staticmethod
    def forward(ctx: Any, dense: Any, pattern: Any) -> Any:
        """Sparse, with the places of `pattern` and all others that hold something."""
        made = in_layout_of(dense.detach(), pattern)
        return made if made._nnz() != pattern._nnz() else with_parts(pattern, dense_values(dense, pattern))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Strided."""
        return to_dense(grad), None


def dense_values(dense: Any, pattern: Any) -> Any:
    """The elements of `dense` at the places of `pattern`."""
    return gather(dense.detach(), pattern)
