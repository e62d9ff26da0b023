"""`cond` and `while_loop` in graphs that are traced ahead of time: each function is a graph of its own, and the gradient of
a `cond` is another `cond`, of functions that compute a branch again and differentiate it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._functorch.functional_graphs import functionalized
from rushlight._higher_order_ops.operators import OPERATORS
from rushlight._subclasses.fake_tensor import FakeTensor
from rushlight.autograd.function import Function
from rushlight.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, make_fx
from rushlight.fx.graph_module import GraphModule
from rushlight.utils._python_dispatch import _disable_current_modes
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["BranchingMode"]


class BranchingMode(ProxyTorchDispatchMode):
    """A mode that writes `cond` and `while_loop` down as operators with graphs."""

    controls = ("cond", "while_loop")

    def control(self, name: str, *args: Any) -> Any:
        """The results of a call of control flow, which becomes a node."""
        return getattr(self, f"_{name}")(*args)

    def _cond(self, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
        leaves, structure = tree_flatten(tuple(operands))
        shape: list[Any] = []

        def flat(function: Callable[..., Any]) -> Callable[..., Any]:
            def run(*values: Any) -> tuple[Any, ...]:
                found, made = tree_flatten(function(*tree_unflatten(list(values), structure)))
                shape.append(made)
                return tuple(found)

            return run

        found = _Cond.apply(self, pred, flat(true_fn), flat(false_fn), *leaves)
        return tree_unflatten(list(found), shape[0])

    def _while_loop(self, cond_fn: Any, body_fn: Any, carried: Sequence[Any], additional: Sequence[Any] = ()) -> Any:
        values = [*carried, *additional]
        if rushlight.is_grad_enabled() and any(isinstance(v, Tensor) and v.requires_grad for v in values):
            raise NotImplementedError("while_loop: gradients in a graph that is traced ahead of time")
        test = self.part("while_loop_cond_graph", cond_fn, values)
        body = self.part("while_loop_body_graph", lambda *given: tuple(body_fn(*given)), values)
        given = [self.node_of(v) for v in values]
        groups = tuple(given[: len(carried)]), tuple(given[len(carried) :])
        return self.called("while_loop", (test[0], body[0], *groups), body[1])

    def part(self, stem: str, function: Callable[..., Any], values: Sequence[Any]) -> tuple[Any, list[Any]]:
        """A function of tensors as a graph of the module: the node that reads it, and what it gives for these values."""
        with _disable_current_modes():
            fresh = [FakeTensor(v.fake_mode, v.meta.detach(), v.device) for v in values]
            graph: GraphModule = make_fx(function, self.decompositions, "fake", _mode_class=BranchingMode)(*fresh)
            output = graph.graph.output_node()
            single = not isinstance(output.args[0], (tuple, list))
            if single:
                output.args = ((output.args[0],),)
            if functionalized(graph).changed:
                raise NotImplementedError(f"{stem}: a function that changes what it is given")
            results = [node.meta["val"] for node in output.args[0]]
            if single:
                output.args = (output.args[0][0],)
                graph.recompile()
        number = 0
        while hasattr(self.root, f"{stem}_{number}"):
            number += 1
        self.root.add_module(f"{stem}_{number}", graph)
        return self.graph.create_node("get_attr", f"{stem}_{number}", name=f"{stem}_{number}"), results

    def called(self, name: str, args: tuple[Any, ...], like: Sequence[Any]) -> tuple[Any, ...]:
        """The node of a call with several results, and their fake tensors."""
        node = self.graph.create_node("call_function", OPERATORS[name], args, {}, name=name)
        with _disable_current_modes():
            values = tuple([FakeTensor(v.fake_mode, v.meta.detach(), v.device) for v in like])
        node.meta["val"] = values
        self._spread(values, node)
        return values


class _Cond(Function):
    """A call of `cond` with its gradient."""

    @staticmethod
    def forward(ctx: Any, mode: Any, pred: Any, true_fn: Any, false_fn: Any, *operands: Any) -> tuple[Any, ...]:
        ctx.save_for_backward(pred, *operands)
        ctx.mode, ctx.functions = mode, (true_fn, false_fn)
        parts = [
            mode.part(stem, f, operands) for stem, f in zip(("true_graph", "false_graph"), ctx.functions, strict=True)
        ]
        kinds = [[(tuple(v.shape), v.dtype) for v in results] for _, results in parts]
        if kinds[0] != kinds[1]:
            raise NotImplementedError(f"cond: the branches give tensors of other shapes or dtypes: {kinds}")
        given = tuple([mode.node_of(v) for v in operands])
        found = mode.called("cond", (mode.node_of(pred), parts[0][0], parts[1][0], given), parts[0][1])
        ctx.mark_non_differentiable(*[v for v in found if not _varies(v)])
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        pred, *operands = ctx.saved_tensors
        wanted = [k for k, wants in enumerate(ctx.needs_input_grad[4:]) if wants]
        functions = [_gradients(f, len(operands), wanted) for f in ctx.functions]
        found = iter(_Cond.apply(ctx.mode, pred, *functions, *operands, *grads))
        return None, None, None, None, *[next(found) if k in wanted else None for k in range(len(operands))]


def _varies(x: Any) -> bool:
    return bool(x.is_floating_point() or x.is_complex())


def _gradients(function: Callable[..., Any], count: int, wanted: Sequence[int]) -> Callable[..., Any]:
    """The gradients of a function for some of its `count` operands, as a function of these and of those of its results."""

    def run(*values: Any) -> tuple[Any, ...]:
        operands = [v.detach().requires_grad_(k in wanted) for k, v in enumerate(values[:count])]
        with rushlight.enable_grad():
            pairs = [(y, g) for y, g in zip(function(*operands), values[count:], strict=True) if y.requires_grad]
        given = [operands[k] for k in wanted]
        found: Any = [None] * len(given)
        if pairs:
            results, grads = zip(*pairs, strict=True)
            found = rushlight.autograd.grad(results, given, grads, allow_unused=True)
        return tuple([rushlight.zeros_like(x) if g is None else g for x, g in zip(given, found, strict=True)])

    return run
