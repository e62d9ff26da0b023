"""Exported programs from JSON: everything is checked against the schema, and nothing is called but operators' own lookups."""

from __future__ import annotations

import math
import operator
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._export.serde.expressions import condition, names_of, parsed
from rushlight._export.serde.schema import DTYPES, LAYOUTS, MEMORY_FORMATS, SCHEMA_VERSION, SchemaError
from rushlight._export.verifier import Verifier, load_verifier
from rushlight._interface.sizes import MOST
from rushlight._subclasses.fake_tensor import FakeTensorMode
from rushlight.export._guards import InputGuards
from rushlight.export._shapes import ExportShapeEnv
from rushlight.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from rushlight.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.nn.modules.module import Module
from rushlight.utils._pytree import treespec_loads
from rushlight.utils._sympy.numbers import int_oo
from rushlight.utils._sympy.value_ranges import ValueRanges

__all__ = ["program_of_json"]

_PYTHON = {op.__name__: op for op in Verifier().allowed_builtin_ops()}
_TORCH = ("sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "sym_ite", "sym_sqrt", "sym_sum")
_TUPLES = ("cond", "while_loop")  # control flow whose operands are tuples
_MOST_NODES = 1_000_000
_DEEPEST = 50  # graphs in graphs


def _expect(value: Any, kind: Any, what: str) -> Any:
    if not isinstance(value, kind) or kind is int and isinstance(value, bool):
        raise SchemaError(f"torch.export.load: {what} is a {type(value).__name__}")
    return value


def _one(union: Any, what: str) -> tuple[str, Any]:
    """The word and the value of a union."""
    _expect(union, dict, what)
    if len(union) != 1:
        raise SchemaError(f"torch.export.load: {what} has {len(union)} values where one is expected")
    return next(iter(union.items()))


def _name(value: Any) -> str:
    text = _expect(value, str, "a name")
    if not text.isidentifier() or len(text) > 4096:
        raise SchemaError(f"torch.export.load: {text[:80]!r} is no name of a node")
    return str(text)


def _number(value: Any) -> float:
    words = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
    if isinstance(value, str) and value in words:
        return words[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SchemaError("torch.export.load: a float is expected")
    return float(value)


class _Sizes:
    """The symbols of a program, by name."""

    def __init__(self, program: dict[str, Any]) -> None:
        self.env = ExportShapeEnv()
        self.symbols: dict[str, Any] = {}
        hints: dict[str, int] = {}
        graph = program["graph_module"]["graph"]
        for table in (graph["tensor_values"], {"": {"sizes": list(graph["sym_int_values"].values())}}):
            for meta in _expect(table, dict, "tensor_values").values():
                for size in [*meta["sizes"], *meta.get("strides", [])]:
                    self._collect(size, hints)
        ranges = _expect(program["range_constraints"], dict, "range_constraints")
        for name in [*ranges, *hints]:
            if name not in self.symbols and (name in hints or name.isidentifier()):
                self._make(name, hints.get(name), ranges.get(name) or {})

    def _collect(self, size: Any, hints: dict[str, int]) -> None:
        word, value = _one(size, "a size")
        if word != "as_expr":
            return
        names = names_of(value["expr_str"])
        hint = (value.get("hint") or {}).get("as_int")
        for name in names:
            hints.setdefault(name, 0)
        if len(names) == 1 and str(value["expr_str"]).startswith("Symbol(") and isinstance(hint, int):
            hints[names[0]] = hint

    def _make(self, name: str, hint: int | None, limits: dict[str, Any]) -> None:
        _name(name)
        low, high = limits.get("min_val"), limits.get("max_val")
        low = 0 if low is None else _expect(low, int, "a bound")
        high = MOST if high is None else min(_expect(high, int, "a bound"), MOST)
        if low > high:
            raise SchemaError(f"torch.export.load: the range of {name} is empty")
        if name.startswith("u"):
            made = self.env.create_unbacked_symint(max(low, -(1 << 62)))
            if high < MOST:
                (high - made >= 0).require() if not isinstance(high - made >= 0, bool) else None
        else:
            value = hint if hint else max(low, min(high, 4))
            made = self.env.symbol(min(max(value, low), high), high, max(low, 0), name)
            self.env.sources.append(name)
        self.symbols[name] = made

    def read(self, size: Any) -> Any:
        """A size."""
        word, value = _one(size, "a size")
        if word == "as_int":
            return _expect(value, int, "a size")
        if word != "as_expr":
            raise SchemaError(f"torch.export.load: a size is given as {word}")
        return parsed(value["expr_str"], self.symbols)


class _Reader:
    """One program."""

    def __init__(self, program: dict[str, Any]) -> None:
        self.sizes = _Sizes(program)
        self.fake: Any = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self.sizes.env, export=True)

    # ***** values *****

    def tensor(self, meta: Any) -> Any:
        """A fake tensor with this description."""
        sizes = [self.sizes.read(n) for n in _expect(meta["sizes"], list, "sizes")]
        strides = [self.sizes.read(n) for n in _expect(meta["strides"], list, "strides")]
        if (
            len(sizes) != len(strides)
            or len(sizes) > 64
            or any(type(n) is int and not 0 <= n <= MOST for n in (*sizes, *strides))
        ):
            raise SchemaError("torch.export.load: sizes and strides of a tensor do not fit")
        dtype = DTYPES.get(meta["dtype"])
        if dtype is None or LAYOUTS.get(meta["layout"]) is not rushlight.strided:
            raise SchemaError(f"torch.export.load: a tensor of the dtype {meta['dtype']}, layout {meta['layout']}")
        made = self.fake.sized(sizes, strides, dtype, self.device(meta["device"]))
        made._ptr = self.sizes.read(meta["storage_offset"]) * dtype.itemsize
        if meta["requires_grad"] is True and (dtype.is_floating_point or dtype.is_complex):
            made.requires_grad_()
        return made

    def device(self, value: Any) -> Any:
        index = value.get("index")
        kind = _expect(value["type"], str, "a device")
        if kind not in ("cpu", "meta", "cuda", "mps", "xpu"):
            raise SchemaError(f"torch.export.load: the device {kind[:40]!r}")
        return (
            rushlight.device(kind)
            if index is None
            else rushlight.device(kind, _expect(index, int, "a device's number"))
        )

    def constant(self, word: str, value: Any) -> Any:
        """A value without nodes."""
        if word == "as_none":
            return None
        simple = {"as_int": int, "as_bool": bool, "as_string": str}
        if word in simple:
            return _expect(value, simple[word], word)
        if word == "as_float":
            return _number(value)
        if word == "as_complex":
            return complex(_number(value["real"]), _number(value["imag"]))
        tables = {"as_scalar_type": DTYPES, "as_layout": LAYOUTS, "as_memory_format": MEMORY_FORMATS}
        if word in tables:
            if value not in tables[word]:
                raise SchemaError(f"torch.export.load: {word} {value!r}")
            return tables[word][value]
        if word == "as_device":
            return self.device(value)
        many = {"as_ints": int, "as_bools": bool, "as_strings": str}
        if word in many:
            return [_expect(v, many[word], word) for v in _expect(value, list, word)]
        if word == "as_floats":
            return [_number(v) for v in _expect(value, list, word)]
        if word in ("as_int_lists", "as_float_lists"):
            return [self.constant("as_ints" if "int" in word else "as_floats", v) for v in _expect(value, list, word)]
        raise SchemaError(f"torch.export.load: a value given as {word!r}")

    # ***** graphs *****

    def graph(self, table: Any, depth: int = 0) -> GraphModule:
        """A graph as a module."""
        if depth > _DEEPEST or len(_expect(table["nodes"], list, "nodes")) > _MOST_NODES:
            raise SchemaError("torch.export.load: graphs too deep, or too many nodes")
        return _GraphReader(self, table, depth).module()


class _GraphReader:
    """One graph on its way from JSON."""

    def __init__(self, reader: _Reader, table: dict[str, Any], depth: int) -> None:
        self.reader, self.table, self.depth = reader, table, depth
        self.graph, self.root = Graph(), Module()
        self.nodes: dict[str, Node] = {}

    def module(self) -> GraphModule:
        for each in _expect(self.table["inputs"], list, "inputs"):
            self._input(each)
        for row in self.table["nodes"]:
            self._node(row)
        shown = [self.argument(v) for v in _expect(self.table["outputs"], list, "outputs")]
        single = self.table.get("is_single_tensor_return") is True
        self.graph.output(shown[0] if single and len(shown) == 1 else tuple(shown))
        return GraphModule(self.root, self.graph)

    def _input(self, each: Any) -> None:
        word, value = _one(each, "an input")
        if word == "as_tensor":
            self._placed(self.graph.placeholder(_name(value["name"])), value["name"])
        elif word in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            self._placed(self.graph.placeholder(_name(value["as_name"])), value["as_name"])
        else:
            node = self.graph.placeholder(f"constant_{len(self.nodes)}")
            node.meta["val"] = self.reader.constant(word, value)
            self.nodes[f"\0{node.name}"] = node

    def _placed(self, node: Node, name: str) -> None:
        """Let a node have its name and value."""
        if name in self.nodes:
            raise SchemaError(f"torch.export.load: two nodes are called {name}")
        node.name = name
        self.nodes[name] = node
        node.meta.setdefault("val", self._value(name))

    def _value(self, name: str) -> Any:
        for word in ("tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values"):
            found = (self.table.get(word) or {}).get(name)
            if found is None:
                continue
            if word == "tensor_values":
                return self.reader.tensor(found)
            if word == "sym_int_values":
                return self.reader.sizes.read(found)
            kind, value = _one(found, name)
            if word == "sym_bool_values" and kind == "as_expr":
                return condition(value["expr_str"], self.reader.sizes.symbols)
            return _SymbolicValue(value["expr_str"] if kind == "as_expr" else value, word)
        raise SchemaError(f"torch.export.load: nothing describes the value {name!r}")

    def argument(self, union: Any) -> Any:
        """A value of a call, with nodes."""
        word, value = _one(union, "an argument")
        if word == "as_tensor":
            return self._find(value["name"])
        if word in ("as_tensors",):
            return [self._find(v["name"]) for v in _expect(value, list, word)]
        if word == "as_nested_tensors":
            return [[self._find(v["name"]) for v in _expect(row, list, word)] for row in _expect(value, list, word)]
        if word in ("as_optional_tensors",):
            return [self.argument(v) for v in _expect(value, list, word)]
        if word == "as_optional_tensor":
            return self.argument(value)
        if word in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            kind, inner = _one(value, word)
            return self._find(inner) if kind == "as_name" else self.reader.constant(kind, inner)
        if word in ("as_sym_ints", "as_sym_bools", "as_sym_floats"):
            return [self.argument({word[:-1]: v}) for v in _expect(value, list, word)]
        if word == "as_graph":
            return self._inner(value)
        return self.reader.constant(word, value)

    def _inner(self, value: Any) -> Node:
        name = _name(value["name"])
        if not hasattr(self.root, name):
            self.root.add_module(name, self.reader.graph(value["graph"], self.depth + 1))
        return self.graph.create_node("get_attr", name, name=name)

    def _find(self, name: Any) -> Node:
        found = self.nodes.get(_expect(name, str, "a name"))
        if found is None:
            raise SchemaError(f"torch.export.load: {name[:80]!r} is used before it is computed")
        return found

    def _node(self, row: Any) -> None:
        target: Any = _target(row["target"])
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        schema = _schema(target)
        keyword_only = set() if schema is None else {a.name for a in schema.arguments if a.kwarg_only}
        for each in _expect(row["inputs"], list, "inputs"):
            name, value = _expect(each["name"], str, "a name"), self.argument(each["arg"])
            if name and (each.get("kind") == 2 or each.get("kind") is None and (name in keyword_only or kwargs)):
                kwargs[name] = value
            else:
                args.append(value)
        named = row.get("name")
        outputs = _expect(row["outputs"], list, "outputs")
        node = self.graph.create_node(
            "call_function", target, tuple(args), kwargs, name=_name(named) if named else None
        )
        node.meta.update(_metadata(row.get("metadata") or {}))
        if row.get("is_hop_single_tensor_return") is False:
            node.args = tuple(
                [tuple(a) if isinstance(a, list) and target.__name__ in _TUPLES else a for a in node.args]
            )
            if target.__name__ == "scan" and len(node.args) == 4:
                node.args = (*node.args[:3], tuple(node.args[3]))
        self._results(node, outputs, named, row.get("is_hop_single_tensor_return") is False)

    def _results(self, node: Node, outputs: list[Any], named: Any, several: bool) -> None:
        """Names and values of what a call gives; items of several."""
        if not outputs:
            node.meta["val"] = None
            if named:
                node.name = named
            return
        words = [_one(o, "a result") for o in outputs]
        many = len(words) > 1 or words[0][0] == "as_tensors" or several
        if not many:
            word, value = words[0]
            if word == "as_none":
                node.meta["val"] = None
            else:
                self._placed(node, _name(value["name"] if word == "as_tensor" else value["as_name"]))
            return
        if named:
            node.name = named
        if words[0][0] == "as_tensors" and len(words) == 1:
            words = [("as_tensor", v) for v in _expect(words[0][1], list, "results")]
        parts: list[Any] = []
        for place, (word, value) in enumerate(words):
            if word == "as_none":
                parts.append(None)
                continue
            name = _name(value["name"] if word == "as_tensor" else value["as_name"])
            if "_unused_" in name:
                parts.append(self._value(name))
                continue
            item = self.graph.create_node("call_function", operator.getitem, (node, place), {}, name=name)
            for key in ("stack_trace", "nn_module_stack"):
                if key in node.meta:
                    item.meta[key] = node.meta[key]
            self._placed(item, name)
            parts.append(item.meta["val"])
        node.meta["val"] = tuple(parts)


class _SymbolicValue:
    """A float of sizes, as its text: nothing is computed with it before the program runs."""

    def __init__(self, text: Any, word: str) -> None:
        self.text, self.word = str(text), word

    def __repr__(self) -> str:
        return self.text


def _schema(target: Any) -> Any:
    try:
        return getattr(target, "_schema", None)
    except NotImplementedError:
        return None


def _target(text: Any) -> Any:
    """The function of a node: an operator that exists here, or arithmetic of sizes."""
    name = _expect(text, str, "a target")
    parts = name.split(".")
    if name.startswith("_operator.") and len(parts) == 2 and parts[1] in _PYTHON:
        return _PYTHON[parts[1]]
    if name.startswith("math.") and len(parts) == 2 and parts[1] in ("ceil", "floor", "trunc"):
        return getattr(math, parts[1])
    if len(parts) == 2 and parts[0] == "torch" and parts[1] in _TORCH and hasattr(rushlight, parts[1]):
        return getattr(rushlight, parts[1])
    if (
        len(parts) in (4, 5)
        and parts[:2] == ["torch", "ops"]
        and not any(p.startswith("__") and p.endswith("__") for p in parts[2:3])
    ):
        space = getattr(rushlight.ops, parts[2], None)
        found = getattr(space, parts[3], None)
        if len(parts) == 5 and found is not None:
            found = getattr(found, parts[4], None)
        good = (
            hasattr(found, "namespace") and hasattr(found, "_opname") if len(parts) == 5 else parts[2] == "higher_order"
        )
        if found is not None and good:
            return found
    raise SchemaError(f"torch.export.load: the program calls {name[:120]!r}, which is no operator here")


def _metadata(table: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    trace, stack = table.get("stack_trace"), table.get("nn_module_stack")
    if isinstance(trace, str):
        made["stack_trace"] = f"{trace}\n"
    if isinstance(stack, str) and stack:
        rows = [row.split(",") for row in stack.split(";")]
        made["nn_module_stack"] = {
            row[0]: (row[1], row[-1]) for row in rows if len(row) >= 3 and not row[0].startswith("_empty")
        }
    return made


# ***** signatures *****


def _spec(reader: _GraphReader, union: Any) -> Any:
    word, value = _one(union, "an argument of the signature")
    kinds = {"as_sym_int": SymIntArgument, "as_sym_float": SymFloatArgument, "as_sym_bool": SymBoolArgument}
    if word == "as_tensor":
        return TensorArgument(_name(value["name"]))
    if word in kinds and "as_name" in value:
        return kinds[word](_name(value["as_name"]))
    if word in kinds:
        kind, inner = _one(value, word)
        return ConstantArgument("", reader.reader.constant(kind, inner))
    return ConstantArgument("", reader.reader.constant(word, value))


def _input_specs(reader: _GraphReader, rows: Any) -> list[InputSpec]:
    found = []
    for row in _expect(rows, list, "input_specs"):
        word, value = _one(row, "an input")
        if word == "parameter":
            found.append(
                InputSpec(
                    InputKind.PARAMETER, TensorArgument(_name(value["arg"]["name"])), _path(value["parameter_name"])
                )
            )
        elif word == "buffer":
            arg = TensorArgument(_name(value["arg"]["name"]))
            found.append(InputSpec(InputKind.BUFFER, arg, _path(value["buffer_name"]), value["persistent"] is True))
        elif word == "tensor_constant":
            arg = TensorArgument(_name(value["arg"]["name"]))
            found.append(InputSpec(InputKind.CONSTANT_TENSOR, arg, _path(value["tensor_constant_name"])))
        elif word == "user_input":
            found.append(InputSpec(InputKind.USER_INPUT, _spec(reader, value["arg"]), None))
        elif word == "constant_input":
            kind, inner = _one(value["value"], "a constant")
            argument = ConstantArgument(_name(value["name"]), reader.reader.constant(kind, inner))
            found.append(InputSpec(InputKind.USER_INPUT, argument, None))
        else:
            raise SchemaError(f"torch.export.load: an input of the kind {word!r}")
    return found


def _path(value: Any) -> str:
    """The path of an attribute."""
    text = _expect(value, str, "the name of an attribute")
    if not text or any(not part or part.startswith("__") for part in text.split(".")):
        raise SchemaError(f"torch.export.load: {text[:80]!r} is no path of an attribute")
    return str(text)


_OUTPUTS = {
    "loss_output": (OutputKind.LOSS_OUTPUT, None), "buffer_mutation": (OutputKind.BUFFER_MUTATION, "buffer_name"),
    "gradient_to_parameter": (OutputKind.GRADIENT_TO_PARAMETER, "parameter_name"),
    "gradient_to_user_input": (OutputKind.GRADIENT_TO_USER_INPUT, "user_input_name"),
    "user_input_mutation": (OutputKind.USER_INPUT_MUTATION, "user_input_name"),
    "parameter_mutation": (OutputKind.PARAMETER_MUTATION, "parameter_name"),
}  # fmt: skip


def _output_specs(reader: _GraphReader, rows: Any) -> list[OutputSpec]:
    found = []
    for row in _expect(rows, list, "output_specs"):
        word, value = _one(row, "a result")
        if word == "user_output":
            found.append(OutputSpec(OutputKind.USER_OUTPUT, _spec(reader, value["arg"]), None))
        elif word in _OUTPUTS:
            kind, target = _OUTPUTS[word]
            argument = TensorArgument(_name(value["arg"]["name"]))
            found.append(OutputSpec(kind, argument, None if target is None else _path(value[target])))
        else:
            raise SchemaError(f"torch.export.load: a result of the kind {word!r}")
    return found


def _calls(reader: _GraphReader, rows: Any) -> list[ModuleCallEntry]:
    found = []
    for row in _expect(rows, list, "module_call_graph"):
        signature = row.get("signature")
        if signature is None:
            found.append(ModuleCallEntry(_expect(row["fqn"], str, "a module's name")))
            continue
        names = signature.get("forward_arg_names")
        made = ModuleCallSignature(
            [_spec(reader, a) for a in signature["inputs"]],
            [_spec(reader, a) for a in signature["outputs"]],
            treespec_loads(_expect(signature["in_spec"], str, "a structure")),
            treespec_loads(_expect(signature["out_spec"], str, "a structure")),
            None if names is None else [_name(n) for n in _expect(names, list, "names")],
        )
        found.append(ModuleCallEntry(_expect(row["fqn"], str, "a module's name"), made))
    return found


def program_of_json(
    table: Any, state: dict[str, Any], constants: dict[str, Any], example_inputs: Any
) -> ExportedProgram:
    """The program; SchemaError for what is none."""
    try:
        return _program(table, state, constants, example_inputs)
    except SchemaError:
        raise
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        RuntimeError,
        RecursionError,
        OverflowError,
        NotImplementedError,
    ) as error:
        raise SchemaError(
            f"torch.export.load: the program cannot be read: {type(error).__name__}: {str(error)[:300]}"
        ) from error
    except Exception as error:  # of checks that have errors of their own
        raise SchemaError(f"torch.export.load: the program is refused: {str(error)[:300]}") from error


def _program(table: Any, state: dict[str, Any], constants: dict[str, Any], example_inputs: Any) -> ExportedProgram:
    version = _expect(table, dict, "the program")["schema_version"]
    if version["major"] != SCHEMA_VERSION[0]:
        raise SchemaError(
            f"torch.export.load: a program of the schema's version {version['major']}.{version.get('minor')}, and version "
            f"{SCHEMA_VERSION[0]} is read"
        )
    reader = _Reader(table)
    inner = _GraphReader(reader, table["graph_module"]["graph"], 0)
    module = inner.module()
    rows = table["graph_module"]["signature"]
    inputs = _input_specs(inner, rows["input_specs"])
    for node, spec in zip([n for n in module.graph.nodes if n.op == "placeholder"], inputs, strict=True):
        if isinstance(spec.arg, ConstantArgument):
            node.name = node.target = spec.arg.name or node.name
            spec.arg.name = node.name
    module.recompile()
    signature = ExportGraphSignature(inputs, _output_specs(inner, rows["output_specs"]))
    ranges = {}
    for name, limits in table["range_constraints"].items():
        low, high = limits.get("min_val"), limits.get("max_val")
        key = reader.sizes.symbols[name].node.expr if name in reader.sizes.symbols else name
        ranges[key] = ValueRanges(-int_oo if low is None else int(low), int_oo if high is None else int(high))
    verifiers = [load_verifier(_expect(v, str, "a dialect")) for v in table.get("verifiers") or ["TRAINING"]]
    calls = _calls(inner, table["graph_module"]["module_call_graph"])
    made = ExportedProgram(
        module, module.graph, signature, state, ranges, calls, example_inputs, constants, verifiers=verifiers
    )
    made._shape_env, made._guards = reader.sizes.env, InputGuards.of_program(made)
    for spec in signature.input_specs:  # what is held is what the graph expects
        if spec.kind is not InputKind.USER_INPUT and not isinstance(made._held(spec), Tensor):
            raise SchemaError(f"torch.export.load: {spec.target} is no tensor")
    return made
