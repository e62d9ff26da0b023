"""The backend without memory: addresses that no memory has, and executables that are written down instead of run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from rushlight._backends.protocol import Backend, Block
from rushlight._backends.registry import backend_of, host
from rushlight._base.errors import PACKAGE
from rushlight._capture.recording.device import RecordedDevice, recorded, with_backends
from rushlight._capture.recording.errors import DataDependentError, RecordingError
from rushlight._capture.recording.log import Call, Copy, Fill
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import from_owner
from rushlight._graph.core import Graph
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.layout import extent
from rushlight._types.symbols import hint

__all__ = ["FIRST_ADDRESS", "RecordedExecutable", "RecordingBackend"]

FIRST_ADDRESS = 1 << 62  # no processor of today gives a program memory there
_ALIGNMENT = 64


class _Addresses:
    """Addresses, each given once in the life of the process."""

    __slots__ = ("_lock", "_next")

    def __init__(self) -> None:
        self._lock, self._next = Lock(), FIRST_ADDRESS

    def take(self, nbytes: int) -> int:
        with self._lock:
            address = self._next
            self._next += max(_ALIGNMENT, -(-nbytes // _ALIGNMENT) * _ALIGNMENT)
        if self._next >= 1 << 63:
            raise RecordingError("this process has recorded so much that there are no addresses left")
        return address


ADDRESSES = _Addresses()


def current() -> Any:
    """The recording of this thread."""
    found = STATE.recording
    if found is None:
        raise RecordingError("a tensor of a recorded program was used after its recording had ended")
    return found


class RecordedExecutable:
    """A graph with layouts; a call of it is an entry of the log."""

    __slots__ = (
        "_arguments",
        "_device",
        "_real",
        "aliased",
        "aliases",
        "fresh",
        "graph",
        "in_layouts",
        "n_tensors",
        "operator",
        "out_layouts",
    )

    def __init__(
        self,
        graph: Graph,
        in_layouts: Sequence[tuple[int, ...] | None],
        out_layouts: Sequence[tuple[int, ...]],
        device: RecordedDevice,
        aliases: Mapping[int, int],
        overlaps: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self._arguments = (graph, in_layouts, out_layouts, device.real, aliases, overlaps)
        self._device = device
        self._real: Any = None
        self.operator = HOOKS.operator_name
        self.graph, self.in_layouts, self.out_layouts = graph, list(in_layouts), list(out_layouts)
        self.aliases = dict(aliases)
        order = {i: n for n, i in enumerate(i for i, layout in enumerate(in_layouts) if layout is not None)}
        self.aliased = [order[i] for i in self.aliases.values()]  # which of the tensors among its words are written
        self.n_tensors = sum(layout is not None for layout in in_layouts)
        self.fresh = [
            (k, extent(v.shape, layout) * v.dtype.itemsize if 0 not in v.shape else 0)
            for k, (v, layout) in enumerate(zip(graph.outputs, out_layouts, strict=True))
            if k not in self.aliases
        ]

    def __call__(self, *words: Any) -> Any:
        made = [allocated(nbytes, self._device) for _, nbytes in self.fresh]
        current().note(Call(self, words, [storage.ptr for storage in made]))
        return made[0] if len(made) == 1 else tuple(made) if made else None

    def real(self) -> Any:
        """The real device's executable of the same graph."""
        if self._real is None:
            self._real = backend_of(self._device.real).compile(*self._arguments)
        return self._real

    @property
    def notes(self) -> list[str]:
        return []

    def steps(self) -> list[Any]:
        return []


class RecordedBlock(Block):
    """Memory that the program allocates, which it may allocate anew in another size."""

    __slots__ = ()

    movable = True


def allocated(nbytes: int, device: RecordedDevice) -> Any:
    """A storage over addresses without memory."""
    recording, size = current(), hint(nbytes)
    recording.on(device)
    address = ADDRESSES.take(size)
    recording.extend(address, nbytes, device)
    return from_owner(address, size, RecordedBlock(address, size, device))


class RecordingBackend(Backend):
    """See the module's text; `real` is the device that programs run on, `device` what stands for it."""

    accelerator = False

    def __init__(self, real: Device) -> None:
        self.type, self.real = real.type, real  # type: ignore[misc] # one backend for each device

    @property
    def device(self) -> RecordedDevice:
        """The stand-in of the device."""
        return recorded(self.real)

    def _missing(self, what: str) -> NotImplementedError:
        raise RecordingError(f"a program that needs {what} cannot be recorded")

    # ***** memory *****

    def allocate(self, nbytes: int, device: Device) -> Any:
        return allocated(nbytes, self.device)

    def zeros(self, nbytes: int, device: Device) -> Any:
        storage = allocated(nbytes, self.device)
        current().note(Fill(storage.ptr, nbytes, None))
        return storage

    def copy_in(self, address: int, source: int, nbytes: int) -> None:
        current().note(Fill(address, nbytes, bytes(host().window(source, nbytes))))

    def copy_out(self, address: int, source: int, nbytes: int) -> None:
        found = current().known_bytes(source, nbytes)
        if found is None:
            raise DataDependentError(f"{asking()} asks for the elements of a tensor")
        host().window(address, nbytes)[:] = found

    def copy(self, address: int, source: int, nbytes: int, device: Device) -> None:
        current().note(Copy(address, source, nbytes))

    # ***** programs *****

    @property
    def target(self) -> Any:
        return backend_of(self.real).target

    def compile(
        self,
        graph: Graph,
        in_layouts: Sequence[tuple[int, ...] | None],
        out_layouts: Sequence[tuple[int, ...]],
        device: Device,
        aliases: Mapping[int, int] | None = None,
        overlaps: Mapping[int, Sequence[int]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        backend_of(self.real).expect(graph)
        return RecordedExecutable(graph, in_layouts, out_layouts, self.device, aliases or {}, overlaps)

    def steps(self, graph: Graph, in_layouts: Sequence[Any], out_layouts: Sequence[Any]) -> int:
        return backend_of(self.real).steps(graph, in_layouts, out_layouts)

    # ***** elements *****

    def reader(self, dtype: DType) -> Callable[[int], Any]:
        def read(address: int) -> Any:
            return current().element(address, dtype, asking)

        return read

    def routine(self, name: str, key: Any = None) -> Callable[..., Any]:
        def run(*words: Any) -> Any:
            raise DataDependentError(f"{asking()} has a result whose shape depends on elements of a tensor ({name})")

        return run

    @property
    def selection_piece(self) -> int:
        return backend_of(self.real).selection_piece

    # ***** random numbers *****

    def random_kernel(self, name: str, kind: str) -> Callable[..., Any]:
        def draw(*words: Any) -> Any:
            raise RecordingError(f"the random kernel '{name}' cannot be recorded here")

        return draw

    def memory_stats(self, device: Device) -> Mapping[str, int]:
        return backend_of(self.real).memory_stats(self.real)


_INNER = tuple(
    PACKAGE + room for room in ("_capture" + os.sep + "recording", "_engine", "_surface", "_backends", "_base")
)

_WRAPPERS = frozenset(
    ("missed", "public", "called", "full", "slow", "call", "run", "function")
)  # around functions of other names


def asking() -> str:
    """The function that asks for elements, by the name under which it was called."""
    frame, name = sys._getframe(1), "a function"
    while frame is not None and frame.f_code.co_filename.startswith(_INNER):
        if not frame.f_code.co_filename.startswith(_INNER[0]) and frame.f_code.co_name not in _WRAPPERS:
            name = frame.f_code.co_name
        frame = frame.f_back
    return name


with_backends(RecordingBackend)
