"""Recording calls: the backward node of one call, what it saves, and plans around a kernel that record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.current_streams import CURRENT_STREAMS
from rushlight._base.errors import user_code, user_frame
from rushlight._base.lazy import LazyModule
from rushlight._engine.autograd.node import Node, next_sequence, packed
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import ANOMALY, SAVED_HOOKS, STATE, STREAMED
from rushlight._engine.core.tensor import Tensor, alias, edge_of
from rushlight._engine.dispatch.backward_spec import BackwardSpec

anomaly: Any = LazyModule("rushlight._engine.autograd.anomaly")

__all__ = ["record", "recording", "watch"]

NOT_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work "
    "around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
)


def recording(run: Callable[..., Any], n_results: int, backward_spec: BackwardSpec, total: int) -> Callable[..., Any]:
    """A plan that records a node; `total` counts residuals too."""
    if n_results > 1 or total > 1:
        return _recording_many(run, n_results, backward_spec)
    return _recording_any(run, backward_spec)


def record(backward_spec: BackwardSpec, inputs: Sequence[Any], results: Sequence[Tensor]) -> Any:
    """The backward node of one call; `results` end with the residuals."""
    node = backward_spec.cls.__new__(backward_spec.cls)
    node.info = backward_spec
    node._edges = [edge_of(inputs[i]) for i in backward_spec.wrt]
    node._seq = next_sequence()
    node._extra = None
    _save(node, backward_spec, inputs, results)
    if STATE.word & (ANOMALY | SAVED_HOOKS | STREAMED):
        watch(node)
    return node


def _recording_any(run: Callable[..., Any], backward_spec: BackwardSpec) -> Callable[..., Any]:
    def plan(*inputs: Any) -> Tensor:
        out: Tensor = run(*inputs)
        out._node = record(backward_spec, inputs, (out,))
        out._rg = True
        return out

    return plan


def _recording_many(run: Callable[..., Any], n_results: int, backward_spec: BackwardSpec) -> Callable[..., Any]:
    """Several results, or results and residuals."""

    def plan(*inputs: Any) -> Any:
        results = run(*inputs)
        results = results if type(results) is tuple else (results,)
        node = record(backward_spec, inputs, results)
        for number, out in enumerate(results[:n_results]):
            if backward_spec.mask[number]:
                out._node, out._rg = node, True
                if number:
                    out._autograd_meta = HOOKS.new_meta()
                    out._autograd_meta.output_nr = number
        return results[0] if n_results == 1 else results[:n_results]

    return plan


def _save(node: Any, backward_spec: BackwardSpec, inputs: Sequence[Any], results: Sequence[Tensor]) -> None:
    items: list[Any] = []
    versions: list[int | None] = []
    for kind, number in backward_spec.sources:
        if kind == "input":
            item = inputs[number]
            if isinstance(item, Tensor) and item._autograd_meta is not None and item._autograd_meta.inference:
                raise RuntimeError(NOT_SAVED)
        else:
            item = alias(results[number if kind == "output" else backward_spec.n_results + number])
        items.append(item)
        is_tensor = isinstance(item, Tensor)
        versions.append((item._storage.stamp if item._storage is not None else 0) if is_tensor else None)
    node.saved, node.versions = items, versions
    node.where = user_code()


def watch(node: Node) -> None:
    """Remember the user's line in anomaly mode and streams that are not the default; pack the saved values with
    saved-tensor hooks.
    """
    if STATE.word & STREAMED:
        node._more().streams = CURRENT_STREAMS.side
    if STATE.word & ANOMALY:
        anomaly.remember(node)
        node._more().place = user_frame()
    if STATE.word & SAVED_HOOKS and STATE.saved_hooks:
        for i, item in enumerate(node.saved):  # type: ignore[attr-defined]
            if isinstance(item, Tensor):
                node.saved[i] = packed(item, *STATE.saved_hooks[-1])  # type: ignore[attr-defined]
                node.versions[i] = None  # type: ignore[attr-defined]
