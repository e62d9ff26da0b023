"""Gradients against finite differences.

The Jacobian that backward gives, row by row, is compared with central differences (f(x + h) - f(x - h)) / 2h in each real
direction; for complex inputs the conjugate-Wirtinger convention of PyTorch is used.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._engine.autograd.api import grad
from rushlight._engine.modes import enable_grad, no_grad
from rushlight._engine.sparse import SparseKind
from rushlight._engine.tensor import Tensor

__all__ = ["STAND_INS", "GradcheckError", "gradcheck", "gradgradcheck"]

# How a function of sparse tensors becomes one of strided tensors: `rushlight.sparse` adds it, without which there are none.
STAND_INS: list[Callable[..., Any]] = []


class GradcheckError(RuntimeError):
    """The gradient is wrong; the text says where."""


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _differentiable(values: Sequence[Any]) -> list[Tensor]:
    return [
        v
        for v in values
        if isinstance(v, Tensor) and (v.dtype.is_floating_point or v.dtype.is_complex) and v.requires_grad
    ]


def _array(x: Tensor) -> Any:
    if isinstance(x, SparseKind):  # the gradient of a strided tensor may be sparse
        x = x.to_dense()
    return x.detach().to(x.dtype).numpy().reshape(-1).copy()  # type: ignore[attr-defined]


def _outputs(function: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    return [
        o
        for o in _tuple(function(*inputs))
        if isinstance(o, Tensor) and (o.dtype.is_floating_point or o.dtype.is_complex)
    ]


def _numerical(function: Callable[..., Any], inputs: Sequence[Any], x: Tensor, eps: float) -> list[Any]:
    """For each output the matrix d out / d x (numel(x), numel(out)): with respect to the real, then the imaginary part."""
    jacobians: list[Any] = []
    directions = (eps, eps * 1j) if x.dtype.is_complex else (eps,)
    flat = x.detach().view(-1) if x.is_contiguous() else None  # type: ignore[attr-defined]
    with no_grad():
        places = list(itertools.product(*[range(n) for n in x.shape]))
        for place in range(len(places)):
            for kind, step in enumerate(directions):
                found = _central(function, inputs, x, flat, places[place], place, step, eps)
                for number, column in enumerate(found):
                    if number == len(jacobians):
                        jacobians.append(
                            np.zeros((len(directions), len(places), column.size), dtype=np.result_type(column))
                        )
                    jacobians[number][kind, place] = column
    return jacobians


def _central(
    function: Any, inputs: Any, x: Tensor, flat: Any, index: Any, place: int, step: Any, eps: float
) -> list[Any]:
    target: Any = flat if flat is not None else x.detach()
    key = place if flat is not None else index
    before = target[key].item()
    target[key] = before + step
    plus = [_array(o) for o in _outputs(function, inputs)]
    target[key] = before - step
    minus = [_array(o) for o in _outputs(function, inputs)]
    target[key] = before
    return [(p - m) / (2 * eps) for p, m in zip(plus, minus, strict=True)]


def _analytical(function: Callable[..., Any], inputs: Sequence[Any], output: int, wrt: Sequence[Tensor]) -> list[Any]:
    """For each input the matrix of backward's answers to unit gradients: (directions, numel(x), numel(out))."""
    with enable_grad():
        out = _outputs(function, inputs)[output]
    units = (1.0, 1.0j) if out.dtype.is_complex else (1.0,)
    dtypes = [_array(x[:0] if x.ndim else x).dtype for x in wrt]  # type: ignore[index]
    found = [np.zeros((len(units), x.numel(), out.numel()), dtype) for x, dtype in zip(wrt, dtypes, strict=True)]  # type: ignore[attr-defined]
    if not out.requires_grad:
        return found
    for place in range(out.numel()):  # type: ignore[attr-defined]
        for kind, unit in enumerate(units):
            seed = out.detach().clone().zero_().contiguous()  # type: ignore[attr-defined]
            seed.view(-1)[place] = unit
            rows = grad(out, wrt, seed.view(out.shape), retain_graph=True, allow_unused=True)
            for number, row in enumerate(rows):
                if row is not None:
                    found[number][kind, :, place] = _array(row)
    return found


def _expected(numerical: Any, complex_in: bool, complex_out: bool) -> Any:
    """What backward should give for unit gradients, from the directional derivatives."""
    by_real = numerical[0]
    by_imag = numerical[1] if complex_in else None
    rows = []
    for unit in (1.0, 1.0j) if complex_out else (1.0,):
        # gradient of Re(conj(unit) * out) with respect to the real and imaginary part of the input
        real = (np.conj(unit) * by_real).real
        rows.append(real + 1j * (np.conj(unit) * by_imag).real if by_imag is not None else real)
    return np.stack(rows)


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """True when backward agrees with finite differences within atol + rtol * |numerical|; else GradcheckError (or False).

    Inputs should be float64 or complex128.

    >>> import rushlight as torch
    >>> x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.sin, (x,))
    True
    """
    if check_forward_ad or check_batched_grad or check_batched_forward_grad:
        raise NotImplementedError("rushlight has no forward-mode or batched check in gradcheck yet")
    given = _tuple(inputs)
    if STAND_INS and any(isinstance(x, SparseKind) for x in given):
        func, given = STAND_INS[0](func, given, bool(masked))
    try:
        _check(func, given, eps, atol, rtol, nondet_tol, check_grad_dtypes)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(
    func: Any, inputs: tuple[Any, ...], eps: float, atol: float, rtol: float, nondet_tol: float, dtypes: bool
) -> None:
    wrt = _differentiable(inputs)
    if not wrt:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    for x in wrt:
        if x.dtype.name not in ("float64", "complex128"):
            warnings.warn(
                f"Input requires gradient and is not a double precision floating point or complex (it is {x.dtype!r}). This check will likely fail.",
                UserWarning,
                stacklevel=4,
            )
    with enable_grad():
        outputs = _outputs(func, inputs)
    numerical = [_numerical(func, inputs, x, eps) for x in wrt]
    for j, out in enumerate(outputs):
        analytical = _analytical(func, inputs, j, wrt)
        again = _analytical(func, inputs, j, wrt)
        for i, x in enumerate(wrt):
            if not np.allclose(analytical[i], again[i], rtol=0, atol=nondet_tol, equal_nan=True):
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values"
                )
            if not numerical[i]:
                continue
            expected = _expected(numerical[i][j], x.dtype.is_complex, out.dtype.is_complex)
            if not np.allclose(analytical[i], expected, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian mismatch for output {j} with respect to input {i},\nnumerical:{expected!r}\nanalytical:{analytical[i]!r}\n"
                )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradient: second derivatives against finite differences of first ones."""
    given = _tuple(inputs)
    if grad_outputs is None:
        with enable_grad():
            outputs = [o for o in _outputs(func, given) if o.requires_grad]
        seeds = np.random.default_rng(0)
        grad_outputs = [_seed(o, seeds) for o in outputs]
    seeds_given = _tuple(grad_outputs)
    count = len(seeds_given)

    def gradient(*args: Any) -> Any:
        values, cotangents = args[:-count], args[-count:]
        with enable_grad():  # finite differences are taken outside of the graph, but a gradient needs one
            wanted = _differentiable(values)
            found = [o for o in _outputs(func, values) if o.requires_grad]
            grads = grad(found, wanted, cotangents, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return gradcheck(
        gradient, (*given, *seeds_given), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad, fast_mode=fast_mode, masked=masked,
    )  # fmt: skip


def _seed(out: Tensor, rng: Any) -> Tensor:
    from rushlight._engine.creation import tensor

    values = rng.standard_normal(tuple(out.shape))
    if out.dtype.is_complex:
        values = values + 1j * rng.standard_normal(tuple(out.shape))
    return tensor(np.asarray(values), dtype=out.dtype, requires_grad=True)
