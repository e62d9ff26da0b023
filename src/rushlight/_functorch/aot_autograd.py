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
from rushlight._functorch.control_flow import BranchingMode
from rushlight._functorch.exported import GraphSignature, aot_export_joint_simple, aot_export_module
from rushlight._functorch.functional_graphs import BACKWARD, Functional, functionalized, replayed
from rushlight._functorch.partitioners import default_partition
from rushlight._interface.base import tree_flatten, tree_unflatten
from rushlight._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from rushlight.autograd.function import Function
from rushlight.fx.codegen import CodeGen
from rushlight.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from rushlight.fx.experimental.symbolic_shapes import ShapeEnv, is_symbolic
from rushlight.fx.graph_module import GraphModule
from rushlight.nn.modules.module import Module
from rushlight.utils._python_dispatch import _disable_current_modes

__all__ = [
    "GraphSignature",
    "aot_export_joint_simple",
    "aot_export_module",
    "aot_function",
    "aot_module",
    "aot_module_simplified",
    "make_boxed_compiler",
    "make_boxed_func",
]

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
    """A function for one kind of arguments: its two graphs, compiled, and how arguments and results share memory."""

    def __init__(self, fn: Callable[..., Any], flat: list[Any], structure: Any, options: dict[str, Any]) -> None:
        self.fn, self.structure, self.options = fn, structure, options
        self.tensors = [i for i, v in enumerate(flat) if isinstance(v, Tensor)]
        self.first = _first_places(flat, self.tensors)
        places = {id(flat[i]): p for p, i in enumerate(self.first)}
        self.places = {i: places[id(flat[i])] for i in self.tensors}
        self.constants = [None if isinstance(v, Tensor) else v for v in flat]
        self.function: Any = None
        self.second: Any = None
        self.inputs = Inputs([flat[i] for i in self.first])
        self.shape: list[Any] = []
        self._trace([flat[i] for i in self.first])

    def forward_of(self, primals: Sequence[Any]) -> list[Any]:
        """The leaves of the function's results, of tensors for the distinct arguments."""
        given = self.inputs.tensors(primals)
        flat = list(self.constants)
        for i, place in self.places.items():
            flat[i] = given[place]
        args, kwargs = tree_unflatten(flat, self.structure)
        with rushlight.set_grad_enabled(rushlight.is_grad_enabled()):  # a graph may end in another mode than it began
            leaves, structure = tree_flatten(self.fn(*args, **kwargs))
        self.shape[:] = [leaves, structure]
        return leaves

    # ***** the trace *****

    def _trace(self, given: list[Any]) -> None:
        analysis = self._analysed(given)
        if analysis.changed and self.inputs.overlap():
            self.inputs = Inputs(given, whole=True)
            analysis = self._analysed(given)
        primals = self.inputs.primals(given)
        self.changed, self.looks = analysis.changed, analysis.looks
        self.aliases = {
            place: (source, steps)
            for place, (source, steps) in analysis.aliases.items()
            if source in analysis.changed or not self.own_backward[place]
        }
        wanted = any(self.results) or any(self.updates)
        self.differentiable = rushlight.is_grad_enabled() and wanted and any(t.requires_grad for t in primals)
        if self.differentiable:
            self._trace_joint(primals)
        else:
            graph = make_fx(
                lambda *args: self.forward_of(args),
                self.options["decompositions"],
                "fake",
                True,
                _mode_class=BranchingMode,
            )(*self._fake(primals))
            functionalized(graph)
            compiler = self.options["inference_compiler"] or self.options["fw_compiler"]
            self.forward = compiler(graph, [_fresh(t) for t in primals])
        self.out_structure = self.shape[1]

    def _analysed(self, given: list[Any]) -> Functional:
        """Changes that the function makes to its arguments, and the results that can have gradients."""
        primals = self._fake(self.inputs.primals(given))

        def forward(primals: Sequence[Any]) -> list[Any]:
            inner = [_passed(t) for t in primals]
            before = [t.grad_fn for t in inner]
            outs = self.forward_of(inner)
            self.results = [(isinstance(o, Tensor) and o.requires_grad) for o in outs]
            self.own_backward = [isinstance(o, Tensor) and _has_own_backward(o.grad_fn) for o in outs]
            # A change under no_grad, or of `x.data`, has no history.
            self.updates = [t.requires_grad and t.grad_fn is not b for t, b in zip(inner, before, strict=True)]
            return outs

        return functionalized(make_fx(forward, None, "fake", True, _mode_class=BranchingMode)(primals))

    def _fake(self, primals: Sequence[Any]) -> list[Any]:
        """Fake forms of tensors, in a mode of their own."""
        env = ShapeEnv() if self.options["unknown_sizes"] else None
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=env)
        return [self._fake_of(t) for t in primals]

    def _fake_of(self, t: Any) -> Any:
        if not isinstance(t, FakeTensor):
            return self.mode.from_tensor(_fresh(t), static_shapes=True)
        with _disable_current_modes(), self.mode:
            made = rushlight.empty_strided(tuple(t.shape), t.stride(), dtype=t.dtype, device=t.device)
        return made.requires_grad_(t.requires_grad)

    def _tangents(self, picked: Sequence[Any]) -> list[Any]:
        """Inputs of the graph that is traced for the gradients of what it computed."""
        made = []
        writer = get_proxy_mode()
        assert writer is not None
        for k, t in enumerate(picked):
            with _disable_current_modes(), self.mode:
                like = rushlight.empty(tuple(t.shape), dtype=t.dtype, device=t.device)
            made.append(writer.placeholder(f"tangents_{k + 1}", like))
        return made

    def _trace_joint(self, primals: list[Any]) -> None:
        self.wants = [t.requires_grad for t in primals]
        wanted = [p for p, w in enumerate(self.wants) if w]
        count = len(primals)
        updated = [p for p in self.changed if self.updates[p]]
        own = [i for i, r in enumerate(self.results) if r and i not in self.aliases]

        known: set[Any] = set()  # the nodes of the forward pass

        def joint(primals: Sequence[Any]) -> list[Any]:
            inner = [_passed(t) if p in updated else t for p, t in enumerate(primals)]
            outs = self.forward_of(inner)
            picked = [inner[p] for p in updated] + [outs[i] for i in own]
            found: list[Any] = [None] * count
            mode = get_proxy_mode()
            known.update(() if mode is None else list(mode.graph.nodes))
            if picked:
                given = [primals[p] for p in wanted]
                tangents = self._tangents(picked)
                grads: Any = rushlight.autograd.grad(picked, given, tangents, allow_unused=True)
                for p, g in zip(wanted, grads, strict=True):
                    found[p] = g
            self.apart = {p for p in wanted if found[p] is None and p not in updated}
            return [*outs, *found]

        tracer = make_fx(joint, self.options["decompositions"], "fake", True, _mode_class=BranchingMode)
        graph = tracer(self._fake(primals))
        graph.graph.set_codegen(CodeGen())
        for node in graph.graph.nodes:
            if node.op == "call_function" and node not in known:
                node.meta[BACKWARD] = True
        made = functionalized(graph)
        if made.changed != self.changed:
            raise NotImplementedError("aot_function: a backward that changes an argument of the function in place")
        self.count = len(made.changed) + len(self.results)
        # Results of the graph that have gradients, in the order of the tangents.
        self.gradients = [made.changed.index(p) for p in updated] + [len(made.changed) + i for i in own]
        self.random = any(_draws(n.target) for n in graph.graph.nodes if n.op == "call_function")
        examples = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
        first, second = self.options["partition_fn"](graph, examples, num_fwd_outputs=self.count)
        self.forward = self.options["fw_compiler"](first, [_fresh(t) for t in primals])
        examples = [n.meta.get("val") for n in second.graph.nodes if n.op == "placeholder"]
        self.backward = (self.options["bw_compiler"] or self.options["fw_compiler"])(second, examples)
        self.function = _function(self)
        self.joint = joint

    # ***** a call *****

    def __call__(self, flat: list[Any]) -> Any:
        given = [flat[i] for i in self.first]
        primals = self.inputs.primals(given)
        if self.function is not None:
            # What gets no gradient is no part of the history: its own may be freed already.
            made = list(self.function.apply(*[t.detach() if p in self.apart else t for p, t in enumerate(primals)]))
        else:
            made = _run(self.forward, [t.detach() for t in primals])
        for place, value in zip(self.changed, made, strict=False):
            target = primals[place]
            if value.requires_grad:
                target.copy_(value)
            else:
                target.detach().copy_(value)
                rushlight.autograd.graph.increment_version(target)
        outs = list(made[len(self.changed) :])
        for place, (source, steps) in self.aliases.items():
            if not steps:
                outs[place] = given[self.inputs.place_of(source)]
                continue
            found = replayed(primals[source], steps)
            outs[place] = found if self.results[place] or not found.requires_grad else found.detach()
        for place, steps in self.looks.items():
            for step in steps:
                step.in_place(primals[place], *step.args, **step.kwargs)
        return tree_unflatten(outs, self.out_structure)

    def differentiated(self) -> Callable[..., Any]:
        """The gradients as a function of primals and tangents that can be differentiated itself, compiled alike."""
        if self.random or self.changed:
            reason = "it draws random numbers" if self.random else "it changes its arguments in place"
            raise NotImplementedError(f"aot_function: second derivatives of a function where {reason}")
        if self.second is None:

            def gradients(primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
                fresh = [
                    t if t.requires_grad or not w else t.detach().requires_grad_()
                    for t, w in zip(primals, self.wants, strict=True)
                ]
                with rushlight.enable_grad():
                    outs = self.forward_of(fresh)
                    own = [i for i, r in enumerate(self.results) if r and i not in self.aliases]
                    given = [t for t, w in zip(fresh, self.wants, strict=True) if w]
                    return list(
                        rushlight.autograd.grad(
                            [outs[i] for i in own],
                            given,
                            list(tangents),
                            allow_unused=True,
                            create_graph=rushlight.is_grad_enabled(),
                        )
                    )

            names = ("fw_compiler", "bw_compiler", "partition_fn", "decompositions", "inference_compiler")
            self.second = aot_function(
                gradients, **{n: self.options[n] for n in names}, _unknown_sizes=self.options["unknown_sizes"]
            )
        return self.second


class Inputs:
    """The distinct tensors of a call as the tensors of its graphs; with `whole`, those that share memory are views of
    one tensor, so that a change of one shows in the others.
    """

    def __init__(self, tensors: list[Any], whole: bool = False) -> None:
        self.groups: dict[Any, list[int]] = {}
        for p, t in enumerate(tensors):
            self.groups.setdefault(_memory_of(t, p), []).append(p)
        self.layout: list[tuple[int, Any]] = []  # of each tensor: which primal it is, or a view of
        self.sources: list[tuple[int, bool]] = []  # of each primal: a tensor, and whether all of its memory is taken
        known: dict[int, int] = {}
        shared = {p: members for members in self.groups.values() if len(members) > 1 for p in members} if whole else {}
        for p, t in enumerate(tensors):
            members = shared.get(p)
            if members is None:
                self.layout.append((len(self.sources), None))
                self.sources.append((p, False))
                continue
            if len({tensors[m].dtype for m in members}) > 1 or any(tensors[m].requires_grad for m in members):
                raise NotImplementedError(
                    "aot_function: a change in place of arguments that share memory, of several dtypes or with gradients"
                )
            if members[0] not in known:
                known[members[0]] = len(self.sources)
                self.sources.append((p, True))
            self.layout.append((known[members[0]], (list(t.shape), list(t.stride()), t.storage_offset())))

    def overlap(self) -> bool:
        """Whether some tensors share memory."""
        return any(len(members) > 1 for members in self.groups.values())

    def primals(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors that graphs take."""
        return [_all_memory(tensors[p]) if whole else tensors[p] for p, whole in self.sources]

    def tensors(self, primals: Sequence[Any]) -> list[Any]:
        """The tensors that the function takes, of those that graphs take."""
        return [primals[p] if view is None else primals[p].as_strided(*view) for p, view in self.layout]

    def place_of(self, primal: int) -> int:
        """The tensor that a primal is."""
        return self.sources[primal][0]


def _memory_of(t: Any, number: int) -> Any:
    """Key that is equal for tensors that share memory; wrappers and empty tensors share none."""
    if not t.numel() or type(t) not in (Tensor, rushlight.nn.Parameter):
        return -1 - number
    return t.untyped_storage().data_ptr()


def _all_memory(t: Any) -> Any:
    """All of a tensor's memory as a vector."""
    return t.detach().as_strided([t.untyped_storage().nbytes() // t.element_size()], [1], 0)


def _draws(target: Any) -> bool:
    return rushlight.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _first_places(flat: list[Any], tensors: list[int]) -> list[int]:
    known: dict[int, int] = {}
    for i in tensors:
        known.setdefault(id(flat[i]), i)
    return list(known.values())


def _fresh(t: Any) -> Any:
    return t.detach().requires_grad_(t.requires_grad)


class _Passed(Function):
    """The same tensor as one that was computed: it may be changed in place."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def _has_own_backward(node: Any) -> bool:
    """Whether the history of a view leads through an `autograd.Function` of the program: replayed views have none."""
    while node is not None:
        cls = getattr(node, "_forward_cls", None)
        if cls is not None:
            return cls is not _Passed
        inputs = [each for each, _ in node.next_functions if each is not None]
        node = inputs[0] if len(inputs) == 1 else None
    return False


def _passed(t: Any) -> Any:
    return _Passed.apply(t) if t.requires_grad else t


def _apart(outs: list[Any]) -> list[Any]:
    """Results as no views, so that callers may change them in place: of what the graph computed nobody else knows.
    Those that share memory with one another stay views, whose changes are refused.
    """
    storages = [o.untyped_storage() if isinstance(o, Tensor) and o._base is not None else None for o in outs]
    if not any(storage is not None for storage in storages):
        return outs
    whole = [o.untyped_storage() if isinstance(o, Tensor) else None for o in outs]
    alone = [s is not None and sum(s is other for other in whole) == 1 for s in storages]
    return [o.detach() if apart else o for o, apart in zip(outs, alone, strict=True)]


def _function(held: _Compiled) -> type[Function]:
    class CompiledFunction(Function):
        @staticmethod
        def forward(ctx: Any, *primals: Any) -> Any:
            given = [t.detach().clone() if p in held.changed else t.detach() for p, t in enumerate(primals)]
            made = _run(held.forward, given)
            outs, saved = _apart(made[: held.count]), made[held.count :]
            ctx.save_for_backward(*[v for v in saved if isinstance(v, Tensor)])
            ctx.numbers = [v for v in saved if not isinstance(v, Tensor)]
            ctx.primals = primals
            ctx.set_materialize_grads(True)
            for place in held.aliases:  # made anew of the arguments themselves
                outs[len(held.changed) + place] = None
            ctx.mark_non_differentiable(
                *[o for i, o in enumerate(outs) if isinstance(o, Tensor) and i not in held.gradients]
            )
            return tuple(outs)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            tangents = [grads[i] for i in held.gradients]
            if rushlight.is_grad_enabled():
                found = iter(held.differentiated()(list(ctx.primals), tangents))
                return tuple(next(found) if w else None for w in held.wants)
            return tuple(_run(held.backward, [*ctx.numbers, *ctx.saved_tensors, *tangents]))

    return CompiledFunction


def _key(flat: list[Any]) -> tuple[Any, ...]:
    places: dict[int, int] = {}
    memories: dict[Any, int] = {}
    found: list[Any] = [rushlight.is_grad_enabled()]
    for i, v in enumerate(flat):
        if isinstance(v, Tensor):
            memory = memories.setdefault(_memory_of(v, i), i)
            offset = v.storage_offset() if memory != i else 0
            found.append(
                (
                    tuple(v.shape),
                    tuple(v.stride()),
                    v.dtype,
                    v.device,
                    v.requires_grad,
                    places.setdefault(id(v), i),
                    memory,
                    offset,
                )
            )
        else:
            found.append((type(v), v))
    return tuple(found)


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    partition_fn: Callable[..., Any] = default_partition,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None,
    *,
    dynamic: bool = False,
    enable_log: bool = True,
    disable_functionalization: bool = False,
    _dynamic: bool = False,
    _disable_torch_fn_metadata_mode: bool = False,
    _unknown_sizes: bool = False,
) -> Callable[..., Any]:
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
        "inference_compiler": inference_compiler, "unknown_sizes": _unknown_sizes,
    }  # fmt: skip
    known: dict[Any, _Compiled] = {}

    def compiled_for(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[_Compiled, list[Any]]:
        flat, structure = tree_flatten((list(args), kwargs))
        key = (_key(flat), str(structure))
        if key not in known:
            known[key] = _Compiled(fn, flat, structure, options)
        return known[key], flat

    def returned(*args: Any, **kwargs: Any) -> Any:
        compiled, flat = compiled_for(args, kwargs)
        return compiled(flat)

    returned.compiled_for = compiled_for  # type: ignore[attr-defined]
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
            return compiled(*_arguments(mod, given, named))

        def compile_for(self, *given: Any) -> None:
            """Make the graphs for arguments before they are called with them."""
            compiled.compiled_for(_arguments(mod, given, {}), {})  # type: ignore[attr-defined]

    return AOTModule()


def _is_sized(value: Any) -> bool:
    """Whether a value is a symbolic size, or a tensor with some."""
    numbers = (*value.shape, *value.stride()) if isinstance(value, Tensor) else (value,)
    return any(map(is_symbolic, numbers))


def _arguments(mod: Module, given: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
    """The tensors of a module, and what it is called with."""
    return [*dict(mod.named_parameters()).values(), *dict(mod.named_buffers()).values()], list(given), named


def aot_module_simplified(
    mod: Module, args: Any, fw_compiler: Compiler, bw_compiler: Compiler | None = None, **options: Any
) -> Callable[..., Any]:
    """A function of the module's inputs alone, with its parameters and buffers as the first arguments of the graphs.

    Numbers that the module reads of tensors, and sizes that only elements tell, are symbols of the graphs: the module is
    traced for `args` at once, so that what cannot be traced is an error here.
    """
    options.pop("keep_inference_input_mutations", None)
    made: Any = aot_module(mod, fw_compiler, bw_compiler, _unknown_sizes=True, **options)
    if not any(map(_is_sized, args)):  # else a graph for each size, as it is met
        made.compile_for(*args)

    def forward(*given: Any) -> Any:
        return made(*given)

    forward.named_parameters, forward.named_buffers = mod.named_parameters, mod.named_buffers  # type: ignore[attr-defined]
    return forward
