"""Masked reductions against the same reductions of the elements that count."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6))
MASK = RNG.integers(0, 2, (4, 6)).astype(bool)
MASK[:, 0] = True


@pytest.mark.parametrize(
    ("name", "function"), [("sum", np.sum), ("prod", np.prod), ("amax", np.max), ("amin", np.min), ("mean", np.mean)]
)
def test_rows_count_only_what_the_mask_lets_through(name: str, function: object) -> None:
    found = getattr(torch.masked, name)(torch.from_numpy(X), 1, mask=torch.from_numpy(MASK)).numpy()
    wanted = [function(row[keep]) for row, keep in zip(X, MASK, strict=True)]  # type: ignore[operator]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_variance_and_softmax() -> None:
    x, mask = torch.from_numpy(X), torch.from_numpy(MASK)
    np.testing.assert_allclose(
        torch.masked.var(x, 1, False, mask=mask).numpy(), [r[k].var() for r, k in zip(X, MASK, strict=True)], rtol=1e-12
    )
    chances = torch.masked.softmax(x, 1, mask=mask).numpy()
    assert (chances[~MASK] == 0).all()
    np.testing.assert_allclose(chances.sum(1), 1.0)


def test_median_of_whole_numbers_stays_whole() -> None:
    x, mask = (
        torch.tensor([[5, 1, 7, 2**60 + 1], [9, 8, 3, 4]]),
        torch.tensor([[True, False, True, True], [True, True, False, False]]),
    )
    found = torch.masked.median(x, 1, mask=mask)
    assert found.dtype is torch.int64 and found.tolist() == [7, 8]
    assert torch.masked.median(x, 1, keepdim=True, mask=mask).shape == (2, 1)
    assert torch.masked.median(x[0, :3], 0).tolist() == 5


def test_whole_numbers_want_a_dtype() -> None:
    x = torch.tensor([1, 2])
    for name in ("softmax", "log_softmax", "softmin"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(torch.masked, name)(x, 0)
        assert getattr(torch.masked, name)(x, 0, dtype=torch.float32).dtype is torch.float32
    with pytest.raises(ValueError, match="mean"):
        torch.masked.mean(x)
    with pytest.raises(NotImplementedError, match="cumsum"):
        torch.masked.cumsum(x > 1, 0)


def test_gradient_reaches_only_what_counts() -> None:
    x = torch.from_numpy(X).requires_grad_()
    torch.masked.mean(x, mask=torch.from_numpy(MASK)).backward()
    np.testing.assert_allclose(x.grad.numpy(), MASK / MASK.sum())


def test_windows_as_scipy() -> None:
    windows = pytest.importorskip("scipy.signal").windows
    for name, more, theirs in [
        ("hann", {}, ()), ("hamming", {}, ()), ("blackman", {}, ()), ("bartlett", {}, ()), ("cosine", {}, ()), ("nuttall", {}, ()),
        ("gaussian", {"std": 2.0}, (2.0,)), ("kaiser", {"beta": 5.0}, (5.0,)), ("exponential", {"tau": 2.0}, (None, 2.0)),
    ]:  # fmt: skip
        for sym in (True, False):
            found = getattr(torch.signal.windows, name)(9, sym=sym, dtype=torch.float64, **more).numpy()
            np.testing.assert_allclose(
                found, getattr(windows, name)(9, *theirs, sym=sym), rtol=1e-12, atol=1e-12, err_msg=name
            )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kaiser_is_computed_in_its_dtype(dtype: str) -> None:
    for beta, M in ((0.0, 4), (6.0, 33), (85.0, 64), (150.0, 64)):
        across = np.linspace(-beta, beta, M).astype(dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            height = np.i0(np.sqrt(np.maximum(np.asarray(beta, dtype) ** 2 - across**2, 0)).astype("float64")).astype(
                dtype
            )
            expected = height / np.i0(beta).astype(dtype)
        found = torch.signal.windows.kaiser(M, beta=beta, dtype=getattr(torch, dtype)).numpy()
        assert np.isnan(found).any() == (beta > 91 and dtype == "float32")  # inf / inf
        np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "float32"])
def test_logsumexp_of_what_counts(dtype: str) -> None:
    x, mask = np.array([[3, 1, 2], [0, 5, 7]], dtype), np.array([[True, False, True], [False, True, False]])
    rest = (
        0.0 if dtype == "uint8" else -np.inf if dtype == "float32" else float(np.iinfo(dtype).min)
    )  # PyTorch's identity: the dtype's least
    expected = np.log(np.exp(np.where(mask, x, rest).astype("float64")).sum(1))
    found = torch.masked.logsumexp(torch.from_numpy(x), 1, mask=torch.from_numpy(mask), dtype=torch.float32)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    with pytest.raises(NotImplementedError, match="bool"):
        torch.masked.logsumexp(torch.from_numpy(mask), 1, mask=torch.from_numpy(mask))
