"""The memory that eager nodes of a program's history hold until backward: a change of it has to be an error there, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rushlight._capture.recording.assemble import Given
from rushlight._capture.recording.derivatives.histories import history_of, leading_to, saved_by_user
from rushlight._capture.recording.memory import InputBackward
from rushlight._engine.autograd.node import AccumulateGrad, OpNode, Packed
from rushlight._engine.core.tensor import Tensor
from rushlight._graph.core import Graph, Value
from rushlight._transforms.partition import Joint, readers_of

__all__ = ["MOST_HISTORIES", "SavedMemory"]

MOST_HISTORIES = 16  # of outputs whose histories are told apart


class SavedMemory:
    """Addresses of the memory that the nodes behind the outputs of a program in the making (`build`) have saved.

    `idle` are the nodes that computed nothing when backward was recorded last.
    """

    def __init__(self, build: Any) -> None:
        self._build = build
        self.idle: set[Any] = set()

    def address(self, x: Tensor) -> int:
        """Where the memory of a tensor begins; 0 for one without elements."""
        return int(self._build.recording.memory_at(x._ptr).address) if x._spec.numel else 0

    def stays(self, given: Given, held: set[int] | None) -> bool:
        """Whether an input holds until backward what it holds now: what an eager program saves too."""
        return held is None or self.address(self._build.standing[given.content]) in held

    def of_all(self) -> set[int] | None:
        """The memory that backward reads from the recorded history: what an eager program has saved may not be changed
        before backward, anything else may.  None where nobody knows.
        """
        return self.of(self._build.wanting)

    def of(
        self, wanting: Sequence[int], targets: Collection[Any] | None = None, besides: Sequence[Any] = ()
    ) -> set[int] | None:
        """The same for some of the outputs and nodes, of nodes behind which one of `targets` lies if these are given."""
        history = list(history_of([self._build.outputs[j] for j in wanting], besides))
        passed = set(history) if targets is None else leading_to(history, targets)
        return self.by_nodes([node for node in history if node not in self.idle and node in passed])

    def by_nodes(self, nodes: Iterable[Any]) -> set[int] | None:
        """The memory that nodes have saved; None where nobody knows."""
        found = set()
        for node in nodes:
            for item in getattr(node, "saved", None) or ():
                if isinstance(item, Tensor):
                    found.add(self.address(item))
                elif type(item) is Packed:
                    return None
            if not isinstance(node, OpNode) and not isinstance(node, (AccumulateGrad, InputBackward)):
                found.update(self.address(x) for x in saved_by_user(node))
        return found

    def overwritten_by_others(self, joint: Joint, given: dict[Value, Given]) -> list[int]:
        """Inputs from which the backward of an output is computed though its history does not hold them, that of
        another output does: they may be changed before it runs.
        """
        if not 1 < len(self._build.wanting) <= MOST_HISTORIES:
            return []
        readers = readers_of(joint)
        held = [self.of([j]) for j in self._build.wanting]
        return [
            i
            for i, v in enumerate(joint.inputs)
            if v in given and given[v].kind == "input"
            if not all(self.stays(given[v], each) for k, each in enumerate(held) if readers.get(v, 0) >> k & 1)
        ]

    def inputs(self, inputs: Sequence[Value], given: dict[Value, Given], held: set[int] | None) -> list[int]:
        """The inputs that an eager program saves."""
        return [
            i
            for i, v in enumerate(inputs)
            if held and v in given and given[v].kind == "input" and self.stays(given[v], held)
        ]

    def with_changes_noticed(
        self,
        backward: Graph,
        saved: list[tuple[str, int]],
        values: tuple[Sequence[Value], Sequence[Value]],
        held: set[int] | None,
        inputs: Sequence[int],
        among: Collection[Any] | None = None,
    ) -> tuple[Graph, list[tuple[str, int]]]:
        """Save `inputs`, and outputs, that an eager program saves, too, where backward reads something else: a change
        of one in place has to be an error.  `among` lists what can be saved, if that is known.
        """
        outputs = self._build.outputs
        known = {self.address(outputs[i]) for kind, i in saved if kind == "output" and i < len(outputs)}
        more: dict[int, int] = {}
        for j, x in enumerate(outputs):
            if held is not None and x._spec.numel and self.address(x) in held and self.address(x) not in known:
                if id(x) not in self._build.numbers and (among is None or ("output", j) in among):
                    more.setdefault(self.address(x), j)
        places = [("output", j) for j in more.values()] + [("input", i) for i in inputs if ("input", i) not in saved]
        if not places:
            return backward, saved
        like = [values[kind == "output"][k] for kind, k in places]
        fresh = [Value(v.shape, v.dtype) for v in like]
        given = [*backward.inputs[: len(saved)], *fresh, *backward.inputs[len(saved) :]]
        return Graph(given, backward.nodes, backward.outputs), [*saved, *places]
