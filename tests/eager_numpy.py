"""What steps of random programs mean in NumPy: views are views, in-place steps write through them.  Gradients are differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from tests.eager_beside import attempt
from tests.eager_programs import Leaf, Name, Program, Ref, Step
from tests.eager_steps import LARGEST, Writer

DTYPES = ("float64", "int64", "int8", "bool", "complex128")
# What is smooth or exact, and where NumPy's rule is PyTorch's.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "neg": np.negative, "abs": np.abs, "square": np.square, "exp": np.exp, "atan": np.arctan,
    "clone": np.array, "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "where": np.where,
    "cat": np.concatenate, "stack": np.stack, "flip": np.flip, "tril": np.tril, "triu": np.triu, "matmul": np.matmul, "cumsum": np.cumsum,
    "isnan": np.isnan, "logical_not": np.logical_not, "logical_and": np.logical_and, "logical_xor": np.logical_xor, "eq": np.equal,
}  # fmt: skip
REDUCTIONS = {"sum": np.sum, "mean": np.mean, "amax": np.max, "prod": np.prod, "all": np.all, "any": np.any}
CHANGES: dict[str, Callable[..., Any]] = {
    "add_": np.add, "sub_": np.subtract, "mul_": np.multiply, "copy_": lambda x, y: y, "fill_": lambda x, y: y, "zero_": lambda x: 0,
    "neg_": np.negative, "tanh_": np.tanh, "exp_": np.exp, "square_": np.square, "abs_": np.abs,
}  # fmt: skip
FLOATS = {"sin", "cos", "tanh", "exp", "atan", "tanh_", "exp_", "square"}
INTO = {"sum", "mean", "amax", "prod", "cumsum"}


def _expand(x: np.ndarray, *shape: int) -> np.ndarray:
    lead = len(shape) - x.ndim
    full = tuple(x.shape[i - lead] if n == -1 else n for i, n in enumerate(shape))
    strides = tuple(0 if i < lead or x.shape[i - lead] != n else x.strides[i - lead] for i, n in enumerate(full))
    np.broadcast_to(x, full)  # raises where it does not fit
    return np.lib.stride_tricks.as_strided(x, full, strides)


def _narrow(x: np.ndarray, d: int, start: int, n: int) -> np.ndarray:
    return x[(slice(None),) * (d % x.ndim) + (slice(start, start + n),)]


def _unfold(x: np.ndarray, d: int, size: int, step: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, size, d, writeable=True)[
        (slice(None),) * (d % x.ndim) + (slice(None, None, step),)
    ]


VIEWS: dict[str, Callable[..., Any]] = {
    "transpose": np.swapaxes, "permute": np.transpose, "movedim": np.moveaxis, "reshape": lambda x, shape: x.reshape(shape), "expand": _expand,
    "unsqueeze": np.expand_dims, "select": lambda x, d, i: x[(slice(None),) * (d % x.ndim) + (i, ...)], "narrow": _narrow, "unfold": _unfold,
    "flatten": lambda x: x.reshape(-1),
}  # fmt: skip


def known(step: Step) -> bool:
    """Whether NumPy can say what the step gives."""
    if (
        any(isinstance(a, complex) for a in step.args)
        or step.part is not None
        or (step.kwargs and not set(step.kwargs) <= {"keepdim", "copy"})
    ):
        return False
    if step.kind == "method":
        return step.name in CHANGES or step.name in VIEWS or step.name == "to"
    if step.kind == "function":
        return step.name in FUNCTIONS or step.name in REDUCTIONS
    return step.kind in ("index", "store")


def take(step: Step, values: Sequence[Any]) -> Any:
    """The step in NumPy; a 0-dim result is an array too, so that it can be a view."""

    def plain(a: Any) -> Any:
        if isinstance(a, Ref):
            return values[a.place]
        if isinstance(a, (list, tuple)):
            return type(a)(plain(x) for x in a)
        return a

    x, *rest = [plain(a) for a in step.args]
    with np.errstate(all="ignore"):
        if step.kind == "store":
            x[rest[0]] = rest[1]
            return x
        if step.kind == "index":
            place = rest[0] if isinstance(rest[0], tuple) else (rest[0],)
            basic = not any(isinstance(p, (list, np.ndarray)) for p in place) and Ellipsis not in place
            return x[(*place, ...)] if basic else np.asarray(x[place])
        if step.name == "to":
            return x.astype(step.args[1].text)
        if step.name in CHANGES:
            np.copyto(x, CHANGES[step.name](x, *rest), casting="unsafe")
            return x
        if step.name in VIEWS:
            return VIEWS[step.name](x, *rest)
        if step.name in REDUCTIONS:
            return np.asarray(REDUCTIONS[step.name](x, *rest, **step.kwargs))
        return np.asarray(FUNCTIONS[step.name](x, *rest))


def start(leaves: Sequence[Leaf], along: Sequence[Any] | None = None, far: float = 0.0) -> list[np.ndarray]:
    """The leaves, as changed copies, moved by `far` along a direction."""
    made = [np.array(leaf.numbers, leaf.dtype) for leaf in leaves]
    return (
        made
        if along is None
        else [a + far * d if leaf.grad else a for a, d, leaf in zip(made, along, leaves, strict=True)]
    )


def write_and_compare(draw: Callable[[Any], Any], ours: Any, length: int = 6) -> Program:
    """Write a program beside NumPy's run; raises AssertionError, with the program, where ours differs."""
    w = Writer(draw, shape=lambda v: v.shape, dtype=lambda v: str(v.dtype), known=known, dtypes=DTYPES)
    program = Program([w.leaf() for _ in range(draw(st.integers(1, 2)))])
    # a program works on copies: leaves may not be changed in place
    program.steps = [Step("function", "clone", (Ref(i),)) for i in range(len(program.leaves))]
    expected, got = start(program.leaves), program.start(ours)
    for step in program.steps:
        expected.append(take(step, expected))
        got.append(step.take(ours, got))
    w.values = [None] * len(program.leaves) + expected[len(program.leaves) :]
    for _ in range(draw(st.integers(1, length))):
        step = w.step()
        if (
            step is None
            or step.no_grad
            or (step.name in CHANGES and _mixed(step, expected))
            or _numpy_only(step, expected)
        ):
            continue
        before = [None if v is None else v.copy() for v in expected]
        made = attempt(lambda: take(step, expected))  # noqa: B023
        mine = attempt(lambda: step.take(ours, got))  # noqa: B023
        if (
            isinstance(made, Exception)
            or isinstance(mine, Exception)
            or made.size > LARGEST
            or not np.isfinite(made).all()
            or np.abs(made).max(initial=0) > 1e6
        ):
            changed = any(a is not None and not np.array_equal(a, b) for a, b in zip(before, expected, strict=True))
            assume(not changed)  # one side has written, the other may have refused to
            continue
        program.steps.append(step)
        expected.append(made)
        got.append(mine)
        w.values.append(made)
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            value = np.asarray(a.detach().tolist(), b.dtype).reshape(tuple(a.shape))
            assert value.shape == b.shape, program.script(f"v{i}: shape {value.shape}, expected {b.shape}")
            np.testing.assert_allclose(value, b, rtol=1e-9, atol=1e-9, err_msg=program.script(f"v{i}"))
        assert str(mine.dtype) == f"torch.{made.dtype}", program.script(f"dtype {mine.dtype}, expected {made.dtype}")
        assert mine.stride() == tuple(s // made.itemsize for s in made.strides) or step.name not in VIEWS or made.size < 2 or 1 in made.shape or (
            not np.shares_memory(made, expected[step.args[0].place])
        ), program.script(f"strides {mine.stride()}")  # fmt: skip
    slope(program, ours, got, expected)
    return program


def _mixed(step: Step, values: Sequence[Any]) -> bool:
    """Operands of several dtypes: NumPy's arithmetic and PyTorch's differ for 0-dim ones, and in-place casts are refused by rules of their own."""
    return any(isinstance(a, Ref) and values[a.place].dtype != values[step.args[0].place].dtype for a in step.args[1:])


def _numpy_only(step: Step, values: Sequence[Any]) -> bool:
    """Where NumPy's rule is another one: 0-dim arrays of another dtype promote, numbers too; some index rules."""
    places = [a.place for a in step.args if isinstance(a, Ref)]
    dtypes = {values[p].dtype for p in places}
    if step.kind == "store":
        return (
            len(dtypes) > 1 or any(isinstance(a, (list, Name)) for a in step.args) or not isinstance(step.args[2], Ref)
        )
    if step.name == "to":
        return any(d.kind == "c" for d in dtypes) or step.args[1].text == "int8"
    if (
        len(dtypes) > 1
        or "int8" in {str(d) for d in dtypes}
        and any(not isinstance(a, Ref) for a in step.args[1:])
        and step.name in (*FUNCTIONS, *CHANGES)
    ):
        return True
    weak = {int: "ifc", bool: "bifc", float: "fc", list: "bifc", tuple: "bifc"}
    numbers = [a for a in step.args[1:] if type(a) in (int, bool, float)]
    if step.name in FLOATS and any(d.kind == "b" or d.name == "int8" for d in dtypes):
        return True  # float16 there
    joined = step.name in FUNCTIONS or step.name in CHANGES
    return joined and any(dtype.kind not in weak[type(n)] for dtype in dtypes for n in numbers) or (
        step.name in INTO and any(d.kind in "b" or d.name == "int8" for d in dtypes)
    )  # fmt: skip


def slope(program: Program, ours: Any, got: list[Any], expected: list[Any]) -> None:
    """The gradient of half the sum of squares, along one direction, beside central differences."""
    wanted = [i for i, leaf in enumerate(program.leaves) if leaf.grad]
    seeds = [i for i, v in enumerate(got) if v.requires_grad and i >= len(program.leaves)]
    if not wanted or not seeds or any(np.abs(expected[i]).max(initial=0) > 1e3 for i in seeds):
        return
    program.ending, program.seeds = "backward", seeds
    grads = attempt(lambda: program.finish(ours, got))
    if isinstance(grads, RuntimeError):  # something saved was changed: PyTorch's rule, not NumPy's
        assert "inplace" in str(grads), program.script(str(grads))
        return
    if isinstance(grads, Exception):
        raise grads
    rng = np.random.default_rng(0)
    along = [rng.normal(size=np.shape(leaf.numbers)) for leaf in program.leaves]

    def total(far: float) -> float:
        values = start(program.leaves, along, far)
        for step in program.steps:
            values.append(take(step, values))
        return sum(float((np.abs(values[i]) ** 2).sum()) for i in seeds) / 2

    here = sum(
        float((np.asarray(grads[i].tolist()) * along[i]).real.sum())
        for i in wanted
        if grads[i] is not None and grads[i].numel()
    )
    found = [(total(h) - total(-h)) / (2 * h) for h in (1e-5, 2e-5)]
    if not math.isclose(found[0], found[1], rel_tol=1e-3, abs_tol=1e-3):
        return  # an edge lies between: no slope to compare with
    assert math.isclose(here, found[0], rel_tol=1e-3, abs_tol=1e-3), program.script(
        f"slope {here}, expected {found[0]}"
    )
