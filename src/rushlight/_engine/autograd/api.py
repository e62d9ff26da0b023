"""`backward` and `grad`: from tensors to the backward loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rushlight._base.lazy import LazyModule
from rushlight._base.tracebacks import shorten
from rushlight._engine.autograd.engine import filled, run_backward
from rushlight._engine.autograd.node import AccumulateGrad, GradientEdge, split_edge
from rushlight._engine.core.hooks import HOOKS, OPS
from rushlight._engine.core.state import FUNCTION_MODE, GRAD, STATE, TRANSFORMS
from rushlight._engine.core.tensor import Tensor, edge_of, make, plain_classes
from rushlight._engine.dispatch.override import as_arguments, dispatch

gradients: Any = LazyModule("rushlight._engine.functorch.gradients")
halves: Any = LazyModule("rushlight._engine.autograd.halves")

__all__ = ["backward", "grad", "run_in_halves", "zero_gradients"]


def _tensors(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, (Tensor, GradientEdge)) or value is None else tuple(value)


def _asked(function: Any, args: tuple[Any, ...], relevant: Sequence[Any], named: dict[str, Any]) -> tuple[bool, Any]:
    """(True, result) if a mode, or the class of one of `relevant`, handles the call."""
    mode = bool(STATE.function_modes) and STATE.word & FUNCTION_MODE
    if not mode and (not HOOKS.asks or STATE.overrides_off):
        return False, None
    found = [] if STATE.overrides_off else as_arguments(relevant)
    return (True, dispatch(function, found, args, named)) if found or mode else (False, None)


def _first_gradients(outputs: Sequence[Tensor], given: Sequence[Any], is_grads_batched: bool = False) -> list[Tensor]:
    """The gradients to start from: the given ones, checked, or 1 for scalars."""
    found: list[Tensor] = []
    for out, gradient in zip(outputs, given):
        out = _behind(out) if isinstance(out, GradientEdge) else out
        if gradient is None:
            if out._spec.numel != 1:
                raise RuntimeError(
                    f"grad can be implicitly created only for scalar outputs, but this one has shape {list(out.shape)}: reduce it first, for example "
                    "with .sum() or .mean(), or give gradient="
                )
            if not out._spec.dtype.is_floating_point:
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {out.dtype!r}")
            gradient = OPS["one"](out)
        elif not isinstance(gradient, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(gradient).__name__}")
        elif gradient._spec.shape != out._spec.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{len(found)}] has a shape of {gradient.shape!r} and output[{len(found)}] has a shape of {out.shape!r}."
            )
        elif gradient._spec.device != out._spec.device:
            raise RuntimeError(
                f"invalid gradient at index {len(found)} - expected device {out.device} but got {gradient.device}"
            )
        elif gradient._spec.dtype.is_complex != out._spec.dtype.is_complex:
            raise RuntimeError(
                f"For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: grad_output["
                f"{len(found)}] has a dtype of {gradient.dtype!r} and output[{len(found)}] has a dtype of {out.dtype!r}."
            )
        elif gradient._spec.dtype is not out._spec.dtype:
            gradient = OPS["to_dtype"](gradient, out._spec.dtype)
        found.append(gradient)
    return found


def _behind(edge: GradientEdge) -> Tensor:
    """A tensor without data in place of the one that an edge belongs to, with the shape and dtype of its gradient."""
    node, number = split_edge(edge)
    if isinstance(node, AccumulateGrad):
        if node.variable is None:
            raise RuntimeError("the leaf behind this GradientEdge is gone")
        return node.variable
    spec = node._result_specs()[number]
    if spec is None:
        raise RuntimeError(f"output {number} of {node.name()} is no tensor")
    return make(None, spec, 0)


def _check_roots(outputs: Sequence[Any]) -> None:
    for i, out in enumerate(outputs):
        if isinstance(out, GradientEdge):
            continue
        if not isinstance(out, Tensor):
            raise TypeError(f"expected a tensor to differentiate, got {type(out).__name__}")
        if edge_of(out) is None:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn: no tensor that it was computed from has requires_grad=True, "
                "or it was computed under no_grad() or behind detach()"
            )


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add d(tensors)/d(leaf) to `.grad` of every leaf they depend on (or of `inputs` alone).

    >>> import rushlight as torch
    >>> x = torch.tensor([2.0], requires_grad=True)
    >>> torch.autograd.backward((x ** 3).sum())
    >>> x.grad
    tensor([12.])
    """
    try:
        if "active" in TRANSFORMS and TRANSFORMS["active"]():
            raise RuntimeError(
                "backward() called inside a functorch transform. This is not supported, please use functorch.grad or functorch.vjp instead or call "
                "backward() outside of functorch transforms."
            )
        if grad_variables is not None:
            if grad_tensors is not None:
                raise RuntimeError(
                    "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only use `grad_tensors`."
                )
            grad_tensors = grad_variables
            warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        outputs = _tensors(tensors)
        wanted = None if inputs is None else _tensors(inputs)
        if wanted is not None and not wanted:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
        if HOOKS.asks or STATE.word & FUNCTION_MODE:
            named = {
                "grad_tensors": grad_tensors,
                "retain_graph": retain_graph,
                "create_graph": create_graph,
                "inputs": wanted,
            }
            if _asked(backward, (outputs,), (*outputs, *(wanted or ())), named)[0]:
                return
        given = (None,) * len(outputs) if grad_tensors is None else _tensors(grad_tensors)
        if "values" in TRANSFORMS:
            outputs, given = TRANSFORMS["values"](outputs), TRANSFORMS["values"](given)
        _check_roots(outputs)
        if len(given) < len(outputs):
            raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
        keep = create_graph if retain_graph is None else retain_graph
        gradients = _start(outputs, given, create_graph)
        if create_graph:
            warnings.warn(
                "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can cause a memory "
                "leak. We recommend using autograd.grad when creating the graph to avoid this. If you have to use this function, make sure to reset the "
                ".grad fields of your parameters to None after use to break the cycle and avoid the leak.",
                UserWarning,
                stacklevel=3,
            )
        run_backward(outputs, gradients, keep, create_graph, wanted, accumulate=True)
    except BaseException as error:
        shorten(error)
        raise


def _start(outputs: Sequence[Tensor], given: Sequence[Any], create_graph: bool) -> list[Tensor]:
    if create_graph:
        return _first_gradients(outputs, given)
    before = STATE.word
    STATE.word = before & ~GRAD
    try:
        return _first_gradients(outputs, given)
    finally:
        STATE.word = before


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """d(outputs)/d(inputs) times `grad_outputs`, as a tuple; nothing is added to `.grad`.

    - `outputs`, `inputs`: tensors, or edges from `graph.get_gradient_edge`.  For a dictionary of inputs a dictionary
      comes back.
    - `grad_outputs`: one gradient for each output, needed unless it is a scalar.
    - `create_graph`: the result can be differentiated again; `retain_graph` (then the default): so can `outputs`.
    - `allow_unused`: None for inputs that the outputs do not depend on, else RuntimeError; with `materialize_grads`
      zeros.
    - `is_grads_batched`: `grad_outputs` have a further first dim, and so have the results.

        >>> import rushlight as torch
        >>> x = torch.tensor(2.0, requires_grad=True)
        >>> (first,) = torch.autograd.grad(x ** 3, x, create_graph=True)
        >>> torch.autograd.grad(first, x)
        (tensor(12.),)
    """
    try:
        if not only_inputs:
            warnings.warn(
                "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for other parts of the graph, please use "
                "torch.autograd.backward.",
                FutureWarning,
                stacklevel=2,
            )
        if isinstance(inputs, dict):
            values, rest = tuple(inputs.values()), (True, allow_unused, is_grads_batched, materialize_grads)
            found = grad(outputs, values, grad_outputs, retain_graph, create_graph, *rest)
            return dict(zip(inputs, found, strict=True))  # type: ignore[return-value]
        outs, wanted = _tensors(outputs), _tensors(inputs)  # read once: they may be generators, as `parameters()` is
        if grad_outputs is not None and not isinstance(grad_outputs, Tensor):
            grad_outputs = _tensors(grad_outputs)
        if HOOKS.asks or STATE.word & FUNCTION_MODE:
            named = {
                "grad_outputs": grad_outputs, "retain_graph": retain_graph, "create_graph": create_graph, "only_inputs": only_inputs,
                "allow_unused": allow_unused, "is_grads_batched": is_grads_batched, "materialize_grads": materialize_grads,
            }  # fmt: skip
            handled, made = _asked(grad, (outs, wanted), (*outs, *wanted), named)
            if handled:
                return made
        if is_grads_batched:
            return _batched(outs, wanted, grad_outputs, create_graph, allow_unused, materialize_grads, retain_graph)
        if materialize_grads and allow_unused is False:
            raise ValueError(
                "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
            )
        if not wanted:
            raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
        if "grad" in TRANSFORMS and any(
            type(t) not in plain_classes for t in (*outs, *wanted, *_tensors(grad_outputs))
        ):
            found = TRANSFORMS["grad"](outs, wanted, grad_outputs, create_graph, allow_unused, materialize_grads)
            if found is not None:
                return found
        _check_roots(outs)
        _check_wanted(wanted)
        given = (None,) * len(outs) if grad_outputs is None else _tensors(grad_outputs)
        if len(given) < len(outs):
            raise RuntimeError(f"got {len(outs)} tensors and {len(given)} gradients")
        keep = create_graph if retain_graph is None else retain_graph
        found = run_backward(outs, _start(outs, given, create_graph), keep, create_graph, wanted, accumulate=False)
        return filled(found, wanted, allow_unused, materialize_grads, create_graph)
    except BaseException as error:
        shorten(error)
        raise


def _check_wanted(wanted: Sequence[Any]) -> None:
    """RuntimeError for an input that has no gradient."""
    for tensor in wanted:
        if not isinstance(tensor, (Tensor, GradientEdge)):
            raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(tensor).__name__}")
        if isinstance(tensor, Tensor) and not tensor._rg:
            raise RuntimeError("One of the differentiated Tensors does not require grad")


def _batched(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    create_graph: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
    retain_graph: bool | None,
) -> tuple[Any, ...]:
    """`grad` for each entry along the first dim of `grad_outputs`, stacked along a new first dim."""
    outs = _tensors(outputs)
    seeds = _tensors(grad_outputs)
    for i, (seed, out) in enumerate(zip(seeds, outs)):
        if seed is None:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if seed._spec.shape[1:] != out._spec.shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes of the remaining "
                "dimensions are expected to match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{i}] has a shape of {seed.shape[1:]!r} and output[{i}] has a shape of {out.shape!r}."
            )
    sizes = {g._spec.shape[0] for g in seeds if isinstance(g, Tensor) and g._spec.ndim}
    if len(sizes) != 1:
        raise RuntimeError(
            f"is_grads_batched needs grad_outputs with one common size of their first dim, got {sorted(sizes)}"
        )
    count = sizes.pop()
    if not count:
        raise RuntimeError("is_grads_batched needs at least one entry in grad_outputs")
    seeds = tuple(
        [s if s._spec.dtype is o._spec.dtype else OPS["to_dtype"](s, o._spec.dtype) for s, o in zip(seeds, outs)]
    )
    ins = _tensors(inputs)
    _check_roots(outs)
    keep = create_graph if retain_graph is None else retain_graph
    return filled(
        gradients.vjp_rows(outs, ins, seeds, create_graph, keep), ins, allow_unused, materialize_grads, create_graph
    )


def run_in_halves(
    outputs: Sequence[Tensor], grads: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[list[Tensor | None], Callable[[], None]]:
    """The gradients of `inputs`, and a function that adds those of all other leaves to `.grad`: pipelines send the first
    on before they compute the second.
    """
    found: tuple[list[Tensor | None], Callable[[], None]] = halves.run_in_halves(outputs, grads, inputs)
    return found


def zero_gradients(tensors: Iterable[Tensor], set_to_none: bool) -> None:
    """Drop the gradients of these leaves, or fill them with zeros in place: then they no longer know what they were
    computed from.
    """
    for tensor in tensors:
        gradient: Any = tensor.grad
        if gradient is None:
            continue
        if set_to_none:
            tensor.grad = None
            continue
        if gradient.grad_fn is not None:
            gradient.detach_()
        else:
            gradient.requires_grad_(False)
        gradient.zero_()
