"""`make_fx`: a function of tensors as a graph of aten operators, by running it.

>>> import rushlight as torch
>>> graph = make_fx(lambda x: (x * 2).sum())(torch.ones(3))
>>> print(graph.code.strip())
def forward(self, x_1):
    mul = torch.ops.aten.mul.Tensor(x_1, 2);  x_1 = None
    sum_1 = torch.ops.aten.sum.default(mul);  mul = None
    return sum_1
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import rushlight
from rushlight import _C, Size, Tensor
from rushlight._interface.base import trace_marks, tree_flatten, tree_map, tree_unflatten
from rushlight._interface.dispatch import DISPATCH_CLASSES
from rushlight._interface.functorch import top_level
from rushlight._interface.sizes import Undecided
from rushlight._subclasses import constants
from rushlight._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from rushlight.fx.codegen import PyTreeCodeGen, PyTreeInfo
from rushlight.fx.experimental.sized_nodes import SizedNodes
from rushlight.fx.experimental.symbolic_shapes import ShapeEnv, is_symbolic
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.interpreter import Interpreter
from rushlight.fx.node import Node
from rushlight.nn.modules.module import Module
from rushlight.utils import _pytree as pytree
from rushlight.utils._python_dispatch import (
    InfraMode,
    _detect_infra_mode,
    _disable_current_modes,
    _disable_infra_mode,
    _ModeKey,
)

__all__ = [
    "DecompositionInterpreter",
    "ProxyTorchDispatchMode",
    "disable_proxy_modes_tracing",
    "get_isolated_graphmodule",
    "get_proxy_mode",
    "make_fx",
    "maybe_disable_fake_tensor_mode",
]

# Operators that change what a tensor looks like.
_LOOKS = frozenset("transpose_ t_ squeeze_ unsqueeze_ swapaxes_ swapdims_ as_strided_ resize_".split())
_FACTS = frozenset(("sym_size", "sym_stride", "sym_numel", "sym_storage_offset"))
_UNCONSTANT = frozenset(("_local_scalar_dense", "equal", "allclose", "is_nonzero"))


class ProxyTorchDispatchMode(InfraMode):
    """The mode that writes a graph: each operator becomes a node, each tensor that comes out of one stands for it.

    A trace inside of another one takes its place until it is done: nothing of it is in the graph around.
    """

    _mode_key = _ModeKey.PROXY

    def __init__(
        self, graph: Graph, root: Module, decompositions: Mapping[Any, Callable[..., Any]] | None = None
    ) -> None:
        super().__init__()
        self.graph, self.root, self.decompositions = graph, root, decompositions or {}
        self.kept: list[Any] = []  # so that identities stay theirs
        self.before: list[tuple[Any, Any, Any]] = []  # tensors of a trace around: node and known elements there
        self.constants: dict[int, str] = {}
        self.shape_env: Any = None
        self.numbers = SizedNodes(graph, self.node_of)
        self.records = rushlight.is_grad_enabled()  # what the graph has set so far
        self.refuses_numbers = True  # an error for a number that is read from a tensor

    def track(self, tensor: Any, node: Node) -> None:
        """Let a tensor stand for a node."""
        held = tensor.__dict__.get("_fx_node")
        if held is not None and held[0] is not self:
            self.before.append((tensor, held, tensor.__dict__.pop("_fx_constant", None)))
        tensor.__dict__["_fx_node"] = self, node  # other objects for the same tensor take it over
        self.kept.append(tensor)
        if self.shape_env is not None:
            self.numbers.note_tensor(tensor, node)

    def placeholder(self, name: str, tensor: Any) -> Any:
        """A further input, behind those that are there, and the tensor that stands for it."""
        last = next((n for n in reversed(self.graph.nodes) if n.op == "placeholder"), None)
        with self.graph.inserting_before() if last is None else self.graph.inserting_after(last):
            node = self.graph.placeholder(name)
        node.meta["val"] = tensor
        self.track(tensor, node)
        return tensor

    def release(self) -> None:
        """Let tensors stand for nothing, or for the nodes of a trace around this one."""
        for tensor in filter(self._tracks, self.kept):
            tensor.__dict__.pop("_fx_node", None)
            tensor.__dict__.pop("_fx_constant", None)
        for tensor, held, constant in reversed(self.before):
            tensor.__dict__["_fx_node"] = held
            if constant is not None:
                tensor.__dict__["_fx_constant"] = constant

    @contextlib.contextmanager
    def watching(self, on: bool = True) -> Iterator[None]:
        """A context in which arithmetic with sizes is written down, or is not."""
        if self.shape_env is None:
            yield
            return
        before = self.shape_env.watch
        self.shape_env.watch = self.numbers.note if on else None
        try:
            yield
        finally:
            self.shape_env.watch = before

    def node_of(self, value: Any) -> Any:
        """The node of a tensor or a symbolic number; one that the graph reads from the module for a tensor from outside;
        other values as they are.
        """
        if isinstance(value, Undecided):
            return self.numbers.condition(value)
        if not isinstance(value, Tensor):
            return self.numbers.node(value) if is_symbolic(value) and self.shape_env is not None else value
        if self._tracks(value):
            return value.__dict__["_fx_node"][1]
        if isinstance(value, FakeTensor) and value.constant is None and "_fx_node" not in value.__dict__:
            raise RuntimeError("make_fx: a fake tensor from outside of the function that is traced")
        name = self.constants.get(id(value))
        if name is None:
            if isinstance(value, rushlight.nn.Parameter):
                name = f"_param_constant{sum(n.startswith('_param') for n in self.constants.values())}"
            else:
                name = f"_tensor_constant{sum(n.startswith('_tensor') for n in self.constants.values())}"
            self.constants[id(value)] = name
            self.kept.append(value)
            if isinstance(value, rushlight.nn.Parameter):
                setattr(self.root, name, value)
            else:
                self.root.register_buffer(name, value)
        node = self.graph.get_attr(name)
        node.meta["val"] = value
        return node

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = [v for v in tree_flatten((list(args), kwargs))[0] if isinstance(v, Tensor)]
        if any(type(v) in DISPATCH_CLASSES and not isinstance(v, FakeTensor) and not self._tracks(v) for v in leaves):
            return NotImplemented  # a wrapper says what it does with the tensors inside
        if func._opname == "_assert_scalar" and self.shape_env is not None:
            return self.check(*args)
        if func._opname in _FACTS and self.shape_env is not None:
            return func(*args, **kwargs)  # known; its node is made when a call takes it
        rule = self.decompositions.get(func)
        if rule is None and func in self.decompositions:
            return func(*args, **kwargs)
        if rule is not None:
            with self:
                made = rule(*args, **kwargs)
            if made is not NotImplemented:
                return made
        tracked = [v for v in leaves if self._tracks(v)]
        if func._opname in _UNCONSTANT and tracked:
            read = constants.applied(func, args, kwargs, _constant_of)
            if read is not constants.UNKNOWN:
                return read
            if self.refuses_numbers and not any(isinstance(v, FakeTensor) for v in tracked):
                raise RuntimeError(
                    "It appears that you're trying to get value out of a tracing tensor with "
                    f"{func} - erroring out! It's likely that this is caused by data-dependent control flow or similar. "
                    "It may be possible to trace this with dynamic shapes; try setting tracing_mode='symbolic' in your make_fx call."
                )
        if func._opname == "lift_fresh":
            func = rushlight.ops.aten.lift_fresh_copy.default
        self.note_grad_mode()
        given = tree_map(self.node_of, list(args))
        named = {k: tree_map(self.node_of, v) for k, v in kwargs.items()}
        node = self.graph.create_node(
            "call_function", func, tuple(given), named, name=self.graph._target_to_str(func._opname)
        )
        if func._opname in _LOOKS:
            self._keep_look(args[0])
        with self.watching(False):
            made = self.run(func, args, kwargs)
        if func._opname == "lift_fresh_copy" and isinstance(made, Tensor) and any(made is leaf for leaf in leaves):
            made = made.detach()
        if not any(isinstance(v, FakeTensor) for v in (*leaves, *tree_flatten(made)[0])):  # their mode does it
            constants.carry(func, args, kwargs, made, _constant_of, _let_be_constant)
        node.meta["val"] = made
        self._spread(made, node)
        return made

    def check(self, asked: Any, message: str) -> None:
        """Write down what is required of sizes, if it does not hold for all that they may be, and require it."""
        if isinstance(asked, Undecided):
            op = rushlight.ops.aten._assert_scalar.default
            self.graph.create_node("call_function", op, (self.numbers.condition(asked), message), name=op._opname)
            asked.require()
        elif not asked:
            raise RuntimeError(message)

    def _tracks(self, tensor: Any) -> bool:
        """Whether a tensor stands for a node of this graph."""
        held = tensor.__dict__.get("_fx_node")
        return held is not None and held[0] is self

    def note_grad_mode(self) -> None:
        """Let the graph record gradients from here on, or not, as the program does; above autograd alone."""
        if self.pre_dispatch and rushlight.is_grad_enabled() is not self.records:
            self.records = rushlight.is_grad_enabled()
            self.graph.call_function(_C._set_grad_enabled, (self.records,))

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The value of a call that is written down."""
        return func(*args, **kwargs)

    def _keep_look(self, tensor: Any) -> None:
        """Let the node of a tensor that is about to look otherwise show it as it was."""
        held = tensor.__dict__.get("_fx_node")
        if held is not None and held[0] is self:
            with _disable_current_modes():
                if isinstance(tensor, FakeTensor):
                    before: Any = FakeTensor(tensor.fake_mode, tensor.meta.detach(), tensor.device)
                else:
                    before = tensor.detach()
            held[1].meta["val"] = before

    def _spread(self, made: Any, node: Node) -> None:
        """Let results stand for the node, and parts of them for its items."""
        if isinstance(made, Tensor):
            self.track(made, node)
        elif is_symbolic(made) and self.shape_env is not None:
            self.numbers.stand(made, node)
        elif isinstance(made, Undecided):
            self.numbers.stand_for(made, node)
        elif isinstance(made, (tuple, list)):
            for place, part in enumerate(made):
                item = self.graph.create_node("call_function", operator.getitem, (node, place), {}, name="getitem")
                if not isinstance(part, Tensor):  # the number of its name is taken all the same
                    self.graph.erase_node(item)
                    continue
                item.meta["val"] = part
                self.track(part, item)


def _constant_of(tensor: Any) -> Any:
    """The elements of a tensor that are the same at each call; None where they are not known."""
    return constants.living(tensor.constant if isinstance(tensor, FakeTensor) else tensor.__dict__.get("_fx_constant"))


def _let_be_constant(tensor: Any, constant: Any) -> None:
    tensor.__dict__["_fx_constant"] = constant


def _title(function: Any) -> str:
    """The class name of a function's graph."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return "<lambda>"
    return str(function.__name__)


def _names(function: Any, count: int) -> list[str]:
    """The names of the arguments, for placeholders."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        known = []
    else:
        skip = 1 if inspect.ismethod(function) else 0
        known = list(code.co_varnames[skip : code.co_argcount])
    return known if len(known) >= count else [*known, *[f"arg{i}" for i in range(len(known), count)]]


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
    record_stack_traces: bool = False,
    proxy_module_inputs: bool = False,
    _disable_torch_fn_metadata_mode: bool = False,
    _mode_class: type[ProxyTorchDispatchMode] = ProxyTorchDispatchMode,
) -> Callable[..., GraphModule]:
    """A function that runs `f` on its arguments and gives the graph of aten operators that ran, as a `GraphModule`.

    `tracing_mode`: "real" runs on the tensors, "fake" on fake tensors, "symbolic" on fake tensors whose sizes are symbols:
    the graph takes sizes from its inputs, and `shape_env` holds what was asked of them.  `decomposition_table`: operator
    -> function that is run in its place.  With `pre_dispatch` operators are written down above autograd, as they were
    called: `linear`, not `addmm`.  RuntimeError where a number is read from a tensor.
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"tracing_mode must be real, fake or symbolic, got {tracing_mode!r}")

    @functools.wraps(f)
    def traced(*args: Any) -> GraphModule:
        found = _fake_mode_of(args)
        fake = None if tracing_mode == "real" else found or _new_fake_mode(tracing_mode, _allow_non_fake_inputs)
        graph, root = Graph(), Module()
        mode = _mode_class(graph, root, decomposition_table)
        mode.pre_dispatch = pre_dispatch
        mode.shape_env = getattr(fake or found, "shape_env", None)
        mode.refuses_numbers = _error_on_data_dependent_ops
        if tracing_mode == "symbolic" and mode.shape_env is None:
            raise AssertionError("shape_env should be set if tracing with 'symbolic'")
        try:
            with disable_proxy_modes_tracing():
                given = _given(mode, fake, tracing_mode == "symbolic", f, args)
            with contextlib.ExitStack() as stack:
                if fake is not None:
                    stack.enter_context(fake)
                stack.enter_context(mode)
                stack.enter_context(mode.watching())
                stack.enter_context(_without_cast_cache())
                out = f(*given)
                mode.note_grad_mode()
            _put_output(mode, _names(f, len(args)), args, out)
        finally:
            mode.release()
        graph.lint()
        made = GraphModule(root, graph, _title(f))
        made.shape_env = mode.shape_env
        return made

    return traced


@contextlib.contextmanager
def _without_cast_cache() -> Iterator[None]:
    """A context in which autocast casts parameters anew: copies made before are in no graph."""
    before = rushlight.is_autocast_cache_enabled()
    rushlight.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        rushlight.set_autocast_cache_enabled(before)


def _fake_mode_of(args: Any) -> Any:
    """The mode of the fake tensors among the arguments, or the one that is on; None for real tensors."""
    found = next((v.fake_mode for v in pytree.tree_leaves(args) if isinstance(v, FakeTensor)), None)
    return _detect_infra_mode(_ModeKey.FAKE) if found is None else found


def _new_fake_mode(tracing_mode: str, takes_others: bool) -> FakeTensorMode:
    return FakeTensorMode(
        allow_non_fake_inputs=takes_others, shape_env=ShapeEnv(), static_shapes=tracing_mode == "fake"
    )


def _put_output(mode: ProxyTorchDispatchMode, names: Sequence[str], args: Any, out: Any) -> None:
    """The result; of a function with nested arguments its leaves, and code that takes and gives the nested values."""
    structure = pytree.tree_structure(tuple(args))
    if all(child.is_leaf() for child in structure.children()):
        # A size of numbers that are not known is a tuple: it cannot hold nodes.
        plain = pytree.tree_map_only(Size, tuple, out, is_leaf=lambda value: isinstance(value, Size))
        mode.graph.output(tree_map(mode.node_of, plain))
        return
    leaves, out_structure = pytree.tree_flatten(out)
    mode.graph.output([mode.node_of(leaf) for leaf in leaves])
    mode.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(list(names[: len(args)]), structure, out_structure)))


def _given(mode: ProxyTorchDispatchMode, fake: Any, symbolic: bool, f: Any, args: Any) -> list[Any]:
    """The arguments that the function runs on; a placeholder for each of their leaves."""
    given, count = [], 0
    for name, value in zip(_names(f, len(args)), args, strict=False):
        leaves, structure = pytree.tree_flatten(value)
        made = []
        for place, leaf in enumerate(leaves):
            node = mode.graph.placeholder(f"{name}_{place + 1}")
            if isinstance(leaf, Tensor):
                if top_level((leaf,)) is not None:
                    raise NotImplementedError(
                        "make_fx inside of vmap or of forward mode: the graph would hold the batch"
                    )
                if fake is not None:
                    leaf = fake.from_tensor(leaf, static_shapes=None if symbolic else True, source=f"input{count}")
                mode.track(leaf, node)
            elif symbolic and type(leaf) is int:
                leaf = fake.shape_env.create_symbol(leaf, f"input{count}")
            if is_symbolic(leaf) and mode.shape_env is not None:
                mode.numbers.stand(leaf, node)
            count += 1
            node.meta["val"] = leaf
            made.append(leaf)
        given.append(pytree.tree_unflatten(made, structure))
    return given


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The mode that writes down calls; None where no trace is being made."""
    found: ProxyTorchDispatchMode | None = _detect_infra_mode(_ModeKey.PROXY)
    return found


@trace_marks.changes_later_calls
def disable_proxy_modes_tracing() -> contextlib.AbstractContextManager[ProxyTorchDispatchMode | None]:
    """A context in which nothing is written down; gives the mode that wrote."""
    return _disable_infra_mode(_ModeKey.PROXY)


def maybe_disable_fake_tensor_mode() -> contextlib.AbstractContextManager[Any]:
    """A context without the mode of fake tensors."""
    return unset_fake_temporarily()


class DecompositionInterpreter(Interpreter):
    """Run a graph, and write its operators to another graph, those of a table as the operators that they are made of.

    >>> import rushlight as torch
    >>> from rushlight.fx.graph import Graph
    >>> rules = {torch.ops.aten.t.default: lambda x: x.transpose(0, 1)}
    >>> traced, written = make_fx(lambda x: x.t() * 2)(torch.ones(2, 3)), Graph()
    >>> DecompositionInterpreter(traced, written, rules).run(torch.ones(2, 3)).shape
    torch.Size([3, 2])
    >>> [node.name for node in written.nodes]
    ['x_1', 'transpose', 'mul', 'output']
    """

    def __init__(
        self,
        module: GraphModule,
        new_graph: Graph,
        decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(module, **kwargs)
        self.new_graph = new_graph
        self.mode = ProxyTorchDispatchMode(new_graph, module, decomposition_table)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An input of both graphs."""
        return self._tracked(super().placeholder(target, args, kwargs), self.new_graph.placeholder(target))

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An attribute that both graphs read."""
        return self._tracked(super().get_attr(target, args, kwargs), self.new_graph.get_attr(target))

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of both graphs."""
        out = super().output(target, args, kwargs)
        self.new_graph.output(tree_map(self.mode.node_of, out))
        return out

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The result for these arguments."""
        try:
            with self.mode:
                return super().run(*args, **kwargs)
        finally:
            self.mode.release()

    def _tracked(self, value: Any, node: Node) -> Any:
        node.meta["val"] = value
        if isinstance(value, Tensor):
            self.mode.track(value, node)
        return value


def get_isolated_graphmodule(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tracing_mode: str = "real"
) -> GraphModule:
    """The graph of a call; nothing of it is in a trace around."""
    flat, structure = tree_flatten((list(args), kwargs))

    def wrapped(flat_args: list[Any]) -> Any:
        given, named = tree_unflatten(flat_args, structure)
        return func(*given, **named)

    return make_fx(wrapped, tracing_mode=tracing_mode)(flat)
