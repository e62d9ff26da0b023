"""Plans that run without Python, in the native language: kernels, views, in-place changes.

A *plan object* does for one signature what a closure in Python does: `kernel_plan` runs the steps of a program and makes tensors of what
comes out, `view_plan` shows the same memory under other strides, `inplace_plan` runs a program for its effect.  Whatever is not the common
case (a tensor of inference mode, operands that share memory) goes to the closure, which is kept beside.
"""

from __future__ import annotations

from rushlight._host.call_words_native import Py_False, Py_True, sequence_items, small_int
from rushlight._host.dispatch_native import PyBytes_FromStringAndSize, PyObject_Vectorcall
from rushlight._host.dispatch_words import FAST, O_META, O_PTR, O_RG, O_SPEC, O_STORAGE, PLAN_TYPE
from rushlight._host.node_native import link_view, record, record_view
from rushlight._host.plan_words import (
    BOUNDED,
    C_BACKWARD_SPEC,
    C_CONSTANTS,
    C_ITEM,
    C_LISTS,
    C_RESULTS,
    C_SPECS,
    C_STEPS,
    C_WORDS,
    CONSTANTS,
    CREATION,
    FROM_TENSOR,
    LARGEST,
    LEAST,
    MOST,
    N_GIVEN,
    N_INPUTS,
    N_RESULTS,
    N_SAVED,
    N_SHOWN,
    N_STEPS,
    N_TENSORS,
    N_WORDS,
    OFFSET,
    ORDER,
    QUIET,
    RECORDS,
    RESULTS,
    SAVED,
    SEVERAL,
    SILENT,
    STEPS,
    TARGET,
    TARGET_SPEC,
)
from rushlight._host.pool_native import (
    HANDLE_TYPE,
    LEAST_BIRTH,
    S_BORN,
    S_CHANGED,
    S_NBYTES,
    S_PTR,
    S_VERSION,
    STATE,
    Py_DecRef,
    Py_IncRef,
    Py_None,
    PyErr_NoMemory,
    PyLong_AsLongLong,
    PyObject_Free,
    PyObject_New,
    free,
    storage_new,
    zeroed_storage,
)
from rushlight._host.stub_native import (
    F_CODE,
    F_LOCK,
    H_FN,
    H_METHOD,
    HEADER,
    PyBytes_AsString,
    PyErr_Clear,
    PyLong_Type,
    PyTuple_New,
    PyTuple_SetItem,
    kernel_stub,
    malloc,
    rl_raise,
    run,
    word,
)
from rushlight._host.tensor_native import (
    EMPTY_TEXT,
    O_BASE,
    O_CREATION,
    O_INFERENCE,
    PyLong_FromUnsignedLongLong,
    alias,
    in_inference,
    kept,
    may_overlap,
    new_tensor,
    number_at,
    slot,
    user_place,
)
from rushlight._native import i64, memcpy, native, ptr, stack, u64, unlikely

__all__ = ["PLAN_BYTES", "plan_dealloc", "py_cast", "py_kernel_address", "py_plan"]

# words of a plan object
P_CALL, P_FALLBACK, P_KEEP, P_DATA = range(2, 6)
PLAN_BYTES = 8 * 6
ROOM = 128  # words on the stack


# ***** programs *****


@native("void(ptr, ptr, ptr)")
def guard_memory(data, args, guarded):
    """Hold the memory of a program's tensors: while the interpreter lock is dropped, another thread may take it from them."""
    order = data + 8 * data.i64[ORDER]
    for j in range(data.i64[N_TENSORS]):
        guarded.ptr[j] = None
        if order.i64[j] >= 0:
            guarded.ptr[j] = kept(slot(args.ptr[order.i64[j]], O_STORAGE))


@native("i32(ptr, ptr, ptr, ptr, ptr, ptr)")
def run_steps(data, args, held, made, bufs, guarded):
    """Run a program's steps.  `held` gets the words of its inputs and outputs, `made` the storages; 1 with an exception set.

    `guarded` gets a 1, and the storages of its tensors behind it, once the interpreter lock was dropped.
    """
    count = data.i64[N_INPUTS]
    order = data + 8 * data.i64[ORDER]
    for j in range(count):
        if order.i64[j] < 0:
            held.i64[j] = data.i64[data.i64[CONSTANTS] - 1 - order.i64[j]]
        else:
            item = args.ptr[order.i64[j]]
            if j < data.i64[N_TENSORS]:
                item = slot(item, O_PTR)
            if word(item, held + 8 * j) != 0:
                return 1
    held.i64[0] += data.i64[OFFSET]
    step = data + 8 * data.i64[STEPS]
    after = count
    for _k in range(data.i64[N_STEPS]):
        ints = step.ptr[1]
        words, outputs, dead = step.i64[2], step.i64[3], step.i64[4]
        bufs.i64[F_LOCK] = 0
        bufs.i64[F_CODE] = -1
        for j in range(outputs):
            storage = storage_new(ints.i64[3 + j])
            if storage is None:
                return 1
            made.ptr[after + j] = storage
            held.ptr[after + j] = storage.ptr[S_PTR]
            bufs.ptr[j] = storage.ptr[S_PTR]
        for j in range(words):
            bufs.i64[outputs + j] = held.i64[step.i64[5 + j]]
        if ints.i64[1] & 1 != 0 and guarded.i64[0] == 0:
            guarded.i64[0] = 1
            guard_memory(data, args, guarded + 8)
        status = run(step.ptr[0], bufs, ints)
        if unlikely(status != 0):
            rl_raise(bufs, status)
            return 1
        after += outputs
        for j in range(dead):
            place = step.i64[5 + words + j]
            Py_DecRef(made.ptr[place])
            made.ptr[place] = None
        step = step + 8 * (5 + words + dead)
    return 0


@native("i32(ptr, ptr, ptr)")
def run_program(data, args, out):
    """Run a program; `out` gets the storages of its results (new references).  1 with an exception set."""
    total = data.i64[N_WORDS]
    tensors = data.i64[N_TENSORS]
    need = 2 * total + HEADER + data.i64[LARGEST] + 1 + tensors
    room = stack(8 * ROOM)
    memory = room
    if need > ROOM:
        memory = malloc(8 * need)
        if memory is None:
            PyErr_NoMemory()
            return 1
    held, made = memory, memory + 8 * total
    for k in range(total):
        made.ptr[k] = None
    guarded = made + 8 * total
    guarded.i64[0] = 0
    failed = run_steps(data, args, held, made, guarded + 8 * (1 + tensors + HEADER), guarded)
    results = data + 8 * data.i64[RESULTS]
    for k in range(data.i64[N_RESULTS]):
        out.ptr[k] = None
        if failed == 0:
            place = results.i64[2 * k]
            if place >= 0:
                out.ptr[k] = made.ptr[place]
                made.ptr[place] = None
            else:
                out.ptr[k] = storage_new(0)
                if out.ptr[k] is None:
                    failed = 1
    for k in range(total):
        if made.ptr[k] is not None:
            Py_DecRef(made.ptr[k])
    if guarded.i64[0] != 0:
        for k in range(tensors):
            if guarded.ptr[1 + k] is not None:
                Py_DecRef(guarded.ptr[1 + k])
    if failed != 0:
        for k in range(data.i64[N_RESULTS]):
            if out.ptr[k] is not None:
                Py_DecRef(out.ptr[k])
    if need > ROOM:
        free(memory)
    return failed


# ***** kernels *****


@native("ptr(ptr, ptr, u64, ptr)")
def elsewhere(self, args, flagged, names):
    """The same call by the closure."""
    return PyObject_Vectorcall(self.ptr[P_FALLBACK], args, flagged, names)


@native("ptr(ptr, i64)")
def as_tuple(made, count):
    """New references as a tuple."""
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            PyTuple_SetItem(out, k, made.ptr[k])
        else:
            Py_DecRef(made.ptr[k])
    return out


@native("i64(ptr, ptr)")
def numbers_fit(data, args):
    """Whether the numbers among the arguments are ints that the plan may put into memory as they are."""
    order = data + 8 * data.i64[ORDER]
    for k in range(data.i64[N_TENSORS], data.i64[N_INPUTS]):
        item = args.ptr[order.i64[k]]
        if item.ptr[1] != PyLong_Type:
            return 0
        value = small_int(item)
        if value < data.i64[LEAST] or value > data.i64[MOST]:
            return 0
    return 1


@native("ptr(ptr, ptr, u64, ptr)")
def kernel_plan(self, args, flagged, names):
    """Run a program, and make tensors of its results."""
    data = self.ptr[P_DATA]
    given = i64(flagged & u64(0x7FFFFFFFFFFFFFFF))
    if given != data.i64[N_GIVEN] or names is not None:
        return elsewhere(self, args, flagged, names)
    if data.i64[BOUNDED] != 0:
        if numbers_fit(data, args) == 0:
            return elsewhere(self, args, flagged, names)
    sources = data + 8 * data.i64[SAVED]
    for k in range(data.i64[N_SAVED]):
        if sources.i64[2 * k] == FROM_TENSOR:
            if in_inference(args.ptr[sources.i64[2 * k + 1]]) != 0:
                return elsewhere(self, args, flagged, names)
    total, shown = data.i64[N_RESULTS], data.i64[N_SHOWN]
    results = data + 8 * data.i64[RESULTS]
    order = data + 8 * data.i64[ORDER]
    for k in range(
        data.i64[N_TENSORS]
    ):  # a tensor that was saved, or resized by another thread, may have lost its memory
        wanted = results.ptr[2 * (total + k) + 1]
        if unlikely(wanted is not None and wanted != slot(args.ptr[order.i64[k]], O_SPEC)):
            return elsewhere(self, args, flagged, names)
    made = stack(8 * 64)
    if run_program(data, args, made) != 0:
        return None
    failed = False
    for k in range(total):
        storage = made.ptr[k]
        tensor = new_tensor(storage, results.ptr[2 * k + 1], PyLong_FromUnsignedLongLong(storage.u64[S_PTR]))
        made.ptr[k] = tensor
        failed = failed or tensor is None
    if not failed and data.i64[RECORDS] != 0:
        failed = record(data, args, made) != 0
    if unlikely(failed):
        for k in range(total):
            if made.ptr[k] is not None:
                Py_DecRef(made.ptr[k])
        return None
    for k in range(shown, total):
        Py_DecRef(made.ptr[k])
    if data.i64[SEVERAL] == 0:
        return made.ptr[0]
    return as_tuple(made, shown)


# ***** in-place changes *****


@native("i64(ptr, ptr, ptr)", inline=True)
def is_target(data, other, x):
    """Whether an operand is, element for element, the part of `x` that is changed, and may be."""
    if slot(other, O_SPEC) != data.ptr[TARGET_SPEC] or in_inference(other) != 0:
        return 0
    return i64(PyLong_AsLongLong(slot(other, O_PTR)) == PyLong_AsLongLong(slot(x, O_PTR)) + data.i64[OFFSET])


@native("ptr(ptr, ptr, u64, ptr)")
def inplace_plan(self, args, flagged, names):
    """Run a program that changes one of its arguments; for tensors outside of any graph."""
    data = self.ptr[P_DATA]
    given = i64(flagged & u64(0x7FFFFFFFFFFFFFFF))
    if given != data.i64[N_GIVEN] or names is not None:
        return elsewhere(self, args, flagged, names)
    if data.i64[BOUNDED] != 0:
        if numbers_fit(data, args) == 0:
            return elsewhere(self, args, flagged, names)
    x = args.ptr[data.i64[TARGET]]
    storage = slot(x, O_STORAGE)
    if storage == Py_None or (slot(x, O_RG) != Py_False and data.i64[QUIET] == 0):
        return elsewhere(self, args, flagged, names)
    if storage.i64[S_BORN] < STATE.i64[LEAST_BIRTH]:
        return elsewhere(self, args, flagged, names)
    meta = slot(x, O_META)
    if meta != Py_None:
        if slot(meta, O_INFERENCE) == Py_True or slot(meta, O_CREATION) != FAST.ptr[EMPTY_TEXT]:
            return elsewhere(self, args, flagged, names)
    order = data + 8 * data.i64[ORDER]
    for k in range(data.i64[N_TENSORS]):
        if order.i64[k] != data.i64[TARGET]:
            other = args.ptr[order.i64[k]]
            if may_overlap(slot(other, O_STORAGE), storage) != 0 and is_target(data, other, x) == 0:
                return elsewhere(self, args, flagged, names)
    made = stack(64)
    Py_IncRef(storage)
    failed = run_program(data, args, made)
    if failed == 0:
        storage.i64[S_VERSION] += 1
        before = storage.ptr[S_CHANGED]
        storage.ptr[S_CHANGED] = user_place()
        if before is not None:
            Py_DecRef(before)
    Py_DecRef(storage)
    if failed != 0:
        return None
    return kept(Py_None if data.i64[SILENT] != 0 else x)


# ***** views *****


@native("ptr(ptr, ptr, u64, ptr)")
def view_plan(self, args, flagged, names):
    """Show a tensor's memory under other strides."""
    data = self.ptr[P_DATA]
    given = i64(flagged & u64(0x7FFFFFFFFFFFFFFF))
    x = args.ptr[0]
    if given < 1 or names is not None or in_inference(x) != 0:
        return elsewhere(self, args, flagged, names)
    held = slot(x, O_META)
    base = x
    if held != Py_None:
        if slot(held, O_BASE) != Py_None:
            base = slot(held, O_BASE)
    storage = slot(x, O_STORAGE)
    if storage == Py_None or (data.i64[RECORDS] == 0 and slot(base, O_RG) == Py_True):
        return elsewhere(self, args, flagged, names)
    address = stack(8)
    if word(slot(x, O_PTR), address) != 0:
        return None
    if data.i64[BOUNDED] != 0:
        if data.i64[MOST] != 0:  # from the start of the memory
            address.u64[0] = storage.u64[S_PTR]
        if address.i64[0] + data.i64[LEAST] > storage.i64[S_PTR] + storage.i64[S_NBYTES]:
            return elsewhere(self, args, flagged, names)
    count = data.i64[N_SHOWN]
    made = stack(8 * 64)
    results = data + 8 * data.i64[RESULTS]
    failed = False
    for k in range(count):
        made.ptr[k] = None
        if not failed:
            at = PyLong_FromUnsignedLongLong(address.u64[0] + results.u64[2 * k])
            out = new_tensor(kept(storage), results.ptr[2 * k + 1], at)
            made.ptr[k] = out
            failed = out is None
            if not failed:
                failed = link_view(base, held, out, data.ptr[CREATION]) != 0
    if not failed and data.i64[RECORDS] != 0:
        failed = record_view(data, args, made) != 0
    if unlikely(failed):
        for k in range(count):
            if made.ptr[k] is not None:
                Py_DecRef(made.ptr[k])
        return None
    if data.i64[SEVERAL] == 0:
        return made.ptr[0]
    return as_tuple(made, count)


@native("ptr(ptr, ptr, u64, ptr)")
def detach_plan(self, args, flagged, names):
    """The same memory outside of the graph."""
    x = args.ptr[0]
    storage = slot(x, O_STORAGE)
    if storage == Py_None or in_inference(x) != 0:
        return elsewhere(self, args, flagged, names)
    return alias(x)


# ***** plans that need no kernel *****


@native("ptr(ptr, ptr, u64, ptr)")
def identity_plan(self, args, flagged, names):
    """The first argument itself."""
    return kept(args.ptr[0])


@native("ptr(ptr, ptr, u64, ptr)")
def constant_plan(self, args, flagged, names):
    """The same object each time."""
    return kept(self.ptr[P_FALLBACK])


@native("ptr(ptr, ptr, u64, ptr)")
def fresh_plan(self, args, flagged, names):
    """Memory that nobody has written, or with the flag SILENT zeros."""
    data = self.ptr[P_DATA]
    spec = data.ptr[data.i64[RESULTS]]
    nbytes = data.i64[data.i64[RESULTS] + 1]
    storage = zeroed_storage(nbytes) if data.i64[SILENT] != 0 else storage_new(nbytes)
    if storage is None:
        return None
    return new_tensor(storage, spec, PyLong_FromUnsignedLongLong(storage.u64[S_PTR]))


@native("ptr(ptr, ptr, u64, ptr)")
def choose_plan(self, args, flagged, names):
    """A tuple of some of the arguments."""
    data = self.ptr[P_DATA]
    count = data.i64[N_RESULTS]
    places = data + 8 * data.i64[RESULTS]
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            PyTuple_SetItem(out, k, kept(args.ptr[places.i64[k]]))
    return out


@native("ptr(ptr, ptr, u64, ptr)")
def show_plan(self, args, flagged, names):
    """A tuple of the arguments under other strides, outside of any graph; with the flag SILENT the first of them alone, in no inference mode."""
    data = self.ptr[P_DATA]
    count = data.i64[N_RESULTS]
    results = data + 8 * data.i64[RESULTS]
    address = stack(8)
    if data.i64[SILENT] != 0:
        if in_inference(args.ptr[0]) != 0:
            return elsewhere(self, args, flagged, names)
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            x = args.ptr[results.i64[3 * k]]
            if slot(x, O_STORAGE) == Py_None or word(slot(x, O_PTR), address) != 0:
                Py_DecRef(out)
                PyErr_Clear()
                return elsewhere(self, args, flagged, names)
            at = PyLong_FromUnsignedLongLong(address.u64[0] + results.u64[3 * k + 1])
            tensor = new_tensor(kept(slot(x, O_STORAGE)), results.ptr[3 * k + 2], at)
            if tensor is None or data.i64[SILENT] != 0:
                Py_DecRef(out)
                return tensor
            PyTuple_SetItem(out, k, tensor)
    return out


@native("i32(ptr, ptr, ptr)")
def run_tape(data, keep, places):
    """Run the steps of a plan sequence.  `places` has the arguments, and gets what the steps give (new references); 1 with an exception set."""
    step = data + 8 * data.i64[STEPS]
    given = data.i64[N_GIVEN]
    inputs = stack(8 * 64)
    for _k in range(data.i64[N_STEPS]):
        count, several, first, dead = step.i64[1], step.i64[2], step.i64[3], step.i64[4]
        for j in range(count):
            place = step.i64[5 + j]
            inputs.ptr[j] = places.ptr[place] if place >= 0 else keep.ptr[-1 - place]
        out = PyObject_Vectorcall(step.ptr[0], inputs, u64(count), None)
        if out is None:
            return 1
        if several == 0:
            places.ptr[first] = out
        else:
            for j in range(several):
                places.ptr[first + j] = kept(sequence_items(out).ptr[j])
            Py_DecRef(out)
        for j in range(dead):
            place = step.i64[5 + count + j]
            if place >= given:
                gone = places.ptr[place]
                places.ptr[place] = None
                Py_DecRef(gone)
        step = step + 8 * (5 + count + dead)
    return 0


@native("ptr(ptr, ptr, u64, ptr)")
def sequence_plan(self, args, flagged, names):
    """Run other plans, on the arguments, on constants and on what plans before them gave."""
    data = self.ptr[P_DATA]
    given, total = data.i64[N_GIVEN], data.i64[N_WORDS]
    keep = sequence_items(self.ptr[P_KEEP])
    places = stack(8 * 128)
    for k in range(total):
        places.ptr[k] = None
        if k < given:
            places.ptr[k] = args.ptr[k]
    Py_IncRef(self)  # what runs may let go of plans
    failed = run_tape(data, keep, places)
    out = ptr(0)
    if failed == 0:
        count = data.i64[N_RESULTS]
        results = data + 8 * data.i64[RESULTS]
        if data.i64[SEVERAL] == 0:
            place = results.i64[0]
            out = kept(places.ptr[place] if place >= 0 else keep.ptr[-1 - place])
        else:
            out = PyTuple_New(count)
            for k in range(count):
                if out is not None:
                    place = results.i64[k]
                    PyTuple_SetItem(out, k, kept(places.ptr[place] if place >= 0 else keep.ptr[-1 - place]))
    for k in range(given, total):
        if places.ptr[k] is not None:
            Py_DecRef(places.ptr[k])
    Py_DecRef(self)
    return out


@native("ptr(ptr, ptr, u64, ptr)")
def item_plan(self, args, flagged, names):
    """The only element of a tensor as a Python number."""
    data = self.ptr[P_DATA]
    x = args.ptr[0]
    address = stack(8)
    if slot(x, O_STORAGE) == Py_None:
        return elsewhere(self, args, flagged, names)
    if word(slot(x, O_PTR), address) != 0:
        return None
    return number_at(address.ptr[0], data.i64[N_TENSORS])


# ***** what Python calls *****


@native("ptr(i64, ptr, ptr, ptr)")
def new_plan(kind, fallback, keep, data):
    """A plan object of this kind with this description."""
    self = PyObject_New(FAST.ptr[PLAN_TYPE])
    if self is None:
        return None
    self.ptr[P_CALL] = kernel_plan
    if kind == 1:
        self.ptr[P_CALL] = view_plan
    if kind == 2:
        self.ptr[P_CALL] = inplace_plan
    if kind == 3:
        self.ptr[P_CALL] = detach_plan
    if kind == 4:
        self.ptr[P_CALL] = identity_plan
    if kind == 5:
        self.ptr[P_CALL] = constant_plan
    if kind == 6:
        self.ptr[P_CALL] = fresh_plan
    if kind == 7:
        self.ptr[P_CALL] = item_plan
    if kind == 8:
        self.ptr[P_CALL] = choose_plan
    if kind == 9:
        self.ptr[P_CALL] = show_plan
    if kind == 10:
        self.ptr[P_CALL] = sequence_plan
    self.ptr[P_FALLBACK] = kept(fallback)
    self.ptr[P_KEEP] = kept(keep)
    self.ptr[P_DATA] = data
    return self


@native("ptr(ptr, ptr, i64)")
def py_plan(unused, args, count):
    """plan(kind: int, fallback, keep, address of the description) -> plan object"""
    return new_plan(PyLong_AsLongLong(args.ptr[0]), args.ptr[1], args.ptr[2], ptr(PyLong_AsLongLong(args.ptr[3])))


@native("void(ptr, ptr, ptr, ptr, ptr)")
def cast_words(words, layout, values, specs, backward_spec):
    """Fill in what differs in a description: `layout` as of `cast`."""
    items = sequence_items(values)
    count = layout.i64[C_STEPS]
    step = layout + 8 * C_LISTS
    end = words + 8 * layout.i64[C_WORDS]
    for _k in range(count):
        start, stop = step.i64[1], step.i64[2]
        words.ptr[step.i64[0]] = end
        for j in range(start, stop):
            value = small_int(items.ptr[j])
            if unlikely(value == -1 << 63):  # the bits of a double, as they may be
                value = PyLong_AsLongLong(items.ptr[j])
            end.i64[j - start] = value
        end = end + 8 * (stop - start)
        step = step + 24
    results = layout.i64[C_RESULTS]
    for k in range(layout.i64[C_SPECS]):
        words.ptr[results + 2 * k + 1] = sequence_items(specs).ptr[k]
        if layout.i64[C_ITEM] != 0:  # views: where each begins
            words.i64[results + 2 * k] = small_int(items.ptr[step.i64[k]]) * layout.i64[C_ITEM]
    if layout.i64[C_BACKWARD_SPEC] != 0:
        words.ptr[layout.i64[C_BACKWARD_SPEC]] = backward_spec


@native("ptr(ptr, ptr, i64)")
def py_cast(unused, args, count):
    """cast(kind, fallback, first, words: bytes, layout: bytes, values: tuple, specs: tuple, backward spec) -> plan object

    A plan that differs from another, whose description is `words` and which keeps `first`, in its constants, specs and backward spec.  `layout` says
    where they are: numbers as C_WORDS and those after it name them, then for every step the place of its constants, and which of `values` they are;
    or for every view which of `values` says where it begins, in elements of C_ITEM bytes.
    """
    held, layout, values, specs = args.ptr[3], PyBytes_AsString(args.ptr[4]), args.ptr[5], args.ptr[6]
    size = held.i64[2]
    made = PyBytes_FromStringAndSize(None, size + 8 * layout.i64[C_CONSTANTS])
    if made is None:
        return None
    words = PyBytes_AsString(made)
    memcpy(words, PyBytes_AsString(held), size)
    keep = PyTuple_New(4)
    if keep is None:
        Py_DecRef(made)
        return None
    PyTuple_SetItem(keep, 0, kept(args.ptr[2]))
    PyTuple_SetItem(keep, 1, kept(specs))
    PyTuple_SetItem(keep, 2, kept(args.ptr[7]))
    PyTuple_SetItem(keep, 3, made)
    cast_words(words, layout, values, specs, args.ptr[7])
    out = new_plan(PyLong_AsLongLong(args.ptr[0]), args.ptr[1], keep, words)
    Py_DecRef(keep)
    return out


@native("void(ptr)")
def plan_dealloc(self):
    """tp_dealloc."""
    kind, fallback, keep = self.ptr[1], self.ptr[P_FALLBACK], self.ptr[P_KEEP]
    PyObject_Free(self)
    Py_DecRef(kind)
    Py_DecRef(fallback)
    Py_DecRef(keep)


@native("ptr(ptr, ptr, i64)")
def py_kernel_address(unused, args, count):
    """kernel_address(handle) -> where the kernel behind a callable of `make_callable` lies; None for other functions"""
    handle = args.ptr[0]
    if handle.ptr[1] == STATE.ptr[HANDLE_TYPE]:
        if handle.ptr[H_METHOD + 1] == kernel_stub:
            return PyLong_FromUnsignedLongLong(handle.u64[H_FN])
    return kept(Py_None)
