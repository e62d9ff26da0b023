"""`torch._export.verifier`: which operators the graph of an exported program may have."""

from __future__ import annotations

import operator
from typing import Any

from rushlight import Tensor
from rushlight.export.graph_signature import InputKind, OutputKind
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node

__all__ = ["ATenDialectVerifier", "SpecViolationError", "TrainingIRVerifier", "Verifier", "load_verifier"]


class SpecViolationError(Exception):
    """A graph is not what an exported program may be."""


_DIALECTS: dict[str, type[Verifier]] = {}
_MODULES = ("_operator", "math", "builtins")


class Verifier:
    """Checks a program against one dialect; a subclass says which operators it has (`check_valid_op`)."""

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
        """SpecViolationError where the program is not what it may be."""
        _check_signature(ep)
        self._check_graph_module(ep.graph_module)
        if ep.graph_module.__dict__.get("_checked_further"):
            return
        self.check_additional(ep.graph_module)

    def _check_graph_module(self, gm: GraphModule) -> None:
        for _name, inner in gm.named_children():
            if isinstance(inner, GraphModule):
                self._check_graph_module(inner)
        try:
            gm.graph.lint()
        except RuntimeError as error:
            raise SpecViolationError(str(error)) from error
        for node in gm.graph.nodes:
            if node.op in ("call_module", "call_method"):
                raise SpecViolationError(f"call_module is not valid: got a class '{node.target}' ({node.op})")
            if node.op == "get_attr":
                value = _attribute(gm, str(node.target))
                if not isinstance(value, (Tensor, GraphModule)):
                    raise SpecViolationError(
                        f"Invalid get_attr type {type(value)}. \nValid get_attr types: GraphModule, Tensor"
                    )
            if node.op == "call_function":
                self._check_function(node)

    def _check_function(self, node: Node) -> None:
        target: Any = node.target
        if (
            getattr(target, "__module__", None) in _MODULES
            or hasattr(target, "_schema")
            or hasattr(target, "namespace")
        ):
            self.check_valid_op(target)
            return
        if "ops.higher_order" in str(getattr(target, "__module__", "")) or getattr(target, "__name__", "").startswith(
            "sym_"
        ):
            return
        raise SpecViolationError(f"Operator '{target}' is not an allowed operator type: {type(target)}")


class ATenDialectVerifier(Verifier):
    """Functional operators alone."""

    dialect = "ATEN"

    def check_valid_op(self, op: Any) -> None:
        """SpecViolationError for operators that change tensors in place."""
        schema = _schema(op)
        if schema is not None and schema.is_mutable and getattr(op, "namespace", "") == "aten":
            raise SpecViolationError(f"operator '{op}' is not functional")


class TrainingIRVerifier(Verifier):
    """Operators as the program called them, changes in place too."""

    dialect = "TRAINING"


def _schema(op: Any) -> Any:
    try:
        return getattr(op, "_schema", None)
    except NotImplementedError:
        return None


def _attribute(root: Any, path: str) -> Any:
    for part in path.split("."):
        if not hasattr(root, part):
            raise SpecViolationError(f"get_attr target {path!r} is no attribute of the module")
        root = getattr(root, part)
    return root


def load_verifier(dialect: str) -> type[Verifier]:
    """The verifier of a dialect; one that checks less where nobody registered any."""
    return _DIALECTS.get(dialect, Verifier)


def _check_signature(ep: Any) -> None:
    """The signature names the inputs and results of the graph, and what is held for them."""
    signature = ep.graph_signature
    inputs = [n.name for n in ep.graph.nodes if n.op == "placeholder"]
    if len(inputs) != len(signature.input_specs):
        raise SpecViolationError(
            f"Number of graph inputs ({len(inputs)}) does not match number of inputs in the graph signature ({len(signature.input_specs)})"
        )
    for name, spec in zip(inputs, signature.input_specs, strict=True):
        if spec.arg.name != name:
            raise SpecViolationError(f"Input spec {spec} does not match the input {name} of the graph")
        if spec.kind is InputKind.USER_INPUT:
            continue
        table = ep.state_dict
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER) or spec.persistent is False:
            table = ep.constants
        if spec.target not in table:
            raise SpecViolationError(f"{spec.kind.name} {spec.target} is not in the state dict or the constants.")
    output = next((n for n in reversed(ep.graph.nodes) if n.op == "output"), None)
    results = () if output is None else output.args[0]
    if not isinstance(results, (tuple, list)) or len(results) != len(signature.output_specs):
        raise SpecViolationError(
            f"Number of output nodes {len(results) if isinstance(results, (tuple, list)) else results!r} is different "
            f"Than number of outputs specs: {len(signature.output_specs)}"
        )
    for result, spec in zip(results, signature.output_specs, strict=True):
        if isinstance(result, Node) and getattr(spec.arg, "name", None) != result.name:
            raise SpecViolationError(f"Output spec {spec} does not match the result {result.name} of the graph")
        if spec.kind is OutputKind.BUFFER_MUTATION and spec.target not in signature.buffers:
            raise SpecViolationError(f"Buffer output {spec.arg.name} does not point to a buffer that exists.")
