"""Calling operators: signature, plan, result; the functions and methods that users call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.lazy import LazyModule
from rushlight._base.log import enabled, log
from rushlight._engine.core.creation import from_numpy
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.packing import is_array
from rushlight._engine.core.state import AUTOCAST, FUNCTION_MODE, GRAD, NOTING_PLANS, OBSERVED, STATE, new_plan_table
from rushlight._engine.core.tensor import Tensor, plain_classes
from rushlight._engine.dispatch.autocast import casting_plan, policy_for
from rushlight._engine.dispatch.determinism import alerting
from rushlight._engine.dispatch.executables import step_count
from rushlight._engine.dispatch.graph_calls import GRAPH_CALLS
from rushlight._engine.dispatch.kept.plan_store import PlanNote, call_key, further_note
from rushlight._engine.dispatch.lower import Literal, Slot
from rushlight._engine.dispatch.lowered_call import common_device, lowered_call, node_name, on_one_device, wanted
from rushlight._engine.dispatch.out import call_out
from rushlight._engine.dispatch.plans.bind import bind, flatten
from rushlight._engine.dispatch.plans.native_lookup import make_dispatch
from rushlight._engine.dispatch.plans.native_plans import (
    DYNAMIC,
    EITHER,
    cache_plan,
    cache_shape_class,
    make_dispatcher,
)
from rushlight._engine.dispatch.plans.plan import LoweredCall, warning_plan
from rushlight._engine.dispatch.plans.plan_templates import PlanTemplate
from rushlight._engine.dispatch.plans.results import result_name, result_type_of
from rushlight._engine.dispatch.plans.shape_classes import ShapeClasses, SymbolicSpec, abstracted, casting, symbolic
from rushlight._engine.dispatch.underivable import underivable
from rushlight._engine.dispatch.watch import observed_plan
from rushlight._engine.indexing.view import view_casting, view_plan
from rushlight._graph.core import GraphBuilder, evaluate
from rushlight._ops.table import Operator
from rushlight._prims import build
from rushlight._types.device import Device, as_device
from rushlight._types.dtype import DType
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec

__all__ = ["Caller", "make_binary", "make_function", "make_unary", "unordered"]

_STATE = STATE
kept_plans: Any = LazyModule("rushlight._engine.dispatch.kept.kept_plans")  # with the first plan
_new_tuple = tuple.__new__
# Set by `_engine.dispatch.override`: handles calls in which a subclass or a mode takes over.


def plan_for(caller: Any, template: tuple[Any, ...], tensors: Sequence[Tensor]) -> Callable[..., Any]:
    """The caller's plan for a signature, made where there is none yet; once more where another thread resized a tensor
    meanwhile.
    """
    signature = signature_of(template, tensors)
    plan: Callable[..., Any] | None = caller.plans.get(signature)
    while plan is None:
        made, before = caller.make(template, tensors), signature
        signature = signature_of(template, tensors)
        if signature == before:
            plan = caller.plans[signature] = made
        else:
            plan = caller.plans.get(signature)
    return plan


def signature_of(template: tuple[Any, ...], tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Key of a plan: the arguments that are no tensors, the state, and each tensor's spec and whether it
    wants a gradient.
    """
    key: list[Any] = [template, _STATE.word]
    for tensor in tensors:
        key.append(tensor._spec)
        key.append(tensor._rg)
    return tuple(key)


class Caller:
    """One operator's slow path: binding, plans by template and specs."""

    __slots__ = ("_recent", "shape_classes", "name", "op", "plans", "result")

    def __init__(self, op: Operator) -> None:
        self.op, self.name = op, op.schema.name
        self.plans, self.shape_classes = new_plan_table(), ShapeClasses()
        self._recent: Any = (None, None)
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
        tensors = on_one_device(tensors)
        return self.plan(template, tensors), [*tensors, *numbers]

    def plan(self, template: tuple[Any, ...], tensors: list[Tensor]) -> Callable[..., Any]:
        """The plan for a signature."""
        return plan_for(self, template, tensors)

    def make(self, template: tuple[Any, ...], tensors: list[Tensor]) -> Callable[..., Any]:
        """A plan for a signature that was not met before."""
        op = self.op
        HOOKS.operator_name = op.name
        if _STATE.word & AUTOCAST:
            policy = policy_for(op.name, template, tensors)
            if policy is not None:
                return casting_plan(self, policy, template, tensors)
        if _STATE.word & OBSERVED:
            return observed_plan(self, template, tensors)
        if enabled("plan"):
            log("plan", f"{op.name}: new signature {[t._spec for t in tensors]} {template}")
        if op.kind == "view":
            plan, found = view_plan(op, template, tensors[0], self.shape_classes)
            self._recent = plan, found and view_casting(op, template, tensors[0]._spec, found)
            return plan
        device = common_device(self.name, tensors)
        specs = [t._spec for t in tensors]
        wrt = wanted(op, template, tensors) if _STATE.word & GRAD else []
        plan, refused = self._kept(template, specs, wrt, device)
        if plan is None:
            plan, refused = self._derived(template, specs, wrt, device)
        if refused is not None:
            return underivable(plan, op, refused, wrt, node_name(op, template, specs))
        return unordered(op, template, plan)

    def _kept(
        self, template: tuple[Any, ...], specs: Sequence[Spec], wrt: Sequence[int], device: Device
    ) -> tuple[Callable[..., Any] | None, str | None]:
        """The plan that an earlier process kept and why it has no derivative where one is wanted; (None, None) where
        there is none.
        """
        op = self.op
        key = call_key(op, template, specs, wrt, device)
        if key is None:
            return None, None
        numbers = sum(type(item) is Slot and item.kind not in ("tensor", "list") for item in template)
        found = kept_plans.kept_call(
            key, specs, numbers, device, (op, template, specs), GRAPH_CALLS,
            lambda *_: lowered_call(op, template, specs, wrt, device),
        )  # fmt: skip
        if found is None:
            return None, None
        if backend_of(device).symbolic and specs:
            sizes: list[int] = []
            head = abstracted(template, sizes) if "sized" in op.tags else template
            self.shape_classes.meet((head, _STATE.word, tuple(wrt)), specs, sizes)
        return found.plan, found.refused

    def _derived(
        self, template: tuple[Any, ...], specs: Sequence[Spec], wrt: Sequence[int], device: Device
    ) -> tuple[Callable[..., Any], str | None]:
        """The plan, cast from a template or derived in full, and why it has no derivative where one is wanted."""
        op = self.op
        key = call_key(op, template, specs, wrt, device)
        note = None if key is None else PlanNote(key)
        plan, lowered = (
            self._cast(template, specs, wrt, note)
            if backend_of(device).symbolic and (specs or "sized" in op.tags)
            else (None, None)
        )
        if plan is None:
            lowered = lowered_call(op, template, specs, wrt, device)
            plan = lowered.plan(device, (op, template, specs), None if lowered.warnings else note)
        assert lowered is not None
        return warning_plan(plan, lowered.warnings), lowered.refused

    def further(self, plan: Any) -> tuple[Callable[..., Any], bool] | None:
        """How calls are told to `cache_shape_class` for which this plan was made, where it was made last and is cast
        from a plan template; else None.
        """
        recent, found = self._recent
        return found if recent is plan else None

    def casting(
        self, template: tuple[Any, ...], tensors: Sequence[Tensor], places: Sequence[int], to: DType
    ) -> Callable[..., Any] | None:
        """The plan of a call of which the tensors at `places` are cast first, with the casts in its graph; None where
        one would have to be stored.

        It records nothing.
        """
        device, given = common_device(self.name, tensors), [t._spec for t in tensors]
        specs = [Spec.of(to, s.device, s.shape, s.strides) if i in places else s for i, s in enumerate(given)]
        lowered = lowered_call(self.op, template, specs, (), device)
        graph, builder = lowered.forward, GraphBuilder()
        values = [
            builder.input(v.shape, given[i].dtype if i in places else v.dtype, v.weak)
            for i, v in enumerate(graph.inputs)
        ]
        with builder:
            outputs = evaluate(graph, [build.convert(x, v.dtype) for x, v in zip(values, graph.inputs, strict=True)])
        lowered.forward, lowered.in_specs = builder.finish(outputs), [*given, *lowered.in_specs[len(given) :]]
        if (
            lowered.warnings
            or backend_of(device).shapes_only
            or step_count(lowered.forward, lowered.in_specs, lowered.specs) != 1
        ):
            return None
        return unordered(self.op, template, lowered.plan(device))

    def _cast(
        self, template: tuple[Any, ...], specs: Sequence[Spec], wrt: Sequence[int], note: PlanNote | None
    ) -> tuple[Callable[..., Any] | None, LoweredCall | None]:
        """The plan and its lowered call from a plan template; (None, None) where there is none."""
        op, sized, written = self.op, "sized" in self.op.tags, list[int]()
        device = specs[0].device if specs else as_device(None)
        head = abstracted(template, written) if sized else template

        def make(shape_env: ShapeEnv, symbolic_specs: list[Any]) -> PlanTemplate:
            given = symbolic(head, shape_env.symbols) if sized else template
            return PlanTemplate(lowered_call(op, given, symbolic_specs, wrt, device, SymbolicSpec.of), shape_env)

        def plan(
            plan_template: PlanTemplate, values: tuple[int, ...], sizes: Sequence[int], specs: Sequence[Spec]
        ) -> Callable[..., Any] | None:
            if plan_template.lowered.refused is not None:
                return None
            given = symbolic(head, sizes) if sized else template
            further = further_note(lambda: call_key(op, given, specs, wrt, device))
            return plan_template.plan(values, sizes, specs, (op, given, specs), further)

        found = self.shape_classes.find((head, _STATE.word, tuple(wrt)), specs, make, written)
        if found is None:
            return None, None
        lowered = found.plan_template.lowered
        made = found.plan_template.plan(*found[1:3], specs, (op, template, specs), None if lowered.warnings else note)
        # Else a size may come from elsewhere than the call
        if not sized or all(abstracted(a.default, []) == a.default for a in op.schema.arguments):
            # A refused plan, or one kept from being unordered, is another object than this one.
            self._recent = made, (lambda known: casting(found, specs, len(written), make, plan, known), sized)
        return made, lowered


def unordered(op: Operator, template: tuple[Any, ...], plan: Callable[..., Any]) -> Callable[..., Any]:
    """The plan, of an operator whose last argument says that places written twice add up, behind a check where they do
    not.
    """
    if "unordered" not in op.tags or template[-1] == Literal(True) or template[-1] is True:
        return plan
    return alerting(op.name + "_", plan)


# ***** the functions that users call *****


def make_unary(caller: Caller) -> Callable[..., Any]:
    """The method form of an operator whose only required argument is a tensor."""

    def check(args: Sequence[Any]) -> None:
        if args:
            _require_tensor(caller.name, args[0])

    return make_function(caller, check)


_PYTHON_METHODS = ("rsub", "matmul")  # PyTorch writes them in Python: they take any `self`, and give NotImplemented


def make_binary(caller: Caller) -> Callable[[Any, Any], Any]:
    """The operator form (`a + b`): two operands, tensor or number.

    A TypeError becomes NotImplemented, so that the other operand's own operator is asked: NumPy's arrays take part
    through theirs.
    """
    full = make_function(caller)
    converts = caller.name == "eq"  # as in PyTorch the one operator that takes arrays itself

    def missed(self: Any, other: Any) -> Any:
        if not isinstance(self, Tensor):
            return _no_tensor(caller.name, self, other, full)
        try:
            return called(self, from_numpy(other) if converts and is_array(other) else other)
        except TypeError:
            if type(other) is type(self):
                raise  # Python asks no reflected operator of the same class: the message says more than its own
            return NotImplemented

    def called(self: Tensor, other: Any) -> Any:
        if _STATE.word & NOTING_PLANS:
            return full(self, other)
        kind = type(other)
        number = kind is float or kind is int
        plain = type(self) in plain_classes and (kind in plain_classes or number) and not _STATE.word & FUNCTION_MODE
        if not plain or self._spec.dtype.is_complex:
            return full(self, other)
        plan, inputs = caller.prepare((self, other), {})
        operands = [a for a in (self, other) if any(a is b for b in inputs)]
        if len(operands) == len(inputs) and all(a is b for a, b in zip(operands, inputs, strict=True)):
            picks = [0, 1] if len(operands) == 2 else [0]
            cache_plan(method, (self, other), {}, plan, picks)
            further = caller.further(plan)
            if further is not None:
                cache_shape_class(method, (self, other), {}, picks, None, *further)
        return plan(*inputs)

    # A number of the former kind is part of a plan
    second = EITHER if caller.op.schema.arguments[1].name in caller.op.static else DYNAMIC
    method = make_dispatcher(missed, (DYNAMIC, second), (..., ...), ("self", "other"))
    method.__name__ = method.__qualname__ = caller.name
    method.__module__ = __name__
    method.operator = caller.op
    full.seen[0] = getattr(Tensor, caller.name, method)
    return method


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
    return _require_tensor(name, value)


def make_function(caller: Caller, check: Callable[..., None] | None = None) -> Any:
    """The general form: any arguments, positional or by name; `check(args)` may raise for them."""
    op = caller.op
    seen: list[Any] = []  # what overrides are shown: the function itself, or the method that it is a part of

    def slow(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        override = HOOKS.override
        if override is not None:
            handled, made = override(seen[0], args, kwargs)
            if handled:
                return made
        out = kwargs.pop("out", None) if op.out else None
        return caller.call(args, kwargs) if out is None else call_out(caller, args, kwargs, out)

    function = make_dispatch(op, caller.prepare, slow, caller.result, check, caller.further)
    function.__name__ = function.__qualname__ = caller.name
    function.__doc__ = op.doc
    function.__module__ = __name__
    function.operator = op
    seen.append(function)
    function.seen = seen
    return function
