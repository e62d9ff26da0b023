"""Linked programs made callable: the launches of all clusters in waves, their memory in one block, one native call.

run = LinkedExecutable(linked_program(graph, layouts, strides, target=host()))
storages = run(*addresses, *numbers)
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from struct import pack, unpack
from typing import Any

from rushlight._backends.cpu.compile import BufferNumbers, kernels_in, step_moved, step_name
from rushlight._backends.cpu.kernels import OPT, kernels_ahead
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.arena import ALIGNMENT, planned
from rushlight._backends.cpu.program.linking import Compiled, LinkedCluster, LinkedProgram
from rushlight._backends.cpu.program.steps import ExternStep, KernelStep
from rushlight._backends.cpu.runtime.program_native import FILL, LINKED, OVER_TENSORS, WAVE, WAVE_STEP
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.protocol import Step
from rushlight._host.device_records import FRESH_SIZES, HEADER, LAUNCH, MAY_UNLOCK
from rushlight._native import jit
from rushlight._transforms.units import Operand
from rushlight._types.dtype import FLOAT64, DType

__all__ = ["LinkedExecutable"]

MOST_TOGETHER = 64  # launches of one wave
FEW_PIECES = 16  # a launch of more pieces occupies the threads by itself
SERIAL_BYTES = 1 << 18  # a wave that moves less is run by the calling thread
UNLOCKED_BYTES = 1 << 20

# Where a word of a launch comes from: ("word", number of an argument), ("number", its bits) or ("buffer", number); and
# bytes from there.
Place = tuple[str, int, int]


class _Launched:
    """A launch of the program: `words` are places, `fresh` the numbers of the buffers that it fills first."""

    __slots__ = ("fresh", "launch", "moved", "step", "wave", "words", "written")

    def __init__(self, launch: Launch, words: list[Place], fresh: list[int], written: set[Any], step: int) -> None:
        self.launch, self.words, self.fresh, self.written, self.step = launch, words, fresh, written, step
        self.wave, self.moved = 0, 0

    @property
    def pieces(self) -> int:
        return self.launch.ints[0] if self.launch.ints is not None else 1


class LinkedExecutable:
    """A linked program: `executable(*words)` takes the data pointers of all tensor inputs, then the numbers.

    Returns the Storage of the output that is no input's memory, a tuple of them, or None.  `peak` is the size of the
    block in which everything lies that lives between kernels; `held` the sum of these sizes, had each its own memory.
    """

    __slots__ = (
        "_address", "_keep", "_run", "buffers", "described", "head", "held", "launches", "linked", "native", "notes", "offsets", "outputs", "peak", "reports", "waves", "words",
    )  # fmt: skip

    kernel = None
    ints = 0

    def __init__(self, linked: LinkedProgram) -> None:
        self.linked, self.notes = linked, linked.notes
        self._keep: list[Any] = []
        self.buffers: list[int] = []  # bytes of each
        self.launches: list[_Launched] = []
        self.reports: list[Step] = []
        self.described: list[tuple[int, Any]] = []  # for each report its cluster, and the step
        self.head: Any = None  # the words of LINKED
        self.words = _words_of(linked)
        kernels_ahead(k for c in _different(linked.clusters) for k in kernels_in(c.program.steps))
        self._lay()
        self._divide()
        self._plan()
        self.native = all(x.launch.ints is not None for x in self.launches)
        self._run: Callable[..., Any] = self._native() if self.native else self._stepwise

    # ***** launches *****

    def _lay(self) -> None:
        """List the launches of all clusters, and where their words are."""
        graph = self.linked.graph
        self.outputs: list[Place] = []
        where: dict[int, Place] = {}
        inputs = {id(v): k for k, v in enumerate(graph.inputs)}
        for v, k in inputs.items():
            where[v] = "word", self.words[k], 0
        for number, cluster in enumerate(self.linked.clusters):
            self._lay_cluster(number, cluster, where)
        for value in self.linked.outputs:
            if value is not None:
                self.outputs.append(where.get(id(value), ("number", 0, 0)))

    def _lay_cluster(self, at_cluster: int, cluster: LinkedCluster, where: dict[int, Place]) -> None:
        unit, program = cluster.unit, cluster.compiled.program
        places: list[Place] = []
        numbers: list[Place] = []
        for operand, value in zip(unit.operands, unit.graph.inputs, strict=True):
            if isinstance(operand, Operand):
                kind, number, offset = where[id(operand.base)]
                places.append((kind, number, offset + operand.offset * value.dtype.itemsize))
            elif operand.base is not None:
                kind, number, offset = where[id(operand.base)]
                numbers += [(kind, number + k, offset) for k in range(2 if value.dtype.kind == "c" else 1)]
            else:
                numbers += [("number", word, 0) for word in _bits(operand.content, value.dtype)]
        aliased = {_key(places[_tensor(unit.layouts, k)]) for k in cluster.aliases.values()}
        places += numbers
        mine: set[Any] = set(aliased)
        for at, laid in _laid(cluster.compiled):
            if at >= 0:
                step = program.steps[at]
                self.reports.append(Step(step_name(step), step_moved(step)))
                self.described.append((at_cluster, step))
            for launch, words, count, bytes_of in laid:
                given = [places[w] for w in words]
                fresh = list(range(len(self.buffers), len(self.buffers) + count))
                self.buffers += bytes_of
                places += [("buffer", b, 0) for b in fresh]
                written = {_key(p) for p in given} & mine
                mine |= {("buffer", b) for b in fresh}
                if launch is not None:
                    made = _Launched(launch, given, fresh, written, len(self.reports) - 1)
                    made.moved = self.reports[-1].moved // len(laid)
                    self.launches.append(made)
        fresh_results = iter(program.results)
        for j, result in enumerate(unit.results):
            if j in cluster.aliases:
                where[id(result)] = places[_tensor(unit.layouts, cluster.aliases[j])]
                continue
            number = _renumbered(cluster.compiled, next(fresh_results))
            where[id(result)] = places[number] if number >= 0 else ("number", 0, 0)

    # ***** waves and memory *****

    def _divide(self) -> None:
        """Give each launch its wave: those of one wave do not wait for each other."""
        read: set[Any] = set()
        written: set[Any] = set()
        self.waves: list[list[_Launched]] = []
        for x in self.launches:
            reads = {_key(p) for p in x.words if p[0] != "number"}
            writes = x.written | {("buffer", b) for b in x.fresh}
            last = self.waves[-1] if self.waves else None
            apart = (
                last is None or not self.linked.on["waves"] or len(last) >= MOST_TOGETHER or x.pieces > FEW_PIECES or last[-1].pieces > FEW_PIECES
                or reads & written or writes & read or writes & written or x.launch.ints is None
                or last[-1].launch.ints is None
            )  # fmt: skip
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
        """Lay what lives between kernels into one block."""
        lives: dict[int, list[int]] = {}
        for x in self.launches:
            for number in (*x.fresh, *(p[1] for p in x.words if p[0] == "buffer")):
                lives.setdefault(number, [x.wave, x.wave])[1] = x.wave
        if not self.linked.on["memory_plan"]:
            lives = {b: [0, len(self.waves)] for b in lives}
        results = {p[1] for p in self.outputs if p[0] == "buffer"}
        inside = [b for b in lives if b not in results]
        found, self.peak = planned([(max(self.buffers[b], 1), lives[b][0], lives[b][1]) for b in inside])
        self.offsets = dict(zip(inside, found, strict=True))
        self.held = sum(-(-self.buffers[b] // ALIGNMENT) * ALIGNMENT for b in inside)

    # ***** running *****

    def _native(self) -> Callable[..., Any]:
        """The native function of the program."""
        n_words = _count_of_words(self.linked)
        slots = {p[1]: k for k, p in enumerate(self.outputs) if p[0] == "buffer"}
        block = 1 + n_words + len(self.outputs)
        fills: list[int] = []
        waves: list[int] = []
        table = 0

        def fill(place: Place) -> None:
            kind, number, offset = place
            if kind == "word":
                base = 1 + number
            elif kind == "number":
                base, offset = 0, number
            elif number in slots:
                base = 1 + n_words + slots[number]
            else:
                base, offset = block, offset + self.offsets[number]
            fills.extend((table, base, offset))

        for wave in self.waves:
            steps: list[int] = []
            first = 0
            for x in wave:
                table += HEADER
                begin = 8 * table
                for place in (*(("buffer", b, 0) for b in x.fresh), *x.words):
                    fill(place)
                    table += 1
                ints = x.launch.constants()
                self._keep += [ints, x.launch.call]
                address = runtime().kernel_address(x.launch.call.__self__)  # type: ignore[attr-defined]
                steps += [address, ints.buffer_info()[0], begin, first, x.pieces]
                first += x.pieces
            if len(wave) > 1 and sum(x.moved for x in wave) < SERIAL_BYTES or first == 1:
                first = 0
            waves += [len(wave), first, self._kept(steps)]
        sizes = [self.buffers[p[1]] if p[0] == "buffer" else 0 for p in self.outputs]
        moved = sum(x.moved for x in self.launches)
        unlock = moved > UNLOCKED_BYTES or any(x.launch.ints[LAUNCH_FLAGS] & MAY_UNLOCK for x in self.launches)  # type: ignore[index]
        words = {
            "n_words": n_words, "n_results": len(self.outputs), "block": self.peak + 8 * (table + 1), "table": self.peak,
            "n_fills": len(fills) // len(FILL), "fills": self._kept(fills), "n_waves": len(self.waves), "waves": self._kept(waves),
            "unlock": int(unlock), "sizes": self._kept(sizes), "times": 0,
        }  # fmt: skip
        address = self._address = self._kept([words[name] for name in _LINKED_NAMES])
        self.head = self._keep[-1]
        made: Callable[..., Any] = runtime().make_callable(
            address, b"program", tuple(self._keep), -1, runtime().program_stub
        )
        return made

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

    def explain(self, asm: bool = False) -> str:
        """Clusters, why others are apart, the memory plan, and the kernels."""
        linked = self.linked
        kernels = sum(c.compiled.kernels for c in linked.clusters)
        counted = f"{kernels} kernels and routines, {len(self.launches)} launches in {len(self.waves)} waves"
        parts = [
            f"{linked.calls} calls in {len(linked.clusters)} clusters: {counted}",
            f"memory between kernels: {self.peak} bytes at the peak, {self.held} in all",
        ]
        for k, cluster in enumerate(linked.clusters):
            names = " ".join(node.prim.name for node in cluster.unit.graph.nodes) or "copy"
            into = "".join(f", result {j} into operand {i}" for j, i in cluster.aliases.items())
            parts.append(f"cluster {k}: calls {cluster.parts}: {names}{into}")
        parts += [f"  {note}" for note in dict.fromkeys(linked.notes)]
        for k, compiled in enumerate(_different(linked.clusters)):
            parts += [f"program {k}", compiled.program.explain()]
        for symbol, text in self.code() if asm else ():
            parts += [f"LLVM {symbol}", text, f"assembly {symbol}", jit.compile_assembly(text, OPT)]
        return "\n".join(parts)


_LINKED_NAMES = tuple(field.name for field in LINKED)
LAUNCH_FLAGS = LAUNCH.flags.place
assert len(WAVE) == 3 and len(WAVE_STEP) == 5


def _different(clusters: Sequence[LinkedCluster]) -> list[Compiled]:
    """The programs of clusters, each once."""
    return list(dict.fromkeys(c.compiled for c in clusters))


def _count_of_words(linked: LinkedProgram) -> int:
    pairs = zip(linked.graph.inputs, linked.layouts, strict=True)
    return sum(2 if strides is None and value.dtype.kind == "c" else 1 for value, strides in pairs)


def _words_of(linked: LinkedProgram) -> list[int]:
    """The number of each input's (first) argument: tensors come first, then numbers."""
    words, at = [0] * len(linked.layouts), 0
    for numbers in (False, True):
        for k, (value, strides) in enumerate(zip(linked.graph.inputs, linked.layouts, strict=True)):
            if (strides is None) is numbers:
                words[k] = at
                at += 2 if numbers and value.dtype.kind == "c" else 1
    return words


def _key(place: Place) -> tuple[str, int]:
    return place[:2]


def _tensor(layouts: Sequence[Any], operand: int) -> int:
    """The number of an operand among those that are tensors."""
    return sum(s is not None for s in layouts[:operand])


def _bits(content: Any, dtype: DType) -> list[int]:
    """A number as the words that a kernel takes for it."""
    if dtype.kind == "c":
        return [*_bits(complex(content).real, FLOAT64), *_bits(complex(content).imag, FLOAT64)]
    if dtype.kind == "f":
        return [unpack("<q", pack("<d", float(content)))[0]]
    return [int(content)]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


def _laid(compiled: Compiled) -> list[Any]:
    """For each step of a program its number and (launch, words, how many buffers it fills first, their bytes) of each
    launch.
    """
    if compiled.laid is None:
        program = compiled.program
        places = BufferNumbers(program.n_inputs + program.n_args)
        found: list[Any] = []
        for at, step in enumerate(program.steps):
            if isinstance(step, ExternStep) and step.name == "allocate":
                places.made(len(step.sizes), len(step.sizes))
                found.append((-1, [(None, [], len(step.sizes), list(step.sizes))]))
                continue
            launches: list[Any] = []
            for launch, words, count in places.laid(step):
                sizes = step.sizes if launch.ints is None else launch.ints[FRESH_SIZES : FRESH_SIZES + count]
                launches.append((launch, words, count, list(sizes)))
            found.append((at, launches))
        compiled.laid = found, list(places.now)
    laid: list[Any] = compiled.laid[0]
    return laid


def _renumbered(compiled: Compiled, number: int) -> int:
    """The number of a program's buffer among those of its launches."""
    return number if number < 0 else compiled.laid[1][number]
