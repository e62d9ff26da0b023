"""`save`: an object and its tensors into one file."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from collections import OrderedDict
from typing import Any

import rushlight
from rushlight import qscheme as QScheme
from rushlight._interface.base import LazyModule, trace_marks
from rushlight._interface.devices import backend_of
from rushlight._interface.files import SAVING
from rushlight._interface.memory import TYPED_STORAGES
from rushlight.serialization import legacy, memory, rebuild
from rushlight.serialization.archive import ArchiveWriter
from rushlight.serialization.locations import check_module_version_greater_or_equal, location_tag
from rushlight.serialization.names import STORAGE_TYPES, torch_global
from rushlight.serialization.options import STATE
from rushlight.serialization.replacing import replacing
from rushlight.storage import TypedStorage, UntypedStorage
from rushlight.utils.hooks import warn_if_has_hooks
from rushlight.utils.serialization import config

nested: Any = LazyModule("rushlight.nested.tensors")

__all__ = ["check_dill", "pickled", "save"]

DEFAULT_PROTOCOL = 2


@trace_marks.changes_later_calls
def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write `obj` (tensors, modules, state dicts, containers of them) to `f`, a path or an object with `write`.

    Tensors that share storage share it again after loading. A file on disk is written beside its final place and moved
    there when it is complete and on the disk, so an interrupted save leaves the old file as it was. Raises
    `RuntimeError` if the directory does not exist, and `OSError` if the disk is full.

    `pickle_module` has another `Pickler`.  `_use_new_zipfile_serialization=False` writes the format that PyTorch had
    before 1.6.

    Example: `torch.save({"model": model.state_dict(), "epoch": 3}, "checkpoint.pt")`
    """
    check_dill(pickle_module)
    if STATE.skip_data and not _use_new_zipfile_serialization:
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")

    def write(out: Any, name: str) -> None:
        if _use_new_zipfile_serialization:
            _write(obj, out, name, pickle_module, pickle_protocol, not _disable_byteorder_record)
        else:
            legacy.write(out, obj, _pickler_class(pickle_module), pickle_module, pickle_protocol)

    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        with replacing(path) as out:
            write(out, os.path.splitext(os.path.basename(path))[0] or "archive")
        return
    if not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
    if not callable(f.write):
        raise TypeError(f"Buffer of {str(type(f)).strip('<>')} has no callable attribute 'write'")
    write(f, "archive")
    if hasattr(f, "flush"):
        f.flush()


def check_dill(pickle_module: Any) -> None:
    """ValueError for a `dill` that is too old to be a pickle module."""
    if getattr(pickle_module, "__name__", "") != "dill":
        return
    if not check_module_version_greater_or_equal(pickle_module, (0, 3, 1), False):
        raise ValueError(
            f"'torch' supports dill >= 0.3.1, but you have dill {pickle_module.__version__}. Please upgrade dill or switch to 'pickle'"
        )


def _write(obj: Any, out: Any, name: str, pickle_module: Any, protocol: int, with_order: bool) -> None:
    # Pickling first: an object that cannot be pickled must not leave half a file behind.
    buffer = io.BytesIO()
    pickler = _pickler_class(pickle_module)(buffer, protocol=protocol)
    pickler.dump(obj)
    archive = ArchiveWriter(out, name, config.save.storage_alignment, config.save.compute_crc32)
    archive.record("data.pkl", buffer.getbuffer())
    if with_order:
        archive.record("byteorder", sys.byteorder.encode())
    for key, storage in pickler.storages.items():
        if STATE.skip_data:
            archive.room(f"data/{key}", storage.nbytes())
        else:
            archive.record(f"data/{key}", memory.bytes_of(storage.cpu()))
    archive.record("version", b"3\n")
    if not with_order:  # PyTorch writes it last in this case
        archive.record("byteorder", sys.byteorder.encode())
    archive.record(".data/serialization_id", _identity(archive))
    archive.close()


def _identity(archive: ArchiveWriter) -> bytes:
    """Forty digits that tell two checkpoints apart: the names and the contents of the records."""
    digest = hashlib.sha256(repr(archive.digests).encode()).digest()
    return str(int.from_bytes(digest, "big"))[:40].rjust(40, "0").encode()


class _OurObjects:
    """Mixin of picklers that writes tensors as calls of PyTorch's functions.  It goes before a class of picklers."""

    # What stands for a type of storages; other modules' picklers cannot write a class under PyTorch's name.
    kinds: Any = STORAGE_TYPES

    def __init__(self, out: Any, protocol: int) -> None:
        super().__init__(out, protocol=protocol)  # type: ignore[call-arg]
        self.storages: dict[str, UntypedStorage] = {}
        self._keys: dict[tuple[int, int], str] = {}
        self._dtypes: dict[int, Any] = {}
        self._fakes: dict[int, tuple[Any, UntypedStorage]] = {}  # fake tensors that are no views, and their storages
        self._places: dict[int, str] = {}  # where those storages would be

    def dump(self, obj: Any) -> None:
        """Write the pickle of an object."""
        before, SAVING.reduction = SAVING.reduction, strided_reduction
        try:
            super().dump(obj)  # type: ignore[misc]
        finally:
            SAVING.reduction = before

    def persistent_id(self, obj: Any) -> Any:
        """Storages stay outside of the pickle, in records of their own."""
        if not isinstance(obj, (TypedStorage, UntypedStorage)):
            return None
        untyped = obj.untyped()
        dtype = obj.dtype if isinstance(obj, TypedStorage) else rushlight.uint8
        kind = self.kinds[obj.pickle_storage_type()] if isinstance(obj, TypedStorage) else UntypedStorage
        key = self.key_of(untyped, dtype)
        place = self._places.get(memory.identity(untyped)) or location_tag(untyped)
        return ("storage", kind, key, place, untyped.nbytes() // dtype.itemsize)

    def key_of(self, storage: UntypedStorage, dtype: Any) -> str:
        """The key of a storage's record."""
        identity = memory.identity(storage)
        if self._dtypes.setdefault(identity, dtype) is not dtype and storage.nbytes():
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        # Two arrays may begin at one place and end at different ones: each gets a record.
        key = self._keys.setdefault((identity, storage.nbytes()), str(len(self._keys)))
        # Held until the file is written: the memory must stay, and so must its address.
        self.storages.setdefault(key, storage)
        return key

    def reducer_override(self, obj: Any) -> Any:
        """How our own objects are written; everything else is pickled as usual."""
        if isinstance(obj, rushlight.Tensor):
            if STATE.materialize_fake_tensors and isinstance(obj, rushlight._subclasses.FakeTensor):
                return self._reduction_of_fake(obj)
            return reduction_of(obj)
        if isinstance(obj, rushlight.Size):
            return rushlight.Size, (tuple(obj),)
        if isinstance(obj, rushlight.device):
            return rushlight.device, (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, rushlight.layout):
            return rebuild.get_layout, (repr(obj),)
        inherited = getattr(super(), "reducer_override", None)
        return NotImplemented if inherited is None else inherited(obj)

    def _reduction_of_fake(self, fake: Any) -> Any:
        """How a fake tensor is written as one on its device, with the storage that the first of its views has on the
        device "meta".
        """
        if getattr(fake, "_is_param", False):
            return rebuild.rebuild_parameter, (fake.detach(), fake.requires_grad, OrderedDict())
        if fake.device.type == "meta":
            return reduction_of(fake.meta)
        root = fake
        while root._base is not None:
            root = root._base
        _, storage = self._fakes.setdefault(id(root), (root, memory.storage_of(root.meta)))
        device = fake.device
        place = device.type if backend_of(device).host_readable else str(device)  # as `location_tag`
        self._places[memory.identity(storage)] = place
        return _strided_reduction(fake, storage)


# The Python pickler, because the one in C insists on importing every name that it writes.
_PythonPickler: Any = pickle._Pickler


class _Pickler(_OurObjects, _PythonPickler):
    """Writes our objects under the names that PyTorch has for them."""

    kinds = TYPED_STORAGES

    def reducer_override(self, obj: Any) -> Any:
        """Dtypes are written as globals: a text means one of this name."""
        return str(obj) if isinstance(obj, (memory.DType, QScheme)) else super().reducer_override(obj)

    def save_global(self, obj: Any, name: Any = None) -> None:
        """Write a class, function or dtype by its name; ours under the name that PyTorch has for it."""
        found = torch_global(obj)
        if found is None:
            super().save_global(obj, name)
            return
        module, name = found
        self.write(pickle.GLOBAL + module.encode() + b"\n" + name.encode() + b"\n")
        self.memoize(obj)

    dispatch = dict(_PythonPickler.dispatch)
    dispatch[type(save)] = save_global


def pickled(obj: Any, protocol: int = DEFAULT_PROTOCOL) -> bytes:
    """The pickle of an object without tensors, which names our classes as PyTorch does."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=protocol).dump(obj)
    return buffer.getvalue()


def _pickler_class(pickle_module: Any) -> Any:
    """A pickler that knows our objects; one of another module writes them under our names."""
    if pickle_module is pickle:
        return _Pickler
    return type("Pickler", (_OurObjects, pickle_module.Pickler), {})


def reduction_of(tensor: Any) -> Any:
    """How a pickle takes a tensor apart, in PyTorch's way; NotImplemented for classes that have a way of their own."""
    warn_if_has_hooks(tensor)
    cls = type(tensor)
    if tensor.is_nested and not getattr(tensor, "_is_param", False):
        return _nested_reduction(tensor)
    if tensor.layout is not rushlight.strided or tensor.is_nested:
        return _sparse_reduction(tensor)
    if tensor.is_quantized:
        return _quantized_reduction(tensor)
    if cls is rushlight.nn.Parameter:
        state = dict(tensor.__dict__)
        args: tuple[Any, ...] = (tensor.data, tensor.requires_grad, OrderedDict())
        return (rebuild.rebuild_parameter_with_state, (*args, state)) if state else (rebuild.rebuild_parameter, args)
    if cls is not rushlight.Tensor and cls.__reduce_ex__ is not rushlight.Tensor.__reduce_ex__:
        return NotImplemented  # which comes back to `strided_reduction` where it asks Tensor's own
    return strided_reduction(tensor)


def strided_reduction(tensor: Any) -> Any:
    """How a pickle takes a strided tensor apart, whatever way of its own its class has."""
    cls = type(tensor)
    function, args = _tensor_reduction(tensor)
    state = tensor._state()
    if cls is rushlight.Tensor and not state:
        return function, args
    return rebuild.rebuild_from_type_v2, (function, cls, args, state)


def _quantized_reduction(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that makes a quantized tensor from its integers, and what it needs."""
    ints, held = tensor._ints, tensor._quantizer
    if tensor.dtype.itemsize != ints.dtype.itemsize or not memory.has_storage_type(tensor.dtype):
        raise NotImplementedError(
            f"rushlight saves no tensors of {tensor.dtype}: the file packs several integers into a byte"
        )
    scales = (
        (held.scheme, held.scale, held.zero_point)
        if held.axis is None
        else (held.scheme, held.scale, held.zero_point, held.axis)
    )
    place = (ints.storage_offset(), tuple(ints.shape), tuple(ints.stride()))
    return rebuild.rebuild_qtensor, (
        memory.typed(memory.storage_of(ints), tensor.dtype),
        *place,
        scales,
        False,
        OrderedDict(),
    )


def _sparse_reduction(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that makes a sparse tensor from its parts, and the parts."""
    if getattr(tensor, "_is_param", False):
        return rebuild.rebuild_parameter, (tensor.data, tensor.requires_grad, OrderedDict())
    size = rushlight.Size(tensor.shape)
    if tensor.is_sparse:
        data: tuple[Any, ...] = (tensor._indices(), tensor._values(), size, tensor.is_coalesced())
        return rebuild.rebuild_sparse_tensor, (tensor.layout, data)
    rows = tensor.layout.name in ("sparse_csr", "sparse_bsr")
    indices = (tensor.crow_indices(), tensor.col_indices()) if rows else (tensor.ccol_indices(), tensor.row_indices())
    return rebuild.rebuild_sparse_tensor, (tensor.layout, (*indices, tensor.detach().values(), size))


def _tensor_reduction(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that makes the tensor again, and its arguments."""
    dtype, size, stride = tensor.dtype, tuple(tensor.size()), tuple(tensor.stride())
    if rebuild.is_dispatched(type(tensor)) and tensor._storage is None:
        place = (int(tensor.storage_offset()), tensor.layout, tensor.device, tensor.requires_grad)
        return rebuild.rebuild_wrapper_subclass, (type(tensor), dtype, size, stride, *place)
    if tensor.is_meta:
        return rebuild.rebuild_meta_tensor_no_storage, (dtype, size, stride, tensor.requires_grad)
    return _strided_reduction(tensor, memory.storage_of(tensor))


def _strided_reduction(tensor: Any, storage: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that makes the tensor again of a storage, and its arguments."""
    dtype, size, stride = tensor.dtype, tuple(tensor.size()), tuple(tensor.stride())
    rest: tuple[Any, ...] = (int(tensor.storage_offset()), size, stride, tensor.requires_grad, OrderedDict())
    metadata = ({"conj": True},) if tensor.is_conj() else ({"neg": True},) if tensor.is_neg() else ()
    if not memory.has_storage_type(dtype):
        # Younger dtypes have no storage type of their own.
        return rebuild.rebuild_tensor_v3, (storage, *rest, dtype, *metadata)
    return rebuild.rebuild_tensor_v2, (memory.typed(storage, dtype), *rest, *metadata)


def _nested_reduction(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that makes a nested tensor of its parts, and the parts."""
    parts = nested.parts_of(tensor)
    if type(tensor) is not nested.StridedNested:
        held = dict(zip(("values", "offsets", "lengths", "_ragged_idx"), parts, strict=True))
        held.update(_metadata_cache={}, requires_grad=tensor.requires_grad)
        return rebuild.rebuild_from_type_v2, (rebuild.rebuild_njt, rebuild.JaggedType, (held,), {})
    buffer, sizes = parts
    layouts = [rushlight.empty(size, device="meta") for size in sizes]
    places = [sum(m.numel() for m in layouts[:k]) for k in range(len(layouts))]
    tables = [
        rushlight.tensor(table, dtype=rushlight.int64) for table in (sizes, [m.stride() for m in layouts], places)
    ]
    return rebuild.rebuild_nested_tensor, (buffer, *tables)
