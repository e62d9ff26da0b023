"""Trees of `optree`, whose functions are native: the trace takes its own objects apart and puts them together with them.

A native function is given trees of the same containers with marks in the place of leaves, and what it gives has the
leaves in the place of the marks.  A `PyTreeSpec` never changes: it is a constant.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._capture.trace.outside import ABSENT
from rushlight._capture.trace.reports.events import Break

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["called", "iterated"]

_TREES = frozenset(("flatten", "is_leaf", "flatten_up_to", "flatten_with_path"))  # take a tree apart
_OF_LEAVES = frozenset(("unflatten",))
_OF_SPECS = frozenset((
    "children", "child", "entries", "entry", "paths", "accessors", "is_leaf", "is_prefix", "is_suffix", "compose", "one_level", "broadcast_to_common_suffix",
    "make_leaf", "make_none", "__eq__", "__ne__", "__hash__", "__len__",
))  # fmt: skip


class _Mark:
    """Stands for a leaf."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def called(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a native function of `optree`, or of a method of its `PyTreeSpec`; ABSENT for all others."""
    module, name = getattr(function, "__module__", "") or "", getattr(function, "__name__", "")
    if not module.startswith("optree") or "optree" not in sys.modules:
        return ABSENT
    args, kwargs = tuple([tracer.real(x) for x in args]), {key: tracer.real(x) for key, x in kwargs.items()}
    of_specs = bool(args) and isinstance(args[0], sys.modules["optree"].PyTreeSpec)
    if of_specs and _has_users_nodes(args[0]):
        raise Break("uses the structure of a tree with nodes of a user's own by optree")
    if module == "optree._C" and name in _TREES:
        return _taken_apart(tracer, function, args, kwargs)
    if of_specs and name in _TREES and name != "is_leaf":
        return _opened(tracer, function(args[0], *[_marked(tracer, x, _Rule()) for x in args[1:]], **kwargs))
    if of_specs and name in _OF_LEAVES:
        leaves = [_Mark(x) for x in tracer.unpack(args[1])]
        return _opened(tracer, function(args[0], leaves))
    if name in _OF_SPECS:
        return _opened(tracer, function(*args, **kwargs))
    return ABSENT


def iterated(tracer: Tracer, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An iterator over the leaves of a tree, as `PyTreeIter` makes it; ABSENT for other classes."""
    if (kind.__module__, kind.__name__) != ("optree", "PyTreeIter"):
        return ABSENT
    tracer.mark_unrepeatable()
    return iter(_taken_apart(tracer, sys.modules["optree"]._C.flatten, args, kwargs)[0])


class _Rule:
    """Where a tree ends: at `None` if it is a leaf, and where a user's function says so."""

    def __init__(self, leaf: Any = None, none: bool = False, namespace: str = "") -> None:
        self.leaf, self.none, self.namespace = leaf, none, namespace


def _taken_apart(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("tree", "leaf_predicate", "none_is_leaf", "namespace")
    given = dict(zip(names, args, strict=False)) | kwargs
    predicate, none, namespace = (
        given.get("leaf_predicate"),
        given.get("none_is_leaf", False),
        given.get("namespace", ""),
    )
    _guard_registry(tracer, namespace)
    tree = _marked(tracer, given["tree"], _Rule(predicate, none, namespace))
    return _opened(tracer, function(tree, None, none, namespace))


def _guard_registry(tracer: Tracer, namespace: str) -> None:
    """Require that the order of dicts and the classes that are nodes are what they are."""
    native = sys.modules["optree"]._C
    for function, given in ((native.is_dict_insertion_ordered, repr(namespace)), (native.get_registry_size, "")):
        found = function(namespace) if given else function()
        tracer.reads.check(tracer.reads.constant(function), f"{{}}({given}) == {found!r}")


def _marked(tracer: Tracer, value: Any, rule: _Rule) -> Any:
    """A tree with marks in the place of leaves."""
    value = tracer.real(value)
    if rule.leaf is not None and tracer.truth(tracer.nested(rule.leaf, (value,))):
        return _Mark(value)
    kind = type(value)
    if value is None:
        return _Mark(None) if rule.none else None
    made = _rebuilt(kind, value, lambda each: _marked(tracer, each, rule))
    if made is not ABSENT:
        return made
    if _is_registered(kind, rule.namespace):
        raise Break(f"takes a {kind.__name__}, a node of a user's own, apart by optree")
    return _Mark(value)


def _has_users_nodes(spec: Any) -> bool:
    return spec.kind == sys.modules["optree"].PyTreeKind.CUSTOM or any(map(_has_users_nodes, spec.children()))


def _is_registered(kind: type, namespace: str) -> bool:
    optree = sys.modules["optree"]
    return optree.is_structseq_class(kind) or optree.register_pytree_node.get(kind, namespace=namespace) is not None


def _rebuilt(kind: Any, value: Any, each: Callable[[Any], Any]) -> Any:
    """A container of the same kind with other items; ABSENT for what is none."""
    if kind in (list, tuple):
        return kind([each(x) for x in value])
    if kind is deque:
        return deque([each(x) for x in value], maxlen=value.maxlen)
    if kind in (dict, OrderedDict):
        return kind([(key, each(x)) for key, x in value.items()])
    if kind is defaultdict:
        return defaultdict(value.default_factory, [(key, each(x)) for key, x in value.items()])
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple.__new__(kind, [each(x) for x in value])
    return ABSENT


def _opened(tracer: Tracer, value: Any) -> Any:
    """A result with the leaves in the place of their marks."""
    kind = type(value)
    if kind is _Mark:
        return value.value
    if kind is sys.modules["optree"].PyTreeSpec:
        tracer.unkept = "it holds the structure of a tree"
        return value
    made = _rebuilt(kind, value, lambda each: _opened(tracer, each))
    return value if made is ABSENT else made
