"""`autograd.Function`: operations whose gradient the user writes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.errors import user_frame
from rushlight._base.lazy import LazyModule
from rushlight._engine.autograd.node import RELEASED, Node, Packed, packed
from rushlight._engine.core.hooks import OPS, bump, last_change
from rushlight._engine.core.state import ANOMALY, GRAD, SAVED_HOOKS, STATE, TRANSFORMS, followed
from rushlight._engine.core.tensor import (
    Tensor,
    alias,
    dispatch_classes,
    edge_of,
    make,
    meta_of,
    plain_classes,
    version_of,
)
from rushlight._engine.indexing.inplace import check_writable, rebase
from rushlight._engine.indexing.view import link_view
from rushlight._types.spec import Spec

inspect: Any = LazyModule("inspect")
anomaly: Any = LazyModule("rushlight._engine.autograd.anomaly")

__all__ = ["Function", "FunctionCtx", "FunctionMeta", "FunctionNode", "once_differentiable"]


class FunctionCtx:
    """The methods of `ctx` for `forward`, `setup_context`, `backward` and `jvp` of a Function."""

    _dirty: tuple[Any, ...] | None
    _materialize: bool
    _non_differentiable: tuple[Any, ...] | None
    _to_save: tuple[Any, ...] | None
    saved_for_forward: tuple[Any, ...] | None = None

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward; they come back as `saved_tensors`, checked for in-place changes."""
        for place, item in enumerate(tensors):
            if item is not None and not isinstance(item, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {place} is of type {type(item).__name__}"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for forward mode."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """These inputs were changed in place; they must be among the outputs."""
        self._dirty = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Deprecated: memory that tensors share is always known."""
        warnings.warn(
            "`mark_shared_storage` is deprecated. Tensors with shared storages are automatically tracked.",
            FutureWarning,
            stacklevel=2,
        )

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """These outputs have no gradient."""
        self._non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether undefined gradients reach backward as zeros (the default) or as None."""
        self._materialize = bool(value)


def _detached(tensor: Tensor) -> Tensor:
    """The same elements outside of any graph; classes with a dispatch say what that is."""
    return tensor.detach() if type(tensor) in dispatch_classes else alias(tensor)


class FunctionBase(FunctionCtx, Node):
    """Members that a context and its Function class share; PyTorch shows the members of a context on the class too."""

    __slots__ = (
        "_cls",
        "_dirty",
        "_materialize",
        "_non_differentiable",
        "_place_list",
        "_released",
        "_saved",
        "_specs",
        "_taken",
        "_to_save",
        "_wanted",
        "needs_input_grad",
    )

    needs_input_grad: tuple[bool, ...]

    def _begin(self, cls: type[Function], needs: tuple[bool, ...]) -> None:
        self._start(())
        self._cls, self.needs_input_grad = cls, needs
        self._dirty = self._non_differentiable = self._to_save = None
        self._materialize, self._released, self._taken = True, False, False
        self._place_list: list[int | None] = []
        self._saved: list[Any] = []
        self._specs: list[Spec | None] = []
        self._wanted: list[int] = []

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return len(self._specs)

    def _places(self) -> Sequence[int | None] | None:
        return self._place_list

    @property
    def requires_grad(self) -> bool:
        """Whether an input wants a gradient."""
        return any(self.needs_input_grad)

    @property
    def to_save(self) -> tuple[Any, ...] | None:
        """The arguments of `save_for_backward`; None before it is called, and after the graph has taken them over."""
        return self._to_save

    @property
    def dirty_tensors(self) -> tuple[Any, ...] | None:
        """The arguments of `mark_dirty`; None before it is called, and after `apply` has returned."""
        return self._dirty

    @property
    def non_differentiable(self) -> tuple[Any, ...] | None:
        """The arguments of `mark_non_differentiable`, or None."""
        return self._non_differentiable

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors (those of `save_for_forward` while `jvp` runs); RuntimeError after they were freed."""
        if self.saved_for_forward is not None:
            return self.saved_for_forward
        if self._released:
            raise RuntimeError(RELEASED)
        if self._cls.clear_saved_tensors_on_access and self._saved:
            if self._taken:
                raise RuntimeError(
                    "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the autograd.Function. Either access "
                    "saved_tensors only once, or set clear_saved_tensors_on_access=False."
                )
            found = tuple([self._restore(entry) for entry in self._saved])
            self._taken, self._saved = True, [None] * len(self._saved)
            return found
        if not self._saved and self._to_save:
            return self._to_save
        return tuple([self._restore(entry) for entry in self._saved])

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def maybe_clear_saved_tensors(self) -> None:
        """Drop the saved tensors."""
        self._release()

    def _restore(self, entry: Any) -> Any:
        if entry is None:
            return None
        tensor, version, number = entry
        if type(tensor) is Packed:
            tensor = tensor.unpack(self, linked=True)
        elif version_of(tensor) != version:
            changed = "" if tensor._storage is None else f" Last changed at: {last_change(tensor._storage)}."
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[torch.{tensor.dtype.name} {list(tensor.shape)}], saved by {self.name()}, is at version {version_of(tensor)}; expected "
                f"version {version} instead.{changed}"
            )
        if number is None:
            return tensor
        out = _detached(tensor)
        self._own(out, number)
        return out

    def _keep(self, outputs: Sequence[Any]) -> None:
        """Move `_to_save` into the graph.  It is emptied first: an output that a pack hook refuses would leave a cycle."""
        wanted, self._to_save = self._to_save or (), None
        # The node of a changed view refers to this one; a reference back would be a cycle
        dirty = {id(t) for t in self._dirty or ()}
        places = {
            id(o): i
            for i, o in enumerate(outputs)
            if isinstance(o, Tensor) and (o._node is self or id(o) in dirty and o._rg)
        }
        kept: list[Any] = []
        for item in wanted:
            if item is None:
                kept.append(None)
                continue
            number = places.get(id(item))
            held: Any = item if number is None else _detached(item)
            version = version_of(item)
            if STATE.word & SAVED_HOOKS and STATE.saved_hooks:
                held = packed(item if number is None else held, *STATE.saved_hooks[-1])
            kept.append((held, version, number))
        self._saved = kept

    def _set_materialize(self, value: bool) -> None:
        self._materialize = bool(value)

    materialize_grads = property(None, _set_materialize)


class FunctionNode(FunctionBase):
    """The context (`ctx`) of one application of a Function, and its node in the graph."""

    __slots__ = ()

    _wants_none = True  # backward may be called with no gradient defined when grads are not materialised

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{type(self).__name__} object at {id(self):#x}>"

    def __init__(self, cls: type[Function], needs: tuple[bool, ...]) -> None:
        self._begin(cls, needs)

    # ***** backward *****

    def _release(self) -> None:
        self._saved, self._released = [], True

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        specs = self._specs
        if self._materialize:
            grads = [
                _zeros(spec) if g is None and spec is not None else g for g, spec in zip(grads, specs, strict=True)
            ]
        outer, STATE.current_node = STATE.current_node, self
        try:
            found = self.apply_boxed(list(grads)) if self._cls.boxed_grads_call else self.apply_boxed(*grads)
        finally:
            STATE.current_node = outer
        found = list(found) if isinstance(found, tuple) else [found]
        count = len(self.needs_input_grad)
        if len(found) > count and all(g is None for g in found[count:]):
            found = found[:count]
        if len(found) != count:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {count}, got {len(found)})"
            )
        for i, is_tensor in enumerate(self._tensors):
            if not is_tensor and found[i] is not None:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different than None at position {i + 1}, but the corresponding forward input was not a "
                    "Variable"
                )
        return [self._check(found[i], place) for place, i in enumerate(self._wanted)]

    def apply_boxed(self, *grads: Any) -> Any:
        """Call the Function's `backward` with gradients, or with one list of them if the Function asks for that."""
        cls = self._cls
        if cls.vjp is Function.vjp:
            return followed(cls.backward)(self, *grads)
        if cls.backward is not Function.backward:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them."
            )
        return followed(cls.vjp)(self, *grads)

    def apply_jvp(self, *tangents: Any) -> Any:
        """The Function's `jvp`: tangents of the outputs."""
        return self._cls.jvp(self, *tangents)

    def _check(self, grad: Any, place: int) -> Any:
        if grad is None:
            return None
        if not isinstance(grad, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(grad).__name__})")
        spec: Spec = self._input_specs[place]
        if grad._spec.shape != spec.shape:
            if not _reducible(grad._spec.shape, spec.shape):
                raise RuntimeError(
                    f"Function {self.name()} returned an invalid gradient at index {place} - got {list(grad.shape)} but expected shape compatible with "
                    f"{list(spec.shape)}"
                )
            grad = grad.sum_to_size(spec.shape)
        return grad if grad._spec.dtype is spec.dtype else OPS["to_dtype"](grad, spec.dtype)

    _input_specs: list[Spec]
    _tensors: list[bool]  # which inputs are tensors


def _reducible(shape: Sequence[int], target: Sequence[int]) -> bool:
    if len(target) > len(shape):
        return False
    return all(t in (1, s) for s, t in zip(shape[len(shape) - len(target) :], target, strict=True))


def _zeros(spec: Spec) -> Tensor:
    return OPS["zeros"](tuple(spec.shape), dtype=spec.dtype, device=spec.device)


class FunctionMeta(type):
    """Gives every Function the class of its nodes, `_backward_cls`, which knows the Function as `_forward_cls`."""

    _backward_cls: type[FunctionNode]

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        cls._backward_cls = type(name + "Backward", (FunctionNode,), {"_forward_cls": cls})
        super().__init__(name, bases, attrs)


class Function(FunctionBase, metaclass=FunctionMeta):
    """Base for operations with a gradient of their own.

    >>> import rushlight as torch
    >>> class Double(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad * 2
    >>> x = torch.ones(2, requires_grad=True)
    >>> Double.apply(x).sum().backward()
    >>> x.grad
    tensor([2., 2.])
    """

    generate_vmap_rule = False
    clear_saved_tensors_on_access = False  # saved tensors can be read once; reading frees them
    boxed_grads_call = False  # backward gets its gradients as one list, which it may empty

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke them on the class itself.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with static forward method: "
            f"{type(self).__name__}.apply(...)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; `forward(ctx, *args)`, or `forward(*args)` together with `setup_context`."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, when `forward` takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(*args: Any, **kwargs: Any) -> Any:
        """`backward(ctx, *grad_outputs)`: one gradient (or None) per input of forward, from one per output."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name for `backward`."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the outputs, for forward mode."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """The function for a batch: `(outputs, out_dims)`, from `info.batch_size` and the dims along which the
        arguments are batched.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`, and record this application where an input requires a gradient.

        Arguments may be given by name. With `setup_context`, defaults of `forward` count as given; without it the
        arguments that backward returns gradients for are those given, the ones by name last.
        """
        made, node = cls._applied(args, kwargs)
        if node is not None and node.saved_for_forward is not None:
            node.saved_for_forward = None
        return made

    @classmethod
    def _applied(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, FunctionNode | None]:
        """The result of `apply`, and its context unless a transform took part."""
        separate = cls.setup_context is not Function.setup_context
        named: dict[str, Any] = {}
        if separate:
            bound = _signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
            if bound.kwargs:  # `setup_context` is given values by position
                raise TypeError(
                    f"forward() got an unexpected keyword argument '{next(iter(bound.kwargs))}': with setup_context none may be keyword-only"
                )
        elif kwargs:
            named, args = kwargs, (*args, *kwargs.values())
        if "exported" in TRANSFORMS:
            handled, made = TRANSFORMS["exported"](cls, args)
            if handled:
                return made, None
        if "function" in TRANSFORMS:
            handled, made = TRANSFORMS["function"](cls, args)
            if handled:
                return made, None
        needs = tuple(isinstance(a, Tensor) and a._rg for a in args)
        node = _node_class(cls)(cls, needs)
        word = STATE.word
        STATE.word = word & ~GRAD
        try:
            if separate:
                output = followed(cls.forward)(*args)
                followed(cls.setup_context)(node, args, output)
            else:
                output = followed(cls.forward)(node, *args[: len(args) - len(named)], **named)
        finally:
            STATE.word = word
        outputs = output if isinstance(output, tuple) else (output,)
        wrapped = _wrap(node, args, outputs, bool(word & GRAD) and any(needs))
        node._dirty = None  # the changed tensor refers to the node; a reference back would be a cycle
        return tuple(wrapped) if isinstance(output, tuple) else wrapped[0], node


@functools.lru_cache(maxsize=256)
def _signature(forward: Any) -> Any:
    return inspect.signature(forward)


def _node_class(cls: type[Function]) -> type[FunctionNode]:
    return cls._backward_cls


_SEVERAL = (
    "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one Tensor. This is not "
    "supported by the current autograd engine. You should either make sure the input is not a view (using .clone() for example) or make your Function "
    "only return one Tensor (potentially splitting it into two Functions: one doing the inplace that returns a single Tensor and a second one that does "
    "the other operations)."
)


def _wrap(node: FunctionNode, args: Sequence[Any], outputs: Sequence[Any], record: bool) -> list[Any]:
    """The outputs, recorded in the graph."""
    node._specs = [o._spec if isinstance(o, Tensor) else None for o in outputs]
    dirty = {id(t) for t in node._dirty or ()}
    for item in node._dirty or ():
        if not any(item is o for o in outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace must all be "
                "outputs of the Function."
            )
        if not any(item is a for a in args):
            told = "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated should be passed to ctx.mark_dirty()."
            if record and item._autograd_meta is not None and item._autograd_meta.base is not None:
                raise RuntimeError(told)
            warnings.warn(told, UserWarning, stacklevel=3)
        check_writable(item, record)
        if record and len(outputs) > 1 and item._autograd_meta is not None and item._autograd_meta.base is not None:
            raise RuntimeError(_SEVERAL)
    if record:
        node._wanted = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a._rg]
        node._input_specs = [args[i]._spec for i in node._wanted]
        node._edges = [edge_of(args[i]) for i in node._wanted]
        node._tensors = [isinstance(a, Tensor) for a in args]
        node._place_list = [
            node._wanted.index(i) if i in node._wanted else None
            for i, is_tensor in enumerate(node._tensors)
            if is_tensor
        ]
        if STATE.word & ANOMALY:
            anomaly.remember(node)
            node._more().place = user_frame()
    plain = {id(t) for t in node._non_differentiable or ()}
    several = (
        sum(
            isinstance(o, Tensor)
            and id(o) not in plain
            and (o._spec.dtype.is_floating_point or o._spec.dtype.is_complex)
            for o in outputs
        )
        > 1
    )
    wrapped: list[Any] = []
    for number, out in enumerate(outputs):
        wrapped.append(_wrap_one(node, args, out, number, record, id(out) in dirty, id(out) in plain, several))
    if record:
        inputs = {id(a) for a in args}  # one that is returned unchanged keeps its own history where it is saved
        replaced = {id(o): w for o, w in zip(outputs, wrapped, strict=True) if id(o) not in inputs}
        node._to_save = tuple([replaced.get(id(t), t) if t is not None else None for t in node._to_save or ()])
        node._keep(wrapped)
    return wrapped


def _wrap_one(
    node: FunctionNode,
    args: Sequence[Any],
    out: Any,
    number: int,
    record: bool,
    dirty: bool,
    plain: bool,
    several: bool,
) -> Any:
    if not isinstance(out, Tensor):
        return out
    is_input = any(out is a for a in args)
    differentiable = record and not plain and (out._spec.dtype.is_floating_point or out._spec.dtype.is_complex)
    if dirty:
        if out._storage is not None:
            bump(out._storage)
        if differentiable:
            rebase(out, node, None)
            if number:
                meta_of(out).output_nr = number
        return out
    if is_input and out._rg and not differentiable:
        return _detached(out)
    if is_input:
        if (
            differentiable
            and node._cls.setup_context is not Function.setup_context
            and any(out is t for t in node._to_save or ())
        ):
            raise RuntimeError(
                "An input that has been returned as-is as output is being saved for backward. This is not supported if you override setup_context. You "
                "should return and save a view of the input instead, e.g. with x.view_as(x) or setup ctx inside the forward function itself."
            )
        out = _same(out)
    if differentiable:
        out._node, out._rg = node, True
        if out._autograd_meta is not None and out._autograd_meta.base is not None:
            out._autograd_meta.creation = "multi" if several else "custom"
        if number or out._autograd_meta is not None:  # a tensor from elsewhere had a number before
            meta_of(out).output_nr = number
    elif plain:
        out._node, out._rg = None, False
    return out


def _same(x: Tensor) -> Any:
    """A new tensor over the memory of an input that is returned unchanged, so that the input keeps its own history."""
    if type(x) not in plain_classes:
        word = STATE.word
        STATE.word = word & ~GRAD
        try:
            return x.view_as(x)
        finally:
            STATE.word = word
    view = make(x._storage, x._spec, x._ptr)
    link_view(x, view, "custom")
    return view


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """For a `backward` that cannot itself be differentiated: doing so raises."""

    @functools.wraps(fn)
    def wrapped(ctx: Any, *grads: Any) -> Any:
        before = STATE.word
        STATE.word = before & ~GRAD
        try:
            outputs = fn(ctx, *grads)
        finally:
            STATE.word = before
        if not before & GRAD or not any(isinstance(g, Tensor) and g._rg for g in grads):
            return outputs
        found = outputs if isinstance(outputs, tuple) else (outputs,)
        error = _Twice([g for g in grads if isinstance(g, Tensor) and g._rg])
        for out in found:
            if isinstance(out, Tensor):
                out._node, out._rg = error, True
        return outputs

    return wrapped


class _Twice(Node):
    """Raises when the backward of a `once_differentiable` function is differentiated."""

    __slots__ = ()

    def __init__(self, grads: Sequence[Tensor]) -> None:
        self._start([edge_of(g) for g in grads])

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")
