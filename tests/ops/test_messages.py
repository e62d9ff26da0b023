"""Calls that are refused, and what is said: PyTorch's class of exception and the first line of its message."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

import rushlight

pytestmark = pytest.mark.oracle


def given(t: Any) -> SimpleNamespace:
    """The arguments that the calls below are made of; `d`, `i` and `b` are tensors to write to, by their dtypes."""
    square = t.tensor([[2.0, 1.0], [1.0, 3.0]])
    return SimpleNamespace(
        s=square, v=square[0], w=t.arange(6.0).reshape(2, 3), cube=t.stack([square, square]), z=t.ones(()), c=square.to(t.complex64), k=square.long(),
        at=t.zeros(2, dtype=t.int64), pivots=t.tensor([1, 2], dtype=t.int32), eye=t.eye(2), h=square.bfloat16(),
        d=t.empty(0, dtype=t.float64), i=t.empty(0, dtype=t.int32), b=t.empty(0, dtype=t.bool), f=t.empty(0), l=t.empty(0, dtype=t.int64),
    )  # fmt: skip


# One call a line: `t` is the library, `a` has the arguments. `out=` of another dtype.
OUT = """
t.abs(a.v, out=a.i) | t.ceil(a.v, out=a.d) | t.neg(a.v, out=a.d) | t.sgn(a.v, out=a.i) | t.round(a.v, out=a.d) | t.bitwise_not(a.at, out=a.i)
t.nn.functional.gelu(a.v, out=a.d) | t.nn.functional.hardshrink(a.v, out=a.d) | t.frac(a.v, out=a.d) | t.conj_physical(a.v, out=a.d)
t.isposinf(a.v, out=a.d) | t.signbit(a.v, out=a.l) | t.complex(a.v, a.v, out=a.d) | t.polar(a.v, a.v, out=a.c.to(t.complex128)) | t.heaviside(a.v, a.v, out=a.d)
t.nan_to_num(a.v, out=a.d) | t.frexp(a.v, out=(a.d, a.i)) | t.frexp(a.v, out=(a.f, a.l)) | t.float_power(a.v, 2, out=a.f) | t.where(a.v > 0, a.v, a.v, out=a.d)
t.addmm(a.s, a.s, a.s, out=a.d) | t.mm(a.s, a.s, out=a.d) | t.mv(a.s, a.v, out=a.v.double()) | t.dot(a.v, a.v, out=a.d) | t.bmm(a.cube, a.cube, out=a.d)
t.addbmm(a.s, a.cube, a.cube, out=a.d) | t.addmv(a.v, a.s, a.v, out=a.d) | t.inner(a.v, a.v, out=a.d) | t.tensordot(a.s, a.s, out=a.i) | t.matmul(a.s, a.s, out=a.d)
t.amax(a.s, 0, out=a.d) | t.aminmax(a.s, dim=0, out=(a.d, a.d)) | t.argmax(a.s, 0, out=a.i) | t.cummax(a.v, 0, out=(a.d, a.l)) | t.cummin(a.v, 0, out=(a.f, a.i))
t.max(a.s, 0, out=(a.d, a.l)) | t.median(a.v, 0, out=(a.d, a.l)) | t.median(a.v, 0, out=(a.f, a.i)) | t.nanmedian(a.v, 0, out=(a.d, a.l)) | t.mode(a.v, 0, out=(a.f, a.i))
t.kthvalue(a.v, 1, out=(a.d, a.l)) | t.kthvalue(a.v, 1, out=(a.f, a.i)) | t.sort(a.v, out=(a.d, a.l)) | t.topk(a.v, 1, out=(a.f, a.i)) | t.logcumsumexp(a.v, 0, out=a.d)
t.sum(a.v, 0, dtype=t.float64, out=a.f) | t.mean(a.v, dtype=t.float64, out=a.f) | t.prod(a.v, 0, dtype=t.float64, out=a.f) | t.cumsum(a.v, 0, dtype=t.float64, out=a.f)
t.softmax(a.v, 0, dtype=t.float64, out=a.f) | t.logsumexp(a.v, 0, out=a.i) | t.quantile(a.s, 0.5, out=a.d) | t.histc(a.s, out=a.d) | t.histogram(a.s, 2, out=(a.d, a.d))
t.gather(a.v, 0, a.at, out=a.d) | t.take(a.v, a.at, out=a.d) | t.index_select(a.v, 0, a.at, out=a.d) | t.masked_select(a.v, a.v > 0, out=a.d) | t.isin(a.s, a.v, out=a.d)
t.searchsorted(a.v, a.v, out=a.i) | t.bucketize(a.v, a.v, out_int32=True, out=a.l) | t.index_add(a.v, 0, a.at, a.v, out=a.d) | t.scatter(a.v, 0, a.at, a.v, out=a.d)
t.cat([a.v, a.v], out=a.i) | t.stack([a.v, a.v], out=a.i) | t.diff(a.v, out=a.i) | t.ldexp(a.v, a.v, out=a.i) | t.tril(a.s, out=a.i) | t.diag(a.v, out=a.d)
t.fft.fft(a.v, out=a.d) | t.fft.rfftn(a.s, out=a.d) | t.fft.ifft2(a.s, out=a.d) | t.fft.irfft(a.c, out=a.i) | t.fft.hfft(a.c, out=a.c) | t.fft.ihfft(a.v, out=a.d)
t.linalg.inv(a.s, out=a.d) | t.linalg.inv_ex(a.s, out=(a.d, a.i)) | t.linalg.det(a.s, out=a.d) | t.linalg.slogdet(a.s, out=(a.d, a.d)) | t.linalg.qr(a.s, out=(a.d, a.d))
t.linalg.cholesky(a.s, out=a.i) | t.cholesky(a.s, out=a.i) | t.cholesky_inverse(a.s, out=a.i) | t.cholesky_solve(a.s, a.s, out=a.i) | t.linalg.solve(a.s, a.v, out=a.d)
t.linalg.eig(a.s, out=(a.d, a.d)) | t.linalg.eig(a.s, out=(a.c, a.d)) | t.linalg.eigvals(a.s, out=a.d) | t.linalg.eigh(a.s, out=(a.d, a.d)) | t.linalg.svdvals(a.s, out=a.d)
t.linalg.norm(a.s, 2, out=a.d) | t.linalg.norm(a.v, out=a.d) | t.linalg.matrix_norm(a.s, 1, out=a.d) | t.linalg.vector_norm(a.s, out=a.d) | t.linalg.vecdot(a.v, a.v, out=a.d)
t.linalg.multi_dot([a.s, a.s], out=a.d) | t.linalg.matrix_power(a.s, 0, out=a.i) | t.linalg.pinv(a.s, out=a.i) | t.linalg.matrix_rank(a.s, out=a.b) | t.linalg.cond(a.s, out=a.i)
t.linalg.solve_triangular(a.s, a.s, upper=True, out=a.d) | t.linalg.householder_product(a.s, a.v, out=a.i) | t.geqrf(a.s, out=(a.i, a.i)) | t.geqrf(a.s, out=(a.f, a.i))
t.ormqr(a.s, a.v, a.s, out=a.i) | t.linalg.lu_solve(a.s, a.pivots, a.s, out=a.d) | t.linalg.lstsq(a.s, a.s, out=(a.i, a.d, a.l, a.d))
t.unbind_copy(a.v, out=(a.d, a.d)) | t.permute_copy(a.s, (1, 0), out=a.i) | a.k.float_power_(2) | a.v.float_power_(2) | a.v.double().float_power_(2j)
"""

LINALG = """
t.linalg.matrix_rank(a.s, tol=a.z + 0j) | t.linalg.pinv(a.s, a.z + 0j) | t.linalg.pinv(a.w, hermitian=True) | t.linalg.tensorinv(a.s, ind=0)
t.linalg.norm(a.w, "fro", dim=0) | t.linalg.norm(a.k) | t.norm(a.k) | t.norm(a.w, "nuc", dim=(0, 0)) | t.linalg.matrix_norm(a.v) | t.linalg.matrix_norm(a.k)
t.linalg.matrix_norm(a.w, dim=(1, 1)) | t.linalg.matrix_norm(a.h, 2) | t.linalg.norm(a.f.reshape(0, 3), -float("inf"), dim=0) | t.linalg.norm(a.f, -1)
t.linalg.vector_norm(a.f, float("inf")) | t.linalg.vector_norm(a.f, -1.5) | t.linalg.cond(a.w, 1) | t.linalg.cond(a.w, "nuc") | t.linalg.cond(a.s, 5) | t.linalg.cond(a.s, "x")
t.linalg.multi_dot([a.z, a.v]) | t.linalg.multi_dot([a.s, a.cube, a.v]) | t.linalg.multi_dot([a.s, a.s, a.v.double()]) | t.linalg.vander(a.z) | t.linalg.vander(a.v, N=1)
t.linalg.cross(a.w[0], a.v) | t.linalg.cross(a.w, a.w, dim=0) | t.cross(a.w, a.w.double()) | t.chain_matmul() | a.s @ a.at | a.cube @ a.v.double() | t.mv(a.s, a.at)
t.addmm(a.w, a.s, a.s) | t.addmm(a.s, a.s, a.s.double()) | t.addmv(a.w[0], a.s, a.v) | t.addr(a.w, a.v, a.v) | t.addr(a.k, a.k[0], a.k[0], beta=1.5)
t.baddbmm(t.ones(3, 2, 2), a.cube, a.cube) | t.addbmm(a.s, a.cube, a.cube[:1]) | t.addbmm(a.s, a.cube, t.ones(2, 3, 2)) | t.bmm(a.s, a.cube)
t.einsum("i.j", a.s) | t.einsum("ij->i->j", a.s) | t.einsum("ii->i", a.w) | t.einsum(a.s, [0, 60]) | t.einsum(a.s, [..., 1, ...]) | t.einsum("ij") | t.einsum("ij,j#", a.s, a.v)
"""

REDUCTIONS = """
t.quantile(a.v, -1) | t.quantile(a.v, t.tensor([0.5, 2.0])) | t.median(a.c[0]) | t.amax(a.c) | t.aminmax(a.c) | t.cummax(a.c, 0) | t.argmax(a.c) | t.argmax(a.v > 0)
t.topk(a.v > 0, 1) | t.dist(a.k, a.k) | t.isin(a.c, a.c) | t.nansum(a.c) | t.histc(a.v, 0) | t.histc(a.v, 3, 2, 1) | t.histc(a.v, 3, 0, float("inf")) | t.histogram(a.v, 0)
t.histogram(a.v, 3, range=(1.0, 0.0)) | t.histogram(a.v / 0, 3) | t.histogram(a.v, 3, weight=a.w[0]) | t.cumsum(a.v, 0, dtype=t.bool) | t.diff(a.w, append=a.w.mT)
t.bincount(a.v) | t.histogram(a.v * float("nan"), 2) | t.var_mean(a.z, 1)
"""

SPECTRA = """
t.fft.rfft2(a.c) | t.fft.rfftn(a.c) | t.fft.ihfft2(a.c) | t.fft.ihfftn(a.c)
t.fft.fft(a.h) | t.fft.rfft(a.c) | t.fft.ihfft(a.c) | t.fft.fftshift(a.v, dim=5) | t.fft.fftfreq(4, dtype=t.int32) | t.fft.rfftfreq(4, dtype=t.int32)
t.fft.rfftfreq(4, out=a.i) | t.fft.fftfreq(4, dtype=t.float64, out=a.f) | t.stft(a.v, 2, align_to_window=True, return_complex=True)
t.istft(t.ones(3, 3) + 0j, 4, window=t.ones(4) + 0j)
"""

# Two dtypes in one product; `einsum` multiplies them, but sums over no product of them.
MIXED = """
a.k[0] @ a.v | a.k @ a.v | a.k[0] @ a.s | a.k @ a.s | a.cube @ a.k | a.cube @ a.cube.long() | a.k.mv(a.v) | a.cube.bmm(a.cube.long()) | a.k[0].dot(a.v)
a.s.addmm(a.k, a.s) | a.s.addmm(a.s, a.k) | a.cube.baddbmm(a.cube, a.cube.long()) | a.k[0] @ a.cube | a.cube @ a.k[0] | t.vdot(a.k[0], a.v) | a.v.addmv(a.k, a.v)
a.s.addr(a.k[0], a.v) | t.outer(a.k[0], a.v) | t.kron(a.k, a.s) | t.linalg.multi_dot([a.k, a.s]) | t.addbmm(a.s, a.cube, a.cube.long())
t.einsum("i,i->", a.k[0], a.v) | t.einsum("i,j->ij", a.k[0], a.v) | t.einsum("i,i->i", a.k[0], a.v) | t.einsum("ij,j->i", a.k, a.v) | t.einsum("i,->i", a.k[0], a.z)
t.einsum("ij,jk,k->i", a.k, a.k, a.v) | t.einsum("i,j->", a.k[0], a.v) | t.einsum("ij,k->i", a.k, a.v) | t.einsum("ij,j->i", a.k[:, :1], a.v[:1])
"""

# Integers that are asked to require gradients, when made and afterwards.
REQUIRED = """
t.tensor([1], requires_grad=True) | t.zeros(1, dtype=t.int64, requires_grad=True) | t.arange(3, requires_grad=True) | a.at.new_ones(1, requires_grad=True)
t.full((3,), 1, requires_grad=True) | t.ones_like(a.at, requires_grad=True) | t.randperm(3, requires_grad=True) | t.asarray([1], requires_grad=True)
t.frombuffer(bytearray(8), dtype=t.int64, requires_grad=True) | a.at.requires_grad_() | setattr(a.at, "requires_grad", True) | t.nn.Parameter(a.at)
a.at.requires_grad_(False) | a.c.requires_grad_() | t.eye(2, dtype=t.complex64, requires_grad=True) | t.empty(2, dtype=t.int64, requires_grad=1)
"""


def calls(text: str) -> list[str]:
    return [line.strip() for line in text.replace("\n", "|").split("|") if line.strip()]


def outcome(call: str, t: Any) -> str:
    run = eval(f"lambda t, a: {call}")  # noqa: S307
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(t, given(t))
        except Exception as error:
            words = str(error).splitlines()[0].partition("; convert")[0]  # ours go on to say what to do
            return f"{type(error).__name__}: {words}"
    return "taken"


@pytest.mark.parametrize(
    "table",
    [OUT, LINALG, REDUCTIONS, SPECTRA, MIXED, REQUIRED],
    ids=["out", "linalg", "reductions", "spectra", "mixed", "required"],
)
def test_refusals_are_told_in_the_same_words(table: str) -> None:
    import torch

    differ = {
        call: (ours, theirs)
        for call in calls(table)
        if (ours := outcome(call, rushlight)) != (theirs := outcome(call, torch))
    }
    assert not differ
