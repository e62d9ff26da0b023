"""Linear algebra beside PyTorch: shapes, dtypes, strides, values that are unique, messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rushlight  # noqa: E402

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore::UserWarning")]

RNG = np.random.default_rng(11)
LEAD: list[tuple[int, ...]] = [(), (2,)]


def pair(*shape: int, dtype: str) -> tuple[Any, Any]:
    x = RNG.standard_normal(shape)
    x = (x + 1j * RNG.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)
    return torch.from_numpy(x), rushlight.from_numpy(x.copy())


def calls(library: Any, a: Any, tall: Any, b: Any, tau: Any) -> list[tuple[str, Any]]:
    linalg = library.linalg
    s = a @ a.mH + library.eye(3, dtype=a.dtype)
    lu = linalg.lu_factor(a)
    return [
        ("cholesky", linalg.cholesky(s, upper=True)),
        ("cholesky_inverse", library.cholesky_inverse(linalg.cholesky(s))),
        ("cholesky_solve", library.cholesky_solve(b, linalg.cholesky(s))),
        ("inv_ex", linalg.inv_ex(a)),
        ("solve", linalg.solve(a, b)),
        ("solve right", linalg.solve(a, b.mT, left=False)),
        ("solve vectors", linalg.solve(a, b[..., 0])),
        ("solve_triangular", linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True)),
        ("triangular_solve", library.triangular_solve(b, a, True, True)),
        ("lu_factor", lu),
        ("lu", linalg.lu(tall)),
        ("lu_solve", linalg.lu_solve(*lu, b.mT, left=False, adjoint=True)),
        ("lu_unpack", library.lu_unpack(*lu)),
        ("ldl_factor_ex", linalg.ldl_factor_ex(s, hermitian=True)),
        ("ldl_solve", linalg.ldl_solve(*linalg.ldl_factor(s), b)),
        ("householder_product", linalg.householder_product(tall, tau)),
        ("ormqr", library.ormqr(tall, tau, tall, transpose=True)),
        ("eigvalsh", linalg.eigvalsh(s, "U")),
        ("svdvals", linalg.svdvals(tall)),
        ("pinv", linalg.pinv(tall)),
        ("pinv hermitian", linalg.pinv(s, hermitian=True, atol=0.5)),
        ("matrix_rank", linalg.matrix_rank(tall, tol=1.0)),
        ("det", linalg.det(a)),
        ("slogdet", linalg.slogdet(a)),
        ("logdet", library.logdet(s)),
        ("cond", linalg.cond(a, 1)),
        ("lstsq", linalg.lstsq(tall, tall[..., :1] ** 2, driver="gelss")),
        ("matrix_exp", linalg.matrix_exp(a)),
        ("matrix_power", linalg.matrix_power(a, -3)),
        ("vander", linalg.vander(tau)),
    ]


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("lead", LEAD, ids=str)
def test_results_and_their_layout(lead: tuple[int, ...], dtype: str) -> None:
    given = [pair(*lead, *shape, dtype=dtype) for shape in ((3, 3), (4, 3), (3, 2), (3,))]
    theirs, ours = (calls(library, *(p[k] for p in given)) for k, library in enumerate((torch, rushlight)))
    for (name, want), (_, got) in zip(theirs, ours, strict=True):
        wants, gots = ([x] if hasattr(x, "stride") else list(x) for x in (want, got))
        assert len(wants) == len(gots)
        assert type(want).__name__ == type(got).__name__, name
        for w, g in zip(wants, gots, strict=True):
            assert (tuple(w.shape), w.stride(), str(w.dtype)) == (
                tuple(g.shape),
                g.stride(),
                str(g.dtype).replace("rushlight", "torch"),
            ), name
            w, g = w.resolve_conj(), g.resolve_conj()
            tolerance = 1e-3 if dtype == "complex64" else 1e-9
            scale = float(np.abs(w.numpy()).max()) if w.numel() else 1.0
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=tolerance, atol=tolerance * scale, err_msg=name)


def test_messages() -> None:
    def failure(library: Any, call: Any) -> tuple[str, str]:
        try:
            call(library, library.linalg)
        except Exception as error:
            return type(error).__name__, str(error)
        return "", ""

    for call in (
        lambda t, L: L.inv(t.zeros(2, 2)),
        lambda t, L: L.cholesky(t.stack([t.eye(2), -t.eye(2)])),
        lambda t, L: L.solve(t.zeros(1, 2, 2), t.ones(2, 2)),
        lambda t, L: L.solve(t.eye(2), t.ones(3, 3), left=False),
        lambda t, L: L.lu_factor(t.ones(3)),
        lambda t, L: L.lu_solve(t.eye(2), t.ones(2, dtype=t.int64), t.eye(2)),
        lambda t, L: L.ldl_factor(t.ones(2, 3)),
        lambda t, L: L.ldl_solve(t.eye(2), t.ones(1, dtype=t.int32), t.eye(2)),
        lambda t, L: L.eigvals(t.ones(2, 3)),
        lambda t, L: L.svd(t.ones(3)),
        lambda t, L: L.pinv(t.ones(2, 2, dtype=t.int64)),
        lambda t, L: t.ormqr(t.eye(2), t.ones(3), t.eye(2)),
        lambda t, L: t.orgqr(t.eye(2), t.ones(2, dtype=t.float64)),
        lambda t, L: t.lu_unpack(t.eye(2), t.ones(2, dtype=t.int64)),
        lambda t, L: t.cholesky_solve(t.ones(3, 2), t.eye(2)),
        lambda t, L: t.triangular_solve(t.ones(2), t.eye(2)),
        lambda t, L: L.qr(t.eye(2), "x"),
        lambda t, L: L.vander(t.ones(2, dtype=t.bool)),
    ):  # fmt: skip
        assert failure(rushlight, call) == failure(torch, call)
