"""A few extreme eigenpairs of large symmetric matrices, from products with the matrix alone.

Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate gradient method" (2001).  The basis of
each step is made orthonormal before the small problem in it is solved (Hetmaniuk, Lehoucq, "Basis selection in LOBPCG", 2006).
"""

from __future__ import annotations

from typing import Any

from rushlight._engine.autograd.function import Function
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import no_grad
from rushlight._surface.registry import SPACES, composite

__all__: list[str] = []

T = SPACES["torch"]
L = SPACES["linalg"]
_TOLERANCES = {"float32": 1.2e-07**0.5, "float64": 2.23e-16**0.5}
_STEPS = 1000  # when the caller sets no limit


def _orthonormal(S: Any, B: Any) -> Any:
    """An orthonormal basis (in the inner product of B) of the columns' span; directions lost in rounding are dropped."""
    for _ in range(2):
        lengths = T["sqrt"]((S * (S if B is None else B @ S)).sum(0))
        S = S[:, lengths > 0] / lengths[lengths > 0]
        if not S.shape[1]:
            return S
        gram = S.mT @ (S if B is None else B @ S)
        values, vectors = L["eigh"](gram)
        keep = values > values[-1] * 1e-14 if S._spec.dtype.itemsize == 8 else values > values[-1] * 1e-6
        S = S @ (vectors[:, keep] / T["sqrt"](values[keep]))
    return S


def _ritz(A: Any, S: Any, count: int, largest: bool) -> tuple[Any, Any]:
    """The best eigenvalues within the span of S, best first, and their coordinates."""
    values, vectors = L["eigh"](S.mT @ (A @ S))
    if largest:
        values, vectors = values.flip(0), vectors.flip(1)
    return values[:count], vectors[:, :count]


def _search(A: Any, B: Any, X: Any, k: int, iK: Any, niter: int, tol: float, largest: bool) -> tuple[Any, Any]:
    scale_a, scale_b = (1.0 if M is None else float(T["norm"](M @ X) / T["norm"](X)) for M in (A, B))
    n, P = X.shape[-1], None
    X = _orthonormal(X, B)
    values, Z = _ritz(A, X, n, largest)
    X = X @ Z
    for _ in range(niter):
        BX = X if B is None else B @ X
        R = A @ X - BX * values
        errors = T["norm"](R, dim=0) / (T["norm"](X, dim=0) * (scale_a + values.abs() * scale_b))
        if bool((errors[:k] < tol).all()):
            break
        W = R if iK is None else iK @ R
        more = W if P is None else T["cat"]([W, P], 1)
        more = more - X @ (X.mT @ (more if B is None else B @ more))
        S = T["cat"]([X, _orthonormal(more, B)], 1)
        values, Z = _ritz(A, S, n, largest)
        P = S[:, n:] @ Z[n:]
        X = _orthonormal(S @ Z, B)
        values, Z = _ritz(A, X, n, largest)
        X = X @ Z
    return values[:k], X[:, :k]


class LOBPCGAutogradFunction(Function):
    """Eigenpairs of symmetric A; backward solves one system for each pair."""

    @staticmethod
    def forward(ctx: Any, A: Any, k: int, B: Any, X: Any, iK: Any, niter: int, tol: float, largest: bool) -> Any:
        symmetric = (A + A.mT) * 0.5
        if A.dim() == 2:
            values, vectors = _search(symmetric, B, X, k, iK, niter, tol, largest)
        else:
            found = []
            for place in range(symmetric.reshape(-1, *A.shape[-2:]).shape[0]):
                parts = [None if M is None else M.reshape(-1, *M.shape[-2:]) for M in (symmetric, B, X, iK)]
                a, b, x, preconditioner = (None if M is None else M[place % M.shape[0]] for M in parts)
                found.append(_search(a, b, x, k, preconditioner, niter, tol, largest))
            values = T["stack"]([v for v, _ in found]).reshape(*A.shape[:-2], k)
            vectors = T["stack"]([v for _, v in found]).reshape(*A.shape[:-1], k)
        ctx.save_for_backward(symmetric, values, vectors)
        ctx.general = B is not None
        return values, vectors

    @staticmethod
    def backward(ctx: Any, to_values: Any, to_vectors: Any) -> Any:
        if ctx.general:
            raise ValueError("lobpcg.backward does not support backward with B != I yet.")
        A, values, U = ctx.saved_tensors
        eye = T["eye"](A.shape[-1], dtype=A.dtype, device=A.device)
        k_eye = T["eye"](values.shape[-1], dtype=A.dtype, device=A.device)
        gaps = values.unsqueeze(-2) - values.unsqueeze(-1) + k_eye
        inner = T["diag_embed"](to_values) + (U.mT @ to_vectors) * (1 - k_eye) / gaps
        outside = eye - U @ U.mT
        systems = values[..., None, None] * eye - A.unsqueeze(-3)
        systems = outside.unsqueeze(-3) @ systems @ outside.unsqueeze(-3) + (U @ U.mT).unsqueeze(-3)
        turned = L["solve"](systems, (outside @ to_vectors).mT.unsqueeze(-1)).squeeze(-1).mT
        found = U @ inner @ U.mT + turned @ U.mT
        return (found + found.mT) * 0.5, None, None, None, None, None, None, None


@composite("lobpcg")
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """(values [*, k], vectors [*, m, k]): the k largest (or smallest) eigenpairs of A x = lambda B x, A symmetric and B positive definite [*, m, m].

    `X` [*, m, n] is where the search starts (random by default), `iK` a preconditioner, `tol` the relative residual to reach.

    >>> import rushlight as torch
    >>> values, vectors = torch.lobpcg(torch.diag(torch.arange(1.0, 10.0)), k=1)
    >>> f"{values.item():.3f}"
    '9.000'
    """
    assert A.shape[-2] == A.shape[-1], f"A must be square, got shape {A.shape}"
    if tracker is not None:
        raise NotImplementedError("lobpcg with a tracker")
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if n is None else n) if X is None else X.shape[-1]
    if m < 3 * n:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of requested eigenpairs (={n})"
        )
    with no_grad():
        start = T["randn"]((*A.shape[:-1], n), dtype=A.dtype, device=A.device) if X is None else X
    limit = _STEPS if niter is None or niter < 0 else niter
    bound = _TOLERANCES[A._spec.dtype.name] if tol is None else tol
    found = LOBPCGAutogradFunction.apply(A, min(k, n), B, start, iK, limit, bound, True if largest is None else largest)
    return found
