"""Sums with a factor are rounded once, as in PyTorch's vector code: steps written by hand give its numbers to the last bit.

Where PyTorch takes several steps in a half type, each of them is rounded here too."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._prims import PRIMITIVES

CALLS = {
    "add": lambda a, b, c: a.add(b, alpha=-0.03),
    "sub": lambda a, b, c: a.sub(b, alpha=0.7),
    "addcmul": lambda a, b, c: a.addcmul(b, c, value=0.3),
    "lerp": lambda a, b, c: a.lerp(b, 0.95),
    "lerp_near": lambda a, b, c: a.lerp(b, 0.05),
    "lerp_tensor": lambda a, b, c: a.lerp(b, c),
}


def numbers(dtype: str) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=200).astype(dtype) for _ in range(3)]


def exact(name: str, dtype: str) -> Any:
    """The call in rational numbers, rounded where PyTorch's kernels round."""
    kind = np.dtype(dtype).type
    to = lambda v: Fraction(float(v))
    out = []
    for a, b, c in zip(*numbers(dtype), strict=True):
        if name == "add":
            value = to(a) + to(kind(-0.03)) * to(b)
        elif name == "sub":
            value = to(a) - to(kind(0.7)) * to(b)
        elif name == "addcmul":
            value = to(a) + to(kind(0.3) * b) * to(c)
        else:
            w = {"lerp": kind(0.95), "lerp_near": kind(0.05)}.get(name, c)
            value = to(a) + to(w) * to(b - a) if abs(w) < 0.5 else to(b) + to(w - kind(1)) * to(b - a)
        out.append(np.float32(float(value)) if dtype == "float32" else float(value))
    return np.array(out, dtype)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exactly(name: str, dtype: str) -> None:
    a, b, c = (torch.from_numpy(x.copy()) for x in numbers(dtype))
    # The product is 1 + 2**-11 + 2**-24; rounded by itself it loses its last term.
    machine_has_fma = (
        torch.add(torch.tensor(-1.0 - 2**-11), torch.tensor(1.0 + 2**-12), alpha=1.0 + 2**-12).item() != 0.0
    )
    found = CALLS[name](a, b, c).numpy()
    if machine_has_fma:  # else products are rounded by themselves
        np.testing.assert_array_equal(found, exact(name, dtype))
    np.testing.assert_allclose(found, exact(name, dtype), rtol=1e-5, atol=1e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_as_pytorch(name: str, dtype: str) -> None:
    real = pytest.importorskip("torch")
    values = [
        x[:192] for x in numbers("float64")
    ]  # whole vectors: the rest of a row of bfloat16 is rounded in another way
    theirs = CALLS[name](*[real.from_numpy(x).to(getattr(real, dtype)) for x in values])
    ours = CALLS[name](*[torch.from_numpy(x).to(getattr(torch, dtype)) for x in values])
    np.testing.assert_array_equal(ours.double().numpy(), theirs.double().numpy())


def test_the_reference_rounds_once() -> None:
    reference = PRIMITIVES["fma"].reference
    a, b = np.array([1.0 + 2.0**-30, 1e300, np.inf, 3.0]), np.array([1.0 - 2.0**-30, 1e300, 0.0, np.nan])
    c = np.array([-1.0, -np.inf, 1.0, 0.0])
    found = reference(a, b, c)
    assert found[0] == -(2.0**-60) and np.isnan(found[2:]).all()
    x = np.array([1.0 + 2.0**-12], np.float32)
    assert reference(x, np.array([1.0 - 2.0**-12], np.float32), np.array([-1.0], np.float32))[0] == np.float32(
        -(2.0**-24)
    )


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(8, 16), (16, 16), (12, 6)])
def test_newton_schulz_has_the_bits_of_pytorch(shape: tuple[int, int]) -> None:
    """Sums of bfloat16 products with another matrix: beta * input is not rounded by itself before it joins alpha * product."""
    import torch as pytorch

    if not pytorch.cpu._is_avx512_bf16_supported():
        pytest.skip("PyTorch multiplies bfloat16 in another way on this machine")

    def iterate(t: Any, x: Any) -> Any:
        x = t.tensor(x).bfloat16()
        x = x / x.norm()
        for _ in range(5):
            square = x @ x.T
            x = t.addmm(x, t.addmm(square, square, square, beta=-4.775, alpha=2.0315), x, beta=3.4445)
        return x.float().numpy()

    for seed in range(30):
        given = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(iterate(torch, given), iterate(pytorch, given))


# ***** and half types hold what takes several steps in PyTorch after each of them *****

ORDERS = (-1.0, 1.0, 1.5, 2.0, 3.0, np.inf, -np.inf)
STEPS = {
    "div": lambda t, a, b: a / b,
    "div_rows": lambda t, a, b: a / b[:, :1],
    "pow": lambda t, a, b: a.abs() ** b,
    "pow_of_number": lambda t, a, b: 2.7**a + t.pow(0.3, b),
    "pow_to_number": lambda t, a, b: a**3 + a**-2 + b.abs() ** 2.3,
    **{f"norm_{p}": lambda t, a, b, p=p: t.linalg.vector_norm(a / 64, p, 1) for p in ORDERS},
    **{
        f"normalize_{p}": lambda t, a, b, p=p: t.nn.functional.normalize(a, p) * t.nn.functional.normalize(b, p, 0)
        for p in ORDERS
    },
}


def halves(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).uniform(-9, 9, (6, 16)).astype(np.float16)


@pytest.mark.oracle
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_hold_every_step_as_pytorch(name: str, dtype: str) -> None:
    real = pytest.importorskip("torch")
    found = []
    for t in (real, torch):
        a, b = (t.from_numpy(halves(seed).astype(np.float32)).to(getattr(t, dtype)).requires_grad_() for seed in (1, 2))
        out = STEPS[name](t, a, b)
        out.backward((out.detach() * 0 + 1) * 0.75)
        found.append([out.detach().float().numpy(), *(x.grad.float().numpy() for x in (a, b) if x.grad is not None)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_gradients_of_float16_are_those_of_its_steps() -> None:
    a, b = halves(3), halves(4)
    x, y = (torch.from_numpy(v).requires_grad_() for v in (a, b))
    (x / y).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.float16(1) / b)  # NumPy rounds every step to float16
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y.grad.numpy(), -(a / b / b))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_gradient_of_a_soft_margin_is_nan_where_its_exponential_overflows(dtype: str) -> None:
    largest = np.log(np.finfo(dtype).max)
    x = torch.tensor([-largest * 1.05, -largest * 0.95, 3.0], dtype=getattr(torch, dtype), requires_grad=True)
    torch.nn.functional.soft_margin_loss(x, torch.ones(3, dtype=x.dtype), reduction="sum").backward()
    want = [np.nan, -1.0, -1.0 / (1.0 + np.exp(3.0))]
    np.testing.assert_allclose(x.grad.float().numpy(), want, rtol=2e-3 if dtype == "float16" else 1e-6)
