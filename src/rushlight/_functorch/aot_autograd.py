"""`torch._functorch.aot_autograd`: forward and backward of a function as two graphs of aten operators, each compiled by
a function of one's own.

>>> import rushlight as torch
>>> def show(graph, inputs):
...     print([node.name for node in graph.graph.nodes if node.op == "call_function"])
...     return make_boxed_func(graph.forward)
>>> compiled = aot_function(lambda x: x.sin().sum(), fw_compiler=show)
>>> x = torch.ones(3, requires_grad=True)
>>> compiled(x).backward()
['sin', 'sum_1']
['expand', 'cos', 'mul']
>>> torch.equal(x.grad, x.cos())
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._functorch.functional_graphs import functionalized
from rushlight._functorch.partitioners import default_partition
from rushlight._interface.base import tree_flatten, tree_unflatten
from rushlight.autograd.function import Function
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.fx.graph_module import GraphModule
from rushlight.nn.modules.module import Module

__all__ = ["aot_function", "aot_module", "aot_module_simplified", "make_boxed_compiler", "make_boxed_func"]

Compiler = Callable[[GraphModule, list[Any]], Callable[..., Any]]


def make_boxed_func(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` as a function of one list of arguments, which it may empty."""

    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """A compiler whose functions take one list."""

    def compile_boxed(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return make_boxed_func(compiler(graph, inputs))

    return compile_boxed


def _run(compiled: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    made = compiled(list(args)) if getattr(compiled, "_boxed_call", False) else compiled(*args)
    return list(made) if isinstance(made, (tuple, list)) else [made]


class _Compiled:
    """A function for one kind of arguments: its two graphs, compiled, and how results lie in each other."""

    def __init__(self, fn: Callable[..., Any], flat: list[Any], structure: Any, options: dict[str, Any]) -> None:
        self.structure, self.options = structure, options
        self.tensors = [i for i, v in enumerate(flat) if isinstance(v, Tensor)]
        self.first = _first_places(flat, self.tensors)
        self.backward: Any = None
        self.function: Any = None
        primals = [flat[i] for i in self.first]
        self.differentiable = rushlight.is_grad_enabled() and any(t.requires_grad for t in primals)
        self.constants = list(flat)
        self._trace(fn, primals)

    def _whole(self, primals: Sequence[Any]) -> list[Any]:
        """All leaves of the arguments, with tensors put back; one tensor that was given twice is one."""
        flat, places = list(self.constants), {id(self.constants[i]): p for p, i in enumerate(self.first)}
        for i in self.tensors:
            flat[i] = primals[places[id(self.constants[i])]]
        return flat

    def _trace(self, fn: Callable[..., Any], primals: list[Any]) -> None:
        shape: list[Any] = []

        def forward(given: Sequence[Any]) -> list[Any]:
            args, kwargs = tree_unflatten(self._whole(given), self.structure)
            leaves, structure = tree_flatten(fn(*args, **kwargs))
            shape[:] = [leaves, structure]
            return leaves

        fresh = [_fresh(t) for t in primals]
        table = self.options["decompositions"]
        if not self.differentiable:
            graph = make_fx(lambda primals: forward(primals), table, "fake")(fresh)
            self.changed = functionalized(graph)
            compiler = self.options["inference_compiler"] or self.options["fw_compiler"]
            self.forward = compiler(graph, fresh)
        else:
            wanted = [p for p, t in enumerate(primals) if t.requires_grad]
            seen: dict[str, Any] = {}

            def joint(primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
                outs = forward(primals)
                seen["differentiable"] = [p for p, o in enumerate(outs) if isinstance(o, Tensor) and o.requires_grad]
                picked = [outs[p] for p in seen["differentiable"]]
                found: Any = [None] * len(primals)
                if picked:
                    grads = rushlight.autograd.grad(
                        picked, [primals[p] for p in wanted], list(tangents), allow_unused=True
                    )
                    for p, g in zip(wanted, grads, strict=True):
                        found[p] = g
                return [*outs, *found]

            tangents = self._tangents(forward, fresh)
            graph = make_fx(joint, table, "fake")(fresh, tangents)
            count = len(list(graph.graph.output_node().args[0])) - len(primals)
            self.changed = functionalized(graph)
            count += len(self.changed)
            if any(primals[p].requires_grad for p in self.changed):
                raise NotImplementedError("aot_function: a change in place of an argument that requires a gradient")
            first, second = self.options["partition_fn"](graph, [*fresh, *tangents], num_fwd_outputs=count)
            self.count, self.differentiable_outs = count, seen["differentiable"]
            self.forward = self.options["fw_compiler"](first, fresh)
            examples = [n.meta.get("val") for n in second.graph.nodes if n.op == "placeholder"]
            self.backward = (self.options["bw_compiler"] or self.options["fw_compiler"])(second, examples)
        self.out_structure = shape[1]
        if self.differentiable:
            self.function = _function(self)

    def _tangents(self, forward: Callable[..., Any], fresh: list[Any]) -> list[Any]:
        """Gradients like the results that can have one, for the trace."""
        from_fake: list[Any] = []

        def shapes(primals: Sequence[Any]) -> list[Any]:
            outs = forward(primals)
            from_fake[:] = [(tuple(o.shape), o.dtype) for o in outs if isinstance(o, Tensor) and o.requires_grad]
            return [o for o in outs if isinstance(o, Tensor)]

        make_fx(shapes, None, "fake")(fresh)
        return [rushlight.ones(shape, dtype=dtype) for shape, dtype in from_fake]

    def __call__(self, flat: list[Any]) -> Any:
        primals = [flat[i] for i in self.first]
        if self.differentiable:
            outs = list(self.function.apply(*primals))
        else:
            made = _run(self.forward, [t.detach() for t in primals])
            for place, value in zip(self.changed, made, strict=False):
                primals[place].copy_(value)
            outs = made[len(self.changed) :]
        return tree_unflatten(outs, self.out_structure)


def _first_places(flat: list[Any], tensors: list[int]) -> list[int]:
    known: dict[int, int] = {}
    for i in tensors:
        known.setdefault(id(flat[i]), i)
    return list(known.values())


def _fresh(t: Any) -> Any:
    return t.detach().requires_grad_(t.requires_grad)


def _function(held: _Compiled) -> type[Function]:
    class CompiledFunction(Function):
        @staticmethod
        def forward(ctx: Any, *primals: Any) -> Any:
            made = _run(held.forward, [t.detach() for t in primals])
            for place, value in zip(held.changed, made, strict=False):
                primals[place].detach().copy_(value)
            outs, saved = made[len(held.changed) : held.count], made[held.count :]
            ctx.save_for_backward(*saved)
            ctx.set_materialize_grads(True)
            ctx.mark_non_differentiable(
                *[o for i, o in enumerate(outs) if isinstance(o, Tensor) and i not in held.differentiable_outs]
            )
            return tuple(outs)

        @staticmethod
        @rushlight.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: Any) -> Any:
            tangents = [grads[i] for i in held.differentiable_outs]
            return tuple(_run(held.backward, [*ctx.saved_tensors, *tangents]))

    return CompiledFunction


def _key(flat: list[Any]) -> tuple[Any, ...]:
    places: dict[int, int] = {}
    found: list[Any] = [rushlight.is_grad_enabled()]
    for i, v in enumerate(flat):
        if isinstance(v, Tensor):
            found.append(
                (tuple(v.shape), tuple(v.stride()), v.dtype, v.device, v.requires_grad, places.setdefault(id(v), i))
            )
        else:
            found.append((type(v), v))
    return tuple(found)


def aot_function(
    fn: Callable[..., Any], fw_compiler: Compiler, bw_compiler: Compiler | None = None, partition_fn: Callable[..., Any] = default_partition,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None, num_params_buffers: int = 0, keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None, *, dynamic: bool = False, enable_log: bool = True, disable_functionalization: bool = False,
    _dynamic: bool = False, _disable_torch_fn_metadata_mode: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """`fn` with its forward and backward as graphs of aten operators, compiled by `fw_compiler(graph, inputs)` and
    `bw_compiler`.

    The graphs change nothing in place; changes of arguments are written back at the end.  A graph is made for each
    shape, dtype and `requires_grad` of the arguments.  NotImplementedError for `dynamic`, for changes of views and of
    arguments with gradients.
    """
    if dynamic:
        raise NotImplementedError("aot_function(dynamic=True): rushlight traces with the sizes of the arguments")
    options = {
        "fw_compiler": fw_compiler, "bw_compiler": bw_compiler, "partition_fn": partition_fn, "decompositions": decompositions,
        "inference_compiler": inference_compiler,
    }  # fmt: skip
    known: dict[Any, _Compiled] = {}

    def returned(*args: Any, **kwargs: Any) -> Any:
        flat, structure = tree_flatten((list(args), kwargs))
        key = (_key(flat), str(structure))
        if key not in known:
            known[key] = _Compiled(fn, flat, structure, options)
        return known[key](flat)

    return returned


def aot_module(mod: Module, *args: Any, **kwargs: Any) -> Module:
    """A module whose forward runs compiled graphs, with the parameters and buffers of `mod`; arguments as those of
    `aot_function`.
    """
    names = [n for n, _ in mod.named_parameters()] + [n for n, _ in mod.named_buffers()]

    def call(tensors: Sequence[Any], given: Sequence[Any], named: dict[str, Any]) -> Any:
        return rushlight.func.functional_call(mod, dict(zip(names, tensors, strict=True)), tuple(given), named)

    compiled = aot_function(call, *args, **kwargs)

    class AOTModule(Module):
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *given: Any, **named: Any) -> Any:
            tensors = [*dict(mod.named_parameters()).values(), *dict(mod.named_buffers()).values()]
            return compiled(tensors, list(given), named)

    return AOTModule()


def aot_module_simplified(
    mod: Module, args: Any, fw_compiler: Compiler, bw_compiler: Compiler | None = None, **options: Any
) -> Callable[..., Any]:
    """A function of the module's inputs alone, with its parameters and buffers as the first arguments of the graphs."""
    options.pop("keep_inference_input_mutations", None)
    made = aot_module(mod, fw_compiler, bw_compiler, **options)

    def forward(*given: Any) -> Any:
        return made(*given)

    forward.named_parameters, forward.named_buffers = mod.named_parameters, mod.named_buffers  # type: ignore[attr-defined]
    return forward
