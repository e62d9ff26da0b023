"""What is fused with what: a graph becomes groups, each group a kernel (or two), and library calls between them.

Everything that can be computed from an index is recomputed where it is used, not stored.  What is stored: outputs, operands
of library calls, results of scans and scatters, and reductions that are wanted outside of their group.  Nodes are taken in
graph order; each reduction or stored value joins the latest group it fits into, or starts one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._kernels.convolution import places_apart, takes_epilogue
from rushlight._kernels.epilogue import Epilogue, Prologue, epilogue_of, prologue_of, reads_of, stores_of
from rushlight._kernels.groups import Group, Misfit, refine
from rushlight._kernels.indexing import Var
from rushlight._kernels.interleaved import images_last
from rushlight._kernels.loops import Buffer
from rushlight._kernels.nest import COSTS, PIECE, Facts, Target, facts_of
from rushlight._kernels.products import takes_prologues
from rushlight._kernels.pull import Puller, Source, is_trivial, reduced_sizes
from rushlight._kernels.special import prepare
from rushlight._types.layout import (
    channels_last_strides,
    contiguous_strides,
    extent,
    is_contiguous,
    numel,
    view_strides,
)

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node, Value
    from rushlight._types.dtype import DType

__all__ = ["Copy", "Extern", "Schedule", "Special"]

_JUMP = {1: 1, 2: 2}  # how much slower than neighbours elements are read that lie this far apart (else 8)
MANY_ROWS = 16  # rows from which on a row is worth a thread's attention
MANY_READS = 8  # arrays that a value may read before it is stored for its second use
# Library calls that take operands with strides; others get them row-major (LAPACK: any, results too).
STRIDED = frozenset({"dot", "dot_wide", "dot_int", "conv_windows", "attention", "attention_grad", "resample", "resample_back"})
DENSE = {"attention_grad": (4, 5), "resample": (1, 2, 3, 4), "resample_back": (1, 2)}  # what those get row-major nevertheless
# Results that are written with any strides.
PLACED = {"conv_windows": (0,), "attention": (0,), "attention_grad": (0, 1, 2), "resample": (0,), "resample_back": (0,)}
FEW = 8  # rows or columns below which complex products are not made by our own tiles
MAX_STORES = 5  # outputs that one call can allocate


class Special:
    """A scan or a scatter: a kernel of its own form, with its producers fused in.

    `in_place`: the scatter writes into its first operand, so nothing is copied before.
    """

    def __init__(self, node: Node, group: Group, targets: list[Source], in_place: bool = False) -> None:
        self.node, self.group, self.targets, self.in_place = node, group, targets, in_place


class Extern:
    """A library call on values that lie in memory; `epilogue`: what is done to a product in place of storing it; `prologues`: for each operand,
    what makes it while it is packed in place of reading it.

    `params` are to be told to the routine beside those of the node.
    """

    def __init__(self, node: Node, inputs: list[Source], outputs: list[Source], params: dict[str, Any]) -> None:
        self.node, self.inputs, self.outputs, self.params = node, inputs, outputs, params
        self.epilogue: Epilogue | None = None
        self.prologues: list[Prologue | None] = [None] * len(inputs)


class Copy:
    """Brings a temporary into the memory of an input that could not be written at once."""

    def __init__(self, source: Source, target: Source, shape: tuple[int, ...]) -> None:
        self.source, self.target, self.shape = source, target, shape


class Schedule:
    """The groups of a graph in the order they run.

    `buffers` maps every buffer to its size in elements; `inputs` and `args` are those of the graph, `outputs` holds the buffer
    of each output that is not written into an input.
    """

    def __init__(
        self, graph: Graph, layouts: Sequence[Sequence[int] | None], out_strides: Sequence[Sequence[int] | None] | None,
        aliases: dict[int, int], overlaps: dict[int, Sequence[int]], target: Target,
    ) -> None:  # fmt: skip
        self.graph, self.target = graph, target
        self.aliases, self.overlaps = aliases, overlaps
        self.groups: list[Group | Special | Extern | Copy] = []
        self.sizes: dict[Buffer, int] = {}
        self.notes: list[str] = []
        self.placed: dict[int, tuple[Any, int]] = {}  # value -> (where it lies, index of the group that puts it there)
        self.homes: dict[int, int] = {}  # reduction -> index of its group
        self.pending: dict[int, Source] = {}
        self.inputs: list[Buffer] = []
        self.args: list[Any] = []
        self.input_buffers: dict[int, Buffer] = {}
        self._take_inputs(layouts)
        self._images_last = images_last(graph, layouts)
        self.targets = self._targets(out_strides)
        self.outputs = [t.buffer for i, t in enumerate(self.targets) if i not in aliases]

    def _take_inputs(self, layouts: Sequence[Sequence[int] | None]) -> None:
        if len(layouts) != len(self.graph.inputs):
            raise TypeError(f"the graph has {len(self.graph.inputs)} inputs, got {len(layouts)} layouts")
        self.sources: list[Source | None] = []
        for k, (value, strides) in enumerate(zip(self.graph.inputs, layouts, strict=True)):
            if strides is None:
                if value.shape:
                    raise TypeError(f"input {k} has shape {list(value.shape)} and no strides: only 0-d values are handed over as numbers")
                self.placed[id(value)] = ((len(self.args), value.dtype), -1)
                self.args.append(value.dtype)
                self.sources.append(None)
                continue
            buffer = Buffer(f"input{k}", value.dtype, "input")
            self.inputs.append(buffer)
            self.input_buffers[k] = buffer
            self.sizes[buffer] = extent(value.shape, strides)
            source = Source(buffer, strides)
            self.sources.append(source)
            self.placed[id(value)] = (source, -1)

    def _targets(self, out_strides: Sequence[Sequence[int] | None] | None) -> list[Source]:
        targets = []
        for i, value in enumerate(self.graph.outputs):
            alias = self.aliases.get(i)
            if alias is not None:
                source = self.sources[alias]
                given = self.graph.inputs[alias]
                if source is None or given.shape != value.shape or given.dtype is not value.dtype:
                    raise ValueError(f"output {i} cannot be written into input {alias}: shapes or dtypes differ")
                targets.append(source)
                continue
            strides = out_strides[i] if out_strides is not None else None
            targets.append(self.new_buffer(value, f"output{i}", "output", strides))
        return targets

    def new_buffer(self, value: Value, name: str, role: str, strides: Sequence[int] | None = None) -> Source:
        """Memory for a value."""
        if strides is None:
            last = role == "temporary" and self._images_last and len(value.shape) in (4, 5)
            strides = channels_last_strides(value.shape) if last else contiguous_strides(value.shape)
        buffer = Buffer(name, value.dtype, role)
        self.sizes[buffer] = extent(value.shape, strides)
        return Source(buffer, strides)

    # ***** the walk *****

    def run(self) -> Schedule:
        """Form the groups."""
        wanted: dict[int, list[int]] = {}
        for i, value in enumerate(self.graph.outputs):
            wanted.setdefault(id(value), []).append(i)
        self.uses = _count_uses(self.graph)
        self.users = {id(x): node for node in self.graph.nodes for x in node.inputs}
        self._trees: dict[int, tuple[frozenset[int], float, bool]] = {}
        for value in self.graph.inputs:
            self._store_outputs(value, wanted)
        for node in self.graph.nodes:
            self._take_node(node, wanted)
            for value in node.outputs:
                self._store_outputs(value, wanted)
        self._mend_hazards()
        self._fuse_epilogues()
        self._fuse_prologues()
        return self

    def _store_outputs(self, value: Value, wanted: dict[int, list[int]]) -> None:
        for i in wanted.get(id(value), ()):
            target = self.targets[i]
            if numel(value.shape) == 0:
                continue
            held = self.placed.get(id(value))
            if held is not None and held[0] is target:
                continue
            self._store(value, target)

    def _take_node(self, node: Node, wanted: dict[int, list[int]]) -> None:
        kind = node.prim.lower[0]
        if all(numel(v.shape) == 0 for v in node.outputs):
            return
        self._keep_dear(node)
        if kind == "extern":
            self._extern(node, wanted)
        elif kind in ("scan", "scatter", "index_write"):
            self._special(node, wanted)
        elif is_reduction(node):
            self._reduce(node, self._moves(node, wanted))

    # ***** what is better stored than computed again *****

    def _tree(self, value: Value) -> tuple[frozenset[int], float, bool]:
        """What computing an element of `value` takes: the values in memory it reads, the cost, whether a reduction is in it."""
        found = self._trees.get(id(value))
        if found is None:
            node = value.node
            if id(value) in self.placed or node is None or not _is_map(node):
                found = frozenset((id(value),)), 0.0, node is not None and is_reduction(node)
            else:
                parts = [self._tree(x) for x in node.inputs]
                cost = COSTS.get(node.prim.name, 0.3) + sum(p[1] for p in parts)
                found = frozenset[int]().union(*(p[0] for p in parts)), cost, any(p[2] for p in parts)
            self._trees[id(value)] = found
        return found

    def _keep_dear(self, node: Node) -> None:
        """Store values that would else be computed many times over: inputs of overlapping windows and of broadcasts, where they
        are dear, and values that several others use and that read many arrays."""
        name = node.prim.name
        if name in ("window", "broadcast"):
            x, out = node.inputs[0], node.outputs[0]
            size = numel(x.shape)
            if size >= 64 and numel(out.shape) >= 4 * size:
                _, cost, reduces = self._tree(x)
                if name == "broadcast" and _is_spread(x):
                    self._keep(x)
                elif cost >= 8 and not reduces and not self._is_to_spread(out):
                    self._keep(x)
                elif cost >= 4 and reduces and self._from_columns(x):
                    self._keep(x)
        if len(self.graph.nodes) > 24 and _is_map(node):
            value = node.outputs[0]
            if self.uses.get(id(value), 0) >= 2 and len(self._tree(value)[0]) > MANY_READS:
                self._keep(value)

    def _is_to_spread(self, value: Value) -> bool:
        """Whether a value is read by a broadcast alone, which keeps it."""
        return self.uses.get(id(value)) == 1 and self.users[id(value)].prim.name == "broadcast"

    def _from_columns(self, value: Value) -> bool:
        """Whether all reductions that a value needs are of groups that are closed to others (see `_columns`), so that it will be read from memory."""
        todo, seen = [value], set[int]()
        while todo:
            v = todo.pop()
            if id(v) in seen or id(v) in self.placed:
                continue
            seen.add(id(v))
            home = self.homes.get(id(v))
            if home is not None:
                group = self.groups[home]
                if not isinstance(group, Group) or not self._columns(group):
                    return False
            elif v.node is not None:
                todo.extend(v.node.inputs)
        return True

    def _keep(self, value: Value) -> None:
        if id(value) in self.placed:
            return
        self._store(value, self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary"))
        self._trees.clear()
        self.notes.append(f"keeps {_name(value)}, which would be computed again and again")

    # ***** where values lie *****

    def held_for(self, number: int) -> Any:
        """The function that tells the group `number` where values lie."""

        def held(value: Value) -> Any:
            found = self.placed.get(id(value))
            if found is not None:
                where, group = found
                if group < number:
                    return where
                if group > number:
                    raise Misfit("it needs what is made later")
            home = self.homes.get(id(value))
            if home is None:
                node = value.node
                if node is not None and (is_reduction(node) or node.prim.lower[0] in ("extern", "scan", "scatter", "index_write")):
                    raise Misfit("it needs what is made later")
                return None
            if home == number:
                return None
            if home > number:
                raise Misfit("it needs a reduction of a later group")
            source = self.pending.get(id(value))
            if source is None:
                source = self.pending[id(value)] = self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary")
                self._pending_values[id(value)] = value
            return source

        return held

    _pending_values: dict[int, Value] = {}

    def _begin(self) -> None:
        self.pending = {}
        self._pending_values = {}

    def _commit(self) -> None:
        """Store the reductions of other groups that the last addition asked for."""
        for key, source in self.pending.items():
            home = self.homes[key]
            group = self.groups[home]
            assert isinstance(group, Group)
            group.add_store(self._pending_values[key], source)
            self.placed[key] = (source, home)
            self.notes.append(f"group {home}: stores {_name(self._pending_values[key])} for later groups")
        self._begin()

    # ***** stores and reductions *****

    def _store(self, value: Value, target: Source) -> None:
        size = numel(value.shape)

        def fits(group: Group) -> bool:
            stores = sum(len(s.stores) for s in group.stages)
            if stores >= MAX_STORES:
                return False
            if group.reductions:
                return (group.rows >= MANY_ROWS and not self._columns(group)) or size <= 2 * PIECE or size == group.rows
            return group.shape == tuple(s for s in value.shape if s != 1) and bool(self._shares(group, value))

        number = self._join(fits, lambda g: g.add_store(value, target), f"store {_name(value)}")
        if id(value) not in self.placed:
            self.placed[id(value)] = (target, number)

    def _shares(self, group: Group, value: Value) -> bool:
        """Whether a value reads something that the group reads or makes."""
        seen: set[int] = set()
        todo = [value]
        mine = set(map(id, group.values))
        while todo and len(seen) < 64:
            v = todo.pop()
            if id(v) in seen:
                continue
            seen.add(id(v))
            if id(v) in group.reads or id(v) in mine:
                return True
            if v.node is not None and id(v) not in self.placed:
                todo.extend(v.node.inputs)
        return False

    def _moves(self, node: Node, wanted: dict[int, list[int]]) -> list[Node]:
        """The nodes that cut a reduction's results before anyone else sees them: what is cut off need not be computed."""
        moves: list[Node] = []
        value = node.outputs[0]
        while id(value) not in wanted and self.uses.get(id(value)) == 1:
            user = self.users[id(value)]
            if user.prim.name not in ("slice", "reshape", "transpose", "flip"):
                break
            moves.append(user)
            value = user.outputs[0]
        while moves and moves[-1].prim.name != "slice":
            moves.pop()
        return moves if numel(moves[-1].outputs[0].shape if moves else ()) else []

    def _reduce(self, node: Node, moves: list[Node]) -> None:
        value = moves[-1].outputs[0] if moves else node.outputs[0]
        rows, work = numel(value.shape), numel(value.shape) * numel(reduced_sizes(node))

        def fits(group: Group) -> bool:
            if not group.reductions or group.rows != rows:
                return False
            if (rows >= MANY_ROWS and not self._columns(group)) or work <= 2 * PIECE:
                return True
            return not self._depends(node, group) and [v.size for v in group.stages[0].loops] == [
                s for s in reduced_sizes(node) if s != 1
            ]

        number = self._join(fits, lambda g: g.add_reduction(node, moves), f"{node.prim.name} {_name(value)}")
        self.homes[id(value)] = number

    def _columns(self, group: Group) -> bool:
        """Whether a group reduces long columns that lie side by side, too few to occupy threads stripe by stripe or too many for a cache: they
        are reduced in blocks of whole rows, and what follows from the results reads memory anew, in order."""
        work = max(s.work for s in group.stages)
        size = max((i.dtype.itemsize for s in group.stages for i in s.items), default=4)
        if group.rows * work <= 2 * PIECE or group.direction() >= 0:
            return False
        few = work >= 1024 and group.rows * size < MANY_ROWS * 4 * self.target.vector_bytes
        return few or (work >= 128 and group.rows * work * size >= 4 * self.target.l2_bytes)

    def _depends(self, node: Node, group: Group) -> bool:
        """Whether a node needs a reduction of the group."""
        seen: set[int] = set()
        todo = list(node.inputs)
        while todo:
            v = todo.pop()
            if id(v) in group.reductions:
                return True
            if id(v) not in seen and v.node is not None:
                seen.add(id(v))
                todo.extend(v.node.inputs)
        return False

    def _join(self, fits: Any, add: Any, what: str) -> int:
        """Add to the latest group that takes it, or to a new one; the group's number."""
        tried = 0
        for number in range(len(self.groups) - 1, -1, -1):
            group = self.groups[number]
            if not isinstance(group, Group) or not fits(group):
                continue
            tried += 1
            if tried > 3:
                break
            self._begin()
            before = len(group.stages)
            reads = set(group.reads)
            try:
                add(group)
            except Misfit as why:
                del group.stages[before:]
                group.probe = None
                group.reads = reads
                self.notes.append(f"group {number}: does not take {what}: {why}")
                continue
            self._commit()
            self.notes.append(f"group {number}: takes {what}")
            return number
        number = len(self.groups)
        self._begin()
        group = Group(self.held_for(number))
        add(group)
        self.groups.append(group)
        self._commit()
        self.notes.append(f"group {number}: starts with {what}")
        return number

    # ***** special kernels and library calls *****

    def _special(self, node: Node, wanted: dict[int, list[int]]) -> None:
        number = len(self.groups)
        self._begin()
        group = Group(self.held_for(number))
        targets = []
        values = [self._rounded(value, wanted) for value in node.outputs]
        for value in values:
            targets.append(self._home(value, wanted) or self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary"))
        own = self._own_memory(node, wanted)
        special = Special(node, group, [own] if own is not None else targets, own is not None)
        targets = special.targets
        prepare(special)
        self.groups.append(special)
        self._commit()
        for value, target in zip(values, targets, strict=True):
            self._place_all(value, target, number, wanted)
        self.notes.append(f"group {number}: {node.prim.name}")

    def _own_memory(self, node: Node, wanted: dict[int, list[int]]) -> Source | None:
        """The memory of a scatter's first operand, where the result belongs there and nobody else reads it."""
        x, value = node.inputs[0], node.outputs[0]
        if node.prim.lower[0] == "scan" or self.uses.get(id(x)) != 1 or id(x) in wanted:
            return None
        for i in wanted.get(id(value), ()):
            k = self.aliases.get(i)
            if k is not None and self.graph.inputs[k] is x and not self.overlaps.get(i):
                return self.sources[k]
        return None

    def _rounded(self, value: Value, wanted: dict[int, list[int]]) -> Value:
        """A scan's result, or its converted form where that is all anyone wants of it."""
        if value.node is None or value.node.prim.lower[0] != "scan" or id(value) in wanted or self.uses.get(id(value)) != 1:
            return value
        for node in self.graph.nodes:
            if node.prim.name == "convert" and node.inputs[0] is value:
                return node.outputs[0]
        return value

    def _extern(self, node: Node, wanted: dict[int, list[int]]) -> None:
        lapack = node.prim.lower[1] == "lapack"
        name = node.prim.name
        strided = name in STRIDED or lapack
        conjugated, operands = _conjugated(node)
        inputs = [self.as_source(x, not strided or k in DENSE.get(name, ())) for k, x in enumerate(operands)]
        outputs = []
        number = len(self.groups)
        for k, value in enumerate(node.outputs):
            anywhere = lapack or k in PLACED.get(name, ())
            last = name in ("resample", "resample_back") and value.shape[1] > 1 and inputs[0].strides[1] == 1  # as the operand lies
            home = self._home_of_moved(value, wanted, number, last) if k in PLACED.get(name, ()) else self._home(value, wanted)
            if home is not None and home.strides != contiguous_strides(value.shape) and not anywhere:
                home = None
            strides = channels_last_strides(value.shape) if last else None if k in PLACED.get(name, ()) else contiguous_strides(value.shape)
            outputs.append(home or self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary", strides))
        self.groups.append(Extern(node, inputs, outputs, {"conjugated": conjugated} if any(conjugated) else {}))
        for value, target in zip(node.outputs, outputs, strict=True):
            self._place_all(value, target, number, wanted)
        self.notes.append(f"group {number}: calls {node.prim.name}")

    def _home(self, value: Value, wanted: dict[int, list[int]]) -> Source | None:
        """The memory of the new output that is this value, or that is this value in another shape."""
        for v in self._reshaped(value):
            for i in wanted.get(id(v), ()):
                target = self.targets[i]
                if i in self.aliases:
                    continue
                if v is value:
                    return target
                if is_contiguous(v.shape, target.strides):
                    return Source(target.buffer, contiguous_strides(value.shape))
        return None

    def _home_of_moved(self, value: Value, wanted: dict[int, list[int]], number: int, last: bool = False) -> Source | None:
        """The memory of the new output that is this value with its dims moved about, for what group `number` writes with any strides.

        With `last` only memory in which the channels (dim 1) lie together will do.
        """
        moves: list[Node] = []
        v = value
        while True:
            for i in wanted.get(id(v), ()):
                strides: Sequence[int] | None = self.targets[i].strides if i not in self.aliases else None
                for move in reversed(moves):
                    strides = _strides_before(move, strides)
                if strides is not None and not (last and strides[1] != 1):
                    if moves:
                        self.placed[id(v)] = (self.targets[i], number)
                        return Source(self.targets[i].buffer, strides)
                    return self.targets[i]
            user = self.users.get(id(v))
            if user is None or self.uses.get(id(v)) != 1 or user.prim.name not in ("reshape", "transpose"):
                return None
            moves.append(user)
            v = user.outputs[0]

    def _reshaped(self, value: Value) -> list[Value]:
        """A value and its reshapes, as far as each is used once."""
        chain = [value]
        while self.uses.get(id(chain[-1]), 0) == 1:
            user = self.users[id(chain[-1])]
            if user.prim.name != "reshape":
                break
            chain.append(user.outputs[0])
        return chain

    def _place_all(self, value: Value, target: Source, number: int, wanted: dict[int, list[int]]) -> None:
        """Note where a value lies, also under the shape in which it is an output."""
        self.placed[id(value)] = (target, number)
        for v in self._reshaped(value)[1:]:
            for i in wanted.get(id(v), ()):
                if self.targets[i].buffer is target.buffer:
                    self.placed[id(v)] = (self.targets[i], number)

    def as_source(self, value: Value, dense: bool = False) -> Source:
        """A value in memory: where it is, or as a strided view of what is there, or stored for the purpose.

        `dense` asks for row-major memory.
        """
        found = self.placed.get(id(value))
        if found is not None and isinstance(found[0], Source) and (not dense or is_contiguous(value.shape, found[0].strides)):
            return found[0]
        if numel(value.shape) == 0:
            return self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary")
        view = self._as_view(value)
        if view is not None and (not dense or is_contiguous(value.shape, view.strides)):
            return view
        if not dense and value.node is not None and value.node.prim.name == "broadcast":
            return self._repeated(value.node)
        strides = contiguous_strides(value.shape) if dense else self._columns_first(value)
        target = self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary", strides)
        self._store(value, target)
        if found is None:
            self.placed[id(value)] = (target, self.placed[id(value)][1])
        return target

    def _repeated(self, node: Node) -> Source:
        """What a broadcast repeats, in memory, seen as often as it says."""
        x, shape = node.inputs[0], node.outputs[0].shape
        held, strides = self.as_source(x), [0] * len(shape)
        for size, stride, dim in zip(x.shape, held.strides, node.params["dims"], strict=True):
            strides[dim] = stride if size == shape[dim] else 0
        return Source(held.buffer, strides)

    def _columns_first(self, value: Value) -> Sequence[int] | None:
        """Strides with the last two dims exchanged, where the reads that make a matrix run along its columns."""
        if len(value.shape) < 2 or value.shape[-2] < 2 or value.shape[-1] < 2:
            return None
        self._begin()
        group = Group(self.held_for(len(self.groups)))
        dims = [Var(s, "d") for s in value.shape]
        x = group.puller.pull(value, [d.ix for d in dims])
        self._begin()
        facts = Facts()
        facts.add(x)
        mapping, _ = refine(list(facts.places), dims)
        runs = []
        for dim in dims[-2:]:
            parts = mapping[dim].terms if dim in mapping else ((dim, 1),)
            inner = next((v for v, c in parts if c == 1), dim)
            places = [i.rebuild(lambda a: mapping.get(a) if type(a) is Var else None) for _, i, _ in facts.accesses]
            runs.append(max((inner.size / _JUMP.get(i.coefficient(inner) or 0, 8) for i in places), default=1))
        if runs[0] <= runs[1]:
            return None
        strides = list(contiguous_strides(value.shape))
        strides[-2], strides[-1] = 1, value.shape[-2]
        return strides

    def _as_view(self, value: Value) -> Source | None:
        self._begin()
        group = Group(self.held_for(len(self.groups)))
        dims = [Var(s, "d") for s in value.shape]
        x = Puller(group.builder, group.resolve).pull(value, [d.ix for d in dims])
        if x.kind != "load" or x.args:
            self._begin()
            return None
        buffer, ix = x.value
        if ix.const or any(type(a) is not Var for a, _ in ix.terms):
            self._begin()
            return None
        self._commit()
        steps = dict(ix.terms)
        if any(c < 0 for c in steps.values()):
            return None
        return Source(buffer, [steps.get(d, 0) for d in dims])

    # ***** what follows a product *****

    def _fuse_epilogues(self) -> None:
        """Groups that read a product element by element become its epilogue (see `epilogue.py`); the last products first."""
        for at in range(len(self.groups) - 1, 0, -1):
            group = self.groups[at]
            if isinstance(group, Group):
                for before in range(at - 1, -1, -1):
                    product = self.groups[before]
                    if isinstance(product, Extern) and product.outputs[0].buffer in reads_of(group) and self._follows(product, before, group, at):
                        break

    def _follows(self, product: Extern, before: int, group: Group, at: int) -> bool:
        """Put the group into the product, where that may run in the group's place and the group fits it."""
        sums = _sums_of(product.node)
        if sums is None or product.epilogue is not None:
            return False
        made = product.outputs[0]
        operands = {s.buffer for s in product.inputs}
        written = stores_of(group)
        shared = {self.input_buffers[j] for i, k in self.aliases.items() if self.targets[i].buffer in written for j in (k, *self.overlaps.get(i, ()))}
        if operands & (written | shared) or made.strides != contiguous_strides(product.node.outputs[0].shape):
            return False
        for other in self.groups[before + 1 : at]:
            if made.buffer in reads_of(other) or any(b.role == "input" for b in stores_of(other)):
                return False
        kept = made.buffer in self.outputs or any(made.buffer in reads_of(other) for other in self.groups[at + 1 :])
        found = epilogue_of(_matrices_of(product.node), made.buffer, group, sums, self.args, kept, self.target, places_apart(product.node))
        if found is None or len(found.stored) > MAX_STORES:
            return False
        product.epilogue = found
        self.groups[at] = product
        del self.groups[before]
        self.notes.append(f"group {at} is done in rectangles of group {before}")
        return True

    # ***** what comes before a product *****

    def _fuse_prologues(self) -> None:
        """Groups that make nothing but an operand of a large product become its prologue (see `epilogue.py`)."""
        for product in [g for g in self.groups if isinstance(g, Extern) and takes_prologues(g.node, self.target.vector_bytes)]:
            for which in range(len(product.inputs)):
                self._precedes(product, which)

    def _precedes(self, product: Extern, which: int) -> None:
        """Put the group that makes an operand into the product, where it may run so late and fits."""
        source, at = product.inputs[which], self.groups.index(product)
        writers = [n for n, g in enumerate(self.groups) if source.buffer in stores_of(g)]
        if source.buffer.role != "temporary" or len(writers) != 1:
            return
        group = self.groups[writers[0]]
        if not isinstance(group, Group) or sum(source.buffer in reads_of(g) for g in self.groups if g is not group) != 1:
            return
        if [s.buffer for s in product.inputs].count(source.buffer) != 1:
            return
        if any(b.role == "input" for g in self.groups[writers[0] + 1 : at + 1] for b in stores_of(g)):  # it may be what the group reads
            return
        found = prologue_of(source, product.node.inputs[which].shape, group, self.args, self.target)
        if found is not None:
            product.prologues[which] = found
            del self.groups[writers[0]]
            self.notes.append(f"group {writers[0]} is done while group {at} packs its operand {which}")

    # ***** memory written in place *****

    def _mend_hazards(self) -> None:
        """Outputs that go into an input's memory must not disturb those who still read it."""
        copies: list[Copy] = []
        for i, k in self.aliases.items():
            target = self.targets[i]
            shared = {self.input_buffers[j] for j in self.overlaps.get(i, ()) if j in self.input_buffers}
            value = self.graph.outputs[i]
            if numel(value.shape) == 0:
                continue
            writer = next(
                (n for n, g in enumerate(self.groups) if isinstance(g, Group) and any(s.buffer is target.buffer for t in g.stages for s in t.stores)),
                None,
            )
            if writer is None or not self._in_the_way(writer, target.buffer, shared):
                continue
            temporary = self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary", target.strides)
            group = self.groups[writer]
            assert isinstance(group, Group)
            for stage in group.stages:
                for store in stage.stores:
                    if store.buffer is target.buffer:
                        store.buffer = temporary.buffer
            for key, (where, number) in list(self.placed.items()):
                if where is target and number == writer:
                    self.placed[key] = (temporary, number)
            copies.append(Copy(temporary, target, value.shape))
            self.notes.append(f"output {i} goes through a temporary, because input {k} is still read")
        self.groups.extend(copies)

    def _in_the_way(self, writer: int, buffer: Buffer, shared: set[Buffer]) -> bool:
        for number in range(writer, len(self.groups)):
            group = self.groups[number]
            if isinstance(group, Extern):
                if any(s.buffer is buffer or s.buffer in shared for s in group.inputs):
                    return True
                continue
            if isinstance(group, Copy):
                continue
            stages = group.stages if isinstance(group, Group) else group.group.stages
            for at, stage in enumerate(stages):
                facts = facts_of([stage])
                stores = {s.ix for s in stage.stores if s.buffer is buffer}
                stored_before = any(s.buffer is buffer for t in stages[:at] for s in t.stores)
                stored_later = any(s.buffer is buffer for t in stages[at + 1 :] for s in t.stores)
                for read, ix, weight in facts.accesses:
                    if weight != 1.0:
                        continue
                    if read in shared:
                        return True
                    if read is not buffer:
                        continue
                    if number > writer or stored_before or (stores and ix not in stores):
                        return True
                    if stored_later and isinstance(group, Group) and not _same_row(group, stage, ix, buffer):
                        return True
        return False


def _conjugated(node: Node) -> tuple[tuple[bool, ...], Sequence[Value]]:
    """Which operands of a product are conjugates of others, which its routine reads in their place; and what it reads."""
    if node.prim.name != "dot" or node.outputs[0].dtype.kind != "c" or min(node.outputs[0].shape[-2:]) < FEW:
        return (), node.inputs
    found = tuple(x.node is not None and x.node.prim.name == "conj" for x in node.inputs)
    return found, [x.node.inputs[0] if c and x.node is not None else x for x, c in zip(node.inputs, found, strict=True)]


def _sums_of(node: Node) -> DType | None:
    """The dtype in which a product is computed; None for what is no product of matrices, or has no routine with an epilogue."""
    if node.prim.name == "conv_windows" and takes_epilogue(node):
        return node.outputs[0].dtype.wide
    if node.prim.name not in ("dot", "dot_wide", "dot_int"):
        return None
    dtype = node.outputs[0].dtype
    if dtype.kind in "iu" and dtype.itemsize < 4:
        return None
    return dtype.wide


def _matrices_of(node: Node) -> tuple[int, ...]:
    """The shape of what a product makes, as matrices: of a convolution channels x places for each image."""
    shape = node.outputs[0].shape
    return shape if node.prim.name != "conv_windows" else (shape[0], shape[1] * shape[2], numel(shape[3:]))


def _same_row(group: Group, stage: Any, ix: Any, buffer: Buffer) -> bool:
    """Whether an early read of a buffer stays in the row that a later stage of the group writes."""
    row = group.row
    if row is None:
        return True
    stored = next(s.ix for t in group.stages for s in t.stores if s.buffer is buffer)

    def part(i: Any) -> Any:
        return [(a, c) for a, c in i.terms if row in a.vars], i.const

    def rest(i: Any) -> Any:
        return sorted((c, getattr(a, "size", 0)) for a, c in i.terms if row not in a.vars)

    return bool(part(ix) == part(stored) and rest(ix) == rest(stored))


def _strides_before(node: Node, strides: Sequence[int] | None) -> Sequence[int] | None:
    """The strides of what a node moves about, where its result has those; None where no strides do it."""
    if strides is None:
        return None
    x, out = node.inputs[0], node.outputs[0]
    if node.prim.name == "transpose":
        return [strides[node.params["perm"].index(d)] for d in range(len(strides))]
    return view_strides(out.shape, strides, x.shape)


def _is_spread(value: Value) -> bool:
    """Whether a value repeats another over a few neighbours (see `interleaved`)."""
    return value.node is not None and value.node.prim.name == "broadcast"


def is_reduction(node: Node) -> bool:
    """Whether a node's elements each run a loop of their own."""
    return (node.prim.lower[0] in ("reduce", "argreduce") or node.prim.name == "unwindow") and not is_trivial(node)


def _is_map(node: Node) -> bool:
    """Whether each element is computed from elements of the inputs alone."""
    return node.prim.lower[0] in ("scalar", "index", "gather", "index_read") and not is_reduction(node)


def _count_uses(graph: Graph) -> dict[int, int]:
    uses: dict[int, int] = {}
    for node in graph.nodes:
        for x in node.inputs:
            uses[id(x)] = uses.get(id(x), 0) + 1
    return uses


def _name(value: Value) -> str:
    made = value.node.prim.name if value.node is not None else "input"
    return f"{made} {value.dtype.name}{list(value.shape)}"

