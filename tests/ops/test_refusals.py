"""Calls with arguments that do not fit: refused with PyTorch's class of exception, or taken as PyTorch takes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rushlight

pytestmark = pytest.mark.oracle


def given(t: Any) -> SimpleNamespace:
    """The arguments that the calls below are made of."""
    f = t.arange(6.0).reshape(2, 3) / 8
    return SimpleNamespace(
        f=f, i=t.arange(6).reshape(2, 3), b=t.ones(2, 3, dtype=t.bool), d=f.double(), h=f.half(), c=f.to(t.complex64), v=t.ones(3), w=t.ones(4, 3),
        classes=t.tensor([0, 2]), z=t.ones(()), s=f.abs(), image=t.ones(1, 3, 4, 4), cube=f.reshape(1, 2, 3), five=t.ones(5),
        last=t.ones(2, 3, 4, 4).contiguous(memory_format=t.channels_last),
    )  # fmt: skip


# One call a line: `t` is the library, `F` its nn.functional, `a` has the arguments.
BINDING = """
t.softmax(a.f, True) | t.softmax(a.f, 2**70) | a.f.sum(dim=True) | a.f.sum(0, 1) | t.sum(a.f, dim=0, keepdim=1) | t.cumsum(a.f, True)
t.unsqueeze(a.f, True) | t.topk(a.v, True) | a.f.chunk(True) | t.cat([a.f], True) | t.stack([a.f], dim=False) | t.roll(a.v, True) | a.f.select(0, True)
t.triu(a.f, True) | t.diag(a.v, True) | a.f.transpose(True, False) | t.argmax(a.f, True) | t.roll(a.v, 2**70) | t.topk(a.v, 2**70) | t.diagonal(a.f, 2**70)
a.f + 2**64 | a.f * -(2**63 + 1) | t.add(a.f, 2**70) | a.i == 2**70 | t.add(a.f, 2**63) | a.i * 2**63 | a.f.clone().add_(2**70)
t.linalg.cholesky(t.eye(2), upper=1) | t.std(a.f, 0, keepdim=1) | t.sort(a.f, 0, 1) | t.linalg.norm(a.f, keepdim=None)
a.f.view(t.tensor([3, 2])) | t.permute(a.f, t.tensor([1, 0])) | a.v.sum(t.tensor([0])) | F.pad(a.f, t.tensor([1, 1])) | t.flip(a.f, dims=t.tensor([0, 1]))
t.flip(a.f, [0], out=a.f) | t.isnan(a.f, out=a.b) | t.diag_embed(a.f, out=a.f) | t.roll(a.f, 1, out=a.f) | F.hardtanh(a.f, out=a.f) | t.rot90(a.f, out=a.f)
F.mse_loss(a.f, a.f, reduction=None) | F.l1_loss(a.f, a.f, reduction=1) | F.cross_entropy(a.f, a.classes, reduction=("a",)) | F.mse_loss(a.f, a.f, 1, 1)
F.kl_div(a.f, a.f, reduction="max") | F.max_pool2d(a.image, True) | F.avg_pool2d(a.image, 2, ceil_mode=1)
t.cdist("abc", a.f) | t.cdist(None, a.f) | t.broadcast_to(1.5, (2,)) | t.combinations([1.0, 2.0]) | t.combinations(a.v, 2, "abc") | t.cov(a.f, fweights="abc")
t.cov(a.f, correction=1.5) | t.conj(3) | t.diff("abc") | t.renorm(None, 2, 0, 1.0) | t.trapezoid("abc") | t.cross(a.f, [1.0]) | t.nanmedian([1.0])
t.combinations(a.v, 2, 1) | t.combinations(a.v, True) | t.cov(a.f, correction=True) | t.diff(a.f, True) | t.renorm(a.f, 2, True, 1.0)
"""

# What PyTorch's functions that are Python ask of an argument that is no tensor, and what its parser says of one.
ASKED = """
F.l1_loss(None, a.f) | F.l1_loss(a.f, "abc") | F.mse_loss(a.f, np.ones(2)) | F.mse_loss([a.f], a.f) | F.smooth_l1_loss(2, a.f) | F.huber_loss(a.f, 1j) | F.softmax(2, 0)
F.softmax([a.f], 0) | F.log_softmax("abc", 0) | F.softmin(2, 0) | F.softmin("abc", 0) | t.softmax(2, 0) | F.glu(np.ones(2)) | F.group_norm(None, 3) | F.lp_pool2d("abc", 2, 2)
F.lp_pool1d(2, 2, 2) | F.adaptive_avg_pool2d(None, 3) | F.adaptive_avg_pool1d(None, 3) | F.adaptive_max_pool2d(None, 3) | F.normalize(None) | F.softsign(2) | F.tanhshrink([a.f])
t.norm(3) | t.split(3, 2) | t.split("abc", 2) | t.stft("abc", 10) | t.tensordot(a.f, 3) | t.unravel_index(3, (4, 5)) | F.margin_ranking_loss(a.f, 3, a.f)
F.binary_cross_entropy(3, a.f) | F.binary_cross_entropy_with_logits(a.f, (a.f,)) | F.local_response_norm(3, 2) | F.max_unpool2d(3, a.i, 2) | F.max_unpool2d(a.image, None, 2)
t.bernoulli(None) | t.bernoulli("abc") | t.cumulative_trapezoid(a.v, "abc") | t.trapezoid(a.v, 1) | t.linalg.multi_dot("abc") | t.linalg.multi_dot([a.f, 3])
t.narrow_copy(None, 0, 1, 2) | t.narrow_copy(a.f, 0, 1, 2, out=(a.f,)) | t.permute_copy(a.f, (1, 0), out=[a.f]) | t.view_copy(a.f, (6,), out=(a.f, a.f)) | t.diagonal_copy(a.f, out=3)
t.scatter(a.f, 0, a.i[:1], None) | a.f.scatter(0, a.i[:1]) | F.batch_norm(None, None, None) | F.ctc_loss(None, a.f, a.f, a.f) | F.ctc_loss(a.f, None, (3,), (3,))
F.avg_pool2d(a.v, 2) | F.avg_pool2d(a.z, 2) | F.avg_pool3d(a.v, 2) | F.fractional_max_pool2d(a.v, 2, output_ratio=(0.5, 0.5))
"""

DTYPES = """
F.hinge_embedding_loss(a.i, a.f) | F.hinge_embedding_loss(a.i, a.i, reduction="sum") | F.hinge_embedding_loss(a.b, a.b) | F.l1_loss(a.i, a.i)
F.l1_loss(a.b, a.f) | F.l1_loss(a.i, a.f) | F.margin_ranking_loss(a.v, a.v, a.v > 0) | F.margin_ranking_loss(a.b, a.b, a.b) | F.soft_margin_loss(a.i, a.f)
F.soft_margin_loss(a.v, a.f) | F.triplet_margin_loss(a.b, a.f, a.f) | F.binary_cross_entropy(a.s, a.b) | F.binary_cross_entropy(a.s, a.d)
F.binary_cross_entropy(a.s, a.s, weight=a.b) | F.binary_cross_entropy(a.s, a.s, weight=a.cube) | F.binary_cross_entropy_with_logits(a.f, a.i)
F.binary_cross_entropy_with_logits(a.f, a.b) | F.binary_cross_entropy_with_logits(a.f, a.f, a.cube)
F.binary_cross_entropy_with_logits(a.b, a.b) | F.multilabel_soft_margin_loss(a.f, a.b) | F.cosine_similarity(a.i, a.i) | F.cosine_similarity(a.i, a.f)
F.cosine_similarity(a.c, a.f) | F.cosine_similarity(a.f, a.f, eps=-1.0) | F.cross_entropy(a.d, a.classes, t.ones(3)) | F.cross_entropy(a.h, a.classes, t.ones(3))
F.cross_entropy(a.b, a.classes, t.ones(3)) | F.cross_entropy(a.v, a.classes) | F.cross_entropy(a.v, a.classes[:1]) | F.cross_entropy(a.z, a.classes)
F.cross_entropy(a.f, a.classes[0]) | F.linear(a.f, a.w, t.ones(4).double()) | F.linear(a.f, a.w, t.ones(4).half()) | F.linear(a.f, a.w.double())
F.linear(a.f, a.z) | F.bilinear(a.d, a.f, t.ones(2, 3, 3)) | F.bilinear(a.f, a.h, t.ones(2, 3, 3)) | F.bilinear(a.v, a.z, t.ones(2, 3, 3))
F.bilinear(a.f, a.f, t.ones(2, 3, 3), t.ones(1, 2)) | F.prelu(a.h, t.ones(1)) | F.prelu(a.d, t.ones(1)) | F.prelu(a.i, t.ones(1)) | F.relu(a.b)
F.hardtanh(a.b) | F.relu6(a.b) | F.tanhshrink(a.b) | F.layer_norm(a.d, (3,), t.ones(3)) | F.layer_norm(a.f, (3,), t.ones(3).half()) | F.layer_norm(a.i, (3,))
F.layer_norm(a.h, (3,), t.ones(3), t.ones(3)) | F.group_norm(a.d, 1, t.ones(3)) | F.rms_norm(a.i, (3,)) | F.batch_norm(a.d, None, None, t.ones(3), training=True)
F.batch_norm(a.f, t.ones(3).double(), t.ones(3), training=True) | F.batch_norm(a.f, t.ones(1, 3), t.ones(3), training=True) | F.batch_norm(a.i, None, None, training=True)
F.batch_norm(a.d, t.ones(3), t.ones(3)) | t.deg2rad(a.c) | t.rad2deg(a.c) | t.heaviside(a.c, a.c) | t.isposinf(a.c) | t.max(a.c, 0) | t.min(a.c, 0)
t.topk(a.b, 1) | t.topk(a.c, 1) | t.isin(a.b, a.f) | t.isin(a.f, a.c) | t.dist(a.b, a.f) | t.dist(a.i, a.i) | t.cross(a.f, a.d) | t.linalg.cross(a.i, a.f)
t.cdist(a.f, a.d) | t.cdist(a.i, a.i) | t.cdist(a.c, a.c) | t.cdist(a.f, a.f, float("nan")) | t.cdist(a.f, a.f, compute_mode="abc") | t.logaddexp(a.i, a.f)
t.logaddexp(a.i, a.i) | t.igamma(a.i, a.f) | t.igamma(a.i, a.i) | t.diagonal_scatter(a.f, t.ones(2, dtype=t.int64)) | t.diagonal_scatter(a.f, a.v, 0, 1, 1)
t.as_strided_scatter(a.f, t.ones(1).double(), (1,), (1,))
"""

# How arguments are written: names, numbers that are none, `out=`.
WRITTEN = """
t.atleast_2d([a.v, a.z]) | t.atleast_1d((a.z, a.f)) | t.histogramdd(a.f, [t.tensor([0.0, 1.0])] * 3) | t.histogramdd(a.f, [2, 3, 1])
t.index_select(a.f, 1, a.classes, out=t.ones(3).expand(2, 3)) | t.take(a.f, a.classes, out=t.ones(1).expand(5))
t.fft.fftn(a.f, dim=1) | t.fft.rfft2(a.f, 4, 1) | t.fft.irfftn(a.c, 4, 0) | t.fft.fft2(a.f, dim=True)
t.allclose(x=a.f, x2=a.f) | t.cov(a=a.f) | t.split(x=a.v, split_size_or_sections=1) | t.std(a.f, axis=0, keepdims=True) | F.pad(x=a.v, pad=(1, 1)) | t.hsplit(a.i, indices=[1])
t.softmax(a.v, t.tensor([0])) | t.softmax(a.v, t.tensor(True)) | a.v.sum(t.tensor([0])) | t.arange(t.tensor([2])) | t.arange(2, start=2) | t.linspace(1, 3, t.tensor(1.5))
t.addmm(a.f[:, :2], a.f[:, :2], a.f[:, :2], 0.5, 0.2) | t.allclose(a.f, a.f, rtol=2**70) | t.median(a.f, None) | t.clone(a.f, out=a.f) | t.add(a.f, 1, out=[a.f])
t.add(a.f, 1, out=t.empty(0, device="meta")) | t.add(a.v, 1, out=t.empty(1).expand(6)) | t.softmax(a.v, 0, out=t.empty(1).expand(6)) | t.cummax(a.v, 0, out=a.v)
t.as_strided(a.v, [True], (1,)) | t.as_strided(a.v, [-3], (1,)) | t.as_strided(a.v, (1,), (1,), 0.0) | t.as_strided(None, (1,), (1,)) | t.zeros(True) | t.zeros(2.0) | t.zeros()
t.zeros(t.tensor([2, 3])) | t.full((2,), "abc") | t.split(a.v, t.tensor(2)) | t.split(a.v, True) | t.split(a.v, [2.0, 1.0]) | t.tensor_split(a.v, True) | a.v.size(True)
F.adaptive_avg_pool2d(a.image, None) | F.adaptive_avg_pool2d(a.image, (2,)) | F.adaptive_avg_pool2d(a.image, (None, 2)) | F.adaptive_avg_pool3d(a.image, True)
F.adaptive_avg_pool1d(a.cube, t.tensor(2)) | F.max_pool2d(a.image, 2, return_indices=1) | F.dropout(a.f, 0.5, 1) | F.one_hot(a.classes, True) | F.one_hot(a.classes, 3.0)
F.batch_norm(a.f, None, None, training=1) | F.normalize(a.f, None) | F.normalize(a.f, dim=None) | F.mse_loss(a.f, a.f, "sum") | t.diff(a.f, 1, 1, t.ones(2))
F.mse_loss(a.i, a.f) | F.smooth_l1_loss(a.b, a.f) | F.mse_loss(a.i, a.i) | F.kl_div(a.f, a.i) | F.kl_div(a.i, a.f) | F.cross_entropy(a.d, a.f)
F.cross_entropy(a.f, a.classes.int()) | F.nll_loss(a.f, a.classes.short()) | F.avg_pool2d(a.image.int(), 2) | F.avg_pool2d(a.image.long(), 2) | F.normalize(a.f, 2.0, (0, 1))
F.conv1d(a.cube, t.ones(1, 2, 2), padding=True) | F.conv1d(a.cube, t.ones(1, 2, 2), padding=1.0) | F.conv1d(a.cube, t.ones(0, 2, 2)) | t.nn.Linear(2, 2).to(float)
t.zeros(2, True) | a.f.reshape(3, 2, True) | t.eye(t.tensor(3)) | t.triu_indices(2, 2, dtype=float) | t.finfo(float) | t.can_cast(t.float32, t.int64) | t.broadcast_shapes((2, 1), None)
F.one_hot(input=a.classes) | F.pairwise_distance(a.f, a.f, 0.0) | t.result_type(tensor=a.f, other=1) | t.fft.fftfreq(0) | t.frombuffer(bytearray(8), dtype=float) | a.v.clone().copy_(2)
t.nextafter(a.v, a.z.double()) | t.add(a.v, a.z.to(t.float8_e4m3fn)) | t.add(a.v, a.v.to(t.float8_e4m3fn)) | t.view_copy(a.f.mT, (6,)) | t.narrow(a.v, True, 0, 1)
"""

# What makes tensors, and what they are written to.
MAKING = """
t.empty(2, requires_grad=1) | t.empty(2, requires_grad=None) | t.zeros(2, requires_grad="a") | t.ones(2, requires_grad=t.tensor(True)) | t.randn(2, requires_grad=1)
t.tensor([1.0], requires_grad=1) | t.tensor([1.0], requires_grad=None) | t.full((2,), 1.0, requires_grad=1) | t.ones(2).requires_grad_(1) | t.ones(2).requires_grad_(None)
t.signal.windows.hann(0, requires_grad=1) | t.full(5, 1.0) | t.full([2, 2], 1) | t.full((2,), None) | t.full((2,), 1j, dtype=t.float32) | t.full((2,), 3 + 0j, dtype=t.float32)
t.full_like(a.f, None) | t.full_like(a.f, 1j) | t.full_like(a.f, t.tensor(2.0, requires_grad=True)) | t.full_like(a.i, 1j) | a.f.new_full((2,), None)
t.zeros(2, out=t.empty(0, device="meta"), device="cpu") | t.zeros(2, out=3) | t.ones(2, out=(t.empty(0),)) | t.multinomial(a.v, 2, 1) | t.multinomial(a.v, 2, None)
t.rand(2, dtype=t.float8_e4m3fn) | t.randn_like(a.f.to(t.float8_e4m3fn)) | F.rms_norm(a.f.to(t.float8_e4m3fn), (3,)) | t.nan_to_num(a.f.to(t.float8_e4m3fn))
t.isin(a.f, [1, 2]) | t.isin([1.0], a.f) | t.isin(a.f, 2) | t.isin(1, 2) | t.isin(a.f, (a.v,)) | t.bucketize([1.0], a.v) | t.bucketize(2, a.v) | t.bucketize(a.b, a.v)
t.bucketize(a.b, a.b[0]) | t.searchsorted(a.v, [2.0]) | t.searchsorted(a.v, 2) | t.renorm(a.f, float("nan"), 0, 1.0) | t.renorm(a.f, 2.0, 0, float("nan"))
"""

# Arguments by which there is no derivative, joined dtypes, bounds of two kinds, indices, names of arguments.
JOINT = """
F.nll_loss(a.f, a.classes, t.ones(3, requires_grad=True)) | F.soft_margin_loss(a.f, a.f.clone().requires_grad_()) | F.binary_cross_entropy(a.s, a.s, a.v.requires_grad_())
F.binary_cross_entropy_with_logits(a.f, a.f, a.v.requires_grad_()) | F.multi_margin_loss(a.f, a.classes, weight=a.v.requires_grad_())
F.batch_norm(a.f, a.v.requires_grad_(), t.ones(3)) | F.batch_norm(a.f, t.ones(3), a.v.requires_grad_(), training=True)
t.special.chebyshev_polynomial_t(a.f, 1j) | t.special.legendre_polynomial_p(a.f, a.c) | t.tril(a.f.to(t.float8_e4m3fn)) | t.logcumsumexp(a.f.to(t.float8_e4m3fn), 0)
t.histogram(a.f, a.v.double()) | t.histogram(a.f, 3, weight=a.d) | t.nonzero_static(a.f, size=2, out=t.empty(0)) | t.put(a.f, a.classes, a.v)
t.index_reduce(a.f, 0, a.classes, a.f[:0], "mean") | t.index_reduce(a.f, 0, a.classes[None], a.f, "mean") | t.index_add(a.f[0, 0], 0, a.classes[:1], a.v[:1])
t.index_fill(a.f, 0, a.classes.int(), 1) | t.index_fill(a.f, 0, a.classes[None], 1) | a.f.index_put_((None, a.classes), a.z) | a.f.index_put_((0,), a.z)
t.clamp(a.f, a.v, 2) | a.f.clamp(2, a.v) | a.f.clamp_(min=a.v, max=2) | t.prod(a.f, None) | t.squeeze(a.f, None) | a.f.squeeze(dim=None)
a.v.requires_grad_().bitwise_not_() | a.v.requires_grad_().view(3).gcd_(a.v) | t.linalg.cholesky(A=t.eye(2)) | t.linalg.norm(A=a.f) | t.linalg.lstsq(A=a.w, B=a.w)
a.b.argmax() | a.c.argmin(0) | a.c.sort() | a.c.nansum() | a.c.nanmean(0) | a.v[:0].kthvalue(1) | a.z.diag_embed() | t.bucketize(a.f, a.f) | F.unfold(a.f, 1) | F.instance_norm(a.f)
t.signal.windows.hamming(1.5) | t.signal.windows.hann(2.0) | t.signal.windows.hann(0, device=True) | t.empty(3, device=True) | t.device(0)
"""

OUT = """
t.cat([a.f, a.f], out=t.empty(0, dtype=t.int64)) | t.hstack([a.f, a.f], out=t.empty(0, dtype=t.int64)) | t.stack([a.f, a.f], out=t.empty(0, dtype=t.bool))
t.bitwise_and(a.f, a.f, out=t.empty(0, dtype=t.int64)) | t.bitwise_not(a.f, out=t.empty(0, dtype=t.int64)) | t.gcd(a.f, a.f, out=t.empty(0, dtype=t.bool))
t.bitwise_and(a.f, a.f, out=t.empty(0))
t.svd(a.f, out=t.empty(0)) | t.svd(a.f, out=(t.empty(0),)) | t.linalg.eigh(t.eye(2), out=t.empty(0, requires_grad=True)) | t.mode(a.f, out=(t.empty(0),))
t.linalg.inv(t.eye(2), out=t.empty(0).double()) | t.linalg.det(t.eye(2), out=t.empty(0).double()) | t.linalg.eig(t.eye(2), out=(t.empty(0).cdouble(), t.empty(0).cdouble()))
t.linalg.cond(t.eye(2), out=t.empty(0).double()) | t.linalg.norm(a.f, out=t.empty(0).double()) | t.norm(a.f, 3, 0, out=t.empty(0).double())
t.linalg.lu_factor(t.eye(2), out=(t.empty(0), t.empty(0))) | t.cholesky_inverse(t.eye(2), out=t.empty(0).double()) | t.linalg.solve_ex(t.eye(2), t.eye(2), out=(t.empty(0), t.empty(0)))
t.sum(a.f, out=t.empty(0)) | t.sum(a.f, 0, out=t.empty(0)) | t.sum(a.f, dim=None, out=t.empty(0)) | t.prod(a.f, out=t.empty(0)) | t.prod(a.f, 0, out=t.empty(0))
t.all(a.f, out=t.empty(0)) | t.any(a.f, out=t.empty(0, dtype=t.bool)) | t.all(a.f, 0, out=t.empty(0, dtype=t.uint8)) | t.heaviside(a.f, a.f, out=t.empty(0).double())
F.gelu(a.f, out=t.empty(0).double()) | F.mish(a.f, out=t.empty(0)) | F.silu(a.f, out=None) | F.glu(t.ones(2), out=t.empty(0)) | F.softshrink(a.f, out=t.empty(0).half())
F.linear(a.f, a.w, out=t.empty(0).double()) | F.avg_pool2d(a.image, 2, out=t.empty(0).double()) | t.float_power(a.f, 2, out=t.empty(0)) | t.max(a.f, 0, out=t.empty(0))
t.unbind_copy(a.v, 0, out=(t.empty(0),)) | t.unbind_copy(a.v, 0, out=a.v) | t.nanmedian(a.f, 0, out=(t.empty(0),)) | t.lerp(a.f, a.f, 0.5, out=t.empty(0).double())
"""

# Numbers that a dtype cannot hold, places that are not there, losses.
HELD = """
t.trapezoid(a.f, dx=1j) | t.cumulative_trapezoid(a.f, dx=True) | t.trapezoid(a.f, dx=2) | t.cumulative_trapezoid(a.f, a.v[:2])
t.Tensor(t.DoubleStorage(2)) | t.DoubleTensor(t.FloatStorage(2)) | a.v.new(t.DoubleStorage(2)) | a.i.new(t.UntypedStorage(16)) | F.nll_loss(a.z, a.i[0, 0])
F.fractional_max_pool2d(a.image, (1,), output_size=2) | F.fractional_max_pool2d(a.image, 2, output_size=(2,)) | F.fractional_max_pool3d(a.image[None], (1,), 2)
F.max_unpool2d(a.image, a.image.long(), [1]) | F.max_unpool3d(a.image[None], a.image[None].long(), [1, 1]) | F.max_unpool2d(a.image, a.image.long(), 2, [1, 1, 1])
t.scatter(a.f, 0, a.i[:1], 1j) | t.index_add(a.v, 0, a.classes, a.v[:2], alpha=1j) | t.index_fill(a.v, 0, a.classes, 1j) | t.lerp(a.f, a.f, 1j) | t.masked_fill(a.f, a.b, 1j)
t.masked_fill(a.i, a.b, 1e30) | t.empty((2**70,)) | t.zeros(2, 2**70) | t.empty((t.tensor(True),)) | t.nn.Linear(2**70, 2) | F.linear(a.f.to(t.float8_e4m3fn), a.f)
a.v[:0].index_put_((a.classes,), a.v[:2]) | t.index_put(a.v[:0], (a.classes,), a.v[:2]) | a.v[:0].scatter_(0, a.classes, a.v[:2]) | t.scatter_add(a.v[:0], 0, a.classes, a.v[:2])
t.index_add(a.v[:0], 0, a.classes, a.v[:2]) | a.v[:0].index_copy_(0, a.classes, a.v[:2]) | t.put(a.v[:0], a.classes, a.v[:2]) | a.v[:0].index_fill_(0, a.classes, 1.0)
t.index_put(a.v, (a.classes,), a.v[:2], accumulate=1) | t.repeat_interleave(a.v, t.tensor([1, 1, 1]), output_size=7) | t.repeat_interleave(a.v, t.tensor([1, 0, 1]), output_size=2)
t.linalg.vecdot(a.v, a.v.double()) | t.linalg.vecdot(a.v, a.v[:1]) | t.hypot(a.i, a.i) | t.hypot(a.f, a.c) | F.cosine_embedding_loss(a.f, a.v, t.ones(2))
F.multilabel_soft_margin_loss(a.z, a.v) | F.huber_loss(a.f, a.f, delta=float("nan"))
F.adaptive_max_pool2d(a.image[:, :0], 2) | F.adaptive_avg_pool3d(a.image[None, :, :0], 2) | F.adaptive_avg_pool1d(a.cube[..., :0], 2) | t.nn.Conv1d(1, 2, [3, 3], padding="same")(a.v[None])
F.gaussian_nll_loss(a.f, a.f, a.i) | F.gaussian_nll_loss(a.f, a.b, a.s) | F.gaussian_nll_loss(a.b, a.f, a.s) | F.gaussian_nll_loss(a.f, True, a.s) | F.gaussian_nll_loss(a.f, a.f, 1)
F.conv_transpose1d(a.cube[..., :0], t.ones(2, 4, 3)) | F.conv_transpose2d(a.image[0, ..., :0], t.ones(3, 4, 3, 3)) | F.local_response_norm(a.image.half(), 2)
F.lp_pool3d(a.image[None].half(), 2, 2) | F.max_pool1d(a.i, 2) | F.multi_margin_loss(a.f, a.classes[None]) | F.soft_margin_loss(a.f, a.c) | F.huber_loss(a.f, a.c)
F.hardtanh(a.i.to(t.uint8)) | F.pad(a.b, (1, 1), "reflect") | F.pad(a.b, (1, 1), "replicate") | F.pad(a.f[:0], (1, 1), "reflect") | F.pad(a.v, (-4, 4)) | F.pad(a.v[:0], (-1, 1))
F.pad(a.f.to(t.float8_e4m3fn), (1, 1), "reflect") | t.constant_pad_nd(a.v, (1, -5)) | t.nn.FractionalMaxPool3d(0, output_ratio=0.5) | t.nn.FractionalMaxPool2d(2, output_ratio=[0.5])
F.ctc_loss(a.f[:, None].log_softmax(-1), a.i[:1, :1], (2.0,), (1,)) | F.ctc_loss(a.f[:, None].log_softmax(-1), a.i[:1, :1], t.tensor([2]), (1,))
F.ctc_loss(a.f[:, None].log_softmax(-1), a.i[:1, :1], t.tensor([True]), t.tensor([1])) | t.floor_divide(a.v.requires_grad_(), a.v).sum().backward()
t.tensor([True, False]).cumsum_(0) | t.cumprod(a.b[0], 0, out=t.empty(3, dtype=t.bool)) | a.v.cumsum_(0, dtype=t.float64) | t.cumsum(a.i, 0, dtype=t.int32, out=a.f)
a.i.index_put_((a.classes,), t.tensor(1.0)) | a.i.__setitem__(([0],), t.tensor(1.0)) | a.i.__setitem__(t.tensor(True), t.tensor(1.0)) | a.i.__setitem__([], t.tensor(1.0))
a.i.__setitem__((a.i[:, 0] > 0, [1]), t.tensor(1.0)) | a.f.__setitem__([0], t.tensor(1.0).double()) | a.f.__setitem__(0, np.ones(3)) | a.i.__setitem__(True, t.tensor(1.0))
a.classes.index_fill_(0, a.classes, 2) | a.classes.put_(a.classes, a.classes)
a.v.fill_(1 + 1j) | t.masked_fill(a.f, a.b, 1 + 1j) | t.addcmul(a.f, a.f, a.f, value=1j) | t.addmm(a.w[:, :2], a.w, a.f.mT, alpha=1j) | F.threshold(a.f, 1j, 1) | F.elu(a.f, 1j)
t.clamp(a.f, 1j) | t.constant_pad_nd(a.v, (1, 1), 1j) | t.add(a.f, a.f, alpha=1 + 0j) | t.index_fill(a.v, 0, a.classes, 1 + 0j) | t.norm(a.v, 1j) | t.linalg.vector_norm(a.v, 1 + 0j)
t.dist(a.v, a.v, 1j) | a.i.__setitem__([0], 1 + 1j) | a.f.__setitem__(a.f > 0, 1j) | t.tensor([1, None]) | t.tensor([object()]) | t.tensor([1.0, None], dtype=t.float32)
t.utils.data.distributed.DistributedSampler([1, 2]) | t.utils.data.distributed.DistributedSampler([1, 2], num_replicas=2) | t.nn.utils.weight_norm(t.nn.Linear(2, 2), dim=7)
t.distributions.Bernoulli(0.5, validate_args=False).log_prob(1) | t.distributions.Poisson(0.5, validate_args=False).log_prob(1)
t.linalg.vector_norm(a.f, dtype=t.int64) | t.linalg.vector_norm(a.f, dtype=t.complex64) | t.linalg.vector_norm(a.c, dtype=t.float32) | t.linalg.vector_norm(a.d, dtype=t.float32)
t.linalg.vector_norm(a.i, dtype=t.float32) | t.linalg.matrix_norm(a.f, 2, dtype=t.complex64) | t.linalg.matrix_norm(a.d, dtype=t.float32) | t.norm(a.f, dtype=t.int64)
t.linalg.vecdot(a.i, a.i) | t.linalg.vecdot(a.i, a.f) | t.fft.fftshift(a.z) | t.fft.ifftshift(a.f, dim=()) | t.special.zeta(a.h, a.h) | t.special.chebyshev_polynomial_u(a.h, 2)
t.special.airy_ai(a.h) | t.special.chebyshev_polynomial_u(a.f.to(t.float8_e4m3fn), 2) | t.matmul(a.f.to(t.complex32), a.w.mT)
F.poisson_nll_loss(a.b, a.b) | F.poisson_nll_loss(a.b, a.f, log_input=False) | F.poisson_nll_loss(a.f, a.b, full=True)
"""

# What is taken, with the same dtype, shape, strides, values.
TAKEN = """
t.histogramdd(a.f[:, :0], []).hist | t.histogramdd(a.f[:, :0], [], density=True).hist
F.huber_loss(a.h, a.f) | F.huber_loss(a.f, a.d, reduction="none") | F.hinge_embedding_loss(a.h, a.f) | F.hinge_embedding_loss(a.f, a.d) | F.hinge_embedding_loss(a.f, a.c)
F.hinge_embedding_loss(a.f, a.v) | F.cosine_embedding_loss(a.f, a.f, t.ones(2).double()) | F.multilabel_soft_margin_loss(a.f, a.f[None]) | F.multilabel_soft_margin_loss(a.f, a.f, a.v)
F.lp_pool1d(a.i, 2.0, 2) | F.lp_pool1d(a.h, 2.0, 2) | F.lp_pool2d(a.image.long(), 2.0, 2) | F.lp_pool2d(a.image.bool(), 2.0, 2)
t.masked_fill(a.i, a.b, t.tensor(0.0)) | t.masked_fill(a.i, a.b, 2.5) | a.i.masked_fill_(a.b, t.tensor(1.5)) | t.hypot(a.i, a.f) | t.block_diag()
F.batch_norm(a.f, None, None, t.ones(1, 3), training=True) | F.batch_norm(a.f, None, None, None, t.ones(3, 1), training=True)
a.v.requires_grad_().logical_not_() | a.v.requires_grad_().logical_and_(a.f[0]) | a.v.requires_grad_().view(3).logical_or_(t.ones(3))
t.zeros([np.array(3)]) | t.nn.Linear(np.array(2), 2).weight * 0 | a.f[[1.5]] | a.f[[1.0, 0.0]] | a.f[:, [0.0, 2.9]]
t.flip(a.f[:, :0], (0,)) | t.roll(a.f[:, :0], 1, 0) | t.select_scatter(a.f.mT, a.f[0], 1, 0) | t.diagonal_scatter(a.f.mT, t.ones(2)) | t.flip(a.f.mT, (0,))
t.searchsorted(a.v, float("nan")) | t.searchsorted(a.i[1], 3.5) | t.bucketize(t.tensor([float("nan"), 1.0]), a.f[0])
F.hinge_embedding_loss(a.f, a.b) | F.hinge_embedding_loss(a.f, (a.i - 1).half()) | F.cosine_embedding_loss(a.f, a.f + 1, a.classes.bfloat16()) | F.multilabel_soft_margin_loss(a.f, 1)
F.cosine_embedding_loss(a.f, a.f + 1, a.classes.bool()) | F.multilabel_soft_margin_loss(a.f, 0.5) | F.gaussian_nll_loss(a.i, a.f, a.s + 1) | F.gaussian_nll_loss(a.i, a.i + 1, a.s + 1)
F.gaussian_nll_loss(a.f, 2, a.s + 1) | F.gaussian_nll_loss(a.f, 2.5, 0.5, full="yes") | F.gaussian_nll_loss(a.f, a.f, 0.5, full=None) | F.poisson_nll_loss(a.b, a.f)
F.ctc_loss(t.arange(15.0).reshape(5, 1, 3).log_softmax(-1), t.ones(1, 2), (5,), (2,))
F.adaptive_avg_pool2d(a.image[0, :0], 2) | F.adaptive_avg_pool2d(a.image[:, :0], 2) | F.adaptive_max_pool1d(a.f[:0], 2) | F.adaptive_max_pool3d(a.image[:0], 2)
F.avg_pool1d(a.cube.mT, 1) | F.adaptive_avg_pool1d(a.cube.mT, 2) | F.adaptive_max_pool1d(a.cube.mT, 2) | F.max_pool1d(a.cube.mT, 2, return_indices=True)[1]
F.lp_pool1d(a.cube.mT, 2, 2) | F.lp_pool3d(a.image.contiguous(memory_format=t.channels_last), 2, 2) | F.lp_pool2d(a.image.contiguous(memory_format=t.channels_last), 2, 2)
F.conv3d(a.image.contiguous(memory_format=t.channels_last), t.ones(2, 1, 2, 2, 2)) | F.interpolate(a.image[:, :1].contiguous(memory_format=t.channels_last), scale_factor=2)
F.interpolate(t.ones(2, 4, 4, 3).permute(0, 3, 1, 2)[:, :, ::2], scale_factor=2, mode="bilinear") | F.interpolate(a.image[:, :1], scale_factor=2)
t.nn.Conv3d(1, 2, (3, 2), padding="same").weight * 0 | t.nn.Conv2d(1, 2, 3, padding="same", dilation=(2, 2, 3)).weight * 0
a.v.fill_(a.v[1]) | a.f.masked_fill_(a.b, a.f[0, 1]) | a.f.index_fill_(1, a.classes, a.f[1, 2]) | t.tensor(True).cumsum_(0) | t.ones(0, dtype=t.bool).cumprod_(0)
t.tensor([1, 2], dtype=t.int32).cumsum_(0) | t.cumsum(a.v, 0, out=t.empty(3, dtype=t.int32)) | a.i.index_put_((a.i > 2,), t.tensor([[-2.0]])) | a.five.eq_(a.five)
F.pad(a.b, (1, 1), "circular") | F.pad(a.f[:0], (1, 1), "circular") | F.max_pool1d(a.cube.long(), 2, return_indices=True)[0] | F.local_response_norm(a.cube.half(), 2)
F.hardtanh(a.i.to(t.uint8), 0, 3)
a.v.fill_(1 + 0j) | a.i.fill_(2 + 0j) | t.masked_fill(a.f, a.b, 1 + 0j) | a.f.masked_fill_(a.b, 1 + 0j) | t.scatter(a.f, 0, a.i[:1] * 0, 1 + 0j) | a.w.fill_diagonal_(2 + 0j)
t.scatter(a.f, 0, a.i[:1] * 0, 1 + 0j, reduce="add") | t.constant_pad_nd(a.v, (1, 1), 2 + 0j) | t.clamp(a.f, 0.5 + 0j) | t.lerp(a.f, a.s + 1, 0.5 + 0j)
t.index_add(a.v, 0, a.classes, a.v[:2], alpha=2 + 0j) | t.addcmul(a.f, a.f, a.f, value=2 + 0j) | t.addmm(a.w[:, :2], a.w, a.f.mT, alpha=2 + 0j)
t.linalg.solve_triangular(t.eye(3) * 2, a.w[:3].double(), upper=True) | t.linalg.solve_triangular(t.eye(3).double() * 2, a.i.mT, upper=True)
t.linalg.solve_triangular(t.eye(3) * 2, a.c.mT, upper=True) | t.special.chebyshev_polynomial_t(a.h, a.f) | t.special.zeta(a.h + 2, a.f + 3) | t.special.legendre_polynomial_p(a.f, a.h)
t.linalg.vector_norm(a.h, dtype=t.float32) | t.linalg.matrix_norm(a.f, dtype=t.float64)
t.tanh(a.w[:0].mT) | a.w[:0].mT + 1 | t.add(a.w[:0].mT, a.w[:0].mT) | t.relu(a.last[:0]) | a.last[:0] * 2 | t.where(a.last[:0] > 0, a.last[:0], a.last[:0]) | F.hardtanh(a.last[..., :0])
t.deg2rad(a.cube[..., :0]) | t.fliplr(a.cube[..., :0].transpose(0, 1)) | t.sort(a.cube[..., :0])[0] | F.relu6(a.cube[..., :0]) | a.cube[..., :0].transpose(0, 1) + 1
t.select(a.cube, 1, 1) | t.select(a.image[None], 1, 0) | t.select(a.image[:0], 2, 1) | F.logsigmoid(a.f.mT) | F.logsigmoid(a.last) | t.mvlgamma(a.w.mT + 3, 2)
t.put(a.f.mT, a.classes, a.v[:2]) | t.stft(t.arange(20.0), 4, return_complex=False) | t.stft(t.arange(20.0)[None], 4, return_complex=False, center=False)
F.conv1d(t.ones(1, 4, 5), t.ones(3, 2, 4).mT) | F.conv1d(t.ones(2, 5, 4).mT, t.ones(3, 4, 2)) | F.conv1d(t.ones(2, 5, 1).mT, t.ones(3, 1, 2))
F.conv_transpose1d(t.ones(2, 4, 5), t.ones(4, 8, 3).mT) | F.conv_transpose1d(t.ones(2, 5, 4).mT, t.ones(4, 3, 2)) | F.conv1d(t.ones(2, 4, 5), t.ones(4, 2, 1).mT, groups=4)
F.hinge_embedding_loss(a.f, a.v.requires_grad_()) | F.cosine_embedding_loss(a.f, a.f + 1, t.ones(2, requires_grad=True)) | t.eq(a.v, a.v, out=t.empty(0, requires_grad=True))
t.lt(a.v.requires_grad_(), 2, out=t.empty(0)) | a.v.requires_grad_().logical_not_() | t.special.bessel_j0(a.v.requires_grad_(), out=t.empty(0)) | t.signal.windows.hamming(0.0)
t.lu_unpack(t.eye(3)[None], t.tensor([2, 3, 3], dtype=t.int32))[0] | t.sort(a.v, stable=None)[0] | t.ones(2, 2, 6).dsplit(2, 1)[1] | t.ones(2, 6).hsplit(2, True)[2]
t.linalg.cholesky(input=t.eye(2)) | t.linalg.norm(a=a.f) | t.linalg.vector_norm(input=a.f) | t.linalg.eigvalsh(input=t.eye(2)) | t.linalg.cond(x=t.eye(2)) | t.clone(input=a.f)
t.linalg.solve_triangular(input=t.eye(3), B=a.w[:3], upper=True) | t.linalg.lstsq(input=a.w, b=a.w)[0] | t.clamp(a.f, a.z, 2)
t.hstack([a.last, a.last]) | t.vstack([a.last, a.last]) | t.dstack([a.last, a.last]) | t.diff(a.w.mT) | t.diff(a.last) | F.glu(a.w.mT, 1) | F.glu(a.last, 3) | F.l1_loss(a.f.mT, a.f.mT, reduction="none")
t.index_fill(a.f.mT, 0, a.classes, 1)
t.msort(a.f.mT) | t.argsort(a.cube.mT) | t.argsort(a.f.mT, stable=True) | t.nn.utils.rnn.pad_sequence([a.v, a.five.double()])
"""


def calls(text: str) -> list[str]:
    return [line.strip() for line in text.replace("\n", "|").split("|") if line.strip()]


def parsed(call: str) -> Callable[..., Any]:
    return eval(f"lambda t, F, a: {call}", {"np": np})  # type: ignore[no-any-return]  # noqa: S307


def outcome(call: str, t: Any) -> str:
    run = parsed(call)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(t, t.nn.functional, given(t))
        except Exception as error:
            return type(error).__name__
    return "taken"


@pytest.mark.parametrize(
    "table",
    [BINDING, ASKED, DTYPES, JOINT, WRITTEN, MAKING, OUT, HELD],
    ids=["binding", "asked", "dtypes", "joint", "written", "making", "out", "held"],
)
def test_the_same_is_refused_in_the_same_way(table: str) -> None:
    import torch

    differ = {
        call: (ours, theirs)
        for call in calls(table)
        if (ours := outcome(call, rushlight)) != (theirs := outcome(call, torch))
    }
    assert not differ


@pytest.mark.parametrize("call", calls(TAKEN))
def test_the_same_comes_out(call: str) -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (parsed(call)(t, t.nn.functional, given(t)) for t in (rushlight, torch))
    assert str(ours.dtype) == str(theirs.dtype)
    assert (tuple(ours.shape), ours.stride(), ours.requires_grad) == (
        tuple(theirs.shape),
        theirs.stride(),
        theirs.requires_grad,
    )
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-3)
