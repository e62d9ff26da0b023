"""`@triton.jit`: functions that are compiled for the arguments of a launch."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any, Generic, TypeVar

from rushlight._interface.dispatch import HOOKS

from .._frontend.source import FunctionSource
from .._launch.quick import Signature, binder
from .._launch.specialize import KernelParam
from .._semantics.ambient import compilation, is_compiling
from ..compiler.compiler import CompiledKernel, Options, compile_key
from .driver import driver

__all__ = ["JITFunction", "KernelInterface", "MockTensor", "TensorWrapper", "jit", "reinterpret"]

T = TypeVar("T")
_MISSING = id(inspect.Parameter.empty)
_MOST_CLASSES = 64  # kinds of arguments whose launches are remembered
_OPTIONS = Options.names()
# Options of launches on machines that we do not compile for; they are taken and change nothing.
_FOREIGN = frozenset((
    "waves_per_eu", "matrix_instr_nonkdim", "kpack", "cluster_dims", "ptx_version", "maxRegAutoWS", "minRegAutoWS", "warp_size",
    "threads_per_warp", "grf_mode", "num_buffers_warp_spec", "num_consumer_groups", "reg_dec_producer", "reg_inc_consumer", "instrumentation_mode",
))  # fmt: skip


class Launch:
    """A kernel with a grid, to be called with arguments.  In a compiled program a call runs between two graphs."""

    __slots__ = ("grid", "kernel")

    def __init__(self, kernel: Any, grid: Any) -> None:
        self.kernel, self.grid = kernel, grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel.run(*args, grid=self.grid, warmup=False, **kwargs)


class KernelInterface(Generic[T]):
    """Launched by `kernel[grid](*args)`."""

    run: Callable[..., Any]
    __name__: str

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """A launch over a grid: one to three numbers, or a function of the arguments that gives them."""
        return Launch(self, grid)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """The compiled kernel, without a launch; arguments may be dtypes in place of tensors (`MockTensor`)."""
        return self.run(*map(MockTensor.wrap_dtype, args), grid=grid, warmup=True, **kwargs)


class JITFunction(KernelInterface[T]):
    """A function of the language.  A kernel is launched with a grid; other functions are called by kernels.

    `kernel[grid](*args, num_warps=4, ...)` compiles for the arguments' types (and for the values of constexpr ones), or finds
    what was compiled for them, and runs every program of the grid.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        version: Any = None,
        do_not_specialize: Iterable[int | str] | None = None,
        do_not_specialize_on_alignment: Iterable[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[[Any], str] | None = None,
        launch_metadata: Callable[..., Any] | None = None,
    ) -> None:
        self.fn, self.version, self.debug, self.noinline = fn, version, debug, noinline
        self._repr, self.launch_metadata = repr, launch_metadata
        self.do_not_specialize = list(do_not_specialize or ())
        self.do_not_specialize_on_alignment = list(do_not_specialize_on_alignment or ())
        self.__jit_source__ = FunctionSource(fn)
        self.__globals__ = fn.__globals__  # libraries that write kernels as text give these to the new module
        self.signature = self.__jit_source__.signature
        self.params = [
            KernelParam(i, p, _names(self.do_not_specialize, i, p), _names(self.do_not_specialize_on_alignment, i, p))
            for i, p in enumerate(self.signature.parameters.values())
        ]
        self.arg_names = [p.name for p in self.params]
        self.constexprs = [p.num for p in self.params if p.is_constexpr]
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self.kernels: dict[Any, CompiledKernel] = {}
        self._places = {name: i for i, name in enumerate(self.arg_names)}
        self._key_of = [p.key for p in self.params]
        self._defaults = [p.default for p in self.params]
        self._bound = binder(self.arg_names, self._defaults, inspect.Parameter.empty)
        self._signature = Signature(self.arg_names, [p.is_constexpr for p in self.params])
        # Launches that were made before, by the classes of their arguments: (function for a key and words, kernels).
        self._quick: dict[tuple[type, ...], tuple[Any, dict[Any, tuple[CompiledKernel, Any]]]] = {}
        update_wrapper(self, fn)

    # ***** what programs look at *****

    @property
    def src(self) -> str:
        return self.__jit_source__.text

    @property
    def raw_src(self) -> list[str]:
        return inspect.getsourcelines(self.fn)[0]

    @property
    def cache_key(self) -> str:
        return f"{self.fn.__module__}.{self.fn.__qualname__}:{hash(self.src)}"

    @property
    def cache(self) -> dict[Any, CompiledKernel]:
        return self.kernels

    @property
    def device_caches(self) -> dict[Any, Any]:
        return {0: (self.kernels, None, None, None, None)}

    @staticmethod
    def allow_globals() -> bool:
        return os.environ.get("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", "0") in ("1", "true", "on")

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call `hook(*args, **kwargs)` before each launch."""
        self.pre_run_hooks.append(hook)

    def parse(self) -> Any:
        return self.__jit_source__.tree

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return compilation().call(self, args, kwargs)
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")

    def __repr__(self) -> str:
        return f"JITFunction({self.fn.__module__}:{self.fn.__qualname__})"

    # ***** launches *****

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments in the order of the parameters; takes them out of `kwargs`, which keeps the options."""
        values = [*args, *self._defaults[len(args) :]]
        if len(values) > len(self.params):
            raise TypeError(f"{self.__name__}() takes {len(self.params)} arguments but {len(args)} were given")
        for name in list(kwargs):
            place = self._places.get(name)
            if place is not None:
                if place < len(args):
                    raise TypeError(f"multiple values for argument '{name}'")
                values[place] = kwargs.pop(name)
        if _MISSING in map(id, values):
            place = list(map(id, values)).index(_MISSING)
            raise TypeError(f"dynamic_func() missing 1 required positional argument: '{self.arg_names[place]}'")
        return values

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> CompiledKernel | None:
        """Compile, or find what was compiled, and launch (unless `warmup`); the compiled kernel.  None, and nothing happens,
        where a tensor has no data.
        """
        plain = driver.active is driver.default and HOOKS.launch_recorder is None
        if self._quick and not warmup and not self.pre_run_hooks and plain:
            kernel = self._run_again(args, grid, kwargs)
            if kernel is not None:
                return kernel
        named = dict(kwargs)
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        values = self.bind(args, kwargs)
        if any(getattr(value, "is_meta", False) for value in values):
            return None
        device = driver.active.device_of(values)
        keys = tuple([key_of(value) for key_of, value in zip(self._key_of, values, strict=True)])
        key = (device, keys, *kwargs.items()) if kwargs else (device, keys)
        kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self.kernels[key] = self._compile(keys, kwargs, device)
        if kernel.used_globals:
            kernel.check_globals()
        if not warmup:
            if callable(grid):
                grid = grid(dict(zip(self.arg_names, values, strict=True)) | kwargs)
            kernel.launch(_sizes(grid), values)
            self._remember(kernel, args, named)
        return kernel

    def _run_again(self, args: Sequence[Any], grid: Any, kwargs: dict[str, Any]) -> CompiledKernel | None:
        """Launch a kernel that arguments of these kinds were launched with before; None where it is not known."""
        try:
            values, options = self._bound(*args, **kwargs)  # type: ignore[misc]  # there is one where something is known
        except TypeError:
            return None
        known = self._quick.get(tuple(map(type, values)))
        if known is None:
            return None
        made = known[0](options, *values)
        if made is None or made[0] not in known[1]:
            return None
        kernel, pick = known[1][made[0]]
        if kernel.used_globals:
            kernel.check_globals()
        if callable(grid):
            grid = grid(dict(zip(self.arg_names, values, strict=True)) | kwargs)
        words = made[1] if pick is None else [made[1][i] for i in pick]
        (kernel.loaded or kernel.ready).launch(_sizes(grid), words)
        return kernel

    def _remember(self, kernel: CompiledKernel, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Let launches with arguments of these kinds find a kernel quickly, where they can."""
        if self._bound is None or not kernel.is_plain or kernel.ready.checked or len(self._quick) >= _MOST_CLASSES:
            return
        try:
            values, options = self._bound(*args, **kwargs)
        except TypeError:
            return
        types = tuple(map(type, values))
        words = self._signature.words(types)
        made = None if words is None else words(options, *values)
        if made is None:
            return
        places, passed = self._signature.places(types), kernel.passed
        pick = None if places == passed else [places.index(i) for i in passed]
        self._quick.setdefault(types, (words, {}))[1][made[0]] = kernel, pick

    def _compile(self, keys: Sequence[Any], kwargs: dict[str, Any], device: Any) -> CompiledKernel:
        for name in kwargs:
            if name not in _OPTIONS and name not in _FOREIGN:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised")
        options = replace(Options(), **{name: value for name, value in kwargs.items() if name in _OPTIONS})
        debug = options.debug or bool(self.debug) or os.environ.get("TRITON_DEBUG", "0") == "1"
        return compile_key(self, keys, replace(options, debug=debug), driver.active.target_of(device), device)

    def preload(self, *args: Any) -> None:
        raise NotImplementedError("preload: compiled kernels are kept by their texts, and need no data of this kind")


def _names(given: Sequence[int | str], place: int, param: inspect.Parameter) -> bool:
    return place in given or param.name in given


def _sizes(grid: Any) -> tuple[int, int, int]:
    """One to three numbers as three; ValueError for more."""
    if type(grid) is tuple and len(grid) == 1 and type(grid[0]) is int and grid[0] >= 0:
        return grid[0], 1, 1
    if not isinstance(grid, (tuple, list)):
        grid = (grid,)
    if not 1 <= len(grid) <= 3:
        raise ValueError(f"a grid has one to three sizes, not {len(grid)}: {grid!r}")
    x, y, z = (int(size) for size in (*grid, 1, 1)[:3])
    if min(x, y, z) < 0:
        raise ValueError(f"a grid has no negative sizes: {grid!r}")
    return x, y, z


def jit(
    fn: Any = None,
    *,
    version: Any = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    do_not_specialize: Iterable[int | str] | None = None,
    do_not_specialize_on_alignment: Iterable[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> Any:
    """Make a function one of the Triton language: a kernel, or a function that kernels call.

    Arguments with a dtype and `data_ptr()` arrive as pointers.  Parameters in `do_not_specialize` are compiled without regard
    to their values, those in `do_not_specialize_on_alignment` without regard to what divides them.

    >>> import rushlight as torch
    >>> from rushlight import triton
    >>> from rushlight.triton import language as tl
    >>> triton.cdiv(1000, 256)
    4
    """

    def decorate(function: Callable[..., Any]) -> JITFunction[Any]:
        if not callable(function):
            raise TypeError(f"jit takes a function, not {function!r}")
        return JITFunction(
            function, version, do_not_specialize, do_not_specialize_on_alignment, debug, noinline, repr, launch_metadata
        )

    return decorate if fn is None else decorate(fn)


# ***** arguments that are no tensors *****


class MockTensor:
    """A dtype in place of a tensor, to compile without data."""

    def __init__(self, dtype: Any, shape: Sequence[int] | None = None) -> None:
        self.dtype, self.shape = dtype, [1] if shape is None else list(shape)

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        return MockTensor(arg) if type(arg).__name__ == "dtype" and "torch" in repr(arg) else arg

    @staticmethod
    def data_ptr() -> int:
        return 0


class TensorWrapper:
    """A tensor whose elements a kernel takes for another type of the same size: `reinterpret`."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base, self.dtype = base, dtype
        self.data, self.device, self.shape = base.data, base.device, base.shape

    def data_ptr(self) -> int:
        return self.base.data_ptr()

    def stride(self, *args: Any) -> Any:
        return self.base.stride(*args)

    def element_size(self) -> int:
        return self.base.element_size()

    def cpu(self) -> TensorWrapper:
        return TensorWrapper(self.base.cpu(), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        self.base.copy_(other.base)

    def clone(self) -> TensorWrapper:
        return TensorWrapper(self.base.clone(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        return TensorWrapper(self.base.to(device), self.dtype)

    def new_empty(self, sizes: Sequence[int]) -> TensorWrapper:
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """The tensor as one of `dtype` (of the language) in launches."""
    if isinstance(tensor, TensorWrapper):
        return tensor.base if dtype == tensor.base.dtype else TensorWrapper(tensor.base, dtype)
    if hasattr(tensor, "data_ptr"):
        return TensorWrapper(tensor, dtype)
    raise TypeError(f"Cannot reinterpret a {type(tensor)}.")
