"""Nodes of the backward graph.

A node is called with one gradient (or None) per output of the forward operation and returns one (or None) per edge.  An
edge is None, a node (its first output), or (node, output number).
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from rushlight._backends.current_streams import CURRENT_STREAMS, tell
from rushlight._base.errors import describe_code
from rushlight._base.lazy import LazyModule
from rushlight._base.trace_marks import ADDS_HOOK, breaks_trace
from rushlight._engine.autograd.edges import is_flat
from rushlight._engine.core.hooks import HOOKS, OPS, last_change
from rushlight._engine.core.memory import zeros_spec
from rushlight._engine.core.state import GRAD, STATE, STREAMED, inherit
from rushlight._engine.core.tensor import Tensor, edge_of, make, meta_of
from rushlight._engine.dispatch.plans.native_plans import next_sequence, register_slots
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.layout import Size
from rushlight._types.spec import Spec

handles: Any = LazyModule("rushlight._base.handles")

__all__ = [
    "AccumulateGrad", "GradientEdge", "Node", "OpNode", "Packed", "SavedTensor", "check_attached", "next_sequence", "node_class", "packed",
    "split_edge",
]  # fmt: skip

RELEASED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate "
    "values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph "
    "a second time or if you need to access saved tensors after calling backward."
)

shown: Any = LazyModule("rushlight._engine.autograd.saved")  # what nodes show is asked rarely
_NUMBERS = frozenset((bool, int, float, complex))
LAST = sys.maxsize  # gradient accumulation runs as soon as it can


def _note_streams(side: bool) -> None:
    STATE.word = STATE.word | STREAMED if side else STATE.word & ~STREAMED


tell(_note_streams)
inherit(CURRENT_STREAMS)


class GradientEdge(NamedTuple):
    """A node and the number of one of its outputs; `ownership_token` keeps alive what the node refers to weakly."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def split_edge(edge: Any) -> tuple[Any, int]:
    """(node, output number) of an edge."""
    return (edge[0], edge[1]) if isinstance(edge, tuple) else (edge, 0)


class Extra:
    """Rare parts of a node: hooks, tensors that retain their gradient, the user's line in anomaly mode, the streams of
    its forward other than default ones.
    """

    __slots__ = ("place", "post_hooks", "pre_hooks", "retain", "streams", "tensor_hooks")

    def __init__(self) -> None:
        self.pre_hooks: Any = None
        self.post_hooks: Any = None
        self.tensor_hooks: Any = None
        self.retain: Any = None
        self.place: Any = None
        self.streams: tuple[Any, ...] = ()


class InputMetadata(NamedTuple):
    """The expected shape, dtype and device of one gradient that a node gets."""

    shape: Size
    dtype: DType
    device: Device
    is_nested_tensor: bool = False
    is_cpp_nested_tensor: bool = False


class Node:
    """Base of all nodes: edges, sequence number, hooks.  Subclasses define `apply`."""

    __slots__ = ("__dict__", "__weakref__", "_edges", "_extra", "_seq")

    _edges: Sequence[Any]
    _extra: Extra | None
    _seq: int
    _n_outputs = 1
    _refusal: str | None = None  # why a tensor cannot show this node
    _wants_none = False  # whether it runs although no gradient is defined
    _quick = False  # whether `quick_backward` may be asked
    _within: Any = None  # a weak reference to the node of a base of which this one changes a part
    _staged = False  # whether some of its results are computed from others: then there is `in_stages`
    _namespace = ""  # what PyTorch's names of the nodes that it writes by hand begin with

    def _start(self, edges: Sequence[Any]) -> None:
        self._edges, self._seq, self._extra = edges, next_sequence(), None
        if STATE.word & STREAMED:
            self._more().streams = CURRENT_STREAMS.side

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

    def _own(self, saved: Tensor, number: int) -> None:
        """Let a value that was saved without its history have it again: that of a result of this node."""
        saved._rg, saved._node = True, self
        if self._within is not None and (outer := self._within()) is not None:
            outer.of_saved(saved, number)
        elif number:
            meta_of(saved).output_nr = number

    # ***** what users see *****

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    def name(self) -> str:
        """The node's name, such as `MulBackward0`."""
        return self._namespace + type(self).__name__

    def _places(self) -> Sequence[int | None] | None:
        """The number of the edge for each input that could have a gradient, or None without one; None if there are no
        other inputs than edges.
        """
        return None

    def _shown(self, values: Sequence[Any]) -> list[Any]:
        """Values of the edges as users see them, with None for inputs without a gradient."""
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

    def _set_sequence_nr(self, number: int) -> None:
        self._seq = number

    @property
    def requires_grad(self) -> bool:
        """True: only what wants gradients has a node."""
        return True

    def __call__(self, *grads: Any) -> Any:
        if len(grads) != self._n_outputs:
            raise TypeError(f"expected {self._n_outputs} arguments, got {len(grads)} instead")
        for i, grad in enumerate(grads):
            if grad is not None and not isinstance(grad, Tensor):
                raise TypeError(f"argument {i} is not a Variable")
        runs = self._wants_none or any(g is not None for g in grads)
        found = self._shown(self.apply(list(grads)) if runs else [None] * len(self._edges))
        return found[0] if len(found) == 1 else tuple(found)

    def _result_specs(self) -> Sequence[Spec | None]:
        """The specs of the results of the forward operation; None for results that are no tensors."""
        specs: Sequence[Spec | None] | None = getattr(self, "_specs", None)
        if specs is None:
            raise NotImplementedError(f"rushlight does not know the shapes behind {self.name()} yet")
        return specs

    @property
    def _input_metadata(self) -> tuple[InputMetadata | None, ...]:
        return tuple([None if s is None else InputMetadata(s.shape, s.dtype, s.device) for s in self._result_specs()])

    @breaks_trace(ADDS_HOOK)
    def register_hook(self, hook: Any) -> Any:
        """`hook(grad_inputs, grad_outputs)` runs after the node and may replace the gradients of its inputs."""
        extra = self._more()
        if extra.post_hooks is None:
            extra.post_hooks = OrderedDict()
        handle = handles.RemovableHandle(extra.post_hooks)
        extra.post_hooks[handle.id] = hook
        return handle

    @breaks_trace(ADDS_HOOK)
    def register_prehook(self, hook: Any) -> Any:
        """`hook(grad_outputs)` runs before the node and may replace them."""
        extra = self._more()
        if extra.pre_hooks is None:
            extra.pre_hooks = OrderedDict()
        handle = handles.RemovableHandle(extra.pre_hooks)
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

    def _result_specs(self) -> Sequence[Spec | None]:
        return list(self.info.out_specs[: self.info.n_results])

    def __dir__(self) -> list[str]:
        names, kinds = shown.answered(self.info), shown.declared(self.info)
        return [*super().__dir__(), *(f"_saved_{n}" for n in names), *(f"_raw_saved_{n}" for n in names if kinds[n])]

    def __getattr__(self, name: str) -> Any:
        """`_saved_self`, `_saved_dim`, ...: what was kept for backward and of the call; `_raw_saved_self`, ...: a
        handle to put hooks on it.
        """
        word, _, rest = name.partition("saved_")
        tensor = shown.declared(self.info).get(rest) if word in ("_", "_raw_") else None
        if tensor is None or (word == "_raw_" and not tensor):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return (
            shown.saved_value(self, rest)
            if word == "_"
            else shown.saved_handle(self, rest, lambda number: SavedTensor(self, number))
        )

    def _refuse(self) -> NoReturn:
        raise RuntimeError(RELEASED)

    def _release(self) -> None:
        """Free what is saved.  A node that saved nothing, or what is a number in PyTorch too, may run again."""
        for item in self.saved or ():
            if type(item) not in _NUMBERS or self.info.saves_operands():
                self.saved = None
                return

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        saved = self.saved
        if saved is None:
            raise RuntimeError(RELEASED)
        if saved:
            saved = self.unpacked()
        run = self.info.backward_of if type(saved) is Relaid else self.info.backward
        found = run(saved, grads)
        return self._linked_flat(found) if STATE.word & GRAD else found

    def apply_for(self, grads: list[Tensor | None], edges: Sequence[int]) -> Sequence[Tensor | None] | None:
        """`apply` for some of the edges alone; None where that is not possible without the others."""
        saved = self.saved
        if saved is None:
            raise RuntimeError(RELEASED)
        saved = self.unpacked() if saved else saved
        return None if type(saved) is Relaid else self.info.backward_for(saved, grads, edges)

    def _linked_flat(self, found: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """Recorded gradients as they are, or through a `FlatBackward` where PyTorch links them to the arguments."""
        origin = self.info.origin
        return (
            FlatBackward.linking(found, self._edges)
            if is_flat(type(self).__name__, None if origin is None else origin[0].name)
            else found
        )

    def unpacked(self) -> list[Any]:
        """The saved values for a run of the node.  RuntimeError if one was modified since."""
        return self._unpack(self.saved, runs=True)

    def _unpack(self, saved: Any, runs: bool = False, picks: Sequence[int] | None = None) -> list[Any]:
        items: list[Any] = []
        linked = STATE.word & GRAD
        relaid = False
        rows: Any = zip(saved, self.versions, self.info.sources, strict=True)
        if picks is not None:
            rows = list(rows)
            rows = [rows[k] for k in picks]
        for item, version, source in rows:
            if version is None:  # a Python number, or packed by a hook
                if type(item) is Packed:
                    spec = item.spec
                    item = item.unpack(self)
                    relaid = relaid or item._spec is not spec
                    item = self._linked(item, source) if linked and source[0] != "input" else item
                items.append(item)
                continue
            if item._storage is not None and item._storage.stamp != version:
                relaid = self._restamped(item, version, source, runs) or relaid
            if linked and source[0] != "input":
                item = self._linked(item, source)
            items.append(item)
        return Relaid(items) if relaid else items

    def _linked(self, item: Tensor, source: tuple[str, int]) -> Tensor:
        """A saved result, recorded in the graph: it is kept without its node, since that would be a cycle."""
        number = source[1] if source[0] == "output" else self.info.n_results + source[1]
        if not item._spec.dtype.is_floating_point and not item._spec.dtype.is_complex:
            return item
        tensor = make(item._storage, item._spec, item._ptr)
        self._own(tensor, number)
        return tensor

    def _restamped(self, item: Tensor, stamp: int, source: tuple[str, int], runs: bool) -> bool:
        """Check a saved tensor whose memory has another version stamp; returns whether its layout has changed."""
        if source[0] == "input" and runs and source[1] in self.info.wrt:
            check_attached(item, self._edges[self.info.wrt.index(source[1])], self)
        version = stamp & 0xFFFFFFFF
        if item._storage.version != version:
            self._changed(item, version)
        if source[0] != "input":
            return False
        before = self.info.forward.inputs[source[1]]
        if item._spec.shape != before.shape or item._spec.dtype is not before.dtype:
            raise RuntimeError(
                f"a tensor that is saved for {self.name()} was [torch.{before.dtype.name} {list(before.shape)}], and its .data was replaced by "
                f"[torch.{item._spec.dtype.name} {list(item._spec.shape)}]: rushlight has no backward through another shape or dtype. "
                f"Saved at: {describe_code(self.where)}."
            )
        return True

    def _changed(self, item: Tensor, version: int) -> None:

        place = describe_code(self.where)
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[torch.{item.dtype.name} {list(item.shape)}], which is saved for {self.name()}, is at version {item._storage.version}; "
            f"expected version {version} instead. Saved at: {place}. Last changed at: {last_change(item._storage)}."
        )


def holds_changed(node: Any) -> bool:
    """Whether a node has saved a tensor whose memory was written since, so that its backward is an error."""
    saved, versions = getattr(node, "saved", None), getattr(node, "versions", None)
    if saved is None or versions is None:
        return False
    return any(
        version is not None and isinstance(item, Tensor) and item._storage.version != version & 0xFFFFFFFF
        for item, version in zip(saved, versions, strict=False)
    )


def check_attached(item: Tensor, edge: Any, node: Node) -> None:
    """RuntimeError if a saved tensor of `node` had a history when `edge` was made, and has none now."""
    if item._node is None and edge is not None and not isinstance(split_edge(edge)[0], AccumulateGrad):
        raise RuntimeError(
            "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, please use out-of-place "
            f"`.detach()` instead. It is saved for {node.name()}."
        )


class Relaid(list[Any]):
    """Saved values of which hooks returned some in another layout, so that the kept plans of backward do not fit."""


class FlatBackward(Node):
    """Passes gradients of gradients on, and gives zeros to the arguments of a piecewise linear operator.

    The derivative of `relu` is constant almost everywhere, so no path leads from it to the argument.  Programs that
    differentiate it again expect zeros.
    """

    __slots__ = ("specs",)

    specs: list[Any]

    @classmethod
    def linking(cls, grads: Sequence[Tensor | None], edges: Sequence[Any]) -> Sequence[Tensor | None]:
        """The gradients for `edges`, linked to the arguments by a `FlatBackward`."""
        if any(g is not None and type(g) is not Tensor for g in grads):  # transforms give zeros where no path leads
            return grads
        node = cls()
        node._start([*[None if g is None else edge_of(g) for g in grads], *edges])
        node.specs = [None if g is None else g._spec for g in grads]
        linked: list[Tensor | None] = []
        for number, grad in enumerate(grads):
            made = None if grad is None else make(grad._storage, grad._spec, grad._ptr)
            if made is not None:
                made._rg, made._node = True, node
                if number:
                    meta_of(made).output_nr = number
            linked.append(made)
        return linked

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return len(self.specs)

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return [*grads, *[None if spec is None else zeros_spec(spec) for spec in self.specs]]


class Packed:
    """A saved tensor in the form that the user's pack hook returned, and the edge of its gradient."""

    __slots__ = ("edge", "held", "spec", "unpack_hook")

    def __init__(self, held: Any, unpack_hook: Any, spec: Any, edge: Any) -> None:
        self.held, self.unpack_hook, self.spec, self.edge = held, unpack_hook, spec, edge

    def unpack(self, node: Node, linked: Any = False) -> Any:
        """The tensor from the user's unpack hook, recorded in the graph if `linked` or if backward is being
        differentiated.
        """
        outer, STATE.current_node = STATE.current_node, node
        try:
            found = self.unpack_hook(self.held)
        finally:
            STATE.current_node = outer
        if not isinstance(found, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(found).__name__}"
            )
        if found._spec is not self.spec and type(found) is Tensor:
            found = self._as_saved(found)
        if self.edge is None or not (linked or STATE.word & GRAD) or type(found) is not Tensor:
            return found
        after, number = split_edge(self.edge)
        made = make(found._storage, found._spec, found._ptr)
        made._rg = True
        if isinstance(after, AccumulateGrad):
            meta_of(made).accumulator = after
        else:
            made._node = after
            if number:
                meta_of(made).output_nr = number
        return made

    def _as_saved(self, found: Tensor) -> Tensor:
        """The result of an unpack hook in the saved dtype, which backward expects; RuntimeError for another shape."""
        if found._spec.shape != self.spec.shape:
            raise RuntimeError(
                f"saved tensor unpack_hook returned a tensor of shape {list(found.shape)}, but the one that was saved has shape {list(self.spec.shape)}"
            )
        return found if found._spec.dtype is self.spec.dtype else OPS["to_dtype"](found, self.spec.dtype)


def packed(tensor: Tensor, pack: Any, unpack: Any) -> Packed:
    """The tensor packed by the user's hook, which must not change it."""
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
        """Keep `pack_hook(tensor)` in place of the tensor; `unpack_hook` returns the tensor.  RuntimeError if there are
        hooks already.
        """
        node, number = self.node, self.number
        if node.saved is None:
            raise RuntimeError(RELEASED)
        item = node.saved[number]
        if type(item) is Packed:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is allowed at a time."
            )
        node.saved, node.versions = list(node.saved), list(node.versions)
        node.saved[number], node.versions[number] = packed(item, pack_hook, unpack_hook), None


def node_class(name: str) -> type[OpNode]:
    """The class of nodes with this name; users see it as `type(t.grad_fn).__name__`."""
    found = _CLASSES.get(name)
    if found is None:
        namespace = "torch::autograd::" if name in ("CopyBackwards", "CopySlices") else ""
        found = _CLASSES[name] = type(name, (OpNode,), {"__slots__": (), "_namespace": namespace})
    return found


class AccumulateGrad(Node):
    """Adds what arrives to `.grad` of a leaf.  It knows the leaf weakly: the leaf holds it, and a leaf that is gone
    needs no gradient.

    `level` is the function transform that made the leaf, if one did.
    """

    __slots__ = ("_variable", "level")
    _wants_none = True  # hooks after accumulation run all the same
    _namespace = "torch::autograd::"

    def __init__(self, variable: Tensor) -> None:
        self._edges, self._extra, self._seq = (), None, LAST
        self._variable = weakref.ref(variable)
        self.level: Any = None

    @property
    def variable(self) -> Tensor | None:
        return self._variable()

    def _result_specs(self) -> Sequence[Spec | None]:
        variable = self._variable()
        if variable is None:
            raise RuntimeError("the leaf behind this node is gone")
        return [variable._spec]

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        grad = grads.pop()
        variable = self._variable()
        if variable is not None:
            HOOKS.accumulate(variable, grad)
        return ()


HOOKS.make_accumulator = AccumulateGrad
register_slots("O_EDGES", OpNode, ("_edges", "_extra", "_seq", "info", "saved", "versions", "where"))
