"""Takes a random program's steps here and in PyTorch, and says where they part."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.eager_programs import ERRORS, Name, Program, Ref, Step
from tests.eager_steps import LARGEST, Writer

# half an hour of roundings, and no more
TOLERANCE = {
    "float64": 1e-8,
    "complex128": 1e-8,
    "float32": 2e-4,
    "complex64": 2e-4,
    "float16": 2e-2,
    "complex32": 2e-2,
    "bfloat16": 1.5e-1,
}


# what is made of other operators, there or here: its last node has the name of its last part
COMPOSITE = {
    "einsum",
    "movedim",
    "diff",
    "rot90",
    "take_along_dim",
    "tile",
    "hstack",
    "@",
    "matmul",
    "kron",
    "unflatten",
    "contiguous",
}


def dtype_name(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def numbers(value: Any) -> np.ndarray:
    name = dtype_name(value)
    kind = "complex128" if name.startswith("complex") else "float64" if "float" in name else "object"
    return np.asarray(value.detach().tolist(), dtype=kind)


def same_bits(a: Any, b: Any) -> bool:
    x, y = numbers(a), numbers(b)
    return x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())


def attempt(what: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return what()
        except ERRORS as error:
            return error


class Beside:
    """One program, taken in both modules as it is written."""

    def __init__(self, ours: Any, torch: Any, kinds: bool = False) -> None:
        self.ours, self.torch, self.kinds = ours, torch, kinds
        self.on_cpu = ours.get_default_device().type == "cpu"
        self.got: list[Any] = []
        self.expected: list[Any] = []
        self.scale = 1.0
        self.loosest = 0.0

    def same(self, place: int) -> bool:
        return same_bits(self.got[place], self.expected[place])

    def start(self, program: Program) -> None:
        self.program = program
        self.got, self.expected = program.start(self.ours), program.start(self.torch)
        for a, b in zip(self.got, self.expected, strict=True):
            self.compare(a, b, "a leaf")

    def take(self, step: Step) -> bool:
        """Take a step in both; false where both refuse it."""
        program = self.program
        program.steps.append(step)
        expected = attempt(lambda: step.take(self.torch, self.expected))
        if not isinstance(expected, (Exception, self.torch.Tensor, type(None))):
            expected = None
        if not self.on_cpu and isinstance(expected, Exception) and "out of" in str(expected):
            program.steps.pop()  # an index that only a device sees ends its context
            return False
        got = attempt(lambda: step.take(self.ours, self.got))
        if isinstance(expected, Exception) or isinstance(got, Exception):
            if isinstance(got, Exception) and type(got) is type(expected):
                program.steps.pop()
                return False
            if isinstance(got, Exception) and type(got) is NotImplementedError and isinstance(expected, Exception):
                program.steps.pop()
                return False
            self.fail(f"expected {told(expected)}\n     got {told(got)}", got)
        if (got is None) != (expected is None) and isinstance(expected, self.torch.Tensor):
            self.fail(f"expected {told(expected)}\n     got {told(got)}", got)
        big = expected is not None and (expected.numel() > LARGEST or expected.layout != self.torch.strided)
        if expected is not None and not big:
            self.compare(
                got,
                expected,
                f"v{len(self.expected)}",
                inner=None
                if step.name in COMPOSITE
                else step.kind != "function" and not any(isinstance(a, Name) for a in step.args),
            )
        self.got.append(None if big or expected is None else got)
        self.expected.append(None if big else expected)
        return True

    def fail(self, why: str, cause: Any = None) -> None:
        raise AssertionError(self.program.script(why)) from (cause if isinstance(cause, Exception) else None)

    def compare(self, got: Any, expected: Any, what: str, inner: bool | None = False) -> None:
        for attribute in (
            "dtype",
            "shape",
            "requires_grad",
            "is_leaf",
            "stride",
            "_is_view",
            "storage_offset",
            "is_conj",
            "is_neg",
        ):
            a, b = getattr(got, attribute), getattr(expected, attribute)
            if callable(a):
                a, b = a(), b()
            if attribute == "dtype":
                a, b = str(a), str(b)
            if attribute == "_is_view" and not inner:  # what a composite is made of is its own business
                continue
            if attribute in ("shape", "stride"):
                a, b = tuple(a), tuple(b)
            if attribute == "stride":  # steps over one element lead nowhere
                a, b = (
                    [s for s, n in zip(v, expected.shape, strict=True) if n > 1 and expected.numel()] for v in (a, b)
                )
            if a != b:
                self.fail(f"{what}: {attribute} is {a}, expected {b}")
        if self.kinds and type(got).__name__ != type(expected).__name__:
            self.fail(f"{what}: a {type(got).__name__}, expected a {type(expected).__name__}")
        if expected.grad_fn is not None and got.grad_fn is not None:
            a, b = got.grad_fn.name(), expected.grad_fn.name()
            if a != b and inner is not None and "NotImplemented" not in b:
                self.fail(f"{what}: grad_fn is {a}, expected {b}")
        self.close(got, expected, what)

    def close(self, got: Any, expected: Any, what: str) -> None:
        x, y = numbers(got), numbers(expected)
        if x.shape != y.shape:
            self.fail(f"{what}: {x.tolist()}, expected {y.tolist()}")
        name = dtype_name(expected)
        if x.dtype == object:
            if not (x == y).all():
                self.fail(f"{what}: {x.tolist()}, expected {y.tolist()}")
            return
        self.loosest = max(self.loosest, TOLERANCE[name])
        finite = np.isfinite(y)
        if finite.any():
            self.scale = max(self.scale, float(np.abs(y[finite]).max()))
        largest = {"float16": 6e4, "float32": 1e37, "bfloat16": 1e37, "complex64": 1e18}.get(name, 1e150)
        for p, q in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True):
            if p == q or p != p and q != q:
                continue
            if isinstance(q, complex) and not (math.isfinite(q.real) and math.isfinite(q.imag)):
                continue
            if abs(q) > largest and (abs(p) > largest or p != p):
                continue
            if not abs(p - q) <= self.loosest * (abs(q) + min(self.scale, 1e4)):
                self.fail(f"{what}: {x.tolist()}, expected {y.tolist()}")

    # ***** gradients *****

    def finish(self, ending: str, seeds: list[int]) -> None:
        program = self.program
        program.ending, program.seeds = ending, seeds
        expected = attempt(lambda: program.finish(self.torch, self.expected))
        got = attempt(lambda: program.finish(self.ours, self.got))
        if isinstance(expected, Exception):
            saved = "modified by an inplace operation" in str(expected) or "second time" in str(expected)
            if not (saved and not isinstance(got, Exception)) and type(got) is not type(expected):
                self.fail(f"gradients: expected {told(expected)}\n     got {told(got)}", got)
            return
        if isinstance(got, Exception):
            self.fail(f"gradients: expected {told(expected)}\n     got {told(got)}", got)
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            if (a is None) != (b is None):
                self.fail(f"gradient {i}: {told(a)}, expected {told(b)}")
            if b is None:
                continue
            if str(a.dtype) != str(b.dtype) or tuple(a.shape) != tuple(b.shape):
                self.fail(f"gradient {i}: {told(a)}, expected {told(b)}")
            if self.torch.isfinite(b).all():
                self.close(a, b, f"gradient {i}")
        for i, (a, b) in enumerate(zip(self.got, self.expected, strict=True)):
            if b is not None:
                self.close(a, b, f"v{i} after the gradients")


def told(value: Any) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, Exception) else repr(value)


def lazy_clone(draw: Callable[[Any], Any], run: Beside) -> Step | None:
    """A step that clones an earlier value lazily; PyTorch has no gradient of complex ones."""
    places = [i for i, v in enumerate(run.expected) if v is not None and not (v.requires_grad and v.is_complex())]
    return Step("method", "_lazy_clone", (Ref(draw(st.sampled_from(places))),)) if places else None


def write_and_compare(
    draw: Callable[[Any], Any], ours: Any, torch: Any, length: int = 8, kinds: bool = False
) -> Program:
    """Write a program step by step, taking every step in both modules; with `kinds` leaves are of subclasses, and tensors are cloned lazily."""
    run = Beside(ours, torch, kinds)
    w = Writer(
        draw,
        shape=lambda v: tuple(v.shape),
        dtype=dtype_name,
        same=run.same,
        room=lambda v: v.untyped_storage().nbytes() // v.element_size(),
    )
    leaves = [w.leaf() for _ in range(draw(st.integers(1, 3)))]
    if kinds:
        leaves = [replace(leaf, kind=draw(st.sampled_from(["Quiet", "Asking", ""]))) for leaf in leaves]
    run.start(Program(leaves))
    w.values = run.expected
    for _ in range(draw(st.integers(1, length))):
        step = lazy_clone(draw, run) if kinds and draw(st.integers(0, 3)) == 0 else w.step()
        if step is not None and run.take(step):
            for i, (a, b) in enumerate(zip(run.got[:-1], run.expected[:-1], strict=True)):
                if b is not None:
                    run.compare(a, b, f"v{i} after the last step", inner=None)
    seeds = [
        i for i, v in enumerate(run.expected)
        if v is not None and v.requires_grad and v.numel() and (i >= len(run.program.leaves) or len(run.expected) == 1) and torch.isfinite(v).all() and v.abs().max() < 1e4
    ]  # fmt: skip
    if seeds:
        seeds = seeds[-1:] if draw(st.booleans()) else seeds
        run.finish(draw(st.sampled_from(["backward", "twice", "second"])), seeds)
    return run.program
