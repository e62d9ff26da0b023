"""Factorisations of the CUDA backend: kernels by the reference interpreter, against NumPy and the primitives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.emulated import outcomes_of
from tests.cuda.running import close, primitive

from rushlight._backends.cuda.linalg import blocked
from rushlight._prims import PRIMITIVES
from rushlight._prims.linalg.factor import positive
from rushlight._prims.samples import any_dtype, floats


@pytest.mark.parametrize("name", ["cholesky", "lu", "triangular_solve", "permutation"])
def test_samples(name: str) -> None:
    for arrays, params in PRIMITIVES[name].samples():
        if not all(a.size for a in arrays) or arrays[0].dtype.kind == "c":
            continue
        expected = PRIMITIVES[name].reference(*arrays, **params)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for mine, right in zip(primitive(name, arrays, params), expected, strict=True):
            close(mine, right)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_larger_ones(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a = positive((2, 20, 20), dtype)
    close(primitive("cholesky", [a], {})[0], np.linalg.cholesky(a.astype(float)).astype(dtype))
    x = any_dtype((3, 20, 13), dtype, 4)
    for mine, right in zip(primitive("lu", [x], {}), PRIMITIVES["lu"].reference(x), strict=True):
        close(mine, right)
    monkeypatch.setattr(blocked, "LARGEST", 8)
    lower, info = primitive("cholesky", [a], {})
    close(lower, np.linalg.cholesky(a.astype(float)).astype(dtype))
    assert (info == 0).all()
    right = any_dtype((2, 20, 33), dtype, 5)
    triangle = (any_dtype((2, 20, 20), dtype, 6) + 9 * np.eye(20)).astype(dtype)
    for upper in (False, True):
        for unit in (False, True):
            params = {"upper": upper, "unit": unit}
            scaled = triangle / 9 if unit else triangle
            (found,) = primitive("triangular_solve", [scaled.astype(dtype), right], params)
            close(found, PRIMITIVES["triangular_solve"].reference(scaled.astype(dtype), right, **params), "float32")


def test_matrices_that_have_no_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    a = positive((2, 20, 20))
    a[0, 13, 13] = -1.0
    for size in (64, 8):
        monkeypatch.setattr(blocked, "LARGEST", size)
        assert primitive("cholesky", [a], {})[1].tolist() == [14, 0]
    singular: Any = floats((4, 4), 1)
    singular[:, 2] = singular[:, 0] + singular[:, 1]
    singular[3], singular[:, 3] = 0.0, 0.0
    found = primitive("lu", [singular], {})
    for mine, right in zip(found[1:], PRIMITIVES["lu"].reference(singular)[1:], strict=True):
        assert mine.tolist() == right.tolist()


CASES = {
    name: f"same(torch.linalg.{text})"
    for name, text in {
        "svd": "svd, a", "qr": "qr, a", "eigh": "eigh, spd", "eigvals": "eigvals, a", "inverse": "inv, a", "solve": "solve, a, a",
        "complex": "cholesky, spd.to(torch.complex128)", "determinant": "det, a", "ldl": "ldl_factor, spd",
    }.items()
}  # fmt: skip
PRELUDE = """
import rushlight as torch
torch.manual_seed(0)
a = torch.randn(2, 5, 5, dtype=torch.float64)
spd = a @ a.mT + torch.eye(5, dtype=torch.float64)
def same(f, *xs):
    mine, theirs = f(*[x.cuda() for x in xs]), f(*xs)
    for a, b in zip(*[v if isinstance(v, tuple) else (v,) for v in (mine, theirs)], strict=True):
        assert a.device.type == "cuda"
        torch.testing.assert_close(a.cpu(), b)
"""
CASES["least squares"] = """
for shape, more in (((2, 7, 4), (2, 7, 3)), ((2, 4, 7), (2, 4, 3)), ((5, 5), (5,)), ((3, 1, 6, 2), (2, 6, 1)), ((0, 3), (0, 2)), ((3, 0), (3, 2))):
    for dtype in (torch.float64, torch.complex128):
        x, y = torch.randn(shape, dtype=dtype), torch.randn(more, dtype=dtype)
        mine, theirs = ([v.to(device).requires_grad_() for v in (x, y)] for device in ("cuda", "cpu"))
        found, expected = torch.linalg.lstsq(*mine), torch.linalg.lstsq(*theirs, driver="gels")
        for a, b in zip(found, expected, strict=True):
            assert a.is_cuda
            torch.testing.assert_close(a.cpu(), b)
        for result in (found, expected):
            weights = torch.arange(1.0, 1 + result.solution.numel(), dtype=torch.float64).reshape(result.solution.shape)
            (result.solution * weights.to(result.solution.device)).sum().abs().backward()
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a.grad.cpu(), b.grad)
text = str(torch.explain(torch.linalg.lstsq)(x.new_ones(70, 3).cuda().real, x.new_ones(70, 2).cuda().real))
assert "triangular_solve" in text and "least_squares" not in text, text
"""
CASES["drivers of least squares"] = """
x = torch.ones(3, 2, device="cuda")
for driver in ("gelsy", "gelsd", "gelss"):
    try:
        torch.linalg.lstsq(x, x, driver=driver)
    except RuntimeError as error:
        assert str(error) == "torch.linalg.lstsq: parameter `driver` should be one of (gels)", error
    else:
        raise AssertionError(driver)
"""
CASES["what explain says"] = 'assert "eigh, by the host" in str(torch.explain(torch.linalg.eigh)(spd.cuda()).kernels)'


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return outcomes_of(PRELUDE, CASES, RUSHLIGHT_CUDA_PROGRAMS="kernels")


@pytest.mark.cuda
@pytest.mark.parametrize("name", CASES)
def test_on_an_emulated_gpu(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == ""
