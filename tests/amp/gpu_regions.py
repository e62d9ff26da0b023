"""Dtypes of results in regions of automatic casts on a GPU, told by fake tensors: here and by PyTorch, neither of which needs a GPU.

`python tests/amp/gpu_regions.py` asks PyTorch anew and writes `gpu_regions.json`; `--ours` prints what we say (with RUSHLIGHT_CUDA=emulated).
"""

from __future__ import annotations

import json
import pathlib
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

FILE = pathlib.Path(__file__).with_name("gpu_regions.json")
KINDS = ("float16", "float32", "float64")
UNTOLD = "needs a GPU"


def functions(t: Any, a: Any) -> dict[str, Callable[[], Any]]:
    """Calls by name; `a` has arguments of one dtype, and some of float32."""
    F, linalg = t.nn.functional, t.linalg
    found: dict[str, Any] = {}
    for name in (
        "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan sum prod mean std var norm dist "
        "nuclear_norm sigmoid tanh relu erf sqrt nansum logcumsumexp exp_ pow_ cumsum_ sum_int"
    ).split():
        found[name] = lambda name=name: {
            "exp_": lambda: a.h.clone().exp_(), "pow_": lambda: a.h.clone().pow_(2), "cumsum_": lambda: a.h.clone().cumsum_(0),
            "dist": lambda: t.dist(a.h, a.f), "logcumsumexp": lambda: t.logcumsumexp(a.h, 0), "sum_int": lambda: a.classes.sum(),
        }.get(name, lambda: getattr(t, name)(a.h))()  # fmt: skip
    for name in ("sum", "prod", "softmax", "log_softmax", "cumsum", "cumprod", "logsumexp"):
        found[f"{name} along"] = lambda name=name: getattr(a.h, name)(1)
        if name != "logsumexp":
            found[f"{name} to a dtype"] = lambda name=name: getattr(a.h, name)(1, dtype=t.float16)
    for name in ("mm", "matmul", "inner", "kron", "tensordot 1", "atan2", "add", "pow", "cdist", "cosine_similarity"):
        call, *rest = name.split()
        found[name] = lambda call=call, rest=rest: getattr(t, call)(a.h, a.h, *map(int, rest))
        found[f"{name}, mixed"] = lambda call=call, rest=rest: getattr(t, call)(a.h, a.f, *map(int, rest))
    for name in (
        "l1_loss mse_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss soft_margin_loss binary_cross_entropy binary_cross_entropy_with_logits "
        "hinge_embedding_loss pairwise_distance"
    ).split():
        found[name] = lambda name=name: getattr(F, name)(a.h, a.h)
    for name in ("cross_entropy", "nll_loss", "multi_margin_loss"):
        found[name] = lambda name=name: getattr(F, name)(a.h, a.classes)
    for name in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        found[f"interpolate {name}"] = lambda name=name: F.interpolate(a.x, scale_factor=2, mode=name)
    found |= {
        "softmin": lambda: F.softmin(a.h, -1), "F.softmax to a dtype": lambda: F.softmax(a.h, -1, dtype=t.float16), "softplus": lambda: F.softplus(a.h),
        "rpow": lambda: 2**a.h, "square by pow": lambda: a.h**2, "rdiv": lambda: 1 / a.h, "renorm": lambda: t.renorm(a.h, 2, 0, 1),
        "layer_norm": lambda: F.layer_norm(a.h, (4,)), "layer_norm, mixed": lambda: F.layer_norm(a.h, (4,), a.w, a.w),
        "group_norm": lambda: F.group_norm(a.x, 3), "rms_norm": lambda: F.rms_norm(a.h, (4,)), "instance_norm": lambda: F.instance_norm(a.x),
        "frobenius_norm": lambda: t.frobenius_norm(a.h, [0, 1]), "normalize": lambda: F.normalize(a.h), "norm to a dim": lambda: a.h.norm(dim=1), "vector_norm": lambda: linalg.vector_norm(a.h),
        "vector_norm to a dtype": lambda: linalg.vector_norm(a.h, dtype=t.float32), "matrix_norm": lambda: linalg.matrix_norm(a.h),
        "linalg.norm": lambda: linalg.norm(a.h), "pdist": lambda: F.pdist(a.h),
        "triplet": lambda: F.triplet_margin_loss(a.h, a.h, a.h), "margin": lambda: F.margin_ranking_loss(a.v, a.v, a.v),
        "multilabel": lambda: F.multilabel_margin_loss(a.v, a.classes), "nll over images": lambda: F.nll_loss(a.x, a.maps),
        "addmm": lambda: t.addmm(a.h, a.h, a.h), "addbmm": lambda: t.addbmm(a.h, a.b, a.b), "baddbmm": lambda: t.baddbmm(a.b, a.b, a.b),
        "bmm": lambda: t.bmm(a.b, a.b), "mv": lambda: t.mv(a.h, a.v), "addmv": lambda: t.addmv(a.v, a.h, a.v), "addr": lambda: t.addr(a.h, a.v, a.v),
        "linear": lambda: F.linear(a.h, a.h, a.v), "multi_dot": lambda: linalg.multi_dot([a.h, a.h, a.h]), "vecdot": lambda: linalg.vecdot(a.h, a.h),
        "chain_matmul": lambda: t.chain_matmul(a.h, a.h), "einsum": lambda: t.einsum("ij,jk", a.h, a.h), "einsum of one": lambda: t.einsum("ij->i", a.h),
        "outer": lambda: t.outer(a.v, a.v), "dot": lambda: t.dot(a.v, a.v), "dot, mixed": lambda: t.dot(a.v, a.w), "vdot": lambda: t.vdot(a.v, a.v),
        "conv1d": lambda: F.conv1d(a.b, a.taps), "conv_transpose1d": lambda: F.conv_transpose1d(a.b, a.taps), "prelu": lambda: F.prelu(a.h, a.one),
        "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(a.x, a.x, a.x),
        "addcmul": lambda: t.addcmul(a.h, a.h, a.f), "addcdiv": lambda: t.addcdiv(a.h, a.h, a.f), "bilinear": lambda: F.bilinear(a.h, a.h, a.cube),
        "cross": lambda: t.cross(a.three, a.three, dim=1), "grid_sample": lambda: F.grid_sample(a.x, a.grid),
        "scatter_add": lambda: t.scatter_add(a.h, 0, a.places, a.f), "cat": lambda: t.cat([a.h, a.f]), "stack": lambda: t.stack([a.h, a.f]),
        "gru_cell": lambda: t.gru_cell(a.h, a.h, a.gates, a.gates), "rnn_tanh_cell": lambda: t.rnn_tanh_cell(a.h, a.h, a.f, a.f),
        "max_pool3d": lambda: F.avg_pool2d(a.x, 2), "gelu": lambda: F.gelu(a.h), "fft": lambda: t.fft.fft(a.f), "embedding": lambda: F.embedding(a.classes, a.f),
    }  # fmt: skip
    return found


def arguments(t: Any, kind: Any) -> Any:
    def empty(*shape: int, dtype: Any = kind) -> Any:
        return t.empty(shape, device="cuda", dtype=dtype)

    return SimpleNamespace(
        h=empty(4, 4), v=empty(4), b=empty(4, 4, 4), x=empty(2, 3, 8, 8), taps=empty(4, 4, 1), one=empty(1), cube=empty(2, 4, 4), three=empty(4, 3),
        f=empty(4, 4, dtype=t.float32), w=empty(4, dtype=t.float32), gates=empty(12, 4, dtype=t.float32), grid=empty(2, 4, 4, 2, dtype=t.float32),
        classes=empty(4, dtype=t.int64), maps=empty(2, 8, 8, dtype=t.int64), places=empty(4, 4, dtype=t.int64),
    )  # fmt: skip


def run(t: Any, mode: Any) -> dict[str, dict[str, str]]:
    """For each dtype of arguments the dtypes of all results, or the class of the error."""
    answers: dict[str, dict[str, str]] = {}
    warnings.simplefilter("ignore")
    t.set_autocast_dtype("cuda", t.float16)
    t.set_autocast_enabled("cuda", True)
    with mode():
        for kind in KINDS:
            answers[kind] = {}
            for name, call in functions(t, arguments(t, getattr(t, kind))).items():
                if kind == "float64" and name.endswith(("mixed", "_cell")):
                    continue  # fake tensors of PyTorch take dtypes that kernels refuse
                try:
                    answers[kind][name] = str(call().dtype).rpartition(".")[2]
                except (RuntimeError, NotImplementedError, AssertionError) as error:
                    needs_gpu = "CUDA enabled" in str(error) or "not linked" in str(error)
                    answers[kind][name] = UNTOLD if needs_gpu else type(error).__name__
    t.set_autocast_enabled("cuda", False)
    return answers


if __name__ == "__main__":
    if "--ours" in sys.argv:
        import rushlight
        from rushlight._subclasses.fake_tensor import FakeTensorMode

        print(json.dumps(run(rushlight, FakeTensorMode)))
    else:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode as TheirMode

        FILE.write_text(json.dumps(run(torch, TheirMode), indent=0, sort_keys=True) + "\n")
