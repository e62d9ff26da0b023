"""Who computes a product on a card: our kernels, or cuBLASLt where it is installed, was measured to be faster, and agrees.

A choice is made once for a product, a device and a library, and kept on disk.  Emulated devices never ask.  Where pointwise work
behind a product is part of our kernel, the library's product is followed by a kernel that does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.arguments import dense_operand, span
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.precision import float32_precision
from rushlight._backends.cuda.gemm.product import Epilogue, store_result
from rushlight._backends.cuda.gemm.splits import sum_of_parts
from rushlight._backends.cuda.immediate import Immediate, Placed
from rushlight._backends.cuda.libraries.cublaslt import WHEEL, WORKSPACE, LtProduct, cublaslt, fits
from rushlight._backends.cuda.libraries.provider import cuda_backend, is_usable, measured_once, provider_knob
from rushlight._backends.cuda.program.steps import Call, Launch, Memory, Operand, Step
from rushlight._backends.cuda.random.fill import fill_launch
from rushlight._backends.cuda.random.philox import Stream
from rushlight._backends.precision import DETERMINISTIC
from rushlight._base.lazy import numpy as np
from rushlight._types.device import Device
from rushlight._types.dtype import UINT8, DType
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend

__all__ = ["COMPARED", "SMALL", "Trial", "chosen", "chosen_with_epilogue"]


WHO = provider_knob("RUSHLIGHT_CUDA_GEMM", "computes matrix products", WHEEL.title, auto=", kept in the cache")

SMALL = 1 << 24  # multiplications, below which nothing is measured
_TURNS = 10
_AGREES = {"float32": 1e-4, "float64": 1e-10, "float16": 1e-2, "bfloat16": 5e-2}
COMPARED = frozenset(_AGREES)
_EIGHT_AGREE = 2e-2  # tensor cores add products of float8 up in fewer bits than float32 has


def chosen(call: ExternCall, a: Operand, b: Operand, out: Operand, sums: str, ours: Sequence[Step]) -> list[Step]:
    """Our steps, or the library's."""
    if not asks_library(a, b, out, sums):
        return list(ours)
    theirs = _library_step(call, a, b, out, sums)
    return [theirs] if _is_faster(a, b, out, sums, ours, [theirs]) else list(ours)


def chosen_with_epilogue(
    call: ExternCall,
    a: Operand,
    b: Operand,
    shape: Sequence[int],
    sums: DType,
    epilogue: Epilogue,
    ours: Sequence[Step],
    alone: Callable[[Operand], Sequence[Step]],
) -> list[Step]:
    """The same where an epilogue reads the sums: behind the library's product it is a kernel of its own.

    Our fused kernel is measured as `alone(out)`, our product without an epilogue.
    """
    out = dense_operand(Memory(numel(shape) * sums.itemsize), sums, shape)
    if not asks_library(a, b, out, sums.name):
        return list(ours)
    out = dense_operand(call.scratch(out.memory.nbytes, "sums"), sums, shape)
    product = _library_step(call, a, b, out, sums.name)
    theirs: list[Step] = [product, sum_of_parts(out.memory, sums, 1, tuple(shape), epilogue)]
    tried = dense_operand(Memory(out.memory.nbytes), sums, shape)
    passed = sum_of_parts(out.memory, sums, 1, tuple(shape), store_result(tried))
    return theirs if _is_faster(a, b, out, sums.name, alone(out), [product, passed]) else list(ours)


def asks_library(a: Operand, b: Operand, out: Operand, sums: str) -> bool:
    """Whether the library may compute a product here; MissingExtraError where it must and is not installed.

    Programs that ask for determinism get our kernels alone.
    """
    who, work = "ours" if DETERMINISTIC[0] else WHO.get(), numel(out.shape) * a.shape[-1]
    if who == "ours" or (who == "auto" and work < SMALL) or not fits(a, b, out, sums) or out.dtype.name not in _AGREES:
        return False
    return is_usable(WHO, WHEEL)


def _is_faster(a: Operand, b: Operand, out: Operand, sums: str, ours: Sequence[Step], theirs: Sequence[Step]) -> bool:
    """Whether the library is to be taken, for it was asked for, or by a measurement; from disk where that is known."""
    if WHO.get() == "library":
        return True
    backend = cuda_backend()
    shapes = [f"{x.dtype.name}{x.shape}{x.strides}" for x in (a, b, out)]
    words = [WHEEL.path() or "", sums, float32_precision(), str(len(theirs)), *shapes]
    measure = lambda device: Trial(backend, device, (a, b, out)).winner(ours, theirs)
    return measured_once(backend, "cuda gemm", words, measure) == b"library"


def _library_step(call: ExternCall, a: Operand, b: Operand, out: Operand, sums: str) -> Call:
    library = cublaslt()
    assert library is not None
    product = LtProduct(library, a, b, out, sums, tf32=float32_precision() == "tf32")
    return Call("cuBLASLt", product, [a, b, out, call.scratch(WORKSPACE, "workspace")])


class Trial:
    """Several ways on random operands."""

    def __init__(self, backend: CudaBackend, device: Device, operands: tuple[Operand, Operand, Operand]) -> None:
        self.now, self.backend, self.device, self.operands = Immediate(backend, device), backend, device, operands
        self.held: dict[Memory, tuple[Any, Placed]] = {}
        for x in operands:
            self.held[x.memory] = self.now.allocate((x.offset + span(x)) * x.dtype.itemsize)
        for x in operands[:2]:
            count, memory = x.offset + span(x), self.held[x.memory][1]
            self.now.run([_numbers_for(x.dtype, memory, count)])

    def _placed(self, step: Step) -> Launch:
        assert isinstance(step, Launch)

        def at(x: Any) -> Any:
            memory = x.memory if isinstance(x, Operand) else x
            if memory not in self.held:
                if not isinstance(memory, Memory):
                    return x
                self.held[memory] = self.now.allocate(memory.nbytes)
            placed = self.held[memory][1]
            return Operand(placed, x.dtype, x.shape, x.strides, x.offset) if isinstance(x, Operand) else placed

        return Launch(step.kernel, step.grid, [at(x) for x in step.arguments])

    def fastest(self, ways: Sequence[Sequence[Step]]) -> int:
        """The number of the way that takes least time, of those with the bits of the first."""
        placed = [[self._placed(step) for step in way] for way in ways]
        results = [self._timed(partial(self.now.run, way)) for way in placed]
        agree = [k for k, (numbers, _) in enumerate(results) if np.array_equal(numbers, results[0][0], equal_nan=True)]
        return min(agree or [0], key=lambda k: results[k][1])

    def winner(self, ours: Sequence[Step], theirs: Sequence[Step]) -> bytes:
        """`library` where it is faster and agrees."""
        mine_placed = [self._placed(step) for step in ours]
        called, *rest = theirs
        behind = [self._placed(step) for step in rest]
        _, workspace = self.held["workspace"] = self.now.allocate(WORKSPACE)  # type: ignore[index]
        addresses = [self.held[x.memory][1].address + x.offset * x.dtype.itemsize for x in self.operands]

        def library() -> None:
            assert isinstance(called, Call)
            called.function(self.backend.enter(self.device), *addresses, workspace.address)
            self.now.run(behind)

        mine, mine_ms = self._timed(lambda: self.now.run(mine_placed))
        other, other_ms = self._timed(library)
        eight = self.operands[0].dtype.kind == "f" and self.operands[0].dtype.itemsize == 1
        share = _EIGHT_AGREE if eight else _AGREES[self.operands[2].dtype.name]
        bound = share * max(float(np.abs(mine).max()), 1e-30)
        agrees = bool(np.abs(mine - other).max() <= bound)
        return b"library" if agrees and other_ms < mine_ms else b"ours"

    def _timed(self, run: Any) -> tuple[Any, float]:
        """The numbers that it makes, and milliseconds."""
        out = self.operands[2]
        # Other numbers first: what writes nothing must not agree with the one before.
        self.now.run([_numbers_for(out.dtype, self.held[out.memory][1], out.offset + span(out))])
        run()
        begin, end = (self.backend.event(self.device, timing=True) for _ in range(2))
        stream = self.backend.current_stream(self.device)
        begin.record(stream)
        for _ in range(_TURNS):
            run()
        end.record(stream)
        end.synchronize()
        nbytes = (out.offset + span(out)) * out.dtype.itemsize
        raw = np.frombuffer(self.now.read(self.held[out.memory][1], nbytes), np.uint8)
        if out.dtype.name == "bfloat16":
            values = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.view(out.dtype.name)
        return values[out.offset :].astype(np.float64), begin.elapsed(end) / _TURNS


def _numbers_for(dtype: DType, memory: Placed, count: int) -> Launch:
    """Random numbers to compare results by; of float8 bytes that are from 1/8 to 7 in either format."""
    if dtype.itemsize == 1 and dtype.kind == "f":
        return fill_launch("integers", UINT8, memory, count, Stream(1, 0), (0x18, 0x30)).launch
    return fill_launch("uniform", dtype, memory, count, Stream(1, 0), (-1.0, 1.0)).launch
