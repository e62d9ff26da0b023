"""Native functions and LLVM text to object code, from the disk cache or compiled now, or ahead of need by a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING

from rushlight._base.lazy import LazyModule
from rushlight._native.cache import default_cache
from rushlight._native.function import NativeFunction, digest_of
from rushlight._native.jit import COMPILER_SOURCES
from rushlight._native.objectcode import ahead, obtain, wanted
from rushlight._native.sources import files_below, sources_digest
from rushlight._native.target import host_target

if TYPE_CHECKING:
    from rushlight._native import compiler
else:
    compiler = LazyModule("rushlight._native.compiler")  # only when something is compiled: it needs `ast`

__all__ = ["cached_object", "compile_named", "compile_native", "compile_text", "native_ahead", "text_ahead"]

_LANGUAGE = (
    *COMPILER_SOURCES,
    *(f"_native/{name}.py" for name in ("compiler", "emitter", "expressions", "intrinsics", "types")),
)


def cached_object(text: str, opt: str = "kernel") -> bytes:
    """Object code for LLVM text, from the disk cache or compiled now."""
    return obtain(opt, lambda: text, opt, sources_digest(COMPILER_SOURCES), text)


def compile_native(
    functions: Iterable[NativeFunction], extra: str = "", opt: str = "native", imported: tuple[str, ...] = ()
) -> bytes:
    """Object code that defines `functions`, and the LLVM text `extra`, from the disk cache or compiled now.

    A hit needs no parsing: the key is made from the functions' byte code and constants.  `opt` is one of
    `llvm_compiler.OPT_LEVELS`; `imported` names static memory of other units (see `compiler.Unit`).
    """
    functions = list(functions)
    return obtain(opt, partial(_unit, functions, extra, imported), *_parts(functions, extra, opt, imported))


def compile_named(
    name: str, make: Callable[[], Iterable[NativeFunction]], opt: str = "native", imported: tuple[str, ...] = ()
) -> bytes:
    """As `compile_native`, of functions that `name` and the sources of `_native`, `_host` and the CPU's backend
    determine.

    A hit in the disk cache needs neither the functions nor a digest of their code, which takes milliseconds for large
    ones.
    """
    kept = default_cache()
    key = kept.key("named", opt, sources_digest(_named_sources()), name)
    data = kept.get(key)
    if data is None:
        data = compile_native(make(), opt=opt, imported=imported)
        kept.put(key, data)
    return data


@cache
def _named_sources() -> tuple[str, ...]:
    return (*files_below("_native"), *files_below("_host"), *files_below("_backends/cpu"))


def native_ahead(
    functions: Iterable[NativeFunction], opt: str = "native", imported: tuple[str, ...] = (), extra: str = ""
) -> None:
    """Let a worker do what `compile_native` will be asked for."""
    if wanted():
        functions = list(functions)
        ahead(opt, partial(_unit, functions, extra, imported), *_parts(functions, extra, opt, imported))


def _parts(functions: list[NativeFunction], extra: str, opt: str, imported: tuple[str, ...]) -> tuple[str | bytes, ...]:
    return opt, sources_digest(_LANGUAGE), extra, " ".join(imported), digest_of(functions)


def _unit(functions: list[NativeFunction], extra: str, imported: tuple[str, ...]) -> str:
    return compiler.compile_unit(functions, host_target().arch, imported) + extra


def compile_text(text: str) -> bytes:
    """Object code of LLVM text, from the disk cache or compiled now."""
    return obtain("kernel", lambda: text, "text", text)


def text_ahead(text: str) -> None:
    """Let a worker do what `compile_text` will be asked for."""
    ahead("kernel", lambda: text, "text", text)
