"""`RemoteModule`: a module that another worker has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import device as _device
from rushlight.distributed import rpc
from rushlight.distributed.rpc.payload import CURRENT
from rushlight.futures import Future
from rushlight.nn import Module

__all__ = ["RemoteModule"]


def _place(remote_device: Any) -> tuple[str | int, str]:
    """Worker and device of "worker", "worker/device", "rank:number/device"; ValueError for anything else."""
    if not isinstance(remote_device, str) or remote_device.count("/") > 1:
        raise ValueError(
            f"Could not parse remote_device: {remote_device!r} is not of the form <worker>/<device> or rank:<number>/<device>"
        )
    worker, _, where = remote_device.partition("/")
    where = where or "cpu"
    _device(where)
    if not worker:
        raise ValueError(f"Could not parse remote_device: {remote_device!r} names no worker")
    if worker.startswith("rank:"):
        number = worker.removeprefix("rank:")
        if not number.isdigit():
            raise ValueError(f"Could not parse remote_device: {number!r} is no rank")
        return int(number), where
    return worker, where


def _make(module_class: Callable[..., Module], where: str, args: Any, kwargs: Any) -> Module:
    made = module_class(*args, **kwargs)
    if not isinstance(made, Module):
        raise ValueError(
            f"Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, but it returns an instance of {type(made)}."
        )
    return made.to(where)


def _parameters(reference: Any, recurse: bool) -> list[Any]:
    return [rpc.RRef(parameter) for parameter in reference.local_value().parameters(recurse)]


def _forward(reference: Any, args: Any, kwargs: Any) -> Any:
    return reference.local_value()(*args, **kwargs)


class RemoteModule(Module):
    """A module of class `module_cls` that is made and kept on another worker, and called from here.

    `remote_device` is "worker/device", or "rank:number/device".  `forward` waits for the result, `forward_async` gives a
    `torch.futures.Future`; gradients go through both in a context of `torch.distributed.autograd`.  `remote_parameters`
    are for a `DistributedOptimizer`. It can be sent to other workers, where it stands for the same module.  What changes or
    shows the module itself raises ValueError: do that on its worker, by `get_module_rref()`.

    >>> import rushlight as torch
    >>> from rushlight.distributed import rpc
    >>> from rushlight.distributed.nn import RemoteModule
    >>> options = rpc.TensorPipeRpcBackendOptions(init_method="tcp://localhost:0")
    >>> rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
    >>> module = RemoteModule("alone/cpu", torch.nn.Linear, args=(2, 3))
    >>> module(torch.ones(4, 2)).shape, len(module.remote_parameters())
    (torch.Size([4, 3]), 2)
    >>> rpc.shutdown()
    """

    def __init__(
        self,
        remote_device: str,
        module_cls: type[Module],
        args: Any = None,
        kwargs: Any = None,
        _module_interface_cls: Any = None,
    ) -> None:
        super().__init__()
        worker, where = _place(remote_device)
        self._begin(
            worker, where, rpc.rpc_sync(worker, _reference_to_new, args=(module_cls, where, args or (), kwargs or {}))
        )

    def _begin(self, worker: Any, where: str, reference: Any) -> None:
        self.on, self.device, self.module_rref = worker, where, reference
        self.is_scriptable = False

    @property
    def is_device_map_set(self) -> bool:
        """Whether results stay on an accelerator: they come on the CPU."""
        return False

    @staticmethod
    def init_from_module_rref(remote_device: str, module_rref: Any, _module_interface_cls: Any = None) -> RemoteModule:
        """A `RemoteModule` for a module that a worker has already, from a reference to it."""
        made: RemoteModule = RemoteModule.__new__(RemoteModule)
        Module.__init__(made)
        made._begin(*_place(remote_device), module_rref)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        if CURRENT.packing is None:
            raise RuntimeError(
                "Cannot pickle RemoteModule in python pickler. RemoteModule can only be pickled when using RPC"
            )
        return _received, (self.on, self.device, self.module_rref, self.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the module's call on its worker."""
        return self.forward_async(*args, **kwargs).wait()

    def forward_async(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future of that result."""
        return rpc.rpc_async(self.module_rref.owner(), _forward, args=(self.module_rref, args, kwargs))

    def remote_parameters(self, recurse: bool = True) -> list[Any]:
        """References to the parameters of the module; `recurse`: and of those within."""
        found: list[Any] = rpc.rpc_sync(self.module_rref.owner(), _parameters, args=(self.module_rref, recurse))
        return found

    def get_module_rref(self) -> Any:
        """The reference to the module."""
        return self.module_rref

    def train(self, mode: bool = True) -> RemoteModule:
        """Put the module into training mode, or out of it, on its worker."""
        self.module_rref.rpc_sync().train(mode)
        self.training = mode
        return self

    def eval(self) -> RemoteModule:
        """Put the module into evaluation mode, on its worker."""
        return self.train(False)

    def __repr__(self) -> str:
        return f"RemoteModule(on={self.on!r}, device={self.device!r}, module_rref={self.module_rref})"


def _reference_to_new(module_class: Any, where: str, args: Any, kwargs: Any) -> Any:
    return rpc.RRef(_make(module_class, where, args, kwargs))


def _received(worker: Any, where: str, reference: Any, training: bool) -> RemoteModule:
    made: RemoteModule = RemoteModule.__new__(RemoteModule)
    Module.__init__(made)
    made._begin(worker, where, reference)
    made.training = training
    return made


def _refused(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"Method ``{name}`` not supported for RemoteModule")

    method.__name__ = name
    method.__doc__ = "Refused: the module is on another worker."
    return method


for _name in (
    "register_buffer", "register_parameter", "add_module", "apply", "cuda", "ipu", "xpu", "cpu", "type", "float", "double", "half", "bfloat16", "to",
    "register_backward_hook", "register_forward_pre_hook", "register_forward_hook", "state_dict", "load_state_dict", "parameters",
    "named_parameters", "buffers", "named_buffers", "children", "named_children", "modules", "named_modules", "requires_grad_", "zero_grad",
    "share_memory", "extra_repr",
):  # fmt: skip
    setattr(RemoteModule, _name, _refused(_name))
