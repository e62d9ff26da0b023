"""`Parameter` and `Buffer`: tensors that a module registers when they are assigned to one of its attributes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import import_whole
from rushlight.serialization.rebuild import rebuild_parameter, rebuild_parameter_with_state

if TYPE_CHECKING:
    from typing import Self

    from rushlight.nn.uninitialized import UninitializedBuffer, UninitializedParameter, UninitializedTensorMixin

__all__ = [
    "Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin", "factory_kwargs", "is_lazy",
]  # fmt: skip


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The keywords of a module that functions such as `torch.empty` take: device, dtype, memory_format.

    What stands under "factory_kwargs" is taken as it is. TypeError for other keywords, and for one given twice.

    >>> rushlight.nn.factory_kwargs({"dtype": rushlight.float64})
    {'dtype': torch.float64}
    """
    if kwargs is None:
        return {}
    known = ("device", "dtype", "memory_format")
    unknown = kwargs.keys() - {*known, "factory_kwargs"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    made = dict(kwargs.get("factory_kwargs", {}))
    for name in known:
        if name in kwargs:
            if name in made:
                raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
            made[name] = kwargs[name]
    return made


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    """`isinstance(t, Parameter)` also holds for instances of tensor subclasses that were made into parameters."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False):
            return True
        return bool(super().__instancecheck__(instance))


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that becomes a parameter of the module it is assigned to.

    `data` is any tensor (default: an empty one), whose storage is shared; `requires_grad` is true by default, also
    inside `no_grad`. The result of arithmetic on parameters is an ordinary tensor. A tensor subclass keeps its class
    and is marked as a parameter.

    Example: `self.scale = nn.Parameter(torch.ones(8))`
    """

    __torch_function__ = rushlight._C._disabled_torch_function_impl
    _is_param = True  # of instances too whose class is another: see `__new__`
    _printed_plainly = True  # as `tensor(...)`
    _lasting = True  # a compiled function may keep what it derives from it

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Self:
        if data is None:
            data = rushlight.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)  # type: ignore[attr-defined]
        made = data.detach().requires_grad_(requires_grad)
        if type(made) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns "
                f"an instance of the same type, but return type {type(made).__name__} was found instead."
            )
        made._is_param = True
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        found = memo.get(id(self))
        if found is not None:
            return found
        copied = type(self)(self.data.clone(memory_format=rushlight.preserve_format), self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return "Parameter containing:\n" + super().__repr__(tensor_contents=tensor_contents)  # type: ignore[call-arg]  # stubs leave it out

    def __reduce_ex__(self, proto: Any) -> Any:
        # Hooks are not kept: they are code, and a file holds data.
        state = self.__dict__
        if not state:
            return rebuild_parameter, (self.data, self.requires_grad, OrderedDict())
        return rebuild_parameter_with_state, (self.data, self.requires_grad, OrderedDict(), dict(state))


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    """A buffer keeps its tensor class; what makes it a `Buffer` is a mark on the instance."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False):
            return True
        return bool(super().__instancecheck__(instance))


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that becomes a buffer (state without gradient) of the module it is assigned to.

    `persistent=False` keeps it out of the module's `state_dict`.

    Example: `self.running_mean = nn.Buffer(torch.zeros(8))`
    """

    __torch_function__ = rushlight._C._disabled_torch_function_impl

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = rushlight.empty(0)
        made = data.detach().requires_grad_(data.requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made


def is_lazy(param: Any) -> bool:
    """Whether `param` has no shape yet: an `UninitializedParameter` or `UninitializedBuffer`."""
    return getattr(type(param), "_has_no_shape", False)


# Their override is asked about every call: while nobody uses them, no call needs to look for it.
_UNINITIALIZED = ("UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin")


def __getattr__(name: str) -> Any:
    if name not in _UNINITIALIZED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_whole("rushlight.nn.uninitialized"), name)
    globals()[name] = value
    return value
