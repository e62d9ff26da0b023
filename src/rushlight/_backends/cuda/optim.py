"""Optimizers' steps over many parameters in few launches.

The host's part gives a table with a row for each parameter: the addresses of its arrays, the bits of its numbers, and
its size (see `rushlight._engine.dispatch.multi_tensor`).  The rows reach the device as parameters of a launch, by value
(see `_codegen.blocks.joined`), so a captured graph holds them, too.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.driver.api import slots
from rushlight._backends.cuda.kernels import word_of
from rushlight._backends.cuda.program.assemble import compile_graph
from rushlight._backends.cuda.program.joining import most_rows, rows_from
from rushlight._backends.cuda.program.steps import Launch, Memory, Word
from rushlight._codegen.blocks import Kernel
from rushlight._codegen.blocks.joined import joined_kernel
from rushlight._types.device import Device

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._graph.core import Graph

__all__ = ["MultiTensor", "RowForm"]

_SIZE_AT = 8  # words of a row's constants before its size
_PIECES_AT = 8  # words of a call before its pieces of work
_ALIGNED = 16  # bytes of an address, and elements of a size
# Sizes of whole tiles and some elements, of which kernels know whether 16 divides them and whether 32 bits count them.
_SMALL, _LARGE = 1 << 20, 1 << 32


class RowForm:
    """The kernel of a rule for rows of some kind: its parameters that are numbers of a row, and those that are not."""

    def __init__(self, graph: Graph, layouts: Sequence[Any], aliases: Mapping[int, int], size: int, tiled: int) -> None:
        program = compile_graph(graph, layouts, aliases=aliases)
        (launch,) = program.steps
        assert isinstance(launch, Launch), "a rule must change each element by itself"
        self.kernel: Kernel = launch.kernel
        self.tile = tiled // (launch.grid[0] - 1)
        arrays, self.arguments = len(program.inputs), list[Any]()  # the place in a row of the table, or (number,)
        for argument in launch.arguments:
            if isinstance(argument, Memory):
                self.arguments.append(program.inputs.index(argument))
            elif isinstance(argument, Word):
                self.arguments.append(argument.place)
            else:
                self.arguments.append(len(layouts) if argument == size else (argument,))
        self.arrays, self.buffers = arrays, len(layouts)
        self._joined: dict[tuple[int, bool], Kernel] = {}

    def varying(self, numbers: bool) -> list[int]:
        """The parameters that differ from row to row; the numbers of a rule among them, where they do."""
        return [
            k
            for k, at in enumerate(self.arguments)
            if isinstance(at, int) and (numbers or not self.arrays <= at < self.buffers)
        ]

    def joined(self, rows: int, numbers: bool) -> Kernel:
        """The kernel for a table of rows."""
        found = self._joined.get((rows, numbers))
        if found is None:
            found = self._joined[rows, numbers] = joined_kernel(self.kernel, self.varying(numbers), rows)
        return found

    def words(self, row: Sequence[int], parameters: Sequence[int]) -> list[int]:
        """The words of some parameters for a row of the table."""
        made = []
        for k in parameters:
            at, element = self.arguments[k], self.kernel.params[k].type.element
            if isinstance(at, tuple):
                made.append(word_of(at[0], element))
            elif self.arrays <= at < self.buffers:
                made.append(word_of(_float(row[at]), element))
            else:
                made.append(row[at])
        return made


def _float(bits: int) -> float:
    return ctypes.c_double.from_buffer(ctypes.c_int64(bits)).value


class _Rule:
    """The forms of a rule's kernel."""

    def __init__(self, trace: Callable[[int], Graph], layouts: Sequence[Any], aliases: Mapping[int, int]) -> None:
        self.trace, self.layouts, self.aliases = trace, layouts, aliases
        self.arrays = sum(bool(layout) for layout in layouts)  # behind them numbers that lie in memory, then others
        self.read = range(self.arrays, sum(layout is not None for layout in layouts))
        self.forms: dict[tuple[int, bool], RowForm] = {}

    def form(self, rows: Sequence[Sequence[int]]) -> RowForm:
        """The form for rows of these addresses and sizes."""
        aligned = all(word % _ALIGNED == 0 for row in rows for word in (*row[: self.arrays], row[-1]))
        tiled = _SMALL if all(row[-1] < _SMALL << 9 for row in rows) else _LARGE
        found = self.forms.get((tiled, aligned))
        if found is None:
            size = tiled + (_ALIGNED if aligned else 1)
            found = RowForm(self.trace(size), self.layouts, self.aliases, size, tiled)
            anywhere = [k for k, at in enumerate(found.arguments) if not aligned or at in self.read]
            found.kernel = _for_any_address(found.kernel, anywhere)
            self.forms[tiled, aligned] = found
        return found


def _for_any_address(kernel: Kernel, parameters: Sequence[int]) -> Kernel:
    """The kernel without what divides some of its parameters."""
    divisible = {k: n for k, n in kernel.divisible.items() if k not in parameters}
    return Kernel(kernel.name, kernel.body, divisible=divisible, warps=kernel.warps, stages=kernel.stages)


class MultiTensor:
    """See the module's text; the methods are those that `Backend.multi_tensor` names."""

    adafactor = None

    def __init__(self, backend: CudaBackend) -> None:
        self.backend = backend
        self.rules: list[_Rule] = []

    def element_kernel(self, trace: Callable[[int], Graph], layouts: Sequence[Any], aliases: Mapping[int, int]) -> int:
        """The number of the kernel of a rule."""
        self.rules.append(_Rule(trace, layouts, aliases))
        return len(self.rules) - 1

    def update_rows(self, work: int, table: int, kernel: int, buffers: int) -> None:
        """Run a kernel over all rows of a table of the host."""
        pieces = ctypes.c_int64.from_address(work).value
        count = ctypes.c_int64.from_address(work + 8 * (_PIECES_AT + 3 * (pieces - 1) + 1)).value
        words = array("q", (ctypes.c_int64 * (count * (buffers + 1))).from_address(table))
        rows = [words[at : at + buffers + 1] for at in range(0, len(words), buffers + 1)]
        for row in rows:
            row[-1] = ctypes.c_int64.from_address(row[-1] + 8 * _SIZE_AT).value
        rows = [row for row in rows if row[-1]]  # what has no elements has no address
        if not rows:
            return
        rule = self.rules[kernel]
        arrays = sum(layout is not None for layout in rule.layouts)
        differ = any(row[arrays:-1] != rows[0][arrays:-1] for row in rows)
        form = rule.form(rows)
        most = most_rows(len(form.arguments), len(form.varying(differ)))
        for first in range(0, len(rows), most):
            self._launch(form, rows[first : first + most], differ)

    def _launch(self, form: RowForm, rows: Sequence[Sequence[int]], differ: bool) -> None:
        device = Device("cuda", self.backend.memory.device_at(rows[0][0]))
        room, varying, programs = rows_from(len(rows)), form.varying(differ), 0
        given = form.words(rows[0], [k for k in range(len(form.arguments)) if k not in varying])
        for row in rows:
            given += [programs, *form.words(row, varying)]
            programs += -(-row[-1] // form.tile)
        given += [programs, *[0] * len(varying)] * (room - len(rows))
        stream = self.backend.enter(device)
        made = self.backend.kernels(device).get(form.joined(room, differ))
        made.launch(stream, (programs, 1, 1), slots(*given))
