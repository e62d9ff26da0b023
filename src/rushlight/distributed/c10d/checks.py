"""Arguments of collectives: tensors, their buffers, and tensors whose elements do not lie one behind the other."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor, no_grad
from rushlight._interface.autograd import bump
from rushlight._interface.distributed import RECORDING, STATE, Buffer, Reduction, is_host_memory, own
from rushlight.distributed.c10d.options import RedOpType, ReduceOp, supports_complex

__all__ = [
    "Staging",
    "buffer",
    "check_list",
    "check_same_dtype",
    "check_tensor",
    "is_tensor_list",
    "reduction_of",
    "specs_of",
]

_NAMES = {
    ReduceOp.SUM: "sum", ReduceOp.AVG: "avg", ReduceOp.PRODUCT: "prod", ReduceOp.MIN: "min", ReduceOp.MAX: "max", ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor", ReduceOp.BXOR: "bxor",
}  # fmt: skip
_REDUCED = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
)  # fmt: skip
# By the value of an operation, the dtype, and the function that was called.
_CHECKED: dict[tuple[int, Any, str], Reduction] = {}


def check_tensor(value: Any, name: str) -> None:
    """TypeError unless an argument is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n             but got {type(value)} instead."
        )


def is_tensor_list(value: Any) -> bool:
    """Whether an argument is a list of tensors."""
    return isinstance(value, (list, tuple)) and all(isinstance(x, Tensor) for x in value)


def check_list(value: Any, name: str) -> None:
    """TypeError unless an argument is a list of tensors."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n             but got {type(value)} instead."
        )
    if not all(isinstance(x, Tensor) for x in value):
        kinds = [type(x) for x in value]
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
            f"             but got {type(value)} with elements of type {kinds}."
        )


def check_same_dtype(*given: Any) -> None:
    """ValueError unless tensors, alone or in lists, have one dtype."""
    first = None
    for x in (x for one in given for x in (one if isinstance(one, (list, tuple)) else [one])):
        if first is not None and x.dtype is not first:
            raise ValueError(f"Invalid usage of tensors with different dtypesFound {first} and  {x.dtype}")
        first = x.dtype


def buffer(x: Tensor) -> Buffer:
    """The elements of a contiguous tensor."""
    spec = x._spec
    return Buffer(x._ptr, spec.numel, spec.dtype.name, spec.dtype.itemsize)


def reduced_buffer(x: Tensor) -> Buffer:
    """The same for a reduction: complex numbers as pairs."""
    return buffer(x).real_parts()


def reduction_of(op: Any, x: Tensor, name: str) -> Reduction:
    """The reduction that an argument names, checked for a dtype."""
    if type(op) is RedOpType:  # enums are hashed by Python code: their values are not
        known = _CHECKED.get((op._value_, x._spec.dtype, name))
        if known is not None:
            return known
        known = _CHECKED[op._value_, x._spec.dtype, name] = _reduction_of(op, x, name)
        return known
    return _reduction_of(op, x, name)


def _reduction_of(op: Any, x: Tensor, name: str) -> Reduction:
    kind, factor = (op.op, op.factor) if isinstance(op, ReduceOp) else (op, None)
    if not isinstance(kind, RedOpType):
        raise TypeError(f"{name}(): op must be a torch.distributed.ReduceOp, got {op!r}")
    dtype = x._spec.dtype
    if dtype.is_complex and not supports_complex(kind):
        raise ValueError(f"{name} does not support {kind} on complex tensors")
    if kind is ReduceOp.PREMUL_SUM:
        if factor is None:
            raise ValueError("ReduceOp.PREMUL_SUM needs a factor: torch.distributed._make_nccl_premul_sum(factor)")
        return Reduction("premul_sum", float(factor))
    if kind not in _NAMES:
        raise ValueError(f"{name}: {kind} is no reduction")
    if kind in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) and dtype.is_floating_point:
        raise RuntimeError(f"Cannot use ReduceOp.{kind.name} with non-integral dtype")
    if dtype.name not in _REDUCED and not dtype.is_complex:
        raise RuntimeError(f"Invalid scalar type: {name} cannot reduce {dtype}")
    return Reduction(_NAMES[kind])


def specs_of(tensors: Any) -> tuple[Any, ...]:
    """The specs of tensors, of lists of them too: all that is kept of them when an operation is done."""
    if isinstance(tensors, Tensor):
        return (tensors._spec,)
    found: list[Any] = []
    for x in tensors:
        if isinstance(x, Tensor):
            found.append(x._spec)
        else:
            found += specs_of(x)
    return tuple(found)


class Staging:
    """The tensors of one call on a process group: contiguous stand-ins for those whose elements do not lie one behind the
    other, and the way back; and `group`, the one below that works on their device.
    """

    def __init__(self, pg: Any) -> None:
        self.after: list[Any] = []
        self.pg, self.group, self.communicator = pg, pg._group, pg._group.communicator
        self._device = ""  # its type, of tensors that are not in the host's memory
        self._on_host = False  # whether a tensor was

    def read(self, x: Tensor) -> Tensor:
        """A tensor to send from."""
        spec = self._checked(x)
        if spec.contiguous and not spec.conj:
            return x
        with no_grad():
            return x.detach().resolve_conj().resolve_neg().contiguous()

    def write(self, x: Tensor, filled: bool = False) -> Tensor:
        """A tensor to receive into: `filled` where its elements are sent too."""
        spec = self._checked(x)
        own(x)
        bump(x._storage)
        if spec.contiguous and not spec.conj:
            return x
        with no_grad():
            made = self.read(x) if filled else x.detach().new_empty(x.shape)
        self.after.append(lambda: _copy_back(x, made))
        return made

    def _checked(self, x: Tensor) -> Any:
        """The spec of a tensor that a collective can take."""
        if STATE.word & RECORDING:
            raise STATE.recording.refused("a collective of torch.distributed")
        spec = getattr(x, "_spec", None)
        if spec is None:
            raise TypeError(f"collectives take plain tensors, got {type(x)}")
        if x.is_sparse:
            raise RuntimeError("rushlight's collectives take strided tensors yet, got a sparse one: use to_dense()")
        if self.pg._on_host and is_host_memory(spec):
            self._on_host = True
        else:
            self._choose(spec.device.type)
        if self._on_host and self._device:
            raise RuntimeError(
                f"tensors of one collective must be on one device, got some on the CPU and some on {self._device}"
            )
        return spec

    def _choose(self, device: str) -> None:
        """Take the group that works on a type of device; RuntimeError where there is none."""
        found = self.pg._devices.get(device)
        if found is None:
            raise RuntimeError(f"No backend type associated with device type {device}")
        if self._device and device != self._device:
            raise RuntimeError(f"tensors of one collective must be on one device, got {self._device} and {device}")
        self._device, self.group, self.communicator = device, found, found.communicator


def _copy_back(x: Tensor, made: Tensor) -> None:
    with no_grad():
        x.detach().copy_(made)
