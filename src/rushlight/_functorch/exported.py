"""Whole graphs of functions and modules, for those who compile them elsewhere: `aot_export_joint_simple`,
`aot_export_module`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._functorch.functional_graphs import Functional, functionalized
from rushlight._interface.base import tree_flatten, tree_unflatten
from rushlight._subclasses.fake_tensor import FakeTensorMode, is_fake
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.fx.experimental.symbolic_shapes import ShapeEnv
from rushlight.fx.graph_module import GraphModule
from rushlight.nn.modules.module import Module

__all__ = ["BackwardSignature", "GraphSignature", "aot_export_joint_simple", "aot_export_module"]

Table = Mapping[Any, Callable[..., Any]]


@dataclass
class BackwardSignature:
    """Of a graph with its backward: results that are gradients, by name, and the result that is the loss."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclass
class GraphSignature:
    """Roles of the inputs and results of an exported graph, by the names of nodes."""

    parameters: list[str]
    buffers: list[str]
    user_inputs: list[str]
    user_outputs: list[str]
    inputs_to_parameters: dict[str, str]
    inputs_to_buffers: dict[str, str]
    buffers_to_mutate: dict[str, str]
    parameters_to_mutate: dict[str, str]
    user_inputs_to_mutate: dict[str, str]
    in_spec: Any
    out_spec: Any
    backward_signature: BackwardSignature | None = None
    input_tokens: list[str] = field(default_factory=list)
    output_tokens: list[str] = field(default_factory=list)


def _fresh(t: Any) -> Any:
    return t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t


def _symbolic(leaves: Sequence[Any]) -> list[Any]:
    """Fake tensors with symbolic sizes in the place of real ones."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    return [
        mode.from_tensor(leaf, source=f"input{n}") if isinstance(leaf, Tensor) and not is_fake(leaf) else leaf
        for n, leaf in enumerate(leaves)
    ]


def _traced(
    f: Callable[..., Any], args: Sequence[Any], table: Table | None, pre_dispatch: bool = False
) -> tuple[GraphModule, Functional]:
    graph = make_fx(f, table, "fake", True, pre_dispatch=pre_dispatch)(*[_fresh(a) for a in args])
    return graph, functionalized(graph)


def aot_export_joint_simple(
    func: Callable[..., Any],
    args: Any,
    *,
    trace_joint: bool,
    num_params_buffers: int = 0,
    decompositions: Table | None = None,
) -> GraphModule:
    """The graph of a function of tensors that gives tensors, with `trace_joint` of its gradients too: it then takes
    (*args, *gradients of results) and gives (*results, *gradients of args).

    RuntimeError where an argument is changed in place, or a result is a view of one.

    >>> import rushlight as torch
    >>> graph = aot_export_joint_simple(lambda x: (x.sin(),), (torch.ones(2, requires_grad=True),), trace_joint=True)
    >>> [node.name for node in graph.graph.nodes]
    ['primals_1', 'tangents_1', 'sin', 'cos', 'mul', 'output']
    """
    args = list(args)
    wants = [isinstance(a, Tensor) and a.requires_grad for a in args]
    with rushlight.set_grad_enabled(trace_joint):
        outs = tree_flatten(func(*[_fresh(a) for a in args]))[0]
    if not trace_joint:
        with rushlight.no_grad():
            graph, found = _traced(lambda *primals: tree_flatten(func(*primals))[0], args, decompositions)
        return _checked(graph, found)
    differentiable = [i for i, o in enumerate(outs) if isinstance(o, Tensor) and o.requires_grad]
    tangents = [rushlight.ones_like(outs[i].detach()) for i in differentiable]

    def joint(primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        made = tree_flatten(func(*primals))[0]
        grads = _gradients([made[i] for i in differentiable], primals, wants, tangents)
        return [*made, *grads]

    graph = make_fx(joint, decompositions, "fake", True)([_fresh(a) for a in args], tangents)
    return _checked(graph, functionalized(graph))


def _gradients(
    outs: Sequence[Any], inputs: Sequence[Any], wants: Sequence[bool], seeds: Sequence[Any] | None
) -> list[Any]:
    """A gradient for each input, None for those that want none."""
    wanted = [t for t, w in zip(inputs, wants, strict=True) if w]
    if not outs or not wanted:
        return [None] * len(inputs)
    found = iter(
        rushlight.autograd.grad(list(outs), wanted, seeds if seeds is None else list(seeds), allow_unused=True)
    )
    return [next(found) if w else None for w in wants]


def _checked(graph: GraphModule, found: Functional) -> GraphModule:
    if found.changed or found.looks:
        raise RuntimeError(
            f"aot_export_joint_simple does not support input mutations: arguments {found.changed or list(found.looks)}"
        )
    if found.aliases:
        raise RuntimeError(
            f"aot_export_joint_simple does not support outputs that alias inputs: results {list(found.aliases)}"
        )
    return graph


def aot_export_module(
    mod: Module,
    args: Any,
    *,
    decompositions: Table | None = None,
    trace_joint: bool,
    output_loss_index: int | None = None,
    pre_dispatch: bool = False,
    dynamic_shapes: bool | None = None,
    kwargs: dict[str, Any] | None = None,
) -> tuple[GraphModule, GraphSignature]:
    """The graph of a module's forward as a function of (*parameters, *buffers, *args), and what its inputs and results
    are; with `trace_joint` also the gradients of the result number `output_loss_index`, which must be one number.

    New values of buffers and arguments that are changed come before the results.  Sizes are symbols for fake tensors with
    symbolic sizes among the arguments, and with `dynamic_shapes` for all arguments.  RuntimeError where parameters are
    changed, and for a loss that is no single number.
    """
    if pre_dispatch and trace_joint:
        raise RuntimeError("aot_export_module: pre_dispatch goes without trace_joint")
    if trace_joint and output_loss_index is None:
        raise RuntimeError(
            "If trace_joint=True it is required that one of your forward outputs must be a scalar loss: give output_loss_index"
        )
    parameters, buffers = dict(mod.named_parameters()), dict(mod.named_buffers())
    names = [*parameters, *buffers]
    leaves, in_spec = tree_flatten((list(args), kwargs or {}))
    if dynamic_shapes:
        leaves = _symbolic(leaves)
    shape: list[Any] = []

    def call(*flat: Any) -> list[Any]:
        given, named = tree_unflatten(list(flat[len(names) :]), in_spec)
        made = rushlight.func.functional_call(mod, dict(zip(names, flat, strict=False)), tuple(given), named)
        outs, structure = tree_flatten(made)
        shape[:] = [structure, len(outs)]
        if trace_joint:
            loss = outs[output_loss_index]  # type: ignore[index]
            if loss.numel() != 1 or not loss.requires_grad:
                raise RuntimeError(
                    f"aot_export_module: result {output_loss_index} is no loss: one number with a gradient"
                )
            return [*outs, *_gradients([loss], flat, wants, None)]
        return outs

    flat = [*parameters.values(), *buffers.values(), *leaves]
    wants = [isinstance(t, Tensor) and t.requires_grad for t in flat]
    with rushlight.set_grad_enabled(trace_joint):
        graph, found = _traced(call, flat, decompositions, pre_dispatch)
    if any(p < len(parameters) for p in found.changed):
        raise RuntimeError("aot_export_module: the module changes its parameters in place")
    return graph, _signature(
        graph,
        found,
        (list(parameters), list(buffers)),
        wants,
        shape,
        in_spec,
        output_loss_index if trace_joint else None,
    )


def _signature(
    graph: GraphModule,
    found: Functional,
    names: tuple[list[str], list[str]],
    wants: list[bool],
    shape: list[Any],
    in_spec: Any,
    loss: int | None,
) -> GraphSignature:
    inputs = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    results: list[Any] = [getattr(n, "name", None) for n in graph.graph.output_node().args[0]]
    parameters, buffers = names
    first, second = len(parameters), len(parameters) + len(buffers)
    changed, outs = results[: len(found.changed)], results[len(found.changed) :]
    backward = None
    if loss is not None:
        grads = dict(zip(range(len(wants)), outs[shape[1] :], strict=True))
        backward = BackwardSignature(
            {grads[p]: parameters[p] for p in range(first) if grads[p] is not None},
            {grads[p]: inputs[p] for p in range(second, len(inputs)) if grads[p] is not None},
            outs[loss],
        )
    new_values = dict(zip(found.changed, changed, strict=True))
    return GraphSignature(
        parameters,
        buffers,
        inputs[second:],
        outs[: shape[1]],
        dict(zip(inputs, parameters, strict=False)),
        dict(zip(inputs[first:second], buffers, strict=True)),
        {v: buffers[p - first] for p, v in new_values.items() if p < second},
        {},
        {v: inputs[p] for p, v in new_values.items() if p >= second},
        in_spec,
        shape[0],
        backward,
    )
