"""The frame of optimizers that change each element by itself.

What happens to an element is written once, as a *rule*: `_rule(t, x, n)` on arrays `x` and numbers `n` with operators
`t`. From it come the kernel that changes all parameters at once, and the tensor operations that serve what the kernel
does not take (other dtypes, layouts with gaps) and what a differentiable step records.

>>> import rushlight as torch
>>> from rushlight.optim.elementwise import ElementwiseOptimizer
>>> class SignDescent(ElementwiseOptimizer):
...     @classmethod
...     def _numbers(cls, group, kept, step, fresh):
...         return {"lr": group["lr"]}
...     @staticmethod
...     def _rule(t, x, n):
...         x.param = x.param - t.sign(x.grad) * n.lr
>>> weight = torch.tensor([1.0, -1.0, 0.0], requires_grad=True)
>>> optimizer = SignDescent([weight], {"lr": 0.25, "maximize": False})
>>> (weight * weight).sum().backward()
>>> optimizer.step()
>>> weight.detach()
tensor([ 0.7500, -0.7500,  0.0000])
"""

from __future__ import annotations

from typing import Any, TypeAlias

import rushlight
from rushlight import Tensor
from rushlight import dtype as DType
from rushlight._interface.multi_tensor import (
    Rule,
    count_steps,
    flat_dtype,
    is_counter,
    moved,
    on_device,
    rule_of,
    update_elements,
    update_recorded,
)
from rushlight.nn.parameter import Parameter
from rushlight.optim.optimizer import (
    SCALING,
    Optimizer,
    check_captured,
    check_implementation,
    check_param,
    check_steps,
    fused_options,
    hyper,
    number,
    run_closure,
    scaling_of,
    step_dtype,
)

__all__ = [
    "Change",
    "ElementwiseOptimizer",
    "check_betas",
    "check_rate",
    "moved",
    "moved_by_product",
    "moved_by_ratio",
    "takes_lists",
]


def check_rate(lr: Any, **others: float) -> None:
    """Raise `ValueError` for a learning rate, or other values by their names in the message, below zero."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    rate = lr.item() if isinstance(lr, Tensor) else lr
    if not 0.0 <= rate:
        raise ValueError(f"Invalid learning rate: {lr}")
    for name, value in others.items():
        if not 0.0 <= value:
            raise ValueError(f"Invalid {'epsilon' if name == 'eps' else name} value: {value}")


def check_betas(betas: tuple[Any, Any]) -> None:
    """Raise `ValueError` for coefficients of running averages outside of [0, 1)."""
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


# ***** what rules are made of; a number may be a tensor, by which a differentiable step is differentiated *****


def moved_by_product(t: Any, start: Any, a: Any, b: Any, factor: Any) -> Any:
    """start + factor * a * b"""
    return start + a * b * factor if Rule.is_array(factor) else t.addcmul(start, a, b, value=factor)


def moved_by_ratio(t: Any, start: Any, over: Any, under: Any, factor: Any) -> Any:
    """start + factor * over / under"""
    return (
        t.addcdiv(start, over * factor, under, value=1)
        if Rule.is_array(factor)
        else t.addcdiv(start, over, under, value=factor)
    )


def takes_lists(group: dict[str, Any]) -> bool:
    """Whether a group asks for PyTorch's form for lists of tensors (`foreach=True`), where that does its operations in
    another order.
    """
    return bool(group.get("foreach")) and not group.get("differentiable")


# ***** the frame *****


def _count(steps: Any, group: dict[str, Any]) -> Any:
    """Count a step, unless a device knows that it is skipped; gives the counts, for fused steps in the host's precision."""
    found = group.get("found_inf")
    steps += 1 if found is None else found == 0
    return steps.double() if group.get("fused") else steps


# What a step does to one parameter: parameter, gradient, what is kept for it, and whether nothing was kept before.
Change: TypeAlias = tuple[Any, Any, dict[str, Any], bool]


_PLAIN = (Tensor, Parameter)  # most kinds: these have nothing to look for


def _elements(tensors: list[Any]) -> Any:
    """The plain tensors that hold the elements of some, where the kind of the first says which; else the tensors."""
    kind = type(tensors[0])
    return kind._elements(tensors) if kind not in _PLAIN and hasattr(kind, "_elements") else tensors


class ElementwiseOptimizer(Optimizer):
    """A subclass names its state tensors (`_state`, made of zeros like the parameter) and counters, and defines
    `_numbers` and `_rule`.
    """

    _state: tuple[str, ...] = ()
    _counters: tuple[str, ...] = ("step",)
    # Whether weight decay joins complex gradients as they are, before they are seen as pairs of real numbers: PyTorch
    # then rounds its product apart.
    _decays_complex = False

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        check_implementation(self, defaults)
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = dict(state.get("defaults") or self.defaults)
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in options.items():
                group.setdefault(name, value)
        for kept in self.state.values():
            if kept and self._counters and not isinstance(kept["step"], Tensor):  # old files count in Python numbers
                kept["step"] = rushlight.tensor(float(kept["step"]), dtype=step_dtype())

    @classmethod
    def _states(cls, group: dict[str, Any]) -> tuple[str, ...]:
        """The state tensors that the options of a group ask for."""
        return cls._state

    @classmethod
    def _begin(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        if cls._counters:
            place = {"device": param.device} if group.get("capturable") else {}
            for name in cls._counters:
                kept[name] = rushlight.tensor(cls._start(name, group), dtype=step_dtype(group), **place)
        for name in cls._states(group):
            kept[name] = rushlight.zeros_like(param)

    @classmethod
    def _start(cls, counter: str, group: dict[str, Any]) -> float:
        """Where a counter starts."""
        return 0.0

    @classmethod
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        """The numbers of the rule by their names; those that are None take no part in it.

        `step` counts from 1; it is a tensor for steps that a graph captures, whose numbers are computed on the device,
        and so are these. `fresh`: nothing was kept for this parameter before. Counters in `kept` are moved on here.
        """
        raise NotImplementedError

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        """Give `x.param`, and the states, their new values; `x.grad` includes the penalty of weight decay."""
        raise NotImplementedError

    @classmethod
    def _rule_and_numbers(
        cls,
        group: dict[str, Any],
        kept: dict[str, Any],
        step: Any,
        fresh: bool,
        states: tuple[str, ...],
        is_complex: bool,
    ) -> tuple[Rule, tuple[Any, ...]]:
        with rushlight.set_grad_enabled(bool(group.get("differentiable"))):
            given = {**cls._decay(group, is_complex), **cls._numbers(group, kept, step, fresh)}
        given |= {name: group.get(name) for name in SCALING}
        if group.get("capturable"):
            given = {
                name: value if isinstance(value, Tensor) and on_device(value) else number(value)
                for name, value in given.items()
            }
        elif not group.get("differentiable"):
            given = {name: number(value) for name, value in given.items()}
        numbers = {name: value for name, value in given.items() if value is not None}
        assert callable(cls._rule)  # read here, so that who traces a step guards it
        rule = rule_of(cls, bool(group["maximize"]), ("param", "grad", *states), tuple(numbers))
        return rule, tuple(numbers.values())

    @classmethod
    def _decay(cls, group: dict[str, Any], is_complex: bool) -> dict[str, Any]:
        """The numbers of weight decay: one factor of the parameter, or its share of the gradient."""
        weight_decay = hyper(group, "weight_decay") if "weight_decay" in group else 0
        if not (isinstance(weight_decay, Tensor) and weight_decay.requires_grad) and weight_decay == 0:
            return {}
        if group.get("decoupled_weight_decay"):
            return {"shrink": 1 - hyper(group, "lr") * weight_decay}
        apart = is_complex and cls._decays_complex and not takes_lists(group)
        return {"penalty_apart" if apart else "penalty": weight_decay}

    def step(self, closure: Any = None) -> Any:
        """Change every parameter that has a gradient; returns the value of `closure`."""
        loss = run_closure(closure)
        scaling = scaling_of(self)
        for group in self.param_groups:
            remembers = self._counters or self._states(group)
            triples = [
                (param, grad, self.state[param] if remembers else {})
                for param in group["params"]
                if (grad := param.grad) is not None
            ]
            if group.get("differentiable"):  # the tensors of the last step belong to its graph
                for _, _, kept in triples:
                    kept.update(
                        {
                            name: value.clone()
                            for name, value in kept.items()
                            if name != "step" and isinstance(value, Tensor)
                        }
                    )
            self._update(triples, {**group, **scaling} if scaling else group)
        return loss

    @classmethod
    def _update(cls, triples: list[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any]) -> None:
        """Change parameters by their gradients, each with the state that is kept for it."""
        if triples and cls._counters:
            check_captured(cls.__name__, triples[0][0], group)
        if not group.get("fused"):
            if any(group.get(name) is not None for name in SCALING):
                raise AssertionError("Expected grad_scale and found_inf to be None")
            cls._update_alike(triples, group)
            return
        for device in dict.fromkeys(param.device for param, _, _ in triples):
            there = [triple for triple in triples if triple[0].device == device]
            options = fused_options(there[0][0], [grad for _, grad, _ in there], group)
            if options is not None:
                cls._update_alike(there, options)

    @classmethod
    def _update_alike(cls, triples: list[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any]) -> None:
        """Change parameters by the options of their group, of one device if they are fused."""
        differentiable, capturable = bool(group.get("differentiable")), bool(group.get("capturable"))
        keeps = bool(cls._counters or cls._states(group))
        held = [*zip(*triples, strict=True)][2] if keeps and triples else ()
        if not all(held):
            with rushlight.no_grad():
                changes = cls._changes(triples, group, keeps)
        else:
            changes = cls._changes(triples, group, keeps)
        if not differentiable:
            if Rule.is_recorded():
                changes = cls._update_recorded(changes, group)
            else:
                changes = (cls._update_counted_there if capturable else cls._update_together)(changes, group)
        if changes:
            known: dict[tuple[bool, bool], tuple[Rule, tuple[Any, ...]]] = {}
            with rushlight.set_grad_enabled(differentiable):
                for change in changes:
                    cls._update_one(change, group, known)

    @classmethod
    def _changes(
        cls, triples: list[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any], keeps: bool
    ) -> list[Change]:
        """Updates of a step to parameters with dense gradients; those with sparse ones are changed.  With `keeps`, what is
        kept for a parameter begins here.
        """
        differentiable = bool(group.get("differentiable"))
        refuses = differentiable or group.get("capturable") or group.get("fused")
        changes: list[Change] = []
        for param, grad, kept in triples:
            if grad.is_sparse:
                with rushlight.set_grad_enabled(differentiable):
                    cls._update_sparse(param, grad, kept, group)
                continue
            fresh = not kept
            if fresh:
                if refuses:
                    check_param(param, group)
                if keeps:
                    cls._begin(param, grad, kept, group)
            changes.append((param, grad, kept, fresh))
        return changes

    @classmethod
    def _update_recorded(cls, changes: list[Change], group: dict[str, Any]) -> list[Change]:
        """While a program is recorded: change parameters whose steps nobody counts, all that share numbers at once; gives
        back the others.
        """
        if cls._counters:
            return changes
        states = cls._states(group)
        rest: list[Change] = []
        kinds = set([*zip(*changes, strict=True)][3]) if changes else set()
        for first in (True, False):
            if first not in kinds:
                continue
            alike = changes if len(kinds) == 1 else [change for change in changes if change[3] is first]
            rule, numbers = cls._rule_and_numbers(group, alike[0][2], 0.0, first, states, False)
            # A trace follows what is done for each parameter instruction by instruction, so native calls do most of it.
            params, grads, held, _ = zip(*alike, strict=True)
            columns = [[kept[name] for kept in held] for name in states]
            rows = [*map(list, zip(params, grads, *columns, strict=True))]
            taken = rule.record_rows(rows, numbers, _PLAIN)
            if not all(taken):
                rest += [change for change, is_taken in zip(alike, taken, strict=True) if not is_taken]
        return rest

    @classmethod
    def _update_together(cls, changes: list[Change], group: dict[str, Any]) -> list[Change]:
        """Change parameters by one kernel for all of a kind; gives back those that it does not take."""
        states, counts = cls._states(group), bool(cls._counters)
        rest: list[Change] = []
        taken: list[tuple[DType, list[Any], dict[str, Any], bool]] = []
        for change in changes:
            param, grad, kept, fresh = change
            tensors = [param, grad, *[kept[name] for name in states]] if states else [param, grad]
            dtype = flat_dtype(tensors)
            if dtype is None:
                tensors = _elements(tensors)
                dtype = flat_dtype(tensors)
            if dtype is not None and (not counts or is_counter(kept["step"])):
                taken.append((dtype, tensors, kept, fresh))
            else:
                rest.append(change)
        if not taken:
            return rest
        steps = count_steps([kept["step"] for _, _, kept, _ in taken]) if cls._counters else [0.0] * len(taken)
        known: dict[tuple[float, bool, bool], tuple[Rule, tuple[float, ...]]] = {}
        kinds: dict[tuple[Rule, DType, Any], tuple[list[list[Any]], list[tuple[float, ...]]]] = {}
        last: Any = None  # of the row before: what its rule, its numbers and its rows were found by
        for (dtype, tensors, kept, fresh), step in zip(taken, steps, strict=True):
            pairs, device = tensors[0].dtype is not dtype, tensors[0].device
            now = step, fresh, dtype, pairs, device
            if now != last:
                found = known.get((step, fresh, pairs))
                if found is None:
                    found = cls._rule_and_numbers(group, kept, step, fresh, states, pairs)
                    if len(cls._counters) < 2:  # else numbers may depend on more than the step
                        known[step, fresh, pairs] = found
                rule, numbers = found
                rows, numbers_of_rows = kinds.setdefault((rule, dtype, device), ([], []))
                last = now if len(cls._counters) < 2 else None
            rows.append(tensors)
            numbers_of_rows.append(numbers)
        for (rule, dtype, _), (rows, numbers_of_rows) in kinds.items():
            update_elements(rule, dtype, rows, numbers_of_rows)
        return rest

    @classmethod
    def _update_counted_there(cls, changes: list[Change], group: dict[str, Any]) -> list[Change]:
        """Change parameters whose steps are counted on their device, in a few launches for all of a kind; gives back those
        that no kernel takes.
        """
        states = cls._states(group)
        rest: list[Change] = []
        kinds: dict[Any, list[tuple[list[Any], dict[str, Any]]]] = {}
        for change in changes:
            param, grad, kept, fresh = change
            tensors = _elements([param, grad, *[kept[name] for name in states]])
            dtype = flat_dtype(tensors)
            if dtype is None or not all(is_counter(kept[name], param.device) for name in cls._counters):
                rest.append(change)
            else:
                key = dtype, param.device, fresh, param.is_complex()
                kinds.setdefault(key, []).append((tensors, kept))
        for (dtype, device, fresh, pairs), taken in kinds.items():
            rows, held = map(list, zip(*taken, strict=True))
            with rushlight.no_grad():
                if cls._counters:
                    # A column for each parameter: what follows from its counters is computed for all at once.
                    table = rushlight.empty(len(cls._counters), len(rows), dtype=rushlight.float32, device=device)
                    cells, counters = table.view(-1).unbind(), [kept[name] for name in cls._counters for kept in held]
                    Rule.copy_elements(cells, counters)
                    columns = dict(zip(cls._counters, table.unbind(), strict=True))
                    step = _count(columns["step"], group)
                    rule, numbers = cls._rule_and_numbers(group, columns, step, fresh, states, pairs)
                    Rule.copy_elements(counters, cells)
                else:
                    rule, numbers = cls._rule_and_numbers(group, {}, 0.0, fresh, states, pairs)
                named = dict(zip(rule.numbers, numbers, strict=True))
                read = {name: value.to(dtype) for name, value in named.items() if isinstance(value, Tensor)}
                given = [value for name, value in named.items() if name not in read]
                update_elements(rule, dtype, rows, [given] * len(rows), read)
        return rest

    @classmethod
    def _update_one(
        cls, change: Change, group: dict[str, Any], known: dict[tuple[bool, bool], tuple[Rule, tuple[Any, ...]]]
    ) -> None:
        """The same by tensor operations on one parameter; `known` are rules and numbers of others, where nothing counts
        the steps of each.
        """
        param, grad, kept, fresh = change
        check_param(param, group)
        step = 0.0
        if cls._counters:
            captured = bool(group.get("capturable")) and on_device(kept["step"])
            if not captured and group.get("found_inf") is not None:
                raise RuntimeError(
                    "found_inf lies on a device, so the steps must be counted there: move state_steps to it"
                )
            step = _count(kept["step"], group)
            step = step if captured else step.item()
        names = cls._states(group)
        kind = fresh, param.is_complex()
        found = known.get(kind)
        if found is None:
            found = cls._rule_and_numbers(group, kept, step, fresh, names, param.is_complex())
            if not cls._counters and not group.get("differentiable"):
                known[kind] = found
        rule, numbers = found
        tensors = [param, grad, *[kept[name] for name in names]]
        if not group.get("differentiable"):
            tensors = _elements(tensors)
        if param.is_complex():
            tensors = [rushlight.view_as_real(x) for x in tensors]
        if not group.get("differentiable") and update_recorded(rule, tensors, numbers):
            return
        written = [tensors[i] for i in rule.written]
        if group.get("differentiable"):  # what operations keep for their backward is not written into
            tensors = [tensors[0].clone(), tensors[1], *[x.clone() for x in tensors[2:]]]
        for target, value in zip(written, rule.apply(rushlight, tensors, numbers), strict=True):
            target.copy_(value)

    @classmethod
    def _update_sparse(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        raise RuntimeError(f"{cls.__name__} does not support sparse gradients")

    @classmethod
    def _update_lists(
        cls, params: list[Any], grads: list[Any], states: dict[str, list[Any]], group: dict[str, Any]
    ) -> None:
        """The step on lists of tensors: what the functions in PyTorch's modules of optimizers do."""
        check_steps(states["step"])
        kept = [
            {name: values[i] for name, values in states.items() if values and values[i] is not None}
            for i in range(len(params))
        ]
        cls._update(list(zip(params, grads, kept, strict=True)), group)
