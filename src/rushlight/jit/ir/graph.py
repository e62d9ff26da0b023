"""The intermediate representation: graphs of nodes in blocks, in single assignment form.

Control flow is nodes with blocks: `prim::If` has two, `prim::Loop` one. Graphs print as PyTorch's do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from rushlight._interface.base import LazyModule
from rushlight.jit.ir.types import BOOL, INT, NONE, TENSOR, Type

copying: Any = LazyModule("rushlight.jit.ir.copying")

__all__ = ["Block", "Graph", "Items", "Location", "Node", "Use", "Uses", "Value", "constant_text", "number_text"]


class Location:
    """A part of a source text: for comments in graphs, and for errors."""

    __slots__ = ("end_column", "source", "start_column", "line")

    def __init__(self, source: Any, line: int, start_column: int, end_column: int) -> None:
        self.source, self.line, self.start_column, self.end_column = source, line, start_column, end_column

    def __str__(self) -> str:
        if self.source is None or not self.source.filename:
            return ""
        return f"{self.source.filename}:{self.source.first_line + self.line - 1}:{self.source.shown(self.start_column)}"


_T = TypeVar("_T")


class Items(list[_T]):
    """Values or nodes; a call gives an iterator, as programs written for PyTorch ask (`node.inputs()`)."""

    __slots__ = ()

    def __call__(self) -> Iterator[_T]:
        return iter(self)


class Use(tuple[Any, int]):
    """A place where a value is used: the user, and which of its inputs it is."""

    __slots__ = ()

    @property
    def user(self) -> Any:
        """The node."""
        return self[0]

    @property
    def offset(self) -> int:
        """Which of the inputs."""
        return self[1]


class Uses(list[tuple[Any, int]]):
    """The uses of a value; a call gives them, as programs written for PyTorch ask (`value.uses()`)."""

    __slots__ = ()

    def __call__(self) -> list[Use]:
        return [Use(each) for each in self]


class Value:
    """A result of a node, or an input of a block or a graph."""

    __slots__ = ("graph", "name", "node", "type", "unique", "uses")

    def __init__(self, graph: Graph, node: Node | None, kind: Type, name: str = "") -> None:
        self.graph, self.node, self.type = graph, node, kind
        self.unique = graph.next_unique
        graph.next_unique += 1
        self.name = ""
        self.uses: Uses = Uses()
        if name:
            self.set_name(name)

    def set_name(self, name: str) -> Value:
        """Take a name; one that is used gets a number behind it."""
        self.graph.rename(self, name)
        return self

    def unplaced(self) -> Value:
        """Itself: what makes it stands at no place of the source."""
        if self.node is not None:
            self.node.location = None
        return self

    def debugName(self) -> str:
        """The name, or the number where it has none."""
        return self.name or str(self.unique)

    def toIValue(self) -> Any:
        """The value of a constant; None for other values."""
        return self.node.attributes.get("value") if self.node is not None else None

    def setDebugName(self, name: str) -> Value:
        """Take a name, under PyTorch's name for it."""
        return self.set_name(name)

    def setType(self, kind: Type) -> Value:
        """Take another type."""
        self.type = kind
        return self

    def setTypeAs(self, other: Value) -> Value:
        """Take the type of another value."""
        return self.setType(other.type)

    def requiresGrad(self) -> bool:
        """Whether a trace saw a tensor that wants gradients."""
        return bool(self.type.requires_grad())

    def replaceAllUsesWith(self, other: Value) -> None:
        """Use `other` wherever this is used."""
        self.replace_all(other)

    def isCompleteTensor(self) -> bool:
        """Whether it is a tensor of which a trace saw dtype, sizes and strides."""
        return self.type.sizes() is not None

    def __repr__(self) -> str:
        return f"{self.debugName()} defined in (%{self.debugName()} : {self.type})"

    def replace_all(self, other: Value) -> None:
        """Use `other` wherever this is used."""
        if other is self:
            return
        for user, at in self.uses:
            user.inputs[at] = other
            other.uses.append((user, at))
        self.uses = Uses()


class Returned:
    """The results of a block, as a user of values."""

    __slots__ = ("block", "inputs")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.inputs: Items[Value] = Items()


class Node:
    """An operation: its kind (`aten::add`), inputs, outputs, attributes, and blocks."""

    __slots__ = ("attributes", "block", "blocks", "graph", "inputs", "kind_", "location", "outputs", "schema", "scope")

    def __init__(self, graph: Graph, kind: str, inputs: Sequence[Value] = (), types: Sequence[Type] = ()) -> None:
        self.graph, self.kind_ = graph, kind
        self.inputs: Items[Value] = Items()
        self.attributes: dict[str, Any] = {}
        self.block: Block | None = None
        self.blocks: Items[Block] = Items()
        self.location: Location | None = None
        self.schema: Any = None
        self.scope = ""
        self.outputs = Items(Value(graph, self, t) for t in types)
        for value in inputs:
            self.add_input(value)

    def add_input(self, value: Value) -> None:
        """One more input."""
        value.uses.append((self, len(self.inputs)))
        self.inputs.append(value)

    def set_input(self, at: int, value: Value) -> None:
        """Another value for an input."""
        self.inputs[at].uses.remove((self, at))
        self.inputs[at] = value
        value.uses.append((self, at))

    def remove_inputs(self) -> None:
        """No inputs any longer."""
        for at, value in enumerate(self.inputs):
            value.uses.remove((self, at))
        self.inputs = Items()

    def remove_input(self, at: int) -> None:
        """One input less."""
        values = [v for i, v in enumerate(self.inputs) if i != at]
        self.remove_inputs()
        for value in values:
            self.add_input(value)

    def add_output(self, kind: Type, name: str = "") -> Value:
        """One more output."""
        value = Value(self.graph, self, kind, name)
        self.outputs.append(value)
        return value

    def remove_output(self, at: int) -> None:
        """One output less; it must have no uses."""
        assert not self.outputs[at].uses
        self.graph.forget(self.outputs.pop(at))

    def add_block(self) -> Block:
        """One more block."""
        block = Block(self.graph, self)
        self.blocks.append(block)
        return block

    def destroy(self) -> None:
        """Take it out of its block; its outputs have no uses."""
        for block in self.blocks:
            block.clear()
        self.remove_inputs()
        for value in self.outputs:
            self.graph.forget(value)
        if self.block is not None:
            self.block.nodes.remove(self)
            self.block = None

    def insert_before(self, other: Node) -> Node:
        """Stand in front of another node."""
        block = other.block
        assert block is not None
        block.nodes.insert(block.nodes.index(other), self)
        self.block = block
        return self

    def insert_after(self, other: Node) -> Node:
        """Stand behind another node."""
        block = other.block
        assert block is not None
        block.nodes.insert(block.nodes.index(other) + 1, self)
        self.block = block
        return self

    def move_before(self, other: Node) -> None:
        """Leave the place, and stand in front of another node."""
        assert self.block is not None
        self.block.nodes.remove(self)
        self.insert_before(other)

    def output(self) -> Value:
        """The only output."""
        return self.outputs[0]

    # ***** under PyTorch's names *****

    def kind(self) -> str:
        """The kind, such as `aten::add`."""
        return self.kind_

    def __call__(self) -> Node:
        """Itself: programs written for PyTorch ask a value for its `node()`."""
        return self

    def input(self) -> Value:
        """The only input."""
        return self.inputs[0]

    def inputsAt(self, at: int) -> Value:
        """One input."""
        return self.inputs[at]

    def outputsAt(self, at: int) -> Value:
        """One output."""
        return self.outputs[at]

    def namedInput(self, name: str) -> Value:
        """The input for an argument of the schema; RuntimeError for a name that it does not have."""
        for argument, value in zip(getattr(self.schema, "arguments", ()), self.inputs, strict=False):
            if argument.name == name:
                return value
        raise RuntimeError(f"{self.kind_} has no argument '{name}'")

    def addInput(self, value: Value) -> Value:
        """One more input, which is given back."""
        self.add_input(value)
        return value

    def addOutput(self) -> Value:
        """One more output, a tensor."""
        return self.add_output(TENSOR)

    def addBlock(self) -> Block:
        """One more block."""
        return self.add_block()

    def removeInput(self, at: int) -> None:
        """One input less."""
        self.remove_input(at)

    def removeAllInputs(self) -> None:
        """No inputs any longer."""
        self.remove_inputs()

    def replaceInput(self, at: int, value: Value) -> Value:
        """Another value for an input; the one before is given back."""
        before = self.inputs[at]
        self.set_input(at, value)
        return before

    def replaceInputWith(self, old: Value, new: Value) -> None:
        """Another value wherever one is an input."""
        for at, value in enumerate(list(self.inputs)):
            if value is old:
                self.set_input(at, new)

    def replaceAllUsesWith(self, other: Node) -> None:
        """Use the outputs of another node for its own."""
        for old, new in zip(self.outputs, other.outputs, strict=True):
            old.replace_all(new)

    def eraseOutput(self, at: int) -> None:
        """One output less; it must have no uses."""
        self.remove_output(at)

    def insertBefore(self, other: Node) -> Node:
        """Stand in front of another node."""
        return self.insert_before(other)

    def insertAfter(self, other: Node) -> Node:
        """Stand behind another node."""
        return self.insert_after(other)

    def moveBefore(self, other: Node) -> None:
        """Leave the place, and stand in front of another node."""
        self.move_before(other)

    def moveAfter(self, other: Node) -> None:
        """Leave the place, and stand behind another node."""
        assert self.block is not None
        self.block.nodes.remove(self)
        self.insert_after(other)

    def hasUses(self) -> bool:
        """Whether an output is used."""
        return any(v.uses for v in self.outputs)

    def hasMultipleOutputs(self) -> bool:
        """Whether there are several outputs."""
        return len(self.outputs) > 1

    def mustBeNone(self) -> bool:
        """Whether it is the constant None."""
        return self.kind_ == "prim::Constant" and self.outputs[0].type == NONE

    def owningBlock(self) -> Block | None:
        """The block in which it stands."""
        return self.block

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        """The first node of a kind in its blocks; None for none."""
        return next(iter(self.findAllNodes(kind, recurse)), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        """The nodes of a kind in its blocks."""
        return [n for block in self.blocks for n in block.findAllNodes(kind, recurse)]

    def copyMetadata(self, other: Node) -> None:
        """Take the place and the scope of another node."""
        self.location, self.scope = other.location, other.scope

    def copyAttributes(self, other: Node) -> Node:
        """Take the attributes of another node."""
        self.attributes = dict(other.attributes)
        return self

    def removeAttribute(self, name: str) -> Node:
        """One attribute less."""
        del self.attributes[name]
        return self

    def kindOf(self, name: str) -> str:
        """Which kind of value an attribute is: `i`, `f`, `s`, `t`, `g`, with an `s` behind it for several."""
        held = self.attributes[name]
        letter = _letter_of(held[0] if isinstance(held, list) and held else held)
        return letter + "s" * isinstance(held, list)

    def _attribute(self, name: str) -> Any:
        if name not in self.attributes:
            raise RuntimeError(f"{self.kind_} has no attribute '{name}'")
        return self.attributes[name]

    def _set_attribute(self, name: str, value: Any) -> Node:
        self.attributes[name] = value
        return self

    i = f = s = t = g = c = z = ty = ival = fs = ss = ts = gs = zs = tys = _attribute
    i_ = f_ = s_ = t_ = g_ = c_ = z_ = ty_ = ival_ = is_ = fs_ = ss_ = ts_ = gs_ = zs_ = tys_ = _set_attribute

    def outputsSize(self) -> int:
        """How many outputs there are."""
        return len(self.outputs)

    def inputsSize(self) -> int:
        """How many inputs there are."""
        return len(self.inputs)

    def attributeNames(self) -> list[str]:
        """The names of the attributes."""
        return list(self.attributes)

    def hasAttribute(self, name: str) -> bool:
        """Whether there is an attribute of this name."""
        return name in self.attributes

    def scopeName(self) -> str:
        """The modules in whose calls a traced node was recorded."""
        return self.scope

    def sourceRange(self) -> str:
        """Where the node was written."""
        return str(self.location) if self.location is not None else ""

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def __getattr__(self, name: str) -> Any:
        if name == "is":  # an attribute of numbers: a word of Python, which no function can be called
            return self._attribute
        raise AttributeError(f"'Node' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return "".join(_node_lines(self, 0))


def _letter_of(value: Any) -> str:
    for python, letter in (
        (bool, "i"),
        (int, "i"),
        (float, "f"),
        (str, "s"),
        (complex, "c"),
        (Graph, "g"),
        (Type, "ty"),
    ):
        if isinstance(value, python):
            return letter
    return "t" if hasattr(value, "stride") else "ival"


class Block:
    """A sequence of nodes with parameters (`inputs`) and results (`returned.inputs`)."""

    __slots__ = ("graph", "inputs", "nodes", "owner", "returned")

    def __init__(self, graph: Graph, owner: Node | None) -> None:
        self.graph, self.owner = graph, owner
        self.inputs: Items[Value] = Items()
        self.nodes: Items[Node] = Items()
        self.returned = Returned(self)

    @property
    def outputs(self) -> Items[Value]:
        """The results."""
        return self.returned.inputs

    def add_input(self, kind: Type, name: str = "", at: int | None = None) -> Value:
        """One more parameter."""
        value = Value(self.graph, None, kind, name)
        self.inputs.insert(len(self.inputs) if at is None else at, value)
        return value

    def add_result(self, value: Value) -> None:
        """One more result."""
        value.uses.append((self.returned, len(self.returned.inputs)))
        self.returned.inputs.append(value)

    def set_results(self, values: Sequence[Value]) -> None:
        """Other results."""
        for at, value in enumerate(self.returned.inputs):
            value.uses.remove((self.returned, at))
        self.returned.inputs = Items()
        for value in values:
            self.add_result(value)

    def remove_result(self, at: int) -> None:
        """One result less."""
        self.set_results([v for i, v in enumerate(self.outputs) if i != at])

    def clear(self) -> None:
        """Destroy all nodes."""
        self.set_results([])
        for node in reversed(list(self.nodes)):
            for value in node.outputs:
                value.uses = Uses()
            node.destroy()

    def append(self, node: Node) -> Node:
        """Put a node at the end."""
        node.block = self
        self.nodes.append(node)
        return node

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        """The first node of a kind; None for none."""
        return next(iter(self.findAllNodes(kind, recurse)), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        """The nodes of a kind."""
        return [n for n in (self.all_nodes() if recurse else self.nodes) if n.kind_ == kind]

    def owningNode(self) -> Node | None:
        """The node whose block it is; None for that of a graph."""
        return self.owner

    def returnNode(self) -> Returned:
        """The results, as a user of values."""
        return self.returned

    def registerOutput(self, value: Value) -> int:
        """One more result; its place."""
        self.add_result(value)
        return len(self.outputs) - 1

    def addInputToBlock(self) -> Value:
        """One more parameter, a tensor."""
        return self.add_input(TENSOR)

    def all_nodes(self) -> Iterator[Node]:
        """The nodes, and those of their blocks."""
        for node in list(self.nodes):
            yield node
            for block in node.blocks:
                yield from block.all_nodes()


# Nodes of scripted functions that stand at no place of the source.
_UNPLACED = frozenset((
    "prim::ListConstruct", "prim::TupleConstruct", "prim::DictConstruct", "prim::TupleUnpack", "prim::ListUnpack", "prim::unchecked_cast",
    "prim::GetAttr",
))  # fmt: skip


class Graph:
    """A graph: a block whose parameters are the inputs."""

    def __init__(self) -> None:
        self.next_unique = 0
        self.names: dict[str, Value] = {}
        self.suffix: dict[str, int] = {}
        self.block = Block(self, None)
        self.at: Block = self.block
        self.before: Node | None = None
        self.location: Location | None = None
        self.literals: dict[tuple[type, object], Value] = {}

    # ***** names *****

    def rename(self, value: Value, name: str) -> None:
        """Give a value a name that no other value has."""
        if not name or not _is_name(name):
            raise ValueError(f"Invalid name: '{name}'")
        if value.name == name:
            return
        if value.name:
            del self.names[value.name]
            value.name = ""
        if name in self.names:
            # The newcomer takes the name, its owner the next free one with a number.
            base, _, number = name.rpartition(".")
            at = 1
            if base and number.isdigit():
                at = int(number)
            else:
                base = name
            at = max(at, self.suffix.get(base, -1) + 1)
            while f"{base}.{at}" in self.names:
                at += 1
            self.suffix[base] = at + 1
            other = self.names.pop(name)
            other.name = ""
            self.rename(other, f"{base}.{at}")
        value.name = name
        self.names[name] = value

    def load(self, name: str, kind: Type) -> Node:
        """A node that reads a variable; its result takes the name, so that numbers behind names are PyTorch's."""
        node = self.create("prim::Load", (), (kind,))
        node.attributes["name"] = name
        if _is_name(name) and not name.startswith("$"):
            node.outputs[0].set_name(name)
        return node

    def forget(self, value: Value) -> None:
        """Free the name of a value."""
        if value.name and self.names.get(value.name) is value:
            del self.names[value.name]
        value.name = ""

    # ***** building *****

    def insert(self, node: Node) -> Node:
        """Put a node where the graph is being built."""
        if node.location is None and node.kind_ not in _UNPLACED:
            node.location = self.location
        if self.before is not None:
            node.insert_before(self.before)
        else:
            self.at.append(node)
        return node

    def create(self, kind: str, inputs: Sequence[Value] = (), types: Sequence[Type] | int = (TENSOR,)) -> Node:
        """A node that stands nowhere yet; with a number for the types, so many outputs that are tensors."""
        return Node(self, kind, inputs, (TENSOR,) * types if isinstance(types, int) else types)

    def op(self, kind: str, inputs: Sequence[Value], result: Type, **attributes: Any) -> Value:
        """Insert a node with one output, and give that."""
        node = self.create(kind, inputs, (result,))
        node.attributes.update(attributes)
        return self.insert(node).outputs[0]

    def constant(self, value: Any, kind: Type) -> Value:
        """Insert a constant."""
        node = self.create("prim::Constant", (), (kind,))
        if kind != NONE or value is not None:
            node.attributes["value"] = value
        return self.insert(node).outputs[0]

    def literal(self, value: int | float | complex, kind: Type) -> Value:
        """The constant of a number in the source: one for all places, at the head of the graph as PyTorch has it."""
        key = type(value), str(value)
        found = self.literals.get(key)
        if found is None:
            node = self.create("prim::Constant", (), (kind,))
            node.attributes["value"], node.location = value, self.location
            if self.block.nodes:
                node.insert_before(self.block.nodes[0])
            else:
                self.block.append(node)
            found = self.literals[key] = node.outputs[0]
        return found

    def skip_number(self) -> None:
        """Leave out one number of a value: PyTorch made a value here that nothing uses."""
        self.next_unique += 1

    @property
    def inputs_list(self) -> list[Value]:
        """The inputs."""
        return self.block.inputs

    # ***** under PyTorch's names *****

    def inputs(self) -> Iterator[Value]:
        """The inputs."""
        return iter(self.block.inputs)

    def outputs(self) -> Iterator[Value]:
        """The results."""
        return iter(self.block.outputs)

    def nodes(self) -> Iterator[Node]:
        """The nodes, in order."""
        return iter(list(self.block.nodes))

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        """The first node of a kind; None for none."""
        return self.block.findNode(kind, recurse)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        """The nodes of a kind."""
        return self.block.findAllNodes(kind, recurse)

    def return_node(self) -> Returned:
        """The results, as a user of values."""
        return self.block.returned

    def addInput(self, name: str = "") -> Value:
        """One more input, a tensor."""
        return self.block.add_input(TENSOR, name)

    def eraseInput(self, at: int) -> None:
        """One input less; it must have no uses."""
        assert not self.block.inputs[at].uses, "an input that is used cannot be taken away"
        self.forget(self.block.inputs.pop(at))

    def registerOutput(self, value: Value) -> int:
        """One more result; its place."""
        return self.block.registerOutput(value)

    def eraseOutput(self, at: int) -> None:
        """One result less."""
        self.block.remove_result(at)

    def permuteInputs(self, order: Sequence[int]) -> None:
        """The inputs in another order."""
        if sorted(order) != list(range(len(self.block.inputs))):
            raise RuntimeError(f"{list(order)} is no order of {len(self.block.inputs)} inputs")
        self.block.inputs = Items(self.block.inputs[i] for i in order)

    def appendNode(self, node: Node) -> Node:
        """Put a node at the end."""
        return self.block.append(node)

    def prependNode(self, node: Node) -> Node:
        """Put a node at the beginning."""
        node.block = self.block
        self.block.nodes.insert(0, node)
        return node

    def insertNode(self, node: Node) -> Node:
        """Put a node where the graph is being built."""
        return self.insert(node)

    def insertConstant(self, value: Any) -> Value:
        """Insert a constant where the graph is being built; TypeError for a value that has no type."""
        return self.constant(value, copying.type_of(value))

    def insertPoint(self) -> Any:
        """The node in front of which the graph is being built; the results of the block for its end."""
        return self.before if self.before is not None else self.at.returned

    def setInsertPoint(self, place: Node | Block) -> None:
        """Build in front of a node, or at the end of a block."""
        if isinstance(place, Block):
            self.at, self.before = place, None
        elif isinstance(place, Returned):
            self.at, self.before = place.block, None
        else:
            assert place.block is not None
            self.at, self.before = place.block, place

    @contextmanager
    def insert_point_guard(self, place: Node | Block) -> Iterator[None]:
        """A context in which the graph is built in front of a node, or at the end of a block."""
        at, before = self.at, self.before
        self.setInsertPoint(place)
        try:
            yield
        finally:
            self.at, self.before = at, before

    def createClone(self, node: Node, change: Callable[[Value], Value]) -> Node:
        """A copy of a node whose inputs are given by a function; it stands nowhere yet."""
        return copying.copy_node(node, self, {v: change(v) for v in node.inputs})

    def insertGraph(self, callee: Graph, inputs: Sequence[Value]) -> list[Value]:
        """Copy the nodes of another graph to where the graph is being built; the values of its results."""
        values = dict(zip(callee.block.inputs, inputs, strict=True))
        for node in callee.block.nodes:
            self.insert(copying.copy_node(node, self, values))
        return [values.get(v, v) for v in callee.block.outputs]

    def makeMultiOutputIntoTuple(self) -> None:
        """Several results become one tuple."""
        values = list(self.block.outputs)
        if len(values) == 1:
            return
        node = self.block.append(
            self.create("prim::TupleConstruct", values, (Type("Tuple", [v.type for v in values]),))
        )
        self.block.set_results([node.outputs[0]])

    def lint(self) -> None:
        """RuntimeError for a graph in which a value is used before it is defined."""
        _lint(self.block, set())

    def copy(self) -> Graph:
        """A graph of new nodes with the same meaning."""
        return copying.copy_graph(self)

    def str(self, print_source_ranges: bool = True) -> str:
        """The text, with or without the places in the source."""
        return graph_text(self, print_source_ranges)

    def __str__(self) -> str:  # type: ignore[valid-type]
        return graph_text(self)

    __repr__ = __str__


def _lint(block: Block, known: set[Value]) -> None:
    known = {*known, *block.inputs}
    for node in block.nodes:
        missing = [v.debugName() for v in node.inputs if v not in known]
        if missing:
            raise RuntimeError(f"%{missing[0]} is used before it is defined, in {node}")
        for inner in node.blocks:
            _lint(inner, known)
        known.update(node.outputs)
    missing = [v.debugName() for v in block.outputs if v not in known]
    if missing:
        raise RuntimeError(f"%{missing[0]} is a result that is not defined")


def _is_name(name: str) -> bool:
    return not name.isdigit()


# ***** printing *****

_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\v": "\\v",
    "'": "\\'",
}


def string_text(value: str) -> str:
    """A string as graphs and code print it."""
    out = []
    for byte in value.encode("utf-8", "surrogatepass"):
        letter = chr(byte)
        out.append(_ESCAPES.get(letter) or (letter if 32 <= byte < 127 else f"\\{byte:03o}"))
    return '"' + "".join(out) + '"'


def float_text(value: float) -> str:
    """A float as graphs and code print it."""
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    text = f"{value:.17g}"
    return text if any(c in text for c in ".e") else text + "."


def constant_text(value: Any, kind: Type) -> str:
    """The value of a constant, as graphs print it."""
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, bool):
        return str(int(value)) if kind == BOOL else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, complex):
        return f"{value.real:g}{value.imag:+g}j"
    if kind.name == "Device":
        return string_text(str(value))
    if kind == TENSOR or type(value).__name__ == "Tensor":
        return "<Tensor>" if value.numel() != 1 or value.dim() else "{" + _item_text(value) + "}"
    if isinstance(value, (list, tuple)):
        shown = ", ".join(_element_text(v) for v in value)
        if isinstance(value, list):
            return f"[{shown}]"
        return f"({shown}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        pairs = ", ".join(f"{_element_text(k)}: {_element_text(v)}" for k, v in value.items())
        return f"annotate({kind.annotation}, {{{pairs}}})"
    return f"annotate({kind.annotation}, None)" if value is None else f"{value}"


def number_text(value: float) -> str:
    """A float as graphs and `str` of scripts give it: whole ones as `3.`, others with all their digits."""
    if value != value or value in (float("inf"), float("-inf")):
        return float_text(value)
    if value == int(value) and abs(value) < 1e10:
        return ("-" if float.__repr__(value).startswith("-0") else "") + f"{int(value)}."
    return f"{value:.17g}"


def _element_text(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, bool):
        return str(value)
    return constant_text(value, INT)


def _item_text(value: Any) -> str:
    item = value.item()
    return f"{item:g}" if isinstance(item, float) else str(int(item) if isinstance(item, bool) else item)


def _shown_value(value: Value) -> str:
    return f"%{value.debugName()} : {_type_text(value)}"


def _type_text(value: Value) -> str:
    return value.type.shown


def _head(node: Node) -> str:
    if node.attributes:
        shown = ", ".join(f"{k}={_attribute(v, node)}" for k, v in sorted(node.attributes.items()))
        return f"{node.kind_}[{shown}]"
    return node.kind_


def _attribute(value: Any, node: Node) -> str:
    if isinstance(value, Graph):
        return "<Graph>"
    if node.kind_ == "prim::Constant" and node.outputs:
        kind = node.outputs[0].type
        if kind.name == "Function":
            return f'"{getattr(value, "name", value)}"'
        if kind.kind() == "EnumType":
            return f"{kind.name}.{value.name}"
        return constant_text(value, kind)
    return constant_text(value, INT)


def _node_lines(node: Node, depth: int, ranges: bool = True) -> Iterator[str]:
    pad = "  " * depth
    results = ", ".join(map(_shown_value, node.outputs))
    inputs = ", ".join(f"%{v.debugName()}" for v in node.inputs)
    line = f"{pad}{results} = {_head(node)}({inputs})"
    if node.scope:
        line += f", scope: {node.scope}"
    place = str(node.location) if node.location is not None and ranges else ""
    yield line + (f" # {place}" if place else "") + "\n"
    for at, block in enumerate(node.blocks):
        yield f"{pad}  block{at}({', '.join(map(_shown_value, block.inputs))}):\n"
        for inner in block.nodes:
            yield from _node_lines(inner, depth + 2, ranges)
        yield f"{pad}    -> ({', '.join('%' + v.debugName() for v in block.outputs)})\n"


def graph_text(graph: Graph, ranges: bool = True) -> str:
    """The text of a graph."""
    inputs = ",\n      ".join(map(_shown_value, graph.block.inputs))
    lines = [f"graph({inputs}):\n"]
    for node in graph.block.nodes:
        lines += _node_lines(node, 1, ranges)
    lines.append(f"  return ({', '.join('%' + v.debugName() for v in graph.block.outputs)})\n")
    return "".join(lines)
