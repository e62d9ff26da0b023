"""A hundred steps of every optimizer give PyTorch's parameters; see `steps.py`."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from tests.optim import steps

import rushlight

EXPECTED: dict[str, list[float]] = json.loads(steps.FILE.read_text())


def run(t: Any, case: str, dtype: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.concatenate([np.array(row) for row in steps.run(t, case, dtype)])


def difference(found: Any, expected: Any) -> float:
    """The greatest error relative to the parameters."""
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))


def test_every_case_is_stored() -> None:
    assert list(EXPECTED) == steps.CASES


@pytest.mark.parametrize("case", steps.CASES)
def test_stored(case: str) -> None:
    assert difference(run(rushlight, case, "float64"), np.array(EXPECTED[case])) < 1e-6


@pytest.mark.oracle
@pytest.mark.parametrize("case", [c for c in steps.CASES if not any(w in c for w in ("differentiable", "maximize", "foreach", "loop", "SparseAdam: b"))])
def test_float32_as_pytorch(case: str) -> None:
    real = pytest.importorskip("torch")
    assert difference(run(rushlight, case, "float32"), run(real, case, "float32")) < 1e-6


@pytest.mark.oracle
@pytest.mark.parametrize("case", ["ASGD: foreach", "Adafactor: tensor lr"])
def test_float64_with_what_is_float32(case: str) -> None:
    """Rates that PyTorch computes with tensors of float32, for parameters of float64."""
    real = pytest.importorskip("torch")
    assert difference(run(rushlight, case, "float64"), run(real, case, "float64")) < 1e-12


# Complex parameters are pairs of real ones; these optimizers take them.
COMPLEX = [f"{name}: " for name in ("SGD", "Adam", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD", "LBFGS")]


@pytest.mark.oracle
@pytest.mark.parametrize("case", COMPLEX)
def test_complex_as_pytorch(case: str) -> None:
    real = pytest.importorskip("torch")
    assert difference(run(rushlight, case, "complex128"), run(real, case, "complex128")) < 1e-6


# What does the same operations in the same order; sums of Adafactor's and products of LBFGS's are ordered otherwise.
SAME_BITS = [
    (case, dtype)
    for case in steps.CASES
    for dtype in ("float32", "float64")
    if not case.startswith(("Adafactor", "LBFGS")) and not any(way in case for way in ("differentiable", "foreach", "fused"))
    if "tensor betas" not in case or dtype == "float32"  # their powers, in float32, may be an ulp apart
]


@pytest.mark.oracle
@pytest.mark.parametrize(("case", "dtype"), SAME_BITS)
def test_the_bits_of_pytorch(case: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a hundred steps, hyper-parameters in tensors included, once PyTorch's square root is rounded correctly: MKL's is up to an ulp off."""
    real = pytest.importorskip("torch")
    ours = run(rushlight, case, dtype)

    def sqrt(x: Any) -> Any:
        return real.from_numpy(np.asarray(np.sqrt(x.detach().numpy())))

    monkeypatch.setattr(real.Tensor, "sqrt", sqrt)
    monkeypatch.setattr(real.Tensor, "sqrt_", lambda x: x.copy_(sqrt(x)))
    assert np.array_equal(ours, run(real, case, dtype))
