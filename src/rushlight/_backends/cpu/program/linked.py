"""Linked programs made callable: the launches of all clusters in waves, their memory in one block, one native call.

run = LinkedExecutable(linked_program(graph, layouts, strides, target=host()))
storages = run(*addresses, *numbers)
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any

from rushlight._backends.cpu.compile import kernels_in
from rushlight._backends.cpu.kernels import OPT, kernels_ahead
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.pinned_native import NEVER, PINNED
from rushlight._backends.cpu.program.arena import ALIGNMENT, planned
from rushlight._backends.cpu.program.linking import Compiled, LinkedCluster, LinkedProgram
from rushlight._backends.cpu.program.overlap import overlapped
from rushlight._backends.cpu.program.phases import LEAST_BYTES, divided
from rushlight._backends.cpu.program.steps import ExternStep, KernelStep
from rushlight._backends.cpu.program.wiring import Wired, Wiring, wired
from rushlight._backends.cpu.runtime.program_native import FILL, LINKED, OVER_TENSORS, PHASE, WAVE, WAVE_STEP
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.protocol import Step
from rushlight._base.lazy import LazyModule
from rushlight._host.device_records import HEADER, LAUNCH, MAY_UNLOCK
from rushlight._native import jit

__all__ = ["LinkedExecutable"]

measuring: Any = LazyModule("rushlight._backends.cpu.program.measuring")
collectives: Any = LazyModule("rushlight._backends.cpu.program.collectives")

_PINNING = Lock()
MOST_TOGETHER = 64  # launches of one wave
FEW_PIECES = 16  # a launch of more pieces occupies the threads by itself
SERIAL_BYTES = 1 << 18  # a wave that moves less is run by the calling thread
UNLOCKED_BYTES = 1 << 20

# Where a word of a launch comes from: ("word", number of an argument), ("number", its bits) or ("buffer", number); and
# bytes from there.
Place = tuple[str, int, int]


class _Pin:
    """An operand that may stay packed: where its address comes from, how many bytes it takes packed, and the words of its
    PINNED.
    """

    __slots__ = ("held", "nbytes", "place", "words")

    def __init__(self, place: Place, nbytes: int, pieces: int) -> None:
        self.place, self.nbytes = place, nbytes
        self.words = array("q", [0] * len(PINNED) + [NEVER] * pieces)
        self.held: tuple[Any, ...] = ()  # what its words point to

    def fix(self, address: int, storage: Any) -> None:
        """Let it stay packed while it is this memory, and its storage is not written to."""
        panels = runtime().alloc(self.nbytes)
        root = storage if storage.owner is None else storage.owner
        self.held = storage, root, panels
        words = {"storage": id(storage), "root": id(root), "panels": panels.ptr, "weight": address}
        for name, value in words.items():
            self.words[PINNED.by_name[name].place] = value


class _Launched:
    """A launch of the program: `words` are places, `fresh` the numbers of the buffers that it fills first."""

    __slots__ = ("fresh", "launch", "moved", "pin", "reads", "step", "wave", "words", "writes", "written")

    def __init__(self, launch: Launch, words: list[Place], fresh: list[int], written: set[Any], step: int) -> None:
        self.launch, self.words, self.fresh, self.written, self.step = launch, words, fresh, written, step
        self.wave, self.moved = 0, 0
        self.pin: _Pin | None = None
        self.reads: set[Any] = {_key(p) for p in words if p[0] != "number"}
        self.writes: set[Any] = written | {("buffer", b) for b in fresh}

    def halves(self) -> tuple[_Launched, _Launched]:
        """A collective as two launches: its beginning, and its end, which holds the result and the operand."""
        assert self.launch.halves is not None
        begin, end = self.launch.halves
        start = _Launched(begin, self.words, self.fresh, self.written, self.step)
        held: list[Place] = [("buffer", b, 0) for b in self.fresh[1:]]
        finish = _Launched(end, [*held, self.words[1]], [], set(), self.step)
        finish.writes = {_key(held[0] if held else self.words[1])}
        return start, finish

    def in_place(self) -> _Launched:
        """A collective whose result takes the place of its operand."""
        assert self.launch.there is not None
        return _Launched(self.launch.there, self.words, self.fresh[:1], {_key(self.words[1])}, self.step)

    def renamed(self, number: int, other: int) -> None:
        """Let one buffer be another."""

        def place(p: Place) -> Place:
            return ("buffer", other, p[2]) if p[:2] == ("buffer", number) else p

        self.words = [place(p) for p in self.words]
        for keys in (self.reads, self.writes, self.written):
            if ("buffer", number) in keys:
                keys.discard(("buffer", number))
                keys.add(("buffer", other))

    @property
    def pieces(self) -> int:
        return self.launch.ints[0] if self.launch.ints is not None else 1


class LinkedExecutable:
    """A linked program: `executable(*words)` takes the data pointers of all tensor inputs, then the numbers.

    Returns the Storage of the output that is no input's memory, a tuple of them, or None.  `peak` is the size of the
    block in which everything lies that lives between kernels; `held` the sum of these sizes, had each its own memory.
    """

    __slots__ = (
        "_address", "_derive", "_keep", "_linked", "_run", "buffers", "clock", "division", "head", "held", "launches", "native", "offsets", "outputs", "peak", "reports", "waves", "wiring",
    )  # fmt: skip

    kernel = None
    ints = 0

    def __init__(self, linked: LinkedProgram) -> None:
        kernels_ahead(k for c in _different(linked.clusters) for k in kernels_in(c.program.steps))
        self._linked: LinkedProgram | None = linked
        self._derive: Callable[[], LinkedProgram] | None = None
        self._begin(wired(linked))

    @classmethod
    def kept(cls, wiring: Wiring, derive: Callable[[], LinkedProgram]) -> LinkedExecutable:
        """The executable of a wiring that was kept; `derive` gives its program, for who wants to look inside."""
        made = cls.__new__(cls)
        made._begin(wiring)
        made._linked, made._derive = None, derive
        return made

    def _begin(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._keep: list[Any] = []
        self.buffers: list[int] = []  # bytes of each
        self.launches: list[_Launched] = []
        self.reports: list[Step] = []
        self.head: Any = None  # the words of LINKED
        self.clock: Any = None  # the words that waves add their time to (see `measuring.clocked`)
        self._lay()
        if any(x.launch.host for x in self.launches) and self.wiring.on.get("overlap"):
            self._share()
            self.launches = overlapped(self.launches, _Launched.halves)
        self._divide()
        self._plan()
        self.native = all(x.launch.ints is not None for x in self.launches)
        self._run: Callable[..., Any] = self._native() if self.native else self._stepwise

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
        """What passes did, and why calls were not fused."""
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

    def _lay(self) -> None:
        """List the launches of all clusters, and where their words are."""
        where: list[Place] = [("word", word, 0) for word in self.wiring.words]
        for cluster in self.wiring.clusters:
            self._lay_cluster(cluster, where)
        self.outputs: list[Place] = [where[v] for v in self.wiring.outputs if v >= 0]

    def _lay_cluster(self, cluster: Wired, where: list[Place]) -> None:
        part = cluster.part
        places: list[Place] = []
        for value, step in cluster.tensors:
            kind, number, offset = where[value]
            places.append((kind, number, offset + step))
        mine: set[Any] = {_key(places[k]) for k in cluster.aliases.values()}
        tensors = list(places)
        places += cluster.numbers
        for at, laid in part.laid():
            if at >= 0:
                self.reports.append(part.steps[at])
            pin: _Pin | None = None
            for launch, words, count, bytes_of in laid:
                fresh = list(range(len(self.buffers), len(self.buffers) + count))
                given = [places[w] if w >= 0 else _nowhere(fresh) for w in words]
                self.buffers += bytes_of
                places += [("buffer", b, 0) for b in fresh]
                written = {_key(p) for p in given} & mine
                mine |= {("buffer", b) for b in fresh}
                if launch is not None:
                    made = _Launched(launch, given, fresh, written, len(self.reports) - 1)
                    made.moved = self.reports[-1].moved // len(laid)
                    if launch.pinned is not None:
                        pin = pin or _Pin(given[launch.pinned.operand], launch.pinned.nbytes, launch.pinned.pieces)
                        made.pin = pin if pin.place[0] == "word" else None
                    self.launches.append(made)
        fresh_results = iter(part.program.results)
        for j in range(cluster.results):
            if j in cluster.aliases:
                where.append(tensors[cluster.aliases[j]])
                continue
            number = part.renumbered(next(fresh_results))
            where.append(places[number] if number >= 0 else ("number", 0, 0))

    def _share(self) -> None:
        """Let results of collectives lie where their operands do, which nobody reads any more."""
        last: dict[Any, int] = {}
        for k, x in enumerate(self.launches):
            last |= dict.fromkeys(x.reads | x.writes, k)
        kept = {_key(p) for p in self.outputs}
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
            kept = {_key(p) for p in self.outputs}
            last[key] = last.get(("buffer", out), k)

    # ***** waves and memory *****

    def _divide(self) -> None:
        """Give each launch its wave: those of one wave do not wait for each other."""
        read: set[Any] = set()
        written: set[Any] = set()
        self.waves: list[list[_Launched]] = []
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
        buffers = [(max(self.buffers[b], 1), lives[b][0], lives[b][1]) for b in inside]
        self.division = divided(buffers, results, max(len(self.waves), 1), self.wiring.phases)
        self.offsets = dict(zip(inside, self.division.places, strict=True))
        self.peak = self.division.peak
        self.held = sum(-(-self.buffers[b] // ALIGNMENT) * ALIGNMENT for b in inside)

    # ***** running *****

    def _native(self) -> Callable[..., Any]:
        """The native function of the program."""
        division = self.division
        table, phases, first = _Table(self), [], 0
        for number, end in enumerate(division.ends):
            waves = [word for wave in self.waves[first:end] for word in table.wave(wave)]
            fills = table.filled()
            made = [k for k, at in enumerate(division.results) if at == number]
            taken = [k for k, block in enumerate(division.blocks) if block[1] == number]
            given = [k for k, block in enumerate(division.blocks) if block[2] == number]
            words = {
                "n_made": len(made), "made": self._kept(made), "n_taken": len(taken), "taken": self._kept(taken),
                "n_given": len(given), "given": self._kept(given), "n_fills": len(fills) // len(FILL), "fills": self._kept(fills),
                "n_waves": len(waves) // len(WAVE), "waves": self._kept(waves), "first": first,
            }  # fmt: skip
            phases += [words[field.name] for field in PHASE]
            first = end
        sizes = [self.buffers[p[1]] if p[0] == "buffer" else 0 for p in self.outputs]
        blocks = [size for size, _, _ in division.blocks]
        begin, blocks[0] = blocks[0], blocks[0] + 8 * (table.words + 1)
        moved = sum(x.moved for x in self.launches)
        unlock = moved > UNLOCKED_BYTES or any(x.launch.ints[LAUNCH_FLAGS] & MAY_UNLOCK for x in self.launches)  # type: ignore[index]
        words = {
            "n_words": self.wiring.n_words, "n_results": len(self.outputs), "n_blocks": len(blocks), "table": begin,
            "n_phases": len(division.ends), "phases": self._kept(phases), "unlock": int(unlock), "sizes": self._kept(sizes),
            "blocks": self._kept(blocks), "times": 0, "abandon": self._abandon(),
        }  # fmt: skip
        address = self._address = self._kept([words[field.name] for field in LINKED])
        self.head = self._keep[-1]
        callable_of: Callable[..., Any] = runtime().make_callable(
            address, b"program", tuple(self._keep), -1, runtime().program_stub
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

    def _kept(self, words: Sequence[int]) -> int:
        """The address of some words, which stay there."""
        held = array("q", [_signed(w) for w in words] or [0])
        self._keep.append(held)
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
        self.executable, self.words = executable, 0
        self.slots = {p[1]: k for k, p in enumerate(executable.outputs) if p[0] == "buffer"}
        self.results = 1 + executable.wiring.n_words
        self.blocks = self.results + len(executable.outputs)
        self._fills: list[int] = []

    def filled(self) -> list[int]:
        """The fills since the last call."""
        fills, self._fills = self._fills, []
        return fills

    def wave(self, wave: Sequence[_Launched]) -> list[int]:
        """The words of WAVE."""
        steps: list[int] = []
        first = 0
        for x in wave:
            self.words += HEADER
            begin = 8 * self.words
            for place in (*(("buffer", b, 0) for b in x.fresh), *x.words):
                self.fill(place)
                self.words += 1
            ints = x.launch.constants()
            self.executable._keep += [ints, x.launch.call]
            if x.pin is not None and x.launch.pinned is not None:
                ints[x.launch.pinned.address] = x.pin.words.buffer_info()[0]
                self.executable._keep.append(x.pin)
            address = runtime().kernel_address(x.launch.call.__self__)  # type: ignore[attr-defined]
            steps += [address, ints.buffer_info()[0], begin, first, x.pieces]
            first += x.pieces
        if len(wave) > 1 and sum(x.moved for x in wave) < SERIAL_BYTES or first == 1:
            first = 0
        return [len(wave), first, self.executable._kept(steps)]

    def fill(self, place: Place) -> None:
        """Add where the next word comes from."""
        kind, number, offset = place
        if kind == "word":
            base = 1 + number
        elif kind == "number":
            base, offset = 0, number
        elif number in self.slots:
            base = self.results + self.slots[number]
        else:
            block, begin = self.executable.offsets[number]
            base, offset = self.blocks + block if block >= 0 else self.results - 1 - block, offset + begin
        self._fills.extend((self.words, base, offset))


def _different(clusters: Sequence[LinkedCluster]) -> list[Compiled]:
    """The programs of clusters, each once."""
    return list(dict.fromkeys(c.compiled for c in clusters))


def _nowhere(fresh: list[int]) -> Place:
    """Where an operand without elements is: a kernel reads nothing there."""
    return ("buffer", fresh[0], 0) if fresh else ("word", 0, 0)


def _key(place: Place) -> tuple[str, int]:
    return place[:2]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
