"""Tensors in the native language: slots, construction, gradient edges, and the user's line in the program."""

from __future__ import annotations

from rushlight._host.call_words_native import is_plain
from rushlight._host.dispatch_words import (
    HOST,
    NEW_TUPLE,
    O_META,
    O_NODE,
    O_PTR,
    O_RG,
    O_SPEC,
    O_STORAGE,
    SIZE_TYPE,
    STORAGE_TYPE,
    TENSOR_TYPE,
)
from rushlight._host.python_native import (
    Py_DecRef,
    Py_False,
    Py_IncRef,
    Py_None,
    Py_True,
    PyBytes_AsString,
    PyBytes_FromStringAndSize,
    PyErr_Clear,
    PyEval_GetFrame,
    PyFrame_GetBack,
    PyFrame_GetCode,
    PyFrame_GetLasti,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyLong_FromUnsignedLongLong,
    PyLong_Type,
    PyObject_GetAttr,
    PyObject_Vectorcall,
    PySlice_Type,
    PyTuple_New,
    PyTuple_SetItem,
    PyType_GenericAlloc,
    PyUnicode_Tailmatch,
    kept,
    sequence_items,
    small_int,
)
from rushlight._host.storage_native import S_NBYTES, S_PTR, storage_wrap
from rushlight._native import call_ptr, i64, native, ptr, stack, static, u64

__all__ = [
    "alias",
    "edge_of",
    "in_inference",
    "may_overlap",
    "meta_of",
    "new_tensor",
    "py_array_form",
    "py_data",
    "py_new_meta",
    "py_over_array",
    "py_user_place",
    "replace_slot",
    "set_slot",
    "size_item",
    "slot",
    "user_frame_code",
    "user_place",
]

# words of HOST beside those of `dispatch_words`
O_EDGES, O_EXTRA, O_SEQ, O_INFO, O_SAVED, O_VERSIONS, O_WHERE = range(40, 47)
META_TYPE, COUNTER, EDGE_OF, ADD_VIEW, FILENAME, PREFIX, EMPTY_TEXT, DATA_OF = range(48, 56)
TUPLE_ITEM = 62  # a tuple's own mp_subscript
O_OUTPUT_NR, O_ACCUMULATOR, O_BASE, O_VIEWS, O_CREATION, O_INFERENCE = range(56, 62)
# Of a backward spec: for which gradient and state its last plan was, that plan, its results' order
R_SPEC, R_WORD, R_PLAN, R_MAP = range(92, 96)
META_SLOTS, META_TABLE = 64, 65  # how many slots an AutogradMeta has; then for each its offset and its first value
CODES = static("rl_codes", 16 * 256)  # a cache: code object, and whether it is the package's


# ***** slots of Python objects *****


@native("ptr(ptr, i64)", inline=True)
def slot(obj, which):
    """The object in a slot (borrowed)."""
    return obj.ptr[HOST.i64[which] >> 3]


@native("void(ptr, i64, ptr)", inline=True)
def set_slot(obj, which, value):
    """Fill a slot that is empty; takes over the reference."""
    obj.ptr[HOST.i64[which] >> 3] = value


@native("void(ptr, i64, ptr)", inline=True)
def replace_slot(obj, which, value):
    """Another object in a slot; takes over the reference."""
    before = obj.ptr[HOST.i64[which] >> 3]
    obj.ptr[HOST.i64[which] >> 3] = value
    if before is not None:
        Py_DecRef(before)


# ***** the user's place *****


@native("i64(ptr)")
def is_ours(code):
    """Whether a code object is the package's."""
    at = CODES + 16 * ((i64(code) >> 5) & 255)
    if at.ptr[0] == code:
        return at.i64[1]
    name = PyObject_GetAttr(code, HOST.ptr[FILENAME])
    if name is None:
        PyErr_Clear()
        return 0
    ours = PyUnicode_Tailmatch(name, HOST.ptr[PREFIX], 0, (1 << 62), -1)
    Py_DecRef(name)
    if ours < 0:
        PyErr_Clear()
        ours = 0
    before = at.ptr[0]
    at.ptr[0] = kept(code)  # held, so that the address stays this code's
    at.i64[1] = ours
    if before is not None:
        Py_DecRef(before)
    return ours


@native("ptr(ptr)")
def user_frame_code(at):
    """The code object (a new reference) of the innermost frame outside the package, with its instruction in `at`; null
    without a frame.
    """
    frame = PyEval_GetFrame()
    if frame is None:
        return None
    Py_IncRef(frame)
    code = PyFrame_GetCode(frame)
    while is_ours(code) != 0:
        back = PyFrame_GetBack(frame)
        if back is None:
            break
        Py_DecRef(frame)
        Py_DecRef(code)
        frame = back
        code = PyFrame_GetCode(frame)
    at.i64[0] = i64(PyFrame_GetLasti(frame))
    Py_DecRef(frame)
    return code


@native("ptr()")
def user_place():
    """(code, instruction) of the innermost frame outside the package; None without a frame."""
    found = stack(8)
    code = user_frame_code(found)
    if code is None:
        return kept(Py_None)
    at = PyLong_FromLongLong(found.i64[0])
    out = PyTuple_New(2)
    if out is None or at is None:
        PyErr_Clear()
        return kept(Py_None)
    PyTuple_SetItem(out, 0, code)
    PyTuple_SetItem(out, 1, at)
    return out


@native("ptr(ptr, ptr, i64)")
def py_user_place(unused, args, count):
    """user_place() -> (code, instruction), as `rushlight._base.errors.user_code` gives it"""
    return user_place()


# ***** tensors *****


@native("ptr(ptr, ptr, ptr)")
def new_tensor(storage, spec, address):
    """A tensor over a storage outside of any graph; takes over the references to the storage and to the address (an
    int).
    """
    if address is None:
        Py_DecRef(storage)
        return None
    out = PyType_GenericAlloc(HOST.ptr[TENSOR_TYPE], 0)
    if out is None:
        Py_DecRef(storage)
        Py_DecRef(address)
        return None
    Py_IncRef(spec)
    set_slot(out, O_STORAGE, storage)
    set_slot(out, O_SPEC, spec)
    set_slot(out, O_PTR, address)
    set_slot(out, O_RG, kept(Py_False))
    set_slot(out, O_NODE, kept(Py_None))
    set_slot(out, O_META, kept(Py_None))
    return out


@native("ptr(ptr)")
def alias(x):
    """Another tensor over the same memory."""
    return new_tensor(kept(slot(x, O_STORAGE)), slot(x, O_SPEC), kept(slot(x, O_PTR)))


@native("ptr(ptr, ptr, i64)")
def py_data(unused, args, count):
    """data(x) -> another tensor over the same memory, with a version counter of its own, outside of any graph"""
    x = args.ptr[0]
    storage: ptr = None
    if is_plain(x) != 0:
        storage = slot(x, O_STORAGE)
    if storage is None or storage.ptr[1] != HOST.ptr[STORAGE_TYPE]:
        return PyObject_Vectorcall(HOST.ptr[DATA_OF], args, u64(1), None)
    shared = storage_wrap(storage.ptr[S_PTR], storage.i64[S_NBYTES], kept(storage), None)
    if shared is None:
        Py_DecRef(storage)
        return None
    return new_tensor(shared, slot(x, O_SPEC), kept(slot(x, O_PTR)))


@native("ptr()")
def new_meta():
    """An `AutogradMeta` with its defaults."""
    out = PyType_GenericAlloc(HOST.ptr[META_TYPE], 0)
    if out is not None:
        for k in range(HOST.i64[META_SLOTS]):
            value = HOST.ptr[META_TABLE + 2 * k + 1]
            Py_IncRef(value)
            out.ptr[HOST.i64[META_TABLE + 2 * k] >> 3] = value
    return out


@native("ptr(ptr, ptr, i64)")
def py_new_meta(unused, args, count):
    """new_meta() -> an `AutogradMeta` with its defaults"""
    return new_meta()


@native("ptr(ptr)")
def meta_of(x):
    """The tensor's `AutogradMeta` (borrowed), made when first needed."""
    meta = slot(x, O_META)
    if meta == Py_None:
        meta = new_meta()
        if meta is not None:
            replace_slot(x, O_META, meta)
    return meta


@native("ptr(ptr)")
def edge_of(x):
    """Where the gradient of `x` goes: None, a node, or a node and a number."""
    node, meta = slot(x, O_NODE), slot(x, O_META)
    if node != Py_None:
        if meta == Py_None or PyLong_AsLongLong(slot(meta, O_OUTPUT_NR)) == 0:
            return kept(node)
    elif slot(x, O_RG) == Py_False:
        return kept(Py_None)
    elif meta != Py_None and slot(meta, O_ACCUMULATOR) != Py_None:
        return kept(slot(meta, O_ACCUMULATOR))
    arguments = stack(8)
    arguments.ptr[0] = x
    return PyObject_Vectorcall(HOST.ptr[EDGE_OF], arguments, u64(1), None)


@native("i64(ptr)", inline=True)
def in_inference(x):
    """Whether a tensor was made in inference mode."""
    meta = slot(x, O_META)
    return i64(meta != Py_None and slot(meta, O_INFERENCE) == Py_True)


@native("i64(ptr, ptr)", inline=True)
def may_overlap(a, b):
    """Whether two storages share memory."""
    if a == Py_None:
        return 1
    return i64(a.i64[S_PTR] < b.i64[S_PTR] + b.i64[S_NBYTES] and b.i64[S_PTR] < a.i64[S_PTR] + a.i64[S_NBYTES])


# ***** sizes *****


@native("ptr(ptr, ptr)")
def size_item(self, key):
    """mp_subscript of torch.Size: as of a tuple, but that a slice is a Size again."""
    if key.ptr[1] == PyLong_Type:
        k, n = small_int(key), self.i64[2]
        if k < 0:
            k += n
        if k >= 0 and k < n:
            return kept(sequence_items(self).ptr[k])
    out = call_ptr("ptr(ptr, ptr)", HOST.ptr[TUPLE_ITEM], self, key)
    if out is not None and key.ptr[1] == PySlice_Type:
        arguments = stack(16)
        arguments.ptr[0] = HOST.ptr[SIZE_TYPE]
        arguments.ptr[1] = out
        sized = PyObject_Vectorcall(HOST.ptr[NEW_TUPLE], arguments, u64(2), None)
        Py_DecRef(out)
        return sized
    return out


# ***** arrays *****


@native("ptr(ptr, ptr, i64)")
def py_array_form(unused, args, count):
    """array_form(array) -> bytes: which dtype a NumPy array has (its address), its flags, its shape and its strides

    The words of an array are those of NumPy's headers: after the address of its elements the number of dims, sizes,
    strides, base, dtype, flags.
    """
    array = args.ptr[0]
    ndim = i64(array.i32[6])
    out = PyBytes_FromStringAndSize(None, 8 * (2 + 2 * ndim))
    if out is None:
        return None
    words = PyBytes_AsString(out)
    words.ptr[0] = array.ptr[7]
    words.i64[1] = i64(array.i32[16])
    for d in range(ndim):
        words.i64[2 + d] = array.ptr[4].i64[d]
        words.i64[2 + ndim + d] = array.ptr[5].i64[d]
    return out


@native("ptr(ptr, ptr, i64)")
def py_over_array(unused, args, count):
    """over_array(array, spec, nbytes) -> tensor over the memory of a NumPy array, which it keeps alive

    Where the elements lie is the third word of an array, as NumPy's headers have it for all who are compiled against
    them.
    """
    array = args.ptr[0]
    nbytes = PyLong_AsLongLong(args.ptr[2])
    storage = storage_wrap(array.ptr[2], nbytes, kept(array), None)
    if storage is None:
        Py_DecRef(array)
        return None
    return new_tensor(storage, args.ptr[1], PyLong_FromUnsignedLongLong(array.u64[2]))
