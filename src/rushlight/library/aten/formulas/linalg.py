"""Formulas of products, factorisations and Fourier transforms."""

from __future__ import annotations

from typing import Any

from rushlight.library.aten.derivatives import conjugated, joint, op, rule

__all__: list[str] = []


def turned(x: Any) -> Any:
    """The conjugate transpose of matrices."""
    return x.call("transpose.int", -2, -1).conj()


def product(a: Any, b: Any) -> Any:
    """A product of matrices."""
    return op("matmul")(a, b)


def _scaled(x: Any, number: Any) -> Any:
    return x if number == 1 else x * conjugated(number)


rule(
    "mm",
    self=lambda g, c: first_factor(g, c.mat2, c.spec("self")),
    mat2=lambda g, c: second_factor(g, c.self, c.spec("mat2")),
)
rule(
    "bmm",
    self=lambda g, c: g.bmm(c.mat2.call("transpose.int", 1, 2).conj()),
    mat2=lambda g, c: c.self.call("transpose.int", 1, 2).conj().bmm(g),
)
rule("mv", self=lambda g, c: outer(g, c.vec.conj()), vec=lambda g, c: c.self.t().conj().mv(g))
rule("dot", self=lambda g, c: g * c.tensor.conj(), tensor=lambda g, c: g * c.self.conj())
rule("vdot", self=lambda g, c: g.conj() * c.other, other=lambda g, c: g * c.self)
rule(
    "addmm", self=lambda g, c: _scaled(g, c.beta), mat1=lambda g, c: _scaled(first_factor(g, c.mat2, c.spec("mat1")), c.alpha),
    mat2=lambda g, c: _scaled(second_factor(g, c.mat1, c.spec("mat2")), c.alpha),
)  # fmt: skip
rule(
    "addmv", self=lambda g, c: _scaled(g, c.beta), mat=lambda g, c: _scaled(outer(g, c.vec.conj()), c.alpha),
    vec=lambda g, c: _scaled(c.mat.t().conj().mv(g), c.alpha),
)  # fmt: skip
rule(
    "addr", self=lambda g, c: _scaled(g, c.beta), vec1=lambda g, c: _scaled(g.mv(c.vec2.conj()), c.alpha),
    vec2=lambda g, c: _scaled(g.t().mv(c.vec1.conj()), c.alpha),
)  # fmt: skip
rule(
    "baddbmm", self=lambda g, c: _scaled(g, c.beta), batch1=lambda g, c: _scaled(g.bmm(c.batch2.call("transpose.int", 1, 2).conj()), c.alpha),
    batch2=lambda g, c: _scaled(c.batch1.call("transpose.int", 1, 2).conj().bmm(g), c.alpha),
)  # fmt: skip
rule(
    "addbmm", self=lambda g, c: _scaled(g, c.beta), batch1=lambda g, c: _scaled(batches(g, c).bmm(c.batch2.call("transpose.int", 1, 2).conj()), c.alpha),
    batch2=lambda g, c: added_second(g, c),
)  # fmt: skip
rule(
    "linalg_cross",
    self=lambda g, c: op("linalg_cross")(c.other.conj(), g, dim=c.dim),
    other=lambda g, c: op("linalg_cross")(g, c.self.conj(), dim=c.dim),
)
rule("linalg_inv_ex", A=lambda g, c: inverse(g, c.result0))
rule("linalg_cholesky_ex", self=lambda g, c: cholesky(g, c.result0, c.upper))
rule("cholesky", self=lambda g, c: cholesky(g, c.result, c.upper))
rule("cholesky_inverse", self=lambda g, c: inverse_of_factor(g, c))
joint("cholesky_solve", "self input2", lambda g, c: solved_by_factor(g[0], c))
joint("linalg_solve_triangular", "self B", lambda g, c: triangular(g[0], c))
joint("triangular_solve", "self A", lambda g, c: older_triangular(g, c), only=(0, 1))
joint("_linalg_solve_ex", "A B", lambda g, c: solved(g[0], c), only=(0,))
joint("linalg_lu_solve", "LU B", lambda g, c: solved_by_lu(g[0], c))
joint("_linalg_det", "A", lambda g, c: (determinant(g[0], c),), only=(0,))
joint("_linalg_slogdet", "A", lambda g, c: (log_determinant(g, c),), only=(0, 1))
joint("_linalg_eigh", "A", lambda g, c: (symmetric(g, c),), only=(0, 1))
joint("_linalg_svd", "A", lambda g, c: (singular(g, c),), only=(0, 1, 2))
joint("linalg_qr", "A", lambda g, c: (orthogonal(g, c),), only=(0, 1))
joint("linalg_lu", "A", lambda g, c: (lower_upper(g[1], g[2], c.result0, c.result1, c.result2),), only=(1, 2))
joint("linalg_lu_factor_ex", "A", lambda g, c: (factors(g[0], c),), only=(0,))
joint("lu_unpack", "LU_data", lambda g, c: (unpacked(g, c),), only=(1, 2))
rule("linalg_matrix_exp", self=lambda g, c: exponential(g, c.self))
rule("linalg_pinv.atol_rtol_tensor", self=lambda g, c: pseudo_inverse(g, c.self, c.result))
joint("linalg_lstsq", "self b", lambda g, c: solution_and_residuals(g, c), only=(0, 1))
rule("_fft_c2c", self=lambda g, c: op("_fft_c2c")(g, c.dim, c.normalization, not c.forward))
rule("_fft_r2c", self=lambda g, c: real_transform(g, c))
rule("_fft_c2r", self=lambda g, c: to_real(g, c))


def columns_first(spec: Any) -> bool:
    """Whether a matrix lies in memory column by column."""
    return bool(spec.strides[0] == 1 and spec.strides[1] == spec.shape[0])


def first_factor(g: Any, mat2: Any, spec: Any) -> Any:
    """The gradient of the first factor, in its layout."""
    if columns_first(spec):
        return mat2.conj().mm(g.t()).t()
    return g.mm(mat2.t().conj())


def second_factor(g: Any, mat1: Any, spec: Any) -> Any:
    """The gradient of the second factor, in its layout."""
    if columns_first(spec):
        return g.t().mm(mat1.conj()).t()
    return mat1.t().conj().mm(g)


def inverse(g: Any, result: Any) -> Any:
    """The gradient of an inverse."""
    inner = product(g, turned(result))
    return -product(turned(result), inner)


def outer(g: Any, vec: Any) -> Any:
    """The outer product, as PyTorch's `ger` is made of a view and a product."""
    return g.view([g.shape[0], 1]) * vec


def batches(g: Any, c: Any) -> Any:
    """The gradient for every product of the batch."""
    n, rows, _ = c.sizes("batch1")
    return g.unsqueeze(0).expand([n, rows, c.sizes("batch2")[2]])


def added_second(g: Any, c: Any) -> Any:
    """The gradient of the second factors."""
    first = c.batch1.call("transpose.int", 1, 2).conj()
    return _scaled(first.bmm(batches(g, c)), c.alpha)


def cholesky(g: Any, factor: Any, upper: bool) -> Any:
    """The gradient of a Cholesky factorisation."""
    if upper:
        factor, g = turned(factor), turned(g)
    phi = product(turned(factor), g).tril()
    phi = 0.5 * (phi + turned(phi.tril(-1)))
    left = op("linalg_solve_triangular")(turned(factor), phi, upper=True)
    return op("linalg_solve_triangular")(factor, left, upper=False, left=False)


def inverse_of_factor(g: Any, c: Any) -> Any:
    """The gradient of the inverse from a Cholesky factor."""
    both = g + turned(g)
    middle = product(c.result, product(both, c.result))
    return -product(c.self, middle) if c.upper else -product(middle, c.self)


def solved_by_factor(g: Any, c: Any) -> Any:
    """The gradients of right-hand side and factor."""
    first = op("cholesky_solve")(g, c.input2, c.upper)
    if not c.needs("input2"):
        return first, None
    common = product(first, turned(c.result))
    common = common + turned(common)
    factor = -product(c.input2, common) if c.upper else -product(common, c.input2)
    return first, factor


def triangular(g: Any, c: Any) -> Any:
    """The gradients of matrix and right-hand side."""
    matrix = turned(c.self)
    solution = op("linalg_solve_triangular")(matrix, g, upper=not c.upper, left=c.left, unitriangular=c.unitriangular)
    if not c.needs("self"):
        return None, solution
    found = -(product(solution, turned(c.result)) if c.left else product(turned(c.result), solution))
    shift = int(c.unitriangular)
    found = found.triu(shift) if c.upper else found.tril(-shift)
    return found, solution if c.needs("B") else None


def older_triangular(g: Any, c: Any) -> Any:
    """The gradients of right-hand side and matrix."""
    right = matrix = None
    if g[0] is not None:
        right = op("triangular_solve")(g[0], c.A.conj(), c.upper, not c.transpose, c.unitriangular)[0]
        if c.needs("A"):
            matrix = (
                -product(c.result0.conj(), right.call("transpose.int", -2, -1))
                if c.transpose
                else -product(right, turned(c.result0))
            )
            shift = int(c.unitriangular)
            matrix = matrix.triu(shift) if c.upper else matrix.tril(-shift)
    if c.needs("A") and g[1] is not None:
        matrix = g[1] if matrix is None else matrix + g[1]
    return right, matrix


def is_vector(c: Any) -> bool:
    """Whether the right-hand side of a linear system is a vector (or a batch of them)."""
    a, b = c.sizes("A"), c.sizes("B")
    return len(b) == 1 or len(a) - 1 == len(b) and b == a[:-1]


def solved(g: Any, c: Any) -> Any:
    """The gradients of matrix and right-hand side of a linear system."""
    vector = is_vector(c)
    g = g.unsqueeze(-1) if vector else g
    right = op("linalg_lu_solve")(c.result1, c.result2, g, left=c.left, adjoint=not factors_turned(c))
    matrix = None
    if c.needs("A"):
        result = c.result0.unsqueeze(-1) if vector else c.result0
        matrix = -(product(right, turned(result)) if c.left else product(turned(result), right))
    return matrix, (right.call("squeeze.dim", -1) if vector else right) if c.needs("B") else None


def solved_by_lu(g: Any, c: Any) -> Any:
    """The gradients of factors and right-hand side."""
    right = op("linalg_lu_solve")(c.LU, c.pivots, g, left=c.left, adjoint=not c.adjoint) if c.needs("B") else None
    if not c.needs("LU"):
        return None, right
    _, lower, upper = op("lu_unpack")(c.LU, c.pivots)
    if c.left == c.adjoint:
        return solved_by_turned_lu(g, c, lower, upper), right
    r = -(product(g, turned(c.result)) if c.left else product(turned(g), c.result))
    r = op("linalg_solve_triangular")(turned(upper), r, upper=False)
    s = product(r, turned(upper))
    low = op("linalg_solve_triangular")(turned(lower), s, upper=True, unitriangular=True).tril(-1)
    return low + r.triu(), right


def solved_by_turned_lu(g: Any, c: Any, lower: Any, upper: Any) -> Any:
    """The gradient of the factors where the turned matrix is divided by: -P^T X Y^H, Y the gradient of the right-hand
    side.
    """
    other = op("linalg_lu_solve")(c.LU, c.pivots, g, left=c.left, adjoint=not c.adjoint)
    permutation = op("lu_unpack")(c.LU, c.pivots)[0]
    r = product(c.result, turned(other)) if c.left else product(turned(c.result), other)
    r = -product(turned(permutation), r)
    return product(r, turned(upper)).tril(-1) + product(turned(lower), r).triu()


def factors_turned(c: Any) -> bool:
    """Whether the factors that were kept are those of the transposed matrix: they are where it is row-major."""
    spec = c.spec("A")
    return bool(spec.contiguous and not spec.dtype.is_complex)


def determinant(g: Any, c: Any) -> Any:
    """The gradient of a determinant."""
    sizes = c.sizes("A")
    if not g.tensor.numel() or not sizes[-1]:
        return c.result1.zeros_like()
    d = g * c.result0.conj()
    d = d.unsqueeze(-1).expand([*sizes[:-1]]).diag_embed()
    return op("linalg_lu_solve")(c.result1, c.result2, d, adjoint=not factors_turned(c))


def log_determinant(g: Any, c: Any) -> Any:
    """The gradient of the logarithm of a determinant's size."""
    sizes = c.sizes("A")
    if g[1] is None:
        return None
    if c.result0.is_complex:
        raise NotImplementedError("the gradient of the logarithm of a complex determinant in aten operators")
    d = g[1].unsqueeze(-1).expand(sizes[:-1]).diag_embed().call("transpose.int", -2, -1)
    return op("linalg_lu_solve")(c.result2, c.result3, d, adjoint=not factors_turned(c))


def symmetric(g: Any, c: Any) -> Any:
    """The gradient of an eigenvalue decomposition of a symmetric matrix."""
    values, vectors = c.result0, c.result1
    adjoint = turned(vectors)
    if g[1] is None:
        return product(vectors * g[0].unsqueeze(-2), adjoint)
    whole = product(adjoint, g[1])
    whole.diagonal(0, -2, -1)
    inner = (whole - turned(whole)) * 0.5
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    gaps.diagonal(0, -2, -1).call("fill_.Scalar", 1.0)
    inner = inner.call("div_.Tensor", gaps)
    if g[0] is not None:
        inner.diagonal(0, -2, -1).copy_(g[0])
    return product(vectors, product(inner, adjoint))


def singular(g: Any, c: Any) -> Any:
    """The gradient of a singular value decomposition."""
    gu, gs, gv = g
    u, s, vh = c.result0, c.result1, c.result2
    rows, columns = c.sizes("A")[-2:]
    if not c.compute_uv:
        raise RuntimeError("linalg_svd_backward: the gradients need U and Vh, which were not computed")
    if gu is None and gv is None:
        if gs is None:
            return None
        return product(u, gs.unsqueeze(-1) * vh) if rows >= columns else product(u * gs.unsqueeze(-2), vh)
    k = s.shape[-1]
    if c.full_matrices:
        u, vh = u.call("slice.Tensor", -1, 0, k), vh.call("slice.Tensor", -2, 0, k)
        gu = gu if gu is None else gu.call("slice.Tensor", -1, 0, k)
        gv = gv if gv is None else gv.call("slice.Tensor", -2, 0, k)

    def skew(x: Any) -> Any:
        return x - turned(x)

    of_u = skew(product(turned(u), gu)) if gu is not None else None
    of_v = skew(product(vh, turned(gv))) if gv is not None else None
    square = s * s
    gaps = square.unsqueeze(-2) - square.unsqueeze(-1)
    gaps.diagonal(0, -2, -1).call("fill_.Scalar", 1)
    if of_u is not None and of_v is not None:
        first = of_u * s.unsqueeze(-2)
        inner = (first + s.unsqueeze(-1) * of_v) / gaps
    elif of_u is not None:
        size = s.unsqueeze(-2)
        inner = of_u / gaps * size
    else:
        inner = s.unsqueeze(-1) * (of_v / gaps)
    if gs is not None:
        inner = inner + gs.diag_embed()
    if rows > k and gu is not None:
        inner = product(u, inner)
        scaled = gu / s.unsqueeze(-2)
        rest = product(u, product(turned(u), scaled))
        found = product(inner + scaled - rest, vh)
    elif columns > k and gv is not None:
        inner = product(inner, vh)
        scaled = gv / s.unsqueeze(-1)
        rest = product(product(scaled, turned(vh)), vh)
        return product(u, inner + scaled - rest)
    elif rows >= columns:
        found = product(u, product(inner, vh))
    else:
        found = product(product(u, inner), vh)
    return found


def orthogonal(g: Any, c: Any) -> Any:
    """The gradient of a QR decomposition."""
    if c.mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, mode='reduced')"
        )
    q, r = c.result0, c.result1
    gq, gr = g
    rows, columns = c.sizes("A")[-2:]
    if c.mode == "complete" and rows > columns:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    if rows < columns:
        return wide_orthogonal(gq, gr, q, r, c)
    if gr is not None and gq is not None:
        inner = _difference(gq, gr, q, r)
    elif gr is not None:
        inner = product(gr, turned(r))
    else:
        inner = -product(turned(q), gq)
    upper = inner.triu()
    both = upper + turned(upper)
    both.diagonal(0, -2, -1).call("mul_.Scalar", 0.5)
    found = product(q, both)
    if gq is not None:
        found = found + gq
    return op("linalg_solve_triangular")(turned(r), found, upper=False, left=False)


def _difference(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    second = product(turned(q), gq)
    return product(gr, turned(r)) - second


def wide_orthogonal(gq: Any, gr: Any, q: Any, r: Any, c: Any) -> Any:
    """The gradient for a matrix with more columns than rows."""
    rows = c.sizes("A")[-2]
    second = product(turned(q), gq) if gq is not None else None
    inner = product(gr, turned(r)) if gr is not None else None
    if second is not None:
        inner = -second if inner is None else -(second - inner)
    assert inner is not None
    found = product(q, (inner - turned(inner)).tril(-1))
    found = op("linalg_solve_triangular")(turned(r.call("slice.Tensor", -1, 0, rows)), found, upper=False, left=False)
    padded = op("cat")([found, found.new_zeros([*found.shape[:-1], c.sizes("A")[-1] - rows])], -1)
    return padded + product(q, gr) if gr is not None else padded


def lower_upper(gl: Any, gu: Any, p: Any, lower: Any, upper: Any) -> Any:
    """The gradient of an LU decomposition."""
    rows, columns = lower.shape[-2], upper.shape[-1]
    k = min(rows, columns)
    if rows == columns:
        phi = product(turned(lower), gl).tril(-1) if gl is not None else None
        if gu is not None:
            second = product(gu, turned(upper)).triu()
            phi = second if phi is None else phi + second
        found = op("linalg_solve_triangular")(turned(upper), phi, upper=False, left=False)
        found = op("linalg_solve_triangular")(turned(lower), found, upper=True, unitriangular=True)
        return product(p, found)
    if rows < columns:
        inner: Any = product(turned(lower), gl) if gl is not None else None
        if gu is not None:
            second = product(gu.triu(), turned(upper))
            inner = -second if inner is None else inner - second
        inner = inner.tril(-1)
        first = upper.call("slice.Tensor", -1, 0, k)
        found = op("linalg_solve_triangular")(turned(first), inner, upper=False, left=False)
        if gu is not None:
            found = found + gu.call("slice.Tensor", -1, 0, k).triu()
            found = op("cat")([found, gu.call("slice.Tensor", -1, k, columns)], -1)
        else:
            found = op("cat")([found, found.new_zeros([*found.shape[:-1], columns - k])], -1)
        return product(p, op("linalg_solve_triangular")(turned(lower), found, upper=True, unitriangular=True))
    inner = product(gu, turned(upper)) if gu is not None else None
    if gl is not None:
        adjoint = turned(lower)
        second = product(adjoint, gl.tril(-1))
        inner = -second if inner is None else inner - second
    inner = inner.triu()
    first = turned(lower.call("slice.Tensor", -2, 0, k))
    found = op("linalg_solve_triangular")(first, inner, upper=True, unitriangular=True)
    if gl is not None:
        found = found + gl.call("slice.Tensor", -2, 0, k).tril(-1)
        found = op("cat")([found, gl.call("slice.Tensor", -2, k, rows)], -2)
    else:
        found = op("cat")([found, found.new_zeros([*found.shape[:-2], rows - k, columns])], -2)
    return product(p, op("linalg_solve_triangular")(turned(upper), found, upper=False, left=False))


def factors(g: Any, c: Any) -> Any:
    """The gradient of a packed LU factorisation."""
    p, lower, upper = op("lu_unpack")(c.result0, c.result1)
    k = lower.shape[-1]
    gl = g.call("slice.Tensor", -1, 0, k)
    gu = g.call("slice.Tensor", -2, 0, k)
    return lower_upper(gl, gu, p, lower, upper)


def unpacked(g: Any, c: Any) -> Any:
    """The gradient of the packed factors."""
    gl, gu = g[1], g[2]
    rows, columns = c.sizes("LU_data")[-2:]
    if gl is None and gu is None:
        return None
    if rows == columns:
        upper = gu.triu() if gu is not None else None
        low = gl.tril(-1) if gl is not None else None
        return low + upper if low is not None and upper is not None else low if low is not None else upper
    k = min(rows, columns)
    if gl is not None and gu is not None and rows < columns:
        first = gu.call("slice.Tensor", -1, 0, k).triu()
        return op("cat")([gl.tril(-1) + first, gu.call("slice.Tensor", -1, k, columns)], -1)
    if gl is not None and gu is not None:
        first = gu.triu()
        first = gl.call("slice.Tensor", -2, 0, k).tril(-1) + first
        return op("cat")([first, gl.call("slice.Tensor", -2, k, rows)], -2)
    like = gl if gl is not None else gu
    shape = [*c.sizes("LU_data")]
    found = like.new_zeros(shape)
    if gl is not None:
        found.call("slice.Tensor", -1, 0, k).call("add_.Tensor", gl.tril(-1))
    if gu is not None:
        found.call("slice.Tensor", -2, 0, k).call("add_.Tensor", gu.triu())
    return found


def exponential(g: Any, x: Any) -> Any:
    """The gradient of a matrix exponential: a block of a greater one."""
    adjoint, n = turned(x), x.shape[-1]
    above = op("cat")([adjoint, g], -1)
    under = op("cat")([adjoint.zeros_like(), adjoint], -1)
    whole = op("linalg_matrix_exp")(op("cat")([above, under], -2))
    return whole.call("slice.Tensor", -2, 0, n).call("slice.Tensor", -1, n, 2 * n)


def least_squares(g: Any, c: Any) -> Any:
    """The gradients of matrix and right-hand side of a least-squares problem, from its solution's."""
    a, b = c.self, c.b
    inverse_of_a = op("linalg_pinv.atol_rtol_tensor")(a)
    vector = b.ndim == 1 or b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]
    g, b = (g.unsqueeze(-1), b.unsqueeze(-1)) if vector else (g, b)
    matrix = pseudo_inverse(product(g, turned(b)), a, inverse_of_a) if c.needs("self") else None
    right = product(turned(inverse_of_a), g) if c.needs("b") else None
    return matrix, right.call("squeeze.dim", -1) if vector and right is not None else right


def solution_and_residuals(g: Any, c: Any) -> Any:
    """The gradients of `linalg.lstsq`: those of its solution, and of the squared lengths of its residuals."""
    solution = c.result0
    matrix, right = least_squares(g[0], c) if g[0] is not None else (None, None)
    if g[1] is None or not g[1].tensor.numel():
        return (matrix, right) if g[0] is not None else (c.self.zeros_like(), c.b.zeros_like())
    apart = (product(c.self, solution) - c.b) * (g[1].unsqueeze(-2) * 2)
    of_matrix = product(apart, turned(solution))
    return of_matrix if matrix is None else matrix + of_matrix, -apart if right is None else right - apart


def pseudo_inverse(g: Any, x: Any, result: Any) -> Any:
    """The gradient of a pseudo-inverse."""
    adjoint, back = turned(result), turned(g)
    rows, columns = x.shape[-2:]
    if rows <= columns:
        k = product(back, result)
        kh = product(k, adjoint)
        gram = product(adjoint, result)
        rest = product(gram, back - product(k, x))
        third = product(product(x, result), kh)
        return -turned(product(result, k)) + kh - third + rest
    k = product(result, back)
    hk = product(adjoint, k)
    third = product(hk, product(result, x))
    rest = product(product(back - product(x, k), result), adjoint)
    return -turned(product(k, result)) + rest + hk - third


def real_transform(g: Any, c: Any) -> Any:
    """The gradient of a transform of real numbers."""
    sizes = c.sizes("self")
    last = c.dim[-1] % len(sizes)
    if not c.onesided:
        return op("_fft_c2c")(g, c.dim, c.normalization, False).real_part()
    half = g.shape[last]
    if half == sizes[last]:
        return op("_fft_c2c")(g, c.dim, c.normalization, False).real_part()
    whole = g.new_zeros(sizes)
    whole.call("slice.Tensor", last, 0, half).copy_(g)
    return op("_fft_c2c")(whole, c.dim, c.normalization, False).real_part()


def to_real(g: Any, c: Any) -> Any:
    """The gradient of a transform to real numbers: inner frequencies count twice."""
    last = c.dim[-1]
    found = op("_fft_r2c")(g, c.dim, c.normalization, True)
    twice = c.last_dim_size - found.shape[last]
    if twice > 0:
        found.call("slice.Tensor", last, 1, 1 + twice).call("mul_.Scalar", 2)
    return found
