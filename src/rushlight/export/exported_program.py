"""`torch.export.exported_program`: a program as a graph of operators, with what its inputs and results are."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight._export.verifier import TrainingIRVerifier
from rushlight._interface.base import LazyModule
from rushlight.export._names import keyword_free
from rushlight.export.graph_signature import ArgumentSpec, ExportGraphSignature, InputKind
from rushlight.fx.codegen import CodeGen
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

unlifting: Any = LazyModule("rushlight.export._unlift")
decompositions: Any = LazyModule("rushlight.export._decompose")

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "default_decompositions"]


@dataclass
class ModuleCallSignature:
    """How a submodule was called: its inputs and results in the graph, and their structures."""

    inputs: list[ArgumentSpec]
    outputs: list[ArgumentSpec]
    in_spec: TreeSpec
    out_spec: TreeSpec
    forward_arg_names: list[str] | None = None

    def replace_all_uses_with(self, original_node: Any, new_node: Any) -> None:
        """Let another node stand for one of the inputs or results."""
        for argument in (*self.inputs, *self.outputs):
            if argument.name == original_node.name:
                argument.name = new_node.name


@dataclass
class ModuleCallEntry:
    """A submodule that ran, by its name; its signature where that was asked for."""

    fqn: str
    signature: ModuleCallSignature | None = None


class CallSpec(NamedTuple):
    """The structures of the arguments and of the result."""

    in_spec: TreeSpec | None
    out_spec: TreeSpec | None


@dataclass
class _Parts:
    """Parts of a program besides its graph and signature."""

    range_constraints: dict[Any, Any] = field(default_factory=dict)
    module_call_graph: list[ModuleCallEntry] = field(default_factory=list)
    example_inputs: Any = None
    constants: dict[str, Any] = field(default_factory=dict)


class ExportedProgram:
    """A program as `torch.export.export` gives it: a graph of operators without its tensors.

    - `graph_module`, `graph`: placeholders are parameters, buffers, constants and the user's inputs, in this order
    - `graph_signature`: what each input and result is
    - `state_dict`: parameters and buffers; `constants`: other tensors
    - `range_constraints`: the bounds of sizes that vary

    It is not called itself: `module()` is a module that takes the arguments of the original one.

    >>> import rushlight as torch
    >>> program = torch.export.export(torch.nn.Linear(2, 3), (torch.ones(4, 2),))
    >>> [str(spec) for spec in program.graph_signature.input_specs]
    ["p_weight: PARAMETER target='weight'", "p_bias: PARAMETER target='bias'", 'input: USER_INPUT']
    >>> program.module()(torch.ones(4, 2)).shape
    torch.Size([4, 3])
    """

    _shape_env: Any = None  # of the trace
    _report: Any = None  # of `draft_export`
    _guards: Any = None  # what the program asked of the sizes of its inputs

    def __init__(
        self,
        root: Module | dict[str, Any],
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        range_constraints: dict[Any, Any],
        module_call_graph: list[ModuleCallEntry],
        example_inputs: Any = None,
        constants: dict[str, Any] | None = None,
        *,
        verifiers: list[Any] | None = None,
    ) -> None:
        graph.set_codegen(CodeGen())
        self._graph_module = GraphModule(root, graph)
        inputs = (n for n in self._graph_module.graph.nodes if n.op == "placeholder")
        for node, spec in zip(inputs, graph_signature.input_specs, strict=False):
            if keyword_free(spec.arg.name):  # a copy of a graph calls `input` otherwise
                for result in graph_signature.output_specs:
                    if result.arg.name == node.name:
                        result.arg.name = spec.arg.name
                node.name = node.target = spec.arg.name
        self._graph_module.recompile()
        if isinstance(root, GraphModule):
            self._graph_module.meta.update(root.meta)
        self._graph_signature, self._state_dict = graph_signature, state_dict
        self._range_constraints, self._module_call_graph = range_constraints, module_call_graph
        self._example_inputs, self._constants = example_inputs, constants or {}
        self._verifiers = verifiers or [TrainingIRVerifier]
        self.validate()

    # ***** parts *****

    @property
    def graph_module(self) -> Any:
        """The graph as a module that takes parameters, buffers, constants and inputs."""
        return self._graph_module

    @graph_module.setter
    def graph_module(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's graph_module attribute.")

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph_module.graph

    @graph.setter
    def graph(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's graph attribute.")

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """Roles of the inputs and results."""
        return self._graph_signature

    @graph_signature.setter
    def graph_signature(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's graph_signature attribute.")

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by name."""
        return self._state_dict

    @state_dict.setter
    def state_dict(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's state_dict attribute.")

    def parameters(self) -> Iterator[Any]:
        """The parameters."""
        for _, value in self.named_parameters():
            yield value

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """The parameters with their names."""
        for name in self.graph_signature.parameters:
            yield name, self.state_dict[name]

    def buffers(self) -> Iterator[Any]:
        """The buffers."""
        for _, value in self.named_buffers():
            yield value

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """The buffers with their names."""
        hidden = set(self.graph_signature.non_persistent_buffers)
        for name in self.graph_signature.buffers:
            yield name, self.constants[name] if name in hidden else self.state_dict[name]

    @property
    def range_constraints(self) -> dict[Any, Any]:
        """The bounds of sizes that vary, by their symbols."""
        return self._range_constraints

    @range_constraints.setter
    def range_constraints(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's range_constraints attribute.")

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The submodules that ran, the module itself first."""
        return self._module_call_graph

    @module_call_graph.setter
    def module_call_graph(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's module_call_graph attribute.")

    @property
    def example_inputs(self) -> Any:
        """The arguments that the program was exported with: (args, kwargs)."""
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value: Any) -> None:
        if value is not None:
            args, kwargs = value if isinstance(value, tuple) and len(value) == 2 else (None, None)
            if not isinstance(args, tuple) or not isinstance(kwargs, dict):
                raise ValueError(
                    "Example inputs should be a tuple containing example arguments (as a tuple), and example kwargs (as a dictionary)."
                )
            if tree_flatten((args, kwargs))[1] != self.call_spec.in_spec:
                raise ValueError("The structure of the example inputs does not match that of the program's arguments")
        self._example_inputs = value

    @property
    def call_spec(self) -> CallSpec:
        """The structures of the arguments and of the result."""
        if not self.module_call_graph or self.module_call_graph[0].signature is None:
            return CallSpec(None, None)
        signature = self.module_call_graph[0].signature
        return CallSpec(signature.in_spec, signature.out_spec)

    @call_spec.setter
    def call_spec(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's call_spec attribute.")

    @property
    def verifier(self) -> Any:
        """The verifier of the graph."""
        return self._verifiers[0]

    @verifier.setter
    def verifier(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's verifier attribute.")

    @property
    def dialect(self) -> str:
        """Which operators the graph may have: "TRAINING", or "ATEN" after `run_decompositions`."""
        return str(self.verifier.dialect)

    @dialect.setter
    def dialect(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's dialect attribute.")

    @property
    def verifiers(self) -> list[Any]:
        """All that check the graph."""
        return self._verifiers

    @verifiers.setter
    def verifiers(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's verifiers attribute.")

    @property
    def tensor_constants(self) -> dict[str, Any]:
        """See `constants`."""
        return self._constants

    @tensor_constants.setter
    def tensor_constants(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's tensor_constants attribute.")

    @property
    def constants(self) -> dict[str, Any]:
        """Tensors that are in no state dict: plain attributes, literals, buffers that are not persistent."""
        return self._constants

    @constants.setter
    def constants(self, value: Any) -> None:
        raise RuntimeError("Unable to set ExportedProgram's constants attribute.")

    # ***** use *****

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def module(self, check_guards: bool = True) -> GraphModule:
        """A module with the program's parameters and buffers that takes the arguments of the original one; changes of
        buffers are kept.

        With `check_guards` it refuses arguments for which the program was not exported (AssertionError).
        """
        module: GraphModule = unlifting.unlifted(self, check_guards)

        def train(mode: bool = True) -> Any:
            raise NotImplementedError("Calling train() is not supported yet.")

        def evaluated() -> Any:
            raise NotImplementedError("Calling eval() is not supported yet.")

        module.train, module.eval = train, evaluated  # type: ignore[method-assign]
        return module

    def run_decompositions(
        self, decomp_table: dict[Any, Any] | None = None, decompose_custom_triton_ops: bool = False
    ) -> ExportedProgram:
        """The program over fewer operators: without changes in place, and with operators replaced by their rules.

        Without a table composites become core ATen operators (`default_decompositions()`); with an empty one they stay
        as they are, and nothing is changed in place.

        >>> import rushlight as torch
        >>> program = torch.export.export(torch.nn.Linear(2, 3), (torch.ones(4, 2),)).run_decompositions()
        >>> [node.name for node in program.graph.nodes if node.op == "call_function"]
        ['permute', 'addmm']
        """
        made: ExportedProgram = decompositions.decomposed(self, decomp_table)
        return made

    def validate(self) -> None:
        """`SpecViolationError` where the graph is not what its dialect allows."""
        for verifier in self._verifiers:
            verifier().check(self)

    _validate = validate

    def _update(
        self,
        graph_module: Any,
        graph_signature: Any,
        *,
        state_dict: Any = None,
        constants: Any = None,
        verifiers: Any = None,
    ) -> ExportedProgram:
        """The program with another graph and signature."""
        made = ExportedProgram(
            graph_module,
            graph_module.graph,
            graph_signature,
            dict(self.state_dict) if state_dict is None else state_dict,
            dict(self.range_constraints),
            copy.copy(self.module_call_graph),
            self.example_inputs,
            dict(self.constants) if constants is None else constants,
            verifiers=self.verifiers if verifiers is None else verifiers,
        )
        made._shape_env, made._guards = self._shape_env, self._guards
        return made

    def _graph_module_flat_inputs(self, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """Flat inputs of the graph module for a call: parameters, buffers and constants before the leaves of the arguments."""
        leaves, structure = tree_flatten((tuple(args), dict(kwargs or {})))
        if self.call_spec.in_spec is not None and structure != self.call_spec.in_spec:
            raise ValueError(
                f"Trying to flatten user inputs with exported input tree spec: \n{self.call_spec.in_spec}\nbut actually got inputs with "
                f"tree spec of: \n{structure}"
            )
        return (
            *[self._held(spec) for spec in self.graph_signature.input_specs if spec.kind is not InputKind.USER_INPUT],
            *leaves,
        )

    def _held(self, spec: Any) -> Any:
        name = spec.target
        if spec.kind is InputKind.PARAMETER or spec.kind is InputKind.BUFFER and spec.persistent:
            return self.state_dict[name]
        return self.constants[name]

    def _postprocess(self, results: Any) -> Any:
        """The results of the graph as the original module gives them; buffers get their new values."""
        count = len(self.graph_signature.output_specs) - len(self.graph_signature.user_outputs)
        spec: Any = self.call_spec.out_spec
        return tree_unflatten(list(results)[count:], spec)

    def __str__(self) -> str:
        graph = self.graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        signature = str(self.graph_signature).replace("\n", "\n    ")
        return f"ExportedProgram:\n    {graph}\nGraph signature: {signature}\nRange constraints: {self.range_constraints}\n"

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedProgram:
        made = self._update(copy.deepcopy(self.graph_module, memo), copy.deepcopy(self.graph_signature, memo))
        made._state_dict = copy.deepcopy(self.state_dict, memo)
        made._constants = copy.deepcopy(self.constants, memo)
        return made


def default_decompositions() -> Any:
    """The rules of `run_decompositions()`: operator -> function, for operators that are not core ATen."""
    return decompositions.default_table()


def named_values(values: Iterable[tuple[str, Tensor]]) -> dict[str, Any]:
    """Parameters and buffers by name, detached from any graph; parameters stay parameters."""
    return {name: v if isinstance(v, Parameter) else v.detach() if v.requires_grad else v for name, v in values}


def is_constant(value: Any) -> bool:
    """Whether a result is a value that no node gives."""
    return not isinstance(value, (Tensor, rushlight.fx.Node))
