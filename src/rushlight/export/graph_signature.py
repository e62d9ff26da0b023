"""`torch.export.graph_signature`: what the inputs and results of an exported graph are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

__all__ = [
    "ArgumentSpec", "ConstantArgument", "CustomObjArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind",
    "OutputSpec", "SymBoolArgument", "SymFloatArgument", "SymIntArgument", "TensorArgument", "TokenArgument",
]  # fmt: skip


@dataclass
class TensorArgument:
    """A tensor: the name of its node."""

    name: str


@dataclass
class TokenArgument:
    """A token that orders effects."""

    name: str


@dataclass
class SymIntArgument:
    """A symbolic integer."""

    name: str


@dataclass
class SymFloatArgument:
    """A symbolic float."""

    name: str


@dataclass
class SymBoolArgument:
    """A symbolic condition."""

    name: str


@dataclass
class CustomObjArgument:
    """An object of a class of TorchScript."""

    name: str
    class_fqn: str
    fake_val: Any = None


@dataclass
class ConstantArgument:
    """A number, a text, None: its value."""

    name: str
    value: int | float | bool | str | None


ArgumentSpec = (
    TensorArgument
    | SymIntArgument
    | SymFloatArgument
    | SymBoolArgument
    | ConstantArgument
    | CustomObjArgument
    | TokenArgument
)
_SPECS: Any = ArgumentSpec.__args__


class InputKind(Enum):
    """Role of an input."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    CUSTOM_OBJ = auto()
    TOKEN = auto()


class OutputKind(Enum):
    """Role of a result."""

    USER_OUTPUT = auto()
    LOSS_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    GRADIENT_TO_PARAMETER = auto()
    GRADIENT_TO_USER_INPUT = auto()
    USER_INPUT_MUTATION = auto()
    TOKEN = auto()


def _text(argument: Any, kind: Enum, target: str | None, persistent: bool | None = None) -> str:
    words = [f"{argument.name}: {kind.name}"]
    words += [f"target={target!r}"] if target is not None else []
    words += [f"persistent={persistent}"] if persistent is not None else []
    return " ".join(words)


@dataclass
class InputSpec:
    """One input: its kind, its name in the graph, the attribute that it is, and whether that is in the state dict."""

    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None

    def __post_init__(self) -> None:
        if self.kind is InputKind.BUFFER and self.persistent is None:
            raise AssertionError("Failed to specify persistent flag on BUFFER.")
        if not isinstance(self.arg, _SPECS):
            raise AssertionError(f"got {type(self.arg)}")

    def __str__(self) -> str:
        return _text(self.arg, self.kind, self.target, self.persistent)


@dataclass
class OutputSpec:
    """One result: its kind, its name in the graph, and what it is the new value or the gradient of."""

    kind: OutputKind
    arg: Any
    target: str | None

    def __post_init__(self) -> None:
        if not isinstance(self.arg, _SPECS):
            raise AssertionError(f"got {self.arg}")

    def __str__(self) -> str:
        return _text(self.arg, self.kind, self.target)


@dataclass
class ExportBackwardSignature:
    """Results of a graph with its backward that are gradients, and the one that is the loss."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclass
class ExportGraphSignature:
    """The inputs and results of an exported graph, in their order.

    Inputs: parameters, buffers, tensors that are constants, then what users give.  Results: new values of buffers and of
    inputs, then what users get.
    """

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    # ***** inputs *****

    def _targets(self, kind: InputKind) -> tuple[Any, ...]:
        return tuple(s.target for s in self.input_specs if s.kind is kind)

    def _inputs(self, kind: InputKind) -> Mapping[str, Any]:
        return MappingProxyType({s.arg.name: s.target for s in self.input_specs if s.kind is kind})

    def _outputs(self, kind: OutputKind) -> Mapping[str, Any]:
        return MappingProxyType({s.arg.name: s.target for s in self.output_specs if s.kind is kind})

    @property
    def parameters(self) -> Collection[str]:
        """The names of the parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> Collection[str]:
        """The names of the buffers."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> Collection[str]:
        """The names of the buffers that are not in the state dict."""
        return tuple(s.target for s in self.input_specs if s.kind is InputKind.BUFFER and s.persistent is False)  # type: ignore[misc]

    @property
    def lifted_tensor_constants(self) -> Collection[str]:
        """The names of the tensors that are neither parameters nor buffers."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self) -> Collection[str]:
        """The names of objects of classes of TorchScript."""
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def user_inputs(self) -> Collection[Any]:
        """Inputs from the user: names of nodes, and values that are constants."""
        return tuple(_shown(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Node -> parameter."""
        return self._inputs(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Node -> buffer."""
        return self._inputs(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Node -> tensor that is a constant."""
        return self._inputs(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        """Node -> object of a class of TorchScript."""
        return self._inputs(InputKind.CUSTOM_OBJ)

    @property
    def input_tokens(self) -> Collection[str]:
        """Inputs that order effects."""
        return tuple(s.arg.name for s in self.input_specs if s.kind is InputKind.TOKEN)

    # ***** results *****

    @property
    def user_outputs(self) -> Collection[Any]:
        """Results for the user: names of nodes, and values that are constants."""
        kinds = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        return tuple(_shown(s.arg) for s in self.output_specs if s.kind in kinds)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Result -> the buffer whose new value it is."""
        return self._outputs(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        """Result -> the parameter whose new value it is."""
        return self._outputs(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """Result -> the input whose new value it is."""
        return self._outputs(OutputKind.USER_INPUT_MUTATION)

    @property
    def output_tokens(self) -> Collection[str]:
        """Results that order effects."""
        return tuple(s.arg.name for s in self.output_specs if s.kind is OutputKind.TOKEN)

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """The loss and the gradients; None for a graph without its backward."""
        loss = next((s.arg.name for s in self.output_specs if s.kind is OutputKind.LOSS_OUTPUT), None)
        if loss is None:
            return None
        return ExportBackwardSignature(
            dict(self._outputs(OutputKind.GRADIENT_TO_PARAMETER)),
            dict(self._outputs(OutputKind.GRADIENT_TO_USER_INPUT)),
            loss,
        )

    @property
    def assertion_dep_token(self) -> Mapping[int, str] | None:
        """None: assertions are in no order of their own."""
        return None

    # ***** changes *****

    def replace_all_uses(self, old: str, new: str) -> None:
        """Let results that are called `old` be called `new`, in a graph that was changed."""
        for spec in self.output_specs:
            if getattr(spec.arg, "name", None) == old:
                spec.arg.name = new
            if spec.kind is OutputKind.USER_INPUT_MUTATION and spec.target == old:
                spec.target = new

    def get_replace_hook(self, replace_inputs: bool = False) -> Callable[[Any, str, Any], None]:
        """A hook for `GraphModule._register_replace_node_hook`: the signature follows renamed nodes."""

        def hook(old: Any, new: str, user: Any) -> None:
            if user.op == "output":
                self.replace_all_uses(old.name, new)
            if replace_inputs and old.op == "placeholder":
                for spec in self.input_specs:
                    if spec.arg.name == old.name:
                        spec.arg.name = new

        return hook

    def __str__(self) -> str:
        ins, outs = "\n".join(map(str, self.input_specs)), "\n".join(map(str, self.output_specs))
        return f"\n# inputs\n{ins}\n\n# outputs\n{outs}\n"


def _shown(argument: Any) -> Any:
    if isinstance(argument, ConstantArgument):
        return argument.value
    return argument.name
