"""Gradients against finite differences.

The Jacobian that backward gives, row by row, is compared with central differences (f(x + h) - f(x - h)) / 2h in each
real direction; for complex inputs the conjugate-Wirtinger convention of PyTorch is used.  Fast mode compares one random
number for each pair of input and output: v^T J u by differences along u, and by backward from v.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from rushlight import SPARSE_LAYOUTS, Tensor, enable_grad, no_grad, tensor
from rushlight._interface.autograd import edge_of
from rushlight._interface.base import LazyModule
from rushlight._interface.base import numpy as np
from rushlight._interface.tensors import alias, overlaps_itself
from rushlight.autograd import grad
from rushlight.autograd.graph import Node

forward_ad: Any = LazyModule("rushlight.autograd.forward_ad")
transforms: Any = LazyModule("rushlight.func")

__all__ = [
    "GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian", "get_numerical_jacobian_wrt_specific_input", "gradcheck",
    "gradgradcheck", "set_stand_in",
]  # fmt: skip

# How a function of sparse tensors becomes one of strided tensors: `rushlight.sparse` adds it, without which there are
# none.
_stand_in: Callable[..., Any] | None = None
FAST = (
    "\nBoth numbers are projections of Jacobians onto random directions, as fast_mode=True asks for; without it, the whole Jacobians are compared and "
    "printed.\n"
)


_SPARSE = frozenset(SPARSE_LAYOUTS.values())


class GradcheckError(RuntimeError):
    """The gradient is wrong; the text says where."""


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def set_stand_in(function: Callable[..., Any]) -> None:
    """Choose what makes a function of sparse tensors one of strided tensors."""
    global _stand_in
    _stand_in = function


def _is_sparse(x: Any) -> bool:
    return isinstance(x, Tensor) and x.layout in _SPARSE


def _floats(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex)


def _differentiable(values: Sequence[Any]) -> list[Tensor]:
    return [v for v in values if _floats(v) and v.requires_grad]


def _array(x: Tensor) -> Any:
    if _is_sparse(x):  # the gradient of a strided tensor may be sparse
        x = x.to_dense()
    return x.detach().resolve_conj().resolve_neg().numpy().reshape(-1).copy()


def _outputs(function: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    with enable_grad():
        return [o for o in _tuple(function(*inputs)) if _floats(o)]


def _states(outputs: Sequence[Tensor]) -> list[tuple[Any, Any, Any]]:
    """Shape, dtype and values of each output as they are now."""
    return [(o.shape, o.dtype, _array(o)) for o in outputs]


def _slopes(plus: Sequence[Any], minus: Sequence[Any], eps: float, where: str = "") -> list[Any]:
    """Central differences of two lists of `_states`; AssertionError where a small step changed a shape or a dtype."""
    if len(plus) != len(minus):
        raise AssertionError(
            f"Expected `func` to return as many outputs when inputs are perturbed {where}by {eps}, but got: {len(plus)} and {len(minus)}."
        )
    for one, other in zip(plus, minus, strict=True):
        for place, word in enumerate(("shape", "dtype")):
            if one[place] != other[place]:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {word} when inputs are perturbed {where}by {eps}, but got: {word}s {one[place]} and "
                    f"{other[place]}."
                )
    return [(p - m) / (2 * eps) for (_, _, p), (_, _, m) in zip(plus, minus, strict=True)]


def _random(like: Tensor, rng: Any) -> Tensor:
    values = rng.standard_normal(tuple(like.shape))
    if like.dtype.is_complex:
        values = values + 1j * rng.standard_normal(tuple(like.shape))
    return tensor(np.asarray(values), dtype=like.dtype)


# ***** Jacobians *****


def _numerical(function: Callable[..., Any], inputs: Sequence[Any], x: Tensor, eps: float) -> list[Any]:
    """For each output the matrix d out / d x (numel(x), numel(out)): with respect to the real, then the imaginary part."""
    jacobians: list[Any] = []
    directions = (eps, eps * 1j) if x.dtype.is_complex else (eps,)
    flat = x.data.view(-1) if x.is_contiguous() else None
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
    target: Any = flat if flat is not None else x.data  # changes that the function's saved tensors need not know of
    key = place if flat is not None else index
    before = target[key].item()
    target[key] = before + step
    plus = _states(_outputs(function, inputs))
    target[key] = before - step
    minus = _states(_outputs(function, inputs))
    target[key] = before
    return _slopes(plus, minus, eps, f"on index {index} ")


def _analytical(out: Tensor, wrt: Sequence[Tensor]) -> list[Any]:
    """For each input the matrix of backward's answers to unit gradients: (directions, numel(x), numel(out))."""
    units = (1.0, 1.0j) if out.dtype.is_complex else (1.0,)
    dtypes = [_array(x[:0] if x.ndim else x).dtype for x in wrt]
    found = [np.zeros((len(units), x.numel(), out.numel()), dtype) for x, dtype in zip(wrt, dtypes, strict=True)]
    if not out.requires_grad:
        return found
    for place in range(out.numel()):
        for kind, unit in enumerate(units):
            seed = out.detach().clone().zero_().contiguous()
            seed.view(-1)[place] = unit
            rows = grad(out, wrt, seed.view(out.shape), retain_graph=True, allow_unused=True)
            for number, row in enumerate(rows):
                if row is not None:
                    found[number][kind, :, place] = _array(row)
    return found


def _expected(numerical: Any, complex_in: bool, complex_out: bool) -> Any:
    """Expected gradients of backward for unit gradients, from the directional derivatives."""
    by_real = numerical[0]
    by_imag = numerical[1] if complex_in else None
    rows = []
    for unit in (1.0, 1.0j) if complex_out else (1.0,):
        # gradient of Re(conj(unit) * out) with respect to the real and imaginary part of the input
        real = (np.conj(unit) * by_real).real
        rows.append(real + 1j * (np.conj(unit) * by_imag).real if by_imag is not None else real)
    return np.stack(rows)


def _shown(matrix: Any) -> str:
    """A Jacobian, or the two of complex numbers, as users see tensors."""
    return (
        repr(tensor(np.asarray(matrix[0])))
        if len(matrix) == 1
        else ", ".join(repr(tensor(np.asarray(m))) for m in matrix)
    )


# ***** the checks *****


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
    """True when backward agrees with finite differences within atol + rtol * |numerical|; else GradcheckError (or
    False).

    - `check_forward_ad`: forward mode too; `check_backward_ad=False`: it alone.
    - `check_undefined_grad`: backward, and forward mode, must do with gradients that are not there, as if they were zeros.
    - `check_grad_dtypes`: gradients must have the dtypes of their inputs.
    - `check_batched_grad`, `check_batched_forward_grad`: the derivatives for a batch of directions must be those for
      each of them.
    - `fast_mode`: one random direction instead of whole Jacobians.
    - `nondet_tol`: how much two runs of backward may differ.

    Inputs should be float64 or complex128.  AssertionError for options that do not go together, ValueError where no
    input wants a gradient.

    >>> import rushlight as torch
    >>> x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.sin, (x,))
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    given = _tuple(inputs)
    if _stand_in is not None and any(_is_sparse(x) for x in given):
        func, given = _stand_in(func, given, bool(masked))
    check = _Check(func, given, eps, atol, rtol, nondet_tol)
    try:
        check.prepare()
        if check_backward_ad:
            check.backward(fast_mode)
            check.without_cotangent(check_grad_dtypes)
            if check_batched_grad:
                check.batched_backward()
            if check_undefined_grad:
                check.undefined()
        if check_forward_ad:
            check.forward(fast_mode)
            if check_undefined_grad:
                check.undefined_forward()
            if check_batched_forward_grad:
                check.batched_forward()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


class _Check:
    """One function with its inputs, and what is compared with what."""

    def __init__(
        self, func: Any, inputs: tuple[Any, ...], eps: float, atol: float, rtol: float, nondet_tol: float
    ) -> None:
        self.func, self.inputs, self.eps, self.atol, self.rtol, self.nondet_tol = (
            func,
            inputs,
            eps,
            atol,
            rtol,
            nondet_tol,
        )
        self.wrt = _differentiable(inputs)
        self.places = [i for i, x in enumerate(inputs) if _floats(x) and x.requires_grad]
        self.rng = np.random.default_rng(0)
        self._numerical: list[Any] | None = None

    def prepare(self) -> None:
        """The inputs are fit for finite differences, and the function's differentiable outputs."""
        if not self.wrt:
            raise ValueError(
                "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
            )
        for i, x in zip(self.places, self.wrt, strict=True):
            if x.dtype.name not in ("float64", "complex128"):
                warnings.warn(
                    f"Input #{i} requires gradient and is not a double precision floating point or complex (it is {x.dtype!r}). This check will likely "
                    "fail.",
                    UserWarning,
                    stacklevel=4,
                )
            if not _is_sparse(x) and overlaps_itself(x._spec.shape, x._spec.strides):
                raise RuntimeError(
                    f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able to compute the "
                    "numerical gradients correctly. You should call .contiguous on the input before passing it to gradcheck."
                )
        self.outputs = _outputs(self.func, self.inputs)
        if self.outputs and not any(o.requires_grad for o in self.outputs):
            if any(np.any(np.abs(j) > self.atol) for js in self.numerical() for j in js):
                raise GradcheckError("Numerical gradient for function expected to be zero")

    def numerical(self) -> list[Any]:
        """The Jacobians by differences: for each input, for each output."""
        if self._numerical is None:
            self._numerical = [_numerical(self.func, self.inputs, x, self.eps) for x in self.wrt]
        return self._numerical

    def close(self, found: Any, wanted: Any) -> bool:
        """Whether two Jacobians agree."""
        return bool(np.allclose(found, wanted, rtol=self.rtol, atol=self.atol, equal_nan=True))

    def backward(self, fast: bool) -> None:
        """Backward against differences, and against itself."""
        for j, out in enumerate(self.outputs):
            if not out.requires_grad:
                continue
            if fast:
                self._fast_backward(j, out)
                continue
            analytical, again = _analytical(out, self.wrt), _analytical(out, self.wrt)
            for i, x in enumerate(self.wrt):
                self._same_again(analytical[i], again[i])
                if not self.numerical()[i]:
                    continue
                expected = _expected(self.numerical()[i][j], x.dtype.is_complex, out.dtype.is_complex)
                if not self.close(analytical[i], expected):
                    raise GradcheckError(
                        f"Jacobian mismatch for output {j} with respect to input {self.places[i]},\nnumerical:{_shown(expected)}\n"
                        f"analytical:{_shown(analytical[i])}\n"
                    )

    def without_cotangent(self, dtypes: bool) -> None:
        """Backward of zeros gives zeros; with `dtypes`, in the dtypes of the inputs."""
        wanted = [o for o in self.outputs if o.requires_grad]
        if not wanted:
            return
        zeros = [o.detach().clone().zero_() for o in wanted]
        found = grad(wanted, self.wrt, zeros, retain_graph=True, allow_unused=True)
        for i, x, row in zip(self.places, self.wrt, found, strict=True):
            if row is None:
                continue
            if not np.all(_array(row) == 0):
                raise GradcheckError(
                    f"backward not multiplied by grad_output: input {i} has a gradient that is not zero where all gradients of outputs are"
                )
            if dtypes and row.dtype is not x.dtype:
                raise GradcheckError(f"Gradient has dtype mismatch: {row.dtype} for input {i} of {x.dtype}")

    def _same_again(self, first: Any, second: Any) -> None:
        if not np.allclose(first, second, rtol=0, atol=self.nondet_tol, equal_nan=True):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values. The tolerance "
                f"for nondeterminism was {self.nondet_tol}."
            )

    def _along(self, i: int, direction: Tensor) -> list[Any]:
        """The change of every output along a direction of one input, by differences."""
        x = self.wrt[i]
        moved = []
        with no_grad():
            before = x.detach().clone()
            for sign in (1, -1):
                x.data.copy_(before + direction * (sign * self.eps))
                moved.append(_states(_outputs(self.func, self.inputs)))
            x.data.copy_(before)
        return _slopes(moved[0], moved[1], self.eps)

    def _fast_backward(self, j: int, out: Tensor) -> None:
        seed = _random(out, self.rng)
        rows = [grad(out, self.wrt, seed, retain_graph=True, allow_unused=True) for _ in range(2)]
        for i, (row, again) in enumerate(zip(*rows, strict=True)):
            direction = _random(self.wrt[i], self.rng)
            numerical = np.vdot(_array(seed), self._along(i, direction)[j]).real if self.wrt[i].numel() else 0.0
            analytical = 0.0 if row is None else np.vdot(_array(row), _array(direction)).real
            if row is not None:
                self._same_again(_array(row), _array(again))
            if not self.close(analytical, numerical):
                raise GradcheckError(
                    f"Jacobian mismatch for output {j} with respect to input {self.places[i]},\nnumerical:{numerical}\nanalytical:{analytical}\n{FAST}"
                )

    def forward(self, fast: bool) -> None:
        """Forward mode against differences: the derivative along every real direction, or along a random one."""
        for i, x in enumerate(self.wrt):
            if fast:
                direction = _random(x, self.rng)
                for j, (moved, wanted) in enumerate(
                    zip(self._moved(i, direction), self._along(i, direction), strict=True)
                ):
                    if self.outputs[j].requires_grad and not self.close(moved, wanted):
                        raise GradcheckError(
                            self._forward_text(i, j, f"numerical:{wanted}\nanalytical:{moved}\n{FAST}")
                        )
                continue
            for j in [k for k, o in enumerate(self.outputs) if o.requires_grad and self.numerical()[i]]:
                wanted = self.numerical()[i][j]
                found = np.zeros_like(wanted)
                for kind, place in itertools.product(range(wanted.shape[0]), range(wanted.shape[1])):
                    unit = np.zeros(wanted.shape[1], dtype="complex128" if x.dtype.is_complex else "float64")
                    unit[place] = (1.0, 1.0j)[kind]
                    found[kind, place] = self._moved(i, tensor(unit, dtype=x.dtype).reshape(x.shape))[j]
                if not self.close(found, wanted):
                    raise GradcheckError(
                        self._forward_text(i, j, f"numerical:{_shown(wanted)}\nanalytical:{_shown(found)}\n")
                    )

    def _forward_text(self, i: int, j: int, values: str) -> str:
        return f"Jacobian computed with forward mode mismatch for output {j} with respect to input {self.places[i]},\n{values}"

    def _moving(self, i: int) -> Callable[[Any], Any]:
        """The outputs as a function of one input."""
        place = self.places[i]
        return lambda x: tuple(_outputs(self.func, [*self.inputs[:place], x, *self.inputs[place + 1 :]]))

    def _moved(self, i: int, direction: Tensor, alone: bool = False) -> list[Any]:
        """The tangents of the outputs along a direction of one input; the others move by zeros, or (`alone`) not at all."""
        with forward_ad.dual_level():
            given = list(self.inputs)
            for k, place in enumerate(self.places):
                if k == i or not alone:
                    x = self.wrt[k]
                    tangent = direction if k == i else x.detach().clone().zero_()
                    given[place] = forward_ad.make_dual(x, tangent)
            pairs = [forward_ad.unpack_dual(o) for o in _outputs(self.func, given)]
            return [_array(value) * 0 if moved is None else _array(moved) for value, moved in pairs]

    def batched_backward(self) -> None:
        """Backward from several gradients at once against backward from each."""
        for j, out in enumerate(self.outputs):
            if not out.requires_grad:
                continue
            seeds = [_random(out, self.rng) for _ in range(2)]
            rows = [grad(out, self.wrt, s, retain_graph=True, allow_unused=True) for s in seeds]
            stacked = tensor(np.stack([s.numpy() for s in seeds]), dtype=out.dtype)
            both = grad(out, self.wrt, stacked, retain_graph=True, allow_unused=True, is_grads_batched=True)
            for i, found in enumerate(both):
                for k in range(2):
                    wanted = rows[k][i]
                    if wanted is not None and not self.close(_array(found[k]), _array(wanted)):
                        raise GradcheckError(
                            f"backward for a batch of gradients differs from backward for each, for output {j} and input {self.places[i]}"
                        )

    def batched_forward(self) -> None:
        """Forward mode along several directions at once against each."""
        for i, x in enumerate(self.wrt):
            directions = [_random(x, self.rng) for _ in range(2)]
            stacked = tensor(np.stack([d.numpy() for d in directions]), dtype=x.dtype)
            both = transforms.vmap(lambda t, i=i: transforms.jvp(self._moving(i), (self.wrt[i],), (t,))[1])(stacked)
            for k, direction in enumerate(directions):
                for j, wanted in enumerate(self._moved(i, direction)):
                    if not self.close(_array(both[j][k]), wanted):
                        raise GradcheckError(
                            f"forward mode for a batch of directions differs from each, for output {j} and input {self.places[i]}"
                        )

    def undefined_forward(self) -> None:
        """Forward mode where the other inputs have no tangents, against zeros as their tangents."""
        for i, x in enumerate(self.wrt if len(self.wrt) > 1 else []):
            direction = _random(x, self.rng)
            pairs = zip(self._moved(i, direction), self._moved(i, direction, alone=True), strict=True)
            for j, (wanted, found) in enumerate(pairs):
                if not self.close(found, wanted):
                    raise GradcheckError(
                        f"Expected forward mode to take tangents that are not there for zeros: output {j} moves otherwise along input {self.places[i]}"
                    )

    def undefined(self) -> None:
        """Backward with gradients that are not there: all of them, then each."""
        wanted = [o for o in self.outputs if o.requires_grad]
        choices = [set(range(len(wanted)))] + ([{k} for k in range(len(wanted))] if len(wanted) > 1 else [])
        for gone in choices if wanted else []:
            roots = [_without_gradient(o) if k in gone else o for k, o in enumerate(wanted)]
            zeros = [o.detach().clone().zero_() for o in wanted]
            try:
                found = grad(roots, self.wrt, zeros, retain_graph=True, allow_unused=True)
            except RuntimeError as error:
                raise GradcheckError(
                    f"Expected backward function to handle undefined output grads, but it raised: {error}"
                ) from error
            if any(g is not None and np.any(_array(g) != 0) for g in found):
                raise GradcheckError(
                    "Expected backward function to handle undefined output grads: gradients that are not there count as zero"
                )


class UndefinedGrad(Node):
    """Lets no gradient through."""

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        return [None for _ in self._edges]


def _without_gradient(out: Tensor) -> Tensor:
    made = alias(out)
    node = UndefinedGrad()
    node._start([edge_of(out)])
    made._node, made._rg = node, True
    return made


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
    """`gradcheck` of the gradient: second derivatives against finite differences of first ones.

    `check_fwd_over_rev` takes them by forward mode too, `gen_non_contig_grad_outputs` with gradients that are not
    contiguous; see `gradcheck` for the rest.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    given = _tuple(inputs)
    if grad_outputs is None:
        with enable_grad():
            outputs = [o for o in _outputs(func, given) if o.requires_grad]
        rng = np.random.default_rng(0)
        grad_outputs = [_random(o, rng) for o in outputs]
        if gen_non_contig_grad_outputs:
            grad_outputs = [g.unsqueeze(-1).repeat_interleave(2, -1)[..., 0] for g in grad_outputs]
        grad_outputs = [g.requires_grad_() for g in grad_outputs]
    seeds_given = _tuple(grad_outputs)
    count = len(seeds_given)

    def gradient(*args: Any) -> Any:
        values, cotangents = args[:-count], args[-count:]
        with enable_grad():  # finite differences are taken outside of the graph, but a gradient needs one
            wanted = [
                x for x, original in zip(values, given, strict=True) if _floats(original) and original.requires_grad
            ]
            found = [o for o in _outputs(func, values) if o.requires_grad]
            grads = grad(found, wanted, cotangents, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return gradcheck(
        gradient,
        (*given, *seeds_given),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


# ***** the parts by themselves *****


def get_numerical_jacobian_wrt_specific_input(
    fn: Callable[..., Any],
    input_idx: int,
    inputs: Sequence[Any],
    outputs: Any,
    eps: float,
    input: Any = None,
    is_forward_ad: bool = False,
) -> tuple[Tensor, ...]:
    """The Jacobians (elements of the input, elements of the output) of every output by one input of `fn(*inputs)`, by
    central differences.
    """
    x = inputs[input_idx] if input is None else input
    found = _numerical(fn, inputs, x, eps)
    if x.dtype.is_complex:
        return tuple(tensor(_expected(j, True, np.iscomplexobj(j))[0]) for j in found)
    return tuple(tensor(j[0]) for j in found)


def get_numerical_jacobian(
    fn: Callable[..., Any], inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0
) -> tuple[Tensor, ...]:
    """The Jacobians of the first output of `fn(inputs)` by each input (or each of `target`) that wants a gradient;
    deprecated in PyTorch.
    """
    _warn_private("get_numerical_jacobian")
    if grad_out != 1.0:
        raise ValueError(
            "Expected grad_out to be 1.0. get_numerical_jacobian no longer supports values of grad_out != 1.0."
        )
    wrt = _differentiable(_tuple(inputs if target is None else target))
    return tuple(get_numerical_jacobian_wrt_specific_input(lambda *_: fn(inputs), 0, [x], None, eps, x)[0] for x in wrt)


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """(the Jacobians of `output` by backward, whether two runs agree, whether shapes and dtypes are the inputs');
    deprecated in PyTorch.
    """
    _warn_private("get_analytical_jacobian")
    if grad_out != 1.0:
        raise ValueError(
            "Expected grad_out to be 1.0. get_analytical_jacobian no longer supports values of grad_out != 1.0."
        )
    wrt = _differentiable(_tuple(inputs))
    first, second = _analytical(output, wrt), _analytical(output, wrt)
    same = all(np.allclose(a, b, rtol=0, atol=nondet_tol, equal_nan=True) for a, b in zip(first, second, strict=True))
    grads = grad(output, wrt, output.detach().clone().zero_(), retain_graph=True, allow_unused=True)
    pairs = [(g, x) for g, x in zip(grads, wrt, strict=True) if g is not None]
    sizes, types = all(g.shape == x.shape for g, x in pairs), all(g.dtype is x.dtype for g, x in pairs)
    return tuple(tensor(j[0]) for j in first), same, sizes, types


def _warn_private(name: str) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and is deprecated there: use `torch.autograd.gradcheck`, or `torch.autograd.functional.jacobian`.",
        FutureWarning,
        stacklevel=3,
    )
