"""Exported programs as JSON."""

from __future__ import annotations

import math
import operator
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._export.serde.expressions import condition_text, text_of
from rushlight._export.serde.schema import (
    DTYPES,
    LAYOUTS,
    MEMORY_FORMATS,
    SCHEMA_VERSION,
    TREESPEC_VERSION,
    SchemaError,
    number_of,
)
from rushlight._interface.sizes import Integer, Undecided, is_symbolic
from rushlight.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
)
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.utils._pytree import treespec_dumps

__all__ = ["argument", "program_as_json", "tensor_meta"]

_LEVEL = "2.13.0"


# ***** values *****


def _size(value: Any) -> dict[str, Any]:
    if type(value) is Integer:
        env: Any = value.shape_env
        decided = env.decided(value)
        if decided is not None:
            return {"as_int": decided}
        hint = {} if value.shape_env.is_unknown(value.terms) else {"hint": {"as_int": value.value}}
        return {"as_expr": {"expr_str": text_of(value), **({"hint": None} | hint)}}
    return {"as_int": int(value)}


def tensor_meta(t: Any) -> dict[str, Any]:
    """Dtype, sizes, strides, device of a tensor."""
    offset = t.storage_offset() if t._storage is not None or hasattr(t, "fake_mode") else 0
    return {
        "dtype": number_of(DTYPES, t.dtype),
        "sizes": [_size(n) for n in t.shape],
        "requires_grad": bool(t.requires_grad),
        "device": _device(t.device),
        "strides": [_size(n) for n in t.stride()],
        "storage_offset": _size(offset),
        "layout": number_of(LAYOUTS, t.layout),
    }


def _device(device: Any) -> dict[str, Any]:
    return {"type": device.type, "index": device.index}


def _float(value: float) -> Any:
    """JSON has no infinite numbers: they are words."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _named(node: Node) -> dict[str, Any]:
    """A node as an argument."""
    value = node.meta.get("val")
    if isinstance(value, (bool, str)) or value is None:
        return argument(value)
    if isinstance(value, Tensor):
        return {"as_tensor": {"name": node.name}}
    if isinstance(value, Undecided):
        return {"as_sym_bool": {"as_name": node.name}}
    if isinstance(value, rushlight.SymFloat):
        return {"as_sym_float": {"as_name": node.name}}
    if isinstance(value, rushlight.SymInt):
        return {"as_sym_int": {"as_name": node.name}}
    raise SchemaError(f"torch.export.save: the node {node.name} is an argument and gives a {type(value).__name__}")


def argument(value: Any, kind: str = "", graphs: Any = None) -> dict[str, Any]:
    """A value of a call; `kind` is its type in the operator's schema."""
    if isinstance(value, Node):
        if value.op == "get_attr" and graphs is not None:
            return {"as_graph": {"name": str(value.target), "graph": graphs(value)}}
        return _named(value)
    if value is None:
        return {"as_none": True}
    for types, word in ((bool, "as_bool"), (str, "as_string")):
        if isinstance(value, types):
            return {word: value}
    if type(value) is Integer:
        raise SchemaError("torch.export.save: a size is in the graph that no node gives")
    if isinstance(value, int):
        return {"as_int": value}
    if isinstance(value, float):
        return {"as_float": _float(value)}
    if isinstance(value, complex):
        return {"as_complex": {"real": _float(value.real), "imag": _float(value.imag)}}
    if isinstance(value, rushlight.device):
        return {"as_device": _device(value)}
    if isinstance(value, rushlight.dtype):
        return {"as_scalar_type": number_of(DTYPES, value)}
    if value in LAYOUTS.values():
        return {"as_layout": number_of(LAYOUTS, value)}
    if value in MEMORY_FORMATS.values():
        return {"as_memory_format": number_of(MEMORY_FORMATS, value)}
    if isinstance(value, (list, tuple)):
        return _sequence(list(value), kind)
    raise SchemaError(f"torch.export.save: a value of the type {type(value).__name__} is in the graph")


def _sequence(values: list[Any], kind: str) -> dict[str, Any]:
    if not values:
        words = {"Tensor": "as_tensors", "float": "as_floats", "bool": "as_bools", "str": "as_strings"}
        return {next((w for k, w in words.items() if kind.startswith(k)), "as_ints"): []}
    shown = [argument(v) for v in values]
    words = {next(iter(s)) for s in shown}
    for word, many in (
        ("as_int", "as_ints"), ("as_float", "as_floats"), ("as_bool", "as_bools"), ("as_string", "as_strings"), ("as_tensor", "as_tensors"),
        ("as_ints", "as_int_lists"), ("as_tensors", "as_nested_tensors"), ("as_floats", "as_float_lists"),
    ):  # fmt: skip
        if words == {word}:
            return {many: [s[word] for s in shown]}
    if words <= {"as_int", "as_sym_int"}:
        return {"as_sym_ints": [s.get("as_sym_int", s) for s in shown]}
    if words <= {"as_float", "as_sym_float"}:
        return {"as_sym_floats": [s.get("as_sym_float", s) for s in shown]}
    if words <= {"as_bool", "as_sym_bool"}:
        return {"as_sym_bools": [s.get("as_sym_bool", s) for s in shown]}
    if words <= {"as_none", "as_tensor"}:
        return {"as_optional_tensors": shown}
    if words <= {"as_int", "as_float"}:
        return {"as_floats": [float(v) for v in values]}
    raise SchemaError(f"torch.export.save: a sequence of values of several types is in the graph: {values}")


# ***** graphs *****


class _Graph:
    """One graph on its way to JSON."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.tensors: dict[str, Any] = {}
        self.numbers: dict[str, dict[str, Any]] = {"int": {}, "bool": {}, "float": {}}

    def written(self) -> dict[str, Any]:
        """The graph."""
        inputs, nodes, outputs = [], [], []
        single = False
        for node in self.module.graph.nodes:
            self._note(node)
            if node.op == "placeholder":
                inputs.append(self._placeholder(node))
            elif node.op == "output":
                single = isinstance(node.args[0], Node)
                outputs = [argument(v) for v in ([node.args[0]] if single else node.args[0])]
            elif node.op == "call_function" and node.target is not operator.getitem:
                nodes.append(self._node(node))
            elif node.op not in ("get_attr", "call_function"):
                raise SchemaError(f"torch.export.save: a node of the kind {node.op} is in the graph")
        return {
            "inputs": inputs,
            "outputs": outputs,
            "nodes": nodes,
            "tensor_values": self.tensors,
            "sym_int_values": self.numbers["int"],
            "sym_bool_values": self.numbers["bool"],
            "is_single_tensor_return": single,
            "custom_obj_values": {},
            "sym_float_values": self.numbers["float"],
        }

    def _placeholder(self, node: Node) -> dict[str, Any]:
        value = node.meta.get("val")
        return _named(node) if isinstance(value, Tensor) or is_symbolic(value) else argument(value)

    def _note(self, node: Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            self.tensors[node.name] = tensor_meta(value)
        elif type(value) is Integer:
            self.numbers["int"][node.name] = _size(value)
        elif value is not None and is_symbolic(value):
            self.numbers["float"][node.name] = {"as_expr": {"expr_str": str(value), "hint": {"as_float": value.value}}}
        elif isinstance(value, Undecided):
            self.numbers["bool"][node.name] = {"as_expr": {"expr_str": condition_text(value), "hint": None}}

    def _node(self, node: Node) -> dict[str, Any]:
        return {
            "target": target_name(node.target),
            "inputs": self._inputs(node),
            "outputs": self._outputs(node),
            "metadata": _metadata(node),
            "is_hop_single_tensor_return": _is_single(node),
            "name": node.name,
        }

    def _graph_of(self, node: Node) -> dict[str, Any]:
        inner = self.module.get_submodule(str(node.target))
        if not isinstance(inner, GraphModule):
            raise SchemaError(f"torch.export.save: {node.target} is no graph")
        return _Graph(inner).written()

    def _inputs(self, node: Node) -> list[dict[str, Any]]:
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            names = ["a", "b", "c"] if _is_operator(node.target) else [""] * len(node.args)
            rows = [(names[k] if k < len(names) else "", v, 1, "") for k, v in enumerate(node.args)]
            rows += [(name, v, 2, "") for name, v in node.kwargs.items()]
        else:
            kinds = {a.name: a.type for a in schema.arguments}
            rows = [(a.name, v, 1, a.type) for a, v in zip(schema.arguments, node.args, strict=False)]
            rows += [(name, v, 2, kinds.get(name, "")) for name, v in node.kwargs.items()]
        return [{"name": n, "arg": argument(v, kind, self._graph_of), "kind": how} for n, v, how, kind in rows]

    def _outputs(self, node: Node) -> list[dict[str, Any]]:
        value = node.meta.get("val")
        if not isinstance(value, (tuple, list)):
            return [] if value is None else [_named(node)]
        items = {n.args[1]: n for n in node.users if n.target is operator.getitem}
        shown = []
        for place, part in enumerate(value):
            if place in items:
                shown.append(_named(items[place]))
            elif isinstance(part, Tensor):
                name = f"{node.name}_unused_{place}"
                self.tensors[name] = tensor_meta(part)
                shown.append({"as_tensor": {"name": name}})
            else:
                shown.append(argument(part))
        if _gives_list(node):
            return [{"as_tensors": [s["as_tensor"] for s in shown]}]
        return shown


def _is_single(node: Node) -> bool | None:
    """Of control flow: whether it gives one tensor; None for operators."""
    if "higher_order" not in str(getattr(node.target, "__module__", "")):
        return None
    return isinstance(node.meta.get("val"), Tensor)


def _is_operator(target: Any) -> bool:
    return getattr(target, "__module__", "") == "_operator"


def _gives_list(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    return (
        str(schema).rsplit("->", 1)[1].strip().split("(")[0].startswith("Tensor")
        and "[]" in str(schema).rsplit("->", 1)[1]
    )


def target_name(target: Any) -> str:
    """The name of a function that a node calls."""
    if hasattr(target, "_schema") and hasattr(target, "namespace"):
        return f"torch.ops.{target}"
    module, name = getattr(target, "__module__", ""), getattr(target, "__name__", "")
    module = f"torch{module[len('rushlight') :]}" if module.partition(".")[0] == "rushlight" else module
    if not name or module not in ("_operator", "math", "builtins", "torch", "torch.ops.higher_order"):
        raise SchemaError(f"torch.export.save: {target} is in the graph, which is no operator")
    return f"{module}.{name}"


def _metadata(node: Node) -> dict[str, str]:
    made = {}
    if node.meta.get("stack_trace"):
        made["stack_trace"] = node.meta["stack_trace"].rstrip("\n")
    if node.meta.get("nn_module_stack"):
        made["nn_module_stack"] = ";".join(
            f"{k},{path},{kind}" for k, (path, kind) in node.meta["nn_module_stack"].items()
        )
    return made


# ***** the program *****


def _input_spec(spec: Any) -> dict[str, Any]:
    name = {"name": spec.arg.name}
    if spec.kind is InputKind.PARAMETER:
        return {"parameter": {"arg": name, "parameter_name": spec.target}}
    if spec.kind is InputKind.BUFFER:
        return {"buffer": {"arg": name, "buffer_name": spec.target, "persistent": bool(spec.persistent)}}
    if spec.kind is InputKind.CONSTANT_TENSOR:
        return {"tensor_constant": {"arg": name, "tensor_constant_name": spec.target}}
    if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument):
        return {"constant_input": {"name": spec.arg.name, "value": argument(spec.arg.value)}}
    if spec.kind is InputKind.USER_INPUT:
        return {"user_input": {"arg": _spec_argument(spec.arg)}}
    raise SchemaError(f"torch.export.save: an input of the kind {spec.kind.name}")


def _spec_argument(spec: Any) -> dict[str, Any]:
    if isinstance(spec, ConstantArgument):
        return argument(spec.value)
    words = {SymIntArgument: "as_sym_int", SymBoolArgument: "as_sym_bool", SymFloatArgument: "as_sym_float"}
    if type(spec) in words:
        return {words[type(spec)]: {"as_name": spec.name}}
    return {"as_tensor": {"name": spec.name}}


_OUTPUTS = {
    OutputKind.LOSS_OUTPUT: ("loss_output", None), OutputKind.BUFFER_MUTATION: ("buffer_mutation", "buffer_name"),
    OutputKind.GRADIENT_TO_PARAMETER: ("gradient_to_parameter", "parameter_name"),
    OutputKind.GRADIENT_TO_USER_INPUT: ("gradient_to_user_input", "user_input_name"),
    OutputKind.USER_INPUT_MUTATION: ("user_input_mutation", "user_input_name"),
    OutputKind.PARAMETER_MUTATION: ("parameter_mutation", "parameter_name"),
}  # fmt: skip


def _output_spec(spec: Any) -> dict[str, Any]:
    if spec.kind is OutputKind.USER_OUTPUT:
        return {"user_output": {"arg": _spec_argument(spec.arg)}}
    if spec.kind not in _OUTPUTS:
        raise SchemaError(f"torch.export.save: a result of the kind {spec.kind.name}")
    word, target = _OUTPUTS[spec.kind]
    return {word: {"arg": {"name": spec.arg.name}, **({} if target is None else {target: spec.target})}}


def _call(entry: Any) -> dict[str, Any]:
    if entry.signature is None:
        return {"fqn": entry.fqn, "signature": None}
    s = entry.signature
    return {
        "fqn": entry.fqn,
        "signature": {
            "inputs": [_spec_argument(a) for a in s.inputs],
            "outputs": [_spec_argument(a) for a in s.outputs],
            "in_spec": treespec_dumps(s.in_spec, TREESPEC_VERSION),
            "out_spec": treespec_dumps(s.out_spec, TREESPEC_VERSION),
            "forward_arg_names": s.forward_arg_names,
        },
    }


def _bound(value: Any) -> int | None:
    return None if value in (math.inf, -math.inf) else int(value)


def program_as_json(program: Any, opset_version: Any = None) -> dict[str, Any]:
    """A program without its tensors; SchemaError for one that the schema cannot say."""
    ranges = {str(k): v for k, v in program.range_constraints.items() if str(k).isidentifier()}
    signature = program.graph_signature
    return {
        "graph_module": {
            "graph": _Graph(program.graph_module).written(),
            "signature": {
                "input_specs": [_input_spec(s) for s in signature.input_specs],
                "output_specs": [_output_spec(s) for s in signature.output_specs],
            },
            "module_call_graph": [_call(e) for e in program.module_call_graph],
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": {"aten": 10, **(opset_version or {})},
        "range_constraints": {k: {"min_val": _bound(v.lower), "max_val": _bound(v.upper)} for k, v in ranges.items()},
        "schema_version": {"major": SCHEMA_VERSION[0], "minor": SCHEMA_VERSION[1]},
        "verifiers": [v.dialect for v in program.verifiers],
        "torch_version": _LEVEL,
        "guards_code": [],
    }
