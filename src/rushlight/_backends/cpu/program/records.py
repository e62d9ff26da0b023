"""Programs as plain data, such as JSON holds, and back to something that runs: a program that is read needs no graph
and no schedule.

A step of generated code is kept as the names of its kernel, under which the cache of machine code has it, and the
constants of its call; a library call as what it is called with, for `extern_call` to choose the kernels anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from struct import pack, unpack
from typing import Any

from rushlight._backends.cpu.compile import Executable, with_numbers
from rushlight._backends.cpu.epilogue.constants import KeptRectangle, RectangleFacts, rectangle_facts
from rushlight._backends.cpu.kernels import kernel_called, kernel_names
from rushlight._backends.cpu.program.steps import (
    MAX_FRESH,
    ExternStep,
    KernelStep,
    Operand,
    Program,
    ReadyStep,
    RectangleStep,
    Step,
)
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._graph.packing import (
    RecordError,
    UnpackableError,
    packed_value,
    unpacked_dtype,
    unpacked_ints,
    unpacked_value,
)
from rushlight._native.objectcode import FILE_BYTES

__all__ = ["literal", "packed_program", "read_steps", "unpacked_program"]

_SYMBOL_LENGTH, _FILE_LENGTH = 25, 2 * FILE_BYTES
_HEAD = 8  # words of a kernel's constants before its slots


# ***** to plain data *****


def packed_program(program: Program, texts: bool) -> list[Any]:
    """[inputs, numbers, places of the results, steps]; sizes may be symbolic.  With `texts` those of kernels are kept,
    too (see `literal`).
    """
    steps = [_packed_step(step, texts) for step in program.steps]
    return [program.n_inputs, program.n_args, list(program.results), steps]


def _packed_step(step: Step, texts: bool) -> list[Any]:
    if isinstance(step, KernelStep):
        return ["kernel", *_packed_kernel(step, texts), list(step.ints()), list(step.words)]
    if not isinstance(step, ExternStep):
        raise UnpackableError("a kernel made for other sizes, whose origin is not known")
    return [
        "call",
        step.name,
        [_packed_operand(o) for o in step.inputs],
        [_packed_operand(o) for o in step.outputs],
        list(step.sizes),
        packed_value(step.params),
        _packed_rectangle(step.epilogue, texts),
        [_packed_rectangle(p, texts) for p in step.prologues],
        list(step.words),
    ]


def _packed_operand(operand: Operand) -> list[Any]:
    return [operand.number, operand.dtype.name, list(operand.shape), list(operand.strides)]


def _packed_kernel(step: KernelStep, texts: bool) -> list[str]:
    """The names of a kernel, and its text where that is wanted."""
    return [*kernel_names(step.key), step.key if texts else ""]


def _packed_rectangle(step: RectangleStep | None, texts: bool) -> list[Any] | None:
    if step is None:
        return None
    facts = rectangle_facts(step, address=0)
    return [
        *_packed_kernel(step.step, texts),
        facts.numbers,
        list(facts.slots),
        list(facts.slot_values),
        list(facts.batch),
        [list(s) for s in facts.steps],
        step.part.transposed,
        list(step.arrays),
        list(step.words),
    ]


def literal(data: Any) -> str:
    """Text of a program packed with texts, with this call's numbers in the slots: equal texts compute the same in the same
    way.
    """
    n_inputs, n_args, results, rows = data
    parts = [f"{n_inputs} {n_args} {results}"]
    for row in rows:
        if row[0] == "kernel":
            _, _, _, text, ints, words = row
            parts.append(f"{ints[:_HEAD]} {words}\n{_filled(text, ints[_HEAD:])}")
            continue
        *call, epilogue, prologues, words = row
        parts.append(f"{call} {words}")
        for part in (epilogue, *prologues):
            if part is not None:
                _, _, text, numbers, slots, values, *rest = part
                parts.append(f"{numbers} {[f's{k}' for k in slots]} {rest}\n{_filled(text, values)}")
    return "\n".join(parts)


_NUMBER = re.compile(r"s\((-?\d+)\)(:b?float)?")


def _filled(text: str, values: Sequence[int]) -> str:
    """The text of a kernel with the values of its slots, as they are written where they are part of the kernel."""

    def number(m: re.Match[str]) -> str:
        return repr(unpack("<d", pack("<q", int(m[1])))[0]) + m[2] if m[2] else m[1]

    return _NUMBER.sub(number, with_numbers(text, values))


# ***** and back *****


def unpacked_program(data: Any, tensors: int, numbers: int, results_bytes: Sequence[int]) -> Executable | None:
    """The program, ready to be called; None where a kernel is no longer kept.

    RecordError where the data are not those of a program that takes so many tensors and numbers and makes results of
    so many bytes.
    """
    read = _read(data)
    if read is None:
        return None
    program, held = read
    # a complex number has two words
    if program.n_inputs != tensors or not numbers <= program.n_args <= 2 * numbers:
        raise RecordError("a program of another call")
    if len(program.results) != len(results_bytes):
        raise RecordError("a program with other results")
    for place, nbytes in zip(program.results, results_bytes, strict=True):
        if nbytes and (place < held.first or held.sizes[place - held.first] < nbytes):
            raise RecordError("a result that does not fit where it should lie")
    return Executable(program)


def read_steps(data: Any) -> Program | None:
    """The program of a cluster, not yet callable; None where a kernel is no longer kept."""
    read = _read(data)
    return None if read is None else read[0]


def _read(data: Any) -> tuple[Program, _Held] | None:
    n_inputs, n_args, results, rows = _parts(data, 4)
    held = _Held(_count(n_inputs) + _count(n_args))
    steps: list[Step] = []
    for row in _list(rows):
        step = _unpacked_step(row, held)
        if step is None:
            return None
        steps.append(step)
    places = list(unpacked_ints(results, -1))
    held.check(places, -1)
    return Program(None, steps, places, n_inputs, n_args, []), held


class _Held:
    """How many places there are, and how many bytes lie at those that steps make."""

    __slots__ = ("count", "first", "sizes")

    def __init__(self, count: int) -> None:
        self.first = self.count = count
        self.sizes: list[int] = []

    def check(self, places: Sequence[int], least: int = 0) -> None:
        """RecordError where one of the places is none of these."""
        if places and not (least <= min(places) and max(places) < self.count):
            raise RecordError("a place that is not there")

    def made(self, sizes: Sequence[int]) -> None:
        """A step makes buffers of these sizes."""
        self.count += len(sizes)
        self.sizes += sizes


def _unpacked_step(row: Any, held: _Held) -> Step | None:
    kind = row[0] if type(row) is list and row else None
    if kind == "kernel":
        _, symbol, file, _, ints, words = _parts(row, 6)
        call = _called(symbol, file)
        if call is None:
            return None
        constants, places = unpacked_ints(ints), list(unpacked_ints(words, 0))
        held.check(places)
        if len(constants) < _HEAD or not 0 <= constants[2] <= MAX_FRESH:
            raise RecordError("constants without the head that each call has")
        sizes = constants[3 : 3 + constants[2]]
        if sizes and min(sizes) < 0:
            raise RecordError("a buffer of fewer than no bytes")
        held.made(sizes)
        return ReadyStep(call, constants, places, sizes, "")
    if kind != "call":
        raise RecordError("a step of no known kind")
    return _unpacked_call(row, held)


def _unpacked_call(row: Any, held: _Held) -> ExternStep | None:
    _, name, inputs, outputs, sizes, params, epilogue, prologues, words = _parts(row, 9)
    if type(name) is not str:
        raise RecordError("a library call without a name")
    read = [_unpacked_operand(o) for o in _list(inputs)]
    places = list(unpacked_ints(words, 0))
    held.check([o.number for o in read], -1)
    held.check(places)
    fresh = list(unpacked_ints(sizes, 0))
    held.made(fresh)
    made = [_unpacked_operand(o) for o in _list(outputs)]
    held.check([o.number for o in made], -1)
    named = unpacked_value(params)
    if type(named) is not dict:
        raise RecordError("parameters without names")
    parts = []
    for part in (epilogue, *_list(prologues)):
        rectangle = None if part is None else _unpacked_rectangle(part)
        if part is not None and rectangle is None:
            return None
        parts.append(rectangle)
    return ExternStep(name, read, made, fresh, named, parts[0], parts[1:], places)  # type: ignore[arg-type]


def _unpacked_operand(row: Any) -> Operand:
    place, dtype, shape, strides = _parts(row, 4)
    if type(place) is not int or type(shape) is not list or type(strides) is not list or len(shape) != len(strides):
        raise RecordError("no operand")
    return Operand(place, unpacked_dtype(dtype), unpacked_ints(shape, 0), unpacked_ints(strides))


def _unpacked_rectangle(row: Any) -> KeptRectangle | None:
    symbol, file, _, numbers, slots, values, batch, steps, transposed, arrays, words = _parts(row, 11)
    call = _called(symbol, file)
    if call is None:
        return None
    address = runtime().kernel_address(call.__self__)
    rows = [unpacked_ints(s) for s in _list(steps)]
    facts = RectangleFacts(
        address, _count(numbers), unpacked_ints(slots, 0), unpacked_ints(values), unpacked_ints(batch, 0), rows
    )
    if type(transposed) is not bool or any(len(s) != 3 + len(facts.batch) for s in rows):
        raise RecordError("a kernel over a rectangle without its steps")
    return KeptRectangle(facts, transposed, unpacked_ints(arrays), unpacked_ints(words, 0))


def _called(symbol: Any, file: Any) -> Any:
    """The kernel with these names; None where it is no longer there."""
    if type(symbol) is not str or type(file) is not str or (len(symbol), len(file)) != (_SYMBOL_LENGTH, _FILE_LENGTH):
        raise RecordError("a kernel without its names")
    try:
        return kernel_called(symbol, bytes.fromhex(file))
    except (KeyError, ValueError) as error:
        raise RecordError(f"a kernel of another name: {error}") from None


def _count(data: Any) -> int:
    if type(data) is not int or not 0 <= data < 1 << 31:
        raise RecordError("no count")
    return data


def _list(data: Any) -> list[Any]:
    if type(data) is not list:
        raise RecordError("something else than a list")
    return data


def _parts(data: Any, count: int) -> list[Any]:
    if type(data) is not list or len(data) != count:
        raise RecordError(f"no list of {count}")
    return data
