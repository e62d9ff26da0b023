"""Finding the plan of a call, in the native language: a callable that reads its arguments, looks them up, and calls the plan.

A *dispatcher* is what users call (`torch.add`, `Tensor.__add__`).  It turns a call into a few words (which spec a tensor has, which type a
number, which value everything else), finds the plan kept for these words, and calls it with the arguments that vary.  What it does not know,
or cannot turn into words, goes to a function in Python, which may teach it the plan (`learn`).

Where the sizes alone are new, the plan is *cast*: what the words are apart from the values of sizes (their *family*) is looked up in a second
table, and a function in Python that is kept there makes the plan from the sizes (see `_engine.families`).

Everything here runs with the GIL held.  While words are made no Python code runs, so no table changes under a lookup.
"""

from __future__ import annotations

from rushlight._backends.cpu.objects import DIGIT_BITS, NEW_INTS, TUPLE_ITEMS
from rushlight._backends.cpu.pool_native import (
    Py_DecRef,
    Py_IncRef,
    Py_None,
    PyErr_Format,
    PyErr_NoMemory,
    PyExc_TypeError,
    PyLong_AsLongLong,
    PyObject_ClearWeakRefs,
    PyObject_Free,
    PyObject_New,
    free,
)
from rushlight._backends.cpu.stub_native import (
    PyBytes_AsString,
    PyErr_Clear,
    PyFloat_Type,
    PyLong_Type,
    PyTuple_New,
    PyTuple_SetItem,
    malloc,
)
from rushlight._backends.native import (
    extern,
    extern_data,
    i64,
    memcpy,
    native,
    ptr,
    select,
    stack,
    static,
    u64,
    unlikely,
)
from rushlight._types.trail import FOLLOWS, LEAST

__all__ = [
    "DISPATCHER_BYTES", "ENTRY_BYTES", "FAST", "FAST_WORDS", "dispatcher_call", "dispatcher_dealloc", "dispatcher_get", "entry_dealloc",
    "is_plain", "py_describe", "py_dispatcher", "py_family", "py_forget", "py_found", "py_known", "py_learn", "state_word",
]  # fmt: skip

FAST_WORDS = 128
FAST = static("rl_fast", 8 * FAST_WORDS)
# words of FAST, set by `runtime` and `dispatch`: types, then where a tensor's and a node's slots lie (in bytes)
DISPATCHER_TYPE, ENTRY_TYPE, PLAN_TYPE, TENSOR_TYPE, SIZE_TYPE = range(5)
PLAIN_COUNT, PLAIN = 5, 6  # classes of tensors that are called as Tensor is; at most PLAIN_MAX
PLAIN_MAX = 10
SETTINGS = 16  # four types whose objects are settings: dtypes, devices, layouts, memory formats
O_STORAGE, O_SPEC, O_PTR, O_RG, O_NODE, O_META = range(20, 26)
STATE_OBJECT, WORD_NAME, DICT_NAME, THREAD, THREAD_DICT = range(26, 31)
NEW_TUPLE = 31  # `tuple.__new__`
SPEC_DTYPE, SPEC_DEVICE, SPEC_SHAPE, SPEC_STRIDES, SPEC_PLAIN, SPEC_CONTIGUOUS, SPEC_CONJ = range(96, 103)  # slots of a spec

# words of a dispatcher
D_CALL, D_DICT, D_WEAK, D_FALLBACK, D_KINDS, D_DEFAULTS, D_NAMES, D_COUNT, D_KIND_BYTES, D_PLANS, D_FAMILIES, D_SIZED = (*range(2, 12), 14, 17)
DISPATCHER_BYTES = 8 * 18
# words of a table: of plans, by the words of calls, or of what casts plans, by those of families
T_SLOTS, T_MASK, T_USED = range(3)
# words of an entry: what was learnt of one signature
E_HASH, E_COUNT, E_WORDS, E_PLAN, E_WRAP, E_KEEP, E_PICKS, E_PICK_COUNT = range(2, 10)
ENTRY_BYTES = 8 * 10

# kinds of arguments
STATIC, DYNAMIC, LIST, EITHER = 0, 1, 2, 3  # EITHER: a tensor by its spec (also in a tuple), anything else by its value
# what begins a value in a signature; objects begin with their address
INT, FLOAT, TUPLE, ITEMS, SLICE, NUMBER_INT, NUMBER_FLOAT, NUMBER_BOOL, DEFAULT, TENSORS, SIZE, NAME = range(1, 13)
SPEC = 2  # a bit of the words that are a spec's address, of which the lowest says whether a gradient is wanted
ROOM = 480  # words that a signature on the stack may have
SIZES = 24  # different sizes that a call may have, so that its plan can be cast
DEEPEST = 3  # how far sequences may be nested

PyDict_GetItemWithError = extern("PyDict_GetItemWithError", "ptr(ptr, ptr)")
PyObject_GetAttr = extern("PyObject_GetAttr", "ptr(ptr, ptr)")
PyObject_Vectorcall = extern("PyObject_Vectorcall", "ptr(ptr, ptr, u64, ptr)")
PyThreadState_Get = extern("PyThreadState_Get", "ptr()")
PyThreadState_GetID = extern("PyThreadState_GetID", "u64(ptr)")
PyLong_AsLongLongAndOverflow = extern("PyLong_AsLongLongAndOverflow", "i64(ptr, ptr)")
PyLong_FromLongLong = extern("PyLong_FromLongLong", "ptr(i64)")
PyMethod_New = extern("PyMethod_New", "ptr(ptr, ptr)")
PyBool_FromLong = extern("PyBool_FromLong", "ptr(i64)")
PyErr_Occurred = extern("PyErr_Occurred", "ptr()")
PyBytes_FromStringAndSize = extern("PyBytes_FromStringAndSize", "ptr(ptr, i64)")
Py_True = extern_data("_Py_TrueStruct")
Py_False = extern_data("_Py_FalseStruct")
Py_Ellipsis = extern_data("_Py_EllipsisObject")
PyUnicode_Type = extern_data("PyUnicode_Type")
PyTuple_Type = extern_data("PyTuple_Type")
PyList_Type = extern_data("PyList_Type")
PySlice_Type = extern_data("PySlice_Type")
PyBool_Type = extern_data("PyBool_Type")


# ***** small things *****


@native("i64(ptr)", inline=True)
def small_int(obj):
    """The value of an int that is exactly an int; -1 << 63 where it does not fit."""
    digits = obj.u64[2]
    if NEW_INTS:
        digits = select(digits & 3 == 0, digits >> 3, select(digits & 3 == 1, u64(0), u64(9)))
    if digits == 1:
        return i64(obj.u32[6])
    if digits == 0:
        return 0
    if digits == 2:
        return i64(u64(obj.u32[6]) | (u64(obj.u32[7]) << DIGIT_BITS))
    over = stack(8)
    value = PyLong_AsLongLongAndOverflow(obj, over)
    if over.i32[0] != 0:
        return -1 << 63
    return value


@native("i64(ptr)", inline=True)
def is_plain(obj):
    """Whether an object is a tensor without a say of its own."""
    kind = obj.ptr[1]
    if kind == FAST.ptr[TENSOR_TYPE]:
        return 1
    for k in range(FAST.i64[PLAIN_COUNT]):
        if kind == FAST.ptr[PLAIN + k]:
            return 1
    return 0


@native("ptr()")
def thread_state():
    """The dict that holds this thread's state word (borrowed)."""
    word = PyThreadState_GetID(PyThreadState_Get())
    if word != FAST.u64[THREAD]:
        found = PyObject_GetAttr(FAST.ptr[STATE_OBJECT], FAST.ptr[DICT_NAME])
        if found is None:
            return None
        before = FAST.ptr[THREAD_DICT]
        FAST.ptr[THREAD_DICT] = found  # kept, so that it is still this thread's when the number matches
        FAST.u64[THREAD] = word
        if before is not None:
            Py_DecRef(before)
    return FAST.ptr[THREAD_DICT]


@native("i64()", inline=True)
def state_word():
    """The thread's state word; -1 << 63 where it is not to be had."""
    held = thread_state()
    if held is None:
        PyErr_Clear()
        return -1 << 63
    word = PyDict_GetItemWithError(held, FAST.ptr[WORD_NAME])
    if word is None or word.ptr[1] != PyLong_Type:
        PyErr_Clear()
        return -1 << 63
    return small_int(word)


# ***** calls to words *****


@native("i64(ptr)", inline=True)
def sequence_size(obj):
    """The length of a tuple (or torch.Size) or a list; -1 for anything else."""
    kind = obj.ptr[1]
    if kind == PyTuple_Type or kind == PyList_Type or kind == FAST.ptr[SIZE_TYPE]:
        return obj.i64[2]
    return -1


@native("ptr(ptr)", inline=True)
def sequence_items(obj):
    """The items of what has a `sequence_size`."""
    if obj.ptr[1] == PyList_Type:
        return obj.ptr[3]
    return obj + 8 * TUPLE_ITEMS


@native("i64(ptr, ptr, i64, i64, i64)")
def static_words(obj, out, n, room, deep):
    """Write what a static argument is; the number of words there are then, -1 where it cannot be written."""
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
        if kind == FAST.ptr[SETTINGS + k]:
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
    """Write which spec a tensor has and whether it wants a gradient."""
    spec, wants = obj.i64[FAST.i64[O_SPEC] >> 3], obj.ptr[FAST.i64[O_RG] >> 3]
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
    """Write the kind of an argument that varies: a tensor's spec, those of a list, a number's type; a default number is part of the plan."""
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
    """Write a tensor by its spec, anything else by its value; in a tuple, or a list, of both, each of them."""
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
    """Write one argument, by the kind that is declared for its place."""
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
    """Write a whole call; the number of words, -1 where it cannot be written."""
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
def longest(args, count):
    """How many words the items of all sequences among the arguments may take."""
    total: i64 = 0
    for k in range(count):
        size = sequence_size(args.ptr[k])
        if size > 0:
            total += 2 * size
    return total


# ***** tables *****


@native("i64(ptr, i64)", inline=True)
def hash_words(words, n):
    """A hash of the words of a call."""
    h = u64(0x9E3779B97F4A7C15)
    for k in range(n):
        h = (h ^ words.u64[k]) * u64(0xFF51AFD7ED558CCD)
        h = h ^ (h >> 29)
    return i64(h)


@native("i64(ptr, ptr, i64)", inline=True)
def same_words(a, b, n):
    """Whether two calls are written alike."""
    k: i64 = 0
    while k < n and a.i64[k] == b.i64[k]:
        k += 1
    return i64(k == n)


@native("ptr(ptr, ptr, i64, i64)", inline=True)
def find(table, words, n, key):
    """The place in the table where these words are, or where they would go."""
    slots, mask = table.ptr[T_SLOTS], table.i64[T_MASK]
    at = key & mask
    while True:
        entry = slots.ptr[at]
        if entry is None:
            return slots + 8 * at
        if entry.i64[E_HASH] == key and entry.i64[E_COUNT] == n and same_words(entry.ptr[E_WORDS], words, n) != 0:
            return slots + 8 * at
        at = (at + 1) & mask


@native("i32(ptr, i64)")
def grow(table, size):
    """A table of so many places (a power of two) with the same entries; 1 where there is no memory."""
    fresh = malloc(8 * size)
    if fresh is None:
        return 1
    for k in range(size):
        fresh.ptr[k] = None
    slots = table.ptr[T_SLOTS]
    if slots is not None:
        for k in range(table.i64[T_MASK] + 1):
            entry = slots.ptr[k]
            if entry is not None:
                at = entry.i64[E_HASH] & (size - 1)
                while fresh.ptr[at] is not None:
                    at = (at + 1) & (size - 1)
                fresh.ptr[at] = entry
        free(slots)
    table.ptr[T_SLOTS] = fresh
    table.i64[T_MASK] = size - 1
    return 0


@native("void(ptr)")
def empty_table(table):
    """A table without entries, which takes no memory."""
    table.ptr[T_SLOTS] = None
    table.i64[T_MASK] = 0
    table.i64[T_USED] = 0


@native("void(ptr)")
def forget_table(table):
    """Let go of all entries.  What goes with them may run any code, so the table is emptied first."""
    slots, mask = table.ptr[T_SLOTS], table.i64[T_MASK]
    empty_table(table)
    if slots is not None:
        for k in range(mask + 1):
            if slots.ptr[k] is not None:
                Py_DecRef(slots.ptr[k])
        free(slots)


@native("void(ptr)")
def forget(self):
    """Let go of all that was learnt."""
    forget_table(self + 8 * D_PLANS)
    forget_table(self + 8 * D_FAMILIES)


@native("ptr(ptr, i64, ptr, ptr, i64, ptr, ptr)")
def new_entry(words, n, plan, picks, count, wrap, keep):
    """An entry for these words."""
    entry = PyObject_New(FAST.ptr[ENTRY_TYPE])
    if entry is None:
        return None
    memory = malloc(8 * (n + count) + 8)
    if memory is None:
        PyObject_Free(entry)
        return PyErr_NoMemory()
    memcpy(memory, words, 8 * n)
    memcpy(memory + 8 * n, picks, 8 * count)
    entry.i64[E_HASH] = hash_words(words, n)
    entry.i64[E_COUNT] = n
    entry.ptr[E_WORDS] = memory
    entry.ptr[E_PICKS] = memory + 8 * n
    entry.i64[E_PICK_COUNT] = count
    entry.ptr[E_PLAN] = plan
    entry.ptr[E_WRAP] = wrap
    entry.ptr[E_KEEP] = keep
    Py_IncRef(plan)
    Py_IncRef(wrap)
    Py_IncRef(keep)
    return entry


@native("ptr(ptr, ptr, i64, ptr, ptr, i64, ptr, ptr)")
def put(table, words, n, plan, picks, count, wrap, keep):
    """Keep a plan for these words: the entry (borrowed), null with an exception set."""
    if table.ptr[T_SLOTS] is None or 2 * table.i64[T_USED] > table.i64[T_MASK]:
        size = i64(8) if table.ptr[T_SLOTS] is None else 2 * (table.i64[T_MASK] + 1)
        if grow(table, size) != 0:
            return PyErr_NoMemory()
    entry = new_entry(words, n, plan, picks, count, wrap, keep)
    if entry is None:
        return None
    place = find(table, words, n, entry.i64[E_HASH])
    before = place.ptr[0]
    place.ptr[0] = entry
    if before is not None:
        Py_DecRef(before)
    else:
        table.i64[T_USED] += 1
    return entry


# ***** families *****


@native("i64(i64, ptr)")
def size_code(value, sizes):
    """A size from LEAST on as its place among `sizes` (how many there are, how many there may be, then they), others as they are.

    -1 where there is no room for another.
    """
    if value < LEAST:
        return value
    count = sizes.i64[0]
    for k in range(count):
        if sizes.i64[2 + k] == value:
            return k + LEAST
    if count == sizes.i64[1]:
        return -1
    sizes.i64[2 + count] = value
    sizes.i64[0] = count + 1
    return count + LEAST


@native("i64(ptr, ptr, i64)")
def followed(shape, strides, step):
    """The last dim whose size times stride is this stride; -1 where there is none."""
    found: i64 = -1
    for d in range(shape.i64[2]):
        n, each = small_int(sequence_items(shape).ptr[d]), small_int(sequence_items(strides).ptr[d])
        if n > 1 and each * n == step:
            found = d
    return found


@native("i64(ptr, ptr, i64, i64, ptr)")
def describe(spec, out, n, room, sizes):
    """Write what a spec is apart from the values of sizes, which go to `sizes`; the number of words there are then, -1 where there is no room.

    A dtype and a device; for every dim the code of its size; whether strides are those of a row-major tensor, and of conjugates.  Where they are not,
    for every dim the code of its stride, or FOLLOWS and the dim whose size times stride it is.
    """
    shape, strides = spec.ptr[FAST.i64[SPEC_SHAPE] >> 3], spec.ptr[FAST.i64[SPEC_STRIDES] >> 3]
    count = shape.i64[2]
    if n + 2 * count + 3 > room:
        return -1
    out.ptr[n] = spec.ptr[FAST.i64[SPEC_DTYPE] >> 3]
    out.ptr[n + 1] = spec.ptr[FAST.i64[SPEC_DEVICE] >> 3]
    n += 2
    for d in range(count):
        code = size_code(small_int(sequence_items(shape).ptr[d]), sizes)
        if code < 0:
            return -1
        out.i64[n] = code
        n += 1
    plain = spec.ptr[FAST.i64[SPEC_PLAIN] >> 3] == Py_True
    how = i64(plain) << 2 | i64(spec.ptr[FAST.i64[SPEC_CONTIGUOUS] >> 3] == Py_True) << 1 | i64(spec.ptr[FAST.i64[SPEC_CONJ] >> 3] == Py_True)
    out.i64[n] = -1 - how
    n += 1
    if plain:
        return n
    for d in range(count):
        step = small_int(sequence_items(strides).ptr[d])
        other: i64 = -1
        if step >= LEAST:
            other = followed(shape, strides, step)
        code = FOLLOWS + other if other >= 0 else size_code(step, sizes)
        if code < 0:
            return -1
        out.i64[n] = code
        n += 1
    return n


@native("i64(i64)", inline=True)
def is_spec(word):
    """Whether a word of a call is a spec's address."""
    return i64((word & 14) == SPEC and word > 255)


@native("i64(i64)", inline=True)
def has_value(word):
    """Whether a value stands behind a word of a call."""
    return i64(word == INT or word == FLOAT or word == TUPLE or word == ITEMS or word == TENSORS)


@native("i64(i64, ptr, i64, ptr, ptr)")
def family_words(sized, words, n, out, sizes):
    """The words of a call with sizes taken out, which go to `sizes`: those of specs and, if `sized`, ints; their number, or -1."""
    out.i64[0] = words.i64[0]
    out.i64[1] = words.i64[1]
    sizes.i64[0] = 0
    m: i64 = 2
    k: i64 = 2
    while k < n and m >= 0:
        word = words.i64[k]
        k += 1
        if m + 4 > ROOM:
            m = -1
        elif is_spec(word) != 0:
            out.i64[m] = word & 3
            m = describe(ptr(word & -4), out, m + 1, ROOM, sizes)
        else:
            out.i64[m] = word
            m += 1
            if has_value(word) != 0:
                value = words.i64[k]
                k += 1
                if sized == 0 or word != INT or value < LEAST:
                    out.i64[m] = value
                    m += 1
                else:
                    out.i64[m - 1] = SIZE
                    out.i64[m] = size_code(value, sizes)
                    m = m + 1 if out.i64[m] >= 0 else i64(-1)
    return m


@native("ptr(ptr, i64)")
def specs_in(words, n):
    """The specs among the words of a call, as a tuple; null with an exception set."""
    found = stack(8 * ROOM)
    count: i64 = 0
    k: i64 = 2
    while k < n:
        word = words.i64[k]
        k += 1 + has_value(word)
        if is_spec(word) != 0 and count < ROOM:
            found.ptr[count] = ptr(word & -4)
            count += 1
    out = PyTuple_New(count)
    if out is not None:
        for j in range(count):
            Py_IncRef(found.ptr[j])
            PyTuple_SetItem(out, j, found.ptr[j])
    return out


@native("ptr(ptr, ptr)")
def pair(a, b):
    """A tuple of two objects; takes over the references."""
    out = PyTuple_New(2)
    if out is None:
        Py_DecRef(a)
        Py_DecRef(b)
        return None
    PyTuple_SetItem(out, 0, a)
    PyTuple_SetItem(out, 1, b)
    return out


@native("ptr(ptr, ptr, ptr)")
def cast(casting, specs, sizes):
    """What a function in Python makes for these specs and sizes; null with an exception set."""
    inputs = stack(8 * (SIZES + 1))
    inputs.ptr[0] = specs
    count, made = sizes.i64[0], i64(0)
    while made < count:
        number = PyLong_FromLongLong(sizes.i64[2 + made])
        if number is None:
            break
        made += 1
        inputs.ptr[made] = number
    out = ptr(0)
    if made == count:
        out = PyObject_Vectorcall(casting, inputs, u64(count + 1), None)
    for k in range(made):
        Py_DecRef(inputs.ptr[1 + k])
    return out


@native("ptr(ptr, ptr, i64)")
def cast_entry(self, words, n):
    """The entry of a call that is cast from its family and kept from now on (borrowed); null where it cannot be, or with an exception set."""
    family, sizes = stack(8 * ROOM), stack(8 * (SIZES + 2))
    sizes.i64[1] = SIZES
    table = self + 8 * D_FAMILIES
    if table.ptr[T_SLOTS] is None:
        return None
    m = family_words(self.i64[D_SIZED], words, n, family, sizes)
    if m < 0:
        return None
    known = find(table, family, m, hash_words(family, m)).ptr[0]
    if known is None:
        return None
    specs = specs_in(words, n)
    if specs is None:
        return None
    Py_IncRef(known)  # what is called may let go of it
    plan = cast(known.ptr[E_PLAN], specs, sizes)
    entry = ptr(0)
    if plan is None or plan == Py_None:
        Py_DecRef(specs)
    else:
        Py_IncRef(known.ptr[E_KEEP])
        keep = pair(known.ptr[E_KEEP], specs)
        if keep is not None:
            entry = put(self + 8 * D_PLANS, words, n, plan, known.ptr[E_PICKS], known.i64[E_PICK_COUNT], known.ptr[E_WRAP], keep)
            Py_DecRef(keep)
    if plan is not None:
        Py_DecRef(plan)
    Py_DecRef(known)
    return entry


# ***** calls *****


@native("ptr(ptr, ptr, ptr)")
def run_picked(entry, args, inputs):
    """Call the entry's plan with the arguments that it picks."""
    picks, count = entry.ptr[E_PICKS], entry.i64[E_PICK_COUNT]
    for k in range(count):
        pick = picks.i64[k]
        item = args.ptr[pick & 0xFFFFFFFF]
        within = pick >> 32
        if within != 0:
            item = sequence_items(item).ptr[within - 1]
        inputs.ptr[k] = item
    return PyObject_Vectorcall(entry.ptr[E_PLAN], inputs, u64(count), None)


@native("ptr(ptr, ptr)")
def run_entry(entry, args):
    """What a call that was found gives."""
    room = stack(8 * 64)
    Py_IncRef(entry)
    if entry.i64[E_PICK_COUNT] <= 64:
        out = run_picked(entry, args, room)
    else:
        memory = malloc(8 * entry.i64[E_PICK_COUNT])
        if memory is None:
            Py_DecRef(entry)
            return PyErr_NoMemory()
        out = run_picked(entry, args, memory)
        free(memory)
    wrap = entry.ptr[E_WRAP]
    if wrap != Py_None and out is not None:
        room.ptr[0] = wrap
        room.ptr[1] = out
        shown = PyObject_Vectorcall(FAST.ptr[NEW_TUPLE], room, u64(2), None)
        Py_DecRef(out)
        out = shown
    Py_DecRef(entry)
    return out


@native("ptr(ptr, ptr, i64, ptr, ptr, i64)", inline=True)
def look_up(self, args, given, names, words, room):
    """The entry of a call (borrowed), or null, perhaps with an exception set."""
    table = self + 8 * D_PLANS
    if table.ptr[T_SLOTS] is None:
        return None
    n = call_words(self, args, given, names, words, room)
    if n < 0:
        return None
    entry = find(table, words, n, hash_words(words, n)).ptr[0]
    if unlikely(entry is None):
        entry = cast_entry(self, words, n)
    return entry


@native("ptr(ptr, ptr, u64, ptr)")
def dispatcher_call(self, args, flagged, names):
    """The vectorcall of a dispatcher."""
    given = i64(flagged & u64(0x7FFFFFFFFFFFFFFF))
    total = given
    if names is not None:
        total += names.i64[2]
    words = stack(8 * ROOM)
    need = longest(args, total) + 8 + 4 * total
    if need <= ROOM:
        entry = look_up(self, args, given, names, words, ROOM)
    else:
        memory = malloc(8 * need)
        if memory is None:
            return PyErr_NoMemory()
        entry = look_up(self, args, given, names, memory, need)
        free(memory)
    if entry is not None:
        return run_entry(entry, args)
    if PyErr_Occurred() is not None:
        return None
    return PyObject_Vectorcall(self.ptr[D_FALLBACK], args, u64(given), names)


@native("ptr(ptr, ptr, ptr)")
def dispatcher_get(self, obj, owner):
    """tp_descr_get: a dispatcher on a class is a method."""
    if obj is None:
        Py_IncRef(self)
        return self
    return PyMethod_New(self, obj)


# ***** what Python calls *****


@native("ptr(ptr, ptr, i64)")
def py_dispatcher(unused, args, count):
    """dispatcher(fallback, kinds: bytes, defaults: tuple, names: tuple, count) -> dispatcher; names after `count` are only names"""
    self = PyObject_New(FAST.ptr[DISPATCHER_TYPE])
    if self is None:
        return None
    for k in range(4):
        Py_IncRef(args.ptr[k])
        self.ptr[D_FALLBACK + k] = args.ptr[k]
    self.ptr[D_CALL] = dispatcher_call
    self.ptr[D_DICT] = None
    self.ptr[D_WEAK] = None
    self.i64[D_COUNT] = PyLong_AsLongLong(args.ptr[4])
    self.ptr[D_KIND_BYTES] = PyBytes_AsString(args.ptr[1])
    self.i64[D_SIZED] = 0
    empty_table(self + 8 * D_PLANS)
    empty_table(self + 8 * D_FAMILIES)
    return self


@native("void(ptr)")
def dispatcher_dealloc(self):
    """tp_dealloc."""
    kind = self.ptr[1]
    if self.ptr[D_WEAK] is not None:
        PyObject_ClearWeakRefs(self)
    forget(self)
    held = self.ptr[D_DICT]
    if held is not None:
        Py_DecRef(held)
    for k in range(4):
        Py_DecRef(self.ptr[D_FALLBACK + k])
    PyObject_Free(self)
    Py_DecRef(kind)


@native("void(ptr)")
def entry_dealloc(self):
    """tp_dealloc."""
    kind = self.ptr[1]
    free(self.ptr[E_WORDS])
    plan, wrap, keep = self.ptr[E_PLAN], self.ptr[E_WRAP], self.ptr[E_KEEP]
    PyObject_Free(self)
    Py_DecRef(kind)
    Py_DecRef(plan)
    Py_DecRef(wrap)
    Py_DecRef(keep)


@native("i64(ptr, ptr, ptr, ptr, i64)")
def described_words(self, values, names, memory, need):
    """The words of a call that is given by a tuple of its arguments, the last of them by `names` (a tuple, or None)."""
    given = values.i64[2]
    if names == Py_None:
        names = None
    else:
        given -= names.i64[2]
    return call_words(self, sequence_items(values), given, names, memory, need)


@native("ptr(ptr, ptr, i64, ptr, i64)")
def learn_words(self, words, n, args, sized):
    """Keep what `learn` was given for these words: the entry, null where it cannot be, or with an exception set."""
    picks, family, sizes = args.ptr[4], stack(8 * ROOM), stack(8 * (SIZES + 2))
    count = picks.i64[2]
    numbers = malloc(8 * count + 8)
    if numbers is None:
        return PyErr_NoMemory()
    for k in range(count):
        numbers.i64[k] = PyLong_AsLongLong(sequence_items(picks).ptr[k])
    table = self + 8 * D_PLANS
    if sized >= 0:
        self.i64[D_SIZED] = sized
        table = self + 8 * D_FAMILIES
        sizes.i64[1] = SIZES
        n = family_words(sized, words, n, family, sizes)
        words = family
    entry = ptr(0)
    if n >= 0:
        entry = put(table, words, n, args.ptr[3], numbers, count, args.ptr[5], args.ptr[6])
    free(numbers)
    return entry


@native("ptr(ptr, ptr, i64)")
def py_learn(unused, args, count):
    """learn(dispatcher, values: tuple, names: tuple or None, plan, picks: tuple, wrap, keep, sized: int = -1) -> bool

    Keep `plan` for calls like this one; with None for the plan only say whether they could be kept.  `values` are its arguments, the last of
    them by the names.  `picks` says which of them the plan gets (a position, and above 32 bits 1 + the place in a list there), `wrap` what
    the result becomes (None: itself), and `keep` holds every object whose address is part of the signature.  False where the call cannot be
    written in words.

    With `sized` the `plan` is a function that gives plans for calls that differ in sizes from this one: from a tuple of the specs of their tensors,
    and their sizes as `family` says; or None.  With a 1 ints are sizes too, with a 0 the tensors' alone.
    """
    self, values = args.ptr[0], args.ptr[1]
    if count < 7 or self.ptr[1] != FAST.ptr[DISPATCHER_TYPE] or values.ptr[1] != PyTuple_Type:
        return PyErr_Format(PyExc_TypeError.ptr[0], "learn takes a dispatcher and what one call of it was")
    need = longest(sequence_items(values), values.i64[2]) + 8 + 4 * values.i64[2] + ROOM
    memory = malloc(8 * need)
    if memory is None:
        return PyErr_NoMemory()
    n = described_words(self, values, args.ptr[2], memory, need)
    done = i64(n >= 0)
    if n >= 0 and args.ptr[3] != Py_None:
        sized: i64 = -1
        if count == 8:
            sized = PyLong_AsLongLong(args.ptr[7])
        done = i64(learn_words(self, memory, n, args, sized) is not None)
    free(memory)
    if PyErr_Occurred() is not None:
        return None
    return PyBool_FromLong(done)


@native("ptr(ptr, ptr)")
def picked(entry, args):
    """What an entry's plan is called with, as a tuple."""
    count = entry.i64[E_PICK_COUNT]
    out = PyTuple_New(count)
    if out is not None:
        for k in range(count):
            pick = entry.ptr[E_PICKS].i64[k]
            item = args.ptr[pick & 0xFFFFFFFF]
            if pick >> 32 != 0:
                item = sequence_items(item).ptr[(pick >> 32) - 1]
            Py_IncRef(item)
            PyTuple_SetItem(out, k, item)
    return out


@native("ptr(ptr, ptr, i64)")
def py_found(unused, args, count):
    """found(dispatcher, values: tuple, names: tuple or None) -> (plan, inputs) of a call as it would be made; None where it would go to Python"""
    self, values = args.ptr[0], args.ptr[1]
    words = stack(8 * ROOM)
    entry = ptr(0)
    if self.ptr[D_PLANS + T_SLOTS] is not None and longest(sequence_items(values), values.i64[2]) + 8 + 4 * values.i64[2] <= ROOM:
        n = described_words(self, values, args.ptr[2], words, ROOM)
        if n >= 0:
            entry = find(self + 8 * D_PLANS, words, n, hash_words(words, n)).ptr[0]
            if entry is None:
                entry = cast_entry(self, words, n)
    if entry is None:
        if PyErr_Occurred() is not None:
            return None
        Py_IncRef(Py_None)
        return Py_None
    inputs = picked(entry, sequence_items(values))
    if inputs is None:
        return None
    Py_IncRef(entry.ptr[E_PLAN])
    return pair(entry.ptr[E_PLAN], inputs)


@native("ptr(ptr)")
def sizes_tuple(sizes):
    """Sizes as a tuple of ints."""
    out = PyTuple_New(sizes.i64[0])
    if out is not None:
        for k in range(sizes.i64[0]):
            PyTuple_SetItem(out, k, PyLong_FromLongLong(sizes.i64[2 + k]))
    return out


@native("ptr(ptr, ptr, i64)")
def py_family(unused, args, count):
    """family(dispatcher, values: tuple, names: tuple or None, sized: int) -> (specs, sizes) of a call as they are given to what casts its plan

    None where it has too many.
    """
    self, values = args.ptr[0], args.ptr[1]
    words, family, sizes = stack(8 * ROOM), stack(8 * ROOM), stack(8 * (SIZES + 2))
    sizes.i64[1] = SIZES
    if longest(sequence_items(values), values.i64[2]) + 8 + 4 * values.i64[2] <= ROOM:
        n = described_words(self, values, args.ptr[2], words, ROOM)
        if n >= 0:
            if family_words(PyLong_AsLongLong(args.ptr[3]), words, n, family, sizes) >= 0:
                specs = specs_in(words, n)
                if specs is None:
                    return None
                found = sizes_tuple(sizes)
                if found is None:
                    Py_DecRef(specs)
                    return None
                return pair(specs, found)
    Py_IncRef(Py_None)
    return Py_None


@native("ptr(ptr, ptr, i64)")
def py_describe(unused, args, count):
    """describe(specs: tuple of specs and Nones, sizes: tuple) -> (bytes, sizes)

    What the specs are apart from the values of sizes (see `describe`), and these values, each once, after those of `sizes`.
    """
    specs, given = args.ptr[0], args.ptr[1]
    total, known = specs.i64[2], given.i64[2]
    need, dims = total, known
    for k in range(total):
        spec = sequence_items(specs).ptr[k]
        if spec != Py_None:
            rank = spec.ptr[FAST.i64[SPEC_SHAPE] >> 3].i64[2]
            need += 2 * rank + 3
            dims += 2 * rank
    memory = malloc(8 * (need + dims + 2))
    if memory is None:
        return PyErr_NoMemory()
    sizes = memory + 8 * need
    sizes.i64[0] = known
    sizes.i64[1] = dims
    for k in range(known):
        sizes.i64[2 + k] = small_int(sequence_items(given).ptr[k])
    n: i64 = 0
    for k in range(total):
        spec = sequence_items(specs).ptr[k]
        if spec == Py_None:
            memory.i64[n] = 0
            n += 1
        else:
            n = describe(spec, memory, n, need, sizes)
    key, found = PyBytes_FromStringAndSize(memory, 8 * n), sizes_tuple(sizes)
    free(memory)
    if key is None or found is None:
        return None
    return pair(key, found)


@native("ptr(ptr, ptr, i64)")
def py_forget(unused, args, count):
    """forget(dispatcher): let go of what was learnt"""
    forget(args.ptr[0])
    Py_IncRef(Py_None)
    return Py_None


@native("ptr(ptr, ptr, i64)")
def py_known(unused, args, count):
    """known(dispatcher) -> how many signatures were learnt"""
    return PyLong_FromLongLong(args.ptr[0].i64[D_PLANS + T_USED])
