"""From a graph to `ModelProto`, and to files: one, or one with the weights beside it."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.exporting.build import Model, dim_text, named
from rushlight.onnx.exporting.translator import operator_name
from rushlight.onnx.exporting.values import Graph, Node, OnnxTensor, Value, element_type, import_onnx

__all__ = ["External", "model_proto", "save", "tensor_proto", "weight_bytes"]

np: Any = LazyModule("numpy")
_LIMIT = 2**31 - 1 - (1 << 20)  # what a file of Protocol Buffers may hold, less some room for the graph
_ALIGNED, _SMALL = 4096, 1024  # weights of fewer bytes stay in the graph


class External:
    """Weights that go into a file of their own: its name, and where each lies."""

    def __init__(self, name: str) -> None:
        self.name, self.pieces, self.length = name, [], 0  # type: ignore[var-annotated]

    def place(self, tensor: OnnxTensor) -> tuple[int, int]:
        """(offset, length) of a tensor's bytes; large ones begin at a page."""
        size = tensor.nbytes
        if size >= 1 << 20:
            self.length = -(-self.length // _ALIGNED) * _ALIGNED
        offset = self.length
        self.pieces.append((offset, tensor))
        self.length += size
        return offset, size


def weight_bytes(model: Model) -> int:
    """Bytes of all constants."""
    return sum(t.nbytes for t in model.graph.constants.values())


def raw_bytes(array: Any) -> bytes:
    """Elements as ONNX has them: one after another, in little-endian order."""
    array = np.ascontiguousarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return bytes(array.tobytes())


def tensor_proto(array: Any, dtype: Any, name: str = "") -> Any:
    """An array as a `TensorProto`."""
    proto = import_onnx().TensorProto()
    proto.data_type, proto.name = element_type(dtype), name
    proto.dims.extend(array.shape)
    proto.raw_data = raw_bytes(array)
    return proto


def _constant(value: Value, tensor: OnnxTensor, name: str, external: External | None) -> Any:
    proto = import_onnx().TensorProto()
    proto.name, proto.data_type = name, element_type(value.dtype)
    proto.dims.extend(tensor.array.shape if tensor.tensor is None else [int(s) for s in tensor.tensor.shape])
    if external is None or tensor.nbytes < _SMALL:
        proto.raw_data = raw_bytes(tensor.numpy())
        return proto
    offset, length = external.place(tensor)
    proto.data_location = 1
    for key, text in (("location", external.name), ("offset", offset), ("length", length)):
        entry = proto.external_data.add()
        entry.key, entry.value = key, str(text)
    return proto


class _Maker:
    """Makes the messages of one model."""

    def __init__(self, model: Model, external: External | None, keep_inputs: bool, weights: bool) -> None:
        self.onnx, self.model, self.external = import_onnx(), model, external
        self.keep_inputs, self.weights = keep_inputs, weights
        self.names = named(model)
        self.counts: dict[str, int] = {}

    def info(self, value: Value, proto: Any) -> None:
        """Fill a `ValueInfoProto`."""
        proto.name = self.names[value]
        kind = proto.type.tensor_type
        kind.elem_type = element_type(value.dtype)
        if value.shape is None:
            return
        kind.shape.SetInParent()
        for size in value.shape:
            dim = kind.shape.dim.add()
            text = dim_text(size, self.model.dims)
            if isinstance(text, int):
                dim.dim_value = text
            else:
                dim.dim_param = text

    def graph(self, graph: Graph, proto: Any, name: str) -> None:
        """Fill a `GraphProto`."""
        proto.name = name
        outer = graph is self.model.graph
        for value in graph.inputs:
            self.info(value, proto.input.add())
        for value in graph.outputs:
            self.info(value, proto.output.add())
        for value, tensor in graph.constants.items():
            if self.weights:
                proto.initializer.append(_constant(value, tensor, self.names[value], self.external))
            if self.keep_inputs or not self.weights:
                self.info(value, proto.input.add())
        ends = set(graph.outputs)
        for node in graph.nodes:
            self.node(node, proto.node.add())
            if outer and node.source is not None:
                for value in node.outputs:
                    if value not in ends and _describes(value, node):
                        self.info(value, proto.value_info.add())

    def node(self, node: Node, proto: Any) -> None:
        """Fill a `NodeProto`."""
        proto.op_type, proto.domain = node.op, node.domain
        proto.input.extend(["" if v is None else self.names[v] for v in node.inputs])
        proto.output.extend([self.names[v] for v in node.outputs])
        count = self.counts[node.op] = self.counts.get(node.op, -1) + 1
        proto.name = node.name or f"node_{node.op}_{count}"
        for key, attr in node.attrs.items():
            self.attribute(key, attr, proto.attribute.add())
        if node.source is not None:
            for key, text in source_metadata(node.source).items():
                entry = proto.metadata_props.add()
                entry.key, entry.value = key, text

    def attribute(self, key: str, attr: Any, proto: Any) -> None:
        """Fill an `AttributeProto`."""
        proto.name = key
        kinds = self.onnx.AttributeProto
        if isinstance(attr, Graph):
            proto.type = kinds.GRAPH
            self.graph(attr, proto.g, key)
        elif isinstance(attr, (bool, int)):
            proto.type, proto.i = kinds.INT, int(attr)
        elif isinstance(attr, float):
            proto.type, proto.f = kinds.FLOAT, attr
        elif isinstance(attr, (str, bytes)):
            proto.type, proto.s = kinds.STRING, attr.encode() if isinstance(attr, str) else attr
        elif isinstance(attr, (list, tuple)):
            self._many(list(attr), proto, kinds)
        elif isinstance(attr, rushlight.Tensor):
            proto.type = kinds.TENSOR
            proto.t.CopyFrom(tensor_proto(OnnxTensor(attr).numpy(), attr.dtype))
        else:
            array = np.asarray(attr)
            proto.type = kinds.TENSOR
            proto.t.CopyFrom(tensor_proto(array, getattr(rushlight, array.dtype.name)))

    def _many(self, items: list[Any], proto: Any, kinds: Any) -> None:
        if items and all(isinstance(i, (str, bytes)) for i in items):
            proto.type = kinds.STRINGS
            proto.strings.extend([i.encode() if isinstance(i, str) else i for i in items])
        elif any(isinstance(i, float) for i in items):
            proto.type = kinds.FLOATS
            proto.floats.extend([float(i) for i in items])
        else:
            proto.type = kinds.INTS
            proto.ints.extend([int(i) for i in items])


def _describes(value: Value, node: Node) -> bool:
    """Whether a value's shape is what the program says: that of a result of the node that it comes from."""
    found = node.source.meta.get("val")
    if value.shape is None or value.name.startswith("val_") or value.number:
        return False
    leaves = found if isinstance(found, (list, tuple)) else [found]
    return any(
        isinstance(leaf, rushlight.Tensor) and tuple(map(str, leaf.shape)) == tuple(map(str, value.shape))
        for leaf in leaves
    )


def source_metadata(node: Any) -> dict[str, str]:
    """Where a node comes from, under the names that PyTorch's exporter uses."""
    stack = node.meta.get("nn_module_stack") or {}
    scopes = [str(v[0]) for v in stack.values()]
    classes = [v[1] if isinstance(v[1], str) else f"{v[1].__module__}.{v[1].__qualname__}" for v in stack.values()]
    target = str(node.target) if hasattr(node.target, "_opname") else operator_name(node.target)
    made = {
        "namespace": "/".join([f"{s}: {c}" for s, c in zip(scopes, classes, strict=True)] + [f"{node.name}: {target}"]),
        "pkg.torch.onnx.class_hierarchy": json.dumps([*classes, target]),
        "pkg.torch.onnx.fx_node": node.format_node() or "",
        "pkg.torch.onnx.name_scopes": json.dumps([*scopes, node.name]),
    }
    trace = node.meta.get("stack_trace")
    if trace:
        made["pkg.torch.onnx.stack_trace"] = str(trace).strip()
    return made


def model_proto(model: Model, external: External | None = None, keep_inputs: bool = False, weights: bool = True) -> Any:
    """The model as a message; ValueError where it is larger than a message may be."""
    onnx = import_onnx()
    if external is None and weights and weight_bytes(model) > _LIMIT:
        raise ValueError("the weights are larger than 2 GB, which one file cannot hold: save with external_data=True")
    proto = onnx.ModelProto()
    proto.producer_name, proto.producer_version = "rushlight", str(rushlight.__version__)
    for domain, version in {"": model.opset, **model.domains}.items():
        entry = proto.opset_import.add()
        entry.domain, entry.version = domain, version
    ids = [onnx.helper.make_opsetid("", model.opset)]
    proto.ir_version = max(onnx.helper.find_min_ir_version_for(ids, ignore_unknown=True), 8)
    if any(v.dtype in _EIGHT for v in (*model.graph.inputs, *model.graph.constants)):
        proto.ir_version = max(proto.ir_version, 9)
    if proto.ir_version < 10:
        proto.ir_version = 10  # metadata of nodes came with version 10
    _Maker(model, external, keep_inputs, weights).graph(model.graph, proto.graph, "main_graph")
    for function in model.functions.values():
        proto.functions.append(function)
    for key, text in model.metadata.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, text
    return proto


_EIGHT = frozenset(getattr(rushlight, n) for n in ("float8_e4m3fn", "float8_e5m2") if hasattr(rushlight, n))


# ***** files *****


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    """A file under a temporary name beside `path`, which takes its place when all is written."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save(
    model: Model, destination: Any, external: bool | None, keep_inputs: bool = False, weights: bool = True
) -> None:
    """Write a model; with `external` its weights into `<name>.data` beside it (None: where they are over 2 GB)."""
    large = weight_bytes(model) > _LIMIT
    external = large if external is None else external
    if large and weights and not external:
        raise ValueError("the weights are larger than 2 GB, which one file cannot hold: save with external_data=True")
    if hasattr(destination, "write"):
        if external and large and weights:
            raise ValueError("external_data=True needs a path, not an open file")
        destination.write(model_proto(model, None, keep_inputs, weights).SerializeToString())
        return
    path = Path(os.fspath(destination))
    beside = External(f"{path.name}.data") if external and weights else None
    proto = model_proto(model, beside, keep_inputs, weights)
    if beside is not None and beside.pieces:
        with _replacing(path.parent / beside.name) as file:
            for offset, tensor in beside.pieces:
                file.write(b"\0" * (offset - file.tell()))
                file.write(raw_bytes(tensor.numpy()))
    with _replacing(path) as file:
        file.write(proto.SerializeToString())
