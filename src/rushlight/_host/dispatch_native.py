"""Finding the plan of a call, in the native language: a callable that reads its arguments, looks them up, and calls the
plan.

A *dispatcher* is what users call (`torch.add`, `Tensor.__add__`).  It writes the key of a call (specs of tensors, types
of numbers, values of everything else), finds the plan that is cached under it, and calls the plan with the dynamic
arguments.  A call without a cached plan, or without a key, goes to a Python fallback, which may cache the plan
(`cache_plan`).

Where the sizes alone are new, the plan is *cast*: the key without the values of sizes (the *shape class*) is looked up
in a second table, and the Python function that is cached there makes the plan from the sizes (see
`_engine.dispatch.plans.shape_classes`).

Everything here runs with the GIL held.  No Python code runs while a key is written, so no table changes during a
lookup.
"""

from __future__ import annotations

from rushlight._host.call_words_native import call_words, none_can_override, sequence_words, state_word
from rushlight._host.dispatch_words import (
    D_CALL,
    D_COUNT,
    D_DICT,
    D_FALLBACK,
    D_KIND_BYTES,
    D_PLANS,
    D_SHAPE_CLASSES,
    D_SIZED,
    D_WEAK,
    DISPATCHER_TYPE,
    E_KEEP,
    E_PICK_COUNT,
    E_PICKS,
    E_PLAN,
    E_WORDS,
    E_WRAP,
    G_FUNCTION,
    G_MASK,
    G_MOST,
    G_NAMED,
    HOST,
    NEW_TUPLE,
    ROOM,
    SHORTEN,
    SIZES,
    SPEC_SHAPE,
    T_SLOTS,
    T_USED,
)
from rushlight._host.plans.plan_table_native import empty_table, find, forget, hash_words, new_entry, put
from rushlight._host.python_native import (
    Py_DecRef,
    Py_IncRef,
    Py_None,
    PyBool_FromLong,
    PyBytes_AsString,
    PyBytes_FromStringAndSize,
    PyErr_Clear,
    PyErr_Fetch,
    PyErr_Format,
    PyErr_NoMemory,
    PyErr_NormalizeException,
    PyErr_Occurred,
    PyErr_Restore,
    PyExc_TypeError,
    PyExc_ValueError,
    PyException_GetTraceback,
    PyException_SetTraceback,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyMethod_New,
    PyObject_ClearWeakRefs,
    PyObject_Free,
    PyObject_New,
    PyObject_Vectorcall,
    PyTuple_New,
    PyTuple_SetItem,
    PyTuple_Type,
    free,
    malloc,
    sequence_items,
    small_int,
)
from rushlight._host.shape_class_native import describe, shape_class_words, specs_in
from rushlight._native import i64, native, ptr, stack, u64, unlikely

SYMBOLS = 256 | 512  # the bits of the state word that `_engine.core.state` calls RECORDING and SYMBOLIC

__all__ = [
    "dispatcher_call",
    "dispatcher_dealloc",
    "dispatcher_get",
    "entry_dealloc",
    "py_cache_plan",
    "py_cached_plans",
    "py_describe",
    "py_dispatcher",
    "py_find_plan",
    "py_forget",
    "py_guard",
    "py_shape_class",
]


# ***** casts *****


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
    """Call a Python function with specs and sizes; its result, null with an exception set."""
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
    """Cast the plan of a call from its shape class and cache it.  Its entry (borrowed), null where there is none, or
    with an exception set.
    """
    shape_class, sizes = stack(8 * ROOM), stack(8 * (SIZES + 2))
    sizes.i64[1] = SIZES
    table = self + 8 * D_SHAPE_CLASSES
    if table.ptr[T_SLOTS] is None or state_word() & SYMBOLS != 0:  # sizes may be symbols
        return None
    m = shape_class_words(self.i64[D_SIZED], words, n, shape_class, sizes)
    if m < 0:
        return None
    known = find(table, shape_class, m, hash_words(shape_class, m)).ptr[0]
    if known is None:
        return None
    specs = specs_in(words, n)
    if specs is None:
        return None
    Py_IncRef(known)  # held: the Python function may clear the table
    plan = cast(known.ptr[E_PLAN], specs, sizes)
    entry = ptr(0)
    if plan is None or plan == Py_None:
        Py_DecRef(specs)
    else:
        Py_IncRef(known.ptr[E_KEEP])
        keep = pair(known.ptr[E_KEEP], specs)
        if keep is not None:
            entry = new_entry(words, n, plan, known.ptr[E_PICKS], known.i64[E_PICK_COUNT], known.ptr[E_WRAP], keep)
            entry = put(self + 8 * D_PLANS, entry)
            Py_DecRef(keep)
    if plan is not None:
        Py_DecRef(plan)
    Py_DecRef(known)
    return entry


# ***** calls *****


@native("ptr()")
def failed():
    """Take the package's frames off the traceback of the exception that is set; null."""
    kind, error, trace = stack(8), stack(8), stack(8)
    PyErr_Fetch(kind, error, trace)
    PyErr_NormalizeException(kind, error, trace)
    if error.ptr[0] is not None and trace.ptr[0] is not None:
        PyException_SetTraceback(error.ptr[0], trace.ptr[0])
        out = PyObject_Vectorcall(HOST.ptr[SHORTEN], error, u64(1), None)
        if out is None:
            PyErr_Clear()  # there is no room for the call
        else:
            Py_DecRef(out)
            Py_DecRef(trace.ptr[0])
            trace.ptr[0] = PyException_GetTraceback(error.ptr[0])
    PyErr_Restore(kind.ptr[0], error.ptr[0], trace.ptr[0])
    return None


@native("ptr(ptr, ptr, ptr)")
def run_picked(entry, args, inputs):
    """Call an entry's plan with its arguments."""
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
    """Run the plan of an entry and wrap its result."""
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
    if unlikely(out is None):
        failed()
    elif wrap != Py_None:
        room.ptr[0] = wrap
        room.ptr[1] = out
        shown = PyObject_Vectorcall(HOST.ptr[NEW_TUPLE], room, u64(2), None)
        Py_DecRef(out)
        out = shown
    Py_DecRef(entry)
    return out


@native("ptr(ptr, ptr, i64, ptr, ptr, i64)", inline=True)
def look_up(self, args, given, names, words, room):
    """The entry of a call (borrowed); null where there is none, or with an exception set."""
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
    need = sequence_words(args, total) + 8 + 4 * total
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
        return failed()
    out = PyObject_Vectorcall(self.ptr[D_FALLBACK], args, u64(given), names)
    return out if out is not None else failed()


@native("ptr(ptr, ptr, u64, ptr)")
def guard_call(self, args, flagged, names):
    """The vectorcall of a guard."""
    given = i64(flagged & u64(0x7FFFFFFFFFFFFFFF))
    total, usual = given, i64(given <= self.i64[G_MOST])
    if names is not None:
        total += names.i64[2]
        usual &= self.i64[G_NAMED]
    word = state_word()
    if usual == 0 or word == -1 << 63 or word & self.i64[G_MASK] != 0 or none_can_override(args, total) == 0:
        out = PyObject_Vectorcall(self.ptr[D_FALLBACK], args, u64(given), names)
    else:
        out = PyObject_Vectorcall(self.ptr[G_FUNCTION], args, u64(given), names)
    return out if out is not None else failed()


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
    """dispatcher(fallback, kinds: bytes, defaults: tuple, names: tuple, count) -> dispatcher

    Those of `names` after the first `count` are keywords alone.
    """
    self = PyObject_New(HOST.ptr[DISPATCHER_TYPE])
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
    empty_table(self + 8 * D_SHAPE_CLASSES)
    return self


@native("ptr(ptr, ptr, i64)")
def py_guard(unused, args, count):
    """guard(asking, function, most, named, mask) -> guard: calls `function` where nothing can override the call, and
    `asking` otherwise

    That is: at most `most` positional arguments, keywords only if `named`, no bit of `mask` in the state, no argument
    of a class that may override.
    """
    self = PyObject_New(HOST.ptr[DISPATCHER_TYPE])
    if self is None:
        return None
    for k in range(4):
        self.ptr[D_FALLBACK + k] = args.ptr[k] if k < 2 else Py_None
        Py_IncRef(self.ptr[D_FALLBACK + k])
    self.ptr[D_CALL] = guard_call
    self.ptr[D_DICT] = None
    self.ptr[D_WEAK] = None
    self.i64[G_MOST] = PyLong_AsLongLong(args.ptr[2])
    self.i64[G_NAMED] = PyLong_AsLongLong(args.ptr[3])
    self.i64[G_MASK] = PyLong_AsLongLong(args.ptr[4])
    empty_table(self + 8 * D_PLANS)
    empty_table(self + 8 * D_SHAPE_CLASSES)
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
    """Write the key of a call: a tuple of its arguments, the last of which have `names` (a tuple, or None)."""
    given = values.i64[2]
    if names == Py_None:
        names = None
    else:
        given -= names.i64[2]
    return call_words(self, sequence_items(values), given, names, memory, need)


@native("ptr(ptr, ptr, i64, ptr, i64)")
def cache_words(self, words, n, args, sized):
    """Cache the arguments of `cache_plan` under a key.  Returns the entry, null where there is none, or with an
    exception set.
    """
    picks, shape_class, sizes = args.ptr[4], stack(8 * ROOM), stack(8 * (SIZES + 2))
    count = picks.i64[2]
    numbers = malloc(8 * count + 8)
    if numbers is None:
        return PyErr_NoMemory()
    for k in range(count):
        numbers.i64[k] = PyLong_AsLongLong(sequence_items(picks).ptr[k])
    table = self + 8 * D_PLANS
    if sized >= 0:
        self.i64[D_SIZED] = sized
        table = self + 8 * D_SHAPE_CLASSES
        sizes.i64[1] = SIZES
        n = shape_class_words(sized, words, n, shape_class, sizes)
        words = shape_class
    entry = ptr(0)
    if n >= 0:
        entry = put(table, new_entry(words, n, args.ptr[3], numbers, count, args.ptr[5], args.ptr[6]))
    free(numbers)
    return entry


@native("ptr(ptr, ptr, i64)")
def py_cache_plan(unused, args, count):
    """cache_plan(dispatcher, values: tuple, names: tuple or None, plan, picks: tuple, wrap, keep, sized: int = -1) ->
    bool

    Keep `plan` for calls like this one; with None for the plan only say whether they could be kept.  `values` are its
    arguments, the last of them by the names.  `picks` says which of them the plan gets (a position, and above 32 bits 1
    + the place in a list there), `wrap` what the result becomes (None: itself), and `keep` holds every object whose
    address is part of the signature.  False where the call cannot be written in words.

    With `sized` the `plan` is a function that gives plans for calls that differ in sizes from this one: from a tuple of
    the specs of their tensors, and their sizes as `shape_class` says; or None.  With a 1 ints are sizes too, with a 0
    the tensors' alone.
    """
    self, values = args.ptr[0], args.ptr[1]
    if count < 7 or self.ptr[1] != HOST.ptr[DISPATCHER_TYPE] or values.ptr[1] != PyTuple_Type:
        return PyErr_Format(PyExc_TypeError.ptr[0], "cache_plan takes a dispatcher and the arguments of a call of it")
    need = sequence_words(sequence_items(values), values.i64[2]) + 8 + 4 * values.i64[2] + ROOM
    memory = malloc(8 * need)
    if memory is None:
        return PyErr_NoMemory()
    n = described_words(self, values, args.ptr[2], memory, need)
    done = i64(n >= 0)
    if n >= 0 and args.ptr[3] != Py_None:
        sized: i64 = -1
        if count == 8:
            sized = PyLong_AsLongLong(args.ptr[7])
        done = i64(cache_words(self, memory, n, args, sized) is not None)
    free(memory)
    if PyErr_Occurred() is not None:
        return None
    return PyBool_FromLong(done)


@native("ptr(ptr, ptr)")
def picked(entry, args):
    """The arguments of an entry's plan, as a tuple."""
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
def py_find_plan(unused, args, count):
    """find_plan(dispatcher, values: tuple, names: tuple or None) -> (plan, its arguments) for a call; None where the
    call goes to Python
    """
    self, values = args.ptr[0], args.ptr[1]
    words = stack(8 * ROOM)
    entry = ptr(0)
    if (
        self.ptr[D_PLANS + T_SLOTS] is not None
        and sequence_words(sequence_items(values), values.i64[2]) + 8 + 4 * values.i64[2] <= ROOM
    ):
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
def py_shape_class(unused, args, count):
    """shape_class(dispatcher, values: tuple, names: tuple or None, sized: int) -> (specs, sizes), the arguments of the
    function that casts its plan

    None where it has too many.
    """
    self, values = args.ptr[0], args.ptr[1]
    words, shape_class, sizes = stack(8 * ROOM), stack(8 * ROOM), stack(8 * (SIZES + 2))
    sizes.i64[1] = SIZES
    if sequence_words(sequence_items(values), values.i64[2]) + 8 + 4 * values.i64[2] <= ROOM:
        n = described_words(self, values, args.ptr[2], words, ROOM)
        if n >= 0:
            if shape_class_words(PyLong_AsLongLong(args.ptr[3]), words, n, shape_class, sizes) >= 0:
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

    What the specs are apart from the values of sizes (see `describe`), and these values, each once, after those of
    `sizes`.
    """
    specs, given = args.ptr[0], args.ptr[1]
    total, known = specs.i64[2], given.i64[2]
    need, dims = total, known
    for k in range(total):
        spec = sequence_items(specs).ptr[k]
        if spec != Py_None:
            rank = spec.ptr[HOST.i64[SPEC_SHAPE] >> 3].i64[2]
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
            if n < 0:  # nothing may be written before the memory
                free(memory)
                return PyErr_Format(
                    PyExc_ValueError.ptr[0], "a layout has a size or stride that is negative or takes more than 63 bits"
                )
    key, found = PyBytes_FromStringAndSize(memory, 8 * n), sizes_tuple(sizes)
    free(memory)
    if key is None or found is None:
        return None
    return pair(key, found)


@native("ptr(ptr, ptr, i64)")
def py_forget(unused, args, count):
    """forget(dispatcher): clear its tables"""
    forget(args.ptr[0])
    Py_IncRef(Py_None)
    return Py_None


@native("ptr(ptr, ptr, i64)")
def py_cached_plans(unused, args, count):
    """cached_plans(dispatcher) -> how many plans its table holds"""
    return PyLong_FromLongLong(args.ptr[0].i64[D_PLANS + T_USED])
