"""How the clusters of a linked program are wired: which memory each takes, and what it makes, by numbers.

Values are numbered: the inputs of the program, then the results of its clusters in order.  A `Wiring` holds no graph,
so it is also what is kept on disk of a linked program (`packed_wiring`); programs of clusters are kept as eager's are
(`records`).  Reading executes nothing: whatever does not fit is a `RecordError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._backends.cpu.compile import BufferNumbers, step_moved, step_name
from rushlight._backends.cpu.program import records
from rushlight._backends.cpu.program.phases import COUNTS
from rushlight._backends.cpu.program.steps import ExternStep, Program
from rushlight._backends.protocol import Step
from rushlight._graph.packing import RecordError, unpacked_ints
from rushlight._host.device_records import FRESH_SIZES
from rushlight._transforms.units import Operand
from rushlight._types.dtype import FLOAT64, DType
from rushlight._types.spec import Spec

if TYPE_CHECKING:  # a program that was kept is not linked again
    from rushlight._backends.cpu.program.linking import LinkedProgram

__all__ = ["Part", "Wired", "Wiring", "packed_wiring", "unpacked_part", "unpacked_wiring", "wired", "wiring_text"]

_FORMAT = "linked 2"
_SWITCHES = ("waves", "memory_plan", "overlap")


class Part:
    """The program of clusters that are alike: `steps` lists its steps for reports."""

    __slots__ = ("_laid", "_now", "program", "steps")

    def __init__(self, program: Program, steps: Sequence[Step] | None = None) -> None:
        self.program = program
        self._laid: list[Any] | None = None
        self._now: list[int] = []
        self.steps = _reports(program) if steps is None else list(steps)

    def laid(self) -> list[Any]:
        """For each step its number among `steps` (-1: it only allocates), and (launch, words, how many buffers it fills
        first, their bytes) of each launch.
        """
        if self._laid is None:
            places = BufferNumbers(self.program.n_inputs + self.program.n_args)
            found: list[Any] = []
            number = 0
            for step in self.program.steps:
                if isinstance(step, ExternStep) and step.name == "allocate":
                    places.made(len(step.sizes), len(step.sizes))
                    found.append((-1, [(None, [], len(step.sizes), list(step.sizes))]))
                    continue
                launches: list[Any] = []
                for launch, words, count in places.laid(step):
                    sizes = step.sizes if launch.ints is None else launch.ints[FRESH_SIZES : FRESH_SIZES + count]
                    launches.append((launch, words, count, list(sizes)))
                found.append((number, launches))
                number += 1
            self._now, self._laid = list(places.now), found  # in this order: threads may ask at once
            return found
        return self._laid

    def renumbered(self, number: int) -> int:
        """The number of a buffer of the program among those of its launches."""
        return number if number < 0 else self._now[number]


def _reports(program: Program) -> list[Step]:
    steps = [s for s in program.steps if not (isinstance(s, ExternStep) and s.name == "allocate")]
    return [Step(step_name(step), step_moved(step)) for step in steps]


class Wired(NamedTuple):
    """A cluster: its program, the memory of its tensors as (value, bytes from where that begins), its numbers as ("word",
    number of an argument, 0) or ("number", bits, 0), which results go into which of its tensors, and how many there are.
    """

    part: Part
    tensors: list[tuple[int, int]]
    numbers: list[tuple[str, int, int]]
    aliases: dict[int, int]
    results: int


class Wiring(NamedTuple):
    """A program: the number of each input's first argument, how many arguments there are, clusters, outputs as values
    (-1: it lies in an input), whether memory is planned, waves are made and collectives overlap, and the number of phases where that is known.
    """

    words: list[int]
    n_words: int
    clusters: list[Wired]
    outputs: list[int]
    on: dict[str, bool]
    phases: int | None = None

    @property
    def parts(self) -> list[Part]:
        """The programs, each once."""
        return list(dict.fromkeys(c.part for c in self.clusters))


def wired(linked: LinkedProgram) -> Wiring:
    """The wiring of a linked program."""
    words, n_words = _words_of(linked)
    numbers = {id(v): k for k, v in enumerate(linked.graph.inputs)}
    parts: dict[int, Part] = {}
    clusters = []
    for cluster in linked.clusters:
        unit, compiled = cluster.unit, cluster.compiled
        if id(compiled) not in parts:
            parts[id(compiled)] = compiled.part = compiled.part or Part(compiled.program)
        tensors: list[tuple[int, int]] = []
        held: list[tuple[str, int, int]] = []
        at: dict[int, int] = {}
        for k, (operand, value) in enumerate(zip(unit.operands, unit.graph.inputs, strict=True)):
            if isinstance(operand, Operand):
                at[k] = len(tensors)
                tensors.append((numbers[id(operand.base)], operand.offset * value.dtype.itemsize))
            elif operand.base is not None:
                first = words[numbers[id(operand.base)]]
                held += [("word", first + n, 0) for n in range(2 if value.dtype.kind == "c" else 1)]
            else:
                held += [("number", word, 0) for word in _bits(operand.content, value.dtype)]
        aliases = {j: at[k] for j, k in cluster.aliases.items()}
        clusters.append(Wired(parts[id(compiled)], tensors, held, aliases, len(unit.results)))
        for result in unit.results:
            numbers[id(result)] = len(numbers)
    outputs = [-1 if v is None else numbers[id(v)] for v in linked.outputs]
    return Wiring(words, n_words, clusters, outputs, {name: linked.on[name] for name in _SWITCHES})


def _words_of(linked: LinkedProgram) -> tuple[list[int], int]:
    """The number of each input's (first) argument, tensors first, then numbers; and how many arguments there are."""
    words, at = [0] * len(linked.layouts), 0
    for numbers in (False, True):
        for k, (value, strides) in enumerate(zip(linked.graph.inputs, linked.layouts, strict=True)):
            if (strides is None) is numbers:
                words[k] = at
                at += 2 if numbers and value.dtype.kind == "c" else 1
    return words, at


def _bits(content: Any, dtype: DType) -> list[int]:
    """A number as the words that a kernel takes for it."""
    if dtype.kind == "c":
        return [*_bits(complex(content).real, FLOAT64), *_bits(complex(content).imag, FLOAT64)]
    if dtype.kind == "f":
        return [unpack("<q", pack("<d", float(content)))[0]]
    return [int(content)]


# ***** to plain data, and back *****


def packed_wiring(wiring: Wiring, texts: bool = False, phases: int | None = None) -> dict[str, Any]:
    """The wiring as plain data; `phases` is the number that a search found."""
    numbers = {id(part): k for k, part in enumerate(wiring.parts)}
    rows = [
        [numbers[id(c.part)], [w for pair in c.tensors for w in pair], [w for kind, n, _ in c.numbers for w in (int(kind == "word"), n)],
         [w for pair in c.aliases.items() for w in pair], c.results]
        for c in wiring.clusters
    ]  # fmt: skip
    parts = [
        [records.packed_program(part.program, texts), [[step.name, step.moved] for step in part.steps]]
        for part in wiring.parts
    ]
    on = [wiring.on.get(name, False) for name in _SWITCHES]
    return {"form": _FORMAT, "words": wiring.words, "arguments": wiring.n_words, "parts": parts, "clusters": rows, "outputs": wiring.outputs, "on": on, "phases": phases}  # fmt: skip


def unpacked_wiring(data: Any, in_specs: Sequence[Spec | None], results_bytes: Sequence[int | None]) -> Wiring | None:
    """The wiring of a program with these inputs (None: a number) whose outputs have so many bytes (None: it lies in an
    input); None where a kernel is no longer kept.
    """
    if type(data) is not dict or data.get("form") != _FORMAT:
        raise RecordError("no linked program")
    try:
        words, n_words = list(unpacked_ints(data["words"], 0)), data["arguments"]
        rows, named, on = data["clusters"], data["parts"], data["on"]
        outputs = list(unpacked_ints(data["outputs"], -1))
    except KeyError as error:
        raise RecordError(f"a linked program without its {error}") from None
    if type(n_words) is not int or type(rows) is not list or type(named) is not list or len(words) != len(in_specs):
        raise RecordError("a linked program of another call")
    if type(on) is not list or [type(x) for x in on] != [bool] * len(_SWITCHES):
        raise RecordError("switches that are neither on nor off")
    if not len(words) <= n_words <= 2 * len(words) or (words and max(words) >= n_words):
        raise RecordError("arguments that are not there")
    phases = data.get("phases")
    if phases is not None and (type(phases) is not int or phases not in (1, *COUNTS)):
        raise RecordError("phases that no search finds")
    parts = []
    for row in named:
        part = row if type(row) is Part else unpacked_part(row)
        if part is None:
            return None
        parts.append(part)
    checker = _Checker(parts, n_words, [0 if s is None else s.nbytes for s in in_specs])
    clusters = [checker.cluster(row) for row in rows]
    checker.outputs(outputs, results_bytes)
    return Wiring(words, n_words, clusters, outputs, dict(zip(_SWITCHES, on, strict=True)), phases)


def unpacked_part(row: Any) -> Part | None:
    """The program of clusters that are alike; None where a kernel is no longer kept."""
    if type(row) is not list or len(row) != 2 or type(row[1]) is not list:
        raise RecordError("a program without its steps")
    program = records.read_steps(row[0])
    if program is None:
        return None
    steps = []
    for step in row[1]:
        if type(step) is not list or [type(x) for x in step] != [str, int]:
            raise RecordError("a step without a name")
        steps.append(Step(*step))
    if len(steps) != sum(not (isinstance(s, ExternStep) and s.name == "allocate") for s in program.steps):
        raise RecordError("names of other steps")
    return Part(program, steps)


def _unpacked_cluster(row: Any, parts: Sequence[Part], n_words: int) -> Wired:
    """A cluster of a program; whether there is so much memory is not looked at."""
    if type(row) is not list or len(row) != 5 or type(row[0]) is not int or type(row[4]) is not int:
        raise RecordError("no cluster")
    which, n_results = row[0], row[4]
    pairs, held, into = [unpacked_ints(x) for x in row[1:4]]
    if not 0 <= which < len(parts) or len(pairs) % 2 or len(held) % 2 or len(into) % 2:
        raise RecordError("a cluster of another program")
    part = parts[which]
    tensors = list(zip(pairs[::2], pairs[1::2], strict=True))
    numbers = []
    for kind, n in zip(held[::2], held[1::2], strict=True):
        if kind not in (0, 1) or (kind and not 0 <= n < n_words):
            raise RecordError("an argument that is not there")
        numbers.append(("word" if kind else "number", n, 0))
    aliases = dict(zip(into[::2], into[1::2], strict=True))
    for j, k in aliases.items():
        if not 0 <= j < n_results or not 0 <= k < len(tensors):
            raise RecordError("a result in memory that is not there")
    program = part.program
    if (len(tensors), len(numbers)) != (program.n_inputs, program.n_args):
        raise RecordError("a program that takes something else")
    if n_results != len(program.results) + len(aliases):
        raise RecordError("a program with other results")
    return Wired(part, tensors, numbers, aliases, n_results)


class _Checker:
    """Reads clusters, and checks that each takes what is there."""

    def __init__(self, parts: Sequence[Part], n_words: int, sizes: Sequence[int]) -> None:
        self.parts, self.n_words = parts, n_words
        self.sizes: list[int] = list(sizes)  # bytes at each value
        self.inputs = len(sizes)
        self.within: set[int] = set()  # values that lie in others

    def cluster(self, row: Any) -> Wired:
        """A cluster."""
        found, sizes = _unpacked_cluster(row, self.parts, self.n_words), self.sizes
        for value, at in found.tensors:
            if not 0 <= value < len(sizes) or not 0 <= at <= sizes[value]:
                raise RecordError("memory that is not there")
        self.made(found.part, found.tensors, found.aliases, found.results)
        return found

    def made(self, part: Part, tensors: Sequence[tuple[int, int]], aliases: dict[int, int], n_results: int) -> None:
        """Note how much memory the results have."""
        first = part.program.n_inputs + part.program.n_args
        buffers = [n for step in part.program.steps for n in step.sizes]
        results = iter(part.program.results)
        for j in range(n_results):
            if j in aliases:
                value, at = tensors[aliases[j]]
                self.within.add(len(self.sizes))
                self.sizes.append(self.sizes[value] - at)
                continue
            number = next(results)
            if number >= 0 and not first <= number < first + len(buffers):
                raise RecordError("a result that no step makes")
            self.sizes.append(buffers[number - first] if number >= 0 else 0)

    def outputs(self, outputs: Sequence[int], results_bytes: Sequence[int | None]) -> None:
        """Check the outputs of the program."""
        if len(outputs) != len(results_bytes):
            raise RecordError("a program with other outputs")
        for value, nbytes in zip(outputs, results_bytes, strict=True):
            if (value < 0) is not (nbytes is None):
                raise RecordError("an output that lies elsewhere")
            if nbytes is not None and (
                not self.inputs <= value < len(self.sizes) or value in self.within or self.sizes[value] < nbytes
            ):
                raise RecordError("an output that does not fit where it should lie")


def wiring_text(data: dict[str, Any], names: bool = True) -> str:
    """Text of a linked program that was packed with texts: equal texts compute the same in the same way.

    Kernels with numbers as constants and with numbers in slots have different `names`.
    """
    parts = [f"{steps if names else ''}\n{records.literal(program)}" for program, steps in data["parts"]]
    rest = {name: value for name, value in data.items() if name not in ("parts", "phases")}
    return "\n".join([*parts, str(rest)])
