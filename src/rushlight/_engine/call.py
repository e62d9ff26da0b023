"""Calling operators: signature, plan, result.  The in-place and `out=` forms too."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.errors import NotDifferentiableError, user_code
from rushlight._base.log import enabled, log
from rushlight._engine.autocast import casting_plan
from rushlight._engine.autograd.node import Node, next_sequence
from rushlight._engine.bind import bind, flatten
from rushlight._engine.determinism import alerting
from rushlight._engine.families import Families, Outline
from rushlight._engine.fast import RUNS, make_dispatch, ran
from rushlight._engine.inplace import (
    apart,
    bump,
    check_inference,
    check_writable,
    overlaps_partly,
    rebase,
    refresh_quiet,
    share_memory,
)
from rushlight._engine.lower import Literal, Slot, differentiate, trace_operator
from rushlight._engine.native_plans import DYNAMIC, STATIC, learn, make_dispatcher, out_plan
from rushlight._engine.native_plans import inplace_plan as native_inplace
from rushlight._engine.packing import number_bounds
from rushlight._engine.plan import (
    KernelMould,
    Pieces,
    PlanMould,
    Recipe,
    executable,
    fitting,
    number_words,
    operand_strides,
    program_of,
    watch,
)
from rushlight._engine.results import result_name, result_type_of, with_out
from rushlight._engine.state import (
    ANOMALY,
    AUTOCAST,
    FUNCTION_MODE,
    GRAD,
    LEARNING,
    OBSERVED,
    SAVED_HOOKS,
    STATE,
    new_plan_table,
)
from rushlight._engine.tensor import Tensor, alias, edge_of, make, plain_classes
from rushlight._engine.view import view_plan
from rushlight._engine.watch import NAMING, observed, observed_plan
from rushlight._graph.core import Graph, GraphBuilder, evaluate, live_nodes
from rushlight._ops.bodies import CPP_NAME
from rushlight._ops.precision import choose
from rushlight._ops.table import Operator
from rushlight._prims import build
from rushlight._types.device import CPU, META, Device
from rushlight._types.dtype import DType
from rushlight._types.layout import broadcast_shapes, image_strides, overlaps_itself
from rushlight._types.promotion import can_cast
from rushlight._types.spec import Spec
from rushlight._types.symbols import Unfollowed
from rushlight._types.trail import Trail

__all__ = ["Caller", "InplaceCaller", "make_binary", "make_function", "make_inplace", "make_unary"]

_STATE = STATE
_new_tuple = tuple.__new__
# Set by `_engine.override`: handles calls in which a subclass or a mode takes over.
OVERRIDE: list[Any] = [None]


class Caller:
    """One operator's slow path: binding, plans by template and specs."""

    __slots__ = ("families", "name", "op", "plans", "result")

    def __init__(self, op: Operator) -> None:
        self.op, self.name = op, op.schema.name
        self.plans, self.families = new_plan_table(), Families()
        self.result: Any = None
        names = [r for r in op.schema.results if r]
        if len(names) > 1:
            self.result = result_type_of(result_name(op), tuple(names))

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Bind, find or make the plan, and run it."""
        plan, inputs = self.prepare(args, kwargs)
        return self.wrap(plan(*inputs))

    def wrap(self, made: Any) -> Any:
        """The plan's result in the type that users get."""
        return _new_tuple(self.result, made) if self.result is not None else made

    def prepare(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], list[Any]]:
        """The plan for these arguments and what to call it with."""
        values = bind(self.op, self.name, args, kwargs)
        template, tensors, numbers = flatten(self.op, values)
        return self.plan(template, tensors), [*tensors, *numbers]

    def plan(self, template: tuple[Any, ...], tensors: list[Tensor]) -> Callable[..., Any]:
        """The plan for a signature."""
        key: list[Any] = [template, _STATE.word]
        for tensor in tensors:
            key.append(tensor._spec)
            key.append(tensor._rg)
        signature = tuple(key)
        plan = self.plans.get(signature)
        if plan is None:
            plan = self.plans[signature] = self.make(template, tensors)
        return plan

    def make(self, template: tuple[Any, ...], tensors: list[Tensor]) -> Callable[..., Any]:
        """A plan for a signature that was not met before."""
        op = self.op
        NAMING[0] = op.name
        if _STATE.word & AUTOCAST:
            policy = choose(op.name, template, [t._spec.shape for t in tensors])
            if policy is not None:
                return casting_plan(self, policy, template, tensors)
        if _STATE.word & OBSERVED:
            return observed_plan(self, template, tensors)
        if enabled("plan"):
            log("plan", f"{op.name}: new signature {[t._spec for t in tensors]} {template}")
        if op.kind == "view":
            return view_plan(op, template, tensors[0], self.families)
        device = common_device(self.name, tensors)
        specs = [t._spec for t in tensors]
        wrt = [i for i, t in enumerate(tensors) if t._rg] if _STATE.word & GRAD else []
        plan, pieces = self._cast(template, specs, wrt) if device is CPU and specs else (None, None)
        if plan is None:
            pieces = operator_pieces(op, template, specs, wrt, device)
            plan = pieces.plan(device, (op, template, specs))
        assert pieces is not None
        if pieces.refused is not None:
            return underivable(plan, op.name, pieces.refused, wrt)
        return _unordered(op, template, plan)

    def casting(self, template: tuple[Any, ...], tensors: Sequence[Tensor], places: Sequence[int], to: DType) -> Callable[..., Any] | None:
        """The plan of a call of which the tensors at `places` are cast first, with the casts in its graph; None where one would have to be stored.

        It records nothing.
        """
        device, given = common_device(self.name, tensors), [t._spec for t in tensors]
        specs = [Spec.of(to, s.device, s.shape, s.strides) if i in places else s for i, s in enumerate(given)]
        pieces = operator_pieces(self.op, template, specs, (), device)
        graph, builder = pieces.forward, GraphBuilder()
        values = [builder.input(v.shape, given[i].dtype if i in places else v.dtype, v.weak) for i, v in enumerate(graph.inputs)]
        with builder:
            outputs = evaluate(graph, [build.convert(x, v.dtype) for x, v in zip(values, graph.inputs, strict=True)])
        pieces.forward, pieces.in_specs = builder.finish(outputs), [*given, *pieces.in_specs[len(given) :]]
        if device is not CPU or len(program_of(pieces.forward, pieces.in_specs, pieces.specs).steps) != 1:
            return None
        return _unordered(self.op, template, pieces.plan(device))

    def _cast(self, template: tuple[Any, ...], specs: Sequence[Spec], wrt: Sequence[int]) -> tuple[Callable[..., Any] | None, Pieces | None]:
        """The plan and its pieces from a mould; (None, None) where there is none."""
        op = self.op

        def make(trail: Trail, outlines: list[Any]) -> PlanMould:
            return PlanMould(operator_pieces(op, template, outlines, wrt, CPU, Outline.of), trail)

        found = self.families.find((template, _STATE.word, tuple(wrt)), specs, make)
        if found is None:
            return None, None
        mould, values, sizes = found
        in_specs = [*specs, *[None] * (len(mould.pieces.in_specs) - len(specs))]
        return mould.plan(values, sizes, in_specs, (op, template, specs)), mould.pieces


def operator_pieces(
    op: Operator, template: tuple[Any, ...], specs: Sequence[Any], wrt: Sequence[int], device: Device, of: Callable[..., Any] = Spec.of
) -> Pieces:
    """What a call's plan is made of, with respect to the tensors numbered `wrt`; the sizes of `specs` may be symbolic, `of` makes such specs."""
    whole, count = trace_operator(op, template, specs, residuals=bool(wrt) and op.gradient_rule is not None)
    graph = whole if len(whole.outputs) == count else Graph(whole.inputs, live_nodes(whole.nodes, whole.outputs[:count]), whole.outputs[:count])
    results = result_specs(op, graph.outputs, specs, device, template, of)
    in_specs = [*specs, *[None] * (len(graph.inputs) - len(specs))]
    bounds = number_bounds(results[0].dtype) if "fits" in op.tags and len(in_specs) > len(specs) else None
    mask = [v.dtype.is_floating_point or v.dtype.is_complex for v in graph.outputs]
    if not wrt or not any(mask):
        return Pieces(graph, in_specs, results, of, device, bounds=bounds)
    try:
        found = differentiate(op, template, specs, wrt, mask, traced=(whole, count))
    except NotDifferentiableError as error:
        return Pieces(graph, in_specs, results, of, device, refused=str(error), bounds=bounds)
    return Pieces(found.forward, in_specs, results, of, device, node_name(op, template, specs), found, wrt, mask, bounds=bounds)




def _unordered(op: Operator, template: tuple[Any, ...], plan: Callable[..., Any]) -> Callable[..., Any]:
    """The plan, of an operator whose last argument says that places written twice add up, behind a check where they do not."""
    if "unordered" not in op.tags or template[-1] == Literal(True) or template[-1] is True:
        return plan
    return alerting(op.name + "_", plan)


class NotImplementedNode(Node):
    """Stands for a derivative that does not exist; says so when backward arrives."""

    __slots__ = ("text",)
    _namespace = "torch::autograd::"

    def __init__(self, edges: Sequence[Any], text: str) -> None:
        self._start(edges)
        self.text = text

    def name(self) -> str:
        return self._namespace + "NotImplemented"

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        raise NotImplementedError(self.text)


def underivable(plan: Callable[..., Any], name: str, why: str, wrt: Sequence[int]) -> Callable[..., Any]:
    """A plan whose results belong to the graph, but whose backward raises."""

    def run(*inputs: Any) -> Any:
        made = plan(*inputs)
        node = NotImplementedNode([edge_of(inputs[i]) for i in wrt], f"derivative for aten::{name} is not implemented: {why}")
        for out in made if isinstance(made, tuple) else (made,):
            if out._spec.dtype.is_floating_point or out._spec.dtype.is_complex:
                out._node, out._rg = node, True
        return made

    return run


def underivable_inplace(plan: Callable[..., Any], name: str, why: str, wrt: Sequence[int]) -> Callable[..., Any]:
    """A plan of an in-place form, whose target belongs to the graph afterwards, but whose backward raises."""

    def run(*inputs: Any) -> Any:
        check_writable(inputs[0], True)
        edges = [edge_of(inputs[i]) for i in wrt]
        made = plan(*inputs)
        own = wrt.index(0) if 0 in wrt else None
        rebase(made, NotImplementedNode(edges, f"derivative for aten::{name}_ is not implemented: {why}"), own)
        return made

    return run


def operator_recipe(
    op: Operator,
    template: tuple[Any, ...],
    tensors: Sequence[Tensor],
    wrt: Sequence[int],
    differentiable: Sequence[bool],
    overwritten: Sequence[int] = (),
    inplace: bool = False,
    traced: tuple[Graph, int] | None = None,
) -> Recipe:
    """How to differentiate this call; see `Recipe`, and `differentiate` for `traced`."""
    specs = [t._spec for t in tensors]
    found = differentiate(op, template, specs, wrt, differentiable, overwritten, traced)
    recipe = Recipe(node_name(op, template, specs, inplace), found, wrt, differentiable, specs[0].device)
    recipe.origin = (op, template, specs)
    return recipe


def node_name(op: Operator, template: Sequence[Any], specs: Sequence[Spec], inplace: bool = False) -> str:
    """The name of the backward node of this call."""
    if isinstance(op.node, str):
        return op.node_name({}, inplace)
    rest = iter(specs)
    given: dict[str, Any] = {}
    for argument, item in zip(op.schema.arguments, template, strict=True):
        if isinstance(item, Slot) and item.kind == "list":
            given[argument.name] = [next(rest) for _ in range(item.count)]
        elif isinstance(item, Slot):
            given[argument.name] = next(rest) if item.kind == "tensor" else item
        else:
            given[argument.name] = item.value if isinstance(item, Literal) else item
    return op.node_name(given, inplace)


def common_device(name: str, tensors: Sequence[Tensor]) -> Device:
    """The device of a call.  0-dim CPU tensors may be mixed in; any other mix raises."""
    devices = {t._spec.device for t in tensors}
    if len(devices) <= 1:
        return next(iter(devices), CPU)
    large = {t._spec.device for t in tensors if t._spec.ndim}
    if len(large) <= 1 and META in devices:
        return META
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {' and '.join(sorted(map(str, devices)))}! "
        f"(when checking arguments of {name})"
    )


def result_specs(
    op: Operator, values: Sequence[Any], specs: Sequence[Any], device: Device, template: Sequence[Any], of: Callable[..., Any] = Spec.of
) -> list[Any]:
    """Specs of the results, made by `of`: dtype and shape from the graph, strides by the operator's rule (which may ask for the call's other
    arguments)."""
    found = []
    for value in values:
        strides = None
        if op.like == "operands" and specs:
            strides = operand_strides(value.shape, [s for s in specs if len(s.shape) <= len(value.shape)])
        elif op.like == "image":
            strides = image_strides(value.shape, specs[0].shape, specs[0].strides)
        elif callable(op.like):
            more = [[v.value if isinstance(v, Literal) else v for v in template]] if "laid_by_arguments" in op.tags else []
            strides = op.like(value.shape, specs, *more)
        found.append(of(value.dtype, device, value.shape, strides))
    return found


# ***** the functions that users call *****


def make_unary(caller: Caller) -> Callable[..., Any]:
    """The method form of an operator whose only required argument is a tensor."""

    def check(args: Sequence[Any]) -> None:
        if args:
            _require_tensor(caller.name, args[0])

    return make_function(caller, check)


_PYTHON_METHODS = ("rsub", "matmul")  # PyTorch writes them in Python: they take any `self`, and give NotImplemented


def make_binary(caller: Caller) -> Callable[[Any, Any], Any]:
    """The operator form (`a + b`): two operands, tensor or number."""
    full = make_function(caller)

    def missed(self: Any, other: Any) -> Any:
        if _STATE.word & LEARNING:
            return full(self, other)
        kind = type(other)
        number = kind is float or kind is int
        if not isinstance(self, Tensor):
            return _no_tensor(caller.name, self, other, full)
        if not (isinstance(other, Tensor) or number or _accepts(other)):
            return NotImplemented
        plain = type(self) in plain_classes and (kind in plain_classes or number) and not _STATE.word & FUNCTION_MODE
        if not plain or self._spec.dtype.is_complex:
            return full(self, other)
        plan, inputs = caller.prepare((self, other), {})
        operands = [a for a in (self, other) if any(a is b for b in inputs)]
        if len(operands) == len(inputs) and all(a is b for a, b in zip(operands, inputs, strict=True)):
            learn(method, (self, other), {}, plan, [0, 1] if len(operands) == 2 else [0])
        return plan(*inputs)

    second = STATIC if caller.op.schema.arguments[1].name in caller.op.static else DYNAMIC
    method = make_dispatcher(missed, (DYNAMIC, second), (..., ...), ("self", "other"))
    method.__name__ = method.__qualname__ = caller.name
    method.__module__ = __name__
    method.operator = caller.op
    full.seen[0] = getattr(Tensor, caller.name, method)
    return method  # type: ignore[no-any-return]


def _require_tensor(name: str, value: Any) -> None:
    """TypeError for an unbound method that was called with something else."""
    if not isinstance(value, Tensor) and not hasattr(type(value), "__torch_function__"):
        raise TypeError(f"descriptor '{name}' for 'Tensor' objects doesn't apply to a '{type(value).__name__}' object")


def _no_tensor(name: str, value: Any, other: Any, full: Callable[..., Any]) -> Any:
    """A binary method of something that is no tensor: what takes part in overriding is asked, all else is refused."""
    if hasattr(type(value), "__torch_function__"):
        return full(value, other)
    if name in _PYTHON_METHODS:
        return NotImplemented
    return _require_tensor(name, value)  # type: ignore[func-returns-value]


def _accepts(other: Any) -> bool:
    return isinstance(other, (bool, int, float, complex)) or type(other).__module__ == "numpy" or hasattr(type(other), "__torch_function__")


def make_function(caller: Caller, check: Callable[..., None] | None = None) -> Any:
    """The general form: any arguments, positional or by name; `check(args)` may raise for them."""
    op = caller.op
    seen: list[Any] = []  # what overrides are shown: the function itself, or the method that it is a part of

    def slow(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        override = OVERRIDE[0]
        if override is not None:
            handled, made = override(seen[0], args, kwargs)
            if handled:
                return made
        out = kwargs.pop("out", None) if op.out else None
        return caller.call(args, kwargs) if out is None else call_out(caller, args, kwargs, out)

    function = make_dispatch(op, caller.prepare, slow, caller.result, check)
    function.__name__ = function.__qualname__ = caller.name
    function.__doc__ = op.doc
    function.__module__ = __name__
    function.operator = op
    seen.append(function)
    function.seen = seen
    return function


# ***** out= *****

IDEMPOTENT = frozenset(("fill_", "zero_", "masked_fill_", "index_fill_", "index_put_core_"))  # writing twice is writing once: expanded tensors are allowed
SELF_OVERLAP = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the tensor before "
    "performing the operation."
)

OVERLAP = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please clone() the tensor "
    "before performing the operation."
)


def call_out(caller: Caller, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    """Compute into given tensors: resized if need be, cast if PyTorch allows it.  Nothing is cast before by itself."""
    if _STATE.word & AUTOCAST:
        word = _STATE.word
        _STATE.word = word & ~AUTOCAST
        try:
            return call_out(caller, args, kwargs, out)
        finally:
            _STATE.word = word
    values = bind(caller.op, caller.name, args, kwargs)
    _, tensors, _ = flatten(caller.op, values)
    apart = "apart" in caller.op.tags
    outs = check_outs(caller.name, out, tensors, apart, len(caller.op.schema.results) > 1)
    if (apart or caller.op.like == "operands") and any(overlaps_itself(t._spec.shape, t._spec.strides) for t in outs):
        raise RuntimeError(SELF_OVERLAP)
    if caller.op.like == "operands" and any(t is outs[0] for t in tensors):
        shape = broadcast_shapes(*[t._spec.shape for t in tensors])
        if shape != tuple(outs[0]._spec.shape):  # what is read may not be resized
            raise RuntimeError(f"output with shape {list(outs[0]._spec.shape)} doesn't match the broadcast shape {list(shape)}")
    if caller.op.kind == "graph" and len(outs) == 1 and direct_out(caller, values, outs[0]):
        return outs[0]
    made = caller.call(args, kwargs)
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    if len(results) != len(outs):
        raise TypeError(f"{caller.name}(): argument 'out' must be tuple of {len(results)} Tensors, not of {len(outs)}")
    for tensor, result in zip(outs, results, strict=True):
        write_out(caller.name, tensor, result, caller.op.out == "exact")
    return outs[0] if not isinstance(out, (tuple, list)) else (with_out(caller.result)(outs) if caller.result is not None else tuple(outs))


def check_outs(name: str, out: Any, tensors: Sequence[Tensor], apart: bool, several: bool | None) -> list[Tensor]:
    """The tensors given as `out=`, of any function that takes some; `several` says whether it takes a tuple of them (None: either).

    TypeError for what is no tensor; RuntimeError where gradients are wanted, where one is on another device, and where one lies across
    an argument (with `apart`, also where it is one).
    """
    listed = isinstance(out, (tuple, list))
    if several is not None and listed is not several:
        raise TypeError(f"{name}(): argument 'out' must be {'tuple of Tensors' if several else 'Tensor'}, not {type(out).__name__}")
    outs = list(out) if listed else [out]
    for tensor in outs:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(tensor).__name__}")
    if _STATE.word & GRAD and (any(t._rg for t in tensors) or any(t._rg for t in outs)):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
                           "requires grad.")
    for tensor in outs:
        check_inference(tensor)
        if tensors and all(t._spec.device is not tensor._spec.device for t in tensors):
            raise RuntimeError(
                f"{name}(): expected all tensors to be on the same device, but the arguments are on {tensors[0]._spec.device} and "
                f"out is on {tensor._spec.device}"
            )
        for other in tensors:
            if other is tensor or not overlaps_partly(tensor, other):
                if not apart or (other is not tensor and not share_memory(tensor, other)):
                    continue
            raise RuntimeError(OVERLAP)
    return outs


def write_out(name: str, out: Tensor, result: Tensor, exact: bool = False) -> None:
    """Copy a finished result into `out`, whose dtype must be the result's where it is `exact`."""
    if exact and out.dtype is not result.dtype:
        raise RuntimeError(f"{name}(): Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead")
    check_out_dtype(name, out, result.dtype)
    if out.shape != result.shape:
        if out._spec.numel:
            warnings.warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match the required output "
                f"shape {list(result.shape)}. This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they "
                "have zero elements.",
                UserWarning,
                stacklevel=4,
            )
        from rushlight._engine.convert import grow

        grow(out, tuple(result.shape))
    elif overlaps_itself(out._spec.shape, out._spec.strides):
        raise RuntimeError(SELF_OVERLAP)
    out.copy_(result)  # type: ignore[attr-defined]


def check_out_dtype(name: str, out: Tensor, dtype: DType) -> None:
    """RuntimeError where a result may not be cast to the dtype of `out`."""
    if not can_cast(dtype, out.dtype):
        raise RuntimeError(f"result type {type_word(dtype)} can't be cast to the desired output type {type_word(out.dtype)}")


def type_word(dtype: DType) -> str:
    """The C++ name that PyTorch's messages use."""
    return CPP_NAME[dtype.name]


def direct_out(caller: Caller, values: Sequence[Any], out: Tensor) -> bool:
    """Let the kernel write into `out` where shape, dtype and memory allow it."""
    template, tensors, numbers = flatten(caller.op, values)
    if out._storage is None or any(share_memory(out, t) for t in tensors) or common_device(caller.name, [*tensors, out]) is META:
        return False
    if overlaps_itself(out._spec.shape, out._spec.strides):
        return False
    key = ("out", template, out._spec, _STATE.word & OBSERVED, *[t._spec for t in tensors])
    plan = caller.plans.get(key)
    if plan is None:
        NAMING[0] = caller.op.name
        specs = [t._spec for t in tensors]
        plan = _cast_writer(caller, template, specs, out._spec)
        if plan is None:
            graph, count = trace_operator(caller.op, template, specs)
            if not _fills(graph, count, out._spec):
                return False
            in_specs = [*specs, *[None] * (len(graph.inputs) - len(specs)), out._spec]
            exe = executable(_with_target(graph, out._spec), in_specs, [out._spec], aliases={0: len(graph.inputs)})
            plan = writer(exe, len(specs))
        caller.plans[key] = plan
        if _STATE.word & OBSERVED:
            plan = caller.plans[key] = observed(plan, caller.op.name, caller.op, template)
    plan(*tensors, *numbers, out)
    bump(out._storage)
    if RUNS.now is not None:
        ran(native_out(plan, caller, template, len(tensors), numbers), (*tensors, *numbers, out), out)
    return True


def native_out(plan: Any, caller: Caller, template: tuple[Any, ...], n: int, numbers: Sequence[Any]) -> Any:
    """The plan of a call with `out=`, which takes (n tensors, numbers, out) and returns `out`."""

    def closure(*args: Any) -> Any:
        made = caller.plan(template, list(args[:n]))(*args[:-1])
        write_out(caller.name, args[-1], made)
        return args[-1]

    if not hasattr(plan, "exe") or any(type(v) is complex for v in numbers):
        return closure
    return out_plan(plan.exe, closure, n, len(numbers))


def _fills(graph: Graph, count: int, target: Any) -> bool:
    """Whether the only result of a graph can go where a tensor of this spec is."""
    result = graph.outputs[0]
    return count == 1 and result.shape == target.shape and result.dtype is target.dtype


def _with_target(graph: Graph, target: Any) -> Graph:
    """The graph with an input more: the memory that its result goes to."""
    builder = GraphBuilder()
    inputs = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]
    builder.input(tuple(target.shape), target.dtype)
    with builder:
        outputs = evaluate(graph, inputs)
    return builder.finish(outputs)


def _cast_writer(caller: Caller, template: tuple[Any, ...], specs: Sequence[Spec], target: Spec) -> Callable[..., None] | None:
    """The plan of a call with `out=` from a mould; None where there is none."""

    def make(trail: Trail, outlines: list[Any]) -> KernelMould:
        *given, out = outlines
        graph, count = trace_operator(caller.op, template, given)
        if not _fills(graph, count, out):
            raise Unfollowed("a result that does not fit")
        numbers = [None] * (len(graph.inputs) - len(given))
        return KernelMould(_with_target(graph, out), [*given, *numbers, out], [out], trail, aliases={0: len(graph.inputs)})

    found = caller.families.find(("out", template, _STATE.word), [*specs, target], make)
    return None if found is None else writer(found[0].executable(found[1]), len(specs))


def writer(exe: Any, n: int) -> Callable[..., None]:
    """A plan that runs an executable on n tensors and numbers; its result goes into the last tensor that it is given."""

    def run(*args: Any) -> None:
        exe(*[t._ptr for t in args[:n]], args[-1]._ptr, *number_words(list(args[n:-1])))

    run.exe = exe  # type: ignore[attr-defined]
    return run


# ***** in-place *****


class InplaceCaller:
    """The in-place form of an operator: the result goes where its first argument is."""

    __slots__ = ("caller", "families", "name", "op", "plans")

    def __init__(self, caller: Caller) -> None:
        self.caller, self.op, self.name = caller, caller.op, caller.name + "_"
        self.plans, self.families = new_plan_table(), Families()

    def prepare(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], list[Any]]:
        """The plan for these arguments and what to call it with."""
        values = bind(self.op, self.name, args, kwargs)
        template, tensors, numbers = flatten(self.op, values)
        key: list[Any] = [template, _STATE.word]
        for tensor in tensors:
            key.append(tensor._spec)
            key.append(tensor._rg)
        signature = tuple(key)
        plan = self.plans.get(signature)
        if plan is None:
            plan = self.plans[signature] = self.make(template, tensors)
        return plan, [*tensors, *numbers]

    def make(self, template: tuple[Any, ...], tensors: list[Tensor]) -> Callable[..., Any]:
        """A plan for a signature that was not met before."""
        op, target = self.op, tensors[0]._spec
        if _STATE.word & OBSERVED:
            return observed_plan(self, template, tensors)
        NAMING[0] = self.name
        if self.name not in IDEMPOTENT and overlaps_itself(target.shape, target.strides):
            raise RuntimeError(SELF_OVERLAP)
        device = common_device(self.name, tensors)
        specs = [t._spec for t in tensors]
        wrt = [i for i, t in enumerate(tensors) if t._rg] if _STATE.word & GRAD else []
        wants = bool(wrt) and (target.dtype.is_floating_point or target.dtype.is_complex)
        found = self._cast(template, specs) if device is CPU and not wants else None
        if found is not None:
            exe, weak = found
            bounds = number_bounds(target.dtype) if "fits" in op.tags and weak else None
            return self._plain(template, inplace_kernel(exe, len(specs), any(d.is_complex for d in weak)), exe, specs, len(weak), bounds)
        graph = self._traced(template, specs)
        recipe, refused = None, None
        if wants:
            try:
                recipe = operator_recipe(op, template, tensors, wrt, [True], inplace=True)
            except NotDifferentiableError as error:
                refused = str(error)
        forward = recipe.forward if recipe else graph
        bounds = number_bounds(target.dtype) if "fits" in op.tags and len(graph.inputs) > len(specs) else None
        run = inplace_runner(forward, specs, target)
        exe = getattr(run, "keep", None)
        if refused is None and recipe is None:
            return self._plain(template, run, exe, specs, len(graph.inputs) - len(specs), bounds)
        plan = inplace_plan(run, recipe, wrt, len(specs), "alone" in op.tags)
        if refused is not None:
            plan = underivable_inplace(plan, op.name, refused, wrt)
        return fitting(_unordered(op, template, plan), len(specs), target.dtype, bounds)

    def _traced(self, template: tuple[Any, ...], specs: Sequence[Any]) -> Graph:
        """The graph of a call, whose result fits its target."""
        graph, _ = trace_operator(self.op, template, specs)
        target = specs[0]
        check_inplace_result(graph.outputs[0], target)
        if "same_dtype_in_place" in self.op.tags and graph.outputs[0].dtype is not target.dtype:
            raise RuntimeError(
                f"the base given to {self.name} has dtype {type_word(target.dtype)} but the operation's result requires dtype "
                f"{type_word(graph.outputs[0].dtype)}"
            )
        return graph

    def _plain(
        self, template: tuple[Any, ...], run: Callable[..., Any], exe: Any, specs: Sequence[Spec], numbers: int, bounds: Any
    ) -> Callable[..., Any]:
        """The plan of a call that records nothing, around what runs it (and, where that is all it does, its executable)."""
        plan = inplace_plan(run, None, (), len(specs), "alone" in self.op.tags)
        plan = fitting(plan, len(specs), specs[0].dtype, bounds)
        if exe is not None and hasattr(run, "keep"):
            plan = native_inplace(exe, plan, [*specs, *[None] * numbers], bounds)
        return _unordered(self.op, template, plan)

    def _cast(self, template: tuple[Any, ...], specs: Sequence[Spec]) -> tuple[Any, list[DType]] | None:
        """(executable, dtypes of the numbers that it takes) from a mould; None where there is none."""

        def make(trail: Trail, outlines: list[Any]) -> KernelMould:
            whole = written(self._traced(template, outlines), outlines[0].dtype)
            if whole is None:
                raise Unfollowed("nothing changes")
            return KernelMould(whole, [*outlines, *[None] * (len(whole.inputs) - len(outlines))], [outlines[0]], trail, aliases={0: 0})

        found = self.families.find((template, _STATE.word), specs, make)
        return None if found is None else (found[0].executable(found[1]), found[0].weak)


def check_inplace_result(value: Any, target: Spec) -> None:
    """RuntimeError where a result does not fit the tensor it must go into."""
    if value.shape != target.shape:
        raise RuntimeError(f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}")
    if not can_cast(value.dtype, target.dtype):
        raise RuntimeError(f"result type {type_word(value.dtype)} can't be cast to the desired output type {type_word(target.dtype)}")


def written(graph: Graph, dtype: DType) -> Graph | None:
    """The graph with its first result in `dtype`, that of its first input, to whose place it goes; None where nothing changes there."""
    builder = GraphBuilder()
    inputs = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]
    with builder:
        outputs = evaluate(graph, inputs)
        outputs[0] = build.convert(outputs[0], dtype)
    return None if outputs[0] is inputs[0] and len(outputs) == 1 else builder.finish(outputs)


def inplace_runner(graph: Graph, specs: Sequence[Spec], target: Spec) -> Callable[..., tuple[Tensor, ...]]:
    """Runs the graph with its first result written into the first tensor; returns the residuals."""
    whole = written(graph, target.dtype)
    if target.device is META or whole is None:
        return lambda *_: ()
    rest = [Spec.of(v.dtype, CPU, v.shape) for v in whole.outputs[1:]]
    n = len(specs)
    exe = executable(whole, [*specs, *[None] * (len(whole.inputs) - n)], [target, *rest], aliases={0: 0})

    if not rest:
        in_complex = any(v.weak and v.dtype.is_complex for v in whole.inputs[n:])
        return inplace_kernel(exe, n, in_complex)

    def run(*args: Any) -> tuple[Tensor, ...]:
        made = exe(*[t._ptr for t in args[:n]], *number_words(list(args[n:])))
        storages = made if isinstance(made, tuple) else (made,)
        return tuple([make(s, spec, s.ptr) for s, spec in zip(storages, rest, strict=True)])

    return run


def inplace_kernel(exe: Any, n: int, in_complex: bool) -> Callable[..., tuple[Tensor, ...]]:
    """Calls an executable for its effect: with n tensors and some numbers."""

    def run(*args: Any) -> tuple[Tensor, ...]:
        exe(*[t._ptr for t in args[:n]], *(number_words(list(args[n:])) if in_complex else args[n:]))
        return ()

    if not in_complex:
        run.keep = exe  # type: ignore[attr-defined]
    return run


def inplace_plan(run: Callable[..., tuple[Tensor, ...]], recipe: Recipe | None, wrt: Sequence[int], n: int, alone: bool) -> Callable[..., Any]:
    """The plan around a runner: checks, versions, history; `alone`: no operand may lie where the target is."""
    wants = recipe is not None

    def separate(args: Sequence[Any]) -> Sequence[Any]:
        """Copies of operands that overlap the target in another layout."""
        x = args[0]
        for i in range(1, n):
            other = args[i]
            if alone and other._storage is x._storage and (other is x or other._ptr == x._ptr and other._spec is x._spec and x._spec.numel):
                raise RuntimeError(OVERLAP)
            if other._storage is x._storage and (other._ptr != x._ptr or other._spec is not x._spec) and share_memory(other, x):
                if overlaps_partly(x, other):
                    raise RuntimeError(OVERLAP)
                args = (*args[:i], apart(other), *args[i + 1 :])
        return args

    def plan(*args: Any) -> Tensor:
        x: Tensor = args[0]
        if wants or x._meta is not None or x._rg:
            check_writable(x, wants)
        if n > 1:
            args = separate(args)  # type: ignore[assignment]
        if recipe is not None:
            return _recorded(run, recipe, wrt, args)
        run(*args)
        if x._storage is not None:
            bump(x._storage)
        if x._meta is not None and x._meta.creation == "no_grad":
            refresh_quiet(x)
        return x

    return plan


def _recorded(run: Callable[..., Any], recipe: Recipe, wrt: Sequence[int], args: Sequence[Any]) -> Tensor:
    x: Tensor = args[0]
    needs_old = ("input", 0) in recipe.sources
    old: Any = None
    if needs_old:
        old = _copy_of(x)
    edges = [edge_of(args[i]) for i in wrt]
    before = [a._storage.version if isinstance(a, Tensor) and a._storage is not None else 0 for a in args]
    residuals = run(*args)
    if x._storage is not None:
        bump(x._storage)
    node = recipe.cls.__new__(recipe.cls)
    node.info, node._edges, node._seq = recipe, edges, next_sequence()
    node._extra = None
    saved: list[Any] = []
    versions: list[Any] = []
    for kind, number in recipe.sources:
        item: Any
        if kind == "input":
            item = old if number == 0 else args[number]
        else:
            item = alias(x) if kind == "output" else residuals[number]
        saved.append(item)
        if not isinstance(item, Tensor):
            versions.append(None)
        elif kind == "input" and number:  # an operand that is the target itself, or a view of it, has been overwritten by now
            versions.append(before[number])
        else:
            versions.append(item._storage.version if item._storage is not None else 0)
    node.saved, node.versions = saved, versions
    node.where = user_code()
    if _STATE.word & (ANOMALY | SAVED_HOOKS):
        watch(node)
    rebase(x, node, list(wrt).index(0) if 0 in wrt else None)
    return x


def _copy_of(x: Tensor) -> Tensor:
    """The old values of `x`, in the graph where `x` was."""
    from rushlight._engine.autograd.engine import OPS

    before = _STATE.word
    _STATE.word = before & ~GRAD
    try:
        copy: Tensor = OPS["clone"](alias(x))
    finally:
        _STATE.word = before
    copy._rg, copy._node, copy._meta = x._rg, x._node, None
    if x._meta is not None and x._meta.output_nr:
        from rushlight._engine.tensor import meta_of

        meta_of(copy).output_nr = x._meta.output_nr
    return copy


def make_inplace(caller: InplaceCaller) -> Callable[..., Any]:
    """The in-place method or function."""

    def slow(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        override = OVERRIDE[0]
        if override is not None:
            handled, made = override(method, args, kwargs)
            if handled:
                return made
        plan, inputs = caller.prepare(args, kwargs)
        return plan(*inputs)

    method = make_dispatch(caller.op, caller.prepare, slow, None)
    method.__name__ = method.__qualname__ = caller.name
    method.__doc__ = f"In-place form of `{caller.op.name}`: writes into and returns its first argument."
    method.__module__ = __name__
    method.operator = caller.op
    return method  # type: ignore[no-any-return]
