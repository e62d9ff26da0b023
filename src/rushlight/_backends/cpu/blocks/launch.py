"""Block kernels made callable on the CPU.

>>> import numpy as np
>>> from rushlight._backends.cpu.blocks import compile_block
>>> from rushlight._codegen.blocks import BlockBuilder, Pointer, Tile
>>> from rushlight._types.dtype import FLOAT32
>>> b = BlockBuilder("double", [Tile(Pointer(FLOAT32))])
>>> at = b.offset(b.splat(b.params[0], (16,)), b.arange(0, 16))
>>> x = b.load(at)
>>> b.store(at, b.pointwise("add", x, x))
>>> data = np.arange(16, dtype=np.float32)
>>> compile_block(b.finish()).launch((1,), [data.ctypes.data])
>>> data[:4]
array([0., 2., 4., 6.], dtype=float32)
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cpu.gemm.choice import amx_works
from rushlight._backends.cpu.kernels import OPT, generator_digest, host
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.threads import get_num_threads
from rushlight._base.digest import hasher
from rushlight._base.knobs import Knob
from rushlight._base.lazy import LazyModule
from rushlight._codegen.blocks import BlockFault, Kernel, Pointer, Value, kernel_text
from rushlight._codegen.blocks.ir import Line
from rushlight._codegen.blocks.passes import with_equal_pointers
from rushlight._codegen.blocks.vectors import BOUNDS, MEMORY, REPORT, Machine, VectorText, vector_text
from rushlight._codegen.blocks.vectors.plan import written_pointers
from rushlight._native import jit
from rushlight._native.objectcode import obtain
from rushlight._types.dtype import BFLOAT16, INT8

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

__all__ = ["CHECK_BOUNDS", "BlockLaunch", "compile_block"]

CHECK_BOUNDS: Knob[bool] = Knob(
    "check_bounds",
    env="RUSHLIGHT_CHECK_BOUNDS",
    kind=bool,
    default=False,
    doc="1: block kernels and Triton programs on the CPU check every access against the memory of their arguments, and name the line.",
)

_PIECES = 16  # for each thread, so that one that lost its core delays nobody
_WORDS = len(REPORT)
_PARAMS = _WORDS + 5  # behind the report and the words of a piece
_LAUNCHES: dict[tuple[str, bool, Machine, tuple[Line | None, ...]], BlockLaunch] = {}

# The piece of a launch: words are total, programs in a piece, the grid in two, the report.
_PIECE = """
define i32 @{name}.piece(ptr %params, ptr %words, i64 %piece) nounwind {{
  %total = load i64, ptr %words, align 8
  %each.p = getelementptr i64, ptr %words, i64 1
  %each = load i64, ptr %each.p, align 8
  %grid = getelementptr i64, ptr %words, i64 2
  %report.p = getelementptr i64, ptr %words, i64 4
  %report = load ptr, ptr %report.p, align 8
  %first = mul i64 %piece, %each
  %end = add i64 %first, %each
  %last = call i64 @llvm.smin.i64(i64 %end, i64 %total)
  %status = call i32 @{name}(ptr %params, i64 %first, i64 %last, ptr %grid, ptr %report)
  ret i32 %status
}}
"""


def compile_block(kernel: Kernel, *, checked: bool | None = None, machine: Machine | None = None) -> BlockLaunch:
    """The kernel for this machine: known in this process, found on disk, or compiled now.

    `checked` (by default the knob `check_bounds`) makes every access be held against the ranges of memory that
    `launch` is given.  `machine`: make code for a lesser one than this.  NotImplementedError that names an operation
    which has no form in vectors.
    """
    checked = CHECK_BOUNDS.get() if checked is None else checked
    machine = this_machine(kernel) if machine is None else machine
    text = kernel_text(kernel)
    key = text, checked, machine, _lines(kernel, checked)
    found = _LAUNCHES.get(key)
    if found is None:
        found = _LAUNCHES[key] = BlockLaunch(kernel, text, checked, machine)
    return found


def _lines(kernel: Kernel, checked: bool) -> tuple[Line | None, ...]:
    """The lines that faults may name: kernels of equal text can come from different places."""
    return tuple(op.line for op in kernel.body.walk() if checked or op.kind == "assert")


def this_machine(kernel: Kernel) -> Machine:
    """The machine that a kernel is compiled for; matrix tiles are asked for where it has products that take them."""
    target = host()
    dtypes = {op.operands[0].type.element for op in kernel.body.walk() if op.kind == "dot"}
    tiles = [dtype in dtypes and amx_works(kind) for dtype, kind in ((BFLOAT16, "amx_bf16"), (INT8, "amx_i8"))]
    return Machine(target.vector_bytes, target.fma, *tiles)


class BlockLaunch:
    """A compiled kernel."""

    def __init__(self, kernel: Kernel, text: str, checked: bool, machine: Machine) -> None:
        self.kernel, self.checked, self.machine = kernel, checked, machine
        self.name = f"rl_block_{hasher(text.encode()).hexdigest()[:16]}"
        data = obtain(OPT, self.llvm, "block", generator_digest(), _PIECE, text, repr((machine, checked)))
        self._loaded = jit.load(data, [f"{self.name}.piece"], runtime().symbols)
        self._piece = self._loaded[f"{self.name}.piece"]
        self._run = runtime().plain(
            "rl_parallel_for", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, result=ctypes.c_int32
        )
        self._packers = [_packer(p) for p in kernel.params]
        used = {v for op in kernel.body.walk() for v in op.operands}
        pointers = [p for p in kernel.params if isinstance(p.type.element, Pointer) and p in used]
        written = written_pointers(kernel)
        self._pointers = [kernel.params.index(p) for p in pointers] if written else []
        self._written = {i for i in self._pointers if kernel.params[i] in written}
        self._variants: dict[tuple[tuple[int, int], ...], BlockLaunch] = {}
        self._packed = _layout(kernel.params)
        self._divisible = list(kernel.divisible.items())

    def emitted(self) -> VectorText:
        """The text, made anew."""
        return vector_text(self.kernel, self.machine, checked=self.checked, name=self.name)

    def llvm(self) -> str:
        """The module: the kernel, and what runs a piece of a launch."""
        text = self.emitted().text
        if "@llvm.smin.i64" not in text:
            text = f"declare i64 @llvm.smin.i64(i64, i64)\n{text}"
        return text + _PIECE.format(name=self.name)

    def texts(self) -> dict[str, str]:
        """The LLVM text, made anew."""
        return {"llir": self.llvm()}

    def report(self) -> str:
        """The LLVM text."""
        return self.llvm()

    def launch(self, grid: Sequence[int], arguments: Sequence[Any], ranges: Sequence[tuple[int, int]] = ()) -> None:
        """Run the programs of a grid of one to three numbers, on all threads.

        Arguments are addresses for pointers, and numbers.  `ranges` are the (first, end) addresses of memory that
        checked kernels may access.  BlockFault, with the line of the program's source, for a failed assertion or an
        access outside of the ranges; ValueError for arguments that are no multiples of what the kernel counts on.
        """
        x, y, z = (*grid, 1, 1)[:3]
        total = x * y * z
        if total <= 0:
            return
        if len(arguments) != len(self._packers):
            raise TypeError(f"{self.kernel.name} takes {len(self._packers)} arguments, got {len(arguments)}")
        for i, n in self._divisible:
            if arguments[i] % n:
                raise ValueError(f"argument {i} of {self.kernel.name} is {arguments[i]}, which {n} does not divide")
        if len({arguments[i] for i in self._pointers}) < len(self._pointers):
            same = self._with_equal(arguments)
            if same is not self:
                same.launch(grid, arguments, ranges)
                return
        each = max(1, -(-total // (get_num_threads() * _PIECES))) if total > 1 else 1
        # One array: the report, the words of a piece, the parameters, the ranges behind the report of a checked kernel.
        if self._packed is not None and not ranges:
            held, first = array("q", self._packed.pack(total, each, x | y << 32, z, *arguments)), 0
        else:
            params = [pack(a) for pack, a in zip(self._packers, arguments, strict=True)]
            held = array("q", [*[0] * _WORDS, total, each, x | y << 32, z, 0, *params])
            first = len(held) if ranges else 0
            if ranges:
                held.extend([*[0] * (_WORDS - 1), len(ranges), *(n for pair in ranges for n in pair)])
        at = held.buffer_info()[0]
        held[_WORDS + 4] = at + 8 * first
        status = self._run(self._piece, at + 8 * _PARAMS, at + 8 * _WORDS, -(-total // each))
        if status:
            raise self._fault(status, held[first : first + _WORDS])

    def _with_equal(self, arguments: Sequence[Any]) -> BlockLaunch:
        """The kernel where pointers are one address, and it is written through one of them: the loops of a kernel count
        on memory of different parameters not to overlap.
        """
        first: dict[Any, int] = {}
        pairs = [(i, first.setdefault(arguments[i], i)) for i in self._pointers]
        equal = {i: one for i, one in pairs if i != one and (i in self._written or one in self._written)}
        if not equal:
            return self
        key = tuple(equal.items())
        if key not in self._variants:
            kernel = with_equal_pointers(self.kernel, equal)
            self._variants[key] = compile_block(kernel, checked=self.checked, machine=self.machine)
        return self._variants[key]

    def _fault(self, status: int, report: array[int]) -> Exception:
        """The error that a status and its report stand for."""
        if status == MEMORY:
            return MemoryError(f"{self.kernel.name}: no memory for the tiles of a program")
        op = self.emitted().sites[report[REPORT["site"]]]
        where = f"{op.line[0]}:{op.line[1]}: " if op.line else ""
        place = ", ".join(str(report[REPORT[axis]]) for axis in "xyz")
        if status == BOUNDS:
            what = f"{op.kind}: {report[REPORT['bytes']]} bytes at {report[REPORT['address']] & (1 << 64) - 1:#x} are outside of all arguments"
        else:
            what = f"assert: {op.attributes.get('message', '')}"
        return BlockFault(f"{where}{what} (program {place})")


# Codes of `struct` for arguments in words of eight bytes, by dtype.
_CODES = {
    "bool": "?7x", "float64": "d", "float32": "f4x", "float16": "e6x", "uint64": "Q",
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"), "q"),
}  # fmt: skip


def _layout(params: Sequence[Value]) -> struct.Struct | None:
    """Packer of the words of a piece and all arguments at once, behind an empty report; None where `struct` does not
    know one of them.
    """
    elements = [p.type.element for p in params]
    codes = ["Q" if isinstance(e, Pointer) else _CODES.get(e.name) for e in elements]
    return struct.Struct(f"<{8 * _WORDS}x4q8x" + "".join(filter(None, codes))) if all(codes) else None


def _packer(param: Value) -> Callable[[Any], int]:
    """The function that puts an argument into a word."""
    element = param.type.element
    if isinstance(element, Pointer):
        return lambda a: _signed(int(a))
    if element.kind == "b":
        return lambda a: int(bool(a))
    if element.kind in "iu":
        return lambda a: _signed(int(a))
    codes = {"float64": "d", "float32": "f", "float16": "e"}
    code = codes.get(element.name)
    if code is not None:
        size = element.itemsize
        return lambda a: (
            int.from_bytes(struct.pack(f"<{code}", a), "little")
            if size < 8
            else struct.unpack("<q", struct.pack("<d", a))[0]
        )
    if element.name == "bfloat16":
        return lambda a: struct.unpack("<I", struct.pack("<f", a))[0] >> 16
    raise NotImplementedError(f"a {element.name} as an argument of a block kernel")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
