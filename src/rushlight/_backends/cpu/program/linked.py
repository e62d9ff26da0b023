"""Linked programs made callable: the launches of all clusters in waves, their memory in one block, one native call.

run = LinkedExecutable(linked_program(graph, layouts, strides, target=host()))
storages = run(*addresses, *numbers)
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._backends.cpu.compile import kernels_in
from rushlight._backends.cpu.kernels import OPT, kernels_ahead
from rushlight._backends.cpu.launches import Launch, unlocks
from rushlight._backends.cpu.program.arena import ALIGNMENT, planned
from rushlight._backends.cpu.program.launched import Launched, Pin, Place, key_of, laid_cluster
from rushlight._backends.cpu.program.overlap import overlapped
from rushlight._backends.cpu.program.phases import LEAST_BYTES, Division, divided
from rushlight._backends.cpu.program.steps import ExternStep, KernelStep
from rushlight._backends.cpu.program.wiring import Wired, Wiring, wired
from rushlight._backends.cpu.runtime.program_native import FILL, LINKED, OVER_TENSORS, PHASE, WAVE, WAVE_STEP
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.protocol import Step
from rushlight._base.lazy import LazyModule
from rushlight._host.device_records import HEADER, LAUNCH, MAY_UNLOCK
from rushlight._native import jit

if TYPE_CHECKING:  # a program that was kept is not linked again
    from rushlight._backends.cpu.program.linking import Compiled, LinkedCluster, LinkedProgram

__all__ = ["LinkedExecutable"]

measuring: Any = LazyModule("rushlight._backends.cpu.program.measuring")
collectives: Any = LazyModule("rushlight._backends.cpu.program.collectives")

_PINNING = Lock()
MOST_TOGETHER = 64  # launches of one wave
FEW_PIECES = 16  # a launch of more pieces occupies the threads by itself
SERIAL_BYTES = 1 << 18  # a wave that moves less is run by the calling thread
LEAST_ROOM = 1 << 12  # bytes of a buffer that may be larger at other sizes
MUCH_ROOM = 1 << 15


class Words(NamedTuple):
    """The arrays that a native program reads: `fills`, `waves` by phase, `steps` by wave; `at` says for each launch its
    phase, where its fills begin there, its wave and its number in that.
    """

    head: array[int]
    phases: array[int]
    fills: list[array[int]]
    waves: list[array[int]]
    steps: list[array[int]]
    sizes: array[int]
    at: list[tuple[int, int, int, int]]


class LinkedExecutable:
    """A linked program: `executable(*words)` takes the data pointers of all tensor inputs, then the numbers.

    Returns the Storage of the output that is no input's memory, a tuple of them, or None.  `peak` is the size of the
    block in which everything lies that lives between kernels; `held` the sum of these sizes, had each its own memory.
    """

    __slots__ = (
        "_address", "_derive", "_keep", "_linked", "_looked", "_run", "buffers", "clock", "division", "head", "held", "launches", "native", "offsets", "outputs", "peak",
        "reports", "room", "waves", "wiring", "words",
    )  # fmt: skip

    kernel = None
    ints = 0
    waves: list[list[Launched]]
    division: Division
    offsets: dict[int, tuple[int, int]]
    _looked: tuple[LinkedExecutable, Callable[[], Wiring]]

    def __init__(self, linked: LinkedProgram) -> None:
        kernels_ahead(k for c in _different(linked.clusters) for k in kernels_in(c.program.steps))
        self._linked: LinkedProgram | None = linked
        self._derive: Callable[[], LinkedProgram] | None = None
        self._begin(wired(linked))

    @classmethod
    def kept(
        cls,
        wiring: Wiring,
        derive: Callable[[], LinkedProgram],
        roomy: Collection[int] = (),
        like: LinkedExecutable | None = None,
    ) -> LinkedExecutable:
        """The executable of a wiring that was kept; `derive` gives its program, for who wants to look inside.

        Buffers of the clusters `roomy` get more memory than they need, for other sizes (see `refilled`).  `like` has the
        waves and the memory plan.
        """
        made = cls.__new__(cls)
        made._begin(wiring, frozenset(roomy), like)
        made._linked, made._derive = None, derive
        return made

    def _begin(self, wiring: Wiring, roomy: frozenset[int] = frozenset(), like: LinkedExecutable | None = None) -> None:
        self.wiring = wiring
        self.words: Words | None = None
        self.room: dict[int, int] = {}  # bytes for buffers that have more than they need
        self._keep: list[Any] = []
        self.buffers: list[int] = []  # bytes of each
        self.launches: list[Launched] = []
        self.reports: list[Step] = []
        self.head: Any = None  # the words of LINKED
        self.clock: Any = None  # the words that waves add their time to (see `measuring.clocked`)
        self._lay(roomy)
        if any(x.launch.host for x in self.launches) and self.wiring.on.get("overlap"):
            self._share()
            self.launches = overlapped(self.launches, Launched.halves)
        self._divide(None if like is None else [len(wave) for wave in like.waves])
        self._plan()
        if like is not None:
            self.division, self.offsets, self.room = like.division, like.offsets, like.room
        self.native = all(x.launch.ints is not None for x in self.launches)
        self._run: Callable[..., Any] = self._native() if self.native else self._stepwise

    def __getattr__(self, name: str) -> Any:
        """Details of a program that was made for other sizes, for those who look inside of it (see `refilled`)."""
        if name not in ("launches", "reports", "waves", "wiring"):
            raise AttributeError(name)
        like, describe = self._looked
        whole = LinkedExecutable.kept(describe(), self._derive or (lambda: self.linked), like=like)
        self.wiring, self.launches, self.waves, self.reports = whole.wiring, whole.launches, whole.waves, whole.reports
        return getattr(self, name)

    @property
    def linked(self) -> LinkedProgram:
        """The program with its graph and clusters."""
        if self._linked is None:
            assert self._derive is not None
            self._linked, self._derive = self._derive(), None
        return self._linked

    @property
    def is_large(self) -> bool:
        """Whether a call takes so much memory that what the pool keeps for others matters."""
        return self.division.most >= LEAST_BYTES

    @property
    def notes(self) -> list[str]:
        """Notes on passes, and why calls were not fused."""
        return self.linked.notes

    @property
    def described(self) -> list[tuple[int, Any]]:
        """For each report its cluster, and the step."""
        return [
            (k, step)
            for k, cluster in enumerate(self.linked.clusters)
            for step in cluster.compiled.program.steps
            if not (isinstance(step, ExternStep) and step.name == "allocate")
        ]

    # ***** launches *****

    def _lay(self, roomy: Collection[int]) -> None:
        """List the launches of all clusters, and where their words are."""
        where: list[Place] = [("word", word, 0) for word in self.wiring.words]
        for k, cluster in enumerate(self.wiring.clusters):
            first = len(self.buffers)
            self._lay_cluster(cluster, where)
            if k in roomy:
                self.room |= {b: roomy_size(self.buffers[b]) for b in range(first, len(self.buffers))}
        self.outputs: list[Place] = [where[v] for v in self.wiring.outputs if v >= 0]

    def _lay_cluster(self, cluster: Wired, where: list[Place]) -> None:
        first, laid = len(self.buffers), laid_cluster(cluster, where, len(self.buffers))
        into = {key_of(laid.tensors[k]) for k in cluster.aliases.values()}
        steps = len(self.reports)
        self.reports += cluster.part.steps
        pin: Pin | None = None
        for launch, given, fresh, step, moved in laid.launches:
            written = {p[:2] for p in given if (p[0] == "buffer" and p[1] >= first) or p[:2] in into}
            written -= {("buffer", b) for b in fresh}
            made = Launched(launch, given, fresh, written, steps + step)
            made.moved = moved
            if launch.pinned is not None:
                if launch.pinned.operand >= 0:
                    pin = Pin(given[launch.pinned.operand], launch.pinned.nbytes, launch.pinned.pieces)
                made.pin = pin if pin is not None and pin.place[0] == "word" else None
            self.launches.append(made)
        self.buffers += laid.buffers
        where += laid.results

    def _share(self) -> None:
        """Let results of collectives lie where their operands do, which nobody reads any more."""
        last: dict[Any, int] = {}
        for k, x in enumerate(self.launches):
            last |= dict.fromkeys(x.reads | x.writes, k)
        kept = {key_of(p) for p in self.outputs}
        for k, x in enumerate(self.launches):
            kind, number, offset = x.words[1] if x.launch.there is not None else ("word", 0, 0)
            key = (kind, number)
            if kind != "buffer" or offset or key in kept or last[key] != k:
                continue
            out = x.fresh[1]
            if self.buffers[out] != self.buffers[number]:
                continue
            self.launches[k] = x.in_place()
            for other in self.launches[k + 1 :]:
                other.renamed(out, number)
            self.outputs = [("buffer", number, p[2]) if p[:2] == ("buffer", out) else p for p in self.outputs]
            kept = {key_of(p) for p in self.outputs}
            last[key] = last.get(("buffer", out), k)

    # ***** waves and memory *****

    def _divide(self, counts: Sequence[int] | None = None) -> None:
        """Give each launch its wave: those of one wave do not wait for each other.  `counts`: how many each has."""
        if counts is not None:
            left = iter(self.launches)
            self.waves = [[next(left) for _ in range(count)] for count in counts]
            for number, wave in enumerate(self.waves):
                for x in wave:
                    x.wave = number
            return
        read: set[Any] = set()
        written: set[Any] = set()
        self.waves = []
        for x in self.launches:
            reads, writes = x.reads, x.writes
            last = self.waves[-1] if self.waves else None
            apart = (
                last is None
                or not self.wiring.on["waves"]
                or len(last) >= MOST_TOGETHER
                or x.pieces > FEW_PIECES
                or last[-1].pieces > FEW_PIECES
                or reads & written
                or writes & read
                or writes & written
                or x.launch.ints is None
                or last[-1].launch.ints is None
                or x.launch.host
                or last[-1].launch.host
            )
            if apart:
                last = []
                self.waves.append(last)
                read, written = set(), set()
            assert last is not None
            last.append(x)
            x.wave = len(self.waves) - 1
            read |= reads
            written |= writes

    def _plan(self) -> None:
        """Lay what lives between kernels into blocks."""
        lives: dict[int, list[int]] = {}
        for x in self.launches:
            for number in (*x.fresh, *(p[1] for p in x.words if p[0] == "buffer")):
                lives.setdefault(number, [x.wave, x.wave])[1] = x.wave
        made = [p[1] if p[0] == "buffer" else -1 for p in self.outputs]
        inside = [b for b in lives if b not in made]
        results = [(self.buffers[b], lives.get(b, (0,))[0]) if b >= 0 else (0, 0) for b in made]
        if not self.wiring.on["memory_plan"]:
            lives = {b: [0, len(self.waves)] for b in lives}
        buffers = [(max(self.room.get(b, self.buffers[b]), 1), lives[b][0], lives[b][1]) for b in inside]
        self.division = divided(buffers, results, max(len(self.waves), 1), self.wiring.phases)
        self.offsets = dict(zip(inside, self.division.places, strict=True))
        self.peak = self.division.peak
        self.held = sum(-(-self.buffers[b] // ALIGNMENT) * ALIGNMENT for b in inside)

    # ***** running *****

    def _native(self) -> Callable[..., Any]:
        """The native function of the program."""
        division = self.division
        table, phases, first = _Table(self), [], 0
        fills_of, waves_of = list[Any](), list[Any]()
        for number, end in enumerate(division.ends):
            waves = [word for wave in self.waves[first:end] for word in table.wave(wave, number)]
            fills = table.filled()
            made = [k for k, at in enumerate(division.results) if at == number]
            taken = [k for k, block in enumerate(division.blocks) if block[1] == number]
            given = [k for k, block in enumerate(division.blocks) if block[2] == number]
            words = {
                "n_made": len(made), "made": self._kept(made), "n_taken": len(taken), "taken": self._kept(taken),
                "n_given": len(given), "given": self._kept(given), "n_fills": len(fills) // len(FILL), "fills": self._kept(fills, fills_of),
                "n_waves": len(waves) // len(WAVE), "waves": self._kept(waves, waves_of), "first": first,
            }  # fmt: skip
            phases += [words[field.name] for field in PHASE]
            first = end
        sizes = [self.buffers[p[1]] if p[0] == "buffer" else 0 for p in self.outputs]
        blocks = [size for size, _, _ in division.blocks]
        begin, blocks[0] = blocks[0], blocks[0] + 8 * (table.words + 1)
        held: list[Any] = []
        words = {
            "n_words": self.wiring.n_words, "n_results": len(self.outputs), "n_blocks": len(blocks), "table": begin,
            "n_phases": len(division.ends), "phases": self._kept(phases, held),
            "unlock": unlocks(nbytes=sum(x.moved for x in self.launches)) or any_unlocks(x.launch for x in self.launches),
            "sizes": self._kept(sizes, held), "blocks": self._kept(blocks), "times": 0, "abandon": self._abandon(),
        }  # fmt: skip
        self._address = self._kept([int(words[field.name]) for field in LINKED])
        self.head = self._keep[-1]
        self.words = Words(self.head, held[0], fills_of, waves_of, table.steps, held[1], table.at)
        return self._callable()

    def _callable(self) -> Callable[..., Any]:
        """The native function of the words that are kept."""
        callable_of: Callable[..., Any] = runtime().make_callable(
            self._address, b"program", tuple(self._keep), -1, runtime().program_stub
        )
        return callable_of

    def _abandon(self) -> int:
        """The function that ends what a program has begun when it fails; 0 where it begins nothing."""
        if not any(x.launch.host for x in self.launches):
            return 0
        self._keep.append(collectives.abandon)
        return id(collectives.abandon)

    def over_tensors(
        self, specs: Sequence[Any], sources: Sequence[tuple[int, int]], made: Sequence[tuple[int, Any, int]]
    ) -> Callable[..., Any] | None:
        """`f(tensors, words)`: a call of tensors with these specs, which gives a list of tensors; None for programs
        that need Python.

        `sources` says for each argument of the program which tensor it is the address of (-1 - n: which of `words`),
        and how many bytes from there; `made` lists (number of the result, spec, bytes from where it begins).  None
        instead of a list where tensors have other specs.
        """
        if not self.native:
            return None
        words = {
            "linked": self._address, "n_inputs": len(specs), "specs": self._kept([id(s) for s in specs]),
            "sources": self._kept([w for source in sources for w in source]), "n_made": len(made),
            "made": self._kept([w for number, spec, offset in made for w in (number, id(spec), offset)]),
        }  # fmt: skip
        address = self._kept([words[field.name] for field in OVER_TENSORS])
        keep = (*self._keep, tuple(specs), tuple(spec for _, spec, _ in made))
        found: Callable[..., Any] = runtime().make_callable(address, b"program", keep, -1, runtime().over_tensors_stub)
        return found

    @property
    def pinnable(self) -> set[int]:
        """The numbers of the arguments that may stay packed (see `pin`)."""
        return {x.pin.place[1] for x in self.launches if x.pin is not None} if self.native else set()

    def pin(self, number: int, address: int, storage: Any) -> None:
        """Let an argument stay packed from call to call, as long as it is this address, which lies in `storage`.

        It is packed again where the storage was written to since.  Where others may write unseen (an array, a second
        storage over the memory), and where the argument is another address, each call packs it.
        """
        with _PINNING:  # no thread runs the program while another is at it
            for x in self.launches:
                if x.pin is not None and x.pin.place[1] == number and not x.pin.held:
                    x.pin.fix(address + x.pin.place[2], storage)

    def _kept(self, words: Sequence[int], arrays: list[Any] | None = None) -> int:
        """The address of some words, which stay there; the array is added to `arrays`."""
        try:
            held = array("q", words or [0])
        except OverflowError:
            held = array("q", [_signed(w) for w in words])
        self._keep.append(held)
        if arrays is not None:
            arrays.append(held)
        address: int = held.buffer_info()[0]
        return address

    def _stepwise(self, *words: Any) -> Any:
        """Run launch by launch, each with memory of its own: for programs with routines that are Python functions."""
        return self._walk(words, None)[0]

    def _walk(self, words: Sequence[Any], clock: Callable[[], float] | None) -> tuple[Any, list[float]]:
        given = [w.ptr if hasattr(w, "ptr") else w for w in words]
        storages: dict[int, Any] = {}
        seconds = [0.0] * len(self.reports)
        alloc = runtime().alloc

        def word(place: Place) -> Any:
            kind, number, offset = place
            if kind == "word":
                return given[number] + offset if offset else given[number]
            if kind == "number":
                return number
            return storages[number].ptr + offset

        for number in self._unlaunched():
            storages[number] = alloc(self.buffers[number])
        for x in self.launches:
            ints = x.launch.constants()
            address = ints.buffer_info()[0] if x.launch.ints is not None else 0
            began = clock() if clock is not None else 0.0
            made = x.launch.call(address, *[word(p) for p in x.words])
            if clock is not None:
                seconds[x.step] += clock() - began
            storages.update(zip(x.fresh, made if isinstance(made, tuple) else (made,), strict=False))
        found = [storages[p[1]] if p[0] == "buffer" else alloc(0) for p in self.outputs]
        return (found[0] if len(found) == 1 else tuple(found) if found else None), seconds

    def _unlaunched(self) -> Iterator[int]:
        """Buffers that no launch allocates."""
        made = {b for x in self.launches for b in x.fresh}
        return (b for b in range(len(self.buffers)) if b not in made)

    def __call__(self, *words: Any) -> Any:
        return self._run(*words)

    def timed(self, words: Sequence[Any], clock: Callable[[], float]) -> tuple[Any, list[float]]:
        """Run step by step.  Returns the result, and the seconds of each step by `clock`."""
        return self._walk(words, clock)

    def step_times(self, words: Sequence[Any], seconds: float = 0.2) -> list[Any]:
        """The `StepTime` of each step when it is called with `words` for about so many seconds."""
        found: list[Any] = measuring.measured_alone(self, words, seconds)
        return found

    def clocked(self, call: Callable[[], Any]) -> tuple[Any, list[tuple[str, int, int]]]:
        """`call()`, which runs it, and what its steps took: see `measuring.clocked`.  Only where it is `native`."""
        found: tuple[Any, list[tuple[str, int, int]]] = measuring.clocked(self, call)
        return found

    # ***** looking inside *****

    @property
    def native_device(self) -> Any:
        """The functions by which the host's native plans run it."""
        return runtime().device

    def steps(self) -> list[Step]:
        """Kernels and library calls, in order."""
        return self.reports

    def code(self) -> list[tuple[str, str]]:
        """The symbol and the LLVM text of each kernel, each once."""
        found = {
            k.symbol: k for c in _different(self.linked.clusters) for k in c.program.steps if isinstance(k, KernelStep)
        }
        return [(symbol, k.llvm()) for symbol, k in found.items()]

    def assembly(self) -> list[tuple[str, str]]:
        """The symbol and the assembly of each kernel, compiled anew."""
        return [(name, jit.compile_assembly(text, OPT)) for name, text in self.code()]

    def clusters(self) -> list[str]:
        """A line for each cluster: which calls it fuses, and what they compute."""
        found = []
        for k, cluster in enumerate(self.linked.clusters):
            names = " ".join(node.prim.name for node in cluster.unit.graph.nodes) or "copy"
            into = "".join(f", result {j} into operand {i}" for j, i in cluster.aliases.items())
            found.append(f"cluster {k}: calls {cluster.parts}: {names}{into}")
        return found

    def memory_plan(self) -> list[tuple[int, int, int, int]]:
        """(bytes, offset, first wave, last wave) of everything between kernels, its blocks drawn as one where they are
        not there at one time."""
        lives: dict[int, list[int]] = {}
        for x in self.launches:
            for number in (*x.fresh, *(p[1] for p in x.words if p[0] == "buffer")):
                lives.setdefault(number, [x.wave, x.wave])[1] = x.wave
        division = self.division
        begins = [0, *division.ends]
        blocks, end = planned([(n, begins[first], division.ends[last] - 1) for n, first, last in division.blocks])
        hosts = dict.fromkeys(k for k, _ in self.offsets.values() if k < 0)
        for k in hosts:  # results are drawn behind the blocks
            hosts[k], end = end, end + self.buffers[self.outputs[-1 - k][1]]
        begin_of = [*blocks] + [hosts.get(k - len(division.results), 0) or 0 for k in range(len(division.results))]
        return [(self.buffers[b], begin_of[k] + offset, *lives[b]) for b, (k, offset) in self.offsets.items()]

    def explain(self, asm: bool = False) -> str:
        """Clusters, why others are apart, the memory plan, and the kernels."""
        linked = self.linked
        kernels = sum(c.compiled.kernels for c in linked.clusters)
        counted = f"{kernels} kernels and routines, {len(self.launches)} launches in {len(self.waves)} waves"
        parts = [
            f"{linked.calls} calls in {len(linked.clusters)} clusters: {counted}",
            f"memory between kernels: {self.peak} bytes at the peak, {self.held} in all",
            f"memory with results: {self.division.most} bytes at the peak, in {len(self.division.ends)} phases",
        ]
        hosted = sum(self.buffers[b] for b, (block, _) in self.offsets.items() if block < 0)
        if hosted:
            parts.append(f"memory of results before they are written: holds {hosted} bytes")
        parts += self.clusters()
        parts += [f"  {note}" for note in dict.fromkeys(linked.notes)]
        for k, compiled in enumerate(_different(linked.clusters)):
            parts += [f"program {k}", compiled.program.explain()]
        for symbol, text in self.code() if asm else ():
            parts += [f"LLVM {symbol}", text, f"assembly {symbol}", jit.compile_assembly(text, OPT)]
        return "\n".join(parts)


LAUNCH_FLAGS = LAUNCH.flags.place
assert len(WAVE) == 3 and len(WAVE_STEP) == 5


class _Table:
    """The words of all launches, one behind the other, and what they are filled with."""

    def __init__(self, executable: LinkedExecutable) -> None:
        self.executable, self.words, self._origins = executable, 0, Origins(executable)
        self._fills: list[int] = []
        self.steps: list[Any] = []
        self.at: list[tuple[int, int, int, int]] = []  # see `Words`

    def filled(self) -> list[int]:
        """The fills since the last call."""
        fills, self._fills = self._fills, []
        return fills

    def wave(self, wave: Sequence[Launched], phase: int) -> list[int]:
        """The words of WAVE."""
        steps: list[int] = []
        first = 0
        for number, x in enumerate(wave):
            self.at.append((phase, len(self._fills), len(self.steps), number))
            self.words += HEADER
            begin = 8 * self.words
            for place in (*[("buffer", b, 0) for b in x.fresh], *x.words):
                self._fills += (self.words, *self._origins(place))
                self.words += 1
            ints = x.launch.constants()
            self.executable._keep += [ints, x.launch.call]
            if x.pin is not None and x.launch.pinned is not None:
                ints[x.launch.pinned.address] = x.pin.words.buffer_info()[0]
                self.executable._keep.append(x.pin)
            address = runtime().kernel_address(x.launch.call.__self__)  # type: ignore[attr-defined]
            steps += [address, ints.buffer_info()[0], begin, first, x.pieces]
            first += x.pieces
        shared = pieces_shared([x.moved for x in wave], first)
        return [len(wave), shared, self.executable._kept(steps, self.steps)]


class Origins:
    """Where words come from, as FILL says it: `origins(place)` is a base, and bytes from there."""

    def __init__(self, executable: LinkedExecutable) -> None:
        self._offsets = executable.offsets
        self._slots = {p[1]: k for k, p in enumerate(executable.outputs) if p[0] == "buffer"}
        self._results = 1 + executable.wiring.n_words
        self._blocks = self._results + len(executable.outputs)

    def __call__(self, place: Place) -> tuple[int, int]:
        """The base of a word, and bytes from there."""
        kind, number, offset = place
        if kind == "word":
            return 1 + number, offset
        if kind == "number":
            return 0, number
        if number in self._slots:
            return self._results + self._slots[number], offset
        block, begin = self._offsets[number]
        return self._blocks + block if block >= 0 else self._results - 1 - block, offset + begin


def pieces_shared(moved: Sequence[int], pieces: int) -> int:
    """How many pieces of a wave all threads share; 0 where the calling thread runs it."""
    return 0 if pieces == 1 or (len(moved) > 1 and sum(moved) < SERIAL_BYTES) else pieces


def any_unlocks(launches: Iterable[Launch]) -> bool:
    """Whether one of the launches does."""
    return any(x.ints is not None and x.ints[LAUNCH_FLAGS] & MAY_UNLOCK for x in launches)


def roomy_size(nbytes: int) -> int:
    """Some bytes more, so that many sizes have the same: a page at least, and at most a quarter more than are many."""
    step = LEAST_ROOM if nbytes < MUCH_ROOM else 1 << (nbytes.bit_length() - 3)
    return -(-nbytes // step) * step


def _different(clusters: Sequence[LinkedCluster]) -> list[Compiled]:
    """The programs of clusters, each once."""
    return list(dict.fromkeys(c.compiled for c in clusters))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
