"""The call key, in the native language: specs of tensors, types of numbers, values of everything else.

No Python code runs while the words are written, so no table changes during a lookup.
"""

from __future__ import annotations

from rushlight._host.dispatch_words import (
    D_COUNT,
    D_DEFAULTS,
    D_KIND_BYTES,
    D_NAMES,
    DEEPEST,
    DEFAULT,
    DICT_NAME,
    DYNAMIC,
    EITHER,
    FLOAT,
    HOST,
    INT,
    ITEMS,
    LIST,
    NAME,
    NUMBER_BOOL,
    NUMBER_FLOAT,
    NUMBER_INT,
    O_RG,
    O_SPEC,
    PLAIN,
    PLAIN_COUNT,
    SETTINGS,
    SIZE_TYPE,
    SLICE,
    SPEC,
    STATE_OBJECT,
    TENSOR_TYPE,
    TENSORS,
    THREAD,
    THREAD_DICT,
    TUPLE,
    WORD_NAME,
)
from rushlight._host.python_native import (
    Py_DecRef,
    Py_Ellipsis,
    Py_None,
    Py_True,
    PyBool_Type,
    PyDict_GetItemWithError,
    PyErr_Clear,
    PyFloat_Type,
    PyList_Type,
    PyLong_Type,
    PyObject_GetAttr,
    PySlice_Type,
    PyThreadState_Get,
    PyThreadState_GetID,
    PyTuple_Type,
    PyUnicode_Type,
    sequence_items,
    small_int,
)
from rushlight._native import i64, native

__all__ = ["call_words", "none_can_override", "is_plain", "sequence_words", "sequence_size", "state_word"]


# ***** small things *****


@native("i64(ptr)", inline=True)
def is_plain(obj):
    """Whether an object is a tensor of a class that overrides nothing."""
    kind = obj.ptr[1]
    if kind == HOST.ptr[TENSOR_TYPE]:
        return 1
    for k in range(HOST.i64[PLAIN_COUNT]):
        if kind == HOST.ptr[PLAIN + k]:
            return 1
    return 0


@native("i64(ptr)")
def cannot_override(obj):
    """Whether an object cannot override a call: a plain tensor, number, text or setting."""
    kind = obj.ptr[1]
    if (
        kind == HOST.ptr[TENSOR_TYPE]
        or kind == PyLong_Type
        or kind == PyFloat_Type
        or kind == PyBool_Type
        or obj == Py_None
    ):
        return 1
    if kind == PyUnicode_Type:
        return 1
    for k in range(4):
        if kind == HOST.ptr[SETTINGS + k]:
            return 1
    return is_plain(obj)


@native("i64(ptr, i64)")
def none_can_override(args, count):
    """Whether no argument, nor an item of a sequence among them, is of a class that may override the call."""
    for k in range(count):
        obj = args.ptr[k]
        if cannot_override(obj) == 0:
            size = sequence_size(obj)
            if size < 0:
                return 0
            for i in range(size):
                if cannot_override(sequence_items(obj).ptr[i]) == 0:
                    return 0
    return 1


@native("ptr()")
def thread_state():
    """The dict that holds this thread's state word (borrowed)."""
    word = PyThreadState_GetID(PyThreadState_Get())
    if word != HOST.u64[THREAD]:
        found = PyObject_GetAttr(HOST.ptr[STATE_OBJECT], HOST.ptr[DICT_NAME])
        if found is None:
            return None
        before = HOST.ptr[THREAD_DICT]
        HOST.ptr[THREAD_DICT] = found  # held: while the numbers match it is this thread's
        HOST.u64[THREAD] = word
        if before is not None:
            Py_DecRef(before)
    return HOST.ptr[THREAD_DICT]


@native("i64()", inline=True)
def state_word():
    """The thread's state word; -1 << 63 where it cannot be read."""
    held = thread_state()
    if held is None:
        PyErr_Clear()
        return -1 << 63
    word = PyDict_GetItemWithError(held, HOST.ptr[WORD_NAME])
    if word is None or word.ptr[1] != PyLong_Type:
        PyErr_Clear()
        return -1 << 63
    return small_int(word)


# ***** call keys *****


@native("i64(ptr)", inline=True)
def sequence_size(obj):
    """The length of a tuple (or torch.Size) or a list; -1 for anything else."""
    kind = obj.ptr[1]
    if kind == PyTuple_Type or kind == PyList_Type or kind == HOST.ptr[SIZE_TYPE]:
        return obj.i64[2]
    return -1


@native("i64(ptr, ptr, i64, i64, i64)")
def static_words(obj, out, n, room, deep):
    """Write the value of a static argument.  Returns the number of words so far, -1 for a value that has no words."""
    if n + 4 > room or deep > DEEPEST:
        return -1
    kind = obj.ptr[1]
    if kind == PyLong_Type:
        value = small_int(obj)
        if value == -1 << 63:
            return -1
        out.i64[n] = INT
        out.i64[n + 1] = value
        return n + 2
    if obj == Py_None or kind == PyUnicode_Type or kind == PyBool_Type or obj == Py_Ellipsis:
        out.ptr[n] = obj
        return n + 1
    if kind == PyFloat_Type:
        out.i64[n] = FLOAT
        out.i64[n + 1] = obj.i64[2]
        return n + 2
    for k in range(4):
        if kind == HOST.ptr[SETTINGS + k]:
            out.ptr[n] = obj
            return n + 1
    if kind == PySlice_Type:
        out.i64[n] = SLICE
        n = static_words(obj.ptr[2], out, n + 1, room, deep + 1)
        if n >= 0:
            n = static_words(obj.ptr[3], out, n, room, deep + 1)
        if n >= 0:
            n = static_words(obj.ptr[4], out, n, room, deep + 1)
        return n
    count = sequence_size(obj)
    if count < 0:
        return -1
    items = sequence_items(obj)
    out.i64[n] = ITEMS if kind == PyList_Type else TUPLE
    out.i64[n + 1] = count
    n += 2
    for k in range(count):
        if n >= 0:
            n = static_words(items.ptr[k], out, n, room, deep + 1)
    return n


@native("i64(ptr, ptr, i64)", inline=True)
def tensor_word(obj, out, n):
    """Write a tensor: its spec, and whether it requires a gradient."""
    spec, wants = obj.i64[HOST.i64[O_SPEC] >> 3], obj.ptr[HOST.i64[O_RG] >> 3]
    if spec == 0 or wants is None:
        return -1
    out.i64[n] = spec | SPEC | i64(wants == Py_True)
    return n + 1


@native("i64(ptr, ptr, i64, i64)")
def list_words(obj, out, n, room):
    """Write the specs of a list of tensors."""
    count = sequence_size(obj)
    if count < 0 or n + count + 4 > room:
        return -1
    items = sequence_items(obj)
    out.i64[n] = TENSORS
    out.i64[n + 1] = count
    n += 2
    for k in range(count):
        if n >= 0:
            n = tensor_word(items.ptr[k], out, n) if is_plain(items.ptr[k]) != 0 else -1
    return n


@native("i64(ptr, ptr, ptr, i64, i64)")
def dynamic_words(obj, default, out, n, room):
    """Write a dynamic argument: the spec of a tensor, the specs of a list, the type of a number.  A default number is
    part of the key.
    """
    if n + 4 > room:
        return -1
    if is_plain(obj) != 0:
        return tensor_word(obj, out, n)
    kind = obj.ptr[1]
    same = kind == default.ptr[1]
    if kind == PyLong_Type:
        value = small_int(obj)
        if value == -1 << 63:
            return -1
        out.i64[n] = NUMBER_INT
        if same and value == small_int(default):
            out.i64[n] = DEFAULT
        return n + 1
    if kind == PyFloat_Type:
        out.i64[n] = NUMBER_FLOAT
        if same and obj.f64[2] == default.f64[2]:
            out.i64[n] = DEFAULT
        return n + 1
    if kind == PyBool_Type:
        out.i64[n] = DEFAULT if obj == default else NUMBER_BOOL
        return n + 1
    if obj == Py_None:
        out.ptr[n] = obj
        return n + 1
    return list_words(obj, out, n, room)


@native("i64(ptr, ptr, i64, i64)")
def either_words(obj, out, n, room):
    """Write a tensor by its spec and anything else by its value, in a sequence item by item."""
    if n + 4 > room:
        return -1
    if is_plain(obj) != 0:
        return tensor_word(obj, out, n)
    count = sequence_size(obj)
    if count < 0:
        return static_words(obj, out, n, room, 0)
    items = sequence_items(obj)
    out.i64[n] = ITEMS if obj.ptr[1] == PyList_Type else TUPLE
    out.i64[n + 1] = count
    n += 2
    for k in range(count):
        if n >= 0:
            if n + 4 <= room and is_plain(items.ptr[k]) != 0:
                n = tensor_word(items.ptr[k], out, n)
            else:
                n = static_words(items.ptr[k], out, n, room, 1)
    return n


@native("i64(ptr, i64, ptr, ptr, i64, i64)", inline=True)
def argument_words(self, place, obj, out, n, room):
    """Write one argument, as its declared kind says."""
    kind = self.ptr[D_KIND_BYTES].u8[place]
    if kind == DYNAMIC:
        return dynamic_words(obj, sequence_items(self.ptr[D_DEFAULTS]).ptr[place], out, n, room)
    if kind == LIST:
        return list_words(obj, out, n, room)
    if kind == EITHER:
        return either_words(obj, out, n, room)
    return static_words(obj, out, n, room, 0)


@native("i64(ptr, ptr, i64, ptr, ptr, i64)")
def call_words(self, args, given, names, out, room):
    """Write the key of a call.  Returns the number of words, -1 for a call that has no key."""
    word = state_word()
    if word == -1 << 63:
        return -1
    named: i64 = 0
    if names is not None:
        named = names.i64[2]
    out.i64[0] = word
    out.i64[1] = given | (named << 32)
    n: i64 = 2
    count = self.i64[D_COUNT]
    for k in range(given):
        if n >= 0:
            if k < count:
                n = argument_words(self, k, args.ptr[k], out, n, room)
            elif args.ptr[k].ptr[1] == PyLong_Type:
                n = static_words(args.ptr[k], out, n, room, 0)
            else:
                n = -1
    declared, known = sequence_items(self.ptr[D_NAMES]), self.ptr[D_NAMES].i64[2]
    for j in range(named):
        if n >= 0:
            name = sequence_items(names).ptr[j]
            place: i64 = 0
            while place < known and declared.ptr[place] != name:
                place += 1
            if place == known or n + 2 > room:
                n = -1
            else:
                out.i64[n] = NAME | place << 4
                n = argument_words(self, place, args.ptr[given + j], out, n + 1, room)
    return n


@native("i64(ptr, i64)")
def sequence_words(args, count):
    """The most words that the items of sequences among the arguments may take."""
    total: i64 = 0
    for k in range(count):
        size = sequence_size(args.ptr[k])
        if size > 0:
            total += 2 * size
    return total
