"""The protocol of a device's backend: memory, programs, scalars, random numbers, optimizer steps, streams, statistics.

One `Backend` stands for all devices of a type (`cpu`, `meta`, `cuda`, your own); `_backends.registry` finds it by the
device of a spec.  Everything above this room reaches memory and kernels through these methods alone: it stores,
compares and offsets addresses, and never loads through one.  What a backend leaves out raises NotImplementedError with
its name; it is never replaced silently.

[Add a device](../../../docs/add-a-device.md) builds one step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from rushlight._codegen.blocks import Kernel
    from rushlight._graph.core import Graph
    from rushlight._host.device_records import NativeDevice
    from rushlight._types.device import Device
    from rushlight._types.dtype import DType
    from rushlight._types.shape_env import ShapeEnv

__all__ = [
    "Backend",
    "Block",
    "BlockLaunch",
    "EventHandle",
    "Executable",
    "ForeignBlock",
    "ProgramTemplate",
    "Step",
    "StreamHandle",
]


class Block:
    """Memory of a device that the host's runtime did not allocate: the owner of the storage over it.

    A storage belongs to the device of the block at the root of its owners, and to the host where there is none.  The
    block frees its memory when it is collected.
    """

    __slots__ = ("__weakref__", "address", "device", "nbytes")

    def __init__(self, address: int, nbytes: int, device: Device) -> None:
        self.address, self.nbytes, self.device = address, nbytes, device


class ForeignBlock(Block):
    """Memory of a device that somebody else has, another library or another process: `owner` keeps it."""

    __slots__ = ("owner",)

    def __init__(self, address: int, nbytes: int, device: Device, owner: Any) -> None:
        super().__init__(address, nbytes, device)
        self.owner = owner


class Step(NamedTuple):
    """One kernel or library call of an executable: its name, and the bytes that it moves at least, each element once."""

    name: str
    moved: int


class BlockLaunch(Protocol):
    """A compiled kernel of the block IR.  `checked`: it holds every access against the `ranges` of a launch."""

    checked: bool

    def launch(self, grid: Sequence[int], arguments: Sequence[Any], ranges: Sequence[tuple[int, int]] = ()) -> None:
        """Run the programs of a grid: arguments are addresses and numbers.

        `ranges` are the (first, end) addresses that a checked kernel may access.  ValueError for arguments that are no
        multiples of what the kernel counts on.
        """

    def texts(self) -> Mapping[str, str]:
        """Code given to the device, by the names of its forms."""

    def report(self) -> str:
        """The code for a reader, and what is known of how it runs."""


class Executable(Protocol):
    """A compiled graph.

    It is called with the addresses of all tensor inputs, then with the numbers (a complex one as two floats), in the
    order of the graph's inputs.  It returns the storage of the fresh output, a tuple of storages where there are
    several, None where all outputs alias inputs.

    One of a `native` device has `native_device`, and either `calls` (kernels of the host) or `native_rows`: for each step
    (address of what `DEVICE.launch` runs, address of its constants, numbers of the words that it takes, how many results
    it makes), with `native_inputs` words of a call and `native_results`, the numbers of the results behind them.
    """

    def __call__(self, *words: Any) -> Any: ...

    @property
    def notes(self) -> list[str]:
        """Notes on what was fused with what, and why."""

    def steps(self) -> list[Step]:
        """Its kernels and library calls, in order."""

    def timed(self, words: Sequence[Any], clock: Callable[[], float]) -> tuple[Any, list[float]]:
        """A call, step by step: what it returns, and the seconds of every step by `clock`."""

    def code(self) -> list[tuple[str, str]]:
        """The name and the text of each generated kernel, as it goes to the compiler."""

    def assembly(self) -> list[tuple[str, str]]:
        """The name and the assembly of each generated kernel."""

    def explain(self, asm: bool = False) -> str:
        """Kernels and calls of the program, as text; with `asm` down to the machine code."""


class ProgramTemplate(Protocol):
    """A program with symbolic sizes."""

    @property
    def numbers(self) -> Sequence[Any]:
        """Formulas over the sizes, whose values `cast` takes."""

    def cast(self, values: Sequence[Any], first: int = 0) -> Executable:
        """The program for one set of sizes; `values[first:]` are those of `numbers`."""

    def literal(self, values: Sequence[Any], first: int = 0) -> str:
        """The program for one set of sizes, as text."""


class StreamHandle:
    """An order of work of a device.  This one is of devices whose calls return when their work is done."""

    __slots__ = ("__weakref__", "device", "priority")

    id = 0

    def __init__(self, device: Device, priority: int = 0) -> None:
        self.device, self.priority = device, priority

    def query(self) -> bool:
        """Whether all work of the stream is done."""
        return True

    def synchronize(self) -> None:
        """Wait until it is."""

    def wait(self, event: EventHandle) -> None:
        """Let work that is given to the stream from now on wait for an event."""


class EventHandle:
    """A mark in a stream.  This one is of devices whose calls return when their work is done."""

    __slots__ = ("__weakref__", "at", "device", "timing")

    id = 0

    def __init__(self, device: Device, timing: bool = False) -> None:
        self.device, self.timing = device, timing
        self.at: float | None = None

    def record(self, stream: StreamHandle) -> None:
        """Mark this moment of a stream."""
        self.at = perf_counter()

    def query(self) -> bool:
        """Whether what came before is done."""
        return True

    def synchronize(self) -> None:
        """Wait until it is."""

    def elapsed(self, end: EventHandle) -> float:
        """Milliseconds from this event to another; both were recorded."""
        assert self.at is not None and end.at is not None
        return (end.at - self.at) * 1e3


class Backend:
    """All devices of one type.  Addresses are plain ints; sizes are in bytes.

    Flags say what the engine may do beside the calls below:

    - `host_readable`: the host can read and write the memory at its address (`window`, NumPy, the buffer protocol).
    - `shapes_only`: tensors have no memory; nothing is compiled.
    - `native`: executables are steps that the host's native plans can run (`Executable.calls`), by way of
      `native_device`.
    - `symbolic`: `template` compiles for symbolic sizes; without it every new size is compiled by itself.
    - `keeps_programs`: executables can be kept on disk (`packed`, `unpacked`).
    - `asynchronous`: work goes on after calls have returned; there is pinned memory of the host, and copies take
      `wait=False`.
    - `counted_streams`: random streams are a seed and an offset (Philox), not the words of a Mersenne twister.
    - `accelerator`: the type is what `torch.accelerator` and `torch.device(0)` mean.
    """

    type: ClassVar[str] = ""
    host_readable: ClassVar[bool] = False
    shapes_only: ClassVar[bool] = False
    native: ClassVar[bool] = False
    symbolic: ClassVar[bool] = False
    keeps_programs: ClassVar[bool] = False
    asynchronous: ClassVar[bool] = False
    counted_streams: ClassVar[bool] = False
    dlpack_type: ClassVar[int] = 12  # the number of the type in the DLPack standard; 12 is any that has no other
    accelerator: ClassVar[bool] = True
    # An object with `element_kernel`, `update_rows`, `counting`, `adafactor` (see `_backends.cpu.optim`), or None:
    # steps run tensor by tensor.
    multi_tensor: Any = None

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"the backend of device type '{self.type}' has no {what}")

    @property
    def ahead(self) -> Any:
        """Compiler of programs ahead of time (see `_backends.cpu.ahead.library`)."""
        raise self._missing("programs compiled ahead of time")

    # ***** devices *****

    def device_count(self) -> int:
        """How many devices of the type there are."""
        return 1

    def current_device(self) -> int:
        """The index of the device that a device without an index means."""
        return 0

    def set_device(self, index: int) -> None:
        """Let a device without an index mean this one; RuntimeError for an index that there is not."""
        if index:
            raise RuntimeError(
                f"device type '{self.type}' has {self.device_count()} device, there is no number {index}"
            )

    def properties(self, device: Device) -> Mapping[str, Any]:
        """Facts about a device: `name`, `total_memory` and whatever else the type has."""
        return {"name": str(device)}

    @property
    def target(self) -> Any:
        """The machine for which graphs are scheduled; see `Target`."""
        raise self._missing("target to schedule for")

    # ***** memory *****

    def allocate(self, nbytes: int, device: Device) -> Any:
        """A storage over fresh memory with whatever is in it; OutOfMemoryError where there is none."""
        raise self._missing("memory")

    def zeros(self, nbytes: int, device: Device) -> Any:
        """A storage over zeros."""
        raise self._missing("memory")

    def allocator(self, device: Device) -> Callable[[int], Any]:
        """`allocate` for one device: a function of the size alone."""
        return lambda nbytes: self.allocate(nbytes, device)

    def window(self, address: int, nbytes: int) -> memoryview:
        """The bytes at an address, to be read and written by the host; only of `host_readable` memory."""
        raise self._missing("memory that the host can read")

    def copy_in(self, address: int, source: int, nbytes: int) -> None:
        """Copy from the host's memory at `source` to the device's at `address`; returns when `source` may be
        overwritten.

        A backend that is `asynchronous` takes `wait=False`, with which pinned memory may be read later.
        """
        raise self._missing("copies from the host")

    def copy_out(self, address: int, source: int, nbytes: int) -> None:
        """Copy from the device's memory at `source` to the host's at `address`; returns when it is there.

        A backend that is `asynchronous` takes `wait=False`, with which pinned memory may be written later.
        """
        raise self._missing("copies to the host")

    def allocate_pinned(self, nbytes: int) -> Any:
        """A storage of memory of the host that devices copy from and to while the program goes on."""
        raise self._missing("pinned memory of the host")

    def is_pinned(self, address: int) -> bool:
        """Whether an address of the host is of such memory."""
        return False

    def device_at(self, address: int) -> int:
        """The index of the device whose memory has an address."""
        raise self._missing("devices of addresses")

    def export_memory(self, address: int, device: Device) -> Any:
        """Plain data by which `import_memory` of another process opens the memory at an address."""
        raise self._missing("memory that other processes can open")

    def import_memory(self, data: Any, nbytes: int) -> Block:
        """The memory of another process."""
        raise self._missing("memory of other processes")

    def record_stream(self, address: int, device: Device, stream: StreamHandle) -> None:
        """Let memory that is freed be kept until a further stream has passed this use of it."""
        raise self._missing("streams that memory could be kept for")

    def copy(self, address: int, source: int, nbytes: int, device: Device) -> None:
        """Copy within the memory of one device; the two stretches do not overlap."""
        raise self._missing("copies within a device")

    def copy_peer(self, address: int, device: Device, source: int, source_device: Device, nbytes: int) -> None:
        """Copy between two devices of the type."""
        raise self._missing("copies between its devices")

    # ***** programs *****

    def compile(
        self,
        graph: Graph,
        in_layouts: Sequence[tuple[int, ...] | None],
        out_layouts: Sequence[tuple[int, ...]],
        device: Device,
        aliases: Mapping[int, int] | None = None,
        overlaps: Mapping[int, Sequence[int]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Executable:
        """The executable of a graph; `in_layouts` are the strides of its inputs in elements, None for numbers.

        `aliases` says for outputs which input's memory they are written to, with that input's layout; the graph may
        read the input, too.  `overlaps` names for outputs further inputs that may share that memory.  `options` are
        switches of passes over whole programs (`_transforms.passes`).  NotImplementedError for a primitive that the
        backend lacks.
        """
        raise self._missing("compiler")

    def activities(self, told: Callable[[str, int, int], Any]) -> Any:
        """Timer of the work of asynchronous devices: an object with `start()` and `stop()`, which gives records with a kind
        (kernel, gpu_memcpy, gpu_memset), a name, device, stream, begin and duration in nanoseconds, what `told(call, began,
        ended)` gave for the call that started the work, and details.
        """
        raise self._missing("times of what devices do")

    def block_kernel(self, kernel: Kernel, device: Device) -> BlockLaunch:
        """A kernel of the block IR, compiled; its launches are in order with the rest of the device's work.
        NotImplementedError for an operation that has no form on the device.
        """
        raise self._missing("kernels of the block IR")

    def template(
        self,
        graph: Graph,
        in_layouts: Sequence[Any],
        out_layouts: Sequence[Any],
        shape_env: ShapeEnv,
        aliases: Mapping[int, int] | None = None,
        overlaps: Mapping[int, Sequence[int]] | None = None,
    ) -> ProgramTemplate:
        """The same where sizes are symbolic; only where `symbolic` is set.  SpecializationError where sizes decide too
        much.
        """
        raise self._missing("compiler for symbolic sizes")

    def packed(self, program: Any, texts: bool = False) -> Any:
        """An executable, or a template of one, as plain data (lists, texts, numbers; those of a template may be
        symbolic), to be kept on disk.

        With `texts` the data say all that the program does.  UnpackableError (`_graph.packing`) for a program that
        cannot be kept.
        """
        raise self._missing("programs that can be kept")

    def packed_text(self, data: Any, names: bool = True) -> str:
        """Text of a program that was packed with `texts`: equal texts compute the same in the same way."""
        raise self._missing("programs that can be kept")

    def unpacked(self, data: Any, tensors: int, numbers: int, results_bytes: Sequence[int]) -> Executable | None:
        """Rebuild the result of `packed`; None where something that it refers to is gone.

        The data may have been written by anybody: RecordError where they are not those of a program that takes so many
        tensors and Python numbers and makes results of so many bytes.
        """
        raise self._missing("programs that can be kept")

    def unpacked_linked(
        self,
        data: Any,
        in_specs: Sequence[Any],
        results_bytes: Sequence[int | None],
        compile_now: Callable[[], Any],
        roomy: Collection[int] = (),
    ) -> Executable | None:
        """The same for the executable of a graph with borders, whose inputs have these specs (None: a number).

        `results_bytes` are those of its outputs, None for one that lies in an input. `compile_now()` compiles the graph
        for who wants to look inside. The clusters `roomy` get memory for other sizes, too.
        """
        raise self._missing("programs that can be kept")

    def linked_for_sizes(self, executable: Any, varying: Mapping[int, int]) -> Any:
        """Factory of executables for other sizes, which changes words of this one; None where it cannot be
        done.  `varying` are the clusters that depend on sizes, with the number of the part of each.
        """
        return None

    def unpacked_wiring(self, data: Any, in_specs: Sequence[Any], results_bytes: Sequence[int | None]) -> Any:
        """The data that `unpacked_linked` reads, not made executable: for who looks inside of one for other sizes."""
        raise self._missing("programs that can be kept")

    def unpacked_part(self, row: Any) -> Any:
        """The program of some of its clusters, from one of the `parts` of its plain data; it may stand in the place of
        that.  None where something that it refers to is gone.
        """
        raise self._missing("programs that can be kept")

    def linked_template(
        self,
        graph: Graph,
        in_layouts: Sequence[Any],
        out_layouts: Sequence[Any],
        shape_env: ShapeEnv,
        aliases: Mapping[int, int],
        options: Mapping[str, Any] | None,
        texts: bool = False,
    ) -> Any:
        """The plain data of the executable of a graph with borders and symbolic sizes, with formulas in the places of
        numbers: filled in they are what `unpacked_linked` takes.  `texts` as in `packed`.
        """
        raise self._missing("compiler for symbolic sizes")

    @property
    def choices(self) -> str:
        """Settings on which programs depend beside their graphs and the machine, as text."""
        return ""

    def expect(self, graph: Graph) -> None:
        """Begin with what a graph will need that is part of a program which is recorded, where something can begin."""

    def steps(self, graph: Graph, in_layouts: Sequence[Any], out_layouts: Sequence[Any]) -> int:
        """How many kernels and library calls a graph becomes."""
        raise self._missing("schedule")

    def bind(self, executable: Any, closure: Callable[..., Any], native: Callable[[], Any]) -> Callable[..., Any]:
        """The plan around an executable: `closure` runs it from Python, `native()` makes a plan of the host's
        dispatcher.

        A backend whose executables have native steps gives the latter.
        """
        return native() if self.native else closure

    # ***** native plans *****

    @property
    def native_device(self) -> NativeDevice:
        """The functions through which the host's native plans allocate, launch kernels and read elements; asked for
        where `native` is set.
        """
        raise self._missing("native plans")

    def native_device_of(self, device: Device) -> NativeDevice:
        """The same for one device of the type."""
        return self.native_device

    # ***** elements *****

    def reader(self, dtype: DType) -> Callable[[int], Any]:
        """A function from the address of an element to a Python number."""
        raise self._missing("way to read a number")

    def routine(self, name: str, key: Any = None) -> Callable[..., Any]:
        """A routine beside graphs, for results whose shape depends on the data; `key` is a dtype's name or a size of
        elements.

        Every address among its arguments is of the device but those of `before`, which are the host's.  Bool masks are
        bytes.

        - `count_true(mask, n, before) -> count`: how many are set, and before each piece of `selection_piece` elements
          (int64).
        - `list_true(mask, n, before, indices)`: the flat indices (int64) of what is set.
        - `unravel(indices, n, sizes, ndim, coordinates)`: flat indices as coordinates, dim after dim; `sizes` (int64)
          are of the host.
        - `compact(source, mask, n, before, result)` by the size of an element: the elements that are set.
        - `mark_runs(x, n, mask)` by dtype: where an element differs from the one before it.
        - `number_runs(mask, n, before, order, result)`: the number of each element's run (int64), at index `order[i]`
          where `order` is not 0.
        - `run_lengths(starts, n, total, result)`: how long each run is.
        - `copy_rows(target, addresses, n, nbytes)`: n stretches of memory one behind the other; the table `addresses`
          is the host's.
        """
        raise self._missing(f"routine '{name}'")

    @property
    def selection_piece(self) -> int:
        """How many elements of a mask `count_true` counts together."""
        raise self._missing("selection")

    # ***** random numbers *****

    def random_kernel(self, name: str, kind: str) -> Callable[..., Any]:
        """A routine that fills memory from a stream: `(state, address, count, *parameters)`; `state` is of the host.

        The names are those of `_engine.random.random`; `kind` names the element type.
        """
        raise self._missing("random numbers")

    def stream_entry(self) -> int:
        """The address of the native function by which random kernels draw words from a stream; 0 where there is none."""
        return 0

    # ***** streams *****

    def synchronize(self, device: Device) -> None:
        """Wait until everything that was started on a device is done; a device without streams has nothing to wait for."""

    def stream(self, device: Device, priority: int = 0) -> StreamHandle:
        """A new stream of a device; one whose calls return when their work is done has nothing to order."""
        return StreamHandle(device, priority)

    def event(self, device: Device, timing: bool = False) -> EventHandle:
        """A mark in a stream, to be waited for."""
        return EventHandle(device, timing)

    def current_stream(self, device: Device) -> StreamHandle:
        """The stream that this thread's calls on a device go to."""
        return StreamHandle(device)

    def is_capturing(self, stream: StreamHandle) -> bool:
        """Whether the work of a stream becomes a graph instead of running."""
        return False

    def default_stream(self, device: Device) -> StreamHandle:
        """The stream that is a thread's current one of a device before it chooses another."""
        return StreamHandle(device)

    def external_stream(self, handle: int, device: Device) -> StreamHandle:
        """The stream of a handle that another library has."""
        raise self._missing("streams of other libraries")

    def set_stream(self, stream: StreamHandle) -> None:
        """Let this thread's calls on the stream's device go to it."""

    def graph(self, keep: bool = False) -> Any:
        """Work that streams are given, to be recorded once and replayed; see `_backends.cuda.graphs.CapturedGraph`."""
        raise self._missing("recorded work (accelerator.Graph)")

    # ***** statistics *****

    def memory_stats(self, device: Device) -> Mapping[str, int]:
        """Bytes and counts of what is allocated; see `_backends.cpu.runtime.storage.memory_stats` for names."""
        raise self._missing("memory statistics")

    def reset_peak(self, device: Device) -> None:
        """Start measuring the peaks of `memory_stats` anew."""
        raise self._missing("peaks that can be reset")

    def empty_cache(self, device: Device) -> None:
        """Give memory that is kept for reuse back to the system."""
