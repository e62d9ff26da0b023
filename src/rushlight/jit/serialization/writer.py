"""`torch.jit.save`: archives that PyTorch reads."""

from __future__ import annotations

import io
import os
import re
import struct
from typing import Any

import rushlight
from rushlight._interface.files import crc32
from rushlight.jit.frontend.inference import type_of
from rushlight.jit.ir import types as T
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.schemas import Argument, Schema
from rushlight.jit.ir.types import Type
from rushlight.jit.modules import ScriptFunction, is_compiled, wrap_module
from rushlight.jit.runtime.constants import number_of
from rushlight.jit.runtime.objects import type_of_object
from rushlight.jit.serialization.packed import packed_state
from rushlight.jit.serialization.printer import Code, class_code, method_names, print_function
from rushlight.serialization import memory
from rushlight.serialization.archive import ArchiveWriter
from rushlight.serialization.replacing import replacing

__all__ = ["archive_bytes", "save"]

_STORAGES = {
    "float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage", "int64": "LongStorage",
    "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage", "uint8": "ByteStorage", "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage", "complex128": "ComplexDoubleStorage", "qint8": "QInt8Storage", "quint8": "QUInt8Storage", "qint32": "QInt32Storage",
}  # fmt: skip


def save(held: Any, f: Any, extra: dict[str, Any] | None = None) -> None:
    """Write a compiled module or function to a file or a path."""
    if isinstance(f, (str, os.PathLike)):
        stem = re.sub(r"\.[^.]*$", "", os.path.basename(os.fspath(f))) or "archive"
        records = _records(held, extra)
        with replacing(f) as out:
            _write(records, out, stem)
        return
    f.write(archive_bytes(held, extra))


def archive_bytes(held: Any, extra: dict[str, Any] | None = None) -> bytes:
    """The archive as bytes."""
    out = io.BytesIO()
    _write(_records(held, extra), out, "archive")
    return out.getvalue()


def _write(records: list[tuple[str, Any]], out: Any, name: str) -> None:
    archive = ArchiveWriter(out, name)
    for record, data in records:
        archive.record(record, data)
    total = crc32(b"".join(f"{n}:{c}\n".encode() for n, c in archive.digests))
    archive.record(".data/serialization_id", f"{total:040d}".encode())
    archive.close()


def _records(held: Any, extra: dict[str, Any] | None) -> list[tuple[str, Any]]:
    module = _as_module(held)
    for name, inner in module.named_modules():
        if "_python" in inner.__dict__:
            raise NotImplementedError(
                f"rushlight writes no quantized layers into TorchScript archives: {name or 'the module'} is a {inner.original_name} (save "
                "its state_dict, or export the model)"
            )
    data = _Pickle("data")
    data.object(module, module._type)
    code = Code()
    code.needed[module._type.name] = module._type
    for kind in data.classes.values():
        code.needed.setdefault(kind.name, kind)
    texts = _texts(code)
    constants = _Pickle("constants")
    for value in code.constants:
        constants.any(value, T.TENSOR if isinstance(value, rushlight.Tensor) else _type(value))
    records: list[tuple[str, Any]] = [(f"data/{k}", v) for k, v in data.storages]
    records.append(("data.pkl", data.finished()))
    records += [(f"code/{place}.py", text.encode()) for place, text in texts.items()]
    records += [(f"constants/{k}", v) for k, v in constants.storages]
    records.append(("constants.pkl", constants.tuple_of(len(code.constants))))
    for name, value in (extra or {}).items():
        records.append((f"extra/{name}", value.encode() if isinstance(value, str) else bytes(value)))
    records += [("version", b"10\n"), ("byteorder", b"little")]
    return records


def _type(value: Any) -> Type:
    return type_of(value)


def _as_module(held: Any) -> Any:
    if is_compiled(held):
        return held
    if isinstance(held, ScriptFunction):
        return _function_module(held)
    raise TypeError(f"only compiled modules and functions can be saved with torch.jit.save, not {type(held).__name__}")


def _function_module(held: ScriptFunction) -> Any:
    """A function as the only method of a module, as PyTorch writes it."""
    function = held._function
    kind = T.ClassType("__torch__.PlaceholderModule", is_module=True)
    graph = function.graph.copy()
    value = graph.block.add_input(kind, "self", at=0)
    del value
    schema = Schema("forward", "", [Argument("self", kind), *function.schema.arguments], function.schema.returns)
    made = Function(f"{kind.name}.forward", schema=schema)
    made.graph, made.owner = graph, kind
    kind.methods["forward"] = made
    kind.attributes["training"] = T.BOOL
    return wrap_module(kind)


def _texts(code: Code) -> dict[str, str]:
    """The text of every file, until nothing more is needed."""
    places: dict[str, list[str]] = {}
    spaces: dict[str, Code] = {}
    done: set[str] = set()
    while True:
        waiting = [n for n in code.needed if n not in done]
        if not waiting:
            break
        for name in waiting:
            done.add(name)
            held = code.needed[name]
            place = name.rpartition(".")[0].replace(".", "/")
            space = spaces.setdefault(place, _shared(code))
            if isinstance(held, Type):
                lines = class_code(held, space)
            else:
                lines = print_function(held, space)
            places.setdefault(place, []).extend(lines)
    return {place: "\n".join(lines) + "\n" for place, lines in places.items()}


def _shared(code: Code) -> Code:
    """Names of its own, constants and needs in common."""
    made = Code()
    made.constants, made.needed = code.constants, code.needed
    return made


class _Pickle:
    """Writes one pickle of protocol 2, with tensors by references to records."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.out: list[bytes] = [b"\x80\x02"]
        self.storages: list[tuple[str, Any]] = []
        self.keys: dict[int, str] = {}
        self.memo: dict[int, int] = {}
        self.kept: list[Any] = []
        self.classes: dict[str, Any] = {}

    def finished(self) -> bytes:
        """The pickle of one value."""
        return b"".join(self.out) + b"."

    def tuple_of(self, count: int) -> bytes:
        """The pickle of a tuple of what was written."""
        if not count:
            return b"\x80\x02)."
        return b"\x80\x02(" + b"".join(self.out[1:]) + b"t."

    def _put(self, *parts: bytes) -> None:
        self.out += parts

    def text(self, value: str) -> None:
        """A string."""
        data = value.encode("utf-8", "surrogatepass")
        self._put(b"X" + struct.pack("<I", len(data)) + data)

    def number(self, value: int) -> None:
        """A whole number."""
        if 0 <= value < 256:
            self._put(b"K" + bytes([value]))
        elif -(2**31) <= value < 2**31:
            self._put(b"J" + struct.pack("<i", value))
        else:
            self._put(b"\x8a\x08" + struct.pack("<q", value))

    def globally(self, module: str, name: str) -> None:
        """A global."""
        self._put(f"c{module}\n{name}\n".encode())

    def any(self, value: Any, kind: Type) -> None:
        """A value of a type."""
        if value is None:
            self._put(b"N")
        elif isinstance(kind, T.EnumType):
            self._enum(value, kind)
        elif value is True or value is False:
            self._put(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.number(value)
        elif isinstance(value, float):
            self._put(b"G" + struct.pack(">d", value))
        elif isinstance(value, complex):
            self._complex(value)
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, rushlight.Tensor):
            self.tensor(value)
        elif isinstance(value, list):
            self._list(value, kind)
        elif isinstance(value, dict):
            self._dict(value, kind)
        elif isinstance(value, tuple):
            self._tuple(value, kind)
        elif isinstance(value, rushlight.device):
            self.globally("torch", "device")
            self.text(str(value))
            self._put(b"\x85R")
        elif isinstance(value, (rushlight.dtype, rushlight.layout, rushlight.memory_format)):
            self.number(number_of(value))
        elif isinstance(kind, T.ClassType) and kind.name in T.PACKED:
            self._packed(value)
        else:
            self.object(value, _held_type(value))

    def _complex(self, value: complex) -> None:
        self.globally("builtins", "complex")
        self._put(b"G" + struct.pack(">d", value.real), b"G" + struct.pack(">d", value.imag), b"\x86R")

    def _enum(self, value: Any, kind: T.EnumType) -> None:
        self.classes.setdefault(kind.name, kind)
        place, _, name = kind.name.rpartition(".")
        self.globally(place, name)
        self.any(value.value, kind.value_type)
        self._put(b"R")

    def _list(self, value: list[Any], kind: Type) -> None:
        element = kind.inner[0] if kind.name == "List" else T.ANY
        builder = {
            T.INT: "build_intlist",
            T.FLOAT: "build_doublelist",
            T.BOOL: "build_boollist",
            T.TENSOR: "build_tensorlist",
        }.get(element)
        self.globally("torch.jit._pickle", builder or "restore_type_tag")
        self._put(b"](")
        for each in value:
            self.any(each, element)
        self._put(b"e")
        if builder is None:
            self.text(f"List[{element.annotation}]")
            self._put(b"\x86R")
        else:
            self._put(b"\x85R")

    def _dict(self, value: dict[Any, Any], kind: Type) -> None:
        key, held = kind.inner if kind.name == "Dict" and len(kind.inner) == 2 else (T.ANY, T.ANY)
        self.globally("torch.jit._pickle", "restore_type_tag")
        self._put(b"}(")
        for k, v in value.items():
            self.any(k, key)
            self.any(v, held)
        self._put(b"u")
        self.text(f"Dict[{key.annotation}, {held.annotation}]")
        self._put(b"\x86R")

    def _tuple(self, value: tuple[Any, ...], kind: Type) -> None:
        kinds = kind.inner if len(kind.inner) == len(value) else [T.ANY] * len(value)
        self._put(b"(")
        for each, inner in zip(value, kinds, strict=True):
            self.any(each, inner)
        self._put(b"t")
        if isinstance(kind, T.NamedTupleType):
            self.classes.setdefault(kind.name, kind)

    def _packed(self, value: Any) -> None:
        if self._known(value):
            return
        packed = packed_state(value)
        if packed is None:
            raise TypeError(f"a {type(value).__name__} is no packed weight")
        name, state, kind = packed
        self._begin(name, value)
        self.any(state, kind)
        self._put(b"b")

    def _known(self, value: Any) -> bool:
        """Refer to an object that was written before, where it was."""
        if id(value) not in self.memo:
            return False
        self._put(b"j" + struct.pack("<I", self.memo[id(value)]))
        return True

    def _begin(self, name: str, value: Any) -> None:
        """A new object of a class."""
        self.kept.append(value)
        place, _, short = name.rpartition(".")
        self.globally(place, short)
        self._put(b")\x81")
        self.memo[id(value)] = len(self.memo)
        self._put(b"r" + struct.pack("<I", self.memo[id(value)]))

    def object(self, value: Any, kind: Any) -> None:
        """An object: the attributes of its class, or what its `__getstate__` gives."""
        if self._known(value):
            return
        self.classes.setdefault(kind.name, kind)
        self._begin(kind.name, value)
        names = method_names(kind)
        getter = kind.find_method("__getstate__") if "__getstate__" in names and "__setstate__" in names else None
        if getter is not None:
            self.any(getter.run(value), getter.schema.returns[0].type)
        else:
            self._put(b"}(")
            for attribute, held in kind.attributes.items():
                self.text(attribute)
                self.any(_attribute(value, attribute, kind), held)
            self._put(b"u")
        self._put(b"b")

    def tensor(self, value: Any) -> None:
        """A tensor: its storage is a record of its own."""
        if value.layout is not rushlight.strided:
            raise NotImplementedError("rushlight writes strided tensors into TorchScript archives, no sparse ones")
        name = _STORAGES.get(str(value.dtype).removeprefix("torch."))
        if name is None:
            raise NotImplementedError(f"rushlight writes no tensors of {value.dtype} into TorchScript archives")
        tensor = value.detach().resolve_conj().resolve_neg()
        tensor = tensor.cpu()
        storage = memory.storage_of(tensor)
        key = self.keys.get(memory.identity(storage))
        if key is None:
            key = self.keys[memory.identity(storage)] = str(len(self.storages))
            self.kept.append(storage)
            self.storages.append((key, memory.bytes_of(storage)))
        quantized = value.is_quantized
        self.globally("torch._utils", "_rebuild_qtensor" if quantized else "_rebuild_tensor_v2")
        self._put(b"((")
        self.text("storage")
        self.globally("torch", name)
        self.text(key)
        self.text("cpu")
        self.number(storage.nbytes() // value.dtype.itemsize)
        self._put(b"tQ")
        self.number(tensor.storage_offset())
        for numbers in (tensor.shape, tensor.stride()):
            self._put(b"(")
            for each in numbers:
                self.number(each)
            self._put(b"t")
        if quantized:
            self._scheme(value)
        self._put(b"\x88" if value.requires_grad else b"\x89")
        self.globally("collections", "OrderedDict")
        self._put(b")RtR")

    def _scheme(self, value: Any) -> None:
        """The scheme of a quantized tensor, with its scales and zero points."""
        scheme = str(value.qscheme()).removeprefix("torch.")
        self._put(b"(")
        self.globally("torch", scheme)
        if scheme == "per_tensor_affine":
            self.any(value.q_scale(), T.FLOAT)
            self.number(value.q_zero_point())
        else:
            self.tensor(value.q_per_channel_scales())
            self.tensor(value.q_per_channel_zero_points())
            self.number(value.q_per_channel_axis())
        self._put(b"t")


def _held_type(value: Any) -> Any:
    found = type_of_object(value)
    if found is None:
        raise TypeError(f"a value of type {type(value).__name__} cannot be saved in a TorchScript archive")
    return found


def _attribute(value: Any, name: str, kind: T.ClassType) -> Any:
    if kind.is_module:
        for table, names in (("_parameters", kind.parameters), ("_buffers", kind.buffers)):
            if name in names:
                return value.__dict__[table].get(name)
        if name in value._modules:
            return value._modules[name]
    return value.__dict__.get(name)
