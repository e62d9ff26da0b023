"""The in-place forms of operators: the result goes where the first argument is; checks, versions and history around
that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.errors import NotDifferentiableError, user_code
from rushlight._base.lazy import LazyModule
from rushlight._engine.autograd.node import next_sequence
from rushlight._engine.core.hooks import HOOKS, OPS, bump
from rushlight._engine.core.memory import own
from rushlight._engine.core.state import ANOMALY, GRAD, OBSERVED, SAVED_HOOKS, STATE, STREAMED, new_plan_table
from rushlight._engine.core.tensor import Tensor, alias, edge_of, make, meta_of
from rushlight._engine.dispatch.backward_spec import BackwardSpec
from rushlight._engine.dispatch.call import Caller, plan_for, unordered
from rushlight._engine.dispatch.executables import executable
from rushlight._engine.dispatch.graph_calls import GRAPH_CALLS
from rushlight._engine.dispatch.kept.plan_store import further_note, inplace_key, keep, packing
from rushlight._engine.dispatch.lower import Slot, differentiate, trace_operator
from rushlight._engine.dispatch.lowered_call import (
    bounds_of,
    common_device,
    node_name,
    on_one_device,
    operator_backward_spec,
)
from rushlight._engine.dispatch.out import OVERLAP, SELF_OVERLAP, for_target
from rushlight._engine.dispatch.plans.bind import bind, flatten
from rushlight._engine.dispatch.plans.native_lookup import make_dispatch
from rushlight._engine.dispatch.plans.native_plans import inplace_plan as native_inplace
from rushlight._engine.dispatch.plans.node_recording import watch
from rushlight._engine.dispatch.plans.plan import PlanShape, fitting, number_words
from rushlight._engine.dispatch.plans.plan_templates import KernelTemplate
from rushlight._engine.dispatch.plans.shape_classes import Found, ShapeClasses, SymbolicSpec, casting
from rushlight._engine.dispatch.underivable import underivable_inplace
from rushlight._engine.dispatch.watch import observed_plan
from rushlight._engine.indexing.inplace import (
    apart,
    check_captured,
    check_inference,
    check_writable,
    one_memory,
    overlaps_partly,
    rebase,
    share_memory,
)
from rushlight._graph.core import Graph, GraphBuilder, evaluate
from rushlight._prims import build
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.layout import overlaps_itself
from rushlight._types.promotion import can_cast
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec
from rushlight._types.symbols import SpecializationError

__all__ = ["InplaceCaller", "make_inplace"]

kept_plans: Any = LazyModule("rushlight._engine.dispatch.kept.kept_plans")  # with the first plan

_STATE = STATE
# Writing twice is writing once: expanded tensors are allowed
IDEMPOTENT = frozenset(("fill_", "zero_", "masked_fill_", "index_fill_", "index_put_core_"))


class InplaceCaller:
    """The in-place form of an operator: the result goes where its first argument is."""

    __slots__ = ("_recent", "caller", "shape_classes", "name", "op", "plans")

    def __init__(self, caller: Caller) -> None:
        self.caller, self.op, self.name = caller, caller.op, caller.name + "_"
        self.plans, self.shape_classes = new_plan_table(), ShapeClasses()
        self._recent: Any = (None, None)

    def prepare(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], list[Any]]:
        """The plan for these arguments and what to call it with."""
        values = bind(self.op, self.name, args, kwargs)
        if "in_target" in self.op.tags:
            values = for_target(self.op, self.name, values, values[0].dtype)
        template, tensors, numbers = flatten(self.op, values)
        tensors = on_one_device(tensors, written=1)
        return plan_for(self, template, tensors), [*tensors, *numbers]

    def make(self, template: tuple[Any, ...], tensors: list[Tensor]) -> Callable[..., Any]:
        """A plan for a signature that was not met before."""
        op, target = self.op, tensors[0]._spec
        if self._narrows(template, tensors):
            return self._narrowed(template, len(tensors))
        if _STATE.word & OBSERVED:
            return observed_plan(self, template, tensors)
        HOOKS.operator_name = self.name
        if self.name not in IDEMPOTENT and overlaps_itself(target.shape, target.strides):
            raise RuntimeError(SELF_OVERLAP)
        device = common_device(self.name, tensors)
        specs = [t._spec for t in tensors]
        wrt = [i for i, t in enumerate(tensors) if t._rg] if _STATE.word & GRAD else []
        wants = (
            bool(wrt) and "no_history" not in op.tags and (target.dtype.is_floating_point or target.dtype.is_complex)
        )
        key = inplace_key(op, template, specs, wrt if wants else (), device)
        kept = None if key is None else self._kept(key, template, specs, wrt if wants else (), device)
        if kept is not None:
            return kept
        found = self._cast(template, specs, wrt if wants else ()) if backend_of(device).symbolic else None
        if found is not None and key is not None:
            self._keep_cast(key, template, specs, wrt if wants else (), found)
        if found is not None:
            plan_template, values, sizes, _ = found
            if plan_template.backward is None:
                plan = self._cast_plain(template, plan_template, values, specs)
                self._note(plan, found, template, specs)
                return unordered(op, template, plan)
            exe, weak = plan_template.executable(values), plan_template.weak
            bounds = bounds_of(op, template, target.dtype)
            run = inplace_run(exe, len(specs), plan_template.specs(values), any(d.is_complex for d in weak))
            backward_spec = BackwardSpec(
                node_name(op, template, specs, inplace=True),
                plan_template.backward.at(sizes),
                wrt,
                [True],
                device,
                GRAPH_CALLS,
            )
            backward_spec.origin, backward_spec.record = (op, template, specs), key
            return self._recording(template, run, backward_spec, specs, bounds)
        try:
            graph = self._traced(template, specs)
        except (
            NotImplementedError
        ):  # as in PyTorch, whether the target may be changed comes before whether there is a kernel
            if wants:
                check_writable(tensors[0], True)
            raise
        backward_spec, refused = None, None
        if wants:
            try:
                backward_spec = operator_backward_spec(op, template, tensors, wrt, [True], inplace=True)
            except NotDifferentiableError as error:
                refused = str(error)
        forward = backward_spec.forward if backward_spec else graph
        bounds = bounds_of(op, template, target.dtype)
        run = inplace_runner(forward, specs, target)
        exe = getattr(run, "keep", None)
        if key is not None and refused is None:
            keep(key, lambda: self._packed(template, specs, wrt if wants else (), device))
            if backward_spec is not None:
                backward_spec.record = key
        if refused is None and backward_spec is None:
            return self._plain(template, run, exe, specs, len(graph.inputs) - len(specs), bounds)
        if backward_spec is not None:
            return self._recording(template, run, backward_spec, specs, bounds)
        assert refused is not None
        node = node_name(op, template, specs, inplace=True)
        plan = underivable_inplace(inplace_plan(run, None, wrt, len(specs), op.tags, self.name), op, refused, wrt, node)
        return fitting(unordered(op, template, plan), len(specs), target.dtype, bounds)

    # ***** results that are rounded to the dtype of their target *****

    def _narrows(self, template: tuple[Any, ...], tensors: list[Tensor]) -> bool:
        """Whether a call that is recorded computes in another dtype than that of its target."""
        target = tensors[0]._spec.dtype
        if not _STATE.word & GRAD or "no_history" in self.op.tags or not any(t._rg for t in tensors):
            return False
        if all(t._spec.dtype is target for t in tensors) or not (target.is_floating_point or target.is_complex):
            return False
        try:
            graph, _ = trace_operator(self.op, template, [t._spec for t in tensors])
        except (NotImplementedError, RuntimeError, TypeError, ValueError):  # the call that follows says what is wrong
            return False
        return graph.outputs[0].dtype is not target and can_cast(graph.outputs[0].dtype, target)

    def _narrowed(self, template: tuple[Any, ...], n: int) -> Callable[..., Any]:
        """The plan of such a call: the operator, and a copy into the target, each with its own derivative."""

        def plan(*args: Any) -> Tensor:
            check_writable(args[0], True)
            old = OPS["clone"](args[0])  # what the derivative reads of the target is its old value
            made = plan_for(self.caller, template, [old, *args[1:n]])(old, *args[1:])
            check_inplace_result(made._spec, args[0]._spec)
            return OPS["copy_"](args[0], made)

        return plan

    # ***** what is kept on disk *****

    def _shape(self, template: tuple[Any, ...], specs: Sequence[Spec], wrt: Sequence[int]) -> PlanShape:
        """The plan's shape: all of a call's record but its program and derivative."""
        in_complex = any(type(item) is Slot and item.kind == "complex" for item in template)
        name = node_name(self.op, template, specs, inplace=True) if wrt else ""
        return PlanShape(name, 1, in_complex, wrt, [True] if wrt else [])

    def _kept(
        self, key: bytes, template: tuple[Any, ...], specs: Sequence[Spec], wrt: Sequence[int], device: Device
    ) -> Callable[..., Any] | None:
        """The plan that an earlier process kept, None where there is none."""
        numbers = sum(type(item) is Slot and item.kind not in ("tensor", "list") for item in template)

        def derive(*_: Any) -> bytes | None:
            return self._packed(template, specs, wrt, device)

        found = kept_plans.kept_inplace(key, specs, numbers, device, derive)
        if found is None or (found[0].backward is None) != (not wrt):
            return None
        record, exe = found
        bounds = bounds_of(self.op, template, specs[0].dtype)
        run = inplace_run(exe, len(specs), record.specs[1:], record.in_complex)
        if record.backward is None:
            return self._plain(template, run, exe, specs, numbers, bounds)
        record.backward.derive = lambda: differentiate(self.op, template, specs, wrt, [True])
        backward_spec = BackwardSpec(record.name, record.backward, record.wrt, [True], device, GRAPH_CALLS)
        backward_spec.origin, backward_spec.record = (self.op, template, specs), key
        return self._recording(template, run, backward_spec, specs, bounds)

    def _keep_cast(
        self, key: bytes, template: tuple[Any, ...], specs: Sequence[Spec], wrt: Sequence[int], found: Found
    ) -> None:
        """Keep what is cast from a plan template."""
        plan_template, values, sizes, _ = found
        backward = None if plan_template.backward is None else plan_template.backward.at(sizes)
        shape, made = self._shape(template, specs, wrt), [specs[0], *plan_template.specs(values)]
        keep(key, lambda: packing.packed_plan(shape, made, plan_template.packed(sizes), backward))

    def _packed(
        self, template: tuple[Any, ...], specs: Sequence[Spec], wrt: Sequence[int], device: Device
    ) -> bytes | None:
        """The record of a call, derived in full."""
        backward = differentiate(self.op, template, specs, wrt, [True]) if wrt else None
        whole = written(self._traced(template, specs) if backward is None else backward.forward, specs[0].dtype)
        if whole is None or backend_of(device).shapes_only:
            return None
        made = [specs[0], *[Spec.of(v.dtype, device, v.shape) for v in whole.outputs[1:]]]
        exe = executable(whole, [*specs, *[None] * (len(whole.inputs) - len(specs))], made, aliases={0: 0})
        shape = self._shape(template, specs, wrt)
        data: bytes | None = packing.packed_plan(shape, made, packing.packed_program(exe, device), backward)
        return data

    def _cast_plain(
        self, template: tuple[Any, ...], plan_template: KernelTemplate, values: tuple[int, ...], specs: Sequence[Spec]
    ) -> Callable[..., Any]:
        """The plan of a call that records nothing, for one set of sizes, without what `unordered` asks."""
        weak, target = plan_template.weak, specs[0]
        bounds = bounds_of(self.op, template, target.dtype)

        def make(exe: Any) -> Callable[..., Any]:
            run = inplace_run(exe, len(specs), (), any(d.is_complex for d in weak))
            return fitting(
                inplace_plan(run, None, (), len(specs), self.op.tags, self.name), len(specs), target.dtype, bounds
            )

        def around(exe: Any, plan: Callable[..., Any]) -> Callable[..., Any]:
            return plan if any(d.is_complex for d in weak) else self._native(exe, plan, specs, len(weak), bounds)

        return plan_template.inplace(values, target, make, around)

    def _note(self, plan: Callable[..., Any], found: Found, template: tuple[Any, ...], specs: Sequence[Spec]) -> None:
        """Remember how plans for other sizes are made (see `further`)."""
        checked = self.name not in IDEMPOTENT

        def cast(
            plan_template: KernelTemplate, values: tuple[int, ...], sizes: Sequence[int], specs: Sequence[Spec]
        ) -> Callable[..., Any] | None:
            if checked and overlaps_itself(specs[0].shape, specs[0].strides):
                return None
            note = further_note(lambda: inplace_key(self.op, template, specs, (), specs[0].device))
            if note is not None:
                self._keep_cast(note.key, template, specs, (), Found(plan_template, values, sizes, found.shape_class))
            return self._cast_plain(template, plan_template, values, specs)

        self._recent = plan, (lambda known: casting(found, specs, 0, self._maker(template, ()), cast, known), False)

    def further(self, plan: Any) -> tuple[Callable[..., Any], bool] | None:
        """How calls are told to `cache_shape_class` for which this plan was made, where it was made last and is cast
        from a plan template; else None.
        """
        recent, found = self._recent
        return found if recent is plan else None

    def _native(
        self, exe: Any, plan: Callable[..., Any], specs: Sequence[Spec], numbers: int, bounds: Any
    ) -> Callable[..., Any]:
        """The native plan around an executable, or `plan` where that cannot be."""
        alone = "alone" in self.op.tags
        return backend_of(specs[0].device).bind(
            exe, plan, lambda: native_inplace(exe, plan, [*specs, *[None] * numbers], bounds, alone)
        )

    def _recording(
        self,
        template: tuple[Any, ...],
        run: Callable[..., Any],
        backward_spec: BackwardSpec,
        specs: Sequence[Spec],
        bounds: Any,
    ) -> Callable[..., Any]:
        """The plan of a call that records a node, around what runs it."""
        plan = inplace_plan(run, backward_spec, backward_spec.wrt, len(specs), self.op.tags, self.name)
        return fitting(unordered(self.op, template, plan), len(specs), specs[0].dtype, bounds)

    def _traced(self, template: tuple[Any, ...], specs: Sequence[Any]) -> Graph:
        """The graph of a call, whose result fits its target."""
        graph, _ = trace_operator(self.op, template, specs)
        target = specs[0]
        if target.dtype.is_complex and graph.outputs[0].dtype.is_floating_point:
            raise RuntimeError(f"In-place {self.op.name} is not supported for complex tensors.")
        if "same_dtype_in_place" in self.op.tags and graph.outputs[0].dtype is not target.dtype:
            raise RuntimeError(
                f"the base given to {self.name} has dtype {target.dtype.scalar} but the operation's result requires dtype "
                f"{graph.outputs[0].dtype.scalar}"
            )
        check_inplace_result(graph.outputs[0], target)
        return graph

    def _plain(
        self,
        template: tuple[Any, ...],
        run: Callable[..., Any],
        exe: Any,
        specs: Sequence[Spec],
        numbers: int,
        bounds: Any,
    ) -> Callable[..., Any]:
        """The plan of a call that records nothing, around what runs it (and, where that is all it does, its
        executable).
        """
        plan = inplace_plan(run, None, (), len(specs), self.op.tags, self.name)
        plan = fitting(plan, len(specs), specs[0].dtype, bounds)
        if exe is not None and hasattr(run, "keep"):
            plan = self._native(exe, plan, specs, numbers, bounds)
        return unordered(self.op, template, plan)

    def _cast(self, template: tuple[Any, ...], specs: Sequence[Spec], wrt: Sequence[int]) -> Found | None:
        """The plan template, with a backward for the tensors numbered `wrt`, or None where there is none."""
        return self.shape_classes.find((template, _STATE.word, tuple(wrt)), specs, self._maker(template, wrt))

    def _maker(self, template: tuple[Any, ...], wrt: Sequence[int]) -> Callable[[ShapeEnv, list[Any]], KernelTemplate]:
        """A function that makes plan templates of a call."""

        def make(shape_env: ShapeEnv, symbolic_specs: list[Any]) -> KernelTemplate:
            graph, backward = self._traced(template, symbolic_specs), None
            if wrt:
                try:
                    backward = differentiate(self.op, template, symbolic_specs, wrt, [True])
                except NotDifferentiableError as error:
                    raise SpecializationError(str(error)) from None
                graph = backward.forward
            whole = written(graph, symbolic_specs[0].dtype)
            if whole is None:
                raise SpecializationError("nothing changes")
            rest = [SymbolicSpec.of(v.dtype, symbolic_specs[0].device, v.shape) for v in whole.outputs[1:]]
            given = [*symbolic_specs, *[None] * (len(whole.inputs) - len(symbolic_specs))]
            return KernelTemplate(whole, given, [symbolic_specs[0], *rest], shape_env, backward, aliases={0: 0})

        return make


def check_inplace_result(value: Any, target: Spec) -> None:
    """RuntimeError where a result does not fit the tensor it must go into."""
    if value.shape != target.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}"
        )
    if not can_cast(value.dtype, target.dtype):
        raise RuntimeError(
            f"result type {value.dtype.scalar} can't be cast to the desired output type {target.dtype.scalar}"
        )


def written(graph: Graph, dtype: DType) -> Graph | None:
    """The graph with its first result in `dtype`, that of its first input, to whose place it goes; None where nothing
    changes there.
    """
    builder = GraphBuilder()
    inputs = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]
    with builder:
        outputs = evaluate(graph, inputs)
        outputs[0] = build.convert(outputs[0], dtype)
    return None if outputs[0] is inputs[0] and len(outputs) == 1 else builder.finish(outputs)


def inplace_runner(graph: Graph, specs: Sequence[Spec], target: Spec) -> Callable[..., tuple[Tensor, ...]]:
    """Runs the graph with its first result written into the first tensor; returns the residuals."""
    whole = written(graph, target.dtype)
    if backend_of(target.device).shapes_only or whole is None:
        return lambda *_: ()
    rest = [Spec.of(v.dtype, target.device, v.shape) for v in whole.outputs[1:]]
    n = len(specs)
    exe = executable(whole, [*specs, *[None] * (len(whole.inputs) - n)], [target, *rest], aliases={0: 0})
    return inplace_run(exe, n, rest, any(v.weak and v.dtype.is_complex for v in whole.inputs[n:]))


def inplace_run(exe: Any, n: int, rest: Sequence[Spec], in_complex: bool) -> Callable[..., tuple[Tensor, ...]]:
    """Calls an executable for its effect, with n tensors and some numbers; it gives the residuals, with specs `rest`."""

    def run(*args: Any) -> tuple[Tensor, ...]:
        exe(*[t._ptr for t in args[:n]], *(number_words(list(args[n:])) if in_complex else args[n:]))
        return ()

    def run_rest(*args: Any) -> tuple[Tensor, ...]:
        made = exe(*[t._ptr for t in args[:n]], *number_words(list(args[n:])))
        storages = made if isinstance(made, tuple) else (made,)
        return tuple([make(s, spec, s.ptr) for s, spec in zip(storages, rest, strict=True)])

    if rest:
        return run_rest
    if not in_complex:
        run.keep = exe  # type: ignore[attr-defined]
    return run


def inplace_plan(
    run: Callable[..., tuple[Tensor, ...]],
    backward_spec: BackwardSpec | None,
    wrt: Sequence[int],
    n: int,
    tags: Sequence[str],
    name: str,
) -> Callable[..., Any]:
    """The plan around a runner: checks, versions, history.

    Of an operator tagged "alone" no operand may lie where the target is, but for a 0-dim one that stands for a number
    ("fits"); one tagged "no_history" may change a leaf.
    """
    wants, alone, free, number = backward_spec is not None, "alone" in tags, "no_history" in tags, "fits" in tags

    def separate(args: Sequence[Any]) -> Sequence[Any]:
        """Copies of operands that overlap the target in another layout."""
        x = args[0]
        for i in range(1, n):
            other = args[i]
            if (
                alone
                and one_memory(other, x)
                and (other is x or other._ptr == x._ptr and other._spec is x._spec and x._spec.numel)
            ):
                raise RuntimeError(OVERLAP)
            if one_memory(other, x) and (other._ptr != x._ptr or other._spec is not x._spec) and share_memory(other, x):
                if overlaps_partly(x, other) and not (number and not other._spec.ndim):
                    raise RuntimeError(OVERLAP)
                args = (*args[:i], apart(other), *args[i + 1 :])
        return args

    def plan(*args: Any) -> Tensor:
        x: Tensor = args[0]
        if HOOKS.lazy_clones:
            own(x)
        check_captured(x, name)
        if free:
            check_inference(x)
        elif wants or x._autograd_meta is not None or x._rg:
            check_writable(x, wants)
        if n > 1:
            args = separate(args)
        if backward_spec is not None:
            return _recorded(run, backward_spec, wrt, args)
        run(*args)
        if x._storage is not None:
            bump(x._storage)
        return x

    return plan


def _recorded(run: Callable[..., Any], backward_spec: BackwardSpec, wrt: Sequence[int], args: Sequence[Any]) -> Tensor:
    x: Tensor = args[0]
    needs_old = ("input", 0) in backward_spec.sources
    old: Any = None
    if needs_old:
        old = _copy_of(x)
    edges = [edge_of(args[i]) for i in wrt]
    before = [a._storage.stamp if isinstance(a, Tensor) and a._storage is not None else 0 for a in args]
    residuals = run(*args)
    if x._storage is not None:
        bump(x._storage)
    node = backward_spec.cls.__new__(backward_spec.cls)
    node.info, node._edges, node._seq = backward_spec, edges, next_sequence()
    node._extra = None
    saved: list[Any] = []
    versions: list[Any] = []
    for kind, number in backward_spec.sources:
        item: Any
        if kind == "input":
            item = old if number == 0 else args[number]
        else:
            item = alias(x) if kind == "output" else residuals[number]
        saved.append(item)
        if not isinstance(item, Tensor):
            versions.append(None)
        elif kind == "input" and number:
            # An operand that is the target itself, or a view of it, has been overwritten by now
            versions.append(before[number])
        else:
            versions.append(item._storage.stamp if item._storage is not None else 0)
    node.saved, node.versions = saved, versions
    node.where = user_code()
    if _STATE.word & (ANOMALY | SAVED_HOOKS | STREAMED):
        watch(node)
    rebase(x, node, list(wrt).index(0) if 0 in wrt else None)
    return x


def _copy_of(x: Tensor) -> Tensor:
    """The old values of `x`, in the graph where `x` was."""
    before = _STATE.word
    _STATE.word = before & ~GRAD
    try:
        copy: Tensor = OPS["clone"](alias(x))
    finally:
        _STATE.word = before
    copy._rg, copy._node, copy._autograd_meta = x._rg, x._node, None
    if x._autograd_meta is not None and x._autograd_meta.output_nr:
        meta_of(copy).output_nr = x._autograd_meta.output_nr
    return copy


def make_inplace(caller: InplaceCaller, shown: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The in-place method or function; or Python's operator (`x += y`) of the method `shown`, which is what overrides
    are shown.
    """

    def slow(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        override = HOOKS.override
        if override is not None:
            handled, made = override(shown or method, args, kwargs)
            if handled:
                return made
        plan, inputs = caller.prepare(args, kwargs)
        return plan(*inputs)

    method = make_dispatch(caller.op, caller.prepare, slow, None, further=caller.further, declines=shown is not None)
    method.__name__ = method.__qualname__ = caller.name
    method.__doc__ = f"In-place form of `{caller.op.name}`: writes into and returns its first argument."
    method.__module__ = __name__
    method.operator = caller.op
    return method
