"""`Recording`: the time in which a thread's calls are written down instead of run.

>>> import rushlight as torch
>>> from rushlight._capture.recording import Recording
>>> weight = torch.ones(2, requires_grad=True)
>>> with Recording() as recording:
...     x = recording.stand_in(weight)
...     y = (x * 3.0).sum()
...     program = recording.finish([y])
>>> (found,) = program([weight])
>>> found.backward()
>>> found, weight.grad
(tensor(6., grad_fn=<CompiledFunctionBackward>), tensor([3., 3.]))
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight._backends.protocol import Block
from rushlight._backends.registry import backend_of, host
from rushlight._capture.recording.backend import ADDRESSES, FIRST_ADDRESS
from rushlight._capture.recording.device import RecordedDevice, recorded
from rushlight._capture.recording.element_numbers import element_number
from rushlight._capture.recording.errors import DataDependentError, RecordingError
from rushlight._capture.recording.log import Branch, Call, Check, Collective, Draw, Entry, Fill, Loop, Move, Read
from rushlight._capture.recording.memory import InputBackward, Memory, OpenPart
from rushlight._capture.recording.replaced import UNSEEN, Unseen
from rushlight._capture.recording.running.host_numbers import HostNumber, Leaf, host_number
from rushlight._capture.recording.running.program import CompiledProgram, compiled_program
from rushlight._capture.recording.running.replay import follows_from_counters, known
from rushlight._capture.recording.streams import Streams
from rushlight._engine.autograd.node import edge_of, split_edge
from rushlight._engine.core.memory import MEMORY, empty_spec, has_memory, root_of
from rushlight._engine.core.state import RECORDING, STATE
from rushlight._engine.core.tensor import Tensor, from_owner, make, meta_of
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._engine.functorch.transformed import LEVELS
from rushlight._engine.random.random import STATE_SIZE
from rushlight._native.mutable_objects import own_attributes
from rushlight._types.device import CPU, Device
from rushlight._types.dtype import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    DType,
)  # fmt: skip
from rushlight._types.layout import extent
from rushlight._types.spec import Spec, check_memory
from rushlight._types.symbols import env_of, hint

__all__ = ["Recording"]


_MOVED = frozenset((BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, UINT8))


def _unrun(x: Any) -> None:
    """Stands for a hook behind the accumulation of a gradient, which must not be in the program then."""
    raise RecordingError("a gradient is accumulated in a program whose hooks would have to run")


class Recording:
    """See the module's text.  A recording belongs to the thread that entered it, and is entered and left any number of
    times.

    `inputs` are the real tensors in the order of their first `stand_in`.  `origins` says of each how it came in:
    `("given", None)`, `("grad", i)` for the `.grad` of input i, `("found", None)` for a tensor that an operator met
    without a stand-in.
    """

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.specs: list[Spec] = []  # of the inputs, with symbols where their sizes vary
        self.origins: list[tuple[str, int | None]] = []
        self.log: list[Entry] = []
        self.captures_elements = False  # whether elements that the program computes can be numbers
        self.writers: dict[int, list[int]] = {}  # of memory, by address: which entries wrote it
        self._standing: dict[int, Tensor] = {}
        self._numbers: dict[int, int] = {}  # of the inputs, by their stand-ins
        self._unseen: dict[int, Tensor | Unseen | None] = {}  # what stood for gradients that nobody looks at, by owner
        self._starts: list[int] = []
        self._memories: list[Memory] = []
        self._roots: dict[int, tuple[Memory, Any]] = {}
        self._storages: dict[int, tuple[Any, Any]] = {}
        self.defers = True  # whether what is recorded runs, checks included; a custom backend runs an fx graph instead
        self.keeps_hooks = False  # whether who records gives the hooks of tensors to their stand-ins
        self.first_grads: list[Tensor | Unseen | None] = []
        self.first_edges: dict[int, Any] = {}
        self.wrapped: list[Any] = []  # tensors made of inputs, which want gradients (see `trace.wrappers.Given`)
        self.finishing = False
        self.first_versions: list[int] = []
        self.device: RecordedDevice | None = None  # what its tensors are on, but for those of the host beside a GPU's
        self.streams = Streams()

    # ***** the time of a recording *****

    def __enter__(self) -> Recording:
        if STATE.recording is not None:
            raise RecordingError("a program is being recorded in this thread already")
        STATE.recording = self
        STATE.word |= RECORDING
        return self

    def __exit__(self, *exc: object) -> None:
        STATE.recording = None
        STATE.word &= ~RECORDING

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A time in which this thread records nothing."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    @contextmanager
    def continued(self) -> Iterator[None]:
        """The time of the recording, whether it is that now or not."""
        if STATE.recording is self:
            yield
        else:
            with self:
                yield

    def release(self) -> None:
        """Let go of the real tensors, once the programs are made: these may be kept for longer, and record more of the
        backward.
        """
        self.inputs = []
        self._standing.clear()
        self._numbers.clear()
        self._unseen.clear()
        self._storages.clear()

    # ***** the device *****

    @property
    def host(self) -> Device:
        """The real device that the program runs on; the CPU while no tensor has said another."""
        return CPU if self.device is None else self.device.real

    @property
    def on_host(self) -> bool:
        """Whether the program runs on the host."""
        return backend_of(self.host).host_readable

    def is_beside(self, address: int) -> bool:
        """Whether memory is the host's in a program of another device."""
        return not self.on_host and backend_of(self.memory_at(address).device.real).host_readable

    def on(self, device: RecordedDevice) -> None:
        """All tensors of a program lie on one device, or on the host beside it; RecordingError for one on another."""
        if self.device is device:
            return
        if self.device is None:
            self.device = device
        elif self.on_host and all(env_of((*s.shape, *s.strides)) is None for s in self.specs):
            self.device = device
        elif self.on_host or not backend_of(device.real).host_readable:
            raise RecordingError(f"one program is for tensors on {self.device}, and another for those on {device}")

    # ***** what the backend says *****

    def note(self, entry: Entry) -> None:
        """Write an entry down."""
        if self.streams.states:
            self.streams.check_unread(entry)
        if isinstance(entry, (Branch, Loop)):
            written = list(entry.fresh)
        elif isinstance(entry, Collective):
            written = [self.memory_at(entry.result[0]).address]
        elif type(entry) is Call:
            written = [*entry.fresh, *[self.memory_at(entry.words[n]).address for n in entry.exe.aliased]]
        else:
            written = [] if isinstance(entry, (Call, Check, Read)) else [self.memory_at(entry.address).address]
        for address in written:
            self.writers.setdefault(address, []).append(len(self.log))
        self.log.append(entry)

    def extend(self, address: int, nbytes: int, device: RecordedDevice) -> Memory:
        """Memory that the program allocates."""
        return self._add(Memory(address, nbytes, device))

    def _add(self, memory: Memory) -> Memory:
        self._starts.append(memory.address)  # addresses only grow
        self._memories.append(memory)
        return memory

    def draw(self, generator: Any, name: str, kind: str, words: Sequence[Any]) -> None:
        """Note a draw of a random kernel: `words` are the address, how many elements, and parameters."""
        address, count, *parameters = words
        if any(type(p) is int and p >= FIRST_ADDRESS for p in (count, *parameters)):
            raise RecordingError(f"random numbers of the kernel '{name}' depend on elements of a tensor")
        if any(isinstance(p, HostNumber) and p.computed for p in parameters):
            raise RecordingError(f"random numbers of the kernel '{name}' depend on elements of a tensor")
        if not self.owns(address):
            raise RecordingError("a tensor that was not recorded is filled with random numbers")
        if self.is_beside(address):
            raise self.refused(f"a draw of random numbers on the host, beside tensors on {self.host},")
        size = int(kind) if kind.isdigit() else int(kind[1:]) // 8
        entry = Draw(generator, name, kind, address, count, tuple(parameters), size)
        self.note(self.streams.drawn(entry))

    def stream_state(self, generator: Any) -> Tensor:
        """Stand-in for the state of a generator at this point."""
        made = empty_spec(Spec.of(UINT8, recorded(CPU), (STATE_SIZE,)))
        self.streams.states[made._ptr] = generator, self.streams.place(generator)
        return made

    def set_stream_state(self, generator: Any, state: Tensor) -> None:
        """Let a generator go on from where it was at `stream_state`."""
        known = self.streams.states.get(state._ptr)
        if known is None or known[0] is not generator:
            raise self.refused("a state of a random generator from elsewhere")
        self.streams.places[id(generator)] = known[1]

    def burn_in(self) -> None:
        """Require that symbolic sizes are what they are: for what asks how large memory is."""
        for layout in self.specs:
            env = env_of((*layout.shape, *layout.strides))
            if env is not None:
                env.pin_all()
                return

    def refused(self, what: str) -> RecordingError:
        """The error for something that cannot be part of a program."""
        return RecordingError(f"{what} cannot be part of a recorded program")

    def element(self, address: int, dtype: DType, asking: Callable[[], str]) -> Any:
        """The element at an address as a Python number, where it follows from numbers of the program."""
        found = self.known_bytes(address, dtype.itemsize)
        if found is not None:
            held = MEMORY.alloc(len(found))
            memoryview(held).cast("B")[: len(found)] = found
            return host().reader(dtype)(held.ptr)
        counter = None
        readable = backend_of(self.memory_at(address).device.real).host_readable
        if (
            readable
            and self.defers
            and dtype in (FLOAT32, FLOAT64, INT64, INT32)
            and follows_from_counters(self, address)
        ):
            leaf = Leaf(address, dtype)
            self.note(Read(leaf))
            counter = host_number(leaf, float if dtype.is_floating_point else int)
        if self.captures_elements and not LEVELS.stack and (number := element_number(address, dtype, counter)):
            return number[0]
        if counter is not None:
            return counter
        raise DataDependentError(
            f"{asking()} asks for an element of a tensor, which is not known while a program is recorded"
        )

    @contextmanager
    def part(self, made: OpenPart | None = None) -> Iterator[OpenPart]:
        """The time in which calls are written down as a part of control flow; with `made` at the end of that."""
        made = made or OpenPart()
        outer, writers, first = self.log, self.writers, len(self._memories)
        self.log, self.writers = made.log, made.writers
        try:
            yield made
        finally:
            self.log, self.writers = outer, writers
            made.own.update(m.address for m in self._memories[first:] if m.real is None)

    def collective(self, name: str, x: Tensor, out: Tensor, params: dict[str, Any]) -> None:
        """Note a call of processes from `x` into `out`: recorded tensors, row-major, that do not overlap or are the
        same.

        RecordingError for others.
        """
        for each in (x, out):
            if not self.is_recorded(each) or not each._spec.contiguous or each._spec.conj:
                raise self.refused(f"prim.{name} of a tensor that is not recorded, or not row-major,")
        if not self.defers:
            raise self.refused(f"prim.{name} in a graph for another backend")
        env = env_of((*x._spec.shape, *out._spec.shape))
        if env is not None:
            env.pin_all()
        self.note(Collective(name, (x._ptr, x._spec), (out._ptr, out._spec), params))

    def check(self, failed: Tensor) -> None:
        """Take a recorded bool of one element to be False.  A call of the program in which it is not raises
        `CheckFailed`, without a result and with everything as it was.
        """
        if failed._spec.dtype is not BOOL or failed._spec.numel != 1 or not self.is_recorded(failed):
            raise RecordingError("a check looks at one recorded bool")
        if self.defers:  # else the operators of the graph check for themselves
            self.note(Check(failed._ptr))

    def host_number(self, getter: Callable[[], Any]) -> Any:
        """A number that each call of the program asks `getter` for; its type must stay that of `getter()` now, a float
        or an int.
        """
        kind = type(getter())
        if kind not in (float, int):
            raise TypeError(f"a host number is a float or an int, not {kind.__name__}")
        return host_number(Leaf(getter=getter), kind)

    def asked(self, what: str) -> DataDependentError:
        """The error for a function that asks for elements."""
        return DataDependentError(f"{what} asks for the elements of a tensor")

    def known_bytes(self, address: int, nbytes: int) -> bytes | None:
        """The bytes at an address where they follow from numbers of the program."""
        return known(self, address, nbytes)

    # ***** what a tracer asks *****

    def owns(self, address: int) -> bool:
        """Whether an address is one of this recording."""
        address = hint(address)
        return bool(self._starts) and self._starts[0] <= address < self._starts[-1] + max(
            hint(self._memories[-1].nbytes), 1
        )

    def memory_at(self, address: int) -> Memory:
        """The memory in which an address lies."""
        address = hint(address)
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address > (found := self._memories[at]).address + hint(found.nbytes):
            raise RecordingError("a tensor of another recording takes part in this one")
        return found

    def is_given(self, x: Tensor) -> bool:
        """Whether a program is given all elements that a recorded tensor shows: its own memory, or a stretch between
        the first and the last element of inputs.
        """
        memory = self.memory_at(x._ptr)
        if memory.real is None:
            return True
        shown = [
            (
                hint(each._ptr),
                hint(each._ptr + extent(each._spec.shape, each._spec.strides) * each._spec.dtype.itemsize),
            )
            for each in (self._standing[id(given)] for given in self.inputs)
            if self.memory_at(each._ptr) is memory
        ]
        end = hint(x._ptr + extent(x._spec.shape, x._spec.strides) * x._spec.dtype.itemsize)
        return min(start for start, _ in shown) <= hint(x._ptr) and end <= max(stop for _, stop in shown)

    def is_recorded(self, x: Any) -> bool:
        """Whether a tensor is one of a recorded program."""
        return isinstance(x, Tensor) and isinstance(x._spec.device, RecordedDevice)

    def stand_in(
        self, x: Tensor, origin: tuple[str, int | None] = ("given", None), layout: Spec | None = None
    ) -> Tensor:
        """The tensor that stands for a real one: the same for the same tensor, over shared memory for
        tensors that share memory.

        It has the shape, strides, offset, dtype, class, attributes, `requires_grad` and `.grad` of the real one, and is
        a leaf where that is one.  `layout` is its spec with symbolic sizes (see `sizes`).  Tensors of a recording and
        tensors without memory come back as they are.
        RecordingError for what no program can be given.
        """
        made = self._standing.get(id(x))
        if made is not None:
            return made
        if not isinstance(x, Tensor):
            raise TypeError(f"stand_in() takes a tensor, not {type(x).__name__}")
        if isinstance(x, DispatchType) or x._storage is None:  # a wrapper of other tensors
            raise RecordingError(f"a {type(x).__name__} cannot be part of a recorded program yet")
        spec = x._spec
        if isinstance(spec.device, RecordedDevice) or not has_memory(spec):
            return x
        check_memory(spec)
        device = recorded(spec.device)
        self.on(device)
        storage = self._storage(x._storage, device)
        address = storage.ptr + (x._ptr - x._storage.ptr)
        layout = layout or spec
        alike = Spec.of(spec.dtype, device, layout.shape, layout.strides, spec.conj)
        made = make(storage, alike, address)
        if type(x) is not Tensor:
            made.__class__ = type(x)
        held = own_attributes(x)
        if held:
            made.__dict__.update(held)
        self._measure(address, layout)
        self.inputs.append(x)
        self.specs.append(layout)
        self.origins.append(origin)
        self.first_versions.append(x._storage.version)
        self.first_grads.append(None)
        self._standing[id(x)] = made
        self._numbers[id(made)] = len(self.inputs) - 1
        self._give_history(made, x, len(self.inputs) - 1)
        return made

    def _measure(self, address: int, layout: Spec) -> None:
        """Let memory that a tensor of symbolic sizes fills have symbolic size."""
        memory = self.memory_at(address)
        nbytes = extent(layout.shape, layout.strides) * layout.dtype.itemsize
        if address == memory.address and hint(nbytes) == memory.nbytes:
            memory.nbytes = nbytes

    def _give_history(self, made: Tensor, x: Tensor, number: int) -> None:
        made._rg = x._rg
        if x._node is not None:
            node = InputBackward(functools.partial(self.inputs_behind, x))
            node._start(())
            made._node = self.first_edges[number] = node
        meta = x._autograd_meta
        if meta is None:
            return
        if meta.grad is not None:
            meta_of(made).grad = self.first_grads[number] = self.stand_in(meta.grad, ("grad", number))
        if meta.inference:
            meta_of(made).inference = True
        if (meta.hooks or meta.post_hooks) and not self.keeps_hooks:
            if meta.hooks:
                raise RecordingError("a tensor with hooks is given to a recorded program")
            meta_of(made).post_hooks = {0: _unrun}

    def forgets_gradient(self, made: Tensor) -> bool:
        """Whether the `.grad` that an input comes with is of no matter: it is replaced now or was before, and nobody
        has looked at it.  Then calls of the program may come with a gradient or with none.
        """
        number = self._numbers.get(id(made))
        if number is None:
            return False
        first = self.first_grads[number]
        if first is not UNSEEN:
            meta = made._autograd_meta
            if (None if meta is None else meta.grad) is not first:
                return False
            self._unseen[number] = first
            self.first_grads[number] = UNSEEN
        return True

    def is_unseen(self, number: int) -> bool:
        """Whether the gradient that an input comes with is of no matter."""
        return self.first_grads[number] is UNSEEN

    def leave_out(self, named: Callable[[Tensor], bool], outputs: Sequence[Any]) -> None:
        """Take gradients that were replaced without a look at them out of the inputs; `named` are tensors that the
        program's code reaches in another way.
        """
        touched = self._touched(outputs) if self._unseen else None
        gone: set[int] = set()
        for number, (x, origin) in enumerate(zip(self.inputs, self.origins, strict=True)):
            owner = origin[1] if origin[0] == "grad" else None
            if owner in self._unseen and self._unseen[owner] is self._standing[id(x)]:
                memory = self.memory_at(self._standing[id(x)]._ptr)
                if touched is not None and memory.address not in touched and not named(x):
                    gone.add(number)
        if not gone:
            return
        stay = [k for k in range(len(self.inputs)) if k not in gone]
        places = {old: new for new, old in enumerate(stay)}
        for name in ("inputs", "specs", "origins", "first_versions", "first_grads"):
            held = getattr(self, name)
            held[:] = [held[k] for k in stay]
        self.origins[:] = [(kind, None if owner is None else places[owner]) for kind, owner in self.origins]
        self.first_edges = {places[k]: edge for k, edge in self.first_edges.items() if k in places}
        self._numbers = {id(self._standing[id(x)]): k for k, x in enumerate(self.inputs)}
        self._unseen = {places[k]: first for k, first in self._unseen.items() if k in places}

    def _touched(self, outputs: Sequence[Any]) -> set[int] | None:
        """The memory that calls read or write, or that is left behind, by address; None where an entry does not tell."""
        found: set[int] = set()
        for entry in self.log:
            if type(entry) is Call:
                addresses = list(entry.words[: sum(layout is not None for layout in entry.exe.in_layouts)])
            elif isinstance(entry, (Fill, Draw, Check)):
                addresses = [entry.address]
            else:
                return None
            found.update(self.memory_at(address).address for address in addresses)
        grads = [made._autograd_meta.grad for made in self._standing.values() if made._autograd_meta is not None]
        for x in [*outputs, *grads]:
            if self.is_recorded(x):
                found.add(self.memory_at(x._ptr).address)
        return found

    def changed(self) -> list[Tensor]:
        """Inputs that have got a history."""
        return [x for x in self._standing.values() if x._node is not None and type(x._node) is not InputBackward]

    def new_gradients(self) -> list[tuple[Tensor, Tensor | None]]:
        """Inputs whose `.grad` was set, as stand-ins, and what it is now."""
        found = []
        for x, first in zip(self.inputs, self.first_grads, strict=True):
            made = self._standing[id(x)]
            now = None if made._autograd_meta is None else made._autograd_meta.grad
            if now is not first:
                found.append((made, now))
        return found

    def inputs_behind(self, x: Tensor) -> list[Any]:
        """Edges to the inputs, and tensors made of them, that are part of the history of a real tensor; none while the
        program is assembled, whose backward ends at its inputs.
        """
        if self.finishing:
            return []
        behind: set[Any] = set()
        waiting: list[Any] = [x._node]
        while waiting:
            for edge in waiting.pop()._edges:
                node = None if edge is None else split_edge(edge)[0]
                if node is not None and node not in behind:
                    behind.add(node)
                    waiting.append(node)
        own: Any = x._node
        inner = own.info.inner.items() if own._staged else ()
        before = {k for k, others in inner if x.output_nr in others}  # results of the same node
        leaves = {id(found) for node in behind if (found := getattr(node, "variable", None)) is not None}
        standing = [(y, self._standing[id(y)]) for y in self.inputs]
        return [
            edge_of(made)
            for y, made in [*standing, *[(given.real, given.made) for given in self.wrapped]]
            if y._rg
            and y is not x
            and (id(y) in leaves or y._node in behind or (y._node is x._node and y.output_nr in before))
        ]

    def _storage(self, storage: Any, device: RecordedDevice) -> Any:
        """The storage that stands for a real one."""
        known = self._storages.get(id(storage))
        if known is not None:
            return known[0]
        root = root_of(storage)
        memory, base = self._root(root, device)
        if storage is root:
            made = base
        else:
            made = from_owner(memory.address + storage.ptr - root.ptr, storage.nbytes, base)
        made.version = storage.version
        self._storages[id(storage)] = made, storage
        return made

    def _root(self, root: Any, device: RecordedDevice) -> tuple[Memory, Any]:
        found = self._roots.get(id(root))
        if found is None:
            start, stop = root.ptr, root.ptr + root.nbytes
            for other, _ in self._roots.values():
                if root.nbytes and other.real.ptr < stop and start < other.real.ptr + other.real.nbytes:
                    raise RecordingError("two tensors lie in the same memory of different owners")
            address = ADDRESSES.take(root.nbytes)
            memory = self._add(Memory(address, root.nbytes, device, root))
            found = self._roots[id(root)] = (
                memory,
                from_owner(address, root.nbytes, Block(address, root.nbytes, device)),
            )
        return found

    def moved(self, x: Tensor, device: Device) -> Tensor | None:
        """A copy on another device of a recorded tensor of the host with one element, which programs are given as a
        number; None for other tensors.
        """
        spec, there = x._spec, recorded(device.real)
        if not self.is_recorded(x) or spec.numel != 1 or spec.conj or spec.dtype not in _MOVED:
            return None
        here = backend_of(spec.device.real).host_readable
        if not here or backend_of(there.real).host_readable or self.known_bytes(x._ptr, spec.nbytes) is not None:
            return None
        if x._rg:
            raise self.refused("a copy on a device of a tensor of the host that wants a gradient")
        made = empty_spec(Spec.of(spec.dtype, there, spec.shape, spec.strides))
        self.note(Move(Leaf(x._ptr, spec.dtype), made._ptr, made._spec))
        return made

    def cotangent(self, spec: Spec) -> Tensor:
        """A tensor that stands for the gradient of an output."""
        size = hint(spec.nbytes)
        address = ADDRESSES.take(size)
        memory = self._add(Memory(address, spec.nbytes, recorded(spec.device)))
        storage = from_owner(address, size, Block(address, size, spec.device))
        return make(storage, spec, memory.address)

    def operands(self, tensors: list[Tensor]) -> list[Tensor]:
        """The operands of a call, with stand-ins for those that nobody gave one."""
        return [
            t
            if isinstance(t._spec.device, RecordedDevice) or not has_memory(t._spec)
            else self.stand_in(t, ("found", None))
            for t in tensors
        ]

    def finish(self, outputs: Sequence[Any], options: Mapping[str, Any] | None = None) -> CompiledProgram:
        """The program that computes these tensors (and numbers of the host), changes what was changed, and sets the
        gradients that were set.

        `options` are switches of passes (`_transforms.passes`).
        """
        self.finishing = True
        return compiled_program(self, outputs, options)
