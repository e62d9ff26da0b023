"""Graphs of aten operators without changes in place: each becomes the operator that gives a new value, views of what was
changed are made anew where they are read, and changes of views become scatters into their bases.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import rushlight
from rushlight import SymFloat, SymInt, Tensor
from rushlight._functorch.partitioners import is_number
from rushlight._interface.base import tree_flatten, tree_map
from rushlight.fx.experimental.sized_nodes import SizedNodes
from rushlight.fx.graph import Namespace
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node, map_arg

__all__ = ["BACKWARD", "Functional", "ViewStep", "functionalized", "replayed"]

# The mark of nodes that a backward pass wrote.
BACKWARD = "is_backward"
_IDENTITIES = frozenset(("detach", "alias", "lift_fresh"))
# Operators that change what a tensor looks like and not its elements, and the views that they amount to.
_LOOKS = {
    "transpose_": "transpose.int", "t_": "t.default", "squeeze_": "squeeze", "unsqueeze_": "unsqueeze.default", "swapaxes_": "transpose.int",
    "swapdims_": "transpose.int", "as_strided_": "as_strided.default",
}  # fmt: skip
_OTHERWISE = {"bernoulli_.float": "bernoulli.p", "pow_.Scalar": "pow.Tensor_Scalar"}


@dataclass(frozen=True)
class ViewStep:
    """One view: the operator, its arguments after the tensor, and the number of the result where there are several."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    item: int | None = None
    in_place: Any = None  # the operator that made the tensor itself look so


def replayed(tensor: Any, steps: tuple[ViewStep, ...]) -> Any:
    """A view of a tensor by the steps that led to it."""
    for step in steps:
        if step.op._opname in _IDENTITIES:
            continue
        tensor = step.op(tensor, *step.args, **step.kwargs)
        tensor = tensor if step.item is None else tensor[step.item]
    return tensor


@dataclass(eq=False)
class _Cell:
    """A tensor of the traced program: memory of its own, or a view of another cell."""

    value: Any  # the node that holds its elements
    parent: _Cell | None = None
    step: ViewStep | None = None
    children: list[_Cell] = field(default_factory=list)
    version: int = 0  # of memory
    seen: int = 0  # the version of the memory that `value` shows
    written: set[bool] = field(default_factory=set)  # whether the backward wrote, or what is before it

    def root(self) -> _Cell:
        cell = self
        while cell.parent is not None:
            cell = cell.parent
        return cell

    def steps(self) -> tuple[ViewStep, ...]:
        found: list[ViewStep] = []
        cell: _Cell = self
        while cell.parent is not None and cell.step is not None:
            found.append(cell.step)
            cell = cell.parent
        return tuple(reversed(found))


@dataclass
class Functional:
    """Work that a functional graph leaves to its caller."""

    changed: list[int]  # placeholders whose new values are the first results
    looks: dict[int, tuple[ViewStep, ...]]  # placeholders that are to look otherwise afterwards
    aliases: dict[int, tuple[int, tuple[ViewStep, ...]]]  # results that are views of placeholders: (placeholder, steps)


class _Rewrite:
    """One graph on its way to a functional one."""

    def __init__(self, module: GraphModule) -> None:
        self.graph = module.graph
        self.inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.cells: dict[Node, _Cell] = {}
        self.memories: dict[Node, _Cell] = {}  # of placeholders
        self.outside: dict[Any, _Cell] = {}  # of tensors that the graph reads from its module
        self.spots: list[Node] = []  # before which new nodes go
        self.replaced: list[Node] = []  # nodes that nothing reads any more
        self.numbers = SizedNodes(self.graph, self._sized)

    # ***** nodes *****

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A new node, with the value that stands for it."""
        with self.graph.inserting_before(self.spots[-1]):
            args, kwargs = tree_map(self._sized, args), tree_map(self._sized, kwargs)
            node = self.graph.create_node(
                "call_function", target, args, kwargs,
                name="getitem" if target is operator.getitem else self.graph._target_to_str(target._opname),
            )  # fmt: skip
        if BACKWARD in self.spots[-1].meta:
            node.meta[BACKWARD] = True
        given, named = map_arg(args, _value_of), map_arg(kwargs, _value_of)
        with rushlight.no_grad():
            node.meta["val"] = target(*given, **named)
        return node

    def _sized(self, value: Any) -> Any:
        """The node of a symbolic size; other values as they are."""
        return self.numbers.node(value) if isinstance(value, (SymInt, SymFloat)) else value

    def view(self, source: Node, step: ViewStep) -> Node:
        """A view of a node's value."""
        made = self.call(step.op, source, *step.args, **step.kwargs)
        return made if step.item is None else self.call(operator.getitem, made, step.item)

    # ***** reading and writing *****

    def read(self, cell: _Cell) -> Node:
        """The node that holds the elements of a cell now."""
        root = cell.root()
        if cell.parent is not None and cell.seen != root.version:
            assert cell.step is not None
            cell.value = self.view(self.read(cell.parent), cell.step)
            cell.seen = root.version
        return cell.value

    def write(self, cell: _Cell, value: Node) -> None:
        """Let a cell have a new value, and what it is a view of."""
        if cell.parent is None:
            cell.version += 1
            cell.written.add(BACKWARD in self.spots[-1].meta)
        else:
            assert cell.step is not None
            self.write(cell.parent, _INVERSES.of(self, cell.step, self.read(cell.parent), value))
            cell.seen = cell.root().version
        cell.value = value

    # ***** the nodes of the traced graph *****

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if node.op == "output":
                continue
            self.spots[:] = [node]
            if node.op != "call_function":
                self.cells[node] = _Cell(node)
                if node.op == "get_attr":
                    self.cells[node] = self.outside.setdefault(node.target, self.cells[node])
                elif node.op == "placeholder":
                    self.memories[node] = self.cells[node]
                    if isinstance(node.meta.get("val"), Tensor) and not str(node.target).startswith("tangents"):
                        self.numbers.note_tensor(node.meta["val"], node)
                    elif isinstance(node.meta.get("val"), SymInt):
                        self.numbers.stand(node.meta["val"], node)
                continue
            self._node(node)
            if is_number(node):
                self.numbers.stand(node.meta["val"], node)
            elif isinstance(node.meta.get("val"), Tensor) and node not in self.replaced:
                self.numbers.note_tensor(node.meta["val"], node)

    def _node(self, node: Node) -> None:
        op: Any = node.target
        source = node.args[0] if node.args and isinstance(node.args[0], Node) else None
        if op is operator.getitem:
            self._item(node)
            return
        if is_number(node) or not hasattr(op, "_opname"):
            # A size, or control flow: its graphs change nothing that they are given.
            self._map(node)
            self.cells[node] = _Cell(node)
            return
        name = op._opname
        step = ViewStep(op, tuple(node.args[1:]), dict(node.kwargs)) if source is not None else None
        if source is not None and name in _LOOKS:
            self.replaced.append(node)
            self.cells[node] = self._looks(self.cells[source], node)
        elif source is not None and op.in_place:
            self.replaced.append(node)
            self.cells[node] = self.cells[source]
            self._in_place(node, self.cells[source])
        elif source is not None and step is not None and (op.is_view or name in _IDENTITIES):
            parent = self.cells[source]
            self._map(node)
            if isinstance(node.meta.get("val"), (tuple, list)):
                self.cells[node] = _Cell(node, parent, step, seen=parent.root().version)  # its items are the views
            else:
                self.cells[node] = self._child(parent, step, node)
        else:
            if op.form is not None and op.form.writes_out:
                raise NotImplementedError(f"aot_function: {op} writes into a tensor that is given as out")
            if op.form is None and any(a.written for a in op._schema.arguments):
                raise NotImplementedError(f"aot_function: {op} changes its arguments in place")
            self._map(node)
            if name == "_unsafe_view" and getattr(source.target, "_opname", "") in ("bmm", "mm", "mv"):  # type: ignore[union-attr]
                node.target = rushlight.ops.aten.view.default
            self.cells[node] = _Cell(node)

    def _child(self, parent: _Cell, step: ViewStep, value: Node) -> _Cell:
        cell = _Cell(value, parent, step, seen=parent.root().version)
        parent.children.append(cell)
        return cell

    def _item(self, node: Node) -> None:
        source: Any = node.args[0]
        held, number = self.cells[source], node.args[1]
        node.args = (held.value, number)
        if held.parent is None or held.step is None:
            self.cells[node] = _Cell(node)
        else:
            step = ViewStep(held.step.op, held.step.args, held.step.kwargs, number)
            self.cells[node] = self._child(held.parent, step, node)

    def _map(self, node: Node) -> None:
        """Let a node read what its arguments hold now."""
        node.args = map_arg(node.args, lambda n: self.read(self.cells[n]))
        node.kwargs = map_arg(node.kwargs, lambda n: self.read(self.cells[n]))

    def _in_place(self, node: Node, cell: _Cell) -> None:
        """The operator that gives a new value, in the place of one that changes its first argument."""
        target: Any = node.target
        if target._opname in ("resize_", "resize_as_", "set_"):
            raise NotImplementedError(f"aot_function: {target} changes how much memory a tensor has")
        full = _OTHERWISE.get(
            f"{target._opname}.{target._overloadname}", f"{target._opname[:-1]}.{target._overloadname}"
        )
        packet, _, overload = full.partition(".")
        found = getattr(getattr(rushlight.ops.aten, packet, None), overload, None)
        if found is None:
            raise NotImplementedError(f"aot_function: {target} has no form that gives a new value")
        before = self.read(cell)
        self._map(node)
        if target._opname == "copy_" and _same_kind(node.args[1], before):
            self.write(cell, node.args[1])  # the other tensor is the new value
            return
        made = self.call(found, *node.args, **node.kwargs)
        if made.meta["val"].dtype is not before.meta["val"].dtype:
            made = self.call(rushlight.ops.aten._to_copy.default, made, dtype=before.meta["val"].dtype)
        self.write(cell, made)

    def _looks(self, cell: _Cell, node: Node) -> _Cell:
        """A cell whose tensor looks otherwise from now on: it becomes a view of what it was."""
        target: Any = node.target
        full = _LOOKS[target._opname]
        packet, _, overload = full.partition(".")
        plain = getattr(getattr(rushlight.ops.aten, packet), overload or target._overloadname)
        inner = _Cell(cell.value, cell.parent, cell.step, cell.children, cell.version, cell.seen)
        for child in inner.children:
            child.parent = inner
        if inner.parent is not None:
            inner.parent.children.append(inner)
        for place, memory in self.memories.items():
            if memory is cell:
                self.memories[place] = inner
        step = ViewStep(plain, tuple(node.args[1:]), dict(node.kwargs), in_place=target)
        cell.parent, cell.step, cell.children = inner, step, []
        cell.value, cell.seen = self.view(self.read(inner), step), inner.root().version
        return cell

    # ***** results *****

    def finish(self) -> Functional:
        output = self.graph.output_node()
        self.spots[:] = [output]
        flat: list[Any] = list(output.args[0])
        aliases: dict[int, tuple[int, tuple[ViewStep, ...]]] = {}
        roots = {id(cell): self.inputs.index(place) for place, cell in self.memories.items()}
        results = []
        for number, value in enumerate(flat):
            if not isinstance(value, Node):
                results.append(value)
                continue
            cell = self.cells[value]
            root = cell.root()
            steps = cell.steps()
            if id(root) in roots and not _asks_elements(steps):
                aliases[number] = roots[id(root)], steps
            results.append(self.read(cell))
        changed = [p for p in self.inputs if self.memories[p].version]
        looks = {
            self.inputs.index(p): self.cells[p].steps() for p in self.inputs if self.cells[p] is not self.memories[p]
        }
        output.args = ((*[self.memories[p].value for p in changed], *results),)
        for name, cell in self.outside.items():
            if cell.root().version:
                self._write_back(name, cell.root())
        for node in reversed(self.replaced):
            self.graph.erase_node(node)
        return Functional([self.inputs.index(p) for p in changed], looks, aliases)

    def _write_back(self, name: Any, cell: _Cell) -> None:
        """Let a tensor from outside have its new elements at the end of the graph that computes them."""
        if len(cell.written) > 1:
            raise NotImplementedError(f"aot_function: forward and backward both change {name}, a tensor from outside")
        with self.graph.inserting_before(self.spots[-1]):
            node = self.graph.create_node("get_attr", name)
            made = self.graph.call_function(rushlight.ops.aten.copy_.default, (node, cell.value))
        for each in (node, made):
            each.meta["val"] = cell.value.meta["val"]
            if True in cell.written:
                each.meta[BACKWARD] = True


def _asks_elements(steps: Sequence[ViewStep]) -> bool:
    """Whether views have sizes that the graph reads of a tensor: nobody else knows them, and can make the views anew."""
    return any(isinstance(x, Node) for x in tree_flatten([(step.args, step.kwargs) for step in steps])[0])


def _same_kind(value: Any, other: Node) -> bool:
    """Whether a node gives a tensor of the same shape, dtype and device as another."""
    one, two = value.meta.get("val") if isinstance(value, Node) else None, other.meta["val"]
    return (
        isinstance(one, Tensor)
        and one.dtype is two.dtype
        and one.device == two.device
        and one.dim() == two.dim()
        and all(a is b or not isinstance(a, SymInt) and a == b for a, b in zip(one.shape, two.shape, strict=True))
    )


def _value_of(node: Node) -> Any:
    return node.meta["val"]


class _Inverses:
    """For each view, the base with another value in the place that the view shows."""

    def of(self, rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
        name = step.op._opname
        rule: Callable[..., Node] | None = getattr(self, name.strip("_"), None)
        if name in _IDENTITIES:
            return value
        if rule is None:
            raise NotImplementedError(f"aot_function: a change in place of a tensor that {step.op} gave")
        return rule(rewrite, step, base, value)

    @staticmethod
    def _scatter(name: str) -> Callable[..., Node]:
        def rule(rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
            return rewrite.call(getattr(rushlight.ops.aten, name).default, base, value, *step.args, **step.kwargs)

        return staticmethod(rule)

    select = _scatter("select_scatter")
    slice = _scatter("slice_scatter")
    diagonal = _scatter("diagonal_scatter")
    as_strided = _scatter("as_strided_scatter")

    @staticmethod
    def _again(rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
        return rewrite.call(step.op, value, *step.args, **step.kwargs)

    t = transpose = conj = neg_view = _again

    @staticmethod
    def permute(rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
        dims = [d % len(step.args[0]) for d in step.args[0]]
        return rewrite.call(step.op, value, [dims.index(d) for d in range(len(dims))])

    @staticmethod
    def _reshaped(rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
        aten, shape = rushlight.ops.aten, list(base.meta["val"].shape)
        if not value.meta["val"].is_contiguous():
            value = rewrite.call(aten.clone.default, value, memory_format=rushlight.contiguous_format)
        return rewrite.call(aten.view.default, value, shape)

    unsafe_view = reshape_alias = squeeze = unsqueeze = _reshaped

    @staticmethod
    def view(rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
        if step.op._overloadname == "dtype":
            return rewrite.call(step.op, value, base.meta["val"].dtype)
        return _Inverses._reshaped(rewrite, step, base, value)

    @staticmethod
    def view_as_real(rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
        return rewrite.call(rushlight.ops.aten.view_as_complex.default, value)

    @staticmethod
    def view_as_complex(rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
        return rewrite.call(rushlight.ops.aten.view_as_real.default, value)

    @staticmethod
    def unbind(rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
        dim = step.args[0] if step.args else step.kwargs.get("dim", 0)
        return rewrite.call(rushlight.ops.aten.select_scatter.default, base, value, dim, step.item)

    @staticmethod
    def split(rewrite: _Rewrite, step: ViewStep, base: Node, value: Node) -> Node:
        size, item = step.args[0], step.item or 0
        dim = step.args[1] if len(step.args) > 1 else step.kwargs.get("dim", 0)
        start = item * size if isinstance(size, int) else sum(size[:item])
        end = start + value.meta["val"].shape[dim]
        return rewrite.call(rushlight.ops.aten.slice_scatter.default, base, value, dim, start, end)

    split_with_sizes = split


_INVERSES = _Inverses()


def _named_anew(graph: Any) -> None:
    """Give operators the names that they would have if they had been written in this order."""
    space = Namespace()
    items: dict[tuple[Node, Any], str] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            space.create_name(node.name, node)
        elif node.target is operator.getitem and (node.args[0], node.args[1]) in items:
            node.name = items[node.args[0], node.args[1]]
        else:
            plain = not hasattr(node.target, "_opname") or node.target._opname.startswith("sym_")
            target = node.target if plain else node.target._opname
            base = "getitem" if node.target is operator.getitem else graph._target_to_str(target)
            node.name = space.create_name(base, node)
            made = node.meta.get("val")
            for place in range(len(made) if isinstance(made, (tuple, list)) else 0):
                items[node, place] = space.create_name("getitem", None)
    graph._graph_namespace = space


def functionalized(module: GraphModule) -> Functional:
    """Rewrite a graph so that nothing is changed in place; new values of placeholders become its first results.

    NotImplementedError for a change of a view through which nothing can be written back, and for operators without a
    form that gives a new value.
    """
    rewrite = _Rewrite(module)
    rewrite.run()
    found = rewrite.finish()
    _named_anew(module.graph)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return found
