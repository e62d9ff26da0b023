"""`autocast`, and what custom autograd functions need to follow it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import rushlight
from rushlight import Tensor
from rushlight._interface.devices import backends
from rushlight._interface.dispatch import PLACES, place_of, set_casting
from rushlight._interface.tensors import Decorating

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` knows this type of device; RuntimeError for a type that does not exist.

    >>> torch.amp.is_autocast_available("cpu")
    True
    """
    place = place_of(device_type)
    return place in PLACES or place != "meta" and place in backends()


class autocast:
    """A region in which operators on this type of device choose the dtype they compute in; also a decorator.

    Products and convolutions convert their arguments to `dtype` (`torch.bfloat16` on the CPU unless another is set, or
    `torch.float16`), losses, factorisations and what else loses too much convert them to float32, `cat` and `stack`
    take the widest dtype; all others take what they get, and nobody touches float64.  The cast of a weight is made once
    and kept until the outermost region ends (unless `cache_enabled=False`).  `enabled=False` makes a region without
    casts inside another.  The backward belongs outside of the region: it runs in the dtypes that the forward chose.

    Other dtypes than these two warn and disable the region, as CUDA does without a GPU.  `ValueError` for a device type
    that is no str, RuntimeError for one without automatic casts.

    >>> weight = torch.ones(2, 2, requires_grad=True)
    >>> with torch.autocast("cpu"):
    ...     y = torch.ones(1, 2) @ weight
    ...     loss = torch.nn.functional.mse_loss(y, torch.zeros(1, 2))
    >>> y.dtype, loss.dtype
    (torch.bfloat16, torch.float32)
    >>> loss.backward()
    >>> weight.grad.dtype
    torch.float32
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if device_type.__class__ is not str or device_type not in PLACES:
            _check_device_type(device_type)
            if dtype is None:
                dtype = rushlight.get_autocast_dtype(device_type)
            if not is_autocast_available(device_type):
                raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self._place = place_of(device_type)
        self.fast_dtype = rushlight.get_autocast_dtype(self._place) if dtype is None else dtype
        self.device = device_type
        self._cache_enabled = rushlight.is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._enabled = enabled and self._possible()
        self._before: list[tuple[bool, Any, bool]] = []

    def _possible(self) -> bool:
        """Whether this region can cast; where it cannot, a warning says why."""
        if self.device == "cuda":
            if rushlight.cuda.is_available():
                return True
            why = "CUDA is not available or torch_xla is imported. Disabling autocast."
        elif self.fast_dtype in (rushlight.bfloat16, rushlight.float16):
            return True
        else:
            name = self.device.upper()
            why = (
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
            )
        warnings.warn(why, UserWarning, stacklevel=3)
        return False

    def __enter__(self) -> autocast:
        self._before.append(set_casting(self._place, self._enabled, self.fast_dtype, self._cache_enabled))
        rushlight.autocast_increment_nesting()
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        if rushlight.autocast_decrement_nesting() == 0:
            rushlight.clear_autocast_cache()
        set_casting(self._place, *self._before.pop())
        return False

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. Did you mean to use autocast as a context manager? "
                "For example:\n    with torch.autocast(device_type=...):\n        output = model(input)"
            )
        # Each call has a region of its own: threads may run the function at once.
        region = functools.partial(autocast, self.device, self.fast_dtype, self._enabled, self._cache_enabled)
        return Decorating.in_contexts(region, func)


def _check_device_type(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def _enter_autocast(*arguments: Any) -> autocast:
    """Begin a region that `_exit_autocast` ends."""
    region = autocast(*arguments)
    region.__enter__()
    return region


def _exit_autocast(region: autocast) -> None:
    """End a region that `_enter_autocast` began."""
    region.__exit__(None, None, None)


# ***** custom autograd functions *****


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """Tensors of this type of device in another dtype, also inside of containers; double and integers stay."""
    if isinstance(value, Tensor):
        fits = value.is_floating_point() and value.device.type == device_type and value.dtype is not rushlight.float64
        return value.to(dtype) if fits else value
    if isinstance(value, (str, bytes)) or type(value).__module__ == "numpy":
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, Iterable):
        items = (_cast(v, device_type, dtype) for v in value)
        return type(value)(items) if isinstance(value, (list, tuple)) else items
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable[..., Any]:
    """Decorate the `forward` of a `torch.autograd.Function` so that its backward can see how it ran; see `custom_bwd`.

    With `cast_inputs`, inside of a region the tensors are converted to that dtype and `forward` runs without automatic
    casts.

    >>> class Twice(torch.autograd.Function):
    ...     @staticmethod
    ...     @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @torch.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, grad):
    ...         return grad * 2
    >>> with torch.autocast("cpu"):
    ...     Twice.apply(torch.ones(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    _check_device_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype = rushlight.get_autocast_dtype(device_type)
        inside = rushlight.is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = inside and cast_inputs is None
        if cast_inputs is None or not inside:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate the `backward` of a `torch.autograd.Function`: it runs with the automatic casts that its `forward` had.

    The `forward` must be decorated with `custom_fwd`.
    """
    _check_device_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return decorated
