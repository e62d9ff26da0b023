"""An ONNX model as a module: its floating-point initializers are parameters, its nodes are rushlight's operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.onnx.importing.errors import InvalidModelError
from rushlight.onnx.importing.folding import favours_channels_last, fold_batch_norms
from rushlight.onnx.importing.graph import Graph, Model, dense
from rushlight.onnx.importing.reading import Initializers, read_model
from rushlight.onnx.importing.values import DTYPES, Host, from_numpy, tensor

__all__ = ["OnnxModule", "load"]


def load(source: Any, *, folder: Any = None, trainable: bool = True) -> OnnxModule:
    """An ONNX model as a module.

    `source` is a path, the bytes of a file, or an `onnx.ModelProto`; `folder` is where data outside of bytes or a
    proto lies (a path has its own).  Nothing is read outside of that folder, and nothing in the file is executed as
    Python.

    Floating-point initializers become parameters (means and variances of batch normalisation: buffers), large integer
    ones buffers, under the names that the file gives them; the module can be trained, and its `state_dict` loaded.
    With `trainable=False` all of them are constants: what depends on nothing else is computed once, while the model is
    loaded, batch normalisation is folded into the convolution before it (which moves last bits), and tensors that are
    still needed then are buffers.

    The forward takes the graph's inputs, in order or by name, as tensors or NumPy arrays, and returns its output, or a
    tuple of them.

    Raises `InvalidModelError` (a ValueError) for files that are no models, `UnsupportedOperatorError` (a
    NotImplementedError) for operators that are not implemented; both name the node.  A node that refuses its inputs in
    a call raises `OperatorError`.

    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 22]>
    ...     agraph (float[n, 2] x) => (float[n, 2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }''')
    >>> module = load(model)
    >>> module(torch.ones(1, 2))
    tensor([[1., 2.]], grad_fn=<MulBackward0>)
    >>> list(module.state_dict())
    ['w']
    """
    proto, own = read_model(source)
    place = own if folder is None else Path(folder)
    return OnnxModule(proto, Initializers(place), trainable)


class _Holder(nn.Module):
    """A place for the parameters whose names begin alike."""


class OnnxModule(nn.Module):
    """A module made of an ONNX graph; see `rushlight.onnx.load`.

    `input_names` and `output_names` are the graph's; `graph_lines()` is the program as text, one node a line.
    """

    def __init__(self, proto: Any, initializers: Initializers, trainable: bool = True) -> None:
        super().__init__()
        graph = proto.graph
        opsets: dict[str, int] = {}
        for one in proto.opset_import:
            opsets[one.domain] = one.version
        if not opsets or any(version < 1 for version in opsets.values()):
            raise InvalidModelError("the model imports no operator set, or a version below 1")
        self.opsets, self.producer = opsets, f"{proto.producer_name} {proto.producer_version}".strip()
        given: dict[str, Any] = {}
        for one in graph.initializer:
            if not one.name or one.name in given:
                raise InvalidModelError(f"initializer {one.name!r} has no name, or is there twice")
            given[one.name] = initializers.value(one)
        given |= {one.values.name: dense(one) for one in graph.sparse_initializer}
        self.input_names = [one.name for one in graph.input if one.name not in given]
        self.defaulted = [one.name for one in graph.input if one.name in given]
        self.output_names = [one.name for one in graph.output]
        self._types = {one.name: _declared(one.type) for one in graph.input}
        if len({one.name for one in graph.input}) != len(graph.input):
            raise InvalidModelError("two inputs of the graph have one name")
        self._bindings: list[tuple[str, Any, str]] = []
        constants = self._distribute(graph, given) if trainable else self._all_but_defaults(given)
        names = [*self.input_names, *[name for name, _, _ in self._bindings], *self.defaulted]
        model = Model(opsets, proto.functions, initializers.value)
        self.graph = Graph(model, graph.node, list(dict.fromkeys(names)), self.output_names, constants=constants)
        self._channels_last = False
        if not trainable:
            fold_batch_norms(self.graph)
            self._channels_last = favours_channels_last(self.graph)
            self._keep(self.graph.constants)

    def _distribute(self, graph: Any, given: dict[str, Any]) -> dict[str, Any]:
        """Register initializers as parameters and buffers; return those that are constants of the graph."""
        plain, statistics = _uses(graph)
        constants = {}
        for name, value in given.items():
            data = tensor(value)
            if not isinstance(data, torch.Tensor):
                constants[name] = value
            elif data.is_floating_point() and name not in plain:
                self._bind(name, data, trained=name not in statistics)
            elif name not in self.defaulted and (
                isinstance(value, Host) or (data.is_floating_point() and data.ndim > 0)
            ):
                constants[name] = value
            else:
                self._bind(name, data, trained=False)
        return constants

    def _all_but_defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        """All initializers as constants, except those that a call may replace."""
        for name in self.defaulted:
            self._bind(name, tensor(given[name]), trained=False)
        return {name: value for name, value in given.items() if name not in self.defaulted}

    def _keep(self, constants: dict[str, Any]) -> None:
        """Register the tensors among the constants that the graph still reads; drop those that it does not."""
        read = {name for step in self.graph.steps for name in step.reads} | set(self.output_names)
        for name in [name for name in constants if name not in read]:
            del constants[name]
        for name, value in list(constants.items()):
            if isinstance(value, torch.Tensor):
                self._bind(name, constants.pop(name), trained=False, lasting=True)

    def _bind(self, name: str, data: Any, trained: bool, lasting: bool = False) -> None:
        """Register a tensor under the file's name; parts between dots are modules, as in PyTorch's names.

        It gets memory of its own: that of an array may be written to unseen, so nothing that a compiled program derives
        from it would last.
        """
        data = data.clone()
        holder: nn.Module = self
        *path, key = name.split(".")
        if not key or "" in path:
            path, key = [], name.replace(".", "_")
        for part in path:
            inner = holder._modules.get(part)
            if inner is None and hasattr(holder, part):
                path, key, holder = [], name.replace(".", "_"), self
                break
            if inner is None:
                inner = _Holder()
                holder.add_module(part, inner)
            holder = inner
        while hasattr(holder, key):
            key += "_"
        # Gradients exist for these types alone; elements of a byte are stored.
        if trained and data.dtype.itemsize > 1:
            holder.register_parameter(key, nn.Parameter(data))
        else:
            data._lasting = lasting
            holder.register_buffer(key, data)
        self._bindings.append((name, holder, key))

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The graph's outputs; inputs in order or by name."""
        results = [tensor(value) for value in self.run(inputs, named)]
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Any, named: dict[str, Any]) -> list[Any]:
        """The outputs as the graph has them, in a list."""
        values = dict(self.graph.constants)
        for name, holder, key in self._bindings:
            values[name] = _held(holder, key)
        if len(inputs) > len(self.input_names):
            raise TypeError(f"the model takes {len(self.input_names)} inputs, and {len(inputs)} were given")
        for name, value in zip(self.input_names, inputs):
            values[name] = self._taken(name, value)
        for name, value in named.items():
            if name not in self._types or (name in values and name not in self.defaulted):
                raise TypeError(f"{name!r} is no input of the model, or was given twice")
            values[name] = self._taken(name, value)
        for name in self.input_names:
            if name not in values:
                raise TypeError(f"input {name!r} of the model is missing")
        if not self._channels_last:
            return self.graph.follow(values)
        for name in self.input_names:
            values[name] = _laid_out(values[name], torch.channels_last)
        return [_laid_out(value, torch.contiguous_format) for value in self.graph.follow(values)]

    def _taken(self, name: str, value: Any) -> Any:
        """An argument as a value of the graph, checked against the type that the model declares."""
        value = from_numpy(value)
        declared = self._types[name]
        if declared is None or not isinstance(value, torch.Tensor):
            return value
        dtype, sizes = declared
        if dtype is not None and value.dtype != dtype:
            raise TypeError(f"input {name!r} is {dtype} in the model, and {value.dtype} was given")
        if sizes is not None and (
            len(sizes) != value.ndim
            or any(isinstance(want, int) and want != size for want, size in zip(sizes, value.shape))
        ):
            shown = ", ".join("?" if size is None else str(size) for size in sizes)
            raise ValueError(f"input {name!r} has the shape ({shown}) in the model, and {tuple(value.shape)} was given")
        return value

    def declared(self, name: str) -> Any:
        """(dtype, sizes) of an input as the model declares it: sizes are numbers, names, or None; None if nothing is
        said.
        """
        return self._types[name]

    def described(self, name: str) -> str:
        """An input as text, as in `x: float32[batch, 3]`."""
        return f"{name}: {_shown(self._types[name])}"

    def graph_lines(self) -> list[str]:
        """The graph as text: parameters, then one node a line."""
        lines = []
        for name, holder, key in self._bindings:
            value = _held(holder, key)
            lines.append(f"{name}: {str(value.dtype).removeprefix('torch.')}{list(value.shape)}")
        for name, value in self.graph.constants.items():
            if isinstance(value, Host):
                text = repr(value.plain())
                lines.append(f"{name} = {text if len(text) <= 80 else text[:77] + '...'}")
        return lines + self.graph.lines()

    def extra_repr(self) -> str:
        inputs = ", ".join(map(self.described, self.input_names))
        lines = [f"({inputs}) -> ({', '.join(self.output_names)})"]
        steps = self.graph.lines()
        return "\n".join(
            lines + (steps if len(steps) <= 200 else [*steps[:100], f"... {len(steps) - 200} more ...", *steps[-100:]])
        )


def _laid_out(value: Any, layout: Any) -> Any:
    """An image with its channels where `layout` has them; another value as it is."""
    if not isinstance(value, torch.Tensor) or value.ndim != 4:
        return value
    return value.contiguous(memory_format=layout)


def _held(holder: Any, key: str) -> Any:
    value = holder._parameters.get(key)
    if value is None:
        value = holder._buffers.get(key)
    return getattr(holder, key) if value is None else value


def _declared(proto: Any) -> Any:
    """(dtype, sizes) of a tensor that a model declares; None for types of which nothing is checked."""
    if not proto.HasField("tensor_type"):
        return None
    dtype = DTYPES.get(proto.tensor_type.elem_type)
    if not proto.tensor_type.HasField("shape"):
        return dtype, None
    dims = proto.tensor_type.shape.dim
    return dtype, [_size(dim) for dim in dims]


def _size(dim: Any) -> Any:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _shown(declared: Any) -> str:
    if declared is None:
        return "?"
    dtype, sizes = declared
    name = "?" if dtype is None else str(dtype).removeprefix("torch.")
    return name if sizes is None else f"{name}[{', '.join('?' if size is None else str(size) for size in sizes)}]"


# Inputs that are settings of an operator, or conditions: no gradient reaches them.
_SETTINGS = {
    ("Clip", 1), ("Clip", 2), ("Resize", 1), ("Resize", 2), ("Upsample", 1), ("Dropout", 1), ("Pad", 2), ("NonMaxSuppression", 3),
    ("NonMaxSuppression", 4), ("Where", 0), ("Gather", 1), ("Expand", 1), ("Reshape", 1), ("ScatterND", 1), ("ScatterElements", 1), ("GatherElements", 1),
    ("QuantizeLinear", 1), ("QuantizeLinear", 2), ("DequantizeLinear", 2),
}  # fmt: skip
# Operators through which no gradient flows.
_FLAT = {
    "And", "ArgMax", "ArgMin", "Ceil", "ConstantOfShape", "Equal", "EyeLike", "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less",
    "LessOrEqual", "NonMaxSuppression", "NonZero", "Not", "OneHot", "Or", "Range", "Round", "Shape", "Sign", "Size", "Xor", "QLinearConv", "QLinearMatMul",
    "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial",
}  # fmt: skip
_STATISTICS = {("BatchNormalization", 3), ("BatchNormalization", 4)}


def _uses(graph: Any) -> tuple[set[str], set[str]]:
    """Names that no gradient reaches from the outputs, and names that are only statistics."""
    every: dict[str, set[tuple[str, int]]] = {}
    reached = {one.name for one in graph.output}
    for node in reversed(graph.node):
        kind = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
        live = kind not in _FLAT and (kind == "Gradient" or any(name in reached for name in node.output))
        bodies = [a.g for a in node.attribute if a.HasField("g")]
        for i, name in enumerate(node.input):
            every.setdefault(name, set()).add((kind, i))
            if live and (kind, i) not in _SETTINGS:
                reached.add(name)
        # What a body uses counts as reached, whatever it does with it.
        for name in _names_within(bodies):
            every.setdefault(name, set()).add(("", 0))
            reached.add(name)
    statistics = {name for name, uses in every.items() if uses <= _STATISTICS}
    return {one.name for one in graph.initializer} - reached, statistics


def _names_within(bodies: list[Any]) -> set[str]:
    found: set[str] = set()
    waiting = list(bodies)
    while waiting:
        body = waiting.pop()
        found.update(one.name for one in body.output)
        for node in body.node:
            found.update(node.input)
            waiting.extend(a.g for a in node.attribute if a.HasField("g"))
    return found
