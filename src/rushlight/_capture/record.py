"""Recording: a callable is run once on traced tensors, and what it does becomes a program.

>>> import rushlight as torch
>>> from rushlight._capture import program_caller, record_program
>>> def step(weight, total):
...     total.add_(weight.sum())
...     return weight * torch.rand(2)
>>> recorded = record_program(step, torch.ones(2), torch.zeros(()))
>>> print(recorded)
def graph(x0: "float32[2]", x1: "memory float32[]", x2: "stream uint8[5056]"):
    v0 = prim.read(x1)  # float32[]
    v1 = prim.sum(x0, dims=(0,))  # float32[]
    v2 = prim.add(v0, v1)  # float32[]
    v3 = prim.write(x1, v2, views=())  # memory float32[]
    v4, v5 = prim.draw_uniform(x2, shape=(2,), dtype=FLOAT32, low=0.0, high=1.0)  # stream uint8[5056], float32[2]
    v6 = prim.mul(x0, v5)  # float32[2]
    return (v6, v3, v4)
>>> total = torch.zeros(())
>>> _ = program_caller(recorded)(torch.ones(2), total)
>>> total
tensor(2.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from rushlight._base.pytree import tree_flatten, tree_map
from rushlight._capture import draws  # noqa: F401  random functions are recorded from then on
from rushlight._capture.traced import Recording, TracedTensor, TraceError
from rushlight._engine.core.tensor import Tensor
from rushlight._graph.printer import to_source
from rushlight._graph.program import Program
from rushlight._types.spec import Spec

__all__ = ["RecordedProgram", "record_program"]


class RecordedProgram:
    """A program, and how the arguments and the result of the callable correspond to its inputs and results.

    `specs` are those of the arguments that are tensors, `result` is what the callable returned with the number of a
    result of the program in the place of each tensor (`Place`), `kept` has for each result its spec and whether it
    wants a gradient.  `written` tells of each input of the graph that is written whether it wants a gradient
    afterwards.  A program is not `differentiable` if a tensor that wants a gradient is written without one, as by an
    optimizer, and read again for a result that wants one.
    """

    __slots__ = ("differentiable", "kept", "name", "program", "result", "specs", "written")

    def __init__(
        self, name: str, program: Program, specs: list[Spec], result: Any, kept: list[tuple[Spec, bool]], written: dict[int, bool],
        differentiable: bool,
    ) -> None:  # fmt: skip
        self.name, self.program, self.specs, self.result, self.kept = name, program, specs, result, kept
        self.written, self.differentiable = written, differentiable

    def __repr__(self) -> str:
        return to_source(self.program.graph)


class Place:
    """Stands in what a callable returned for the result of this number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"Place({self.number})"


def tensors_of(args: Any) -> list[Tensor]:
    """The different tensors among the leaves of nested arguments, in order."""
    leaves, _ = tree_flatten(args)
    found: dict[int, Tensor] = {id(x): x for x in leaves if isinstance(x, Tensor)}
    return list(found.values())


def record_program(
    function: Callable[..., Any], *args: Any, state: Any = (), run: Callable[..., Any] | None = None, **kwargs: Any
) -> RecordedProgram:
    """What `function(*args, **kwargs)` does, for arguments of these shapes and dtypes.  Nothing is computed and nothing
    changes.

    Tensors among nested arguments are arguments of the program.  `function` may be a module, or a method of one; its
    parameters and buffers, and those of the modules and optimizers in `state`, belong to the program, which reads and
    changes them when it runs.  So does every other tensor that the function reads; changing one raises a RuntimeError.
    Everything else is part of the program as it is now.  `run(function, args, kwargs)` may say how the function is run.

    TraceError where the function asks for elements of a tensor; NotImplementedError for what cannot be recorded yet.
    """
    owners = {id(owner): owner for owner in (*state, function, getattr(function, "__self__", None))}
    rec = Recording()
    with rec, contextlib.ExitStack() as stack:
        given = tensors_of((args, kwargs))
        known: dict[int, TracedTensor] = {}
        for x in given:
            _check(x)
            known[id(x)] = rec.traced(rec.builder.argument(x._spec.shape, x._spec.dtype), x._spec, (), x.requires_grad)

        def traced(x: Any) -> Any:
            if not isinstance(x, Tensor) or isinstance(x, TracedTensor):
                return x
            if id(x) not in known:
                _check(x)
                rec.held.append(x)
                cell = rec.builder.constant(x, x._spec.shape, x._spec.dtype)
                known[id(x)] = rec.traced(cell, x._spec, (), x.requires_grad)
                if x.is_leaf and x.grad is not None:
                    known[id(x)].__dict__["held_grad"] = traced(x.grad)
            return known[id(x)]

        for owner in owners.values():
            stack.enter_context(_swapped(owner, traced))
        args, kwargs = tree_map(traced, args), tree_map(traced, kwargs)
        made = function(*args, **kwargs) if run is None else run(function, args, kwargs)
        return _finished(rec, function, given, made)


def _check(x: Tensor) -> None:
    if x._storage is None or type(x).__module__.split(".")[-1] == "traced":
        raise TraceError(f"a program is recorded with plain tensors, got {type(x).__name__} on {x.device}")


@contextlib.contextmanager
def _swapped(owner: Any, traced: Callable[[Any], Any]) -> Iterator[None]:
    """A module or an optimizer whose tensors are traced meanwhile."""
    held: list[tuple[Any, dict[Any, Any]]] = []
    if hasattr(owner, "named_modules"):
        for _, module in owner.named_modules():
            for table in (module._parameters, module._buffers):
                held.append((table, dict(table)))
                table.update({name: traced(x) for name, x in table.items()})
    elif hasattr(owner, "param_groups"):
        for group in owner.param_groups:
            held.append((group, dict(group)))
            group["params"] = [traced(x) for x in group["params"]]
        held.append((owner.state, dict(owner.state)))
        inner = {traced(x): {k: traced(v) for k, v in each.items()} for x, each in owner.state.items()}
        owner.state.clear()
        owner.state.update(inner)
    try:
        yield
        if hasattr(owner, "param_groups") and len(owner.state) > len(held[-1][1]):
            raise TraceError("the optimizer makes its state in this step: record a later one")
    finally:
        for table, before in held:
            table.clear()
            table.update(before)


def _finished(rec: Recording, function: Any, given: list[Tensor], made: Any) -> RecordedProgram:
    kept: list[tuple[Spec, bool]] = []

    def place(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if isinstance(x, TracedTensor):
            rec.builder.output(x.cell, x.views)
            kept.append((x._spec, x.wants))
            if x.wants and x.cell in rec.overwritten:
                rec.differentiable = False
        else:
            rec.builder.output(rec.constant(x))
            kept.append((x._spec, x.requires_grad))
        return Place(len(kept) - 1)

    result = tree_map(place, made)
    program = rec.builder.program()
    name = getattr(function, "__name__", type(function).__name__)
    written = {number: rec.wanted.get(number, False) for number in range(len(program.inputs))}
    return RecordedProgram(name, program, [x._spec for x in given], result, kept, written, rec.differentiable)
