"""Names that programs know from PyTorch's dispatcher and devices: errors, streams and events, dispatch keys, tags of operators.

rushlight has no dispatcher: an operator is found by its table.  The keys say what PyTorch would call a tensor's backend, and the tags
what is true of an operator.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable
from typing import Any

from rushlight._engine.core.state import AUTOCAST, STATE
from rushlight._engine.dispatch.modes import no_grad
from rushlight._types.device import CPU, Device, as_device

__all__ = [
    "AcceleratorError", "DispatchKey", "DispatchKeySet", "Event", "ExcludeDispatchKeyGuard", "FatalError", "OutOfMemoryError", "Stream", "Tag",
]  # fmt: skip


class FatalError(Exception):
    """Something that a process cannot go on after."""

    __module__ = "torch"


class AcceleratorError(RuntimeError):
    """An accelerator failed."""

    __module__ = "torch"


class OutOfMemoryError(RuntimeError):
    """An accelerator has no memory left."""

    __module__ = "torch"


# ***** streams: on the CPU every operation is done when its call returns *****


class Stream:
    """An order of operations on a device.  The CPU has one: a call returns when its work is done.

    >>> import rushlight as torch
    >>> torch.Stream().query()
    True
    """

    device_type, device_index, stream_id, native_handle = 0, -1, 0, 0
    device: Device = CPU

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self.device = Device(as_device(device).type)

    def query(self) -> bool:
        """True: nothing is left to do."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait_stream(self, other: Any) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that marks this moment."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """False: calls are not captured."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.device == other.device

    def __hash__(self) -> int:
        return hash(("stream", self.device))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __repr__(self) -> str:
        return (
            f"torch.Stream device_type={self.device.type}, device_index={self.device_index}, stream_id={self.stream_id}"
        )


class Event:
    """A mark in the order of operations; on the CPU the moment when it was recorded."""

    event_id = 0
    device: Device = CPU

    def __init__(
        self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.device = Device(as_device(device).type)
        self._timed, self._at = enable_timing, None if not enable_timing else 0.0
        self._recorded = False

    def record(self, stream: Any = None) -> None:
        """Mark this moment."""
        self._recorded, self._at = True, time.perf_counter()

    def query(self) -> bool:
        """True: what came before is done."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; both need `enable_timing=True` and must have been recorded."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self._recorded and end_event._recorded):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return ((end_event._at or 0.0) - (self._at or 0.0)) * 1e3

    def __repr__(self) -> str:
        return f"torch.Event device_type={self.device.type}, device_index=-1, event_flag={int(self._timed)}, event_id={self.event_id}"


# ***** keys and tags *****

_BACKENDS = ("CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA", "MAIA", "PrivateUse1", "PrivateUse2", "PrivateUse3",
             "Meta")  # fmt: skip
_FUNCTIONALITIES = ("", "Quantized", "Sparse", "SparseCsr", "NestedTensor", "Autograd")
_ALIASES = ("Undefined", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "Autograd", "BackendSelect", "ADInplaceOrView", "Functionalize",
            "Python", "AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS", "AutocastHPU", "AutocastPrivateUse1", "Conjugate", "Negative",
            "ZeroTensor")  # fmt: skip

DispatchKey = enum.Enum(  # type: ignore[misc]  # members are computed
    "DispatchKey", [*_ALIASES, *(f + b for f in _FUNCTIONALITIES for b in _BACKENDS)], start=0, module="torch"
)
DispatchKey.__doc__ = "What PyTorch's dispatcher would call a backend or a layer above it; the name is what counts."


class DispatchKeySet:
    """A set of dispatch keys; the one of the highest number has priority."""

    def __init__(self, keys: Any = ()) -> None:
        self._keys: frozenset[Any] = frozenset(keys if isinstance(keys, Iterable) else (keys,))

    def has(self, key: Any) -> bool:
        """Whether a key is in the set."""
        return key in self._keys

    def add(self, key: Any) -> DispatchKeySet:
        """The set with a key more."""
        return DispatchKeySet(self._keys | {key})

    def remove(self, key: Any) -> DispatchKeySet:
        """The set without a key."""
        return DispatchKeySet(self._keys - {key})

    def highestPriorityTypeId(self) -> Any:
        """The key of the highest priority."""
        return max(self._keys, key=lambda k: k.value, default=DispatchKey["Undefined"])

    def raw_repr(self) -> int:
        """The set as the bits of a number."""
        return sum(1 << k.value for k in self._keys)

    @staticmethod
    def from_raw_repr(bits: int) -> DispatchKeySet:
        """The set for such a number."""
        return DispatchKeySet(k for k in DispatchKey if bits >> k.value & 1)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys - other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(k.name for k in sorted(self._keys, key=lambda k: -k.value))})"


class ExcludeDispatchKeyGuard:
    """A region in which PyTorch's dispatcher passes over some keys.

    Without a dispatcher there are two layers that can be passed over: automatic differentiation, for any `Autograd` key, and automatic
    casts on the CPU.  Those of other devices are accepted; NotImplementedError for other keys.

    >>> import rushlight as torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.ExcludeDispatchKeyGuard(torch.DispatchKeySet(torch.DispatchKey.AutogradCPU)):
    ...     (x * 2).requires_grad
    False
    """

    def __init__(self, keys: DispatchKeySet) -> None:
        if not isinstance(keys, DispatchKeySet):
            raise TypeError(f"ExcludeDispatchKeyGuard(): expected keys to be a DispatchKeySet, found {type(keys)}")
        others = sorted(k.name for k in keys._keys if not k.name.startswith(("Autograd", "Autocast")))
        if others:
            raise NotImplementedError(
                f"ExcludeDispatchKeyGuard: rushlight has no layer to pass over for {', '.join(others)}"
            )
        self._no_grad = no_grad() if any(k.name.startswith("Autograd") for k in keys._keys) else None
        self._no_casts = any(k.name == "AutocastCPU" for k in keys._keys)
        self._casts = 0

    def __enter__(self) -> None:
        if self._no_grad is not None:
            self._no_grad.__enter__()
        if self._no_casts:
            self._casts = STATE.word & AUTOCAST
            STATE.word &= ~AUTOCAST

    def __exit__(self, *exc: object) -> None:
        if self._no_casts:
            STATE.word = STATE.word & ~AUTOCAST | self._casts
        if self._no_grad is not None:
            self._no_grad.__exit__(*exc)


class Tag(enum.Enum):
    """What is true of an operator."""

    __module__ = "torch"

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19
