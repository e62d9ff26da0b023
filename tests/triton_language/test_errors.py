"""What goes wrong names the user's file, line and column."""

import os

import pytest

import rushlight as torch
from rushlight import triton
from rushlight.triton import language as tl
from rushlight.triton.compiler import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct

LIMIT = 3
FIXED = tl.constexpr(3)


def launch(kernel, *args, **kwargs):
    kernel[(1,)](*args, **kwargs)


@triton.jit
def undefined_name(x):
    tl.store(x, nothing)  # noqa: F821


@triton.jit
def plain_global(x):
    tl.store(x, LIMIT)


@triton.jit
def wrong_shapes(x):
    a = tl.arange(0, 8)
    b = tl.arange(0, 16)
    tl.store(x + a, a + b)


@triton.jit
def odd_range(x):
    tl.store(x + tl.arange(0, 10), 0)


@triton.jit
def runtime_range(x, n):
    tl.store(x + tl.arange(0, n), 0)


@triton.jit
def changing_type(x, n):
    total = 0
    for _ in range(n):
        total += 0.5
    tl.store(x, total)


@triton.jit
def other_types(x, n):
    if n > 3:
        a = 1
    else:
        a = 1.5
    tl.store(x, a)


@triton.jit
def inner(x):
    return x @ x


@triton.jit
def within_a_call(x):
    tl.store(x, inner(tl.load(x)))


@triton.jit
def failing_assertion(x, N: tl.constexpr):
    tl.static_assert(N == 4, f"N is {N}")


@triton.jit
def assembly(x):
    a = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x)], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(x, a)


@triton.jit
def leaves_loop(x, n):
    for k in range(n):
        if k > 3:
            break
    tl.store(x, 1)


@triton.jit
def returns_in_loop(x, n):
    for k in range(n):
        if k > 3:
            return
    tl.store(x, 1)


@triton.jit
def exponential_of_integers(x):
    tl.store(x, tl.exp(tl.load(x)))


@triton.jit
def wide_number(x):
    a = tl.load(x).to(tl.int8)
    tl.store(x, a + 300)


@triton.jit
def gives_a_value(x):
    return tl.load(x)


@triton.jit
def two_dtypes(x):
    i = tl.arange(0, 16)
    a = tl.load(x + i[:, None] + i[None, :])
    tl.store(x + i, tl.sum(tl.dot(a.to(tl.float16), a.to(tl.float32)), 1))


CASES = [
    (undefined_name, (7,), "nothing is not defined", "tl.store(x, nothing)"),
    (plain_global, (7,), "Cannot access global variable LIMIT", "tl.store(x, LIMIT)"),
    (wrong_shapes, (7,), "incompatible dimensions", "tl.store(x + a, a + b)"),
    (odd_range, (7,), "power of 2", "tl.arange(0, 10)"),
    (runtime_range, (7, 16), "constexpr", "tl.arange(0, n)"),
    (changing_type, (7, 5), "Loop-carried variable total has initial type int32", "for _ in range(n)"),
    (other_types, (7, 5), "Mismatched type for a", "if n > 3"),
    (exponential_of_integers, (7,), "fp32", "tl.exp(tl.load(x))"),
    (wide_number, (7,), "out of range", "a + 300"),
    (gives_a_value, (7,), "returns a value", ""),
    (two_dtypes, (7,), "same dtype", "tl.dot"),
    (failing_assertion, (7, 5), "N is 5", "tl.static_assert"),
    (assembly, (7,), "inline_asm_elementwise", "tl.inline_asm_elementwise"),
    (leaves_loop, (7, 5), "no `break`", "break"),
    (returns_in_loop, (7, 5), "return", "return"),
]


@pytest.mark.parametrize(("kernel", "arguments", "says", "line"), CASES, ids=lambda v: getattr(v, "__name__", None))
def test_compilation_errors(kernel, arguments, says: str, line: str) -> None:
    tensor = torch.zeros(16, dtype=torch.int32)
    with pytest.raises(CompilationError) as error:
        launch(kernel, tensor, *arguments[1:])
    text = str(error.value)
    assert says in text
    if line:
        assert line in text and "test_errors.py:" in text and "^" in text


def test_kinds_of_errors() -> None:
    tensor = torch.zeros(16, dtype=torch.int32)
    with pytest.raises(CompileTimeAssertionFailure):
        launch(failing_assertion, tensor, 3)
    with pytest.raises(UnsupportedLanguageConstruct):
        launch(assembly, tensor)
    assert issubclass(UnsupportedLanguageConstruct, NotImplementedError)


def test_calls_that_led_there() -> None:
    with pytest.raises(CompilationError) as error:
        launch(within_a_call, torch.zeros(1))
    text = str(error.value)
    assert text.index("return x @ x") < text.index("called from") < text.index("inner(tl.load(x))")


def test_line_and_column() -> None:
    with pytest.raises(CompilationError) as error:
        launch(undefined_name, torch.zeros(1))
    place = error.value.places[0]
    with open(place.file) as file:
        line = file.readlines()[place.line - 1]
    assert line[place.column :].startswith("nothing")


def test_outside_of_kernels() -> None:
    with pytest.raises(ValueError, match=r"Did you forget to add @triton.jit"):
        tl.arange(0, 16)
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        inner(3)


@triton.jit
def copy(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def test_wrong_launches() -> None:
    x = torch.zeros(16)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'B'"):
        copy[(1,)](x, x, 16)
    with pytest.raises(TypeError, match="takes 4 arguments but 5"):
        copy[(1,)](x, x, 16, 16, 3)
    with pytest.raises(TypeError, match="multiple values for argument 'n'"):
        copy[(1,)](x, x, 16, n=3, B=16)
    with pytest.raises(KeyError, match="num_wraps was specified but unrecognised"):
        copy[(1,)](x, x, 16, B=16, num_wraps=4)
    with pytest.raises(TypeError, match="and got object"):
        copy[(1,)](object(), x, 16, B=16)
    with pytest.raises(ValueError, match="one to three sizes"):
        copy[(1, 1, 1, 1)](x, x, 16, B=16)
    with pytest.raises(TypeError, match="complex64"):
        copy[(1,)](x, torch.zeros(16, dtype=torch.complex64), 16, B=16)


@triton.jit
def reads_constant(x):
    tl.store(x, FIXED)


def test_changed_globals_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(1)
    launch(reads_constant, x)
    assert x.item() == 3
    monkeypatch.setitem(globals(), "FIXED", tl.constexpr(4))
    with pytest.raises(RuntimeError, match="FIXED .* has changed"):
        launch(reads_constant, x)


@triton.jit
def asserts(x):
    tl.device_assert(tl.load(x) > 0, "x is positive")
    assert tl.load(x) > 0, "x is positive"


def test_device_assertions() -> None:
    launch(asserts, torch.zeros(1))
    with pytest.raises(RuntimeError, match=r"test_errors.py:\d+.*x is positive"):
        asserts[(1,)](torch.zeros(1), debug=True)


@triton.jit
def beyond(x):
    i = tl.arange(0, 16)
    tl.store(x + 1000 + i, 1.0)


def test_accesses_out_of_bounds_name_the_line(run_python) -> None:
    code = """
import sys
import rushlight as torch
from tests.triton_language.test_errors import beyond
beyond[(1,)](torch.zeros(16))
"""
    done = run_python("-c", code, env={**os.environ, "RUSHLIGHT_CHECK_BOUNDS": "1"})
    assert done.returncode == 1
    assert "test_errors.py:" in done.stderr and "store" in done.stderr and "outside" in done.stderr
