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
@pytest.mark.parametrize(
    "case",
    [
        c
        for c in steps.CASES
        if not any(w in c for w in ("differentiable", "maximize", "foreach", "loop", "SparseAdam: b"))
    ],
)
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
COMPLEX = [
    f"{name}: "
    for name in ("SGD", "Adam", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD", "LBFGS")
]


@pytest.mark.oracle
@pytest.mark.parametrize("case", COMPLEX)
def test_complex_as_pytorch(case: str) -> None:
    real = pytest.importorskip("torch")
    assert difference(run(rushlight, case, "complex128"), run(real, case, "complex128")) < 1e-6


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["Adagrad", "Adam", "Adamax", "RMSprop"])  # Adadelta ends in a complex sum too
def test_weight_decay_of_complex_parameters_has_the_bits_of_pytorchs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins complex gradients before they are seen as pairs of real numbers, whose product and sum would be rounded together."""
    real = pytest.importorskip("torch")
    monkeypatch.setattr(real.Tensor, "sqrt", lambda x: real.from_numpy(np.sqrt(x.numpy())))
    monkeypatch.setattr(real.Tensor, "sqrt_", lambda x: x.copy_(real.from_numpy(np.sqrt(x.numpy()))))
    start, target = np.random.RandomState(0).randn(2, 16, 8, 2)

    def last(t: Any) -> Any:
        param = t.nn.Parameter(t.view_as_complex(t.tensor(start, dtype=t.float32)))
        optimizer = getattr(t.optim, name)([param], lr=0.03, weight_decay=0.1)
        for _ in range(100):
            param.grad = param.detach() - t.view_as_complex(t.tensor(target, dtype=t.float32))
            optimizer.step()
        return param.detach().numpy()

    assert np.array_equal(last(rushlight), last(real))


# What does the same operations in the same order; sums of Adafactor's and products of LBFGS's are ordered otherwise.
SAME_BITS = [
    (case, dtype)
    for case in steps.CASES
    for dtype in ("float32", "float64")
    if not case.startswith(("Adafactor", "LBFGS")) and not any(way in case for way in ("differentiable", "fused"))
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
    monkeypatch.setattr(real, "_foreach_sqrt", lambda xs: [sqrt(x) for x in xs])
    monkeypatch.setattr(real, "_foreach_sqrt_", lambda xs: [x.copy_(sqrt(x)) for x in xs])
    assert np.array_equal(ours, run(real, case, dtype))


LISTS = [(name, {"foreach": True, **options}) for name, some in {
    "NAdam": [{"weight_decay": 0.1, "decoupled_weight_decay": True}, {"weight_decay": 0.1, "momentum_decay": 0.1, "maximize": True}],
    "RAdam": [{"weight_decay": 0.1, "decoupled_weight_decay": True}, {"weight_decay": 0.1, "betas": (0.8, 0.9), "maximize": True}],
    "ASGD": [{"weight_decay": 0.1, "t0": 20, "lambd": 0.01}, {"maximize": True, "lr": 0.01}],
}.items() for options in some]  # fmt: skip
# PyTorch's compiler rounds the last elements of a fused step, fewer than a vector has, otherwise than the others.
FUSED = [(name, {"fused": True, **options}) for name, some in {
    "SGD": [{}, {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}, {"momentum": 0.8, "nesterov": True, "maximize": True}],
    "Adam": [{}, {"weight_decay": 0.1, "amsgrad": True, "maximize": True}],
    "AdamW": [{}, {"weight_decay": 0.1, "amsgrad": True}],
    "Adagrad": [{}, {"weight_decay": 0.1, "lr_decay": 0.5}],
}.items() for options in some]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "options"), LISTS + FUSED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forms_for_lists_and_fused_steps_have_the_bits_of_pytorchs(
    name: str, options: dict[str, Any], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pytest.importorskip("torch")
    monkeypatch.setattr(real, "_foreach_sqrt", lambda xs: [real.from_numpy(np.sqrt(x.numpy())) for x in xs])
    start, target = np.random.RandomState(0).randn(2, 16, 8)

    def last(t: Any) -> Any:
        param = t.nn.Parameter(t.tensor(start, dtype=getattr(t, dtype)))
        optimizer = getattr(t.optim, name)([param], **{"lr": 0.03, **options})
        for _ in range(100):
            away = param.detach() - t.tensor(target, dtype=param.dtype)
            param.grad = away * (1 + away * away * 0.1) if not options.get("maximize") else away / (1 + away * away)
            optimizer.step()
        return [
            param.detach().numpy(),
            *(value.numpy() for value in optimizer.state[param].values() if value is not None),
        ]

    for ours, theirs in zip(last(rushlight), last(real), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "options", [{}, {"nesterov": False, "weight_decay": 0.0}, {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.8}]
)
@pytest.mark.parametrize("shape", [(32, 32), (48, 20), (20, 48), (16, 16)])
def test_muon_as_pytorch(shape: tuple[int, int], options: dict[str, Any]) -> None:
    """PyTorch multiplies bfloat16 matrices of up to 16 x 16 x 16 in another order, so it differs from itself beside zeros: there is one order here but for matrix tiles.

    Where its library uses matrix tiles, or has no kernel for bfloat16 (AVX2), a product in thousands differs in the last bit of bfloat16, and then
    all steps after it.
    """
    real = pytest.importorskip("torch")
    start, target = np.random.RandomState(3).randn(2, *shape)
    if shape == (16, 16):
        start, target = (np.pad(x, ((0, 16), (0, 16))) for x in (start, target))

    def last(t: Any) -> Any:
        param = t.nn.Parameter(t.tensor(start, dtype=t.float32))
        optimizer = t.optim.Muon([param], lr=0.03, **options)
        for _ in range(100):
            away = param.detach() - t.tensor(target, dtype=param.dtype)
            param.grad = away * (1 + away * away * 0.1)
            optimizer.step()
        return param.detach().numpy()

    ours, tiles = last(rushlight), real.cpu._is_amx_tile_supported()
    alike = not tiles and real.backends.cpu.get_cpu_capability() == "AVX512"
    assert difference(ours, last(real)) < (1e-6 if alike else 2**-7)
    if shape == (16, 16) and "adjust_lr_fn" not in options:
        start, target = start[:16, :16], target[:16, :16]
        alone = last(rushlight)
        assert difference(alone, ours[:16, :16]) < 2**-7 if tiles else np.array_equal(alone, ours[:16, :16])
