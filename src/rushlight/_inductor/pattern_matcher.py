"""`torch._inductor.pattern_matcher`: patterns of fx nodes written as expressions, and passes that act on their occurrences.

>>> import rushlight as torch
>>> passes = PatternMatcherPass()
>>> @register_graph_pattern(CallFunction(torch.neg, CallFunction(torch.neg, KeywordArg("x"))), pass_dict=passes)
... def twice(match, x):
...     match.output_node().replace_all_uses_with(x)
...     match.erase_nodes()
>>> module = torch.fx.symbolic_trace(lambda x: torch.neg(torch.neg(x)) + 1)
>>> passes.apply(module.graph)
1
>>> [node.name for node in module.graph.nodes]
['x', 'add', 'output']
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node

__all__ = [
    "Arg", "CallFunction", "CallFunctionVarArgs", "CallMethod", "CallModule", "FailedMatch", "Ignored", "KeywordArg", "ListOf", "MULTIPLE",
    "Match", "MultiOutputPattern", "PatternExpr", "PatternMatcherPass", "filter_nodes", "register_graph_pattern",
]  # fmt: skip


class _Multiple:
    def __repr__(self) -> str:
        return "MULTIPLE"


MULTIPLE = _Multiple()


class FailedMatch(RuntimeError):
    """A node is no occurrence of a pattern; false, so that it can stand for the result."""

    def __bool__(self) -> bool:
        return False


class Match:
    """One occurrence: its nodes, and what stands for the arguments of the pattern, by place and by name."""

    def __init__(self, pattern: PatternExpr, args: Iterable[Any] = (), kwargs: dict[str, Any] | None = None) -> None:
        self.pattern, self.args, self.kwargs = pattern, list(args), dict(kwargs or {})
        self.nodes: list[Node] = []
        self.targets: dict[PatternExpr, Any] = {}
        self.found: dict[PatternExpr, Any] = {}

    @property
    def graph(self) -> Graph:
        """The graph of the nodes."""
        return self.nodes[0].graph

    def extend(self, other: Match) -> None:
        """Take in an occurrence of a part; FailedMatch where a name stands for two values."""
        for name in self.kwargs.keys() & other.kwargs.keys():
            if self.kwargs[name] != other.kwargs[name]:
                raise FailedMatch(f"kwarg mismatch: {name}")
        self.args += other.args
        self.nodes += [node for node in other.nodes if node not in self.nodes]
        self.kwargs.update(other.kwargs)
        self.targets.update(other.targets)

    def output_nodes(self) -> list[Node | None]:
        """The nodes of the pattern's results."""
        if isinstance(self.pattern, MultiOutputPattern):
            return [None if each is None else self.found.get(each) for each in self.pattern.outputs]
        return [self.found[self.pattern]]

    def output_node(self) -> Node:
        """The node of the pattern's first result."""
        return next(node for node in self.output_nodes() if node is not None)

    def erase_nodes(self) -> None:
        """Take the nodes that nobody uses any more out of the graph."""
        for node in sorted(self.nodes, reverse=True):
            if not node._erased and not node.users:
                node.graph.erase_node(node)


# ***** patterns *****


class PatternExpr:
    """A pattern; `match` gives a `Match`, or `FailedMatch`."""

    def match(self, node: Any) -> Match | FailedMatch:
        """The occurrence whose result is `node`."""
        found: dict[PatternExpr, Any] = {}
        try:
            made = self._match(node, found)
        except FailedMatch as failed:
            return failed
        made.found = found
        return made

    def _match(self, node: Any, found: dict[PatternExpr, Any]) -> Match:
        raise NotImplementedError(type(self).__name__)

    def find_targets(self) -> list[Any]:
        """The targets that the last node of an occurrence may call."""
        return []


class Arg(PatternExpr):
    """Any value; it becomes a positional argument of the handler."""

    def _match(self, node: Any, found: dict[PatternExpr, Any]) -> Match:
        return Match(self, [node])


class Ignored(PatternExpr):
    """Any value, which the handler does not get."""

    def _match(self, node: Any, found: dict[PatternExpr, Any]) -> Match:
        return Match(self)


class KeywordArg(PatternExpr):
    """Any value; it becomes an argument of this name, and is the same one wherever the name occurs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"KeywordArg({self.name!r})"

    def _match(self, node: Any, found: dict[PatternExpr, Any]) -> Match:
        return Match(self, (), {self.name: node})


class _Call(PatternExpr):
    """A node of one kind that calls one of `fns` with arguments that match; `_users`: how many use its value."""

    op = ""

    def __init__(self, fns: Any, *args: Any, _users: int | _Multiple = 1, **kwargs: Any) -> None:
        self.fns = list(fns) if isinstance(fns, (list, tuple)) else [fns]
        # A packet stands for all of its forms.
        self.fns += [
            getattr(fn, name)
            for fn in self.fns
            if hasattr(fn, "overloads") and not hasattr(fn, "_schema")
            for name in fn.overloads()
        ]
        self.args, self.kwargs, self.users = tuple(args), dict(kwargs), _users

    def __repr__(self) -> str:
        shown = [getattr(self.fns[0], "__name__", str(self.fns[0])), *map(repr, self.args)]
        return f"{type(self).__name__}({', '.join([*shown, *(f'{k}={v!r}' for k, v in self.kwargs.items())])})"

    def find_targets(self) -> list[Any]:
        """The targets that the last node of an occurrence may call."""
        return self.fns

    def _target(self, node: Node) -> Any:
        return node.target

    def _match(self, node: Any, found: dict[PatternExpr, Any]) -> Match:
        if self in found:
            if found[self] is node:
                return Match(self)
            raise FailedMatch("repeated pattern differs")
        if not isinstance(node, Node) or node.op != self.op or self._target(node) not in self.fns:
            raise FailedMatch(f"function_mismatch: node={node}, pattern={self}")
        if self.users is not MULTIPLE and len(node.users) != self.users:
            raise FailedMatch(f"multiple_users {self}")
        made = Match(self)
        args, kwargs = self._arguments(node)
        for pattern, value in [*zip(self.args, args, strict=True), *((p, kwargs[k]) for k, p in self.kwargs.items())]:
            made.extend(_matched(pattern, value, found))
        made.nodes.append(node)
        made.targets[self] = node.target
        found[self] = node
        return made

    def _arguments(self, node: Node) -> tuple[list[Any], dict[str, Any]]:
        """The node's arguments in the places of the pattern's, whatever way they were passed."""
        if len(node.args) == len(self.args) and self.kwargs.keys() <= node.kwargs.keys():
            return list(node.args), dict(node.kwargs)
        normalized = node.normalized_arguments(node.graph.owning_module, normalize_to_only_use_kwargs=True)
        names = list(normalized[1]) if normalized is not None else []
        if len(node.args) > len(self.args) or normalized is None or len(names) < len(self.args):
            raise FailedMatch(f"arguments of {node} do not fit {self}")
        values = normalized[1]
        if not self.kwargs.keys() <= values.keys():
            raise FailedMatch(f"arguments of {node} do not fit {self}")
        return [values[name] for name in names[: len(self.args)]], values


class CallFunction(_Call):
    """A call of one of these functions with arguments that match."""

    op = "call_function"


class CallMethod(_Call):
    """A call of one of these methods with arguments that match."""

    op = "call_method"


class CallModule(_Call):
    """A call of a module of one of these classes with arguments that match."""

    op = "call_module"

    def _target(self, node: Node) -> Any:
        return type(node.graph.owning_module.get_submodule(str(node.target)))


class CallFunctionVarArgs(_Call):
    """A call of one of these functions with any arguments, which the handler gets."""

    op = "call_function"

    def _match(self, node: Any, found: dict[PatternExpr, Any]) -> Match:
        if not isinstance(node, Node) or node.op != self.op or node.target not in self.fns:
            raise FailedMatch(f"function_mismatch: node={node}, pattern={self}")
        made = Match(self, node.args, node.kwargs)
        made.nodes.append(node)
        made.targets[self] = node.target
        found[self] = node
        return made


class ListOf(PatternExpr):
    """A list whose items all match a pattern; the handler gets a list for each of its arguments."""

    def __init__(self, pattern: PatternExpr, partial: bool = False) -> None:
        self.pattern, self.partial = pattern, partial

    def _match(self, node: Any, found: dict[PatternExpr, Any]) -> Match:
        if not isinstance(node, (list, tuple)) or not node:
            raise FailedMatch("non_list")
        made, parts = Match(self), []
        for item in node:
            try:
                parts.append(self.pattern._match(item, dict(found)))
            except FailedMatch:
                if not self.partial:
                    raise
        if not parts:
            raise FailedMatch("no item matches")
        made.nodes = list(dict.fromkeys(n for part in parts for n in part.nodes))
        made.args = [list(column) for column in zip(*[part.args for part in parts], strict=True)]
        made.kwargs = {name: [part.kwargs[name] for part in parts] for name in parts[0].kwargs}
        return made


class MultiOutputPattern(PatternExpr):
    """Several results at once; the first of them is where looking begins."""

    def __init__(self, outputs: list[PatternExpr | None]) -> None:
        self.outputs = outputs

    def find_targets(self) -> list[Any]:
        """The targets that the node of the first result may call."""
        return self.outputs[0].find_targets() if self.outputs[0] is not None else []

    def _match(self, node: Any, found: dict[PatternExpr, Any]) -> Match:
        made = Match(self)
        first = self.outputs[0]
        assert first is not None
        made.extend(first._match(node, found))
        for each in self.outputs[1:]:
            if each is not None:
                made.extend(self._further(each, made, found))
        return made

    def _further(self, pattern: PatternExpr, made: Match, found: dict[PatternExpr, Any]) -> Match:
        """An occurrence of another result near the nodes that are known."""
        near = dict.fromkeys(
            user
            for node in list(found.values())
            if isinstance(node, Node)
            for arg in node.all_input_nodes
            for user in arg.users
        )
        for node in itertools.chain(near, made.graph.nodes):
            trial = dict(found)
            try:
                part = pattern._match(node, trial)
            except FailedMatch:
                continue
            found.update(trial)
            return part
        raise FailedMatch("no node for another result")


def _matched(pattern: Any, value: Any, found: dict[PatternExpr, Any]) -> Match:
    """The occurrence of an argument's pattern: of a pattern, of a list of them, or of a constant."""
    if isinstance(pattern, PatternExpr):
        return pattern._match(value, found)
    if isinstance(pattern, (list, tuple)) and isinstance(value, (list, tuple)) and len(pattern) == len(value):
        made = Match(Ignored())
        for each, item in zip(pattern, value, strict=True):
            made.extend(_matched(each, item, found))
        return made
    if isinstance(value, Node) or type(value) is not type(pattern) and not (value == pattern) or value != pattern:
        raise FailedMatch(f"constant_args: {value!r}!={pattern!r}")
    return Match(Ignored())


# ***** passes *****


class _Entry:
    def __init__(self, pattern: PatternExpr, handler: Callable[..., Any], extra_check: Callable[[Match], bool]) -> None:
        self.pattern, self.handler, self.extra_check = pattern, handler, extra_check

    def apply(self, match: Match) -> None:
        self.handler(match, *match.args, **match.kwargs)


class PatternMatcherPass:
    """Patterns with handlers, tried on the nodes of a graph from its end."""

    def __init__(self, pass_name: str | None = None) -> None:
        self.pass_name = pass_name
        self.patterns: dict[Any, list[_Entry]] = {}

    def __getitem__(self, target: Any) -> list[_Entry]:
        return self.patterns.setdefault(target, [])

    def apply(self, gm: GraphModule | Graph) -> int:
        """Let handlers change the graph; how many occurrences there were."""
        graph = gm.graph if isinstance(gm, GraphModule) else gm
        count = 0
        for node in reversed(list(graph.nodes)):
            target = node.target if node.op in ("call_function", "call_method") else None
            for entry in self.patterns.get(target, ()):
                if node._erased:
                    break
                match = entry.pattern.match(node)
                if match and entry.extra_check(match):  # type: ignore[arg-type]
                    entry.apply(match)  # type: ignore[arg-type]
                    count += 1
        return count

    def clear(self) -> None:
        """Forget the patterns."""
        self.patterns.clear()


def register_graph_pattern(
    pattern: PatternExpr,
    extra_check: Callable[[Match], bool] = lambda match: True,
    *,
    pass_dict: Any,
    prepend: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: call the function `(match, *args, **kwargs)` for occurrences of which `extra_check` is true."""

    def registered(handler: Callable[..., Any]) -> Callable[..., Any]:
        for each in pass_dict if isinstance(pass_dict, (list, tuple)) else [pass_dict]:
            for target in pattern.find_targets():
                entries = each[target]
                entries.insert(0 if prepend else len(entries), _Entry(pattern, handler, extra_check))
        return handler

    return registered


def filter_nodes(nodes: Iterable[Node], fn: Any) -> list[Node]:
    """The nodes that call a function, or a form of it."""
    forms = [fn, *(getattr(fn, name) for name in fn.overloads())] if hasattr(fn, "overloads") else [fn]
    return [node for node in nodes if node.op == "call_function" and node.target in forms]
