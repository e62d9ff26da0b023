"""Tensors as the native language sees them: their slots, new ones, where their gradients go, and the user's place in the program."""

from __future__ import annotations

from rushlight._host.call_words_native import (
    Py_False,
    Py_True,
    PyBool_Type,
    PyObject_GetAttr,
    PySlice_Type,
    is_plain,
    sequence_items,
    sequence_size,
    small_int,
)
from rushlight._host.dispatch_native import PyBytes_FromStringAndSize, PyLong_FromLongLong, PyObject_Vectorcall
from rushlight._host.dispatch_words import (
    FAST,
    NEW_TUPLE,
    O_META,
    O_NODE,
    O_PTR,
    O_RG,
    O_SPEC,
    O_STORAGE,
    SIZE_TYPE,
    TENSOR_TYPE,
)
from rushlight._host.pool_native import (
    S_NBYTES,
    S_PTR,
    STATE,
    STORAGE_TYPE,
    Py_DecRef,
    Py_IncRef,
    Py_None,
    PyErr_Format,
    PyExc_ValueError,
    PyLong_AsLongLong,
    storage_new,
    storage_wrap,
)
from rushlight._host.stub_native import (
    PyBytes_AsString,
    PyErr_Clear,
    PyFloat_Type,
    PyLong_Type,
    PyTuple_New,
    PyTuple_SetItem,
)
from rushlight._native import call_ptr, extern, f32, f64, i64, native, ptr, select, stack, static, u8, u64

__all__ = [
    "alias", "edge_of", "in_inference", "kept", "may_overlap", "meta_of", "new_tensor", "number_at", "py_array_form", "py_coordinates", "py_data", "py_measure", "py_nested", "py_of_numbers", "py_new_meta", "py_over_array",
    "py_user_place", "replace_slot", "set_slot", "size_item", "slot", "user_place",
]  # fmt: skip

# words of FAST beside those of `dispatch_words`
O_EDGES, O_EXTRA, O_SEQ, O_INFO, O_SAVED, O_VERSIONS, O_WHERE = range(40, 47)
META_TYPE, COUNTER, EDGE_OF, ADD_VIEW, FILENAME, PREFIX, EMPTY_TEXT, DATA_OF = range(48, 56)
TUPLE_ITEM = 62  # a tuple's own mp_subscript
O_OUTPUT_NR, O_ACCUMULATOR, O_BASE, O_VIEWS, O_CREATION, O_INFERENCE = range(56, 62)
R_SPEC, R_WORD, R_PLAN, R_MAP = range(
    92, 96
)  # of a backward spec: for which gradient and state its last plan was, that plan, its results' order
META_SLOTS, META_TABLE = 64, 65  # how many slots an AutogradMeta has; then for each its offset and its first value
COORDINATES = 32  # dims of a mask, at most
CODES = static("rl_codes", 16 * 256)  # of code objects met: itself, and whether it is the package's own

PyType_GenericAlloc = extern("PyType_GenericAlloc", "ptr(ptr, i64)")
PyLong_FromUnsignedLongLong = extern("PyLong_FromUnsignedLongLong", "ptr(u64)")
PyEval_GetFrame = extern("PyEval_GetFrame", "ptr()")
PyFrame_GetBack = extern("PyFrame_GetBack", "ptr(ptr)")
PyFrame_GetCode = extern("PyFrame_GetCode", "ptr(ptr)")
PyFrame_GetLasti = extern("PyFrame_GetLasti", "i32(ptr)")
PyUnicode_Tailmatch = extern("PyUnicode_Tailmatch", "i64(ptr, ptr, i64, i64, i32)")
PyList_New = extern("PyList_New", "ptr(i64)")
PyList_SetItem = extern("PyList_SetItem", "i32(ptr, i64, ptr)")
PyFloat_FromDouble = extern("PyFloat_FromDouble", "ptr(f64)")


# ***** slots of Python objects *****


@native("ptr(ptr, i64)", inline=True)
def slot(obj, which):
    """The object in a slot (borrowed)."""
    return obj.ptr[FAST.i64[which] >> 3]


@native("void(ptr, i64, ptr)", inline=True)
def set_slot(obj, which, value):
    """Fill a slot that is empty; takes over the reference."""
    obj.ptr[FAST.i64[which] >> 3] = value


@native("void(ptr, i64, ptr)", inline=True)
def replace_slot(obj, which, value):
    """Another object in a slot; takes over the reference."""
    before = obj.ptr[FAST.i64[which] >> 3]
    obj.ptr[FAST.i64[which] >> 3] = value
    if before is not None:
        Py_DecRef(before)


@native("ptr(ptr)", inline=True)
def kept(obj):
    """The object with one reference more."""
    Py_IncRef(obj)
    return obj


# ***** the user's place *****


@native("i64(ptr)")
def is_ours(code):
    """Whether a code object is the package's own."""
    at = CODES + 16 * ((i64(code) >> 5) & 255)
    if at.ptr[0] == code:
        return at.i64[1]
    name = PyObject_GetAttr(code, FAST.ptr[FILENAME])
    if name is None:
        PyErr_Clear()
        return 0
    ours = PyUnicode_Tailmatch(name, FAST.ptr[PREFIX], 0, (1 << 62), -1)
    Py_DecRef(name)
    if ours < 0:
        PyErr_Clear()
        ours = 0
    before = at.ptr[0]
    at.ptr[0] = kept(code)  # kept, so that the address stays this code's
    at.i64[1] = ours
    if before is not None:
        Py_DecRef(before)
    return ours


@native("ptr()")
def user_place():
    """(code, instruction) of the innermost frame outside the package; None without a frame."""
    frame = PyEval_GetFrame()
    if frame is None:
        return kept(Py_None)
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
    at = PyLong_FromLongLong(i64(PyFrame_GetLasti(frame)))
    Py_DecRef(frame)
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
    """A tensor over a storage outside of any graph; takes over the references to the storage and to the address (an int)."""
    if address is None:
        Py_DecRef(storage)
        return None
    out = PyType_GenericAlloc(FAST.ptr[TENSOR_TYPE], 0)
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
    """The same memory seen by another tensor."""
    return new_tensor(kept(slot(x, O_STORAGE)), slot(x, O_SPEC), kept(slot(x, O_PTR)))


@native("ptr(ptr, ptr, i64)")
def py_data(unused, args, count):
    """data(x) -> the same memory seen by another tensor, with a version counter of its own, outside of any graph"""
    x = args.ptr[0]
    storage: ptr = None
    if is_plain(x) != 0:
        storage = slot(x, O_STORAGE)
    if storage is None or storage.ptr[1] != STATE.ptr[STORAGE_TYPE]:
        return PyObject_Vectorcall(FAST.ptr[DATA_OF], args, u64(1), None)
    shared = storage_wrap(storage.ptr[S_PTR], storage.i64[S_NBYTES], kept(storage), 0)
    if shared is None:
        Py_DecRef(storage)
        return None
    return new_tensor(shared, slot(x, O_SPEC), kept(slot(x, O_PTR)))


@native("ptr()")
def new_meta():
    """An `AutogradMeta` with its defaults."""
    out = PyType_GenericAlloc(FAST.ptr[META_TYPE], 0)
    if out is not None:
        for k in range(FAST.i64[META_SLOTS]):
            value = FAST.ptr[META_TABLE + 2 * k + 1]
            Py_IncRef(value)
            out.ptr[FAST.i64[META_TABLE + 2 * k] >> 3] = value
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
    return PyObject_Vectorcall(FAST.ptr[EDGE_OF], arguments, u64(1), None)


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


# ***** elements as Python's numbers *****


@native("ptr(ptr, i64)")
def number_at(p, code):
    """The element at an address as a Python number; `code` is one of `NUMBER_CODES` in `_engine.dispatch.native_plans`."""
    if code == 0:
        return PyFloat_FromDouble(f64(p.f32[0]))
    if code == 1:
        return PyFloat_FromDouble(p.f64[0])
    if code == 2:
        return PyLong_FromLongLong(p.i64[0])
    if code == 3:
        return PyLong_FromLongLong(i64(p.i32[0]))
    if code == 4:
        return PyLong_FromLongLong(i64(p.i16[0]))
    if code == 5:
        return PyLong_FromLongLong(i64(p.i8[0]))
    if code == 6:
        return PyLong_FromLongLong(i64(p.u8[0]))
    if p.u8[0] != 0:
        return kept(Py_True)
    return kept(Py_False)


@native("ptr(ptr, ptr, i64)")
def nested(p, layout, dim):
    """Elements as nested lists.  `layout` holds how many dims there are, the code of the numbers, and for each dim its size and its step in bytes."""
    n, step = layout.i64[2 + 2 * dim], layout.i64[3 + 2 * dim]
    out = PyList_New(n)
    for k in range(n):
        if out is not None:
            item: ptr = None
            if dim + 1 == layout.i64[0]:
                item = number_at(p + k * step, layout.i64[1])
            else:
                item = nested(p + k * step, layout, dim + 1)
            if item is None:
                Py_DecRef(out)
                return None
            PyList_SetItem(out, k, item)
    return out


@native("ptr(ptr, ptr, i64)")
def py_nested(unused, args, count):
    """nested(address, address of the layout) -> nested lists of Python numbers"""
    return nested(ptr(PyLong_AsLongLong(args.ptr[0])), ptr(PyLong_AsLongLong(args.ptr[1])), 0)


@native("ptr(ptr, ptr)")
def size_item(self, key):
    """mp_subscript of torch.Size: as of a tuple, but that a slice is a Size again."""
    if key.ptr[1] == PyLong_Type:
        k, n = small_int(key), self.i64[2]
        if k < 0:
            k += n
        if k >= 0 and k < n:
            return kept(sequence_items(self).ptr[k])
    out = call_ptr("ptr(ptr, ptr)", FAST.ptr[TUPLE_ITEM], self, key)
    if out is not None and key.ptr[1] == PySlice_Type:
        arguments = stack(16)
        arguments.ptr[0] = FAST.ptr[SIZE_TYPE]
        arguments.ptr[1] = out
        sized = PyObject_Vectorcall(FAST.ptr[NEW_TUPLE], arguments, u64(2), None)
        Py_DecRef(out)
        return sized
    return out


@native("ptr(ptr, ptr, i64)")
def py_coordinates(unused, args, count):
    """coordinates(address, sizes) -> (count, storage) of the bytes that are set in a dense mask: all first coordinates, all second ones, ..."""
    mask = ptr(PyLong_AsLongLong(args.ptr[0]))
    sizes, ndim = sequence_items(args.ptr[1]), sequence_size(args.ptr[1])
    n: i64 = 1
    for d in range(ndim):
        n = n * PyLong_AsLongLong(sizes.ptr[d])
    found: i64 = 0
    for k in range(n):
        found += i64(mask.u8[k] != 0)
    storage = storage_new(8 * ndim * found)
    if storage is None:
        return None
    out = PyTuple_New(2)
    if out is None:
        Py_DecRef(storage)
        return None
    at = storage.ptr[S_PTR]
    place = stack(8 * COORDINATES)
    for d in range(ndim):
        place.i64[d] = 0
    inner = PyLong_AsLongLong(sizes.ptr[ndim - 1])
    done: i64 = 0
    k: i64 = 0
    while done < found:  # a row after the other
        for j in range(inner):
            if mask.u8[k + j] != 0:
                place.i64[ndim - 1] = j
                for d in range(ndim):
                    at.i64[d * found + done] = place.i64[d]
                done += 1
        k += inner
        d: i64 = ndim - 2
        while d >= 0:
            place.i64[d] = place.i64[d] + 1
            if place.i64[d] < PyLong_AsLongLong(sizes.ptr[d]):
                break
            place.i64[d] = 0
            d -= 1
    PyTuple_SetItem(out, 0, PyLong_FromLongLong(found))
    PyTuple_SetItem(out, 1, storage)
    return out


# ***** Python's numbers as elements *****

FLOATS, INTS, BOOLS = 0, 1, 2  # what a sequence holds
DEEPEST = 8  # dims that are read here


@native("i64(ptr)", inline=True)
def number_kind(obj):
    """FLOATS, INTS or BOOLS; -1 for what is none of them, or does not fit 64 bits."""
    kind = obj.ptr[1]
    if kind == PyFloat_Type:
        return FLOATS
    if kind == PyBool_Type:
        return BOOLS
    if kind == PyLong_Type and small_int(obj) != -1 << 63:
        return INTS
    return -1


@native("i64(ptr, ptr, i64, i64, i64)")
def has_dims(obj, dims, n, dim, kind):
    """Whether nested sequences have these sizes, from one dim on, and hold numbers of one kind."""
    if dim == n:
        return i64(number_kind(obj) == kind)
    size = sequence_size(obj)
    if size != dims.i64[dim]:
        return 0
    items = sequence_items(obj)
    for k in range(size):
        if has_dims(items.ptr[k], dims, n, dim + 1, kind) == 0:
            return 0
    return 1


@native("ptr(ptr, ptr, i64)")
def py_measure(unused, args, count):
    """measure(data) -> (kind of the numbers, *sizes) of a number or of nested lists and tuples of numbers of one kind; None for all else"""
    data = args.ptr[0]
    dims = stack(8 * DEEPEST)
    n: i64 = 0
    first = data
    size = sequence_size(first)
    while size > 0 and n < DEEPEST:
        dims.i64[n] = size
        n += 1
        first = sequence_items(first).ptr[0]
        size = sequence_size(first)
    kind: i64 = FLOATS
    if size == 0 and n < DEEPEST:
        dims.i64[n] = 0
        n += 1
    else:
        kind = number_kind(first)
    if kind < 0 or has_dims(data, dims, n, 0, kind) == 0:
        return kept(Py_None)
    out = PyTuple_New(n + 1)
    if out is not None:
        PyTuple_SetItem(out, 0, PyLong_FromLongLong(kind))
        for k in range(n):
            PyTuple_SetItem(out, k + 1, PyLong_FromLongLong(dims.i64[k]))
    return out


@native("i64(ptr, ptr, i64)")
def put_numbers(obj, to, deep):
    """Write the numbers in nested sequences.  `to`: where, how many there is room for, their kind, the code of the elements.  0 where they differ."""
    size = sequence_size(obj)
    if size >= 0:
        if deep > DEEPEST:
            return 0
        items = sequence_items(obj)
        for k in range(size):
            if put_numbers(items.ptr[k], to, deep + 1) == 0:
                return 0
        return 1
    kind, code, p = to.i64[2], to.i64[3], to.ptr[0]
    if to.i64[1] == 0 or number_kind(obj) != kind:
        return 0
    to.i64[1] -= 1
    if kind == BOOLS:
        p.u8[0] = select(obj == Py_True, u8(1), u8(0))
        to.ptr[0] = p + 1
    elif code == 2:
        p.i64[0] = small_int(obj)
        to.ptr[0] = p + 8
    else:
        value = obj.f64[2] if kind == FLOATS else f64(small_int(obj))
        if code == 0:
            p.f32[0] = f32(value)
            to.ptr[0] = p + 4
        else:
            p.f64[0] = value
            to.ptr[0] = p + 8
    return 1


@native("ptr(ptr, ptr, i64)")
def py_of_numbers(unused, args, count):
    """of_numbers(data, spec, nbytes, numel, kind, code) -> a tensor of what was measured; `code` is one of `NUMBER_CODES`"""
    storage = storage_new(PyLong_AsLongLong(args.ptr[2]))
    if storage is None:
        return None
    to = stack(32)
    to.ptr[0] = storage.ptr[S_PTR]
    for k in range(3):
        to.i64[1 + k] = PyLong_AsLongLong(args.ptr[3 + k])
    if put_numbers(args.ptr[0], to, 0) == 0 or to.i64[1] != 0:
        Py_DecRef(storage)
        return PyErr_Format(PyExc_ValueError.ptr[0], "the sequence changed while it was read")
    return new_tensor(storage, args.ptr[1], PyLong_FromUnsignedLongLong(storage.u64[S_PTR]))


@native("ptr(ptr, ptr, i64)")
def py_array_form(unused, args, count):
    """array_form(array) -> bytes: which dtype a NumPy array has (its address), its flags, its shape and its strides

    The words of an array are those of NumPy's headers: after the address of its elements the number of dims, sizes, strides, base, dtype, flags.
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

    Where the elements lie is the third word of an array, as NumPy's headers have it for all who are compiled against them.
    """
    array = args.ptr[0]
    nbytes = PyLong_AsLongLong(args.ptr[2])
    storage = storage_wrap(array.ptr[2], nbytes, kept(array), 0)
    if storage is None:
        Py_DecRef(array)
        return None
    return new_tensor(storage, args.ptr[1], PyLong_FromUnsignedLongLong(array.u64[2]))
