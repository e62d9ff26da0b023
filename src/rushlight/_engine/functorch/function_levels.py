"""Custom functions (`autograd.Function`) under transforms: their `vmap` and `jvp` rules, and the rule made from forward
and backward.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from rushlight._base.pytree import spec_text, tree_flatten, tree_unflatten
from rushlight._engine.autograd.function import Function, FunctionNode, _node_class
from rushlight._engine.core.state import GRAD, STATE, TRANSFORMS
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.functorch.batched import BatchedTensor, batched, each_item, in_front, peeled
from rushlight._engine.functorch.dual import become_dual, dual, parts
from rushlight._engine.functorch.transformed import LEVELS, Transformed, top_level

__all__ = ["VmapInfo", "applied"]

VmapInfo = namedtuple("VmapInfo", ("batch_size", "randomness"))
PAGE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


def applied(cls: type[Function], args: Sequence[Any]) -> tuple[bool, Any]:
    """(True, result) if a transform takes part in `cls.apply(*args)`."""
    top = top_level([args])
    if top is None and not LEVELS.stack:
        return False, None
    if cls.__module__.startswith(("rushlight.", "torch.")):  # our own functions without a rule run item by item
        if isinstance(top, BatchedTensor):
            return True, each_item(top.level, cls.apply, args, {})
        return False, None
    if cls.setup_context is Function.setup_context and any(level.kind != "dual" for level in LEVELS.stack):
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override the setup_context "
            f"staticmethod. {PAGE}"
        )
    if top is None:
        return False, None
    return True, _batch(cls, args, top.level) if isinstance(top, BatchedTensor) else _move(cls, args, top.level)


# ***** batches *****


def _batch(cls: type[Function], args: Sequence[Any], level: int) -> Any:
    own = cls.__dict__.get("vmap") is not None or any(
        "vmap" in c.__dict__ for c in cls.__mro__ if c not in (Function, object)
    )
    if cls.generate_vmap_rule and own:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap staticmethod. Please set "
            f"generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity. {PAGE}"
        )
    if cls.generate_vmap_rule:
        return _generated(cls, args, level)
    if not own:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement the vmap staticmethod or set "
            f"generate_vmap_rule=True. {PAGE}"
        )
    leaves, structure = tree_flatten(tuple(args))
    inside = [peeled(a, level) for a in leaves]
    values = [a if v is None else v for a, v in zip(leaves, inside, strict=True)]
    dims = tree_unflatten([None if v is None else 0 for v in inside], structure)
    state = LEVELS.stack[level - 1]
    made = cls.vmap(VmapInfo(state.size, state.randomness), dims, *tree_unflatten(values, structure))
    if not isinstance(made, tuple) or len(made) != 2:
        raise RuntimeError(
            "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with the output. Got a "
            f"{type(made)} instead"
        )
    outputs, out_dims = made
    flat, shape = tree_flatten(outputs)
    places = [out_dims] * len(flat) if isinstance(out_dims, int) or out_dims is None else tree_flatten(out_dims)[0]
    if len(places) != len(flat) or (isinstance(out_dims, tuple) and not isinstance(outputs, tuple)):
        raise RuntimeError(
            f"The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected out_dims={out_dims} to be compatible "
            f"with the structure of `output`. out_dims has structure {spec_text(out_dims)} but output has structure {spec_text(outputs)}. {PAGE}"
        )
    wrapped = []
    for out, dim in zip(flat, places, strict=True):
        plain = dim is None or not isinstance(out, Tensor)
        wrapped.append(out if plain else batched(out.movedim(dim, 0), level))
    return tree_unflatten(wrapped, shape)


def _generated(cls: type[Function], args: Sequence[Any], level: int) -> Any:
    """The function for the whole batch: forward and backward of `cls`, each run on batched tensors."""
    inside = [peeled(a, level) for a in args]
    size = LEVELS.stack[level - 1].size
    marks = [v is not None for v in inside]
    memory: dict[str, Any] = {}

    def wrap(values: Sequence[Any]) -> list[Any]:
        return [batched(v, level) if flag else v for v, flag in zip(values, marks, strict=True)]

    class Whole(Function):
        """The batched form of a custom function."""

        @staticmethod
        def forward(*values: Any) -> Any:
            given = wrap(values)
            output = cls.forward(*given)
            memory["inputs"], memory["output"] = given, output
            flat, memory["shape"] = tree_flatten(output)
            return tuple(in_front(o, level, size) if isinstance(o, Tensor) else o for o in flat)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            inner = _Context(ctx)
            outs = tree_unflatten([batched(o, level) if isinstance(o, Tensor) else o for o in output], memory["shape"])
            cls.setup_context(inner, tuple(wrap(inputs)), outs)
            inner.keep(level)
            ctx.whole = inner

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            inner = ctx.whole.restored(level)
            found = cls.backward(inner, *[None if g is None else batched(g, level) for g in grads])
            found = found if isinstance(found, tuple) else (found,)
            return tuple(_to_input(g, flag, level, size) for g, flag in zip(found, marks, strict=True))

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            inner = ctx.whole.restored(level)
            moved = cls.jvp(
                inner,
                *[t if t is None or not flag else batched(t, level) for t, flag in zip(tangents, marks, strict=True)],
            )
            return tuple(in_front(m, level, size) for m in (moved if isinstance(moved, tuple) else (moved,)))

    Whole.__name__ = Whole.__qualname__ = cls.__name__
    made = Whole.apply(*[a if v is None else v for a, v in zip(args, inside, strict=True)])
    flat = [batched(o, level) if isinstance(o, Tensor) else o for o in made]
    return tree_unflatten(flat, memory["shape"])


def _to_input(grad: Any, flag: bool, level: int, size: int) -> Any:
    """The gradient of the tensor inside: summed over the batch if all items share the input."""
    if grad is None:
        return None
    whole = in_front(grad, level, size)
    return whole if flag else whole.sum(0)


class _Context:
    """The context that the user's code of a batched function sees: it saves the tensors inside batched ones."""

    to_save: tuple[Any, ...]
    marks: list[bool]

    def __init__(self, ctx: Any) -> None:
        self.ctx, self.to_save = ctx, ()
        self.restoring: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ctx, name)

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for backward."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for forward mode."""
        self.to_save = tensors

    def keep(self, level: int) -> None:
        """Pass the saved tensors to the real context."""
        inside = [peeled(t, level) for t in self.to_save]
        self.marks = [v is not None for v in inside]
        values = [t if v is None else v for t, v in zip(self.to_save, inside, strict=True)]
        self.ctx.save_for_backward(*values)
        self.ctx.save_for_forward(*values)

    def restored(self, level: int) -> _Context:
        """This context with `saved_tensors` batched again."""
        self.restoring = level
        return self

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors, as the user saved them."""
        assert self.restoring is not None
        return tuple(
            batched(t, self.restoring) if flag else t
            for t, flag in zip(self.ctx.saved_tensors, self.marks, strict=True)
        )


# ***** tangents *****


def _move(cls: type[Function], args: Sequence[Any], level: int) -> Any:
    pairs = [parts(a, level) for a in args]
    values = tuple(a if p is None else p[0] for a, p in zip(args, pairs, strict=True))
    output, ctx = _with_context(cls, values)
    if cls.jvp is Function.jvp:
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )
    given = [_tangent_of(ctx, a, p) for a, p in zip(args, pairs, strict=True)]
    versions = [t._version if isinstance(t, Tensor) and type(t) is Tensor else None for t in given]
    if ctx.saved_for_forward is None:  # what backward needs is not there for forward mode
        ctx.saved_for_forward = ()
    tangents = cls.jvp(ctx, *given)
    ctx.saved_for_forward = None
    flat = output if isinstance(output, tuple) else (output,)
    moved = tangents if isinstance(tangents, tuple) else (tangents,)
    if len(moved) != len(flat):
        raise RuntimeError(
            f"Function's jvp returned an invalid number of forward gradients (expected {len(flat)} but got {len(moved)})"
        )
    plain = {id(t) for t in ctx._non_differentiable or ()}
    made = []
    for number, (out, tangent) in enumerate(zip(flat, moved, strict=True)):
        _check_tangent(out, tangent, number, id(out) in plain)
        place = next((i for i, v in enumerate(values) if v is out), None)
        if tangent is None:
            made.append(out)
        elif place is None:
            _check_view(out, tangent, values, pairs)
            made.append(dual(out, tangent, level))
        else:  # an input that was changed in place
            made.append(_changed(args[place], pairs[place], tangent, versions[place], level))
    return tuple(made) if isinstance(output, tuple) else made[0]


def _with_context(cls: type[Function], values: tuple[Any, ...]) -> tuple[Any, Any]:
    """The result recorded in the graph, and the context that the user's code filled."""
    output, node = cls._applied(values, {})
    if node is not None:
        return output, node
    # The values belong to another level too: `setup_context` gets them as they are at this level.
    node = _node_class(cls)(cls, tuple(isinstance(v, Tensor) and v.requires_grad for v in values))
    word = STATE.word
    STATE.word = word & ~GRAD
    try:
        if cls.setup_context is not Function.setup_context:
            cls.setup_context(node, values, output)
        else:
            cls.forward(node, *values)
    finally:
        STATE.word = word
    return output, node


def _tangent_of(ctx: FunctionNode, arg: Any, pair: Any) -> Any:
    """The tangent that `jvp` gets for an argument; zeros for tensors without one, unless the context asks for None."""
    if pair is not None:
        return pair[1]
    if (
        isinstance(arg, Tensor)
        and ctx._materialize
        and (arg._spec.dtype.is_floating_point or arg._spec.dtype.is_complex)
    ):
        return arg.new_zeros(tuple(arg.shape))
    return None


def _check_tangent(out: Any, tangent: Any, number: int, plain: bool) -> None:
    """RuntimeError if a result of `jvp` cannot be the tangent of an output."""
    if tangent is None:
        return
    if not isinstance(tangent, Tensor):
        raise RuntimeError(f"expected Variable or None (got {type(tangent).__name__}) for grad output {number}.")
    if plain or not isinstance(out, Tensor) or not (out._spec.dtype.is_floating_point or out._spec.dtype.is_complex):
        raise RuntimeError(
            f"Function's jvp returned a gradient at position {number}, but  the corresponding forward output is not a differentiable Tensor."
            "You should return None at that position instead."
        )
    if not (tangent._spec.dtype.is_floating_point or tangent._spec.dtype.is_complex):
        raise RuntimeError(
            f"Expected both tensor and its forward grad to be floating point or complex, but the forward gradient is {tangent.dtype}"
        )
    if tuple(tangent.shape) != tuple(out.shape):
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of "
            f"size {list(out.shape)} while the given forward gradient is of size {list(tangent.shape)}."
        )


def _base_of(x: Tensor) -> Tensor:
    return x if x._base is None else x._base


def _check_view(out: Tensor, tangent: Tensor, values: Sequence[Any], pairs: Sequence[Any]) -> None:
    """RuntimeError if an output is a view of an input, but its tangent is not the same view of the input's tangent."""
    if out._base is None or any(isinstance(x, Transformed) for x in (out, tangent)):
        return
    for value, pair in zip(values, pairs, strict=True):
        if pair is None or isinstance(pair[1], Transformed) or _base_of(value) is not out._base:
            continue
        if tangent._base is None:
            raise RuntimeError(
                "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."
            )
        if tangent._base is not _base_of(pair[1]):
            what = "the given grad input" if pair[1]._base is None else "the same base as the given grad input"
            raise RuntimeError(f"A custom Function is returning a view but the jvp is not returning a view of {what}.")
        return


def _changed(arg: Any, pair: Any, tangent: Tensor, version: int | None, level: int) -> Any:
    """An argument that `forward` changed in place, with its new tangent; `version` is that of the old one."""
    if pair is None:
        become_dual(arg, level, tangent)
        parts(arg, level)[1].copy_(tangent)  # type: ignore[index]
        return arg
    if version is not None and pair[1]._version == version:
        raise RuntimeError(
            "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an input inplace, then the "
            "jvp function must modify the corresponding gradient inplace."
        )
    if tangent is not pair[1] and not isinstance(tangent, Transformed):
        raise RuntimeError(
            "An inplace custom Function is not returning the forward mode gradients as-is. If the forward is modifying an input inplace, then the "
            "jvp function must modify the gradient inplace and return it as-is."
        )
    return arg


TRANSFORMS["function"] = applied
