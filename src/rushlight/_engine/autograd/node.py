"""Nodes of the backward graph.

A node is called with one gradient (or None) per output of the forward operation and returns one (or None) per edge.  An edge is None,
a node (its first output), or (node, output number).
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._base.errors import describe_code
from rushlight._engine.autograd.edges import saved_names
from rushlight._engine.native_plans import next_sequence
from rushlight._engine.state import GRAD, STATE
from rushlight._engine.tensor import Tensor, edge_of, make, make_accumulator, meta_of

__all__ = ["ACCUMULATE", "AccumulateGrad", "GradientEdge", "Node", "OpNode", "Packed", "SavedTensor", "next_sequence", "node_class", "packed", "split_edge"]

RELEASED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate "
    "values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph "
    "a second time or if you need to access saved tensors after calling backward."
)

LAST = sys.maxsize  # gradient accumulation runs as soon as it can


class GradientEdge(NamedTuple):
    """Where a gradient passes: a node and the number of one of its outputs; `ownership_token` keeps alive what the node does not."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def split_edge(edge: Any) -> tuple[Any, int]:
    """(node, output number) of an edge."""
    return (edge[0], edge[1]) if isinstance(edge, tuple) else (edge, 0)


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

    __slots__ = ("__dict__", "__weakref__", "_edges", "_extra", "_seq")

    _edges: Sequence[Any]
    _extra: Extra | None
    _seq: int
    _n_outputs = 1
    _quick = False  # whether `quick_backward` may be asked
    _namespace = ""  # what PyTorch's names of the nodes that it writes by hand begin with

    def _start(self, edges: Sequence[Any]) -> None:
        self._edges, self._seq, self._extra = edges, next_sequence(), None

    def _more(self) -> Extra:
        """The node's `Extra`, made when first needed."""
        if self._extra is None:
            self._extra = Extra()
        return self._extra

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """Gradients of the inputs from those of the outputs."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")

    def _release(self) -> None:
        """Drop what was saved for backward."""

    # ***** what users see *****

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    def name(self) -> str:
        """The node's name, such as `MulBackward0`."""
        return self._namespace + type(self).__name__

    def _places(self) -> Sequence[int | None] | None:
        """For each input that could have a gradient the number of its edge, or None; None where the edges are all there is."""
        return None

    def _shown(self, values: Sequence[Any]) -> list[Any]:
        """Values of the edges as users see them: with None for inputs that have no gradient."""
        places = self._places()
        return list(values) if places is None or not values else [None if p is None else values[p] for p in places]

    def _hidden(self, values: Sequence[Any]) -> list[Any]:
        """The values of the edges among those that users see."""
        places = self._places()
        if places is None or len(values) != len(places):
            return list(values)
        found: list[Any] = [None] * len(self._edges)
        for place, value in zip(places, values, strict=True):
            if place is not None:
                found[place] = value
        return found

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        return tuple([(None, 0) if e is None else split_edge(e) for e in self._shown(self._edges)])

    @property
    def metadata(self) -> dict[Any, Any]:
        return self.__dict__.setdefault("_metadata", {})

    def _sequence_nr(self) -> int:
        return self._seq

    def __call__(self, *grads: Any) -> Any:
        found = self._shown(self.apply(list(grads)))
        return found[0] if len(found) == 1 else tuple(found)

    def _input_metadata_error(self) -> str:
        return f"node {self.name()}"

    def register_hook(self, hook: Any) -> Any:
        """`hook(grad_inputs, grad_outputs)` runs after the node and may replace the gradients of its inputs."""
        from rushlight._base.handles import RemovableHandle

        extra = self._more()
        if extra.post_hooks is None:
            extra.post_hooks = OrderedDict()
        handle = RemovableHandle(extra.post_hooks)
        extra.post_hooks[handle.id] = hook
        return handle

    def register_prehook(self, hook: Any) -> Any:
        """`hook(grad_outputs)` runs before the node and may replace them."""
        from rushlight._base.handles import RemovableHandle

        extra = self._more()
        if extra.pre_hooks is None:
            extra.pre_hooks = OrderedDict()
        handle = RemovableHandle(extra.pre_hooks)
        extra.pre_hooks[handle.id] = hook
        return handle


_CLASSES: dict[str, type[OpNode]] = {}


class OpNode(Node):
    """The backward of one operator call: saved tensors and a graph shared by all calls of the same signature."""

    __slots__ = ("info", "saved", "versions", "where")

    _quick = True
    info: Any
    saved: Any
    versions: Any
    where: Any  # the user's line as (code, instruction), where something is saved

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return int(self.info.n_results)

    def _places(self) -> Sequence[int | None] | None:
        return self.info.places()

    def __dir__(self) -> list[str]:
        names = [n for n in self.info.saved_names() if n is not None]
        return [*super().__dir__(), *(f"_saved_{n}" for n in names), *(f"_raw_saved_{n}" for n in names)]

    def __getattr__(self, name: str) -> Any:
        """`_saved_self`, `_saved_result`, ...: what was kept for backward; `_raw_saved_self`, ...: a handle to put hooks on it."""
        word, _, rest = name.partition("saved_")
        names = self.info.saved_names() if word in ("_", "_raw_") and rest else []
        if rest not in names:
            if word == "_" and self.info.origin is not None and rest in saved_names(*self.info.origin[:2]):
                return None
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if word == "_raw_":
            return SavedTensor(self, names.index(rest))
        if self.saved is None:
            raise RuntimeError(RELEASED)
        return self._unpack(self.saved)[names.index(rest)]

    def _release(self) -> None:
        if self.saved:  # a node that saved nothing may run again
            self.saved = None

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        saved = self.saved
        if saved is None:
            raise RuntimeError(RELEASED)
        if saved:
            saved = self._unpack(saved)
        return self.info.backward(saved, grads)

    def _unpack(self, saved: Any) -> list[Any]:
        items: list[Any] = []
        linked = STATE.word & GRAD
        for item, version, source in zip(saved, self.versions, self.info.sources, strict=True):
            if version is None:  # a Python number, or packed by a hook
                if type(item) is Packed:
                    item = item.unpack(self)
                    item = self._linked(item, source) if linked and source[0] != "input" else item
                items.append(item)
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
    """A saved tensor as the user's pack hook left it, and where its gradient goes."""

    __slots__ = ("edge", "held", "spec", "unpack_hook")

    def __init__(self, held: Any, unpack_hook: Any, spec: Any, edge: Any) -> None:
        self.held, self.unpack_hook, self.spec, self.edge = held, unpack_hook, spec, edge

    def unpack(self, node: Node) -> Any:
        """Give it back through the user's hook, as part of the graph where that is being differentiated."""
        found = self.unpack_hook(self.held)
        if not isinstance(found, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(found).__name__}"
            )
        if found._spec is not self.spec and type(found) is Tensor:
            found = self._as_saved(found)
        if self.edge is None or not STATE.word & GRAD or type(found) is not Tensor:
            return found
        after, number = split_edge(self.edge)
        linked = make(found._storage, found._spec, found._ptr)
        linked._rg = True
        if isinstance(after, AccumulateGrad):
            meta_of(linked).accumulator = after
        else:
            linked._node = after
            if number:
                meta_of(linked).output_nr = number
        return linked


    def _as_saved(self, found: Tensor) -> Tensor:
        """What a hook gave back, with the dtype and strides that were saved, for which backward is made; RuntimeError for another shape."""
        from rushlight._engine.autograd.engine import OPS

        if found._spec.shape != self.spec.shape:
            raise RuntimeError(
                f"saved tensor unpack_hook returned a tensor of shape {list(found.shape)}, but the one that was saved has shape {list(self.spec.shape)}"
            )
        if found._spec.dtype is not self.spec.dtype:
            found = OPS["to_dtype"](found, self.spec.dtype)
        return found if found._spec is self.spec else OPS["clone_like"](found, self.spec)


def packed(tensor: Tensor, pack: Any, unpack: Any) -> Packed:
    """The tensor through the user's hook, which may not change it."""
    storage = tensor._storage
    before, word = storage.version if storage is not None else 0, STATE.word
    STATE.word = word & ~GRAD
    try:
        held = pack(tensor)
    finally:
        STATE.word = word
    if storage is not None and storage.version != before:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be modified by in-place "
            "operations as this can lead to unexpected side-effects."
        )
    return Packed(held, unpack, tensor._spec, edge_of(tensor))


class SavedTensor:
    """One value that a node keeps; `register_hooks` packs it."""

    def __init__(self, node: OpNode, number: int) -> None:
        self.node, self.number = node, number

    def register_hooks(self, pack_hook: Any, unpack_hook: Any) -> None:
        """Keep what `pack_hook(tensor)` returns; `unpack_hook` gives the tensor back.  RuntimeError where hooks were there before."""
        node, number = self.node, self.number
        if node.saved is None:
            raise RuntimeError(RELEASED)
        item = node.saved[number]
        if type(item) is Packed:
            raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is allowed at a time.")
        node.saved, node.versions = list(node.saved), list(node.versions)
        node.saved[number], node.versions[number] = packed(item, pack_hook, unpack_hook), None


def node_class(name: str) -> type[OpNode]:
    """The class of nodes with this name; users see it as `type(t.grad_fn).__name__`."""
    found = _CLASSES.get(name)
    if found is None:
        found = _CLASSES[name] = type(name, (OpNode,), {"__slots__": (), "_namespace": "torch::autograd::" if name in ("CopyBackwards", "CopySlices") else ""})
    return found


class AccumulateGrad(Node):
    """Adds what arrives to `.grad` of a leaf.  It knows the leaf weakly: the leaf holds it, and a leaf that is gone needs no gradient.

    `level` is the function transform that made the leaf, if one did.
    """

    __slots__ = ("_variable", "level")
    _namespace = "torch::autograd::"

    def __init__(self, variable: Tensor) -> None:
        self._edges, self._extra, self._seq = (), None, LAST
        self._variable = weakref.ref(variable)
        self.level: Any = None

    @property
    def variable(self) -> Tensor | None:
        return self._variable()

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        grad = grads.pop()
        variable = self._variable()
        if grad is not None and variable is not None:
            wanted = variable._autograd_meta.grad_dtype if variable._autograd_meta is not None else ...
            if wanted is not ... and wanted is not None and grad._spec.dtype is not wanted:
                grad = grad.to(wanted)
            ACCUMULATE[0](variable, grad)
        return ()


ACCUMULATE: list[Any] = []  # `accumulate_into` of the engine
make_accumulator[0] = AccumulateGrad
