"""`backward` and `grad`: from tensors to the backward loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._engine.autograd.engine import OPS, run_backward
from rushlight._engine.autograd.node import GradientEdge
from rushlight._engine.state import GRAD, STATE, TRANSFORMS
from rushlight._engine.tensor import Tensor, edge_of, plain_classes

__all__ = ["backward", "grad"]


def _tensors(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, (Tensor, GradientEdge)) or value is None else tuple(value)


def _first_gradients(outputs: Sequence[Tensor], given: Sequence[Any], is_grads_batched: bool = False) -> list[Tensor]:
    """The gradients to start from: those given, checked, or one for scalars."""
    found: list[Tensor] = []
    for out, gradient in zip(outputs, given):
        if gradient is None:
            if out._spec.numel != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if not out._spec.dtype.is_floating_point:
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {out.dtype!r}")
            gradient = OPS["one"](out)
        elif not isinstance(gradient, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(gradient).__name__}")
        elif gradient._spec.shape != out._spec.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{len(found)}] has a shape of {gradient.shape!r} and output[{len(found)}] has a shape of {out.shape!r}."
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


def _check_roots(outputs: Sequence[Tensor]) -> None:
    for i, out in enumerate(outputs):
        if not isinstance(out, Tensor):
            raise TypeError(f"expected a tensor to differentiate, got {type(out).__name__}")
        if edge_of(out) is None:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")


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
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    outputs = _tensors(tensors)
    wanted = None if inputs is None else _tensors(inputs)
    if wanted is not None and not wanted:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    _check_roots(outputs)
    given = (None,) * len(outputs) if grad_tensors is None else _tensors(grad_tensors)
    if len(given) < len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    keep = create_graph if retain_graph is None else retain_graph
    gradients = _start(outputs, given, create_graph)
    run_backward(outputs, gradients, keep, create_graph, wanted, accumulate=True)


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
    """d(outputs)/d(inputs) times `grad_outputs`, as a tuple; nothing is added to `.grad`."""
    if is_grads_batched:
        return _batched(outputs, inputs, grad_outputs, create_graph, allow_unused, materialize_grads, retain_graph)
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    outs, wanted = _tensors(outputs), _tensors(inputs)
    if "grad" in TRANSFORMS and any(type(t) not in plain_classes for t in (*outs, *wanted, *_tensors(grad_outputs))):
        found = TRANSFORMS["grad"](outs, wanted, grad_outputs, create_graph, allow_unused, materialize_grads)
        if found is not None:
            return found  # type: ignore[no-any-return]
    _check_roots(outs)
    for tensor in wanted:
        if isinstance(tensor, Tensor) and not tensor._rg:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    given = (None,) * len(outs) if grad_outputs is None else _tensors(grad_outputs)
    if len(given) < len(outs):
        raise RuntimeError(f"got {len(outs)} tensors and {len(given)} gradients")
    keep = create_graph if retain_graph is None else retain_graph
    found = run_backward(outs, _start(outs, given, create_graph), keep, create_graph, wanted, accumulate=False)
    result: list[Any] = []
    for tensor, gradient in zip(wanted, found, strict=True):
        if gradient is None and materialize_grads:
            gradient = OPS["zeros_like"](tensor)
        elif gradient is None and not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior."
            )
        result.append(gradient)
    return tuple(result)


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
    seeds = _tensors(grad_outputs)
    sizes = {g._spec.shape[0] for g in seeds if isinstance(g, Tensor) and g._spec.ndim}
    if len(sizes) != 1:
        raise RuntimeError(
            f"is_grads_batched needs grad_outputs with one common size of their first dim, got {sorted(sizes)}"
        )
    count = sizes.pop()
    if not count:
        raise RuntimeError("is_grads_batched needs at least one entry in grad_outputs")
    from rushlight._engine.lifted import pull_rows

    outs, ins = _tensors(outputs), _tensors(inputs)
    _check_roots(outs)
    keep = create_graph if retain_graph is None else retain_graph
    found = pull_rows(outs, ins, seeds, create_graph, keep)
    for k, (gradient, tensor) in enumerate(zip(found, ins, strict=True)):
        if gradient is None and materialize_grads:
            found[k] = OPS["zeros_like"](tensor)
        elif gradient is None and not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior."
            )
    return tuple(found)
