"""The names of PyTorch's native module that programs use."""

from __future__ import annotations

import sys
from typing import Any

import rushlight
from rushlight import Tensor, set_grad_enabled
from rushlight import device as Device
from rushlight._engine.autograd.engine import task_number as _current_graph_task_id
from rushlight._engine.autograd.engine import will_run as _will_engine_execute_node
from rushlight._engine.dispatch.modes import is_grad_enabled as _is_grad_enabled
from rushlight._engine.dispatch.override import DisableTorchFunctionSubclass
from rushlight._engine.dispatch.override import disabled_torch_function as _disabled_torch_function_impl
from rushlight._engine.indexing.inplace import one_memory as _is_alias_of
from rushlight._engine.random.random import Generator
from rushlight._interface.base import absent_class, import_whole, trace_marks, warn_user
from rushlight._interface.devices import accelerator, private_type
from rushlight._interface.functorch import LEVELS
from rushlight._interface.operators import SPACES
from rushlight._interface.tensors import STATE, is_dense, overlaps_itself
from rushlight._surface.composites.factors import LinAlgError as _LinAlgError
from rushlight._surface.dispatch import DispatchKey, DispatchKeySet, Tag
from rushlight._surface.dispatch import ExcludeDispatchKeyGuard as _ExcludeDispatchKeyGuard
from rushlight.storage import UntypedStorage

__all__ = [
    "DisableTorchFunctionSubclass", "DispatchKey", "DispatchKeySet", "Generator", "PyTorchFileReader", "Tag", "TensorBase", "_ExcludeDispatchKeyGuard",
    "_LinAlgError", "_TensorMeta", "_VariableFunctions", "_VariableFunctionsClass", "_are_functorch_transforms_active", "_current_graph_task_id", "_is_alias_of", "_current_autograd_node", "_data_address",
    "_disabled_torch_function_impl", "_get_accelerator", "_get_privateuse1_backend_name", "_get_tracing_state", "_is_cow_tensor", "_is_grad_enabled",
    "_log_api_usage_once", "_set_grad_enabled", "_will_engine_execute_node", "set_vital",
]  # fmt: skip

TensorBase, _TensorMeta = Tensor, type(Tensor)

# The reader of checkpoints' archives, for annotations.
PyTorchFileReader = absent_class("torch._C.PyTorchFileReader", "torch.load reads checkpoints here")
ScriptObject = absent_class("torch._C.ScriptObject", "objects of classes written in C++ do not exist here")
StorageBase = UntypedStorage


class _Functions(type):
    def __getattr__(cls, name: str) -> Any:
        found = SPACES["torch"].get(name) or getattr(rushlight, name, None)
        if not callable(found) or isinstance(found, type):
            raise AttributeError(f"type object '_VariableFunctionsClass' has no attribute {name!r}", name=name, obj=cls)
        return found


class _VariableFunctionsClass(metaclass=_Functions):
    """The functions of `torch` as attributes: pickles of PyTorch's functions name them so."""


_VariableFunctions = _VariableFunctionsClass


def _current_autograd_node() -> Any:
    """The node of an `autograd.Function`, or one with hooks, whose backward is running in this thread; None outside of
    them.
    """
    return STATE.current_node


def _get_tracing_state() -> Any:
    """The record of the TorchScript trace that runs, with `push_scope` and `pop_scope`; None where nothing is traced."""
    recording = sys.modules.get("rushlight.jit.tracing.recording")  # a trace has loaded it
    return None if recording is None else recording.current()


def _are_functorch_transforms_active() -> bool:
    """Whether the program is inside a transform of `torch.func`."""
    return bool(LEVELS.stack)


def _get_accelerator(check: bool | None = None) -> Device:
    """The device type of the accelerator; without one, the CPU."""
    found = accelerator()
    return Device("cpu" if found is None or check and not found.device_count() else found.type)


def _get_privateuse1_backend_name() -> str:
    """The name of the device type that is kept for backends from outside."""
    return private_type()


def _get_default_device() -> str:
    """The kind of device that new tensors are made on."""
    return str(import_whole("rushlight").get_default_device().type)


def _get_cudnn_enabled() -> bool:
    """The value of `torch.backends.cudnn.enabled`."""
    return bool(import_whole("rushlight.backends.cudnn").enabled)


def _is_torch_function_mode_enabled() -> bool:
    """Whether a `TorchFunctionMode` is on."""
    return bool(STATE.function_modes)


def _is_cow_tensor(tensor: Tensor) -> bool:
    """Whether a tensor's memory may be shared with lazy clones (`Tensor._lazy_clone`), so that it is copied before it
    is written.
    """
    return bool(import_whole("rushlight._engine.core.lazy_clone").is_lazy(tensor))


def _data_address(tensor: Tensor) -> int:
    """Address of the first element, for reading: lazy clones stay as they are.  `data_ptr` is for writing."""
    return tensor._ptr if tensor._spec.numel else 0


@trace_marks.changes_later_calls
def _set_grad_enabled(enabled: bool) -> None:
    """Record gradients from here on, or do not: what fx graphs of compiled programs call."""
    set_grad_enabled(bool(enabled))


def _get_cpu_capability() -> str:
    """The vector instructions in use, as `torch.backends.cpu.get_cpu_capability` says them."""
    return str(import_whole("rushlight.backends.cpu").get_cpu_capability())


def _is_tracing() -> bool:
    """Whether calls are being recorded by `torch.jit.trace`."""
    tracing = sys.modules.get("rushlight.jit")  # a trace has loaded it
    return tracing is not None and bool(tracing.is_tracing())


def _debug_has_internal_overlap(input: Tensor, /) -> int:
    """Whether elements of a tensor share memory: 0 no, 1 yes (an expanded dim), 2 not known from its strides alone."""
    spec = input._spec
    if is_dense(spec.shape, spec.strides):
        return 0
    return 1 if overlaps_itself(spec.shape, spec.strides) else 2


def _log_api_usage_once(event: str) -> None:
    """PyTorch counts here which of its parts are used; nothing is counted."""


@trace_marks.changes_later_calls
def set_vital(vital: str, attr: str, value: str, /) -> bool:
    """PyTorch once counted here what its parts were used for; False: nothing is counted."""
    warn_user("'set_vital' is deprecated, please do not call")
    return False


# Graphs of TorchScript and the types of their values.
_SCRIPT_NAMES = (
    "AnyType", "Argument", "Block", "BoolType", "ClassType", "CompilationUnit", "ComplexType", "DeviceObjType", "DictType", "EnumType", "FileCheck",
    "FloatType", "FunctionSchema", "Future", "FutureType", "Graph", "IntType", "InterfaceType", "ListType", "Node", "NoneType", "NumberType", "OptionalType",
    "ScriptDict", "ScriptFunction", "ScriptList", "ScriptMethod", "ScriptModule", "StringType", "TensorType", "TupleType", "Type", "UnionType", "Use",
    "Value", "_Await", "_create_function_from_graph", "_freeze_module", "parse_ir", "parse_schema", "parse_type",
)  # fmt: skip

_SUBMODULES = ("_autograd", "_dynamo", "_fft", "_functions", "_functorch", "_linalg", "_nn", "_sparse", "_special")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_whole(f"{__name__}.{name}")
    if name == "_cpu":  # what a processor can do
        return import_whole("rushlight.cpu")
    if name in _SCRIPT_NAMES:
        value = globals()[name] = getattr(import_whole("rushlight._C._script"), name)
        return value
    if name == "_activate_gpu_trace":
        return import_whole("rushlight.cuda._gpu_trace").activate
    if name.startswith("_cuda_"):
        found = import_whole("rushlight._C._cuda").find(name.removeprefix("_cuda_"))
        if found is not None:
            return found
    if name.startswith("_jit_"):
        found = import_whole("rushlight._C._script")._FUNCTIONS.get(name)
        if found is not None:
            return found
    raise AttributeError(f"rushlight has no '_C.{name}' yet")
