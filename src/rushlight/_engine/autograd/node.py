"""Nodes of the backward graph.

A node is called with one gradient (or None) per output of the forward operation and returns one (or None) per edge.  An edge is None,
a node (its first output), or (node, output number).
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Sequence
from itertools import count
from typing import Any

from rushlight._base.errors import describe_code
from rushlight._engine.state import GRAD, STATE
from rushlight._engine.tensor import Tensor, make, make_accumulator, meta_of

__all__ = ["AccumulateGrad", "GradientEdge", "Node", "OpNode", "next_sequence", "node_class", "split_edge"]

next_sequence = count().__next__
LAST = sys.maxsize  # gradient accumulation runs as soon as it can


GradientEdge = namedtuple("GradientEdge", ("node", "output_nr"))


def split_edge(edge: Any) -> tuple[Any, int]:
    """(node, output number) of an edge."""
    return edge if isinstance(edge, tuple) else (edge, 0)


class Extra:
    """What few nodes have: hooks, tensors that retain their gradient, the user's line in anomaly mode."""

    __slots__ = ("place", "post_hooks", "pre_hooks", "retain", "tensor_hooks")

    def __init__(self) -> None:
        self.pre_hooks: Any = None
        self.post_hooks: Any = None
        self.tensor_hooks: Any = None
        self.retain: Any = None
        self.place: Any = None


class Node:
    """Base of all nodes: edges, sequence number, hooks.  Subclasses define `apply`."""

    __slots__ = ("__dict__", "__weakref__", "edges", "extra", "seq")

    edges: Sequence[Any]
    extra: Extra | None
    seq: int
    n_outputs = 1
    namespace = ""  # what PyTorch's names of the nodes that it writes by hand begin with

    def _start(self, edges: Sequence[Any]) -> None:
        self.edges, self.seq, self.extra = edges, next_sequence(), None

    def more(self) -> Extra:
        """The node's `Extra`, made when first needed."""
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """Gradients of the inputs from those of the outputs."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")

    def release(self) -> None:
        """Drop what was saved for backward."""

    # ***** what users see *****

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    def name(self) -> str:
        """The node's name, such as `MulBackward0`."""
        return self.namespace + type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        return tuple(split_edge(e) for e in self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        return self.__dict__.setdefault("_metadata", {})

    def _sequence_nr(self) -> int:
        return self.seq

    def __call__(self, *grads: Any) -> Any:
        found = list(self.apply(list(grads)))
        return found[0] if len(found) == 1 else tuple(found)

    def _input_metadata_error(self) -> str:
        return f"node {self.name()}"

    def register_hook(self, hook: Any) -> Any:
        """`hook(grad_inputs, grad_outputs)` runs after the node and may replace the gradients of its inputs."""
        from rushlight._base.handles import RemovableHandle

        extra = self.more()
        if extra.post_hooks is None:
            extra.post_hooks = OrderedDict()
        handle = RemovableHandle(extra.post_hooks)
        extra.post_hooks[handle.id] = hook
        return handle

    def register_prehook(self, hook: Any) -> Any:
        """`hook(grad_outputs)` runs before the node and may replace them."""
        from rushlight._base.handles import RemovableHandle

        extra = self.more()
        if extra.pre_hooks is None:
            extra.pre_hooks = OrderedDict()
        handle = RemovableHandle(extra.pre_hooks)
        extra.pre_hooks[handle.id] = hook
        return handle


_CLASSES: dict[str, type[OpNode]] = {}


class OpNode(Node):
    """The backward of one operator call: saved tensors and a graph shared by all calls of the same signature."""

    __slots__ = ("info", "saved", "versions", "where")

    info: Any
    saved: Any
    versions: Any
    where: Any  # the user's line as (code, instruction), where something is saved

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return int(self.info.n_results)

    def release(self) -> None:
        if self.saved:  # a node that saved nothing may run again
            self.saved = None

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        saved = self.saved
        if saved is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
                "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True "
                "if you need to backward through the graph a second time or if you need to access saved tensors after calling backward."
            )
        if saved:
            saved = self._unpack(saved)
        return self.info.backward(saved, grads)

    def _unpack(self, saved: Any) -> list[Any]:
        items: list[Any] = []
        linked = STATE.word & GRAD
        for item, version, source in zip(saved, self.versions, self.info.sources, strict=True):
            if version is None:  # a Python number, or packed by a hook
                items.append(item.unpack(self) if type(item) is Packed else item)
                continue
            if item._storage is not None and item._storage.version != version:
                self._changed(item, version)
            if linked and source[0] != "input":
                item = self._linked(item, source)
            items.append(item)
        return items

    def _linked(self, item: Tensor, source: tuple[str, int]) -> Tensor:
        """A saved result as part of the graph: it was kept without its node, which would be a cycle."""
        number = source[1] if source[0] == "output" else self.info.n_results + source[1]
        if not item._spec.dtype.is_floating_point and not item._spec.dtype.is_complex:
            return item
        tensor = make(item._storage, item._spec, item._ptr)
        tensor._rg, tensor._node = True, self
        if number:
            meta_of(tensor).output_nr = number
        return tensor

    def _changed(self, item: Tensor, version: int) -> None:
        from rushlight._engine.inplace import last_change

        place = describe_code(self.where)
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[torch.{item.dtype.name} {list(item.shape)}], which is saved for {self.name()}, is at version {item._storage.version}; "
            f"expected version {version} instead. Saved at: {place}. Last changed at: {last_change(item._storage)}."
        )


class Packed:
    """A saved tensor as the user's pack hook left it."""

    __slots__ = ("held", "unpack_hook")

    def __init__(self, held: Any, unpack_hook: Any) -> None:
        self.held, self.unpack_hook = held, unpack_hook

    def unpack(self, node: OpNode) -> Any:
        """Give it back through the user's hook."""
        found = self.unpack_hook(self.held)
        if not isinstance(found, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(found).__name__}"
            )
        return found


def node_class(name: str) -> type[OpNode]:
    """The class of nodes with this name; users see it as `type(t.grad_fn).__name__`."""
    found = _CLASSES.get(name)
    if found is None:
        found = _CLASSES[name] = type(name, (OpNode,), {"__slots__": (), "namespace": "torch::autograd::" if name == "CopyBackwards" else ""})
    return found


class AccumulateGrad(Node):
    """Adds what arrives to `.grad` of a leaf.  It knows the leaf weakly: the leaf holds it, and a leaf that is gone needs no gradient."""

    __slots__ = ("_variable",)
    namespace = "torch::autograd::"

    def __init__(self, variable: Tensor) -> None:
        self.edges, self.extra, self.seq = (), None, LAST
        self._variable = weakref.ref(variable)

    @property
    def variable(self) -> Tensor | None:
        return self._variable()

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        from rushlight._engine.autograd.engine import accumulate_into

        grad = grads.pop()
        variable = self._variable()
        if grad is not None and variable is not None:
            wanted = variable._meta.grad_dtype if variable._meta is not None else ...
            if wanted is not ... and wanted is not None and grad._spec.dtype is not wanted:
                grad = grad.to(wanted)
            accumulate_into(variable, grad)
        return ()


make_accumulator[0] = AccumulateGrad
