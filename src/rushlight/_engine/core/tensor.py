"""The tensor object: storage, spec, address, and what autograd knows of it.

Only what every tensor needs has a slot of its own; the rest (gradient, hooks, view relation) sits in an `AutogradMeta`
that most tensors never get.  Methods are put on the class by `_surface`, from the operator table.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, cast

from rushlight._base.errors import warn_user
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import INFERENCE, STATE
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.layout import Size
from rushlight._types.spec import Spec

if TYPE_CHECKING:
    from rushlight._engine.autograd.node import Node

__all__ = [
    "BOTH_SIDES", "CHANGED", "AutogradMeta", "Tensor", "alias", "check_unchanged", "dispatch_classes", "edge_of", "make", "meta_of", "plain_classes", "take_state",
    "was_changed", "window_of",
]  # fmt: skip


class AutogradMeta:
    """The rarer facts: `.grad`, hooks, output number, view relation.

    `base` is the tensor this one is a view of (never itself a view); `views` holds weak references to the
    differentiable views of a base; `creation` says in what mode a view was made ("", "no_grad", "multi", "custom").
    `since`, of a view without a history that wants gradients, is the version that its memory had when it was made.
    """

    __slots__ = (
        "accumulator", "base", "creation", "grad", "grad_dtype", "hooks", "inference", "name", "output_nr", "post_hooks", "retains", "since", "views",
    )  # fmt: skip

    def __init__(self) -> None:
        self.grad: Tensor | None = None
        self.hooks: dict[int, Any] | None = None
        self.post_hooks: dict[int, Any] | None = None
        self.output_nr = 0
        self.accumulator: Any = None
        self.base: Tensor | None = None
        self.views: list[Any] | None = None
        self.creation = ""
        self.inference = False
        self.retains = False
        self.name: str | None = None
        self.grad_dtype: Any = ...  # the leaf's own dtype
        self.since: int | None = None


HOOKS.new_meta = AutogradMeta


class TensorMeta(type):
    """Calling the class is PyTorch's legacy constructor; a subclass with a `__new__` of its own keeps it.

    Subclasses are noted here: an `__init_subclass__` need not call that of its parent.
    """

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(name, bases, attributes)
        if bases:
            HOOKS.subclass_added(cls)

    if not TYPE_CHECKING:  # or checkers take every attribute for one that may be set

        def __setattr__(cls, name: str, value: Any) -> None:
            if HOOKS.attribute_changed is None:
                type.__setattr__(cls, name, value)
                return
            before = cls.__dict__.get(name)
            type.__setattr__(cls, name, value)
            HOOKS.attribute_changed(cls, name, before, value)

        def __delattr__(cls, name: str) -> None:
            before = cls.__dict__.get(name)
            type.__delattr__(cls, name)
            if HOOKS.attribute_changed is not None:
                HOOKS.attribute_changed(cls, name, before, None)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.__new__ is not Tensor.__new__:
            return super().__call__(*args, **kwargs)
        made = HOOKS.legacy_constructor(cls, args, kwargs)
        if cls.__init__ is not object.__init__:  # type: ignore[misc]
            cls.__init__(made, *args, **kwargs)  # type: ignore[misc]
        return made


class Tensor(metaclass=TensorMeta):
    """A multi-dimensional array of one dtype; see the operator table for what can be done with it."""

    __slots__ = ("__dict__", "__weakref__", "_autograd_meta", "_node", "_ptr", "_rg", "_spec", "_storage")

    _storage: Any
    _spec: Spec
    _ptr: int
    _rg: bool
    _node: Node | None
    _autograd_meta: AutogradMeta | None

    __array_priority__ = 1000  # NumPy's operators give way to ours

    if TYPE_CHECKING:  # methods come from the operator table; to the type checker they may be anything

        def __getattr__(self, name: str) -> Any: ...

        __add__: Any
        __radd__: Any
        __sub__: Any
        __rsub__: Any
        __mul__: Any
        __rmul__: Any
        __truediv__: Any
        __rtruediv__: Any
        __floordiv__: Any
        __rfloordiv__: Any
        __mod__: Any
        __rmod__: Any
        __pow__: Any
        __rpow__: Any
        __matmul__: Any
        __rmatmul__: Any
        __and__: Any
        __rand__: Any
        __or__: Any
        __ror__: Any
        __xor__: Any
        __rxor__: Any
        __lshift__: Any
        __rshift__: Any
        __lt__: Any
        __le__: Any
        __gt__: Any
        __ge__: Any
        __neg__: Any
        __pos__: Any
        __invert__: Any
        __abs__: Any
        __getitem__: Any
        __setitem__: Any
        __len__: Any
        __iter__: Any
        __bool__: Any
        __int__: Any
        __float__: Any
        __index__: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        """The legacy constructor, for an object of the subclass; a subclass's own `__new__` calls it."""
        return HOOKS.legacy_constructor(cls, args, kwargs)

    # ***** what it is *****

    @property
    def shape(self) -> Size:
        return self._spec.shape

    @property
    def dtype(self) -> DType:
        return self._spec.dtype

    @property
    def device(self) -> Device:
        return self._spec.device

    @property
    def ndim(self) -> int:
        return self._spec.ndim

    @property
    def itemsize(self) -> int:
        return self._spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._spec.nbytes

    @property
    def is_leaf(self) -> bool:
        node = self._node
        if node is None:
            if self._rg:
                check_unchanged(self)
        elif node._refusal is not None:
            raise RuntimeError(node._refusal)
        return node is None

    @property
    def requires_grad(self) -> bool:
        return self._rg

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise RuntimeError("requires_grad must be a bool")
        if self._rg:
            check_unchanged(self)
        if self._node is not None:
            if value:
                return
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a subgraph that doesn't "
                "require differentiation use var_no_grad = var.detach()."
            )
        if value and not (self._spec.dtype.is_floating_point or self._spec.dtype.is_complex):
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        if value and self._autograd_meta is not None and self._autograd_meta.inference and not STATE.word & INFERENCE:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        self._rg = value
        if self._autograd_meta is not None and self._autograd_meta.views:
            HOOKS.follow_leaf(self)
        if value and self._autograd_meta is not None and self._autograd_meta.creation == "no_grad":
            accumulator_of(self)  # from now on a leaf of its own

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad must be a bool")

    @property
    def grad_fn(self) -> Node | None:
        node = self._node
        if node is None:
            if self._rg:
                check_unchanged(self)
        elif node._refusal is not None:
            raise RuntimeError(node._refusal)
        return node

    @property
    def grad(self) -> Tensor | None:
        meta = self._autograd_meta
        if meta is None or meta.grad is None:
            if self._node is not None and not (meta is not None and meta.retains):
                warn_user(  # a property that function modes watch is read from deeper
                    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be populated during "
                    "autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
                    "non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead."
                )
            return None
        return meta.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            if self._autograd_meta is not None:
                self._autograd_meta.grad = None
            return
        if not isinstance(value, Tensor):
            raise TypeError(
                f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}"
            )
        if value is self:
            raise RuntimeError("can't assign Variable as its own grad")
        wanted = (
            self._spec.dtype
            if self._autograd_meta is None or self._autograd_meta.grad_dtype is ...
            else self._autograd_meta.grad_dtype
        )
        if wanted is not None and value._spec.dtype is not wanted:
            raise RuntimeError(
                f"attempting to assign a gradient with dtype '{value._spec.dtype.scalar}' to a tensor with grad_dtype '{wanted.scalar}'. "
                "The gradient must match the tensor's grad_dtype, by default the dtype of the tensor; None allows any."
            )
        if value._spec.device is not self._spec.device:
            raise RuntimeError(
                f"assigned grad has data located on a different device: {value.device}, expected {self.device}"
            )
        if value._spec.shape != self._spec.shape:
            raise RuntimeError(
                f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size '{list(self.shape)}'. Please ensure that the "
                "gradient and the tensor are the same size"
            )
        meta_of(self).grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def data(self) -> Tensor:
        if HOOKS.asks or STATE.dispatch_modes:
            handled, made = HOOKS.below(_data_of, (self,), {})
            if handled:
                return cast("Tensor", made)
        return HOOKS.data_of(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        moved = value._spec.device is not self._spec.device
        if value.layout is not self.layout or moved and (value._storage is None or self._storage is None):
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type."
            )
        if self._rg and not (value._spec.dtype.is_floating_point or value._spec.dtype.is_complex):
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
        shown, laid_out = window_of(value._storage, self._storage), value._spec is self._spec
        self._storage, self._spec, self._ptr = shown, value._spec, value._ptr
        if not laid_out and shown is not None:
            shown.relinked += 1

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")

    def _state(self) -> Any:
        """The attributes that users gave it, as pickle writes them: a dict, or a pair of it and a dict of slots."""
        slots = {name: getattr(self, name) for name in _own_slots(type(self)) if hasattr(self, name)}
        return (dict(self.__dict__), slots) if slots else dict(self.__dict__)

    @property
    def _version(self) -> int:
        if self._autograd_meta is not None and self._autograd_meta.inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return version_of(self)

    @property
    def _base(self) -> Tensor | None:
        return self._autograd_meta.base if self._autograd_meta is not None else None

    @property
    def output_nr(self) -> int:
        return self._autograd_meta.output_nr if self._autograd_meta is not None else 0

    def __hash__(self) -> int:
        return id(self)


plain_classes: set[type] = {Tensor}
# Subclasses that define `__torch_dispatch__`: they are asked below autograd.
dispatch_classes: set[type] = set()
_new = object.__new__


def version_of(x: Any) -> int:
    """How often a tensor was changed in place; kinds of tensor without a storage count by themselves (`_changed`)."""
    return x._storage.version if x._storage is not None else getattr(x, "_changed", 0)


def _own_slots(cls: type) -> list[str]:
    """The attributes for which subclasses of Tensor have slots."""
    found = []
    for each in cls.__mro__[: cls.__mro__.index(Tensor)]:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                found.append(f"_{each.__name__.lstrip('_')}{name}" if private else name)
    return found


def take_state(x: Tensor, state: Any) -> None:
    """Give a tensor the attributes of another, from its `_state`."""
    held, slots = state if isinstance(state, tuple) else (state, {})
    x.__dict__.update(held)
    for name, value in slots.items():
        setattr(x, name, value)


def share_memory_of(storage: Any) -> Any:
    """Another storage object over the same memory, with its own version counter."""
    return HOOKS.storage_from_owner(storage.ptr, storage.nbytes, storage)


def window_of(storage: Any, counted: Any) -> Any:
    """A view of the memory of `storage` that goes on with the version counter of `counted`: its count of
    changes goes on.
    """
    if storage is None or counted is None or storage is counted:
        return storage
    shown = share_memory_of(storage)
    shown.stamp, shown.changed = counted.stamp, counted.changed
    return shown


def from_owner(address: int, nbytes: int, owner: Any) -> Any:
    """A storage over memory that `owner` keeps alive."""
    return HOOKS.storage_from_owner(address, nbytes, owner)


def make(storage: Any, spec: Spec, ptr: int) -> Tensor:
    """A tensor over memory, outside of any graph."""
    tensor = _new(Tensor)
    tensor._storage, tensor._spec, tensor._ptr = storage, spec, ptr
    tensor._rg, tensor._node, tensor._autograd_meta = False, None, None
    return tensor


def alias(tensor: Tensor) -> Tensor:
    """The same memory seen by another tensor object, outside of any graph."""
    return make(tensor._storage, tensor._spec, tensor._ptr)


def _data_of(tensor: Tensor) -> Tensor:
    """The same memory with a version counter of its own, so that writes through it are not noticed, as in PyTorch."""
    other = alias(tensor)
    if tensor._storage is not None:
        other._storage = share_memory_of(tensor._storage)
    return other


HOOKS.data_of = _data_of


def meta_of(tensor: Tensor) -> AutogradMeta:
    """The tensor's `AutogradMeta`, made when first needed."""
    meta = tensor._autograd_meta
    if meta is None:
        meta = tensor._autograd_meta = HOOKS.new_meta()
    return meta


def add_view(base: Tensor, view: Tensor) -> None:
    """Let `base` know of a differentiable view, so that an in-place change of either can rebase the other's history."""
    views = meta_of(base).views
    if views is None:
        views = base._autograd_meta.views = []  # type: ignore[union-attr]
    elif len(views) > 8 and len(views) & (len(views) - 1) == 0:
        views[:] = [r for r in views if r() is not None]
    views.append(weakref.ref(view))


CHANGED = -1  # `since` of a view whose memory was changed before anybody could tell
BOTH_SIDES = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace either "
    "both inside the no_grad block (if you don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
)


def was_changed(view: Tensor) -> bool:
    """Whether this is a view made without gradients, of a tensor that wants some, whose memory was changed since: its
    history is not known.
    """
    meta = view._autograd_meta
    if meta is None or meta.since is None or meta.base is None or not meta.base._rg:
        return False
    return view._storage is None or view._storage.version != meta.since


def check_unchanged(view: Tensor) -> None:
    """RuntimeError for a view of which `was_changed` holds."""
    if was_changed(view):
        raise RuntimeError(
            "A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode enabled. "
            f"{BOTH_SIDES}"
        )


def edge_of(tensor: Tensor) -> Any:
    """Where the gradient of `tensor` goes: None, a node (its first output), or (node, output number)."""
    node = tensor._node
    if node is None:
        if not tensor._rg:
            return None
        held = tensor._autograd_meta
        if (
            held is not None
            and held.creation == "no_grad"
            and held.accumulator is None
            and held.base is not None
            and held.base._rg
        ):
            check_unchanged(tensor)
            return None  # a view made without gradients collects none, unless it was asked to
        return accumulator_of(tensor)
    meta = tensor._autograd_meta
    return node if meta is None or meta.output_nr == 0 else (node, meta.output_nr)


def accumulator_of(tensor: Tensor) -> Any:
    """The node that adds to `.grad` of a leaf."""
    meta = tensor._autograd_meta
    if meta is None:
        meta = tensor._autograd_meta = HOOKS.new_meta()
    node = meta.accumulator
    if node is None:
        node = meta.accumulator = HOOKS.make_accumulator(tensor)
    return node
