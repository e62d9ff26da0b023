"""Operators of a user's as parts of graphs and batches: a custom function made from an operator's rules."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight._interface.base import trace_marks, tree_flatten, tree_unflatten
from rushlight.autograd.function import Function

__all__ = ["applied_class"]


class _Call:
    """One call on its way through the graph: how its values lie in each other, and its results."""

    __slots__ = ("inputs", "outputs")

    def __init__(self, structure: Any) -> None:
        self.inputs, self.outputs = structure, None


_CLASSES: dict[int, tuple[Any, Any, type]] = {}


def applied_class(op: Any) -> Any:
    """The custom function for an operator, made anew when its rules changed."""
    held = _CLASSES.get(id(op))
    if held is None or held[0] is not op or held[1] is not op.vmap:
        held = _CLASSES[id(op)] = (op, op.vmap, _made(op))
    return held[2]


class _Applied(Function):
    """Common base of these classes.  The last argument is the call, those before it the leaves of the operator's values."""

    op: Any

    @classmethod
    def run(cls, values: list[Any]) -> Any:
        """Apply the operator to the values of its arguments."""
        leaves, structure = tree_flatten(values)
        call = _Call(structure)
        return tree_unflatten(list(cls.apply(*leaves, call)), call.outputs)

    @classmethod
    def _forward(cls, args: tuple[Any, ...]) -> tuple[Any, ...]:
        *leaves, call = args
        found = cls.op.backend(tree_unflatten(leaves, call.inputs))
        flat, call.outputs = tree_flatten(found)
        return tuple(flat)

    @classmethod
    def _setup(cls, ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        op, (*leaves, call) = cls.op, inputs
        ctx.call = call
        if op.setup is None:
            return
        arguments = op._schema.arguments
        values = tree_unflatten(leaves, call.inputs)
        given = {
            "inputs": tuple(v for a, v in zip(arguments, values, strict=True) if not a.kwarg_only),
            "output": tree_unflatten(list(output), call.outputs),
        }
        named = {a.name: v for a, v in zip(arguments, values, strict=True) if a.kwarg_only}
        if named:
            given["keyword_only_inputs"] = named
        op.setup(ctx=ctx, **given)

    @classmethod
    def _backward(cls, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        op, call = cls.op, ctx.call
        if op.backward is None:
            raise RuntimeError(
                f"Trying to backward through {op} but no autograd formula was registered. Please use register_autograd to add one."
            )
        shaped = tree_unflatten(list(grads), call.outputs)
        needs = ctx.needs_input_grad
        flags = tree_unflatten(list(needs[:-1]), call.inputs)
        count = len(op._schema.positional)
        try:
            ctx.needs_input_grad = tuple(flags[:count])
            found = op.backward(ctx, *(shaped if isinstance(shaped, tuple) else (shaped,)))
        finally:
            ctx.needs_input_grad = needs
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != count:
            raise RuntimeError(
                f"the backward of {op} returned an incorrect number of gradients (expected {count}, got {len(found)})"
            )
        flat: list[Any] = []
        for flag, grad in zip(flags, [*found, *[None] * (len(flags) - count)], strict=True):
            flat += _spread(op, flag, grad)
        return (*flat, None)


def _spread(op: Any, flag: Any, grad: Any) -> list[Any]:
    """The gradients of one argument's leaves."""
    if not isinstance(flag, (list, tuple)):
        return [grad] if tree_flatten(flag)[0] else []
    if grad is None:
        return [None] * len(flag)
    if not isinstance(grad, (list, tuple)) or len(grad) != len(flag):
        raise RuntimeError(
            f"Expected the return from backward of {op} to be of the same structure as the inputs: a list of {len(flag)} gradients"
        )
    return list(grad)


# A trace ends at it: the class is for all programs, and its functions tell of one another by a variable of `_made`.
@trace_marks.runs_apart("makes the class for the calls of an operator")
def _made(op: Any) -> type:
    def forward(*args: Any) -> Any:
        return cls._forward(args)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        cls._setup(ctx, inputs, output)

    def backward(ctx: Any, *grads: Any) -> Any:
        return cls._backward(ctx, grads)

    body = {"op": op, "forward": forward, "setup_context": setup_context, "backward": backward}
    # A custom function of the package has every item of a batch run by itself; one of the user's has a rule.
    body["__module__"] = __name__ if op.vmap is None else "torch_ops"
    if op.vmap is not None:
        body["vmap"] = lambda info, in_dims, *args: _batch(op, info, in_dims, args)
    name = f"GeneratedBackwardFor_{op.namespace}_{op._opname}_{op._overloadname}"
    static = {
        key: staticmethod(value) if callable(value) and key not in ("op",) else value for key, value in body.items()
    }
    cls: Any = type(name, (_Applied,), static)
    return cls


def _batch(op: Any, info: Any, in_dims: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, Any]:
    """A whole batch by the user's rule."""
    *leaves, call = args
    values, dims = tree_unflatten(leaves, call.inputs), tree_unflatten(list(in_dims[:-1]), call.inputs)
    positional, named = op.split(values)
    result = op.vmap(info, tuple(dims[: len(positional)]), *positional, **named)
    if not isinstance(result, tuple) or len(result) != 2:
        raise RuntimeError(
            f"Expected the vmap rule of {op} to have two returns, an output and out_dims. Got a {type(result)} instead"
        )
    output, out_dims = result
    flat, call.outputs = tree_flatten(output)
    places = tree_flatten(out_dims)[0] if isinstance(out_dims, (tuple, list)) else [out_dims] * len(flat)
    if len(places) != len(flat):
        raise RuntimeError(f"The vmap rule of {op} returned {len(flat)} outputs and {len(places)} out_dims")
    return tuple(flat), tuple(p if isinstance(o, rushlight.Tensor) else None for p, o in zip(places, flat, strict=True))
