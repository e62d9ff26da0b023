"""Calls of linear algebra.  Matrices with required properties are given element by element."""

from __future__ import annotations

from rushlight._ops.samples import (
    Call,
    Draw,
    give,
    recurrent,  # noqa: F401  (a table of its own)
)
from rushlight._types.dtype import COMPLEX128, INT32

__all__: list[str] = []

A = Draw(3, 3)
PAIR = Draw(2, 3, 3)
COMPLEX = Draw(3, 3, dtype=COMPLEX128)
TALL = Draw(4, 3)
WIDE = Draw(2, 3, 4)
# Fixed numbers are not tried as complex ones: the phase of vectors would change
REAL = Draw(3, 3, values=[1.5, -0.5, 0.25, 0.75, -1.0, 0.5, 0.1, 0.3, 2.0])
REAL_TALL = Draw(4, 3, values=[1.5, -0.5, 0.25, 0.75, -1.0, 0.5, 0.1, 0.3, 2.0, -0.4, 0.6, 0.2])
REAL_WIDE = Draw(2, 3, values=[1.5, -0.5, 0.25, 0.75, -1.0, 0.5])
NONE = Draw(2, 0, 0)
B = Draw(3, 2)
POSITIVE = Draw(3, 3, values=[4.0, 1.0, -0.5, 1.0, 3.0, 0.25, -0.5, 0.25, 2.0])
HERMITIAN = Draw(2, 2, dtype=COMPLEX128, values=[4.0, 1 - 2j, 1 + 2j, 3.0])
LOWER = Draw(3, 3, values=[2.0, 0.0, 0.0, 0.5, 1.5, 0.0, -0.25, 0.75, 1.0])
UPPER = Draw(3, 3, values=[2.0, 0.5, -0.25, 0.0, 1.5, 0.75, 0.0, 0.0, 1.0])
BOTH = Draw(3, 3, values=[2.0, 0.5, -0.25, 0.5, 1.5, 0.75, -0.25, 0.3, 1.0])
PIVOTS = Draw(3, dtype=INT32, values=[2, 3, 3])
REAL_EIGENVALUES = Draw(3, 3, values=[3.0, 0.3, -0.2, 0.1, 1.0, 0.2, -0.1, 0.2, -2.0])

# ***** triangular systems, Cholesky *****

give(
    "linalg_solve_triangular",
    Call(BOTH, B, upper=True),
    Call(BOTH, Draw(2, 2, 3), upper=False, left=False),
    Call(COMPLEX, Draw(3, 2, dtype=COMPLEX128), upper=False, unitriangular=True),
)
give("triangular_solve", Call(B, BOTH), Call(B, BOTH, False, True), Call(Draw(2, 3, 1), BOTH, True, False, True))
give("linalg_cholesky_ex", Call(POSITIVE), Call(POSITIVE, upper=True), Call(HERMITIAN), Call(NONE))
give("cholesky_core", Call(POSITIVE), Call(HERMITIAN, True))
give("cholesky_solve", Call(B, LOWER), Call(Draw(2, 3, 1), UPPER, True))
give("cholesky_inverse", Call(LOWER), Call(UPPER, True))

# ***** LU, systems, determinants *****

give("linalg_lu_factor_ex", Call(A), Call(Draw(2, 4, 3)), Call(WIDE), Call(COMPLEX))
give("linalg_lu", Call(A), Call(TALL), Call(WIDE))
give("lu_unpack", Call(BOTH, PIVOTS), Call(BOTH, PIVOTS, False), Call(BOTH, PIVOTS, True, False))
give(
    "linalg_solve_ex",
    Call(BOTH, B),
    Call(Draw(2, 1, 3, 3, low=1.0), Draw(4, 3, 2)),
    Call(BOTH, Draw(3)),
    Call(COMPLEX, COMPLEX),
)
give("solve_right_core", Call(BOTH, Draw(2, 3)), Call(COMPLEX, COMPLEX))
give(
    "linalg_lu_solve",
    Call(BOTH, PIVOTS, B),
    Call(BOTH, PIVOTS, Draw(2, 3), left=False),
    Call(BOTH, PIVOTS, B, adjoint=True),
    Call(BOTH, PIVOTS, Draw(2, 2, 3), left=False, adjoint=True),
)
give("lu_solve", Call(B, BOTH, PIVOTS))
give("lu_solve_right_core", Call(BOTH, PIVOTS, Draw(2, 3)), Call(BOTH, PIVOTS, Draw(2, 2, 3), adjoint=True))
give("linalg_inv_ex", Call(A), Call(COMPLEX), Call(NONE))
for _name in ("linalg_det", "det"):
    give(_name, Call(A), Call(PAIR), Call(COMPLEX), Call(Draw(2, 2, values=[1.0, 2.0, 2.0, 4.0])), Call(NONE))
for _name in ("linalg_slogdet", "slogdet"):
    give(_name, Call(A), Call(PAIR), Call(NONE))
give("logdet", Call(POSITIVE), Call(NONE))
give(
    "linalg_ldl_factor_ex",
    Call(POSITIVE),
    Call(HERMITIAN, hermitian=True),
    Call(Draw(2, 2, values=[0.0, 1.0, 1.0, 0.0])),
)
give("linalg_ldl_solve", Call(BOTH, Draw(3, dtype=INT32, values=[1, 3, 3]), B))

# ***** orthogonal factors *****

give(
    "linalg_qr",
    Call(A),
    Call(WIDE, "complete"),
    Call(Draw(2, 4, 3)),
    Call(TALL, "r"),
    Call(Draw(3, 3, dtype=COMPLEX128)),
)
give("qr", Call(TALL), Call(WIDE, False))
give("geqrf", Call(A), Call(Draw(2, 4, 3)), Call(WIDE))
for _name in ("linalg_householder_product", "orgqr"):
    give(_name, Call(TALL, Draw(3)), Call(Draw(2, 4, 3), Draw(2, 2)), Call(COMPLEX, Draw(3, dtype=COMPLEX128)))
give(
    "ormqr",
    Call(TALL, Draw(3), Draw(4, 2)),
    Call(TALL, Draw(3), Draw(2, 4), False, True),
    Call(COMPLEX, Draw(3, dtype=COMPLEX128), COMPLEX, True, True),
)

# ***** eigenvalues, singular values *****

give("linalg_eigh_core", Call(POSITIVE), Call(POSITIVE, "U"), Call(NONE))
give("linalg_eigvalsh_core", Call(POSITIVE), Call(HERMITIAN, "U"))
give("linalg_eig_core", Call(REAL_EIGENVALUES), Call(NONE))
give("linalg_eigvals_core", Call(REAL_EIGENVALUES))
give("linalg_svd_core", Call(REAL), Call(REAL_TALL, False), Call(REAL_WIDE, False), Call(Draw(0, 3)))
give("linalg_svdvals_core", Call(A), Call(Draw(4, 3, dtype=COMPLEX128)))
give(
    "linalg_pinv_core", Call(TALL), Call(WIDE), Call(POSITIVE, hermitian=True), Call(COMPLEX, atol=0.1, rtol=0.01), Call(Draw(0, 3)),
    Call(Draw(2, 4, 3), rtol=Draw(2, low=0.0, high=1e-3)),
)  # fmt: skip
give(
    "linalg_matrix_rank_core",
    Call(TALL),
    Call(Draw(2, 2, values=[1.0, 2.0, 2.0, 4.0])),
    Call(POSITIVE, atol=0.5, hermitian=True),
)
give("linalg_lstsq_full_rank", Call(TALL, Draw(4, 2)), Call(WIDE, Draw(2, 3, 1)), Call(Draw(0, 3), Draw(0, 2)))
give("linalg_lstsq_pivoted", Call(TALL, Draw(4, 2), 1e-10), Call(WIDE, Draw(3, 1), 1e-10))
give(
    "linalg_lstsq_core", Call(TALL, Draw(4, 2), 1e-10), Call(WIDE, Draw(3, 1), 1e-10), Call(Draw(0, 3), Draw(0, 2), 0.0)
)
