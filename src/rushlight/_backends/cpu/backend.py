"""The CPU as an instance of the protocol: the pool's memory, generated kernels, native plans."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rushlight._backends.cpu.cold_start import compile_ahead, expect
from rushlight._backends.cpu.compile import Executable, ProgramTemplate, build, compiled_symbolic, kernels_in
from rushlight._backends.cpu.elements import reader_of
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._backends.cpu.runtime import storage
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.stubs import bind
from rushlight._backends.protocol import Backend, BlockLaunch
from rushlight._base.lazy import LazyModule, require
from rushlight._graph.core import Graph
from rushlight._host.device_records import NativeDevice
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.shape_env import ShapeEnv

if TYPE_CHECKING:
    from rushlight._codegen.blocks import Kernel

ctypes: Any = LazyModule("ctypes")
records: Any = LazyModule("rushlight._backends.cpu.program.records")
blocks: Any = LazyModule("rushlight._backends.cpu.blocks")

__all__ = ["CpuBackend"]

# Of a routine: its module, its name there, and whether that is a table by key.
_ROUTINES = {
    "count_true": ("sort.selecting", "count_true", False),
    "list_true": ("sort.selecting", "list_true", False),
    "unravel": ("sort.selecting", "unravel", False),
    "compact": ("sort.selecting", "compactors", True),
    "mark_runs": ("sort.runs", "markers", True),
    "number_runs": ("sort.runs", "number_runs", False),
    "run_lengths": ("sort.runs", "run_lengths", False),
    "copy_rows": ("rows_native", "copy_rows", False),
}


class MultiTensor:
    """Optimizer steps over many parameters in one call; see `_backends.cpu.optim`."""

    def element_kernel(self, graph: Callable[[int], Graph], layouts: Sequence[Any], aliases: Mapping[int, int]) -> int:
        """The address of the one kernel of a graph over arrays of one dim and any size, whose outputs go where inputs
        are.
        """
        optimizers = require("rushlight._backends.cpu.optim.optimizers")
        address: int = optimizers.element_kernel(
            lambda size: compile_graph(graph(size), layouts, target=host(), aliases=aliases)
        )
        return address

    @cached_property
    def update_rows(self) -> Callable[..., Any]:
        """`f(constants, table, kernel, buffers of a row)`."""
        routine: Callable[..., Any] = require("rushlight._backends.cpu.optim.optimizers").update_rows()
        return routine

    @cached_property
    def count_steps(self) -> Callable[..., Any]:
        """`f(addresses of counters, address of the values, how many)`: adds one to each float32, and writes down what
        it is.
        """
        routine: Callable[..., Any] = require("rushlight._backends.cpu.optim.optimizers").counting()
        return routine

    def adafactor(self, dtype: DType) -> Callable[..., Any]:
        """`f(constants, table, numbers)`: Adafactor's step over rows of `adafactor_row` words."""
        kernel: Callable[..., Any] = require("rushlight._backends.cpu.optim.adafactor_native").adafactor_kernel(
            dtype.name
        )
        return kernel

    @property
    def adafactor_row(self) -> int:
        """Words of a row of Adafactor's table."""
        words: int = require("rushlight._backends.cpu.optim.adafactor_native").ROW
        return words


class CpuBackend(Backend):
    """The host itself."""

    type = "cpu"
    dlpack_type = 1
    host_readable = True
    native = True
    symbolic = True
    keeps_programs = True
    accelerator = False

    def __init__(self) -> None:
        self.multi_tensor = MultiTensor()
        self._routines: dict[tuple[str, Any], Callable[..., Any]] = {}
        # The runtime's own functions: memory is asked for in every call that makes a tensor.
        self._alloc, self._alloc_zeroed = storage.alloc, storage.alloc_zeroed
        compile_ahead()

    @property
    def target(self) -> Any:
        """This machine, as graphs are scheduled for it."""
        return host()

    @property
    def choices(self) -> str:
        """The ways of products and convolutions that were asked for, and how many threads there are."""
        gemm, winograd = require("rushlight._backends.cpu.gemm.blas"), require("rushlight._backends.cpu.conv.winograd")
        threads = require("rushlight._backends.cpu.runtime.threads").get_num_threads()
        return f"{gemm.GEMM.get()} {gemm.BLAS_LIBRARY.get()} {winograd.WINOGRAD.get()} {threads}"

    # ***** memory *****

    def allocate(self, nbytes: int, device: Device) -> Any:
        """A storage of the pool's memory."""
        return self._alloc(nbytes)

    def zeros(self, nbytes: int, device: Device) -> Any:
        """A storage of the pool's memory, zeroed."""
        return self._alloc_zeroed(nbytes)

    def allocator(self, device: Device) -> Callable[[int], Any]:
        """The runtime's own function."""
        alloc: Callable[[int], Any] = self._alloc
        return alloc

    def window(self, address: int, nbytes: int) -> memoryview:
        """The bytes at an address."""
        if not nbytes:
            return memoryview(bytearray())
        return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")

    def copy_in(self, address: int, source: int, nbytes: int) -> None:
        """A plain copy: the device's memory is the host's."""
        ctypes.memmove(address, source, nbytes)

    copy_out = copy_in

    def copy(self, address: int, source: int, nbytes: int, device: Device) -> None:
        """A plain copy."""
        ctypes.memmove(address, source, nbytes)

    # ***** programs *****

    def block_kernel(self, kernel: Kernel, device: Device) -> BlockLaunch:
        """Vector code that the thread pool runs; `launch` returns when it is done."""
        return blocks.compile_block(kernel)

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
        """Scheduled, generated, and compiled where the kernels are not known yet; a graph with borders as a linked
        program.
        """
        if any(node.prim.name == "border" for node in graph.nodes):
            linking = require("rushlight._backends.cpu.program.linking")
            linked = linking.linked_program(
                graph, in_layouts, out_layouts, target=host(), aliases=aliases, options=options
            )
            made: Executable = require("rushlight._backends.cpu.program.linked").LinkedExecutable(linked)
            return made
        return build(compile_graph(graph, in_layouts, out_layouts, target=host(), aliases=aliases, overlaps=overlaps))

    @property
    def ahead(self) -> Any:
        """Shared libraries for x86-64."""
        return require("rushlight._backends.cpu.ahead.library")

    def expect(self, graph: Graph) -> None:
        """Workers compile routines while the rest of a program is recorded."""
        expect(graph)

    def template(
        self,
        graph: Graph,
        in_layouts: Sequence[Any],
        out_layouts: Sequence[Any],
        shape_env: ShapeEnv,
        aliases: Mapping[int, int] | None = None,
        overlaps: Mapping[int, Sequence[int]] | None = None,
    ) -> ProgramTemplate:
        """The same with symbolic sizes."""
        program = compile_graph(graph, in_layouts, out_layouts, target=host(), aliases=aliases, overlaps=overlaps)
        return ProgramTemplate(program, shape_env)

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
        """A linked program with formulas in the places of numbers; its kernels are compiled."""
        linking = require("rushlight._backends.cpu.program.linking")
        linked = linking.linked_program(
            graph, in_layouts, out_layouts, target=host(), aliases=aliases, options=options, symbolic=True
        )
        wiring = _wiring().wired(linked)
        for part in wiring.parts:
            for step in kernels_in(part.program.steps):
                compiled_symbolic(step, shape_env)
        return _wiring().packed_wiring(wiring, texts)

    def packed(self, program: Any, texts: bool = False) -> Any:
        """See `program.records`; a template is packed once."""
        if hasattr(program, "wiring"):
            return _wiring().packed_wiring(program.wiring, texts, len(program.division.ends))
        if isinstance(program, ProgramTemplate):
            source, program.source = program.source, None
        else:
            source = program.program
        return records.packed_program(source, texts)

    def packed_text(self, data: Any, names: bool = True) -> str:
        """The steps, with the numbers of the call in the texts of kernels."""
        text: str = _wiring().wiring_text(data, names) if type(data) is dict else records.literal(data)
        return text

    def unpacked(self, data: Any, tensors: int, numbers: int, results_bytes: Sequence[int]) -> Executable | None:
        """An executable of kernels that are at hand."""
        made: Executable | None = records.unpacked_program(data, tensors, numbers, results_bytes)
        return made

    def unpacked_linked(
        self,
        data: Any,
        in_specs: Sequence[Any],
        results_bytes: Sequence[int | None],
        compile_now: Callable[[], Any],
        roomy: Collection[int] = (),
    ) -> Any:
        """A linked program of kernels that are at hand; its parts may be unpacked already.  Clusters `roomy` get memory
        for other sizes, too.
        """
        found = _wiring().unpacked_wiring(data, in_specs, results_bytes)
        kind = require("rushlight._backends.cpu.program.linked").LinkedExecutable
        return None if found is None else kind.kept(found, lambda: compile_now().linked, roomy)

    def linked_for_sizes(self, executable: Any, varying: Mapping[int, int]) -> Any:
        """A `Template` of a linked program whose clusters `varying` (with the number of the part of each) depend on sizes;
        None where it can be none.
        """
        template = require("rushlight._backends.cpu.program.refilled").Template
        return template(executable, varying) if template.serves(executable) else None

    def unpacked_wiring(self, data: Any, in_specs: Sequence[Any], results_bytes: Sequence[int | None]) -> Any:
        """How a linked program is wired; None where a kernel is no longer kept."""
        return _wiring().unpacked_wiring(data, in_specs, results_bytes)

    def unpacked_part(self, row: Any) -> Any:
        """The program of some clusters of a linked program, which several linked programs may share."""
        return _wiring().unpacked_part(row)

    def steps(self, graph: Graph, in_layouts: Sequence[Any], out_layouts: Sequence[Any]) -> int:
        """Kernels and library calls after fusion."""
        return len(compile_graph(graph, in_layouts, out_layouts, target=host()).steps)

    # ***** native plans *****

    @property
    def native_device(self) -> NativeDevice:
        """The runtime's functions."""
        return runtime().device

    # ***** elements *****

    def reader(self, dtype: DType) -> Callable[[int], Any]:
        """A native function where there is one for the dtype."""
        return reader_of(dtype)

    def routine(self, name: str, key: Any = None) -> Callable[..., Any]:
        """Native, on all threads where the work is large."""
        found = self._routines.get((name, key))
        if found is None:
            if name not in _ROUTINES:
                raise self._missing(f"routine '{name}'")
            page, symbol, by_key = _ROUTINES[name]
            function = getattr(require(f"rushlight._backends.cpu.{page}"), symbol)
            found = self._routines[name, key] = bind(function[key] if by_key else function, nogil=name != "copy_rows")
        return found

    @cached_property
    def selection_piece(self) -> int:
        """See `Backend.selection_piece`."""
        piece: int = require("rushlight._backends.cpu.sort.selecting").PIECE
        return piece

    # ***** random numbers *****

    def random_kernel(self, name: str, kind: str) -> Callable[..., Any]:
        """A kernel of `_backends.cpu.random`."""
        kernel: Callable[..., Any] = require("rushlight._backends.cpu.random.random").kernel(name, kind)
        return kernel

    def stream_entry(self) -> int:
        """The address of the compiled Mersenne twister."""
        address: int = require("rushlight._backends.cpu.random.random").take_address()
        return address

    # ***** statistics *****

    def properties(self, device: Device) -> Mapping[str, Any]:
        """The processor's name, cores, caches and vector width."""
        machine = require("rushlight._native.target").host_target()
        return {
            "name": machine.model,
            "total_memory": machine.memory_bytes,
            "cores": machine.cores,
            "vector_bytes": machine.vector_bytes,
            "platform": sys.platform,
        }

    def memory_stats(self, device: Device) -> Mapping[str, int]:
        """The pool's."""
        return storage.memory_stats()

    def empty_cache(self, device: Device) -> None:
        """Give the pool's freed blocks back."""
        storage.empty_cache()


def _wiring() -> Any:
    return require("rushlight._backends.cpu.program.wiring")
