"""Attention: which way `scaled_dot_product_attention` may be computed, biases with a structure, and attention with a
score of one's own.

    >>> import rushlight as torch
    >>> from rushlight.nn.attention import SDPBackend, sdpa_kernel
    >>> q = torch.ones(1, 1, 2, 4)
    >>> with sdpa_kernel(SDPBackend.MATH):
    ...     torch.nn.functional.scaled_dot_product_attention(q, q, q).shape
    torch.Size([1, 1, 2, 4])

rushlight has one kernel for attention; what is switched off is refused where PyTorch's CPU would refuse it.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight._interface.operators import ALLOWED

__all__ = [
    "WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "activate_flash_attention_impl", "current_flash_attention_impl", "list_flash_attention_impls",
    "register_flash_attention_impl", "restore_flash_attention_impl", "sdpa_kernel",
]  # fmt: skip

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.Enum):
    """The ways in which PyTorch computes scaled dot product attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


# Names of the switches in `backends.cuda`.
_SWITCHES = {
    SDPBackend.CUDNN_ATTENTION: "cudnn",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
    SDPBackend.MATH: "math",
    SDPBackend.OVERRIDEABLE: "overrideable",
}
_ORDER = [
    SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION, SDPBackend.OVERRIDEABLE,
]  # fmt: skip


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """Backends allowed at present; `with_priority`, in the order in which they are tried."""
    return [b for b in (_ORDER if with_priority else _SWITCHES) if ALLOWED[_SWITCHES[b]]]


@contextmanager
def sdpa_kernel(backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[dict[str, bool]]:
    """Inside (or, as a decorator, in the function), only these ways of computing attention are allowed.

    `set_priority` also tries them in the given order.  AssertionError for what is no `SDPBackend`.
    `scaled_dot_product_attention` raises RuntimeError where neither MATH nor FLASH_ATTENTION is left, the two that a
    CPU has.

        >>> from rushlight.nn.attention import SDPBackend, sdpa_kernel
        >>> with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]) as allowed:
        ...     pass
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, got {type(backends).__name__}"
        )
    wanted = [backends] if isinstance(backends, SDPBackend) else list(dict.fromkeys(backends))
    before, order = dict(ALLOWED), list(_ORDER)
    try:
        for backend, name in _SWITCHES.items():
            ALLOWED[name] = backend in wanted
        if set_priority:
            first = [b for b in wanted if b in _SWITCHES]
            _ORDER[:] = [*first, *(b for b in order if b not in first)]
        yield {}
    finally:
        ALLOWED.update(before)
        _ORDER[:] = order


# ***** flash attention kernels of other packages *****

_IMPLEMENTATIONS: dict[str, Callable[..., Any] | None] = {"FA3": None, "FA4": None}
_ACTIVE: list[tuple[str, Any]] = []


def register_flash_attention_impl(impl: str, *, register_fn: Callable[..., Any]) -> None:
    """Make a flash attention implementation known by name; `register_fn()` runs when it is activated."""
    _IMPLEMENTATIONS[impl] = register_fn


def activate_flash_attention_impl(impl: str) -> None:
    """Run the registration of an implementation that was made known; ValueError for another name.

    NotImplementedError for FA3 and FA4 themselves, which are kernels for CUDA devices.
    """
    if impl not in _IMPLEMENTATIONS:
        raise ValueError(
            f"Unknown flash attention impl '{impl}'. Available implementations: {list_flash_attention_impls()}"
        )
    register = _IMPLEMENTATIONS[impl]
    if register is None:
        raise NotImplementedError(f"rushlight has no {impl}: its kernels are made for CUDA devices")
    _ACTIVE[:] = [(impl, register())]


def list_flash_attention_impls() -> list[str]:
    """The names that can be activated.

    >>> import rushlight as torch
    >>> torch.nn.attention.list_flash_attention_impls()
    ['FA3', 'FA4']
    """
    return sorted(_IMPLEMENTATIONS)


def current_flash_attention_impl() -> str | None:
    """The implementation that was activated, or None."""
    return _ACTIVE[0][0] if _ACTIVE else None


def restore_flash_attention_impl(_raise_warn: bool = True) -> None:
    """Forget the implementation that was activated; warns where none was."""
    if not _ACTIVE:
        if _raise_warn:
            warnings.warn(
                "restore_flash_attention_impl: no implementation had been activated", UserWarning, stacklevel=2
            )
        return
    remove = getattr(_ACTIVE.pop()[1], "remove", None)
    if remove is not None:
        remove()
