"""Schedules: the groups of a graph, and the memory of its values (inputs, outputs, temporaries, values that groups
store for later groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._schedule.expressions import Buffer
from rushlight._schedule.groups import FusionError, Group
from rushlight._schedule.inline import Location, is_trivial
from rushlight._schedule.policy import Target
from rushlight._schedule.rewrites.interleaved import images_last
from rushlight._schedule.updates import narrowed
from rushlight._types.layout import channels_last_strides, contiguous_strides, extent, is_contiguous, view_strides

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node, Value

__all__ = ["Copy", "LibraryCall", "Schedule", "Sequential", "is_reduction", "name_of"]

_SEEN_THROUGH = ("reshape", "transpose", "unfused", "laid_out")


class Sequential:
    """A scan or a scatter: a kernel whose loops run in order, with its producers fused in.

    `in_place`: the scatter writes into its first operand, so nothing is copied first.
    """

    def __init__(self, node: Node, group: Group, targets: list[Location], in_place: bool = False) -> None:
        self.node, self.group, self.targets, self.in_place = node, group, targets, in_place


class LibraryCall:
    """A call of a library routine on values in memory.

    `params` are passed to the routine beside those of the node. `epilogue` is pointwise work on the result before it
    is stored. `prologues` holds, for each operand, the pointwise work that computes it while it is packed, or None.
    """

    def __init__(self, node: Node, inputs: list[Location], outputs: list[Location], params: dict[str, Any]) -> None:
        self.node, self.inputs, self.outputs, self.params = node, inputs, outputs, params
        self.epilogue: Any = None  # an `Attachment` in the form of the target's library
        self.prologues: list[Any] = [None] * len(inputs)


class Copy:
    """Copies a temporary to the memory of an input that could not be written directly."""

    def __init__(self, source: Location, target: Location, shape: tuple[int, ...]) -> None:
        self.source, self.target, self.shape = source, target, shape


class Schedule:
    """The groups of a graph as they grow, and the memory of its values.

    `sizes` maps every buffer to its size in elements. `inputs` holds the graph's input buffers, `args` the dtypes of
    its numbers, and `outputs` the buffer of each output that is not written into an input. `output_numbers` maps a
    value's id to the outputs that it is. `temporaries` lists outputs that are written to their inputs only at the end.
    """

    def __init__(
        self,
        graph: Graph,
        layouts: Sequence[Sequence[int] | None],
        out_strides: Sequence[Sequence[int] | None] | None,
        aliases: dict[int, int],
        overlaps: dict[int, Sequence[int]],
        target: Target,
        temporaries: Sequence[int] = (),
    ) -> None:
        # Only what changes is written of outputs that are inputs with a part changed: it lies in `places`.
        graph, self.places = narrowed(graph, layouts, aliases) if aliases else (graph, {})
        self.temporaries = temporaries
        self.graph, self.target, self.policy = graph, target, target.policy
        self.aliases, self.overlaps = aliases, overlaps
        self.groups: list[Group | Sequential | LibraryCall | Copy] = []
        self.sizes: dict[Buffer, int] = {}
        self.notes: list[str] = []
        # Value -> (its location or argument, number of the group that stores it)
        self.placed: dict[int, tuple[Any, int]] = {}
        self.homes: dict[int, int] = {}  # reduction -> number of its group
        self.pending: dict[int, Location] = {}
        self._pending_values: dict[int, Value] = {}
        self.inputs: list[Buffer] = []
        self.args: list[Any] = []
        self.input_buffers: dict[int, Buffer] = {}
        self.uses = _count_uses(graph)
        self.users = {id(x): node for node in graph.nodes for x in node.inputs}
        self.output_numbers: dict[int, list[int]] = {}
        for i, value in enumerate(graph.outputs):
            self.output_numbers.setdefault(id(value), []).append(i)
        self._take_inputs(layouts)
        self._images_last = images_last(graph, layouts)
        self.targets = self._targets(out_strides)
        self.outputs = [t.buffer for i, t in enumerate(self.targets) if i not in aliases]

    def _take_inputs(self, layouts: Sequence[Sequence[int] | None]) -> None:
        if len(layouts) != len(self.graph.inputs):
            raise TypeError(f"the graph has {len(self.graph.inputs)} inputs, got {len(layouts)} layouts")
        self.sources: list[Location | None] = []
        for k, (value, strides) in enumerate(zip(self.graph.inputs, layouts, strict=True)):
            if strides is None:
                if value.shape:
                    raise TypeError(
                        f"input {k} has shape {list(value.shape)} and no strides: only 0-d values are handed over as numbers"
                    )
                self.placed[id(value)] = ((len(self.args), value.dtype), -1)
                self.args.append(value.dtype)
                self.sources.append(None)
                continue
            buffer = Buffer(f"input{k}", value.dtype, "input")
            self.inputs.append(buffer)
            self.input_buffers[k] = buffer
            self.sizes[buffer] = extent(value.shape, strides)
            source = Location(buffer, strides)
            self.sources.append(source)
            self.placed[id(value)] = (source, -1)

    def _targets(self, out_strides: Sequence[Sequence[int] | None] | None) -> list[Location]:
        targets = []
        for i, value in enumerate(self.graph.outputs):
            alias = self.aliases.get(i)
            if alias is not None:
                source, part = self.written(i), self.places.get(i)
                if i in self.temporaries:
                    strides = None if part is not None else source.strides
                    source = self.new_temporary(value, strides)
                targets.append(source)
                continue
            strides = out_strides[i] if out_strides is not None else None
            targets.append(self.new_buffer(value, f"output{i}", "output", strides))
        return targets

    def written(self, i: int) -> Location:
        """The memory of an input that output `i` is written into."""
        k, value, part = self.aliases[i], self.graph.outputs[i], self.places.get(i)
        source, memory = self.sources[k], self.graph.inputs[k]
        if source is not None and part is not None:
            return Location(source.buffer, part.strides, part.offset)
        if source is None or memory.shape != value.shape or memory.dtype is not value.dtype:
            raise ValueError(f"output {i} cannot be written into input {k}: shapes or dtypes differ")
        return source

    def new_buffer(self, value: Value, name: str, role: str, strides: Sequence[int] | None = None) -> Location:
        """A new buffer for a value, row-major unless `strides` are given or all images lie channels last."""
        if strides is None:
            last = role == "temporary" and self._images_last and len(value.shape) in (4, 5)
            strides = channels_last_strides(value.shape) if last else contiguous_strides(value.shape)
        buffer = Buffer(name, value.dtype, role)
        self.sizes[buffer] = extent(value.shape, strides)
        return Location(buffer, strides)

    def new_temporary(self, value: Value, strides: Sequence[int] | None = None) -> Location:
        """A new buffer for a value that only this program reads."""
        return self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary", strides)

    def locator(self, number: int) -> Any:
        """The function by which group `number` finds a value: its location or argument; None where the group computes
        it itself.
        """

        def locate(value: Value) -> Any:
            placed = self.placed.get(id(value))
            if placed is not None:
                location, group = placed
                if group < number:
                    return location
                if group > number:
                    raise FusionError("it needs a value that is computed later")
            home = self.homes.get(id(value))
            if home is None:
                node = value.node
                if node is not None and (
                    is_reduction(node) or node.prim.lower[0] in ("extern", "scan", "scatter", "index_write")
                ):
                    raise FusionError("it needs a value that is computed later")
                return None
            if home == number:
                return None
            if home > number:
                raise FusionError("it needs a reduction of a later group")
            source = self.pending.get(id(value))
            if source is None:
                source = self.pending[id(value)] = self.new_temporary(value)
                self._pending_values[id(value)] = value
            return source

        return locate

    def begin(self) -> None:
        self.pending = {}
        self._pending_values = {}

    def commit(self) -> None:
        """Have other groups store the reductions that the last addition reads."""
        for key, source in self.pending.items():
            home = self.homes[key]
            group = self.groups[home]
            assert isinstance(group, Group)
            group.add_store(self._pending_values[key], source)
            self.placed[key] = (source, home)
            self.notes.append(f"group {home}: stores {name_of(self._pending_values[key])} for later groups")
        self.begin()

    # ***** outputs as the results of scans and library calls *****

    def output_location(self, value: Value) -> Location | None:
        """The memory of a new output that is this value or a reshape of it."""
        for v in self.reshaped(value):
            for i in self.output_numbers.get(id(v), ()):
                target = self.targets[i]
                if i in self.aliases:
                    continue
                if v is value:
                    return target
                if is_contiguous(v.shape, target.strides):
                    return Location(target.buffer, contiguous_strides(value.shape))
        return None

    def output_location_through_views(self, value: Value, number: int, last: bool = False) -> Location | None:
        """The memory of a new output that is this value seen through reshapes and transposes, for a routine that
        writes any strides.

        `number` is the routine's group.  `last`: only memory whose channels (dim 1) are neighbours will do.
        """
        views: list[Node] = []
        v = value
        while True:
            for i in self.output_numbers.get(id(v), ()):
                strides: Sequence[int] | None = self.targets[i].strides if i not in self.aliases else None
                for view in reversed(views):
                    strides = _strides_before(view, strides)
                if strides is not None and not (last and strides[1] != 1):
                    if views:
                        self.placed[id(v)] = (self.targets[i], number)
                        return Location(self.targets[i].buffer, strides)
                    return self.targets[i]
            user = self.users.get(id(v))
            if user is None or self.uses.get(id(v)) != 1 or user.prim.name not in _SEEN_THROUGH:
                return None
            views.append(user)
            v = user.outputs[0]

    def marked_strides(self, value: Value) -> Sequence[int] | None:
        """How a routine's result lies by the mark of it, or of a view of it; None where it has no mark."""
        views: list[Node] = []
        while self.uses.get(id(value)) == 1 and self.users[id(value)].prim.name in _SEEN_THROUGH:
            user = self.users[id(value)]
            if user.prim.name == "laid_out":
                strides: Sequence[int] | None = user.params["strides"]
                for view in reversed(views):
                    strides = _strides_before(view, strides)
                return strides
            views.append(user)
            value = user.outputs[0]
        return None

    def reshaped(self, value: Value) -> list[Value]:
        """A value and the chain of its reshapes, as long as each has one user."""
        chain = [value]
        while self.uses.get(id(chain[-1]), 0) == 1:
            user = self.users[id(chain[-1])]
            if user.prim.name != "reshape":
                break
            chain.append(user.outputs[0])
        return chain

    def place_all(self, value: Value, target: Location, number: int) -> None:
        """Record the location of a value, also for reshapes of it that are outputs."""
        self.placed[id(value)] = (target, number)
        for v in self.reshaped(value)[1:]:
            for i in self.output_numbers.get(id(v), ()):
                if self.targets[i].buffer is target.buffer:
                    self.placed[id(v)] = (self.targets[i], number)


def is_reduction(node: Node) -> bool:
    """Whether each element of a node takes a loop."""
    return (node.prim.lower[0] in ("reduce", "argreduce") or node.prim.name == "unwindow") and not is_trivial(node)


def _count_uses(graph: Graph) -> dict[int, int]:
    uses: dict[int, int] = {}
    for node in graph.nodes:
        for x in node.inputs:
            uses[id(x)] = uses.get(id(x), 0) + 1
    return uses


def name_of(value: Value) -> str:
    """A value's name in notes."""
    primitive = value.node.prim.name if value.node is not None else "input"
    return f"{primitive} {value.dtype.name}{list(value.shape)}"


def _strides_before(node: Node, strides: Sequence[int] | None) -> Sequence[int] | None:
    """The strides of a view's input whose result has `strides`; None where there are none."""
    if strides is None:
        return None
    x, out = node.inputs[0], node.outputs[0]
    if node.prim.name in ("unfused", "laid_out"):
        return strides
    if node.prim.name == "transpose":
        return [strides[node.params["perm"].index(d)] for d in range(len(strides))]
    return view_strides(out.shape, strides, x.shape)
