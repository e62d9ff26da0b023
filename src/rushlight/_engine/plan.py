"""Plans: what a call does, decided once for a signature.

A plan is a closure over a kernel, its output specs and, where gradients are wanted, the class and contents of the node to record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.errors import user_code, user_frame
from rushlight._base.lazy import require
from rushlight._base.log import enabled, log
from rushlight._engine.autograd.edges import argument_places, saved_names
from rushlight._engine.autograd.node import Node, next_sequence, node_class, packed
from rushlight._engine.lower import Backward, differentiate_graph
from rushlight._engine.native_plans import Bounds, choose_plan
from rushlight._engine.native_plans import kernel_plan as native_plan
from rushlight._engine.packing import check_number
from rushlight._engine.state import ANOMALY, GRAD, INFERENCE, SAVED_HOOKS, STATE, new_plan_table
from rushlight._engine.stepping import Stepped, takes_steps
from rushlight._engine.tensor import Tensor, alias, edge_of, make, new_meta
from rushlight._engine.watch import NAMING, RECORDER, Watched
from rushlight._graph.core import Graph, GraphBuilder, evaluate
from rushlight._prims import build, prim
from rushlight._types.device import CPU, META, Device
from rushlight._types.dtype import DType
from rushlight._types.layout import broadcast_strides, contiguous_strides, dense_strides, is_contiguous, restride
from rushlight._types.spec import Spec

__all__ = ["Recipe", "executable", "fitting", "graph_caller", "make_plan", "number_words", "operand_strides"]

NOT_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work "
    "around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
)


def executable(graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec], **options: Any) -> Any:
    """The compiled form of `graph` for these layouts; see `_kernels.program.compile_graph` for `aliases` and `overlaps`."""
    if any(s is not None and s.conj for s in (*in_specs, *out_specs)):
        graph = _through_conjugates(graph, in_specs, out_specs)
    programs = require("rushlight._kernels.program")
    if enabled("graph"):
        log("graph", "\n".join([NAMING[0], *programs.graph_lines(graph)]))
    build = require("rushlight._backends.cpu.compile").build
    options["target"] = require("rushlight._backends.cpu.target").host_target()
    layouts = [None if s is None else s.strides for s in in_specs]
    program = programs.compile_graph(graph, layouts, [s.strides for s in out_specs], **options)
    if enabled("schedule"):
        log("schedule", "\n".join([NAMING[0], *program.notes]))
    exe = build(program)
    return exe if RECORDER[0] is None else Watched(exe)


def _through_conjugates(graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec]) -> Graph:
    """The graph around memory that holds conjugates (of real numbers: negatives): it turns what it reads from there, and what it writes there."""
    builder = GraphBuilder()
    inputs = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]
    with builder:
        read = [_turned(v) if s is not None and s.conj else v for v, s in zip(inputs, in_specs, strict=True)]
        made = [_turned(v) if s.conj else v for v, s in zip(evaluate(graph, read), out_specs, strict=True)]
    return builder.finish(made)


def _turned(v: Any) -> Any:
    return prim.conj(v) if v.dtype.is_complex else build.convert(prim.neg(build.convert(v, v.dtype.wide)), v.dtype)


def operand_strides(shape: tuple[int, ...], specs: Sequence[Spec]) -> tuple[int, ...]:
    """Strides of a fresh element-wise result: the operands' own order of dims in memory (TensorIterator's rule)."""
    same = [s for s in specs if s.shape == shape]
    if all(s.contiguous for s in same) and (same or len(specs) < 2):
        return contiguous_strides(shape)
    if same and not same[0].contiguous and all(s.strides == same[0].strides for s in same) and len(same) == len(specs):
        return restride(shape, same[0].strides)
    operands = [broadcast_strides(s.shape, s.strides, shape) for s in specs if s.ndim]
    ndim = len(shape)
    order = list(range(ndim))[::-1]  # innermost first, as the iterator sorts them

    def compare(a: int, b: int) -> int:
        for strides in operands:
            x, y = strides[a], strides[b]
            if x == 0 or y == 0:
                continue
            if x != y:
                return -1 if x < y else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    for i in range(1, ndim):
        at = i
        for j in range(i - 1, -1, -1):
            result = compare(order[j], order[at])
            if result > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif result < 0:
                break
    strides = dense_strides(shape, order[::-1])
    return contiguous_strides(shape) if is_contiguous(shape, strides) else strides


class Recipe:
    """What the backward nodes of one signature share: the node class, where saved values come from, and the graph."""

    __slots__ = (
        "_fast", "_in_order", "last_map", "last_plan", "last_spec", "last_word", "_mask", "_places", "_plans", "_residual", "cls",
        "forward", "graph", "n_results", "origin", "out_specs", "outputs",
        "sources", "wrt",
    )  # fmt: skip

    def __init__(self, name: str, found: Backward, wrt: Sequence[int], mask: Sequence[bool], device: Device) -> None:
        self.cls = node_class(name)
        self.wrt, self.n_results, self._mask = tuple(wrt), len(mask), tuple(mask)
        self.sources, self.outputs, self.forward = found.saved, found.outputs, found.forward
        self.out_specs = [Spec.of(v.dtype, device, v.shape) for v in found.forward.outputs]
        self.graph = found.graph
        self._plans = graph_caller(found.graph, name)
        self._residual: Any = None
        self._places: Any = None
        self.origin: Any = None  # (operator, template, specs) of the call, where there is one
        self._fast: dict[Any, Any] = {}
        self._in_order = self.outputs == list(range(len(self.outputs)))
        self.last_spec: Any = None  # the gradient and the state for which `last_plan` was made
        self.last_word = 0
        self.last_plan: Any = None
        self.last_map = None if self._in_order else tuple(self.outputs)

    def places(self) -> Any:
        """For each argument of the call that could have a gradient the number of its edge, or None; None where no call is known."""
        if self._places is None and self.origin is not None:
            op, template, specs = self.origin
            self._places = argument_places(op, template, specs, self.wrt, self.cls.__name__)
        return self._places

    def saved_names(self) -> list[Any]:
        """What users call the saved values; None for those without a name."""
        return [None] * len(self.sources) if self.origin is None else saved_names(self.origin[0], self.origin[1], self.sources)

    def backward(self, saved: Sequence[Any], grads: list[Tensor | None]) -> list[Tensor | None]:
        """Gradients for the edges, from saved values and the results' gradients."""
        if self.n_results == 1 and len(grads) == 1:
            grad: Any = grads[0]
            key = (grad._spec, STATE.word)
            plan = self._fast.get(key)
            if plan is None:
                if STATE.word & GRAD:  # create_graph: what is recorded depends on more than specs
                    made = self._plans(*saved, grad)
                    return [None if o is None else made[o] for o in self.outputs]
                plan = self._fast[key] = self._plans.prepare(*saved, grad)
            self.last_spec, self.last_word, self.last_plan = grad._spec, STATE.word, plan
            made = plan(*saved, grad)
            return made if self._in_order else [None if o is None else made[o] for o in self.outputs]  # type: ignore[return-value]
        results = grads[: self.n_results]
        found: list[Tensor | None] = [None] * len(self.outputs)
        if any(g is not None for g in results):
            given = [self._zeros(i) if g is None else g for i, g in enumerate(results) if self._mask[i]]
            made = self._plans(*saved, *given)
            found = [None if o is None else made[o] for o in self.outputs]
        if any(g is not None for g in grads[self.n_results :]):
            found = self._through_residuals(saved, grads, found)
        return found

    def _zeros(self, number: int) -> Tensor:
        from rushlight._engine.memory import zeros_spec

        return zeros_spec(self.out_specs[number])

    def _through_residuals(self, saved: Sequence[Any], grads: list[Tensor | None], found: list[Tensor | None]) -> list[Tensor | None]:
        """Backward was differentiated, and its gradient reached values that the forward kept: add what they contribute."""
        from rushlight._engine.autograd.engine import OPS

        n, total = self.n_results, len(self.forward.outputs)
        grads = grads + [None] * (total - len(grads))
        mask = [i >= n and (s.dtype.is_floating_point or s.dtype.is_complex) for i, s in enumerate(self.out_specs[:total])]
        if self._residual is None:
            where = {("output", n + i) if kind == "residual" else (kind, i): k for k, (kind, i) in enumerate(self.sources)}
            derived = differentiate_graph(self.forward, total, self.wrt, mask, only=list(where))
            self._residual = (graph_caller(derived.graph, self.cls.__name__), [where[s] for s in derived.saved], derived.outputs)
        call, picks, outputs = self._residual
        given = [self._zeros(i) if grads[i] is None else grads[i] for i in range(total) if mask[i]]
        made = call(*[saved[i] for i in picks], *given)
        more = [None if o is None else made[o] for o in outputs]
        return [b if a is None else a if b is None else OPS["add"](a, b) for a, b in zip(found, more, strict=True)]


def graph_caller(graph: Graph, name: str) -> Any:
    """A function that runs `graph` on tensors and Python numbers, recording a node where gradients are wanted.

    Returns a tuple of tensors.  A graph output that is an input comes back as that very tensor.  What is recorded and takes steps (see `stepping`) is
    recorded step by step.
    """
    plans = new_plan_table()
    state = STATE
    if not graph.nodes:
        where = {id(v): i for i, v in enumerate(graph.inputs)}
        picks = [where[id(v)] for v in graph.outputs]

        def choose(*inputs: Any) -> tuple[Any, ...]:
            return tuple([inputs[i] for i in picks])

        choose.prepare = lambda *inputs: choose_plan(choose, picks) if picks else choose  # type: ignore[attr-defined]
        return choose

    stepped = Stepped(graph, lambda part: graph_caller(part, name)) if takes_steps(graph) else None

    def call(*inputs: Any) -> Any:
        if stepped is not None and state.word & GRAD and any(isinstance(i, Tensor) and i._rg for i in inputs):
            return stepped(*inputs)
        signature: list[Any] = [state.word]
        for item in inputs:
            if isinstance(item, Tensor):
                signature.append(item._spec)
                signature.append(item._rg)
            else:
                signature.append(type(item))
        key = tuple(signature)
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = _graph_plan(graph, name, inputs)
        return plan(*inputs)

    call.prepare = lambda *inputs: _graph_plan(graph, name, inputs)  # type: ignore[attr-defined]
    return call


def _graph_plan(graph: Graph, name: str, inputs: Sequence[Any]) -> Callable[..., Any]:
    from rushlight._engine.view import layout_plan

    NAMING[0] = name
    specs = [i._spec if isinstance(i, Tensor) else None for i in inputs]
    device = next((s.device for s in specs if s is not None), CPU)
    wants = bool(STATE.word & GRAD) and any(isinstance(i, Tensor) and i._rg for i in inputs)
    if not wants:
        as_view = layout_plan(graph, specs)
        if as_view is not None:
            return as_view
    where = {id(v): i for i, v in enumerate(graph.inputs)}
    passed = {j: where[id(v)] for j, v in enumerate(graph.outputs) if id(v) in where}
    computed = [j for j in range(len(graph.outputs)) if j not in passed]
    rest = Graph(graph.inputs, graph.nodes, [graph.outputs[j] for j in computed])
    out_specs = [
        Spec.of(v.dtype, device, v.shape, operand_strides(v.shape, [s for s in specs if s is not None and s.shape == v.shape]))
        for v in rest.outputs
    ]
    recipe = None
    if wants:
        wrt = [k for k, i in enumerate(inputs) if isinstance(i, Tensor) and i._rg]
        mask = [v.dtype.is_floating_point or v.dtype.is_complex for v in rest.outputs]
        recipe = Recipe(name, differentiate_graph(rest, len(mask), wrt, mask), wrt, mask, device)
    single = len(computed) == 1 and not passed
    plan = make_plan(recipe.forward if recipe else rest, specs, out_specs, recipe, device, as_tuple=single)
    if single:
        return plan

    def run(*args: Any) -> Any:
        made = plan(*args) if computed else ()
        made = iter((made,) if len(computed) == 1 else made)
        return tuple([args[passed[j]] if j in passed else next(made) for j in range(len(graph.outputs))])

    return run


def make_plan(
    graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec], recipe: Recipe | None, device: Device, as_tuple: bool = False,
    bounds: Bounds = None,
) -> Callable[..., Any]:  # fmt: skip
    """The plan for one signature; `graph` has the residuals of `recipe` after the results that `out_specs` describes.

    The plan takes tensors and Python numbers in the order of the graph's inputs, and returns a tensor, or a tuple for several (always with
    `as_tuple`).  With `bounds` the numbers must lie in the range of the result's dtype.
    """
    n_results = len(out_specs)
    specs = list(out_specs) + [Spec.of(v.dtype, device, v.shape) for v in graph.outputs[n_results:]]
    in_complex = any(v.weak and v.dtype.is_complex for v in graph.inputs)
    exe = None
    if device is META:
        run = _meta_runner(specs)
    else:
        exe = executable(graph, in_specs, specs)
        run = _runner(exe, in_specs, specs, in_complex)
    plan = _quiet(run, specs) if recipe is None else _recording(run, n_results, recipe)
    closure = (lambda *args: (plan(*args),)) if as_tuple and n_results == 1 else plan
    closure = fitting(closure, sum(s is not None for s in in_specs), out_specs[0].dtype, bounds)
    if exe is None or in_complex or STATE.word & INFERENCE or (recipe is not None and STATE.word & (ANOMALY | SAVED_HOOKS)):
        return closure
    mask = [s.dtype.is_floating_point or s.dtype.is_complex for s in out_specs]
    several = as_tuple or n_results > 1
    edges = () if recipe is None else recipe.wrt
    return native_plan(exe, closure, in_specs, specs, n_results, recipe, edges, mask, several, bounds)  # type: ignore[no-any-return]


def fitting(plan: Callable[..., Any], n: int, dtype: DType, bounds: Bounds) -> Callable[..., Any]:
    """The plan behind a check that the numbers among its arguments, all after the first n, lie in the range of a dtype that has `bounds`."""
    if bounds is None:
        return plan

    def run(*args: Any) -> Any:
        for number in args[n:]:
            check_number(number, dtype)
        return plan(*args)

    return run


def _meta_runner(specs: Sequence[Spec]) -> Callable[..., Any]:
    if len(specs) == 1:
        return lambda *_: make(None, specs[0], 0)
    return lambda *_: tuple([make(None, s, 0) for s in specs])


def _runner(exe: Any, in_specs: Sequence[Spec | None], specs: Sequence[Spec], in_complex: bool) -> Callable[..., Any]:
    """A function from inputs to a tensor (one result) or a tuple of tensors, without autograd."""
    pointers = [i for i, s in enumerate(in_specs) if s is not None]
    numbers = [i for i, s in enumerate(in_specs) if s is None]
    call = exe
    if len(specs) == 1:
        spec = specs[0]

        def run(*inputs: Any) -> Tensor:
            words = [inputs[i] for i in numbers]
            storage = call(*[inputs[i]._ptr for i in pointers], *(number_words(words) if in_complex else words))
            return make(storage, spec, storage.ptr)

        return run

    def run_many(*inputs: Any) -> tuple[Tensor, ...]:
        words = [inputs[i] for i in numbers]
        storages = call(*[inputs[i]._ptr for i in pointers], *(number_words(words) if in_complex else words))
        return tuple([make(s, spec, s.ptr) for s, spec in zip(storages, specs, strict=True)])

    return run_many


def number_words(values: list[Any]) -> list[Any]:
    """Python numbers as kernel words: complex ones become two."""
    if not any(type(v) is complex for v in values):
        return values
    words: list[Any] = []
    for value in values:
        words += [value.real, value.imag] if type(value) is complex else [value]
    return words


def _quiet(run: Callable[..., Any], specs: Sequence[Spec]) -> Callable[..., Any]:
    """A plan that records nothing; inference mode marks its results."""
    if not STATE.word & INFERENCE:
        return run

    def marked(*inputs: Any) -> Any:
        made = run(*inputs)
        for tensor in made if type(made) is tuple else (made,):
            meta = new_meta[0]()
            meta.inference = True
            tensor._meta = meta
        return made

    return marked


def _recording(run: Callable[..., Any], n_results: int, recipe: Recipe) -> Callable[..., Any]:
    """A plan that records a node."""
    if n_results > 1 or len(recipe.forward.outputs) > 1:
        return _recording_many(run, n_results, recipe)
    return _recording_any(run, recipe)


def record(recipe: Recipe, inputs: Sequence[Any], made: Sequence[Tensor]) -> Any:
    """A node for one call, whatever it saves."""
    node = recipe.cls.__new__(recipe.cls)
    node.info = recipe
    node._edges = [edge_of(inputs[i]) for i in recipe.wrt]
    node._seq = next_sequence()
    node._extra = None
    _save(node, recipe, inputs, made)
    if STATE.word & (ANOMALY | SAVED_HOOKS):
        _watch(node)
    return node


def _recording_any(run: Callable[..., Any], recipe: Recipe) -> Callable[..., Any]:
    def plan(*inputs: Any) -> Tensor:
        out: Tensor = run(*inputs)
        out._node = record(recipe, inputs, (out,))
        out._rg = True
        return out

    return plan


def _recording_many(run: Callable[..., Any], n_results: int, recipe: Recipe) -> Callable[..., Any]:
    """Several results, or results and residuals."""

    def plan(*inputs: Any) -> Any:
        made = run(*inputs)
        made = made if type(made) is tuple else (made,)
        node = record(recipe, inputs, made)
        for number, out in enumerate(made[:n_results]):
            if out._spec.dtype.is_floating_point or out._spec.dtype.is_complex:
                out._node, out._rg = node, True
                if number:
                    out._meta = new_meta[0]()
                    out._meta.output_nr = number
        return made[0] if n_results == 1 else made[:n_results]

    return plan


def _save(node: Any, recipe: Recipe, inputs: Sequence[Any], made: Sequence[Tensor]) -> None:
    items: list[Any] = []
    versions: list[int | None] = []
    for kind, number in recipe.sources:
        if kind == "input":
            item = inputs[number]
            if isinstance(item, Tensor) and item._meta is not None and item._meta.inference:
                raise RuntimeError(NOT_SAVED)
        else:
            item = alias(made[number if kind == "output" else recipe.n_results + number])
        items.append(item)
        is_tensor = isinstance(item, Tensor)
        versions.append((item._storage.version if item._storage is not None else 0) if is_tensor else None)
    node.saved, node.versions = items, versions
    node.where = user_code()


def _watch(node: Node) -> None:
    """Anomaly mode keeps the user's line; saved-tensor hooks pack what was saved."""
    if STATE.word & ANOMALY:
        from rushlight._engine.autograd.anomaly import remember

        remember(node)
        node._more().place = user_frame()
    if STATE.word & SAVED_HOOKS and STATE.saved_hooks:
        for i, item in enumerate(node.saved):  # type: ignore[attr-defined]
            if isinstance(item, Tensor):
                node.saved[i] = packed(item, *STATE.saved_hooks[-1])  # type: ignore[attr-defined]
                node.versions[i] = None  # type: ignore[attr-defined]
