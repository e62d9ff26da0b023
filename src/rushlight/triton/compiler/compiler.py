"""Compiled kernels, and `triton.compile`."""

from __future__ import annotations

import hashlib
import os
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import rushlight
from rushlight._interface.blocks import Kernel, kernel_text
from rushlight._interface.devices import backend_of
from rushlight._interface.dispatch import HOOKS

from .._frontend.build import KernelSource, build_kernel
from .._launch.memory import Interpreted, memory_of
from .._launch.reported import ReportedLaunch
from .._launch.specialize import argument_of, words_of

__all__ = ["ASTSource", "CompiledKernel", "GPUTarget", "Options", "compile", "compile_key", "make_backend"]


@dataclass(frozen=True)
class GPUTarget:
    """The target of a kernel: ("cuda", 90, 32), or ("cpu", its name, 1)."""

    backend: str
    arch: int | str
    warp_size: int


@dataclass(frozen=True)
class Options:
    """Options of a launch.  On the CPU none but `debug` changes anything."""

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    debug: bool = False
    sanitize_overflow: bool = False
    enable_fp_fusion: bool = False
    allow_fp8e4nv: bool = True
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False
    backend_options: tuple[tuple[str, Any], ...] = field(default=(), compare=False)

    @staticmethod
    def names() -> frozenset[str]:
        return frozenset(f.name for f in fields(Options)) - {"backend_options"}


class Texts(dict[str, str]):
    """The stages of a compiled kernel, by their names here; those of the device are printed when they are asked for."""

    more: Callable[[], Mapping[str, str]] | None = None

    def __missing__(self, stage: str) -> str:
        if self.more is not None:
            self.update(self.more())
            self.more = None
            if stage in self:
                return self[stage]
        raise KeyError(f"{stage}: rushlight's stages of a kernel are {', '.join(self)} (`blocks` is its block IR)")


Metadata = namedtuple("Metadata", "name num_warps num_stages num_ctas shared target hash options")


class CompiledKernel:
    """A kernel for one kind of arguments: `asm` holds its stages, `metadata` what it was compiled for.

    `kernel[grid](*arguments)` launches it with the arguments of all parameters, or those alone that are passed at run time.
    """

    n_regs = n_spills = 0
    n_max_threads = 1024

    def __init__(
        self, kernel: Kernel, keys: Sequence[Any], options: Options, target: GPUTarget, used: Any, src: Any, device: Any
    ) -> None:
        self.kernel, self.keys, self.options, self.target, self.src = kernel, list(keys), options, target, src
        self.used_globals = dict(used)
        text = kernel_text(kernel)
        self.asm = Texts(blocks=text, source="" if src is None else src.text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.metadata = Metadata(
            kernel.name, options.num_warps, options.num_stages, options.num_ctas, 0, target, digest, options
        )
        self.name, self.hash, self.function, self.module = kernel.name, digest, None, None
        self.device = device
        self.is_plain = all(key[0] in ("*", "number", "typed") or not _is_passed(key) for key in keys)
        self.passed = [i for i, key in enumerate(keys) if _is_passed(key)]  # parameters that are there at run time
        self._words = [(i, keys[i][0] == "*") for i in self.passed]
        self.loaded: Any = None

    def check_globals(self) -> None:
        """RuntimeError where a constexpr global has another value than when the kernel was compiled."""
        for (file, name), (namespace, value) in self.used_globals.items():
            now = namespace.get(name)
            if now is not value and (type(now) is not type(value) or now.value != value.value):
                raise RuntimeError(
                    f"Global variable {name} of {file} has changed since the kernel {self.name} was compiled, from {value} to {now}. "
                    "This is not allowed."
                )

    def values(self, arguments: Sequence[Any]) -> list[tuple[str, Any]]:
        """(type, value) of all that is passed."""
        return [word for key, value in zip(self.keys, arguments, strict=True) for word in words_of(key, value)]

    @property
    def ready(self) -> Any:
        """The kernel on its device, compiled by the first launch."""
        if self.loaded is None:
            interpreted = os.environ.get("TRITON_INTERPRET", "0") == "1"
            made = (
                Interpreted(self.kernel)
                if interpreted
                else backend_of(self.device).block_kernel(self.kernel, self.device)
            )
            self.asm.more, self.loaded = made.texts, made
        return self.loaded

    def launch(self, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        """Run every program of a grid; `arguments` are those of the function, in order."""
        if self.is_plain:
            words = [arguments[i].data_ptr() if pointer else arguments[i] for i, pointer in self._words]
            tensors: Sequence[Any] = arguments
        else:
            tensors = [value for _, value in self.values(arguments)]
            words = [value.data_ptr() if hasattr(value, "data_ptr") else value for value in tensors]
        ready = self.loaded or self.ready
        given = (words, memory_of(tensors)) if ready.checked else (words,)
        if HOOKS.launch_recorder is None:
            ready.launch(grid, *given)
        else:
            HOOKS.launch_recorder.run(self.name, ReportedLaunch(self.kernel, ready, grid, self.device), given)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        sizes = (*grid, 1, 1)[:3]

        def launch(*arguments: Any) -> None:
            if len(arguments) == len(self.keys):
                self.launch(sizes, arguments)
                return
            given = list(arguments)
            whole = [given.pop(0) if _is_passed(key) else None for key in self.keys]
            if given:
                raise TypeError(
                    f"{self.name} takes {len(self.keys)} arguments, of which {sum(map(_is_passed, self.keys))} are passed at "
                    f"run time, and got {len(arguments)}"
                )
            self.launch(sizes, whole)

        return launch

    def _init_handles(self) -> None:
        """Nothing to load."""

    def __repr__(self) -> str:
        return f"CompiledKernel({self.name}, {self.target})"


def _is_passed(key: Any) -> bool:
    return key[0] not in ("constexpr", "one", "none")


def compile_key(function: Any, keys: Sequence[Any], options: Options, target: GPUTarget, device: Any) -> CompiledKernel:
    """Compile a jit function for the keys of its arguments (`specialize.KernelParam.key`)."""
    arguments = {param.name: argument_of(key) for param, key in zip(function.params, keys, strict=True)}
    source = function.__jit_source__
    given = KernelSource(source, arguments, options, target, function.allow_globals())
    kernel, used = build_kernel(given)
    return CompiledKernel(kernel, keys, options, target, used, source, device)


# ***** ahead of time *****


class ASTSource:
    """A jit function with types for its arguments: `signature` maps names to "*fp32", "i32", "fp32" or "constexpr"."""

    def __init__(
        self,
        fn: Any,
        signature: Mapping[Any, str],
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[Any, Any] | None = None,
    ) -> None:
        self.fn, self.name, self.ext = fn, fn.__name__, "blocks"
        self.signature = {_name(fn, key): value for key, value in signature.items()}
        self.constants = {_name(fn, key): value for key, value in (constexprs or {}).items()}
        self.attrs = dict(attrs or {})

    def keys(self) -> list[Any]:
        found: list[Any] = []
        for param in self.fn.params:
            type = self.signature.get(param.name, "constexpr")
            if param.name in self.constants or type == "constexpr":
                value = self.constants.get(param.name, param.default if param.has_default else None)
                found.append(("constexpr", (builtin_type(value), value)))
            elif type.startswith("*"):
                found.append(("*", type[1:].removeprefix("k"), False))
            else:
                found.append(("number", type, False))
        return found


def builtin_type(value: Any) -> Any:
    return type(value)


def _name(fn: Any, key: Any) -> str:
    key = key[0] if isinstance(key, tuple) else key
    return fn.arg_names[key] if isinstance(key, int) else key


def compile(
    src: ASTSource, target: GPUTarget | None = None, options: Mapping[str, Any] | None = None
) -> CompiledKernel:
    """A kernel compiled without arguments."""
    known = {name: value for name, value in (options or {}).items() if name in Options.names()}
    target = target or GPUTarget("cpu", "host", 1)
    return compile_key(src.fn, src.keys(), replace(Options(), **known), target, rushlight.device(target.backend))


def make_backend(target: GPUTarget) -> Any:
    """The compiler of a target: its `parse_options`."""
    return _Backend(target)


class _Backend:
    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    @staticmethod
    def parse_options(options: Mapping[str, Any]) -> Options:
        return replace(Options(), **{k: v for k, v in options.items() if k in Options.names()})
