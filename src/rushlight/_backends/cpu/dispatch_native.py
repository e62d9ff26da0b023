"""Finding the plan of a call, in the native language: a callable that reads its arguments, looks them up, and calls the plan.

A *dispatcher* is what users call (`torch.add`, `Tensor.__add__`).  It turns a call into a few words (which spec a tensor has, which type a
number, which value everything else), finds the plan kept for these words, and calls it with the arguments that vary.  What it does not know,
or cannot turn into words, goes to a function in Python, which may teach it the plan (`learn`).

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
    malloc,
)
from rushlight._backends.native import extern, extern_data, i64, memcpy, native, select, stack, static, u64

__all__ = [
    "DISPATCHER_BYTES", "ENTRY_BYTES", "FAST", "FAST_WORDS", "dispatcher_call", "dispatcher_dealloc", "dispatcher_get", "entry_dealloc",
    "is_plain", "py_dispatcher", "py_forget", "py_known", "py_learn", "state_word",
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

# words of a dispatcher
D_CALL, D_DICT, D_WEAK, D_FALLBACK, D_KINDS, D_DEFAULTS, D_NAMES, D_COUNT, D_SLOTS, D_MASK, D_USED, D_KIND_BYTES = range(2, 14)
DISPATCHER_BYTES = 8 * 14
# words of an entry: what was learnt of one signature
E_HASH, E_COUNT, E_WORDS, E_PLAN, E_WRAP, E_KEEP, E_PICKS, E_PICK_COUNT = range(2, 10)
ENTRY_BYTES = 8 * 10

# kinds of arguments
STATIC, DYNAMIC, LIST, EITHER = 0, 1, 2, 3  # EITHER: a tensor by its spec (also in a tuple), anything else by its value
# what begins a value in a signature; objects begin with their address
INT, FLOAT, TUPLE, ITEMS, SLICE, NUMBER_INT, NUMBER_FLOAT, NUMBER_BOOL, DEFAULT, TENSORS, TENSOR_LIST = range(1, 12)
ROOM = 480  # words that a signature on the stack may have
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
    out.i64[n] = spec | i64(wants == Py_True)
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
                out.i64[n] = place
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
def find(self, words, n, key):
    """The place in the table where these words are, or where they would go."""
    slots, mask = self.ptr[D_SLOTS], self.i64[D_MASK]
    at = key & mask
    while True:
        entry = slots.ptr[at]
        if entry is None:
            return slots + 8 * at
        if entry.i64[E_HASH] == key and entry.i64[E_COUNT] == n and same_words(entry.ptr[E_WORDS], words, n) != 0:
            return slots + 8 * at
        at = (at + 1) & mask


@native("i32(ptr, i64)")
def grow(self, size):
    """A table of so many places (a power of two) with the same entries; 1 where there is no memory."""
    fresh = malloc(8 * size)
    if fresh is None:
        return 1
    for k in range(size):
        fresh.ptr[k] = None
    slots = self.ptr[D_SLOTS]
    if slots is not None:
        for k in range(self.i64[D_MASK] + 1):
            entry = slots.ptr[k]
            if entry is not None:
                at = entry.i64[E_HASH] & (size - 1)
                while fresh.ptr[at] is not None:
                    at = (at + 1) & (size - 1)
                fresh.ptr[at] = entry
        free(slots)
    self.ptr[D_SLOTS] = fresh
    self.i64[D_MASK] = size - 1
    return 0


@native("void(ptr)")
def forget(self):
    """Let go of all entries.  What goes with them may run any code, so the table is emptied first."""
    slots, mask = self.ptr[D_SLOTS], self.i64[D_MASK]
    self.ptr[D_SLOTS] = None
    self.i64[D_MASK] = 0
    self.i64[D_USED] = 0
    if slots is not None:
        for k in range(mask + 1):
            if slots.ptr[k] is not None:
                Py_DecRef(slots.ptr[k])
        free(slots)


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
    """The entry of a call (borrowed), or null."""
    if self.ptr[D_SLOTS] is None:
        return None
    n = call_words(self, args, given, names, words, room)
    if n < 0:
        return None
    return find(self, words, n, hash_words(words, n)).ptr[0]


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
    self.ptr[D_SLOTS] = None
    self.i64[D_MASK] = 0
    self.i64[D_USED] = 0
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


@native("ptr(ptr, i64, ptr, ptr)")
def new_entry(words, n, args, picks):
    """An entry for these words; `args` are those of `learn`."""
    entry = PyObject_New(FAST.ptr[ENTRY_TYPE])
    if entry is None:
        return None
    count = picks.i64[2]
    memory = malloc(8 * (n + count) + 8)
    if memory is None:
        PyObject_Free(entry)
        return PyErr_NoMemory()
    memcpy(memory, words, 8 * n)
    for k in range(count):
        memory.i64[n + k] = PyLong_AsLongLong(sequence_items(picks).ptr[k])
    entry.i64[E_HASH] = hash_words(words, n)
    entry.i64[E_COUNT] = n
    entry.ptr[E_WORDS] = memory
    entry.ptr[E_PICKS] = memory + 8 * n
    entry.i64[E_PICK_COUNT] = count
    entry.ptr[E_PLAN] = args.ptr[3]
    entry.ptr[E_WRAP] = args.ptr[5]
    entry.ptr[E_KEEP] = args.ptr[6]
    Py_IncRef(args.ptr[3])
    Py_IncRef(args.ptr[5])
    Py_IncRef(args.ptr[6])
    return entry


@native("i32(ptr, ptr, i64, ptr)")
def put(self, words, n, args):
    """Keep a plan for these words; 1 with an exception set."""
    slots = self.ptr[D_SLOTS]
    if slots is None or 2 * self.i64[D_USED] > self.i64[D_MASK]:
        size = i64(8) if slots is None else 2 * (self.i64[D_MASK] + 1)
        if grow(self, size) != 0:
            PyErr_NoMemory()
            return 1
    entry = new_entry(words, n, args, args.ptr[4])
    if entry is None:
        return 1
    place = find(self, words, n, entry.i64[E_HASH])
    before = place.ptr[0]
    place.ptr[0] = entry
    if before is not None:
        Py_DecRef(before)
    else:
        self.i64[D_USED] += 1
    return 0


@native("ptr(ptr, ptr, i64)")
def py_learn(unused, args, count):
    """learn(dispatcher, values: tuple, names: tuple or None, plan, picks: tuple, wrap, keep) -> bool

    Keep `plan` for calls like this one; with None for the plan only say whether they could be kept.  `values` are its arguments, the last of
    them by the names.  `picks` says which of them the plan gets (a position, and above 32 bits 1 + the place in a list there), `wrap` what
    the result becomes (None: itself), and `keep` holds every object whose address is part of the signature.  False where the call cannot be
    written in words.
    """
    self, values, names = args.ptr[0], args.ptr[1], args.ptr[2]
    if count != 7 or self.ptr[1] != FAST.ptr[DISPATCHER_TYPE] or values.ptr[1] != PyTuple_Type:
        return PyErr_Format(PyExc_TypeError.ptr[0], "learn takes a dispatcher and what one call of it was")
    total = values.i64[2]
    given = total
    if names == Py_None:
        names = None
    else:
        given -= names.i64[2]
    items = sequence_items(values)
    need = longest(items, total) + 8 + 4 * total + ROOM
    memory = malloc(8 * need)
    if memory is None:
        return PyErr_NoMemory()
    n = call_words(self, items, given, names, memory, need)
    failed: i64 = 0
    if n >= 0 and args.ptr[3] != Py_None:
        failed = i64(put(self, memory, n, args))
    free(memory)
    if failed != 0:
        return None
    return PyBool_FromLong(i64(n >= 0))


@native("ptr(ptr, ptr, i64)")
def py_forget(unused, args, count):
    """forget(dispatcher): let go of what was learnt"""
    forget(args.ptr[0])
    Py_IncRef(Py_None)
    return Py_None


@native("ptr(ptr, ptr, i64)")
def py_known(unused, args, count):
    """known(dispatcher) -> how many signatures were learnt"""
    return PyLong_FromLongLong(args.ptr[0].i64[D_USED])
