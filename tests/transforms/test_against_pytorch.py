"""Values and gradients of the primitives against real PyTorch, at ordinary numbers and at those where conventions differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.prim_cases import CASES, Case, random, run_gradient

from rushlight._prims import PRIMITIVES
from rushlight._transforms.vjp import vjp

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

inf, nan = np.inf, np.nan
SAME = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "floor", "ceil", "trunc", "round", "neg",
    "abs", "add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum", "copysign",
)  # fmt: skip
# names and arguments that differ
OTHER: dict[str, Callable[..., Any]] = {
    "sign": lambda x: torch.sgn(x),
    "rem_trunc": lambda a, b: torch.fmod(a, b),
    "real": lambda x: torch.real(x),
    "imag": lambda x: torch.imag(x),
    "conj": lambda x: torch.conj(x).resolve_conj(),
    "complex": lambda a, b: torch.complex(a, b),
    "select": lambda c, a, b: torch.where(c, a, b),
    "flip": lambda x, dims: torch.flip(x, dims),
    "cat": lambda *xs, dim: torch.cat(xs, dim),
    "sum": lambda x, dims: x.sum(dims) if dims else x.clone(),
    "amax": lambda x, dims: x.amax(dims) if dims else x.clone(),
    "amin": lambda x, dims: x.amin(dims) if dims else x.clone(),
    "prod": lambda x, dims: x.prod(dims[0]) if len(dims) == 1 else None,
    "cumsum": lambda x, dim, reverse: x.flip(dim).cumsum(dim).flip(dim) if reverse else x.cumsum(dim),
    "cumprod": lambda x, dim, reverse: x.flip(dim).cumprod(dim).flip(dim) if reverse else x.cumprod(dim),
    "cummax": lambda x, dim: tuple(torch.cummax(x, dim)),
    "cummin": lambda x, dim: tuple(torch.cummin(x, dim)),
    "argmax": lambda x, dim: x.argmax(dim),
    "argmin": lambda x, dim: x.argmin(dim),
    "gather": lambda x, i, dim: torch.gather(x, dim, torch.where(i < 0, i + x.shape[dim], i)),
    "scatter": lambda x, i, s, dim, reduce: _scatter(x, torch.where(i < 0, i + x.shape[dim], i), s, dim, reduce),
    "index": lambda x, *i: x[i],
    "index_put": lambda x, v, *i, accumulate: torch.index_put(x, i, v, accumulate),
    "dot": lambda a, b, dtype: a.to(getattr(torch, dtype.name)) @ b.to(getattr(torch, dtype.name)),
    "conv": lambda x, w, **p: getattr(torch.nn.functional, f"conv{x.ndim - 2}d")(x, w, **p),
    "sort": lambda x, dim, **p: tuple(torch.sort(x, dim=dim, **p)),
    "topk": lambda x, **p: tuple(torch.topk(x, **p)),
    "window": lambda x, **p: _window(x, **p),
}


def _scatter(x, index, src, dim, reduce):
    if reduce == "set":
        return torch.scatter(x, dim, index, src)
    names = {"add": "sum", "mul": "prod"}
    return torch.scatter_reduce(x, dim, index, src, names.get(reduce, reduce))


def _window(x, dims, size, stride, dilation):
    for d, k, step, gap in zip(dims, size, stride, dilation, strict=True):
        x = x.unfold(d, gap * (k - 1) + 1, step)[..., ::gap]
    return x


def specials() -> list[Case]:
    """Corners, ties, infinities and NaN."""
    x = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, inf, -inf, nan, 1e-300])
    a, b = (v.ravel() for v in np.meshgrid(x, x))
    skip = {
        # PyTorch's own results at these places are accidents of their formulas, and not ours
        "digamma", "lgamma", "atan2",
    }  # fmt: skip
    found = []
    for name in SAME:
        if name in skip:
            continue
        arity = len(next(c for c in CASES if c.primitive.name == name).arrays)
        found.append(Case(PRIMITIVES[name], 100, [x] if arity == 1 else [a, b], {}))
    ties = np.array(
        [[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0], [2.0, nan, 1.0, nan], [0.0, 5.0, 0.0, 2.0], [4.0, 0.0, 3.0, 2.0]]
    )
    for name in ("amax", "amin", "prod", "sum"):
        found.append(Case(PRIMITIVES[name], 100, [ties], {"dims": (1,)}))
    for name in ("cumprod", "cumsum"):
        found.append(Case(PRIMITIVES[name], 100, [ties], {"dim": 1, "reverse": False}))
    for name in ("cummax", "cummin", "argmax", "argmin"):
        found.append(Case(PRIMITIVES[name], 100, [ties], {"dim": 1}))
    index = np.array([0, 0, 0, 1, 1, 2, 3])
    source = np.array([0.0, 2.0, 3.0, 0.0, 0.0, 5.0, 1.0])
    for reduce in ("mul", "amax", "amin"):
        found.append(
            Case(
                PRIMITIVES["scatter"],
                100,
                [np.array([2.0, 2.0, 0.0, 1.0]), index, source],
                {"dim": 0, "reduce": reduce},
            )
        )
    return found


def supported(case: Case) -> bool:
    name = case.primitive.name
    if name not in SAME and name not in OTHER:
        return False
    if name in ("argmax", "argmin") and case.arrays[0].dtype.kind == "b":
        return False
    if any(a.size == 0 for a in case.arrays) and name in ("amax", "amin", "prod"):
        return False
    if name == "prod" and len(case.params["dims"]) != 1:
        return False
    if any(a.dtype.kind in "biu" for a in case.arrays) and name in (
        "pow",
        "sum",
        "prod",
        "cumsum",
        "cumprod",
        "neg",
        "exp",
    ):
        return False  # PyTorch computes these in another dtype, or has values of its own for negative exponents
    if name == "copysign" or (name == "conv" and case.arrays[0].dtype.kind == "c"):
        return name == "conv"
    return True


def same(got: Any, want: Any, name: str) -> None:
    want = want.detach().resolve_conj().numpy(force=True)
    assert got.shape == want.shape and got.dtype == want.dtype, name
    tolerance = 2e-5 if got.dtype.name in ("float32", "complex64") else 1e-9
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("case", [c for c in [*CASES, *specials()] if supported(c)], ids=repr)
def test_values_and_gradients(case: Case) -> None:
    name = case.primitive.name
    function = OTHER.get(name) or getattr(torch, name)
    arrays = [torch.from_numpy(a.copy()) for a in case.arrays]
    graph = case.graph()
    wrt = case.wrt if case.differentiable else []
    for i in wrt:
        arrays[i].requires_grad_()
    results = function(*arrays, **case.params)
    results = results if isinstance(results, tuple) else (results,)
    gradient = vjp(graph, wrt)
    cts = [random(graph.outputs[j].shape, graph.outputs[j].dtype, 5 + j) for j in gradient.cotangents]
    got, grads = run_gradient(gradient, case.arrays, cts) if wrt else (_plain(case), [])
    for j, (mine, theirs) in enumerate(zip(got, results, strict=True)):
        if name == "topk" and j == 1:
            continue
        same(mine, theirs, f"result {j}")
    if wrt:
        pairs = [
            (r, torch.from_numpy(ct)) for r, ct in zip([results[j] for j in gradient.cotangents], cts, strict=True)
        ]
        torch.autograd.backward([r for r, _ in pairs], [ct for _, ct in pairs])
        for i, mine in zip(wrt, grads, strict=True):
            theirs = arrays[i].grad
            if mine is not None and theirs is not None:
                same(mine, theirs, f"gradient {i}")


def _plain(case: Case) -> list[Any]:
    from rushlight._backends.reference import run

    return run(case.graph(), case.arrays)
