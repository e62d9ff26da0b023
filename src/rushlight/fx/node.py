"""`torch.fx.node`: one step of a graph, and how the values in its arguments are walked through."""

from __future__ import annotations

import builtins
import inspect
import operator
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from rushlight.fx.immutable_collections import immutable_dict, immutable_list
from rushlight.overrides import resolve_name

if TYPE_CHECKING:
    from rushlight.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target: TypeAlias = Callable[..., Any] | str
Argument: TypeAlias = Any

OPCODES = frozenset(("call_function", "call_method", "call_module", "get_attr", "output", "placeholder", "root"))

_side_effectful_functions: set[Callable[..., Any]] = set()


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function whose calls `Graph.eliminate_dead_code` keeps although nobody uses their results; it is returned."""
    _side_effectful_functions.add(fn)
    return fn


_DRAWING = frozenset(
    "bernoulli multinomial normal poisson rand rand_like randint randint_like randn randn_like randperm".split()
)


# Operators and functions that are called for the error that they may raise.
_CHECKING = frozenset(
    "_assert _assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size".split()
)


def _changes_state(target: Any, impure_random: bool) -> bool:
    """Whether a function writes to its arguments, checks them, or moves the state of random numbers."""
    if target is operator.setitem:
        return True
    target = getattr(target, "default", target) if hasattr(target, "overloads") else target
    if not hasattr(target, "overloadpacket"):
        name = getattr(target, "__name__", "")
        return name in (_DRAWING | _CHECKING) and target is getattr(import_module("rushlight"), name, None)
    if target.namespace == "aten" and target._opname in _CHECKING:
        return True
    try:
        written = target._schema.is_mutable
    except NotImplementedError:  # a composite without a schema of its own
        written = False
    tag = import_module("rushlight").Tag.nondeterministic_seeded
    return written or (impure_random and tag in target.tags)


# ***** walking through arguments *****


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """`fn` of every leaf of nested tuples, lists, dicts and slices; lists and dicts come back as immutable ones."""
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return immutable_dict([(key, map_aggregate(value, fn)) for key, value in a.items()])
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """`fn` of every node in nested arguments; everything else stays."""
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)


# ***** names *****


def _get_qualified_name(func: Callable[..., Any]) -> str:
    """The dotted name under which generated code finds a function."""
    place = getattr(func, "__module__", None) or ""
    if place.startswith("torch._ops.") and hasattr(func, "_overloadname"):  # one form of an operator
        return f"torch.ops.{place[len('torch._ops.') :]}.{func.__name__}"
    if getattr(builtins, getattr(func, "__name__", ""), None) is func:
        return func.__name__
    ours = resolve_name(func)
    if ours is not None:
        return ours
    name = getattr(func, "__name__", None) or type(func).__name__
    if name == "<lambda>":
        return name
    module = getattr(func, "__module__", None) or _module_of(func, name)
    first, dot, rest = module.partition(".")
    if first == "rushlight":
        private = rest.startswith("_") and getattr(import_module("rushlight"), name, None) is func
        module = "torch" if private else f"torch{dot}{rest}"
    # Custom operators are found in `torch.ops`.
    return f"{module.replace('torch._ops', 'torch.ops', 1)}.{name}"


def _module_of(func: Callable[..., Any], name: str) -> str:
    """The module of a native function that does not say it."""
    found = getattr(getattr(func, "__objclass__", None), "__module__", None)
    if found is None and getattr(operator, name, None) is func:
        found = "_operator"
    if found is None:
        raise RuntimeError(f"cannot find a module for {func!r}: generated code could not name it")
    return str(found)


def _type_repr(obj: Any) -> str:
    """A type as generated code writes it."""
    if isinstance(obj, type) and not hasattr(obj, "__origin__"):
        module = obj.__module__
        first, dot, rest = module.partition(".")
        if first == "rushlight":
            module = "torch" if rest.startswith("_") else f"torch{dot}{rest}"
        return obj.__qualname__ if module == "builtins" else f"{module}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    return obj.__name__ if inspect.isfunction(obj) else repr(obj)


# ***** a node *****


class Node:
    """One step of a `Graph`: a value, how it is made, and who uses it.

    `op` says how: "placeholder" (an input of the program), "get_attr" (an attribute of the module), "call_function",
    "call_method", "call_module", "output"; `target` says of what (a function, a name, a path), `args` and `kwargs` with
    what.  `users` are the nodes that take the value, `all_input_nodes` those it takes; `meta` is for passes to keep
    what they find.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: Mapping[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op not in OPCODES:
            raise AssertionError(f"{op!r} is no operation of a node; there are {', '.join(sorted(OPCODES - {'root'}))}")
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a Callable is expected"
                )
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a str is expected"
            )
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = immutable_dict()
        self._input_nodes: dict[Node, None] = {}
        self.users: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self.meta: dict[str, Any] = {}
        self._update_args_kwargs(map_arg(args, lambda node: node), map_arg(dict(kwargs), lambda node: node))

    # ***** place *****

    @property
    def next(self) -> Node:
        """The node after this one in its graph; after the last comes the graph's root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Put `x` of the same graph before this node."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Put `x` of the same graph after this node."""
        self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def __lt__(self, other: Node) -> bool:
        return self._place() < other._place()

    def __gt__(self, other: Node) -> bool:
        return other < self

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return other <= self

    def _place(self) -> int:
        return next(number for number, node in enumerate(self.graph.nodes) if node is self)

    # ***** arguments *****

    @property
    def args(self) -> tuple[Argument, ...]:
        """Arguments of the target; assign a new tuple to change it."""
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._update_args_kwargs(map_arg(a, lambda node: node), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The keyword arguments; assign a new dict to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._update_args_kwargs(self._args, map_arg(k, lambda node: node))

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes whose values this one takes, each once, in order."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Change one positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put a positional argument before place `idx`."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Change or add one keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    def _update_args_kwargs(self, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> None:
        for used in self._input_nodes:
            used.users.pop(self, None)
        self._args, self._kwargs, self._input_nodes = args, kwargs, {}
        map_arg((args, kwargs), lambda node: self._input_nodes.setdefault(node))
        for used in self._input_nodes:
            used.users.setdefault(self)

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Take `new_input` wherever `old_input` was taken."""
        self._update_args_kwargs(
            *map_arg((self._args, self._kwargs), lambda node: new_input if node is old_input else node)
        )

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None, *, propagate_meta: bool = False
    ) -> list[Node]:
        """Make the users of this node take `replace_with` instead (those for which `delete_user_cb` says so); the
        former users are returned.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError("replace_with has metadata of its own: propagate_meta would overwrite it")
            replace_with.meta.update(self.meta)
        users = [user for user in self.users if delete_user_cb is None or delete_user_cb(user)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    # ***** what it is *****

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node must stay although nobody uses its value: inputs, outputs, functions and modules marked as
        having side effects, operators that write to their arguments or (with `impure_random`) draw random numbers.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _side_effectful_functions or _changes_state(self.target, impure_random)
        if self.op == "call_module":
            module = self.graph.owning_module
            if module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            return bool(getattr(module.get_submodule(str(self.target)), "_is_impure", False))
        return False

    @property
    def stack_trace(self) -> str | None:
        """The user's lines that made the node, where the tracer recorded them."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)

    def normalized_arguments(
        self,
        root: Any,
        arg_types: Any = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """All arguments of the call with defaults filled in, or None where the signature is not known: see
        `torch.fx.operator_schemas`.
        """
        schemas = import_module("rushlight.fx.operator_schemas")
        if self.op == "call_function":
            return schemas.normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
            )
        if self.op == "call_module":
            return schemas.normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn is not None else self.name

    def _pretty_print_target(self, target: object) -> str:
        if isinstance(target, str):
            return target
        name = getattr(target, "__name__", None)
        module = getattr(target, "__module__", None)
        if module == "builtins":
            return f"builtins.{name}"
        return f"operator.{name}" if module == "_operator" else _get_qualified_name(target)  # type: ignore[arg-type]

    def format_node(
        self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None
    ) -> str | None:
        """The node as `print(graph)` shows it; a placeholder or an annotated output is put into the list where one is
        given.
        """
        kind = f"{_type_repr(self.type)} " if self.type is not None else ""
        head = f"%{self.name} : {kind}[num_users={len(self.users)}] = "
        if self.op == "placeholder":
            if placeholder_names is not None:
                shown = f"{self.target} : {_type_repr(self.type)}" if self.type is not None else str(self.target)
                placeholder_names.append(shown)
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}{self.op}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{head}{self.op}[target={self._pretty_print_target(self.target)}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self.args[0]}"
        target = self._pretty_print_target(self.target)
        return f"{head}{self.op}[target={target}](args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"


def _format_arg(arg: Any) -> str:
    """An argument in a printed graph: nodes by `%name`."""
    if hasattr(arg, "_custom_fx_repr_fn"):
        return str(arg._custom_fx_repr_fn())
    if isinstance(arg, Node):
        return f"%{arg.name}"
    if isinstance(arg, list):
        return f"[{', '.join(map(_format_arg, arg))}]"
    if isinstance(arg, tuple) and not hasattr(arg, "_fields"):
        return f"({', '.join(map(_format_arg, arg))}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{key}: {_format_arg(value)}' for key, value in arg.items())}}}"
    return str(arg)
