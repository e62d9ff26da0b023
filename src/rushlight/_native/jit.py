"""LLVM text to object code, and object code into the process.

Object code is position independent and small (calls and data go through tables that the loader makes), so that the
same bytes can be kept on disk and loaded by any later process.  Loading is done by `loader` where it can, otherwise by
LLVM's ORC linker (`LLJIT`), each object in a library of its own, which is unloaded when its `Loaded` dies.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from rushlight._base.forking import free_after_fork
from rushlight._base.knobs import Knob
from rushlight._base.lazy import LazyModule, llvm
from rushlight._base.log import enabled, log
from rushlight._native.cache import default_cache
from rushlight._native.objectfiles.loader import Image, Unsupported, can_load
from rushlight._native.target import TargetDescription, host_target

if TYPE_CHECKING:
    from rushlight._native import llvm_compiler
else:
    llvm_compiler = LazyModule("rushlight._native.llvm_compiler")

__all__ = [
    "COMPILER_SOURCES",
    "RECORD",
    "Loaded",
    "compile_assembly",
    "compile_object",
    "load",
    "optimised_text",
    "processor",
]

COMPILER_SOURCES = ("_native/jit.py", "_native/llvm_compiler.py")  # what decides which code becomes of a text


@cache
def _initialize() -> None:
    lock = getattr(getattr(llvm.ffi.lib, "_lock", None), "_lock", None)  # llvmlite's: one thread at a time is in LLVM
    if lock is not None:
        free_after_fork(lock)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


class _Process:
    """The LLVM state of the process for one target: compiler and linker, made on first use."""

    def __init__(self, target: TargetDescription) -> None:
        self.target = target
        self._compiler: llvm_compiler.ObjectCompiler | None = None
        self._linker: Any = None

    @property
    def compiler(self) -> llvm_compiler.ObjectCompiler:
        """The compiler of this process, made on first use."""
        if self._compiler is None:
            _initialize()
            self._compiler = llvm_compiler.ObjectCompiler(llvm, *self.processor())
        return self._compiler

    def processor(self) -> tuple[str, str]:
        """LLVM's name of the processor, and what it has beside (or lacks)."""
        level = self.target.level
        if level is not None:
            return level.name, level.features + self.target.llvm_suffix
        return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten() + self.target.llvm_suffix

    @property
    def linker(self) -> Any:
        """The ORC linker.  It is never disposed of: native threads may be inside code that it loaded."""
        if self._linker is None:
            _initialize()
            # the linker takes its target machine over, so it gets one of its own
            machine = llvm.Target.from_default_triple().create_target_machine(
                opt=2, reloc="pic", codemodel="small", jit=True
            )
            self._linker = llvm.create_lljit_compiler(machine)
            self._linker._owned = True
        return self._linker


# Listeners called for each loaded object with (image, object code, names, imports).
RECORD: list[Callable[[Any, bytes, Iterable[str], Mapping[str, int]], None]] = []

_COMPILERS: dict[str, _Process] = {}
_NUMBER = itertools.count()


def _compiler() -> _Process:
    target = host_target()
    found = _COMPILERS.get(target.fingerprint)
    if found is None:
        _COMPILERS[target.fingerprint] = found = _Process(target)
    return found


def processor() -> tuple[str, str]:
    """LLVM's name of the processor that is compiled for, and its features."""
    return _compiler().processor()


def _wants_notices() -> bool:
    """Whether somebody reads: in a terminal, or in a notebook."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


NOTICES: Knob[bool] = Knob(
    "notices",
    env="RUSHLIGHT_NOTICES",
    kind=bool,
    default=_wants_notices,
    doc="Whether the first compilation with an empty cache says so on standard error (default: in a terminal or a notebook).",
)


@cache
def _notice() -> None:
    """Say once what takes long: kernels are compiled, and nothing is kept from an earlier run."""
    kept = default_cache()
    processes = sys.modules.get("multiprocessing.process")
    if kept.fresh and (processes is None or processes.parent_process() is None) and NOTICES.get():
        print(
            f"rushlight compiles its kernels for this machine and keeps them in {kept.root}: the next run starts at once "
            "(RUSHLIGHT_NOTICES=0 hides this line)",
            file=sys.stderr,
            flush=True,
        )


def compile_object(text: str, opt: str = "kernel") -> bytes:
    """Compile LLVM text for this machine; `opt` is one of `llvm_compiler.OPT_LEVELS`.

    Raises RuntimeError with LLVM's message when the text is malformed.
    """
    _notice()
    start = time.perf_counter()
    compiler = _compiler()
    data = compiler.compiler.object_code(text, opt)
    if enabled("llvm"):
        log("llvm", f"{1e3 * (time.perf_counter() - start):.1f} ms, {len(data)} bytes, opt={opt}\n{text}")
    if enabled("asm"):
        log("asm", compile_assembly(text, opt))
    return data


def optimised_text(text: str, opt: str = "kernel") -> str:
    """The LLVM text after the passes of `opt`."""
    return str(_compiler().compiler.optimise(text, opt))


def compile_assembly(text: str, opt: str = "kernel") -> str:
    """The assembly text of what `compile_object` makes."""
    compiler = _compiler().compiler
    result: str = compiler.machine.emit_assembly(compiler.optimise(text, opt))
    return result


class Loaded:
    """Object code that LLVM's linker loaded.  `loaded["name"]` is an address, valid as long as this object lives."""

    __slots__ = ("_addresses", "_tracker")

    def __init__(self, data: bytes, names: Iterable[str], imports: Mapping[str, int]) -> None:
        names = list(names)
        builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
        for name in names:
            builder.export_symbol(name)
        for name, address in imports.items():
            builder.import_symbol(name, address)
        self._tracker = builder.link(_compiler().linker, f"rl{next(_NUMBER)}")
        self._addresses = {name: int(self._tracker[name]) for name in names}

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]

    def pin(self) -> None:
        """Never unload this object."""
        self._tracker._owned = True  # llvmlite: "owned by another", so it is not disposed of


def load(data: bytes, names: Iterable[str], imports: Mapping[str, int] | None = None) -> Loaded | Image:
    """Load object code; `names` are the symbols wanted from it, `imports` the addresses of symbols it needs.

    Other symbols are looked for in the process (libc, libm, CPython).  RuntimeError when one is missing.  The code is
    unloaded when the result dies.
    """
    if can_load(data):
        try:
            made = Image(data, names, imports or {})
            if RECORD:
                RECORD[0](made, data, names, imports or {})
            return made
        except Unsupported as reason:
            if host_target().arch == "aarch64":  # LLVM's linker may end the process: see `loader`
                raise RuntimeError(f"machine code cannot be loaded: {reason}") from reason
            log("cache", f"loaded by LLVM: {reason}")
    return Loaded(data, names, imports or {})
