"""Parameters and buffers whose shape is known later; `rushlight.nn.parameter` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import trace_marks
from rushlight.nn.parameter import Parameter

__all__ = ["UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin"]

# Files name these classes by the page that shows them.
_PAGE = "rushlight.nn.parameter"

# What needs no shape: questions about the dtype and the place, and moves of what is not there yet.
_ALLOWED = frozenset((
    "__get__", "__set__", "__hash__", "byte", "char", "copy_", "cpu", "cuda", "double", "float", "get_device", "half", "int", "is_complex",
    "is_floating_point", "long", "short", "size", "to",
))  # fmt: skip


class UninitializedTensorMixin:
    """A tensor that knows its dtype and device, and has no shape until `materialize` gives it one.

    Everything that would need the shape raises: `ValueError` for functions, `RuntimeError` for `shape` and
    `share_memory_`.
    """

    __module__ = _PAGE
    _has_no_shape = True
    cls_to_become: type[Tensor]

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a parameter (or buffer) of `shape`, not initialised; `device` and `dtype` are the present ones unless
        given.
        """
        data: Any = self.data
        made = rushlight.empty(
            shape, device=data.device if device is None else device, dtype=data.dtype if dtype is None else dtype
        )
        self.data: Any = made
        self.__class__ = self.cls_to_become  # type: ignore[assignment]

    @property
    def shape(self) -> Any:
        """There is none: RuntimeError."""
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when trying "
            "to load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before accessing "
            "their attributes."
        )

    @trace_marks.changes_later_calls
    def share_memory_(self) -> Any:
        """There is no memory to share: RuntimeError."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before calling "
            "`module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, proto: Any) -> Any:
        return type(self), (self.requires_grad,)  # type: ignore[attr-defined]

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        found = memo.get(id(self))
        if found is None:
            data: Any = self.data
            found = memo[id(self)] = type(self)(self.requires_grad, data.device, data.dtype)
            found.__dict__.update(self.__dict__)
        return found

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _ALLOWED:
            made = rushlight._C._disabled_torch_function_impl(func, types, args, kwargs)
            keeps = type(made) is Tensor and not issubclass(cls, Parameter)  # of a parameter they are plain tensors
            return _still_without_shape(made, args[0], cls) if keeps else made
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a `LazyModule` or explicitly "
            f"manipulating `torch.nn.parameter.{cls.__name__}` objects. When using LazyModules Call `forward` with a dummy batch to "
            "initialize the parameters before calling torch functions"
        )


def _still_without_shape(made: Any, source: Any, cls: Any) -> Any:
    """A buffer without a shape in another dtype or on another device, as one of its class again."""
    made = made.as_subclass(cls)
    made.__dict__.update(source.__dict__)
    return made


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[metaclass, misc]
    """A `Parameter` without a shape, as lazy modules have before their first call.

    `requires_grad`, `device` and `dtype` are those that the parameter will have.

    >>> weight = rushlight.nn.UninitializedParameter()
    >>> weight.materialize((2, 3))
    >>> weight.shape
    torch.Size([2, 3])
    """

    __module__ = _PAGE
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        data = rushlight.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, data, requires_grad)  # type: ignore[attr-defined]


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer without a shape, as lazy normalisations have before their first call; see `UninitializedParameter`."""

    __module__ = _PAGE
    cls_to_become = Tensor

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        data = rushlight.empty(0, device=device, dtype=dtype)
        made = Tensor._make_subclass(cls, data, requires_grad)  # type: ignore[attr-defined]
        made.persistent = persistent
        made._is_buffer = True
        return made
