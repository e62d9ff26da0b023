"""A program's launches as tables that native code reads: what is constant is filled in once, a call changes addresses
and numbers.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._backends.cuda.kernels import CompiledKernel
from rushlight._backends.cuda.native.records import (
    AS_DOUBLE,
    AS_INTEGER,
    AS_IS,
    AS_SINGLE,
    CALL,
    INTEGER_AS_SINGLE,
    LAUNCHED,
    PROGRAM,
)
from rushlight._backends.cuda.native.tensor_maps import KeptMaps, depend_on_addresses_alone
from rushlight._backends.cuda.program.steps import LibraryFunction
from rushlight._host.plans.plan_records import list_place, packed

if TYPE_CHECKING:
    from rushlight._backends.cuda.program.executable import CudaExecutable, Prepared
    from rushlight._types.dtype import DType

__all__ = ["NativeProgram", "laid_out"]


_MOST_ARGUMENTS = 16  # of a library's function
LAUNCHED_FIELDS = list(LAUNCHED.by_name)


class LaunchGraph:
    """The launches of an executable as one CUDA graph, one behind the other; their parameters come with each call."""

    def __init__(self, executable: CudaExecutable) -> None:
        driver = self.driver = executable.backend.driver
        self.devices = executable.backend.devices
        self.devices.enter(executable.device.index or 0)
        self.executable, self.nodes = 0, list[int]()
        graph = driver.cuGraphCreate()
        try:
            for step in executable.prepared:
                kernel: Any = step.kernel
                maps = 0 if kernel.maps is None else len(kernel.maps.maps)
                words = (ctypes.c_int64 * (len(step.words) + 16 * maps))(*step.words)
                behind = self.nodes[-1:]
                made = driver.cuGraphAddKernelNode(
                    graph, behind, kernel.function, step.grid, kernel.threads, kernel.shared, words, maps
                )
                self.nodes.append(made)
            self.executable = driver.cuGraphInstantiate(graph)
        finally:
            driver.cuGraphDestroy(graph)

    def __del__(self) -> None:
        if self.executable and not self.devices.forked and not sys.is_finalizing():
            with suppress(CudaError):  # of a device that failed
                self.devices.enter_any()
                self.driver.cuGraphExecDestroy(self.executable)


class NativeProgram:
    """An executable's tables: `address` of the program, `constants` of its launch (see `_host.device_records.LAUNCH`),
    and `call`, which takes addresses and numbers.
    """

    def __init__(self, executable: CudaExecutable, dtypes: Sequence[DType]) -> None:
        self.executable, self.dtypes = executable, list(dtypes)
        plans = executable.plans
        self.made = [*executable.sizes, *([executable.arena_bytes] if executable.arena_bytes else [])]
        self.n_inputs = len(executable.program.inputs) + executable.program.numbers
        self._keep: list[Any] = []
        self.graph: LaunchGraph | None = None
        rows = [self._row(step) for step in executable.prepared]
        if executable.as_graph and len(rows) > 1 and all(step.call is None for step in executable.prepared):
            self.graph = LaunchGraph(executable)
            for row, node in zip(rows, self.graph.nodes, strict=True):
                row[LAUNCHED_FIELDS.index("node")] = node
        values = {
            "name": executable.name, "run": self._run, "n_launches": len(rows), "launches": rows,
            "executable": 0 if self.graph is None else self.graph.executable,
        }  # fmt: skip
        self._table, objects = packed(PROGRAM, values)
        self._keep.append(objects)
        self._constants = array("q", [1, 0, len(self.made), *self.made])
        self.address, self.constants = self._table.buffer_info()[0], self._constants.buffer_info()[0]
        call, objects = packed(
            CALL,
            {
                "program": self.address, "constants": self.constants, "n_words": self.n_inputs,
                "n_results": len(executable.sizes), "owner": plans.native.owner,
            },
        )  # fmt: skip
        self._keep += [call, objects]
        name = executable.name.encode()
        self.call = plans.unit.make_callable(call.buffer_info()[0], name, self, self.n_inputs, plans.unit.stub)

    def _buffer(self, number: int) -> int:
        """Which of the addresses of a native call is the one with this number in `CudaExecutable`'s table."""
        if number < self.n_inputs:
            return len(self.made) + number
        return number - self.n_inputs

    def _row(self, step: Prepared) -> list[Any]:
        """The values of a record LAUNCHED."""
        if step.call is not None:
            return self._library_row(step)
        kernel = step.kernel
        assert isinstance(kernel, CompiledKernel)
        words = type(step.words).from_buffer_copy(step.words)
        first, addresses, numbers = ctypes.addressof(words), [], []
        constants = self.n_inputs + len(self.executable.sizes) + 1
        for slot, number, offset, by in step.address_slots:
            if number >= constants:
                words[slot] = self.executable.constant_addresses[number - constants] + offset
            else:
                addresses.append((slot, self._buffer(number), offset, by - 1))
        for slot, place, element in step.number_slots:
            numbers.append((slot, self._buffer(place), self._form(place, element)))
        maps = KeptMaps(kernel.maps.maps if kernel.maps is not None else (), words)
        pointers = array("q", [*[first + 8 * k for k in range(len(words))], *maps.addresses] or [0])
        self._keep += [words, pointers, maps]
        return [
            kernel.function, -1, *step.grid, kernel.threads[0], kernel.shared, first, pointers.buffer_info()[0],
            len(addresses), addresses, len(numbers), numbers, 0, 0, 0, len(words), len(maps.rows), maps.rows, 0, 0,
        ]  # fmt: skip

    def _library_row(self, step: Prepared) -> list[Any]:
        """The values of a record LAUNCHED, for a function of a library."""
        self.executable.backend.enter(self.executable.device)  # a library's handle is that of the current device
        function: LibraryFunction = step.call.native  # type: ignore[union-attr]
        words = (ctypes.c_int64 * _MOST_ARGUMENTS)(*function.words)
        constants, addresses = self.n_inputs + len(self.executable.sizes) + 1, list[Any]()
        for slot, number, offset, _ in step.address_slots:
            for word in function.places[slot]:
                if number >= constants:
                    words[word] = self.executable.constant_addresses[number - constants] + offset
                else:
                    addresses.append((word, self._buffer(number), offset, function.alignment - 1))
        self._keep += [words, function, step.call]
        first = ctypes.addressof(words)
        return [
            function.address, function.stream, 0, 0, 0, 0, 0, first, 0, len(addresses), addresses, 0, [], 0, 0, 0, 0, 0, [], 0, 0,
        ]  # fmt: skip

    def _form(self, place: int, element: Any) -> int:
        """How a number of a call becomes a parameter."""
        given = self.dtypes[place - len(self.executable.program.inputs)]
        if given.kind == "f":
            return AS_INTEGER if element.kind != "f" else AS_SINGLE if element.itemsize == 4 else AS_IS
        return AS_IS if element.kind != "f" else INTEGER_AS_SINGLE if element.itemsize == 4 else AS_DOUBLE

    def _run(self, address: int, first: int) -> None:
        """The launches from one on, by Python; a kernel for addresses that are not aligned is known natively afterwards."""
        bufs = (ctypes.c_int64 * (len(self.made) + self.n_inputs)).from_address(address)
        floats = (ctypes.c_double * len(bufs)).from_address(address)
        inputs, made = len(self.executable.program.inputs), len(self.made)
        numbers = [
            floats[made + inputs + k] if dtype.kind == "f" else bufs[made + inputs + k]
            for k, dtype in enumerate(self.dtypes)
        ]
        table = [*bufs[made : made + inputs], *numbers, *bufs[: len(self.executable.sizes)]]
        table.append(bufs[made - 1] if self.executable.arena_bytes else 0)
        self.executable.start([*table, *self.executable.constant_addresses], first)
        self._tell_others()

    def _tell_others(self) -> None:
        """Native code learns the kernels that are for addresses which are not aligned."""
        at = list_place(self._table, PROGRAM.launches.place)
        for k, step in enumerate(self.executable.prepared):
            if isinstance(step.other, CompiledKernel) and step.kernel.maps is None and step.other.maps is None:  # type: ignore[union-attr]
                row = at + k * len(LAUNCHED)
                self._table[row + LAUNCHED.other_threads.place] = step.other.threads[0]
                self._table[row + LAUNCHED.other_shared.place] = step.other.shared
                self._table[row + LAUNCHED.other.place] = step.other.function


def _is_native(step: Prepared) -> bool:
    """Whether native code gives a step to a stream."""
    if step.call is not None:
        return getattr(step.call, "native", None) is not None and not step.number_slots
    return isinstance(step.kernel, CompiledKernel) and depend_on_addresses_alone(step)


def laid_out(executable: CudaExecutable) -> NativeProgram | None:
    """The tables of an executable; None for one with calls of the host that are no calls of a library, or with kernels that
    take tensor maps of sizes which each call tells, and where kernels are interpreted.
    """
    steps = executable.prepared
    if not executable.plans.can_launch or not steps or len(executable.sizes) > 60:
        return None
    if not all(_is_native(step) for step in steps):
        return None
    if any(by & (by - 1) for step in steps for _, _, _, by in step.address_slots):
        return None
    dtypes: list[DType] = []
    for value in executable.program.graph.inputs:
        if value.weak:
            dtypes += [value.dtype.to_real()] * 2 if value.dtype.is_complex else [value.dtype]
    return NativeProgram(executable, dtypes) if len(dtypes) == executable.program.numbers else None
