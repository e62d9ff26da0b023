"""`Function`, its context, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rushlight import Tensor
from rushlight._engine.autograd.function import Function, FunctionCtx, FunctionMeta, once_differentiable
from rushlight._engine.autograd.function import FunctionNode as BackwardCFunction

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "FunctionMeta",
    "InplaceFunction",
    "NestedIOFunction",
    "once_differentiable",
]


class InplaceFunction(Function):
    """An old base for functions that can work in place; it only remembers whether they should."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


class NestedIOFunction(Function):
    """An old base for functions of nested tuples and lists of tensors: `forward_extended` and `backward_extended` are
    methods of an instance.

    >>> import rushlight as torch
    >>> class Swap(torch.autograd.function.NestedIOFunction):
    ...     def forward_extended(self, pair):
    ...         return [pair[1] * 2, pair[0]]
    ...     def backward_extended(self, doubled, same):
    ...         return [same, doubled * 2]
    >>> x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> Swap()((x, y))[0].sum().backward()
    >>> y.grad
    tensor([2., 2.])

    What backward returns is flattened, one gradient (or None) for each tensor.  In PyTorch instances cannot be called
    any more: new programs write a `Function`.
    """

    _context: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        needs: tuple[bool, ...] = ()
        self._begin(type(self), needs)

    def __call__(self, *inputs: Any) -> Any:
        self._nested_input = inputs
        flat = _Flattened.apply(self, *_tensors(inputs))
        return _unflatten(list(flat), self._nested_output)

    _do_forward = __call__

    def forward(self, *args: Any) -> Any:  # type: ignore[override]
        """The outputs of `forward_extended` one after the other."""
        self._nested_output = self.forward_extended(*_unflatten([x.detach() for x in args], self._nested_input))  # type: ignore[func-returns-value]
        del self._nested_input
        return tuple(_tensors(self._nested_output))

    def backward(self, *gradients: Any) -> Any:  # type: ignore[override]
        """The gradients of `backward_extended` one after the other."""
        found = self.backward_extended(*_unflatten(list(gradients), self._nested_output))  # type: ignore[func-returns-value]
        return tuple(_tensors(found, none=True))

    def save_for_backward(self, *args: Any) -> None:
        """Keep nested tensors; they come back as `saved_tensors` in the same nesting."""
        self._to_save_nested = args
        super().save_for_backward(*_tensors(args))

    @property
    def saved_tensors(self) -> Any:
        """The saved tensors, in the nesting that they had."""
        flat = super().saved_tensors if self._context is None else self._context.saved_tensors
        return _unflatten(list(flat), self._to_save_nested)

    def mark_dirty(self, *args: Any, **kwargs: Any) -> None:
        """These inputs, or what is nested in them, were changed in place."""
        super().mark_dirty(*_tensors((args, kwargs)))

    def mark_non_differentiable(self, *args: Any, **kwargs: Any) -> None:
        """These outputs, or what is nested in them, have no gradient."""
        super().mark_non_differentiable(*_tensors((args, kwargs)))

    def forward_extended(self, *input: Any) -> None:
        """To be written: nested outputs from nested inputs."""
        raise NotImplementedError

    def backward_extended(self, *grad_output: Any) -> None:
        """To be written: gradients of the inputs, from those of the outputs in their nesting."""
        raise NotImplementedError


class _Flattened(Function):
    """One call of a `NestedIOFunction`, which goes through the graph as its first argument."""

    @staticmethod
    def forward(ctx: Any, function: NestedIOFunction, *tensors: Any) -> Any:
        outputs = function.forward(*tensors)
        ctx.save_for_backward(*function.to_save or ())
        if function.dirty_tensors:
            ctx.mark_dirty(*function.dirty_tensors)
        if function.non_differentiable:
            ctx.mark_non_differentiable(*function.non_differentiable)
        function._context = ctx
        ctx.function = function
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *ctx.function.backward(*gradients)


def _tensors(value: Any, none: bool = False) -> Iterator[Any]:
    """The tensors in nested tuples, lists and dicts; with `none` the Nones as well."""
    if isinstance(value, Tensor) or (value is None and none):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item, none)
    elif value is not None:
        accepted = "Tensors or None" if none else "Tensors"
        raise ValueError(
            f"Auto nesting doesn't know how to process an input object of type {type(value).__name__}. Accepted types: {accepted}, or "
            "lists/tuples of them"
        )


def _unflatten(flat: list[Any], like: Any) -> Any:
    """The next of `flat` in a nesting; what is taken is removed."""
    if isinstance(like, (list, tuple)):
        items = [None if item is None else _unflatten(flat, item) for item in like]
        made: Any = type(like)
        return made(*items) if hasattr(like, "_fields") else made(items)
    if isinstance(like, dict):
        return {key: _unflatten(flat, item) for key, item in like.items()}
    return None if like is None else flat.pop(0)
