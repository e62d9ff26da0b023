"""From a jit function and the types of its arguments to a kernel of the block IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rushlight._interface.blocks import BlockBuilder, BlockError, Kernel, Value, verify

from .._semantics.ambient import compiling
from .._semantics.constants import constexpr, unwrap
from .._semantics.dtypes import dtype, tile_of
from .._semantics.memory import tensor_descriptor
from .._semantics.values import tensor, to_tensor
from ..compiler.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from .frame import Frame, wrapped
from .source import FunctionSource
from .statements import execute

__all__ = ["Argument", "DescriptorArgument", "KernelSource", "build_kernel"]

_DEEPEST = 100  # calls within calls


class Argument(NamedTuple):
    """A parameter of a kernel: the type of a runtime value, or the value of a constexpr; `divisible` by a number."""

    type: dtype | None
    value: Any = None
    divisible: int = 1


class DescriptorArgument(NamedTuple):
    """A tensor descriptor that the host made: an address, sizes and strides are passed."""

    base: Argument
    shape: tuple[Argument, ...]
    strides: tuple[Argument, ...]
    block_shape: tuple[int, ...]
    padding: str


class KernelSource(NamedTuple):
    """Source of a kernel: a function and what is known of each argument (or of the items of a tuple)."""

    source: FunctionSource
    arguments: Mapping[str, Any]
    options: Any
    target: Any
    allow_globals: bool = False


def build_kernel(given: KernelSource) -> tuple[Kernel, dict[tuple[str, str], tuple[dict[str, Any], Any]]]:
    """The verified kernel, and the constexpr globals that it read: (file, name) -> (namespace, value).

    CompilationError, with the place in the user's source, for everything that does not fit.
    """
    one = _Building(given)
    return one.build(), one.used_globals


class _Building:
    """A kernel under construction; `call` puts a function of the language into it."""

    def __init__(self, given: KernelSource) -> None:
        self.given, self.options, self.allow_globals = given, given.options, given.allow_globals
        self.target = given.target
        self.rounds_float32 = given.target.warp_size > 1
        self.used_globals: dict[tuple[str, str], tuple[dict[str, Any], Any]] = {}
        self.frames: list[Frame] = []
        source, flat = given.source, list(_runtime(given.arguments))
        self.builder = BlockBuilder(
            source.name,
            [tile_of(a.type) for _, a in flat if a.type],
            [n for n, _ in flat],
            (source.file, source.first_line),
        )
        self.divisible = {i: a.divisible for i, (_, a) in enumerate(flat) if a.divisible > 1}

    def build(self) -> Kernel:
        values = iter(self.builder.params)
        with compiling(self):
            scope = {name: _bound(argument, values) for name, argument in self.given.arguments.items()}
            result = self.run(self.given.source, scope)
        if unwrap(result) is not None:
            raise CompilationError(
                None, None, f"kernel {self.given.source.name} returns a value; a kernel stores its results"
            )
        options = self.options
        kernel = self.builder.finish(divisible=self.divisible, warps=options.num_warps, stages=options.num_stages)
        verify(kernel)
        return kernel

    # ***** functions *****

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a jit function, whose operations are put here; Python functions are called."""
        source = getattr(function, "__jit_source__", None)
        if source is None:
            return wrapped(function(*args, **kwargs))
        if len(self.frames) >= _DEEPEST:
            raise RecursionError(f"{source.name} calls itself; functions of the language have no recursion")
        bound = source.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        scope: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            scope[name] = constexpr(value) if isinstance(value, dtype) else wrapped(value)
        return self.run(source, scope)

    def run(self, source: Any, scope: dict[str, Any]) -> Any:
        frame = Frame(self, source, scope)
        self.frames.append(frame)
        line = self.builder.line
        try:
            execute(frame, source.tree.body)
        except CompilationError as error:
            if len(self.frames) > 1:
                error.called_from(self.frames[-2].place())
            raise
        except Exception as error:
            raise self._located(frame, error) from error
        finally:
            self.frames.pop()
            self.builder.line = line
        return frame.result

    def _located(self, frame: Frame, error: Exception) -> CompilationError:
        kind = CompileTimeAssertionFailure if isinstance(error, AssertionError) else CompilationError
        if isinstance(error, NotImplementedError):
            kind = UnsupportedLanguageConstruct
        what = str(error) if isinstance(error, (AssertionError, BlockError)) else f"{type(error).__name__}: {error}"
        located = kind(frame.place(), frame.node, what)
        if len(self.frames) > 1:
            located.called_from(self.frames[-2].place())
        return located


def _runtime(arguments: Mapping[str, Any]) -> Any:
    """(name, argument) of everything that is passed when the kernel runs; items of tuples one by one."""
    for name, argument in arguments.items():
        if isinstance(argument, Argument):
            if argument.type is not None:
                yield name, argument
        elif isinstance(argument, DescriptorArgument):
            yield from _runtime(
                {name: argument.base, f"{name}.shape": argument.shape, f"{name}.strides": argument.strides}
            )
        else:
            yield from _runtime({f"{name}.{i}": item for i, item in enumerate(argument)})


def _bound(argument: Any, values: Any) -> Any:
    """A parameter as a variable of the kernel's function."""
    if isinstance(argument, DescriptorArgument):
        base, shape, strides = (_bound(part, values) for part in argument[:3])
        zero = [to_tensor(0)] * len(shape)
        made = tensor_descriptor(base, shape, strides, zero, argument.block_shape)
        made.padding = argument.padding
        return made
    if not isinstance(argument, Argument):
        items = [_bound(item, values) for item in argument]
        return type(argument)(*items) if hasattr(argument, "_fields") else tuple(items)
    if argument.type is None:
        fixed = argument.value
        return wrapped(fixed) if isinstance(fixed, tuple) else constexpr(fixed)
    value: Value = next(values)
    return tensor(value, argument.type)
