"""`CompiledProgram`s as plain data, and back: without a graph, which is read when somebody asks for it.

Kept are programs that only compute and write, draw random numbers from the default generator, and compute numbers on the
host from elements of their inputs: none that has a backward of its own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._capture.recording.assemble import Given
from rushlight._capture.recording.log import Draw
from rushlight._capture.recording.regions import Layout
from rushlight._capture.recording.replaced import NOT_GIVEN
from rushlight._capture.recording.running.compiled import CompiledProgram
from rushlight._capture.recording.running.evaluation import Evaluation, lies_within
from rushlight._capture.recording.running.results import Changed, Dress, Made
from rushlight._engine.core.memory import MEMORY
from rushlight._engine.core.tensor import Tensor, make
from rushlight._engine.random.random import default_generator
from rushlight._graph.packing import RecordError, UnpackableError, unpacked_dtype, unpacked_ints
from rushlight._types.device import CPU
from rushlight._types.layout import extent
from rushlight._types.spec import Spec

__all__ = ["packed_compiled", "packed_spec", "unpacked_compiled", "unpacked_spec"]

_LISTS = ("grads", "histories", "output_grads", "flags", "_versions", "_result_versions", "_replaced")
_MOST_HELD = 1 << 20  # bytes of constants
_LEAST_DRAWN = 256  # bytes of random numbers that are no reason to look
# Kernels of random numbers that only fill memory, and how many parameters they have; bytes of the kinds of elements.
_DRAWN = {
    "uniform": 2, "normal": 2, "normal_serial": 2, "log_normal": 2, "exponential": 2, "cauchy": 2, "geometric": 2, "bernoulli": 2,
    "integers": 3,
}  # fmt: skip
_BYTES = {
    "f32": 4, "f64": 8, "f16": 2, "bf16": 2, "u8": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u16": 2, "u32": 4, "u64": 8,
}  # fmt: skip


def packed_spec(spec: Spec) -> list[Any]:
    """A spec of the CPU as plain data."""
    if backend_of(spec.device) is not backend_of(CPU) or spec.released:
        raise UnpackableError("a tensor of another device")
    return [spec.dtype.name, list(spec.shape), list(spec.strides), spec.conj]


def unpacked_spec(data: Any) -> Spec:
    """The spec."""
    name, shape, strides, conj = _row(data, 4)
    sizes, steps = unpacked_ints(shape, 0), unpacked_ints(strides)
    if len(sizes) != len(steps) or type(conj) is not bool:
        raise RecordError("no spec")
    return Spec.of(unpacked_dtype(name), CPU, sizes, steps, conj)


def packed_compiled(program: CompiledProgram) -> dict[str, Any]:
    """A program as plain data; UnpackableError for one that is not kept."""
    if program._backward is not None or program.released:
        raise UnpackableError("a program with a backward")
    if program.checks:
        raise UnpackableError("a program with checks")
    if not _within(program):
        raise UnpackableError("a program that reaches beyond its inputs")
    if program._key is None or program._text is None:
        raise UnpackableError("a program without a key")
    if sum(x._spec.nbytes for x in program._held) > _MOST_HELD:
        raise UnpackableError("many constants")
    data: dict[str, Any] = {
        "specs": [packed_spec(s) for s in program.specs],
        "made": [_packed_made(made) for made in program.made],
        "outputs": program.n_outputs,
        "stored": program._n_stored,
        "layouts": [list(strides) for strides in program._layouts],
        "changed": [_packed_given(change.given) for change in program._changed],
        "sources": [list(source) for source in program._sources],
        "inputs": [None if s is None else packed_spec(s) for s in program._in_specs],
        "held": [[packed_spec(x._spec), b64encode(bytes(memoryview(x._storage).cast("B"))).decode()] for x in program._held],
        "aliases": [[k, n] for k, n in program._aliases.items()],
        "results": [[dtype.name, list(shape)] for dtype, shape in program._results],
        "steps": list(program._steps),
        "host": None if program._evaluation is None else program._evaluation.packed(),
        "number_places": list(program._number_places),
        "number_words": program._number_words,
        "draws": [_packed_draw(draw) for draw in program.draws],
        "key": program._key.hex(),
        "graph": program._text,
        "options": None if program._options is None else dict(program._options),
    }  # fmt: skip
    data |= {name: [list(row) for row in getattr(program, name)] for name in _LISTS}
    return data


def _within(program: CompiledProgram) -> bool:
    """Whether everything that a program reads, writes and gives lies within its inputs and its results."""
    specs, held = program.specs, program._held
    for spec, (kind, number, step) in zip(program._in_specs, program._sources, strict=True):
        if spec is None:
            continue
        if kind == "draw":
            total = program.draws[number].total * program.draws[number].itemsize
            if (
                step
                or min(spec.strides, default=0) < 0
                or not spec.nbytes <= total <= max(_LEAST_DRAWN, 4 * spec.nbytes)
            ):
                return False
            continue
        whole = specs[number] if kind == "input" else held[number]._spec
        if not lies_within(spec, step, whole):
            return False
    for change, step in zip(program._changed, program._steps, strict=True):
        given = change.given
        written = Spec.of(given.dtype, CPU, given.layout.shape, given.layout.strides)
        if not lies_within(written, step, specs[given.content]):
            return False
    memory = [
        Spec.of(dtype, CPU, shape, strides)
        for (dtype, shape), strides in zip(program._results, program._layouts, strict=False)
    ]
    for made in program.made:
        if made.kind == "view" and not lies_within(made.spec, made.offset, specs[made.number]):
            return False
        if made.kind == "storage" and not (
            made.number < program._n_stored and lies_within(made.spec, made.offset, memory[made.number])
        ):
            return False
    return True


def _packed_draw(draw: Draw) -> list[Any]:
    """A draw from the default generator; UnpackableError for others."""
    row = [draw.name, draw.kind, draw.total, draw.itemsize, [packed_number(x) for x in draw.parameters]]
    if draw.generator is not default_generator:
        raise UnpackableError("random numbers of another generator")
    try:
        _unpacked_draw(row)
    except RecordError as error:
        raise UnpackableError(f"{error}") from None
    return row


def _unpacked_draw(row: Any) -> Draw:
    name, kind, total, itemsize, parameters = _row(row, 5)
    if type(name) is not str or type(kind) is not str or len(_list(parameters)) != _DRAWN.get(name, -1):
        raise RecordError("random numbers of no known kind")
    if (int(kind) if kind in ("1", "2", "4", "8") else _BYTES.get(kind)) != itemsize:
        raise RecordError("random numbers of another size")
    numbers = [unpacked_number(x) for x in parameters]
    if [type(x) for x in numbers] != (
        [float, int] if name == "bernoulli" else [int] * 3 if name == "integers" else [float] * 2
    ):
        raise RecordError("parameters of other random numbers")
    try:
        default_generator.kernel(name, kind)
    except (KeyError, ValueError, TypeError) as error:
        raise RecordError(f"random numbers that nothing draws: {error}") from None
    return Draw(default_generator, name, kind, 0, _number(total, 1 << 40), numbers, itemsize)


def packed_number(value: Any) -> list[str]:
    """An int or a float, with all its bits."""
    if type(value) is float:
        return ["float", value.hex()]
    if type(value) is not int:
        raise UnpackableError("a number that each call computes")
    return ["int", str(value)]


def unpacked_number(data: Any) -> int | float:
    """The number."""
    kind, text = _row(data, 2)
    if kind not in ("int", "float") or type(text) is not str or len(text) > 40:
        raise RecordError("no number")
    return int(text) if kind == "int" else float.fromhex(text)


def _packed_made(made: Made) -> list[Any]:
    dress = made.dress
    if dress is not None and dress.kind is not None:
        raise UnpackableError("a result of a class of its own")
    worn = None if dress is None else [dress.leaf, dress.retains, dress.inference]
    base = None if made.base is None else list(made.base)
    return [made.kind, made.number, packed_spec(made.spec), made.offset, base, made.creation, worn]


def _packed_given(given: Given) -> list[Any]:
    layout = given.layout
    return [given.content, list(layout.shape), list(layout.strides), layout.offset, given.dtype.name]


def unpacked_compiled(data: Any) -> CompiledProgram:
    """The program; RecordError where the data are not those of one."""
    try:
        return _Reader(data).program()
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise RecordError(f"{type(error).__name__}: {error}") from None


class _Reader:
    """Reads one program, and checks that what it speaks of is there."""

    def __init__(self, data: Any) -> None:
        if type(data) is not dict:
            raise RecordError("no program")
        self.data = data
        self._known: dict[str, Spec] = {}  # by what is written of them: layers that repeat have the same ones
        self.specs = [self._spec(s) for s in _list(data["specs"])]
        self.in_specs = [None if s is None else self._spec(s) for s in _list(data["inputs"])]
        self.made = [self._made(row) for row in _list(data["made"])]

    def program(self) -> CompiledProgram:
        """The program."""
        data = self.data
        results = [(unpacked_dtype(name), unpacked_ints(shape, 0)) for name, shape in _list(data["results"])]
        key, graph, options = bytes.fromhex(data["key"]), data["graph"], data["options"]
        if type(graph) is not str or not (options is None or type(options) is dict):
            raise RecordError("a program without a graph")
        fields: dict[str, Any] = {
            "specs": self.specs, "made": self.made, "n_outputs": _number(data["outputs"], len(self.made) + 1),
            "_n_stored": _number(data["stored"], len(results) + 1), "_layouts": [unpacked_ints(s) for s in _list(data["layouts"])],
            "_changed": [Changed(self._given(row), None) for row in _list(data["changed"])],
            "_held": [_constant(row) for row in _list(data["held"])], "_results": results,
            "_aliases": {_number(k, len(results)): _number(n, len(self.in_specs)) for k, n in _list(data["aliases"])},
            "_failed": None, "_steps": list(unpacked_ints(data["steps"])), "_key": key, "_text": graph, "_options": options, "_in_specs": list(self.in_specs),
        }  # fmt: skip
        places = fields["_number_places"] = list(unpacked_ints(data["number_places"], 0))
        words = fields["_number_words"] = _number(data["number_words"], len(self.in_specs) + 1)
        if places and max(places) >= len(self.made) + len(places):
            raise RecordError("numbers in other places")
        if data["host"] is not None:
            fields["_evaluation"] = Evaluation.unpacked(data["host"], self.specs, words + len(places))
        elif words or places:
            raise RecordError("numbers that nothing computes")
        if len(fields["_steps"]) != len(fields["_changed"]):
            raise RecordError("steps of other changes")
        if len(fields["_layouts"]) + len(fields["_changed"]) != len(results):
            raise RecordError("layouts of other results")
        fields["draws"] = [_unpacked_draw(row) for row in _list(data["draws"])]
        ends = {
            "input": len(self.specs),
            "constant": len(fields["_held"]),
            "number": words,
            "draw": len(fields["draws"]),
        }
        fields["_sources"] = [self._source(row, ends) for row in _list(data["sources"])]
        kinds = [kind != "number" for kind, _, _ in fields["_sources"]]
        if kinds != [s is not None for s in self.in_specs]:
            raise RecordError("sources of other inputs")
        for name in _LISTS:
            fields[name] = [self._pair(name, row) for row in _list(data[name])]
        found = CompiledProgram.kept(fields)
        if not _within(found):
            raise RecordError("memory that is not there")
        return found

    def _spec(self, row: Any) -> Spec:
        said = repr(row)
        found = self._known.get(said)
        if found is None:
            found = self._known[said] = unpacked_spec(row)
        return found

    def _made(self, row: Any) -> Made:
        kind, number, spec, offset, base, creation, worn = _row(row, 7)
        if kind not in ("same", "view", "empty", "storage") or type(creation) is not str or type(offset) is not int:
            raise RecordError("a result of no known kind")
        if kind in ("same", "view"):
            _number(number, len(self.specs))
        dress = None
        if worn is not None:
            leaf, retains, inference = (_flag(x) for x in _row(worn, 3))
            dress = Dress(None, leaf, retains, inference)
        origin = None
        if base is not None:
            origin = _row(base, 2)[0], _number(base[1], 1 << 31)
            if origin[0] not in ("input", "result"):
                raise RecordError("a view of nothing")
        return Made(kind, _number(number, 1 << 31), self._spec(spec), offset, None, origin, creation, dress)

    def _given(self, row: Any) -> Given:
        content, shape, strides, offset, name = _row(row, 5)
        layout = Layout(unpacked_ints(shape, 0), unpacked_ints(strides), _number(offset, 1 << 62))
        return Given("input", _number(content, len(self.specs)), layout, unpacked_dtype(name))

    def _source(self, row: Any, ends: dict[str, int]) -> tuple[str, int, int]:
        kind, number, step = _row(row, 3)
        if kind not in ends or type(step) is not int:
            raise RecordError("a word of no known kind")
        return kind, _number(number, ends[kind]), step

    def _pair(self, name: str, row: Any) -> tuple[Any, Any]:
        first, second = _row(row, 2)
        ends = {
            "grads": len(self.specs),
            "histories": len(self.specs),
            "flags": len(self.specs),
            "_versions": len(self.specs),
            "_replaced": len(self.specs),
        }
        _number(first, ends.get(name, len(self.made)))
        if name == "flags":
            return first, _flag(second)
        if name == "_replaced":
            return first, second if second == NOT_GIVEN else _number(second, len(self.specs))
        if name in ("_versions", "_result_versions"):
            return first, _number(second, 1 << 31)
        return first, None if second is None and name == "grads" else _number(second, len(self.made))


def _constant(row: Any) -> Tensor:
    spec, text = unpacked_spec(_row(row, 2)[0]), b64decode(row[1])
    if len(text) < extent(spec.shape, spec.strides) * spec.dtype.itemsize:
        raise RecordError("a constant that is cut off")
    storage = MEMORY.alloc(len(text))
    memoryview(storage).cast("B")[:] = text
    return make(storage, spec, storage.ptr)


def _list(data: Any) -> list[Any]:
    if type(data) is not list:
        raise RecordError("something else than a list")
    return data


def _row(data: Any, count: int) -> list[Any]:
    if type(data) is not list or len(data) != count:
        raise RecordError(f"no list of {count}")
    return data


def _number(data: Any, end: int) -> int:
    if type(data) is not int or not 0 <= data < end:
        raise RecordError("a number beyond what there is")
    return data


def _flag(data: Any) -> bool:
    if type(data) is not bool:
        raise RecordError("neither true nor false")
    return data
