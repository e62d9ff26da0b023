"""Moving a whole tree of modules: other dtypes, other devices, other memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import rushlight
from rushlight import Tensor
from rushlight._interface.tensors import python_dtype
from rushlight.utils._python_dispatch import is_traceable_wrapper_subclass
from rushlight.utils.swapping import swap_tensors

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Convertible", "overwrites", "set_overwrite", "set_swap", "swaps"]

_overwrites = False
_swaps = False


def set_overwrite(value: bool) -> None:
    """Whether conversions make new parameters instead of new data in the old ones: see `rushlight.__future__`."""
    global _overwrites
    _overwrites = value


def overwrites() -> bool:
    """The setting of `set_overwrite`."""
    return _overwrites


def set_swap(value: bool) -> None:
    """Whether modules change parameters by `swap_tensors`: see `rushlight.__future__`."""
    global _swaps
    _swaps = value


def swaps() -> bool:
    """The setting of `set_swap`."""
    return _swaps


class Convertible:
    """The part of `Module` that converts parameters, their gradients and buffers, in place in the module."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]

    def children(self) -> Iterator[Any]:
        """Direct children; `Module` defines it."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        """Replace every parameter's and gradient's data and every buffer by `fn` of it.

        Parameters keep their identity on all devices with memory: an optimizer made before still holds them, modules
        that share one still do, hooks stay. Only to and from `meta` a new parameter is made.
        Results made of other tensors (`__tensor_flatten__`), and all of them after
        `torch.__future__.set_swap_module_params_on_conversion(True)`, trade places with the old object by
        `swap_tensors` instead. RuntimeError where these cannot.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        for key, param in self._parameters.items():
            if param is None:
                continue
            with rushlight.no_grad():
                converted = fn(param)
            if _swaps or wraps_tensors(converted):
                _swap_parameter(param, converted, fn, f"{type(self).__name__}.{key}")
            else:
                self._parameters[key] = _converted_parameter(param, converted, fn)
        for key, buf in self._buffers.items():
            if buf is not None:
                self._buffers[key] = fn(buf)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert to a device and/or a floating point (or complex) dtype, in place; returns the module.

        Forms: `to(device, dtype, non_blocking)`, `to(dtype)`, `to(tensor)`, `to(memory_format=...)`. Integer and bool
        tensors keep their dtype. Raises `TypeError` for an integer dtype.

        Example: `model.to(torch.float64)`
        """
        device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(
                    f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature under active development whose design may change, and some "
                    "modules might not work as expected when using complex tensors as parameters or buffers.",
                    stacklevel=2,
                )

        def convert(t: Any) -> Any:
            wanted = dtype if t.is_floating_point() or t.is_complex() else None
            extra = {"memory_format": memory_format} if memory_format is not None and t.dim() in (4, 5) else {}
            try:
                return t.to(device=device, dtype=wanted, non_blocking=non_blocking, **extra)
            except NotImplementedError as error:
                said = str(error)
                if "meta tensor" not in said:
                    raise
                raise NotImplementedError(
                    f"{said.partition(' Please use')[0]} Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() "
                    "when moving module from meta to a different device."
                ) from None

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Give every parameter and buffer fresh, uninitialised memory on `device`."""
        return self._apply(lambda t: rushlight.empty_like(t, device=device), recurse=recurse)

    def type(self, dst_type: Any) -> Self:
        """Convert every parameter and buffer to the dtype `dst_type`."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Self:
        """Convert floating point parameters and buffers to float32."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self) -> Self:
        """Convert floating point parameters and buffers to float64."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self) -> Self:
        """Convert floating point parameters and buffers to float16."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self) -> Self:
        """Convert floating point parameters and buffers to bfloat16."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def cpu(self) -> Self:
        """Move every parameter and buffer to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Self:
        """Move every parameter and buffer to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def xpu(self, device: Any = None) -> Self:
        """Move every parameter and buffer to an Intel GPU."""
        return self._apply(lambda t: t.xpu(device))

    def ipu(self, device: Any = None) -> Self:
        """Move every parameter and buffer to an IPU."""
        return self._apply(lambda t: t.ipu(device))

    def mtia(self, device: Any = None) -> Self:
        """Move every parameter and buffer to an MTIA device."""
        return self._apply(lambda t: t.mtia(device))

    def share_memory(self) -> Self:
        """Move every parameter and buffer into memory that other processes see."""
        return self._apply(lambda t: t.share_memory_())


def wraps_tensors(tensor: Any) -> bool:
    """Whether a tensor is made of others, as `__tensor_flatten__` says, so that giving it `.data` would not change it."""
    return type(tensor) not in (Tensor, rushlight.nn.Parameter) and is_traceable_wrapper_subclass(tensor)


def _converted_parameter(param: Any, converted: Any, fn: Callable[[Any], Any]) -> Any:
    grad = param.grad
    if _shares_kind(param, converted):
        param.data = converted
        out = param
    else:
        out = rushlight.nn.Parameter(converted, param.requires_grad)
    if grad is None:
        return out
    with rushlight.no_grad():
        new_grad = fn(grad)
    if out is param and _shares_kind(grad, new_grad):
        grad.data = new_grad
        out.grad = grad
    else:
        out.grad = new_grad.requires_grad_(grad.requires_grad)
    return out


def _swap_parameter(param: Any, converted: Any, fn: Callable[[Any], Any], name: str) -> None:
    """Let `param` become `converted`, and its gradient `fn` of it, by `swap_tensors`.  `name` is for messages."""
    grad = param.grad
    try:
        param.grad = None  # else it would go along with the old content
        swap_tensors(param, rushlight.nn.Parameter(converted, requires_grad=param.requires_grad))
    except Exception as error:
        param.grad = grad
        raise RuntimeError(f"_apply(): Couldn't swap {name}") from error
    if grad is None:
        return
    with rushlight.no_grad():
        new_grad = fn(grad)
    new_grad.requires_grad_(grad.requires_grad)
    try:
        swap_tensors(grad, new_grad)
    except Exception as error:
        raise RuntimeError(f"_apply(): Couldn't swap {name}.grad") from error
    param.grad = grad


def _shares_kind(old: Any, new: Any) -> bool:
    """Whether the object `old` can take over the data of `new`: both of them have memory, or neither."""
    return not _overwrites and bool(old.is_meta is new.is_meta)


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Read the arguments of `to`: returns (device, dtype, non_blocking, memory_format)."""
    found: dict[str, Any] = {"device": None, "dtype": None, "non_blocking": False, "copy": False}
    found["memory_format"] = kwargs.pop("memory_format", None)
    if "tensor" in kwargs:
        args = (kwargs.pop("tensor"), *args)
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        found["device"], found["dtype"] = other.device, other.dtype
        order = ["non_blocking", "copy"]
    elif rest and isinstance(rest[0], (rushlight.dtype, type)):
        order = ["dtype", "non_blocking", "copy"]
    else:
        order = ["device", "dtype", "non_blocking", "copy"]
    if len(rest) > len(order):
        raise _wrong_arguments(args, kwargs)
    for name, value in [*zip(order, rest, strict=False), *kwargs.items()]:
        if name not in found or (name in ("non_blocking", "copy") and not isinstance(value, bool)):
            raise _wrong_arguments(args, kwargs)
        found[name] = value
    if isinstance(found["dtype"], type):
        found["dtype"] = python_dtype(found["dtype"])
    if found["dtype"] is not None and not isinstance(found["dtype"], rushlight.dtype):
        raise _wrong_arguments(args, kwargs)
    if found["device"] is not None:
        if not isinstance(found["device"], (str, int, rushlight.device)):
            raise _wrong_arguments(args, kwargs)
        found["device"] = rushlight.device(found["device"])
    return found["device"], found["dtype"], found["non_blocking"], found["memory_format"]


def _wrong_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    given = [type(value).__name__ for value in args] + [
        f"{name}={type(value).__name__}" for name, value in kwargs.items()
    ]
    return TypeError(
        f"to() received an invalid combination of arguments - got ({', '.join(given)}), but expected one of:\n"
        " * (device, dtype, bool non_blocking=False, bool copy=False, *, memory_format)\n"
        " * (dtype, bool non_blocking=False, bool copy=False, *, memory_format)\n"
        " * (Tensor, bool non_blocking=False, bool copy=False, *, memory_format)\n"
    )
