"""Running a module on fake tensors and writing down its operators, as a graph over parameters, buffers and inputs."""

from __future__ import annotations

import contextlib
import copy
import linecache
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import rushlight
from rushlight import SymBool, SymFloat, SymInt, Tensor, compiler
from rushlight._dynamo.exc import UserError, UserErrorType
from rushlight._functorch.functional_graphs import is_number
from rushlight._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from rushlight.export._assertions import assert_bounds, assert_required
from rushlight.export._control import ControlFlowMode, grad_parts
from rushlight.export._names import identifier, keyword_free
from rushlight.export._preserved import PreservedCalls
from rushlight.export._shapes import ExportShapeEnv, InputSizes
from rushlight.export.dynamic_shapes import LeafSpec
from rushlight.fx.experimental.symbolic_shapes import (
    DimDynamic,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
    ValueRange,
    is_symbolic,
)
from rushlight.fx.graph import Graph
from rushlight.fx.node import Node
from rushlight.fx.passes.shape_prop import _extract_tensor_metadata
from rushlight.fx.traceback import get_current_meta
from rushlight.library.aten.calls import ABOVE
from rushlight.nn.modules.module import Module
from rushlight.utils._python_dispatch import _disable_current_modes
from rushlight.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["Traced", "hoist", "trace_module"]

_OWN = __file__.rpartition("export")[0]  # the folder of the package
_SHOWN = ("nn", "functional", "distributions")  # whose lines are shown beside those of users
# Composites that ask for elements, or name a device
_READING = frozenset(("to", "cpu", "item", "is_nonzero", "allclose", "tensor_split", "repeat_interleave"))
_DETACHING = frozenset(("detach", "detach_"))
_CONSTANTS = (type(None), bool, int, float, str, complex)


@dataclass
class Input:
    """A placeholder: what it is ("parameter", "buffer", "constant", "user"), the name of its attribute, its value."""

    node: Node
    kind: str
    target: str | None
    value: Any
    persistent: bool | None = None


@dataclass
class Traced:
    """A graph, what its inputs and results are, and the sizes that it knows of."""

    graph: Graph
    root: Module
    inputs: list[Input]
    results: list[Any]  # nodes, and values that are constants
    out_spec: TreeSpec
    sizes: InputSizes
    fake_mode: Any
    constants: dict[str, Any] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)  # submodules that ran, in order
    preserved: PreservedCalls = field(default_factory=PreservedCalls)


# ***** the user's lines *****

_LINES: dict[tuple[Any, int], tuple[str, bool]] = {}
_KNOWN_FILES: dict[str, bool] = {}


def _is_shown(file: str) -> bool:
    """Whether lines of a file are told: those of users, and of the package's modules."""
    known = _KNOWN_FILES.get(file)
    if known is None:
        if file.startswith(_OWN):
            parts = file[len(_OWN) :].replace("\\", "/").split("/")
            known = parts[0] == "nn" and "modules" in parts and parts[-1] not in ("module.py", "hooks.py")
        else:
            known = not file.startswith("<frozen")
        _KNOWN_FILES[file] = known
    return known


def stack_trace(depth: int = 1) -> str | None:
    """The lines of users and modules that led here, the innermost last; from the first `forward` on."""
    frame: Any = sys._getframe(depth)
    rows: list[str] = []
    while frame is not None:
        code = frame.f_code
        if code is _RUN.__code__:
            break
        if _is_shown(code.co_filename):
            key = code, frame.f_lineno
            row = _LINES.get(key)
            if row is None:
                line = linecache.getline(code.co_filename, frame.f_lineno).strip()
                text = f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n    {line}\n'
                row = _LINES[key] = text, True
            rows.append(row[0])
        frame = frame.f_back
    return "".join(reversed(rows)).strip() + "\n" if rows else None


# ***** the mode *****


class ExportMode(ControlFlowMode):
    """Writes down operators as they are called, with the modules and lines they come from; tensors from outside become
    inputs of the graph.
    """

    def __init__(self, graph: Graph, root: Module, attributes: dict[int, str]) -> None:
        super().__init__(graph, root)
        self.attributes = attributes  # of tensors that modules hold as plain attributes
        self.stack: dict[str, tuple[str, str]] = {}
        self.calls: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.preserved = PreservedCalls()
        self.lifted: list[Input] = []
        self.spot: Any = None  # the first input of the user
        self.lift_count = 0

    def node_of(self, value: Any) -> Any:
        """As in the base; a tensor from outside becomes a constant input."""
        if not isinstance(value, Tensor):
            return super().node_of(value)
        held = value.__dict__.get("_fx_node")
        if held is not None and held[0] is self:
            return self.reached(held[1], value)
        if isinstance(value, FakeTensor):
            raise RuntimeError("torch.export: a fake tensor from outside of the program that is exported")
        held_here: Any = self.constants.get(id(value))
        known: Node = self._lift(value) if held_here is None else held_here
        return self.reached(known, known.meta["val"])

    def _lift(self, value: Tensor) -> Node:
        name = self.attributes.get(id(value))
        if name is None:
            inside = next(reversed(self.stack.values()))[0] if self.stack else ""
            name = f"{inside}.lifted_tensor_{self.lift_count}" if inside else f"lifted_tensor_{self.lift_count}"
            self.lift_count += 1
        given, value = value, self._without_gradient(value, name)
        whole = self.frames[0].graph
        spot = whole.inserting_before(self.spot) if self.spot is not None else contextlib.nullcontext()
        with spot:
            node = whole.placeholder(f"c_{identifier(name)}")
        node.target = node.name  # another one where an argument is called so
        fake = self.fake_mode.from_tensor(value, static_shapes=True)
        node.meta["val"] = fake
        self.constants[id(given)] = node  # type: ignore[assignment]
        self.kept.append(given)
        self.lifted.append(Input(node, "constant", name, value))
        return node

    def _without_gradient(self, value: Tensor, name: str) -> Tensor:
        """A tensor from outside is a constant: one that wants a gradient is detached, with a warning."""
        if not value.requires_grad:
            return value
        warnings.warn(
            f"A model attribute `{name}` requires gradient but it's not properly registered as a parameter. torch.export will detach it and "
            "treat it as a constant tensor but please register it as parameter instead.",
            stacklevel=2,
        )
        with _disable_current_modes():
            return value.detach()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._opname == "contiguous" and isinstance(args[0], Tensor) and args[0].is_contiguous(**(kwargs or {})):
            return args[0]  # no operator is called
        if func.namespace == "rushlight":
            raise NotImplementedError(f"torch.export: {func._opname} has no counterpart among the aten operators")
        self.last = self.graph._root._prev
        if func._opname == "to" and isinstance(args[0], Tensor):
            self._assert_metadata(args[0])
        made = super().__torch_dispatch__(func, types, args, kwargs)
        self.noted()
        return made

    def _assert_metadata(self, x: Any) -> None:
        """Let the program check the dtype that a cast met in the trace: for another one it would be another program."""
        node = self.graph.create_node(
            "call_function",
            rushlight.ops.aten._assert_tensor_metadata.default,
            (self.node_of(x),),
            {"dtype": x.dtype, "device": x.device, "layout": x.layout},
            name="_assert_tensor_metadata_default",
        )
        node.meta["val"] = None

    last: Any = None

    def noted(self) -> None:
        """Let new nodes know where they come from."""
        trace, stack, before = stack_trace(2), self.stack, self.last
        node = self.graph._root._prev
        # Modes see operators of users below autograd, where nothing is recorded any more.
        grads = bool(rushlight.is_grad_enabled() or ABOVE.done and ABOVE.recorded)
        while node is not before and node is not self.graph._root:
            if "nn_module_stack" not in node.meta and node.op != "placeholder":
                node.meta["nn_module_stack"] = stack
                node.meta["grad_enabled"] = grads
                self._name_function(node)
                node.meta.update(copy.copy(get_current_meta()))
                if trace is not None:
                    node.meta["stack_trace"] = trace
            node = node._prev
        self.last = self.graph._root._prev

    def _name_function(self, node: Node) -> None:
        """Note which function the node calls, and its how manieth call it is; functions are told from their operators."""
        name = getattr(node.target, "_opname", None)
        if name is not None and not name.startswith("sym_"):
            count = self.counts[name] = self.counts.get(name, 0) + 1
            node.meta["torch_fn"] = f"{name}_{count}", f"builtin_function_or_method.{name}"

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The fake result: whole operators run below autograd, which is told by `requires_grad` alone."""
        if getattr(func, "form", None) is None or func._opname in _READING:
            return func(*args, **kwargs)
        made = self.fake_mode.__torch_dispatch__(func, (), args, kwargs)
        if func._opname not in _DETACHING and rushlight.is_grad_enabled():
            leaves = [*args, *kwargs.values()]
            leaves += [v for each in leaves if isinstance(each, (list, tuple)) for v in each]
            if any(isinstance(v, Tensor) and v.requires_grad for v in leaves):
                for each in made if isinstance(made, (list, tuple)) else (made,):
                    if isinstance(each, Tensor) and (each.is_floating_point() or each.is_complex()):
                        each.requires_grad_()
        return made

    @contextlib.contextmanager
    def inside(self, fqn: str, name: str) -> Iterator[None]:
        """A context in which a submodule runs."""
        count = self.calls.get(fqn, 0)
        self.calls[fqn] = count + 1
        key = f"L__self__{fqn}@{count}" if count else f"L__self__{fqn}"
        before, self.stack = self.stack, {**self.stack, key: (fqn, name)}
        try:
            yield
        finally:
            self.stack = before


def class_name(module: Any) -> str:
    """The full name of a module's class, as programs of PyTorch see it."""
    kind = type(module)
    where = kind.__module__
    where = f"torch{where[len('rushlight') :]}" if where.partition(".")[0] == "rushlight" else where
    return f"{where}.{kind.__qualname__}"


# ***** what a module holds *****


@dataclass
class State:
    """Parameters, buffers and plain tensors of a module, by their full names; aliases have a name each."""

    parameters: dict[str, Any]
    buffers: dict[str, Any]
    persistent: dict[str, bool]
    attributes: dict[int, str]


def state_of(module: Module) -> State:
    """State of a module and its submodules."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers(remove_duplicate=False))
    persistent, attributes = {}, {}
    for prefix, inner in module.named_modules(remove_duplicate=False):
        dot = f"{prefix}." if prefix else ""
        for name in inner._buffers:
            persistent[dot + name] = name not in inner._non_persistent_buffers_set
        for name, value in inner.__dict__.items():
            if isinstance(value, Tensor) and id(value) not in attributes:
                attributes[id(value)] = dot + name
    return State(parameters, buffers, persistent, attributes)


# Attributes of `Module` itself.
_OF_MODULES = frozenset(Module().__dict__)
_ASSIGNED = (
    " assigned during export. Such attributes must be registered as buffers using the `register_buffer` API "
    "(https://pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_buffer)."
)


class _Contents:
    """Contents of the lists and dicts that a module holds, nested ones included: a trace may put its own tensors there, as a cache."""

    def __init__(self, held: Any, path: str) -> None:
        self.held, self.path = held, path
        self.before = held.copy()
        self.inner = [
            _Contents(value, f"{path}[{key!r}]") for key, value in self._pairs(held) if isinstance(value, (list, dict))
        ]

    @staticmethod
    def _pairs(held: Any) -> list[tuple[Any, Any]]:
        return list(held.items() if isinstance(held, dict) else enumerate(held))

    def restore(self) -> list[str]:
        """Put back what was there; the paths of tensors that were new."""
        known = {id(value) for _, value in self._pairs(self.before)}
        now = self._pairs(self.held)
        found = [f"{self.path}[{key!r}]" for key, value in now if isinstance(value, Tensor) and id(value) not in known]
        if [(k, id(v)) for k, v in now] != [(k, id(v)) for k, v in self._pairs(self.before)]:
            self.held.clear()
            (self.held.update if isinstance(self.held, dict) else self.held.extend)(self.before)
        return found + [name for each in self.inner for name in each.restore()]


class _Swapped:
    """A context in which modules hold other tensors, and tell when they run; afterwards all is as it was."""

    def __init__(self, module: Module, values: dict[int, Any], mode: ExportMode) -> None:
        self.module, self.values, self.mode = module, values, mode
        self.before: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.contents: list[_Contents] = []
        self.paths: dict[int, str] = {}  # of modules, by their attributes

    def __enter__(self) -> _Swapped:
        seen: set[int] = set()
        for prefix, inner in self.module.named_modules(remove_duplicate=False):
            if id(inner) in seen:
                continue
            seen.add(id(inner))
            path = f"self.{prefix}" if prefix else "self"
            for name, held in inner.__dict__.items():
                if name not in _OF_MODULES and isinstance(held, (list, dict)) and id(held) not in seen:
                    seen.add(id(held))
                    self.contents.append(_Contents(held, f"{path}.{name}"))
            self.paths[id(inner.__dict__)] = path
            for table in (inner._parameters, inner._buffers):
                self.before.append((table, dict(table)))
                for name, value in table.items():
                    if value is not None:
                        table[name] = self.values[id(value)]
            self.before.append((inner.__dict__, dict(inner.__dict__)))
        self._hook()
        return self

    def _hook(self) -> None:
        """Let each module tell the mode when it runs; a module with two names tells the one by which it was reached."""
        names: dict[int, list[str]] = {}
        inner_of: dict[int, Any] = {}
        for prefix, inner in self.module.named_modules(remove_duplicate=False):
            names.setdefault(id(inner), []).append(prefix)
            inner_of[id(inner)] = inner
        for key, prefixes in names.items():
            inner = inner_of[key]
            inner.__dict__["forward"] = _telling(inner.forward, self.mode, prefixes, class_name(inner))

    def __exit__(self, kind: Any, *rest: object) -> None:
        found: list[str] = []
        for table, values in reversed(self.before):
            path = self.paths.get(id(table))
            for name, value in list(table.items()):
                if path is not None and isinstance(value, Tensor) and values.get(name) is not value:
                    found.append(f"{path}.{name}")
                if name not in values:
                    del table[name]
            table.update(values)
        found += [name for each in self.contents for name in each.restore()]
        if found and kind is None:
            what = "attribute" if len(found) == 1 else "attributes"
            text = f"The tensor {what} {', '.join(found)} {'was' if len(found) == 1 else 'were'}{_ASSIGNED}"
            warnings.warn(text, stacklevel=2)


def _telling(forward: Callable[..., Any], mode: ExportMode, prefixes: list[str], name: str) -> Callable[..., Any]:
    def told(*args: Any, **kwargs: Any) -> Any:
        inner = next(reversed(mode.stack.values()))[0] if mode.stack else None
        fitting = [p for p in prefixes if inner is not None and p.startswith(f"{inner}." if inner else "")]
        fqn = (fitting or prefixes)[0]
        with mode.inside(fqn, name):
            if fqn in mode.preserved.calls:
                return mode.preserved.run(fqn, mode, forward, args, kwargs)
            return forward(*args, **kwargs)

    return told


# ***** the trace *****


def _RUN(module: Any, args: Any, kwargs: Any) -> Any:
    """Run the module; stack traces end here."""
    return module(*args, **kwargs)


def trace_module(module: Module, leaves: list[LeafSpec], in_spec: TreeSpec, preserve: tuple[str, ...] = ()) -> Traced:
    """Run a module on fake tensors in the place of its arguments and of what it holds, and keep the graph of operators.

    `leaves`: the leaves of the arguments in the order of `in_spec`, the structure of (args, kwargs); `preserve`: names of
    submodules whose calls are noted.
    """
    env = ExportShapeEnv()
    fake_mode: Any = FakeTensorMode(allow_non_fake_inputs=True, shape_env=env, export=True)
    graph, root = Graph(), Module()
    state = state_of(module)
    mode = ExportMode(graph, root, state.attributes)
    mode.shape_env, mode.fake_mode = env, fake_mode
    mode.preserved = PreservedCalls(preserve)
    sizes = InputSizes(env)
    inputs, values = _state_inputs(mode, state)
    flat = _user_inputs(mode, leaves, sizes, inputs)
    sizes.equate()
    given, named = tree_unflatten(flat, in_spec)
    swapped = _Swapped(module, values, mode)
    with _exporting(), swapped, fake_mode, mode, mode.watching():
        env.asserting = partial(assert_required, mode)
        out = _RUN(module, given, named)
        env.asserting = None
        results, out_spec = tree_flatten(out)
        _copy_assigned(mode, module, state, values)
        graph.output(tuple([_result(mode, value) for value in results]))
    assert_bounds(graph, env)
    grad_parts(graph, root, rushlight.is_grad_enabled())
    mode.release()
    place = next((i for i, each in enumerate(inputs) if each.kind == "user"), len(inputs))
    inputs[place:place] = mode.lifted
    _finish(graph, state, mode)
    shown = list(graph.output_node().args[0])
    return Traced(
        graph, root, inputs, shown, out_spec, sizes, fake_mode, {i.target: i.value for i in mode.lifted if i.target}, list(mode.calls), mode.preserved
    )  # fmt: skip


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    before, grads = compiler._is_exporting_flag, rushlight.is_grad_enabled()
    compiler._is_exporting_flag = True
    try:
        yield
    finally:
        compiler._is_exporting_flag = before
        rushlight.set_grad_enabled(grads)  # a program may end in another mode than it began


def _state_inputs(mode: ExportMode, state: State) -> tuple[list[Input], dict[int, Any]]:
    """Placeholders for parameters and buffers, and the fake tensor for each of them."""
    inputs: list[Input] = []
    values: dict[int, Any] = {}
    rows = [("p", "parameter", state.parameters), ("b", "buffer", state.buffers)]
    for letter, kind, table in rows:
        for name, value in table.items():
            node = mode.graph.placeholder(f"{letter}_{identifier(name).removeprefix('self_')}")
            fake = values.get(id(value))
            if fake is None:
                fake = values[id(value)] = _faked(mode, value)
                if isinstance(value, rushlight.nn.Parameter):
                    fake._is_param = True
            node.meta["val"] = fake
            mode.track(fake, node)
            inputs.append(Input(node, kind, name, value, state.persistent.get(name) if kind == "buffer" else None))
    return inputs, values


def _user_inputs(mode: ExportMode, leaves: list[LeafSpec], sizes: InputSizes, inputs: list[Input]) -> list[Any]:
    """Placeholders for the user's arguments, and what the module gets in their place."""
    flat: list[Any] = []
    for leaf in leaves:
        name = "_".join(identifier(str(_key(k))) for k in leaf.path).lower()
        taken = {n.name for n in mode.graph.nodes}
        node = mode.graph.placeholder(name)
        if node.name != name and (name in taken or keyword_free(name)):
            made = next(n for n in (name, *[f"{name}_{k}" for k in range(1, len(taken) + 2)]) if n not in taken)
            held = next((i.node for i in inputs if i.node.name == name and i.kind in ("parameter", "buffer")), None)
            if held is not None:  # arguments keep their names
                held.name = held.target = made
                made = name
            node.name = made
        node.target = node.name
        mode.spot = mode.spot or node
        value = leaf.value
        if isinstance(value, Tensor):
            value = _fake_input(mode, leaf, sizes)
            mode.track(value, node)
        elif type(value) is int and -1 in leaf.dims:
            value = mode.shape_env.create_symbol(value, leaf.source)
            if is_symbolic(value):
                mode.numbers.stand(value, node)
            sizes.note(leaf, value)
        elif not isinstance(value, _CONSTANTS):
            raise UserError(
                UserErrorType.INVALID_INPUT,
                f"Unsupported input type {type(value)}. Export only supports pytree containers of basic types (Tensor, int, float, ...) "
                "as input. To register a custom dataclass, use torch.export.register_dataclass. To register a custom container type, use "
                "torch.utils._pytree.register_pytree_node.",
            )
        node.meta["val"] = value
        inputs.append(Input(node, "user", None, value))
        flat.append(value)
    return flat


def _fake_input(mode: ExportMode, leaf: LeafSpec, sizes: InputSizes) -> Any:
    _static, own, ranges = sizes.chosen(leaf)
    if not own:
        sizes.note(leaf, leaf.value)
        return _faked(mode, leaf.value)
    context = StatelessSymbolicContext(
        dynamic_sizes=[DimDynamic.DYNAMIC if d in own else DimDynamic.STATIC for d in range(leaf.value.dim())],
        constraint_sizes=[
            StrictMinMaxConstraint(ValueRange(*ranges[d])) if d in own else None for d in range(leaf.value.dim())
        ],
    )
    fake = _faked(mode, leaf.value, mode.shape_env, leaf.source, context)
    sizes.note(leaf, fake)
    return fake


def _faked(mode: ExportMode, value: Any, env: Any = None, source: Any = None, context: Any = None) -> Any:
    """The tensor that stands for a parameter or an argument, which may be fake itself: without data, with numbers as sizes."""
    if isinstance(value, FakeTensor) and any(is_symbolic(n) for n in (*value.shape, *value.stride())):
        raise UserError(
            UserErrorType.INVALID_INPUT,
            "export takes fake tensors whose sizes are numbers; dynamic_shapes says which of them vary",
        )
    return mode.fake_mode.fake_tensor_converter.from_real_tensor(mode.fake_mode, value, env, source, context)


def _key(key: Any) -> Any:
    for word in ("key", "idx", "name"):
        if word in getattr(key, "_fields", ()):
            return getattr(key, word)
    return key


def _copy_assigned(mode: ExportMode, module: Module, state: State, values: dict[int, Any]) -> None:
    """Write down, for buffers that the program replaced by other tensors, that they have these values."""
    done: set[int] = set()
    for prefix, inner in module.named_modules():
        for name, now in inner._buffers.items():
            full = f"{prefix}.{name}" if prefix else name
            before = values.get(id(state.buffers.get(full)))
            if before is not None and now is not None and now is not before and id(before) not in done:
                done.add(id(before))
                rushlight.ops.aten.copy_.default(before, now)
                mode.graph._root._prev.name = mode.graph._graph_namespace.create_name("copy__default", None)


def _result(mode: ExportMode, value: Any) -> Any:
    """A result as the graph returns it."""
    if isinstance(value, (Tensor, SymInt, SymFloat, SymBool)) or is_symbolic(value):
        if isinstance(value, Tensor) and not isinstance(value, FakeTensor):
            return mode.node_of(value)
        return mode.node_of(value)
    if isinstance(value, _CONSTANTS):
        return value
    raise UserError(
        UserErrorType.INVALID_OUTPUT,
        f"Found {type(value)} in output, which is not a known type. Please register it with torch.utils._pytree.register_pytree_node.",
    )


def hoist(graph: Graph) -> None:
    """Let sizes of inputs be read at once behind the inputs, one node for each symbol, named after those of the trace."""
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    asked = [n for n in graph.nodes if n.target is rushlight.ops.aten.sym_size.int and n.args[0] in inputs]
    traced = {(n.args[0], n.args[1]): n for n in asked}
    if not traced:
        return
    number, spot, seen = len(traced), inputs[-1], set[str]()
    for node in inputs:
        value = node.meta.get("val")
        for d, size in enumerate(value.shape if isinstance(value, Tensor) else ()):
            text = str(size) if is_symbolic(size) else ""
            if not text.isidentifier() or text in seen:
                continue
            seen.add(text)
            name, number = f"sym_size_int_{number}", number + 1
            same = [n for n in asked if str(n.meta["val"]) == text]
            if not same:
                continue
            with graph.inserting_after(spot):
                made = graph.create_node("call_function", rushlight.ops.aten.sym_size.int, (node, d), {}, name=name)
            made.meta["val"] = size
            spot = made
            for each in same:
                each.replace_all_uses_with(made)
                graph.erase_node(each)


def _finish(graph: Graph, state: State, mode: ExportMode) -> None:
    """Drop what nobody reads, and describe tensors."""
    hoist(graph)
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and is_number(node):
            graph.erase_node(node)
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor) and not (node.op == "placeholder" and str(node.target).startswith("c_")):
            node.meta["tensor_meta"] = _extract_tensor_metadata(value)
