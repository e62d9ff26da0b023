"""The operator table on tensors of subclasses: one call in one form, on rushlight or PyTorch, told as plain data.

`told(t, case)` runs a `Case` with the module `t`.  The same case with `kind=None` runs on plain tensors: values, gradients, versions must be its.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.ops.harness import Arr
from tests.ops.test_operators import ENGINE, drawn

from rushlight._ops.samples import samples_of
from rushlight._ops.table import OPERATORS

__all__ = [
    "FORMS",
    "KINDS",
    "OF_A_CLASS",
    "WHO",
    "Case",
    "cases",
    "difference",
    "some",
    "told",
    "unlike_plain",
    "unlike_pytorch",
]

KINDS = ("quiet", "asking", "parameter")  # a subclass without an override, one whose override calls super, nn.Parameter
WHO = ("first", "others", "all")  # which tensors of the call are of the subclass
FORMS = ("function", "in_place", "in_place_of_view", "out", "write_to_view")
_CLASSES: dict[Any, dict[str, Any]] = {}


@dataclass(frozen=True)
class Case:
    """Sample `number` of operator `key` in a form, with the tensors `who` of a class of `kind`; None: all are plain."""

    key: str
    number: int
    form: str
    kind: str | None
    who: str

    def plain(self) -> Case:
        """The same on plain tensors."""
        return replace(self, kind=None)


def cases(key: str, forms: Sequence[str] = FORMS) -> Iterator[Case]:
    """Every case of an operator."""
    op = OPERATORS[key]
    exist = {
        "function": True,
        "in_place": op.inplace,
        "in_place_of_view": op.inplace,
        "out": bool(op.out),
        "write_to_view": op.kind == "view",
    }
    if key in ENGINE or op.name != op.public and not op.spaces:
        return
    for number in range(len(samples_of(op))):
        for form in forms:
            for kind in KINDS if exist[form] else ():
                for who in WHO:
                    if (
                        kind != "parameter"
                        or form in ("function", "out")
                        or form != "write_to_view"
                        and who == "others"
                    ):  # no leaf is changed
                        yield Case(key, number, form, kind, who)


def some(key: str) -> list[Case]:
    """A case of each form that changes something, for a few operators of the others too; which one differs from operator to operator."""
    place = list(OPERATORS).index(key)
    found = []
    for form in [form for form in FORMS if place % {"function": 6, "out": 3}.get(form, 1) == 0]:
        every = list(cases(key, (form,)))
        if every:
            found.append(every[7 * place % len(every)])
    return found


def classes(t: Any) -> dict[str, Any]:
    """The classes by kind, made once for a module."""
    if t not in _CLASSES:

        class Quiet(t.Tensor):
            pass

        class Asking(t.Tensor):
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return super().__torch_function__(func, types, args, kwargs or {})

        _CLASSES[t] = {"quiet": Quiet, "asking": Asking}
    return _CLASSES[t]


class Run:
    """The tensors of one case: leaves that want gradients, and what the call is given, computed from them."""

    def __init__(self, t: Any, case: Case) -> None:
        self.t, self.case, self.leaves, self.given = t, case, list[Any](), list[Any]()
        call, rng = samples_of(OPERATORS[case.key])[case.number], np.random.default_rng(7)
        self.args = [self._convert(drawn(a, rng)) for a in call.args]
        self.kwargs = {k: self._convert(drawn(v, rng)) for k, v in call.kwargs.items()}

    def _convert(self, value: Any) -> Any:
        if isinstance(value, Arr):
            return self._tensor(value.array)
        if isinstance(value, list):
            return [self._convert(v) for v in value]
        name = getattr(value, "name", None)
        return getattr(self.t, name) if type(value).__name__ == "DType" else value

    def _tensor(self, array: Any) -> Any:
        leaf = self.t.from_numpy(np.array(array))
        whose = "others" if self.given else "first"
        wrapped = self.case.kind is not None and self.case.who in (whose, "all")
        if self.case.form != "out" and array.dtype.kind in "fc":
            leaf.requires_grad_()
            self.leaves.append(leaf)
        made = (
            self.wrap(leaf * 1 if leaf.requires_grad else leaf.clone())
            if wrapped
            else leaf * 1
            if leaf.requires_grad
            else leaf.clone()
        )
        self.given.append(made)
        return made

    def wrap(self, x: Any) -> Any:
        """The tensor as one of the case's class."""
        if self.case.kind != "parameter":
            return x.as_subclass(classes(self.t)[self.case.kind])
        made = self.t.nn.Parameter(x.detach(), requires_grad=x.requires_grad)
        if made.requires_grad:
            self.leaves[-1] = made
        return made

    def function(self) -> Callable[..., Any]:
        """The operator as users call it."""
        op = OPERATORS[self.case.key]
        return getattr(self.page(op.spaces[0]) if op.spaces else self.t.Tensor, op.public)

    def page(self, space: str) -> Any:
        """The module of a space of the table."""
        page = self.t
        for part in space.split(".") if space != "torch" else ():
            page = getattr(page, part)
        return page


def listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def told(t: Any, case: Case) -> dict[str, Any]:
    """What the case does: the error's class, or facts of results and of what was changed, and gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Run(t, case)
        try:
            results, changed = _FORMS[case.form](run)
        except Exception as error:
            return {"error": type(error).__name__}
        same = [m is c for m, c in zip(results, changed, strict=False)]
        shown = [*results, *changed]
        found: dict[str, Any] = {
            "results": [facts(x) for x in results],
            "changed": [facts(x) for x in changed],
            "same": same,
        }
        found["gradients"] = gradients(t, run.leaves, shown)
        return found


def facts(x: Any) -> Any:
    """What is seen of a tensor."""
    if not hasattr(x, "is_leaf"):
        return x
    node = type(x.grad_fn).__name__ if x.grad_fn is not None else None
    values = np.array(x.detach().numpy(force=True))
    return {
        "type": type(x).__name__, "dtype": str(x.dtype), "values": values, "requires_grad": x.requires_grad, "leaf": x.is_leaf, "node": node,
        "version": x._version, "view": x._base is not None,
    }  # fmt: skip


def gradients(t: Any, leaves: Sequence[Any], shown: Sequence[Any]) -> Any:
    """Gradients of the leaves from a weighted sum of what is shown."""
    pairs = []
    for k, x in enumerate(shown):
        if hasattr(x, "is_leaf") and x.requires_grad:
            weights = np.linspace(0.5, 1.5 + k, max(x.numel(), 1))[: x.numel()].reshape(tuple(x.shape))
            pairs.append((x, t.from_numpy(weights).to(x.dtype)))
    wanted = [x for x in leaves if x.requires_grad]
    if not pairs or not wanted:
        return None
    try:
        found = t.autograd.grad([x for x, _ in pairs], wanted, [w for _, w in pairs], allow_unused=True)
    except Exception as error:
        return {"error": type(error).__name__}
    return [None if g is None else np.array(g.detach().numpy(force=True)) for g in found]


# ***** the forms *****


def _function(run: Run) -> Any:
    return listed(run.function()(*run.args, **run.kwargs)), []


def _changed_in_place(run: Run, target: Any) -> Any:
    op = OPERATORS[run.case.key]
    if hasattr(run.t.Tensor, op.public + "_"):
        return getattr(target, op.public + "_")(*run.args[1:], **run.kwargs)
    return getattr(run.page(op.inplace_spaces[0]), op.public + "_")(target, *run.args[1:], **run.kwargs)


def _in_place(run: Run) -> Any:
    target = run.args[0]
    made = _changed_in_place(run, target)
    if target.dtype.is_floating_point:
        target *= 0.5
    return [made], [target]


def _in_place_of_view(run: Run) -> Any:
    base = run.t.stack([run.args[0], run.args[0]])
    target = base[1]
    made = _changed_in_place(run, target)
    if base.dtype.is_floating_point:
        target.mul_(0.5)
        base[0] = 2.0
    return [made], [target, base]


def _out(run: Run) -> Any:
    def empty(like: Any) -> Any:
        made = run.t.zeros(like.shape, dtype=like.dtype)
        return run.wrap(made) if run.case.kind in ("quiet", "asking") and run.case.who != "others" else made

    function = run.function()
    outs = tuple([empty(x) for x in listed(function(*run.args, **run.kwargs))])
    made = function(*run.args, **run.kwargs, out=outs[0] if len(outs) == 1 else outs)
    return listed(made), list(outs)


def _write_to_view(run: Run) -> Any:
    views = listed(run.function()(*run.args, **run.kwargs))
    source = run.args[0]
    for k, view in enumerate(views):
        view.mul_(2 + k)
    if source.dtype.is_floating_point:
        source *= 0.5
    return views, [source]


_FORMS = {
    "function": _function,
    "in_place": _in_place,
    "in_place_of_view": _in_place_of_view,
    "out": _out,
    "write_to_view": _write_to_view,
}

# ***** comparison *****

OF_A_CLASS = frozenset(
    ("type", "node", "view", "same", "leaf")
)  # facts in which tensors of a subclass differ from plain ones


def unlike_plain(t: Any, case: Case, plain: dict[str, Any]) -> str:
    """Where the case differs from the same on plain tensors, told before, or in the types that it must give; nothing where it is right."""
    made = told(t, case)
    return difference(made, plain, OF_A_CLASS) or _wrong_types(case, made)


def _wrong_types(case: Case, made: dict[str, Any]) -> str:
    """Results are of the subclass if any argument is; what is changed in place is what it was, and is what comes back if it is of the class."""
    if "error" in made or case.kind not in ("quiet", "asking"):
        return ""
    wanted = case.kind.capitalize()
    wrapped = any(x["type"] == wanted for x in made["results"] if isinstance(x, dict))
    kinds = [x["type"] for x in made["results"] if isinstance(x, dict)]
    if wrapped and any(kind != wanted for kind in kinds):
        return f": results are {kinds}"
    if case.form in ("in_place", "in_place_of_view"):
        first = case.who != "others"
        if made["changed"][0]["type"] != (wanted if first else "Tensor"):
            return f": what was changed is {made['changed'][0]['type']}"
        if first and made["same"] != [True]:
            return ": what was changed does not come back"
    return ""


def unlike_pytorch(mine: Any, theirs: Any, case: Case) -> str | None:
    """Where the case differs between two modules; None where the same on plain tensors does, which is no matter of subclasses."""
    if difference(told(mine, case.plain()), told(theirs, case.plain())):
        return None
    return difference(told(mine, case), told(theirs, case))


def difference(mine: Any, theirs: Any, leave: frozenset[str] = frozenset(), rtol: float = 1e-9) -> str:
    """Where two tellings differ, or nothing; facts named in `leave` may, and zeros may stand for no gradient at all."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        if mine.keys() != theirs.keys():
            return f": {mine} instead of {theirs}"
        return next(
            (f".{k}{d}" for k in mine if k not in leave and (d := difference(mine[k], theirs[k], leave, rtol))), ""
        )
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        return next(
            (
                f"[{i}]{d}"
                for i, (m, o) in enumerate(zip(mine, theirs, strict=True))
                if (d := difference(m, o, leave, rtol))
            ),
            "",
        )
    if leave and theirs is None and isinstance(mine, np.ndarray):
        same = not mine.any()
    elif isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray):
        same = (
            mine.shape == theirs.shape
            and mine.dtype == theirs.dtype
            and np.allclose(mine, theirs, rtol, 1e-9, equal_nan=True)
        )
    else:
        same = type(mine) is type(theirs) and mine == theirs
    return "" if same else f": {mine} instead of {theirs}"
