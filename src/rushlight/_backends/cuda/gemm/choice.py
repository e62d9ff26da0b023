"""Who computes a product on a card: our kernels, or cuBLASLt where it is installed, was measured to be faster, and agrees.

A choice is made once for a product, a device and a library, and kept on disk.  Emulated devices never ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.arguments import span
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.precision import float32_precision
from rushlight._backends.cuda.immediate import Immediate, Placed
from rushlight._backends.cuda.libraries.cublaslt import WORKSPACE, LtProduct, cublaslt, find_library, fits
from rushlight._backends.cuda.program.steps import Call, Launch, Memory, Operand, Step
from rushlight._backends.cuda.random.fill import fill_launch
from rushlight._backends.cuda.random.philox import Stream
from rushlight._backends.registry import backend_of
from rushlight._base.knobs import Knob
from rushlight._base.lazy import numpy as np
from rushlight._native.cache import default_cache
from rushlight._types.device import Device
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend

__all__ = ["chosen"]


def _who(text: str) -> str:
    if text not in ("auto", "ours", "library"):
        raise ValueError("expected auto, ours or library")
    return text


WHO: Knob[str] = Knob(
    "cuda_gemm", env="RUSHLIGHT_CUDA_GEMM", kind=_who, default="auto",
    doc="Who computes matrix products on GPUs: `ours`, `library` (cuBLASLt), or `auto`: whoever was measured to be faster, kept in the cache.",
)  # fmt: skip

_SMALL = 1 << 24  # multiplications, below which nothing is measured
_TURNS = 10
_AGREES = {"float32": 1e-4, "float64": 1e-10, "float16": 1e-2, "bfloat16": 5e-2}


def chosen(call: ExternCall, a: Operand, b: Operand, out: Operand, sums: str, ours: Sequence[Step]) -> list[Step]:
    """Our steps, or the library's."""
    who, work = WHO.get(), numel(out.shape) * a.shape[-1]
    eight = a.dtype.kind == "f" and a.dtype.itemsize == 1  # random bytes are no numbers to compare results by
    if (
        who == "ours"
        or (who == "auto" and (work < _SMALL or eight))
        or not fits(a, b, out, sums)
        or out.dtype.name not in _AGREES
    ):
        return list(ours)
    path = find_library()
    if path is None:
        if who == "library":
            raise RuntimeError(
                "RUSHLIGHT_CUDA_GEMM=library, and cuBLASLt is not installed: `pip install nvidia-cublas-cu12`"
            )
        return list(ours)
    backend: Any = backend_of(Device("cuda", 0))
    if backend.driver.emulated:
        return list(ours)
    theirs = _library_step(call, a, b, out, sums)
    if who == "library" or _measured(backend, path, a, b, out, sums, ours, theirs) == b"library":
        return [theirs]
    return list(ours)


def _library_step(call: ExternCall, a: Operand, b: Operand, out: Operand, sums: str) -> Call:
    library = cublaslt()
    assert library is not None
    product = LtProduct(library, a, b, out, sums, tf32=float32_precision() == "tf32")
    return Call("cuBLASLt", product, [a, b, out, call.scratch(WORKSPACE, "workspace")])


def _measured(
    backend: CudaBackend, path: str, a: Operand, b: Operand, out: Operand, sums: str, ours: Sequence[Step], theirs: Call
) -> bytes:
    """Which is faster; from disk where it is known."""
    device = Device("cuda", backend.current_device())
    name = str(backend.properties(device).get("name", ""))
    shapes = [f"{x.dtype.name}{x.shape}{x.strides}" for x in (a, b, out)]
    cache = default_cache()
    key = cache.key("cuda gemm", name, path, sums, float32_precision(), *shapes)
    found = cache.get(key)
    if found is None:
        found = _Trial(backend, device, (a, b, out), ours, theirs).winner()
        cache.put(key, found)
    return found


class _Trial:
    """Both ways on random operands."""

    def __init__(
        self,
        backend: CudaBackend,
        device: Device,
        operands: tuple[Operand, Operand, Operand],
        ours: Sequence[Step],
        theirs: Call,
    ) -> None:
        self.now, self.backend, self.device, self.operands = Immediate(backend, device), backend, device, operands
        self.held: dict[Memory, tuple[Any, Placed]] = {}
        for x in operands:
            self.held[x.memory] = self.now.allocate((x.offset + span(x)) * x.dtype.itemsize)
        for x in operands[:2]:
            count, memory = x.offset + span(x), self.held[x.memory][1]
            self.now.run([fill_launch("uniform", x.dtype, memory, count, Stream(1, 0), (-1.0, 1.0)).launch])
        self.ours = [self._placed(step) for step in ours]
        _, self.workspace = self.held["workspace"] = self.now.allocate(WORKSPACE)  # type: ignore[index]
        self.theirs = theirs

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

    def winner(self) -> bytes:
        """`library` where it is faster and agrees."""
        addresses = [self.held[x.memory][1].address + x.offset * x.dtype.itemsize for x in self.operands]
        library = lambda: self.theirs.function(self.backend.enter(self.device), *addresses, self.workspace.address)
        mine, mine_ms = self._timed(lambda: self.now.run(self.ours))
        other, other_ms = self._timed(library)
        bound = _AGREES[self.operands[2].dtype.name] * max(float(np.abs(mine).max()), 1e-30)
        agrees = bool(np.abs(mine - other).max() <= bound)
        return b"library" if agrees and other_ms < mine_ms else b"ours"

    def _timed(self, run: Any) -> tuple[Any, float]:
        """The numbers that it makes, and milliseconds."""
        out = self.operands[2]
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
