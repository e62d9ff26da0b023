"""`torch.fx.graph`: programs as lists of nodes, and the Python that they are.

>>> import operator
>>> graph = Graph()
>>> x = graph.placeholder("x")
>>> graph.output(graph.call_function(operator.mul, (x, 2)))
output
>>> print(graph.python_code("self").src.strip())
def forward(self, x):
    mul = x * 2;  x = None
    return mul
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from rushlight.fx.codegen import CodeGen, Namespace, PythonCode
from rushlight.fx.node import Argument, Node, Target, map_arg

__all__ = ["CodeGen", "Graph", "PythonCode"]

_Namespace = Namespace


class _NodeList:
    """The nodes of a graph in order; nodes may be put in and taken out while it is walked through."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = getattr(root, self.direction)
        while node is not root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> _NodeList:
        return _NodeList(self.graph, "_prev" if self.direction == "_next" else "_next")


class _InsertPoint(AbstractContextManager[None]):
    """Where new nodes go: set at once, and put back where it stands in a `with`."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph, self.before = graph, graph._insert
        graph._insert = insert

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self.before


class Graph:
    """A program: placeholders, calls of functions, methods and modules, and one output.

    Nodes are made by `placeholder`, `get_attr`, `call_function`, `call_method`, `call_module` and `output`, in the
    order in which they run, or at the place given by `inserting_before` and `inserting_after`.  With a `GraphModule` it
    becomes a module whose `forward` is generated from it.
    """

    def __init__(
        self, owning_module: Any = None, tracer_cls: type | None = None, tracer_extras: dict[str, Any] | None = None
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._graph_namespace = Namespace()
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self.owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}

    @property
    def nodes(self) -> _NodeList:
        """The nodes in the order in which they run; `reversed` walks back."""
        return _NodeList(self)

    def output_node(self) -> Node:
        """The node that returns."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes of an operation (and of a target)."""
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    # ***** making nodes *****

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A node at the place where new nodes go; the name is made unique."""
        if args is not None and not isinstance(args, tuple):
            raise AssertionError("args must be a tuple")
        if kwargs is not None and not isinstance(kwargs, dict):
            raise AssertionError("kwargs must be a dict")
        candidate = name if name is not None else self._target_to_str(target)
        node = Node(
            self, self._graph_namespace.create_name(candidate, None), op, target, args or (), kwargs or {}, type_expr
        )
        if self.owning_module is not None:
            for hook in getattr(self.owning_module, "_create_node_hooks", ()):
                hook(node)
        self._graph_namespace.associate_name_with_obj(node.name, node)
        self._insert(node)
        self._len += 1
        return node

    @staticmethod
    def _target_to_str(target: Target) -> str:
        if callable(target):
            text = getattr(target, "__name__", type(target).__name__)
        else:
            text = target
            if text.startswith("__") and text.endswith("__"):
                text = text[2:-2]
        return _snake_case(text)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input of the program; `default_value` is its value where it is not given."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """An attribute of the module, by its path."""
        module = self.owning_module
        if module is not None and not _has_attr(module, qualified_name):
            warnings.warn(
                f"Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule: {qualified_name} is no "
                "parameter, buffer or attribute of it; add it before the graph is run",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a module of the owning module, by its path."""
        module = self.owning_module
        if module is not None and not _has_attr(module, module_name):
            warnings.warn(
                f"Attempted to insert a call_module Node with no underlying reference in the owning GraphModule: {module_name}; "
                "GraphModule.add_submodule adds it",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Set what the program returns."""
        return self.create_node("output", "output", args=(result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """A copy of a node of another graph; `arg_transform` says which node of this one stands for each of its inputs."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copy all nodes of `g` here and return what it returns in terms of this graph's nodes; `val_map` gets the
        pairs, and what it holds stays.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # ***** the place of new nodes, and changing old ones *****

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go before `n`, from now on or while a `with` lasts; before the first node of all without `n`."""
        if n is None:
            return self.inserting_after(self._root)
        self._check_mine(n)
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go after `n`, each after the one before it; at the end without `n`."""
        if n is None:
            return self.inserting_before(self._root)
        self._check_mine(n)
        return _InsertPoint(self, n.append)

    def _check_mine(self, n: Node) -> None:
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out; RuntimeError where another one takes its value."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        # Constants among the arguments stay: who holds the node may still read them.
        to_erase._update_args_kwargs(*map_arg((to_erase._args, to_erase._kwargs), lambda used: None))

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out the nodes whose values nobody takes, but for those that have side effects; whether there were any."""
        self.lint()
        impure = is_impure_node or Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    # ***** code *****

    def python_code(self, root_module: str, *, verbose: bool = False, **printing: Any) -> PythonCode:
        """The Python of the graph as a function of the module `root_module`, with the globals it needs."""
        namespace = Namespace()
        before = {node: node._repr_fn for node in self.nodes}
        for node in before:
            node._repr_fn = lambda n: namespace.create_name(n.name, n)
        try:
            return self._codegen._gen_python_code(self.nodes, root_module, namespace, verbose=verbose)
        finally:
            for node, shown in before.items():
                node._repr_fn = shown

    def set_codegen(self, codegen: CodeGen) -> None:
        """Let another object write the code."""
        self._codegen = codegen

    def on_generate_code(
        self, make_transformer: Callable[[Any], Callable[[list[str]], list[str]]]
    ) -> AbstractContextManager[None]:
        """Change the lines of the function: `make_transformer` takes the transformer there is (or None) and gives the
        new one.

        It stays on; as a context manager it is taken off at the end.
        """
        codegen, before = self._codegen, self._codegen._body_transformer
        codegen._body_transformer = make_transformer(before)

        class Restored(AbstractContextManager[None]):
            def __exit__(self, *exc: object) -> None:
                codegen._body_transformer = before

        return Restored()

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of the function as the placeholders take them."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """The output node's value in the form that the function returns."""
        return self._codegen.process_outputs(out)

    # ***** looking *****

    def __str__(self) -> str:
        return "".join(["graph():", *(f"\n    {node.format_node()}" for node in self.nodes)])

    def print_tabular(self) -> None:
        """Print the nodes as a table, by the package tabulate."""
        try:
            from tabulate import tabulate
        except ImportError:
            raise ImportError(
                "`print_tabular` relies on the library `tabulate`, which is not installed: pip install tabulate"
            ) from None
        rows = [[node.op, node.name, node.target, node.args, node.kwargs] for node in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    def lint(self) -> None:
        """RuntimeError where a node takes a value that is not there yet, or two have one name; where there is a module,
        also for targets it lacks.
        """
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")

            def check(used: Node, user: Node = node) -> None:
                if used.graph is not self:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{user}' does not belong to this Graph, but was used as an argument!"
                    )
                if used not in seen:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{user}' was used before it has been defined! Please check that Nodes in the graph are topologically ordered\n{self}"
                    )

            map_arg((node.args, node.kwargs), check)
            seen.add(node)
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            names.add(node.name)
            if (
                self.owning_module is not None
                and node.op in ("get_attr", "call_module")
                and not _has_attr(self.owning_module, str(node.target))
            ):
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute {node.target} of the module"
                )

    # ***** copies *****

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls)
        made._codegen = copy.deepcopy(self._codegen)
        values: dict[Node, Node] = {}
        result = made.graph_copy(self, values, return_output_node=True)
        if result is not None:
            output = made.output(result[0], type_expr=result[1].type)
            output.meta = copy.copy(result[1].meta)
        memo[id(self)] = made
        return made


def _has_attr(module: Any, path: str) -> bool:
    """Whether a module has an attribute at the end of a path."""
    for part in path.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def _snake_case(text: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1]}", text).lower() if text != text.lower() else text
