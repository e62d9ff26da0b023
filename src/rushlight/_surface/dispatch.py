"""Names that programs know from PyTorch's dispatcher and devices: errors, streams and events, dispatch keys, tags of
operators.

rushlight has no dispatcher: an operator is found by its table.  The keys say what PyTorch would call a tensor's
backend, and the tags what is true of an operator.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from rushlight._backends.registry import accelerator, backend_of
from rushlight._base.errors import AcceleratorError, OutOfMemoryError
from rushlight._engine.core.state import AUTOCAST, STATE
from rushlight._engine.dispatch.modes import no_grad
from rushlight._types.device import Device, as_device

__all__ = [
    "AcceleratorError", "DispatchKey", "DispatchKeySet", "Event", "ExcludeDispatchKeyGuard", "FatalError", "OutOfMemoryError", "Stream", "Tag",
]  # fmt: skip


class FatalError(Exception):
    """Something that a process cannot go on after."""

    __module__ = "torch"


# ***** streams: the backend's, of a device whose calls return when their work is done an order without effect *****


def _place(device: Any) -> Device:
    """The device of a stream or an event: without one, or without an index, the current one of the accelerator."""
    backend = accelerator() if device is None else None
    place = as_device(device) if backend is None else Device(backend.type)
    if place.index is None and place.type not in ("cpu", "meta"):
        return Device(place.type, backend_of(place).current_device())
    return place


class Stream:
    """An order of operations on a device, by default the accelerator's current one, where there is an accelerator.

    The CPU has one order: a call returns when its work is done.

    >>> import rushlight as torch
    >>> torch.Stream().query()
    True
    """

    native_handle = 0

    def __init__(self, device: Any = None, *, priority: int = 0, handle: Any = None) -> None:
        place = _place(device)
        self._handle = backend_of(place).stream(place, priority) if handle is None else handle
        self._before: list[Any] = []

    @property
    def device(self) -> Device:
        """The device whose work it orders."""
        return Device(self._handle.device.type) if self._handle.device.index is None else self._handle.device

    @property
    def device_type(self) -> int:
        """PyTorch's number of the device's type."""
        return _TYPE_NUMBERS.get(self.device.type, _TYPE_NUMBERS["privateuseone"])

    @property
    def device_index(self) -> int:
        """The index of the device; -1 where it has none."""
        return -1 if self.device.index is None else self.device.index

    @property
    def stream_id(self) -> int:
        """The backend's number of the stream."""
        return int(self._handle.id)

    def query(self) -> bool:
        """Whether all its work is done."""
        return bool(self._handle.query())

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        self._handle.synchronize()

    def wait_stream(self, other: Stream) -> None:
        """Let its further work wait for all that another stream was given until now."""
        self.wait_event(other.record_event())

    def wait_event(self, event: Event) -> None:
        """Let its further work wait for an event."""
        self._handle.wait(event._handle)

    def record_event(self, event: Event | None = None) -> Event:
        """An event that marks this moment."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """False: calls are not captured."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device, self.stream_id) == (other.device, other.stream_id)

    def __hash__(self) -> int:
        return hash(("stream", self.device, self.stream_id))

    def __enter__(self) -> Stream:
        backend = backend_of(self._handle.device)
        self._before.append(backend.current_stream(self._handle.device))
        backend.set_stream(self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        backend_of(self._handle.device).set_stream(self._before.pop())

    def __repr__(self) -> str:
        return (
            f"torch.Stream device_type={self.device.type}, device_index={self.device_index}, stream_id={self.stream_id}"
        )


# As in PyTorch's DeviceType.
_TYPE_NUMBERS = {
    "cpu": 0,
    "cuda": 1,
    "xla": 9,
    "xpu": 12,
    "mps": 13,
    "meta": 14,
    "hpu": 15,
    "mtia": 19,
    "privateuseone": 20,
}


class Event:
    """A mark in the order of operations; on the CPU the moment when it was recorded."""

    def __init__(
        self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        place = _place(device)
        self._handle = backend_of(place).event(place, enable_timing)
        self._timed, self._recorded = enable_timing, False

    @property
    def device(self) -> Device:
        """The device of the streams that it marks."""
        return self._handle.device

    @property
    def event_id(self) -> int:
        """The backend's number of the event."""
        return int(self._handle.id)

    def record(self, stream: Stream | None = None) -> None:
        """Mark this moment of a stream, by default of the current one."""
        device = self._handle.device
        self._handle.record(backend_of(device).current_stream(device) if stream is None else stream._handle)
        self._recorded = True

    def query(self) -> bool:
        """Whether what came before is done."""
        return bool(self._handle.query())

    def synchronize(self) -> None:
        """Wait until what came before is done."""
        self._handle.synchronize()

    def wait(self, stream: Stream | None = None) -> None:
        """Let the further work of a stream, by default of the current one, wait for the event."""
        device = self._handle.device
        (backend_of(device).current_stream(device) if stream is None else stream._handle).wait(self._handle)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; both need `enable_timing=True` and must have been recorded."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self._recorded and end_event._recorded):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(self._handle.elapsed(end_event._handle))

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

    Without a dispatcher there are two layers that can be passed over: automatic differentiation, for any `Autograd`
    key, and automatic casts on the CPU.  Those of other devices are accepted; NotImplementedError for other keys.

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
    """Properties of an operator."""

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
