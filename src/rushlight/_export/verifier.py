"""`torch._export.verifier`: which operators the graph of an exported program may have."""

from __future__ import annotations

import operator
from typing import Any

from rushlight import SymBool, SymFloat, SymInt, Tensor, device, dtype, layout, memory_format
from rushlight.export.graph_signature import CustomObjArgument, InputKind, OutputKind
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.nn.parameter import Parameter
from rushlight.utils._pytree import tree_leaves

__all__ = ["ATenDialectVerifier", "SpecViolationError", "TrainingIRVerifier", "Verifier", "load_verifier"]


class SpecViolationError(Exception):
    """A graph is not what an exported program may be."""


_DIALECTS: dict[str, type[Verifier]] = {}
_MODULES = ("math", "builtins")
_VALUES = (
    Tensor, SymInt, SymFloat, SymBool, CustomObjArgument, bool, int, float, complex, str, type(None), dtype, device, layout, memory_format,
)  # fmt: skip


class Verifier:
    """Checks a program against one dialect; a subclass says which operators it has (`check_valid_op`).

    Operators of all dialects but "TRAINING" are functional.
    """

    dialect = "ATEN"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _DIALECTS.setdefault(cls.dialect, cls)

    def allowed_builtin_ops(self) -> list[Any]:
        """Python's functions of symbolic numbers that may occur."""
        names = (
            "mul add pow sub eq gt lt ge le ne mod floordiv truediv and_ or_ xor not_ neg pos lshift rshift getitem abs"
        )
        return [getattr(operator, name) for name in names.split()]

    def allowed_op_types(self) -> tuple[type, ...]:
        """Classes of operators."""
        return ()

    def check_valid_op(self, op: Any) -> None:
        """SpecViolationError for an operator that the dialect lacks."""

    def check_additional(self, gm: GraphModule) -> None:
        """Further checks of a subclass."""

    def check(self, ep: Any) -> None:
        """SpecViolationError where the program is not what it may be, RuntimeError where its graph is none."""
        self._check_graph_module(ep.graph_module)
        _check_inputs(ep)
        _check_outputs(ep)
        if ep.graph_module.__dict__.get("_checked_further"):
            return
        self.check_additional(ep.graph_module)

    def _check_graph_module(self, gm: GraphModule) -> None:
        for _name, inner in gm.named_children():
            if isinstance(inner, GraphModule):
                self._check_graph_module(inner)
        gm.graph.lint()
        for node in gm.graph.nodes:
            if node.op in ("call_module", "call_method"):
                raise SpecViolationError(f"call_module is not valid: got a class '{node.target}' ")
            if node.op == "get_attr":
                value = _attribute(gm, str(node.target))
                if not isinstance(value, (Tensor, GraphModule)):
                    raise SpecViolationError(
                        f"Invalid get_attr type {type(value)} on target {node.target}. \nValid get_attr types: GraphModule, Tensor"
                    )
            if node.op == "placeholder":
                _check_value(node)
            if node.op == "call_function":
                self._check_function(node)

    def _check_function(self, node: Node) -> None:
        target: Any = node.target
        schema = _schema(target)
        if schema is not None:
            if schema.returns:
                _check_value(node)
            if self.dialect != "TRAINING" and schema.is_mutable and getattr(target, "namespace", "") == "aten":
                raise SpecViolationError(f"operator '{target}' is not functional")
            self.check_valid_op(target)
            return
        module = str(getattr(target, "__module__", ""))
        if target in self.allowed_builtin_ops() or module in _MODULES or hasattr(target, "namespace"):
            self.check_valid_op(target)
            return
        if "ops.higher_order" in module or getattr(target, "__name__", "").startswith("sym_"):
            return
        listed = ", ".join(op.__name__ for op in self.allowed_builtin_ops())
        raise SpecViolationError(
            f"Operator '{target}' is not an allowed operator type: {type(target)}\nValid are operators of a library with "
            f"their overload, operators of higher order, and of the builtin operators {listed}"
        )


class ATenDialectVerifier(Verifier):
    """Functional operators alone."""

    dialect = "ATEN"


class TrainingIRVerifier(Verifier):
    """Operators as the program called them, changes in place too."""

    dialect = "TRAINING"


def _schema(op: Any) -> Any:
    try:
        return getattr(op, "_schema", None)
    except NotImplementedError:
        return None


def _check_value(node: Node) -> None:
    """SpecViolationError for a node that does not say what its value is."""
    if "val" not in node.meta:
        raise SpecViolationError(f"Node.meta {node.name} is missing val field.")
    value = node.meta["val"]
    if not all(isinstance(leaf, _VALUES) for leaf in tree_leaves(value)):
        raise SpecViolationError(f"Node.meta {node.name} has invalid val field {value}")


def _attribute(root: Any, path: str) -> Any:
    for part in path.split("."):
        if not hasattr(root, part):
            raise SpecViolationError(f"get_attr target {path!r} is no attribute of the module")
        root = getattr(root, part)
    return root


def load_verifier(dialect: str) -> type[Verifier]:
    """The verifier of a dialect; one that checks less where nobody registered any."""
    return _DIALECTS.get(dialect, Verifier)


# ***** the signature *****


def _check_inputs(ep: Any) -> None:
    """The signature names the inputs of the graph, and what is held for them is there."""
    signature = ep.graph_signature
    inputs = [n.name for n in ep.graph.nodes if n.op == "placeholder"]
    if len(inputs) != len(signature.input_specs):
        named = [spec.arg.name for spec in signature.input_specs]
        raise SpecViolationError(
            f"Number of graph inputs ({len(inputs)}) does not match number of inputs in the graph signature ({len(named)})\n"
            f"Placeholders missing input_specs: {set(inputs) - set(named)}\n"
            f"Input_specs missing placeholders: {set(named) - set(inputs)}"
        )
    for name, spec in zip(inputs, signature.input_specs, strict=True):
        if spec.arg.name != name:
            raise SpecViolationError(f"Input spec name {spec.arg.name} does not match node name {name}")
        if spec.kind in _HELD:
            if type(spec.target) is not str:
                raise SpecViolationError(f"{_HELD[spec.kind]} of the input {name} has no target")
            _check_held(ep, spec)


_HELD = {
    InputKind.PARAMETER: "Parameter",
    InputKind.BUFFER: "Buffer",
    InputKind.CONSTANT_TENSOR: "Constant tensor",
    InputKind.CUSTOM_OBJ: "Custom object",
}


def _check_held(ep: Any, spec: Any) -> None:
    what, name = _HELD[spec.kind], spec.target
    if spec.kind is InputKind.BUFFER and spec.persistent is None:
        raise SpecViolationError(f"Buffer {name} is missing a persistence flag")
    if spec.kind is InputKind.BUFFER and spec.persistent is False:
        if name in ep.state_dict:
            raise SpecViolationError(f"Non-persistent buffer {name} is in the state dict, it should not be.")
        what = "Non-persistent buffer"
    in_state = spec.kind is InputKind.PARAMETER or spec.kind is InputKind.BUFFER and bool(spec.persistent)
    if name not in (ep.state_dict if in_state else ep.constants):
        raise SpecViolationError(f"{what} {name} is not in the {'state dict' if in_state else 'constants dictionary'}.")
    if spec.kind is InputKind.PARAMETER and not isinstance(ep.state_dict[name], Parameter):
        raise SpecViolationError(f"State dict entry for parameter {name} is not an instance of torch.nn.Parameter.")


def _check_outputs(ep: Any) -> None:
    """The signature names the results of the graph, and what they are written to is there."""
    signature = ep.graph_signature
    output = next((n for n in reversed(ep.graph.nodes) if n.op == "output"), None)
    results = () if output is None else output.args[0]
    count = len(results) if isinstance(results, (tuple, list)) else results
    if count != len(signature.output_specs):
        raise SpecViolationError(
            f"Number of output nodes {count} is different Than the number of outputs specified by the graph signature: "
            f"{len(signature.output_specs)}"
        )
    inputs = tuple(s.arg.name for s in signature.input_specs if s.kind is InputKind.USER_INPUT)
    for result, spec in zip(results, signature.output_specs, strict=True):
        named = getattr(spec.arg, "name", None)
        if isinstance(result, Node) and named != result.name:
            raise SpecViolationError(
                f"{'User output' if spec.kind is OutputKind.USER_OUTPUT else 'Output'} {result.name} is not in the correct order or is "
                f"not found in the exported program's outputs: {named!r} stands there."
            )
        for kind, what, known in (
            (OutputKind.BUFFER_MUTATION, "Buffer output", tuple(signature.buffers)),
            (OutputKind.USER_INPUT_MUTATION, "User input output", inputs),
        ):
            if spec.kind is kind and spec.target not in known:
                raise SpecViolationError(
                    f"{what} {named} does not point to a {what.lower().removesuffix(' output')} that exists. \n"
                    f"It is written to {spec.target!r}, known are {known}"
                )
