"""Messages and hints of a program: prints, assertions, hints, barriers; loops that are no ranges of Python."""

from __future__ import annotations

from typing import Any

from .ambient import builder, builtin, compilation
from .arithmetic import truth
from .constants import unwrap
from .promotion import broadcast_values
from .values import tensor, to_tensor

__all__ = [
    "assume", "condition", "debug_barrier", "device_assert", "device_print", "expect_zero", "inline_asm_elementwise", "max_constancy",
    "max_contiguous", "multiple_of", "range", "static_assert", "static_print", "static_range",
]  # fmt: skip


class range:
    """A loop of the kernel, as Python's `range`, with hints that compilers for GPUs take (here they change nothing)."""

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: Any = None,
        loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: bool = False,
        flatten: bool = False,
        warp_specialize: bool = False,
        disable_licm: bool = False,
    ) -> None:
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step: Any = 1 if step is None else step
        self.num_stages = num_stages

    def __iter__(self) -> Any:
        raise RuntimeError("tl.range can only be used in @triton.jit'd functions")

    __next__ = __iter__


class static_range(range):
    """A loop that is unrolled when the kernel is compiled: its bounds are constexpr."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        super().__init__(arg1, arg2, step)
        for bound in (self.start, self.end, self.step):
            if isinstance(bound, tensor):
                raise TypeError("static_range takes constexpr bounds, not values of a running kernel")
        self.start, self.end, self.step = map(unwrap, (self.start, self.end, self.step))


class condition:
    """The condition of a `while`, with hints (here they change nothing)."""

    def __init__(self, arg1: Any, disable_licm: bool = False) -> None:
        self.condition = arg1


# ***** prints and assertions *****


@builtin
def static_print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    """Prints when the kernel is compiled."""
    print(*values, sep=sep, end=end, file=file, flush=flush)


@builtin
def static_assert(cond: Any, msg: Any = "") -> None:
    """AssertionError when the kernel is compiled, unless the condition holds."""
    if isinstance(cond, tensor):
        raise TypeError("static_assert takes a constexpr condition, and got a value of a running kernel")
    if not cond:
        raise AssertionError(str(msg) if msg else "static assertion failed")


@builtin
def device_print(prefix: str, *args: Any, hex: bool = False) -> None:
    """Prints values of each program when the kernel runs, after `prefix` and the program's place in the grid."""
    if not isinstance(prefix, str):
        raise TypeError(f"device_print's prefix is a text, not {prefix!r}")
    values = [to_tensor(value).handle for value in args]
    builder().emit("print", *values, prefix=prefix, hex=bool(hex))


@builtin
def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """Stops the kernel where the condition fails.  Only in kernels that are compiled with `debug=True`, or under
    TRITON_DEBUG=1.
    """
    if not compilation().options.debug:
        return
    held = truth(cond)
    if mask is not None:
        held, outside = broadcast_values(held, ~truth(mask))
        held = held | outside
    builder().emit("assert", held.handle, message=str(msg))


@builtin
def debug_barrier() -> None:
    """Memory that the program wrote before is seen by all of its threads afterwards."""
    builder().emit("barrier")


# ***** hints *****


@builtin
def assume(cond: Any) -> None:
    """Compilers may count on the condition."""
    if isinstance(cond, tensor):
        builder().emit("assume", truth(cond).handle)


def _hint(x: tensor, values: Any, what: str) -> tensor:
    numbers = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    if len(numbers) != max(len(x.shape), 1):
        raise ValueError(f"Shape of input to {what} does not match the length of values")
    if not all(isinstance(n, int) for n in numbers):
        raise TypeError(f"values elements must have type `constexpr[int]`, got {numbers!r}")
    return tensor(builder().value("hint", x.handle, **{what: numbers}), x.type)


@builtin
def multiple_of(input: Any, values: Any) -> Any:
    """The same block; its values begin at multiples of `values` along each dim."""
    return _hint(input, values, "multiple") if isinstance(input, tensor) else input


@builtin
def max_contiguous(input: tensor, values: Any) -> tensor:
    """The same block; runs of `values` neighbours step by one along each dim."""
    return _hint(input, values, "contiguous")


@builtin
def max_constancy(input: tensor, values: Any) -> tensor:
    """The same block; runs of `values` neighbours are equal along each dim."""
    return _hint(input, values, "constant")


# ***** refused *****


@builtin
def inline_asm_elementwise(asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int) -> Any:
    """Refused: assembly of one machine has no meaning on another."""
    raise NotImplementedError(
        "inline_asm_elementwise: rushlight compiles kernels for several machines and takes no assembly of one; write the "
        f"operation in the language (the text was {asm.strip().splitlines()[0]!r})"
    )


@builtin
def expect_zero(x: tensor) -> tensor:
    """The same block; a hint that it is mostly 0."""
    return x
