"""Plans that run without Python, in the native language: kernels, views, in-place changes.

A *plan object* does for one signature what a closure in Python does: `kernel_plan` runs the steps of a program and
makes tensors of its results, `view_plan` shows the same memory under other strides, `inplace_plan` runs a program for
its effect.  Rarer cases (a tensor of inference mode, operands that share memory) go to the Python fallback, which is
kept beside.  `plan_records` declares the table of each kind.
"""

from __future__ import annotations

from rushlight._host.arguments_native import H_FN, H_METHOD, word
from rushlight._host.device_records import DEVICE, FRESH_SIZES, HEADER, LAUNCH, MAY_UNLOCK
from rushlight._host.dispatch_words import (
    HANDLE_TYPE,
    HOST,
    LEAST_BIRTH,
    O_META,
    O_PTR,
    O_RG,
    O_SPEC,
    O_STORAGE,
    PLAN_TYPE,
    SPEC_RELEASED,
)
from rushlight._host.node_native import link_view, record, record_view
from rushlight._host.plans.plan_records import (
    CAST,
    CAST_CONSTANTS,
    CAST_OFFSET,
    CHECKED,
    CHOOSE,
    CONSTANT,
    DETACH,
    FRESH,
    FROM_TENSOR,
    IDENTITY,
    INPLACE,
    ITEM,
    KERNEL,
    PLAN,
    PROGRAM,
    RECORDING,
    RETYPE,
    SAVED,
    SEQUENCE,
    SEQUENCE_STEP,
    SHOW,
    SHOWN,
    STEP,
    VIEW,
    VIEWED,
    tag_of,
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
    PyErr_Format,
    PyErr_NoMemory,
    PyErr_Occurred,
    PyExc_RuntimeError,
    PyExc_SystemError,
    PyLong_AsLongLong,
    PyLong_FromUnsignedLongLong,
    PyLong_Type,
    PyObject_Free,
    PyObject_New,
    PyObject_Vectorcall,
    PyTuple_New,
    PyTuple_SetItem,
    free,
    kept,
    malloc,
    sequence_items,
    small_int,
)
from rushlight._host.storage_native import S_BORN, S_CHANGED, S_NBYTES, S_OWNER, S_PTR, S_VERSION, storage_new
from rushlight._host.tensor_native import (
    EMPTY_TEXT,
    O_BASE,
    O_CREATION,
    O_INFERENCE,
    alias,
    in_inference,
    may_overlap,
    new_tensor,
    slot,
    user_place,
)
from rushlight._native import call_ptr, i32, i64, memcpy, native, ptr, stack, u64, unlikely

__all__ = ["PLAN_BYTES", "device_storage", "plan_dealloc", "py_cast", "py_kernel_address", "py_plan"]

# words of a plan object
P_CALL, P_FALLBACK, P_KEEP, P_TABLE = range(2, 6)
PLAN_BYTES = 8 * 6
STACK_ROOM = 128  # words on the stack
MOST_RESULTS = 64
# The most that a plan sequence may hold, and the most that a step of it may take
SEQUENCE_SLOTS, SEQUENCE_INPUTS = 128, 64
KERNEL_TAG = tag_of(KERNEL)
VIEW_TAG = tag_of(VIEW)
INPLACE_TAG = tag_of(INPLACE)
DETACH_TAG = tag_of(DETACH)
IDENTITY_TAG = tag_of(IDENTITY)
CONSTANT_TAG = tag_of(CONSTANT)
FRESH_TAG = tag_of(FRESH)
ITEM_TAG = tag_of(ITEM)
CHOOSE_TAG = tag_of(CHOOSE)
SHOW_TAG = tag_of(SHOW)
RETYPE_TAG = tag_of(RETYPE)
SEQUENCE_TAG = tag_of(SEQUENCE)
STEP_WORDS = len(STEP)
SAVED_WORDS = len(SAVED)
VIEWED_WORDS = len(VIEWED)
SHOWN_WORDS = len(SHOWN)
SEQUENCE_STEP_WORDS = len(SEQUENCE_STEP)
CAST_CONSTANTS_WORDS = len(CAST_CONSTANTS)
CAST_OFFSET_WORDS = len(CAST_OFFSET)


# ***** tables *****


@native("ptr(ptr, i64)")
def wrong_table(table, tag):
    """Say that a plan was given a table of another kind; null."""
    return PyErr_Format(
        PyExc_SystemError.ptr[0],
        "a native plan reads tables tagged %llx and was given one tagged %llx",
        tag,
        table[PLAN.tag],
    )


@native("ptr(ptr, i64)", inline=True)
def table_of(self, tag):
    """The table of a plan object; in a checked build null with an exception set where it is not of this kind."""
    table = self.ptr[P_TABLE]
    if CHECKED:
        if table[PLAN.tag] != tag:
            return wrong_table(table, tag)
    return table


# ***** programs *****


@native("void(ptr, ptr, ptr)")
def guard_memory(program, args, guarded):
    """Hold the memory of a program's tensors: while the interpreter lock is dropped, another thread may take it from
    them.
    """
    order = program[PROGRAM.order]
    for j in range(program[PROGRAM.n_tensors]):
        guarded.ptr[j] = None
        if order.i64[j] >= 0:
            guarded.ptr[j] = kept(slot(args.ptr[order.i64[j]], O_STORAGE))


@native("i32(ptr, ptr, ptr)", inline=True)
def read_inputs(program, args, slots):
    """Put the words of a program's inputs into the first slots; 1 with an exception set.

    A plan may be found for what a tensor was a moment ago: whether its memory is there is asked where it is read.
    """
    order, tensors = program[PROGRAM.order], program[PROGRAM.n_tensors]
    for j in range(program[PROGRAM.n_inputs]):
        if order.i64[j] < 0:
            slots.i64[j] = program[PROGRAM.constants].i64[-1 - order.i64[j]]
        else:
            item = args.ptr[order.i64[j]]
            if j < tensors:
                if unlikely(slot(item, O_SPEC).ptr[HOST.i64[SPEC_RELEASED] >> 3] == Py_True):
                    PyErr_Format(
                        PyExc_RuntimeError.ptr[0],
                        "another thread took a tensor's memory: its storage was made too small",
                    )
                    return 1
                item = slot(item, O_PTR)
            if word(item, slots + 8 * j) != 0:
                return 1
    slots.i64[0] += program[PROGRAM.offset]
    return 0


@native("ptr(ptr, i64)")
def device_storage(device, nbytes):
    """A new Storage over so many bytes of a device's memory; null with an exception set."""
    storage = storage_new(device[DEVICE.allocate], device[DEVICE.release], nbytes)
    if storage is not None:
        owner = device[DEVICE.owner]
        if owner is not None:
            storage.ptr[S_OWNER] = kept(owner)
    return storage


@native("void(ptr, ptr)")
def drop_dead(step, storages):
    """Let go of what nobody reads after a step."""
    dead = step[STEP.dead]
    for j in range(step[STEP.n_dead]):
        Py_DecRef(storages.ptr[dead.i64[j]])
        storages.ptr[dead.i64[j]] = None


@native("i32(ptr, ptr, ptr, ptr, ptr, ptr)")
def run_steps(program, args, slots, storages, bufs, guarded):
    """Run a program's steps.  `slots` gets the words of its inputs and results, `storages` their memory; 1 with an
    exception set.

    `guarded` gets a 1, and the storages of its tensors behind it, before the interpreter lock is dropped.
    """
    if read_inputs(program, args, slots) != 0:
        return 1
    device = program[PROGRAM.device]
    step = program[PROGRAM.steps]
    after = program[PROGRAM.n_inputs]
    for _k in range(program[PROGRAM.n_steps]):
        constants = step[STEP.constants]
        fresh = step[STEP.fresh]
        for j in range(fresh):
            storage = device_storage(device, constants.i64[FRESH_SIZES + j])
            if storage is None:
                return 1
            storages.ptr[after + j] = storage
            slots.ptr[after + j] = storage.ptr[S_PTR]
            bufs.ptr[j] = storage.ptr[S_PTR]
        words = step[STEP.words]
        for j in range(step[STEP.n_words]):
            bufs.i64[fresh + j] = slots.i64[words.i64[j]]
        if constants[LAUNCH.flags] & MAY_UNLOCK != 0 and guarded.i64[0] == 0:
            guarded.i64[0] = 1
            guard_memory(program, args, guarded + 8)
        status = call_ptr("i32(ptr, ptr, ptr)", device[DEVICE.launch], step[STEP.kernel], bufs, constants)
        if unlikely(status != 0):
            call_ptr("ptr(ptr, i32)", device[DEVICE.fail], bufs, status)
            return 1
        after += fresh
        if step[STEP.n_dead] != 0:
            drop_dead(step, storages)
        step = step + 8 * STEP_WORDS
    return 0


@native("i32(ptr, ptr, ptr, i32)", inline=True)
def take_results(program, storages, out, failed):
    """Take a program's results out of its slots, nulls where it has failed; 1 with an exception set."""
    places = program[PROGRAM.results]
    for k in range(program[PROGRAM.n_results]):
        out.ptr[k] = None
        if failed == 0:
            place = places.i64[k]
            if place >= 0:
                out.ptr[k] = storages.ptr[place]
                storages.ptr[place] = None
            else:
                out.ptr[k] = device_storage(program[PROGRAM.device], 0)
                failed = i32(out.ptr[k] is None)
    return failed


@native("i32(ptr, ptr, ptr)")
def run_program(program, args, out):
    """Run a program; `out` gets the storages of its results (new references).  1 with an exception set."""
    total = program[PROGRAM.n_slots]
    tensors = program[PROGRAM.n_tensors]
    need = 2 * total + HEADER + program[PROGRAM.largest] + 1 + tensors
    room = stack(8 * STACK_ROOM)
    memory = room
    if need > STACK_ROOM:
        memory = malloc(8 * need)
        if memory is None:
            PyErr_NoMemory()
            return 1
    slots, storages = memory, memory + 8 * total
    for k in range(total):
        storages.ptr[k] = None
    guarded = storages + 8 * total
    guarded.i64[0] = 0
    failed = run_steps(program, args, slots, storages, guarded + 8 * (1 + tensors + HEADER), guarded)
    failed = take_results(program, storages, out, failed)
    for k in range(total):
        if storages.ptr[k] is not None:
            Py_DecRef(storages.ptr[k])
    if guarded.i64[0] != 0:
        for k in range(tensors):
            if guarded.ptr[1 + k] is not None:
                Py_DecRef(guarded.ptr[1 + k])
    if failed != 0:
        drop_all(out, program[PROGRAM.n_results])
    if need > STACK_ROOM:
        free(memory)
    return failed


# ***** kernels *****


@native("ptr(ptr, ptr, u64, ptr)")
def fallback(self, args, flagged, names):
    """The same call by the Python fallback."""
    return PyObject_Vectorcall(self.ptr[P_FALLBACK], args, flagged, names)


@native("ptr(ptr, i64)")
def as_tuple(items, count):
    """New references as a tuple."""
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            PyTuple_SetItem(out, k, items.ptr[k])
        else:
            Py_DecRef(items.ptr[k])
    return out


@native("void(ptr, i64)")
def drop_all(items, count):
    """Let go of references, where they are not null."""
    for k in range(count):
        if items.ptr[k] is not None:
            Py_DecRef(items.ptr[k])


@native("i64(ptr, ptr)")
def numbers_fit(program, args):
    """Whether the numbers among the arguments are ints that the plan may put into memory as they are."""
    order = program[PROGRAM.order]
    for k in range(program[PROGRAM.n_tensors], program[PROGRAM.n_inputs]):
        item = args.ptr[order.i64[k]]
        if item.ptr[1] != PyLong_Type:
            return 0
        value = small_int(item)
        if value < program[PROGRAM.least] or value > program[PROGRAM.most]:
            return 0
    return 1


@native("i64(ptr, ptr)", inline=True)
def saves_inference(recording, args):
    """Whether a value that a node would keep is a tensor made in inference mode."""
    saved = recording[RECORDING.saved]
    for _k in range(recording[RECORDING.n_saved]):
        if saved[SAVED.source] == FROM_TENSOR:
            if in_inference(args.ptr[saved[SAVED.index]]) != 0:
                return 1
        saved = saved + 8 * SAVED_WORDS
    return 0


@native("i64(ptr, ptr)", inline=True)
def inputs_changed(table, args):
    """Whether a tensor has another spec than at the plan's making: one that was saved, or resized by another thread,
    may have lost its memory.
    """
    program, wanted = table[KERNEL.program], table[KERNEL.input_specs]
    order = program[PROGRAM.order]
    for k in range(program[PROGRAM.n_tensors]):
        spec = wanted.ptr[k]
        if unlikely(spec is not None and spec != slot(args.ptr[order.i64[k]], O_SPEC)):
            return 1
    return 0


@native("ptr(ptr, ptr, u64, ptr)")
def kernel_plan(self, args, flagged, names):
    """Run a program, and make tensors of its results."""
    table = table_of(self, KERNEL_TAG)
    if CHECKED:
        if table is None:
            return None
    program, recording = table[KERNEL.program], table[KERNEL.recording]
    if i64(flagged & u64(0x7FFFFFFFFFFFFFFF)) != table[KERNEL.given] or names is not None:
        return fallback(self, args, flagged, names)
    if program[PROGRAM.bounded] != 0:
        if numbers_fit(program, args) == 0:
            return fallback(self, args, flagged, names)
    if saves_inference(recording, args) != 0 or inputs_changed(table, args) != 0:
        return fallback(self, args, flagged, names)
    tensors = stack(8 * MOST_RESULTS)
    if run_program(program, args, tensors) != 0:
        return None
    total, specs = program[PROGRAM.n_results], table[KERNEL.specs]
    failed = False
    for k in range(total):
        storage = tensors.ptr[k]
        tensor = new_tensor(storage, specs.ptr[k], PyLong_FromUnsignedLongLong(storage.u64[S_PTR]))
        tensors.ptr[k] = tensor
        failed = failed or tensor is None
    shown = table[KERNEL.n_shown]
    if not failed and table[KERNEL.records] != 0:
        failed = record(recording, args, tensors, shown) != 0
    if unlikely(failed):
        drop_all(tensors, total)
        return None
    for k in range(shown, total):
        Py_DecRef(tensors.ptr[k])
    if table[KERNEL.several] == 0:
        return tensors.ptr[0]
    return as_tuple(tensors, shown)


# ***** in-place changes *****


@native("i64(ptr, ptr, ptr)", inline=True)
def is_target(table, other, x):
    """Whether an operand is, element for element, the part of `x` that is changed, and may be."""
    if slot(other, O_SPEC) != table[INPLACE.target_spec] or in_inference(other) != 0:
        return 0
    address = PyLong_AsLongLong(slot(x, O_PTR)) + table[INPLACE.program][PROGRAM.offset]
    return i64(PyLong_AsLongLong(slot(other, O_PTR)) == address)


@native("i64(ptr, ptr)", inline=True)
def may_change(table, x):
    """Whether a tensor is outside of any graph, of the levels in force and of inference mode."""
    storage = slot(x, O_STORAGE)
    if storage == Py_None or (slot(x, O_RG) != Py_False and table[INPLACE.quiet] == 0):
        return 0
    if storage.i64[S_BORN] < HOST.i64[LEAST_BIRTH]:
        return 0
    meta = slot(x, O_META)
    if meta != Py_None:
        if slot(meta, O_INFERENCE) == Py_True or slot(meta, O_CREATION) != HOST.ptr[EMPTY_TEXT]:
            return 0
    return 1


@native("i64(ptr, ptr, ptr)", inline=True)
def operands_apart(table, args, x):
    """Whether no other operand shares memory with the target, but for those that may be it."""
    program, target = table[INPLACE.program], table[INPLACE.target]
    order = program[PROGRAM.order]
    for k in range(program[PROGRAM.n_tensors]):
        if order.i64[k] != target:
            other = args.ptr[order.i64[k]]
            if may_overlap(slot(other, O_STORAGE), slot(x, O_STORAGE)) != 0 and is_target(table, other, x) == 0:
                return 0
    return 1


@native("ptr(ptr, ptr, u64, ptr)")
def inplace_plan(self, args, flagged, names):
    """Run a program that changes one of its arguments; for tensors outside of any graph."""
    table = table_of(self, INPLACE_TAG)
    if CHECKED:
        if table is None:
            return None
    program = table[INPLACE.program]
    if i64(flagged & u64(0x7FFFFFFFFFFFFFFF)) != table[INPLACE.given] or names is not None:
        return fallback(self, args, flagged, names)
    if program[PROGRAM.bounded] != 0:
        if numbers_fit(program, args) == 0:
            return fallback(self, args, flagged, names)
    x = args.ptr[table[INPLACE.target]]
    if may_change(table, x) == 0 or operands_apart(table, args, x) == 0:
        return fallback(self, args, flagged, names)
    no_results = stack(8)
    storage = kept(slot(x, O_STORAGE))
    failed = run_program(program, args, no_results)
    if failed == 0:
        storage.i64[S_VERSION] += 1
        before = storage.ptr[S_CHANGED]
        storage.ptr[S_CHANGED] = user_place()
        if before is not None:
            Py_DecRef(before)
    Py_DecRef(storage)
    if failed != 0:
        return None
    return kept(Py_None if table[INPLACE.gives_none] != 0 else x)


# ***** views *****


@native("i32(ptr, i64, ptr, ptr, ptr, ptr)")
def show_runs(table, start, storage, base, meta, views):
    """Make the views of the memory from `start` on; 1 with an exception set, and nulls after the last one made."""
    run, number = table[VIEW.runs], i64(0)
    for _ in range(table[VIEW.n_runs]):
        at = start + run[VIEWED.offset]
        for _ in range(run[VIEWED.count]):
            out = new_tensor(kept(storage), run[VIEWED.spec], PyLong_FromUnsignedLongLong(u64(at)))
            views.ptr[number] = out
            if out is None:
                return 1
            if link_view(base, meta, out, table[VIEW.creation]) != 0:
                return 1
            number = number + 1
            at = at + run[VIEWED.step]
        run = run + 8 * VIEWED_WORDS
    return 0


@native("ptr(ptr, ptr, u64, ptr)")
def view_plan(self, args, flagged, names):
    """Show a tensor's memory under other strides."""
    table = table_of(self, VIEW_TAG)
    if CHECKED:
        if table is None:
            return None
    x = args.ptr[0]
    if i64(flagged & u64(0x7FFFFFFFFFFFFFFF)) < 1 or names is not None or in_inference(x) != 0:
        return fallback(self, args, flagged, names)
    meta = slot(x, O_META)
    base = x
    if meta != Py_None:
        if slot(meta, O_BASE) != Py_None:
            base = slot(meta, O_BASE)
    storage = slot(x, O_STORAGE)
    if storage == Py_None or (table[VIEW.records] == 0 and slot(base, O_RG) == Py_True):
        return fallback(self, args, flagged, names)
    address = stack(8)
    if word(slot(x, O_PTR), address) != 0:
        return None
    if table[VIEW.bounded] != 0:
        if table[VIEW.whole] != 0:
            address.u64[0] = storage.u64[S_PTR]
        if address.i64[0] + table[VIEW.span] > storage.i64[S_PTR] + storage.i64[S_NBYTES]:
            return fallback(self, args, flagged, names)
    count, several, views = table[VIEW.n_views], table[VIEW.several] != 0, stack(8)
    made = views
    views.ptr[0] = None
    if several:
        made = PyTuple_New(count)
        if made is None:
            return None
        views = sequence_items(made)
    failed = show_runs(table, address.i64[0], storage, base, meta, views) != 0
    if not failed and table[VIEW.records] != 0:
        failed = record_view(table[VIEW.recording], args, views, count) != 0
    if unlikely(failed):
        if several:
            Py_DecRef(made)
        else:
            drop_all(views, 1)
        return None
    return made if several else views.ptr[0]


@native("ptr(ptr, ptr, u64, ptr)")
def detach_plan(self, args, flagged, names):
    """The same memory outside of the graph."""
    if CHECKED:
        if table_of(self, DETACH_TAG) is None:
            return None
    x = args.ptr[0]
    storage = slot(x, O_STORAGE)
    if storage == Py_None or in_inference(x) != 0:
        return fallback(self, args, flagged, names)
    return alias(x)


@native("ptr(ptr, ptr, i64)", inline=True)
def shown_under(x, spec, offset):
    """A tensor's memory under another spec, some bytes on, outside of any graph; null, without an exception, for one
    without memory.
    """
    address = stack(8)
    if slot(x, O_STORAGE) == Py_None or word(slot(x, O_PTR), address) != 0:
        PyErr_Clear()
        return None
    return new_tensor(kept(slot(x, O_STORAGE)), spec, PyLong_FromUnsignedLongLong(u64(address.i64[0] + offset)))


@native("ptr(ptr, ptr, u64, ptr)")
def show_plan(self, args, flagged, names):
    """A tuple of the arguments under other strides, outside of any graph."""
    table = table_of(self, SHOW_TAG)
    if CHECKED:
        if table is None:
            return None
    count, shown = table[SHOW.n_shown], table[SHOW.shown]
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            tensor = shown_under(args.ptr[shown[SHOWN.argument]], shown[SHOWN.spec], shown[SHOWN.offset])
            if tensor is None:
                Py_DecRef(out)
                if PyErr_Occurred() is not None:
                    return None
                return fallback(self, args, flagged, names)
            PyTuple_SetItem(out, k, tensor)
        shown = shown + 8 * SHOWN_WORDS
    return out


@native("ptr(ptr, ptr, u64, ptr)")
def retype_plan(self, args, flagged, names):
    """The first argument under another spec, outside of any graph and in no inference mode."""
    table = table_of(self, RETYPE_TAG)
    if CHECKED:
        if table is None:
            return None
    out = ptr(0)
    if in_inference(args.ptr[0]) == 0:
        out = shown_under(args.ptr[0], table[RETYPE.spec], 0)
    if out is None and PyErr_Occurred() is None:
        return fallback(self, args, flagged, names)
    return out


# ***** plans that need no kernel *****


@native("ptr(ptr, ptr, u64, ptr)")
def identity_plan(self, args, flagged, names):
    """The first argument itself."""
    if CHECKED:
        if table_of(self, IDENTITY_TAG) is None:
            return None
    return kept(args.ptr[0])


@native("ptr(ptr, ptr, u64, ptr)")
def constant_plan(self, args, flagged, names):
    """The same object each time."""
    table = table_of(self, CONSTANT_TAG)
    if CHECKED:
        if table is None:
            return None
    return kept(table[CONSTANT.value])


@native("ptr(ptr, ptr, u64, ptr)")
def fresh_plan(self, args, flagged, names):
    """A tensor over memory that nobody has written, or over zeros."""
    table = table_of(self, FRESH_TAG)
    if CHECKED:
        if table is None:
            return None
    device = table[FRESH.device]
    allocate = device[DEVICE.allocate_zeroed] if table[FRESH.zeroed] != 0 else device[DEVICE.allocate]
    storage = storage_new(allocate, device[DEVICE.release], table[FRESH.nbytes])
    if storage is None:
        return None
    owner = device[DEVICE.owner]
    if owner is not None:
        storage.ptr[S_OWNER] = kept(owner)
    return new_tensor(storage, table[FRESH.spec], PyLong_FromUnsignedLongLong(storage.u64[S_PTR]))


@native("ptr(ptr, ptr, u64, ptr)")
def choose_plan(self, args, flagged, names):
    """A tuple of some of the arguments."""
    table = table_of(self, CHOOSE_TAG)
    if CHECKED:
        if table is None:
            return None
    count, picks = table[CHOOSE.n_picks], table[CHOOSE.picks]
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            PyTuple_SetItem(out, k, kept(args.ptr[picks.i64[k]]))
    return out


@native("ptr(ptr, ptr, u64, ptr)")
def item_plan(self, args, flagged, names):
    """The only element of a tensor as a Python number, by the reader of its device."""
    table = table_of(self, ITEM_TAG)
    if CHECKED:
        if table is None:
            return None
    x = args.ptr[0]
    address = stack(8)
    if slot(x, O_STORAGE) == Py_None:
        return fallback(self, args, flagged, names)
    if word(slot(x, O_PTR), address) != 0:
        return None
    return call_ptr("ptr(ptr)", table[ITEM.reader], address.ptr[0])


# ***** sequences of plans *****


@native("ptr(ptr, ptr, i64)", inline=True)
def at_slot(slots, constants, place):
    """The object in a slot or, below zero, among the constants (borrowed)."""
    return slots.ptr[place] if place >= 0 else constants.ptr[-1 - place]


@native("i32(ptr, ptr)")
def run_sequence(table, slots):
    """Run the steps of a plan sequence.  `slots` has the arguments, and gets the results of the steps (new references);
    1 with an exception set.
    """
    step, constants, given = table[SEQUENCE.steps], table[SEQUENCE.constants], table[SEQUENCE.given]
    inputs = stack(8 * SEQUENCE_INPUTS)
    for _k in range(table[SEQUENCE.n_steps]):
        count, places = step[SEQUENCE_STEP.n_inputs], step[SEQUENCE_STEP.inputs]
        for j in range(count):
            inputs.ptr[j] = at_slot(slots, constants, places.i64[j])
        out = PyObject_Vectorcall(step[SEQUENCE_STEP.plan], inputs, u64(count), None)
        if out is None:
            return 1
        several, first = step[SEQUENCE_STEP.several], step[SEQUENCE_STEP.first]
        if several == 0:
            slots.ptr[first] = out
        else:
            for j in range(several):
                slots.ptr[first + j] = kept(sequence_items(out).ptr[j])
            Py_DecRef(out)
        dead = step[SEQUENCE_STEP.dead]
        for j in range(step[SEQUENCE_STEP.n_dead]):
            place = dead.i64[j]
            if place >= given:
                gone = slots.ptr[place]
                slots.ptr[place] = None
                Py_DecRef(gone)
        step = step + 8 * SEQUENCE_STEP_WORDS
    return 0


@native("ptr(ptr, ptr)")
def sequence_results(table, slots):
    """The results of a plan sequence that has run."""
    count, places, constants = table[SEQUENCE.n_results], table[SEQUENCE.results], table[SEQUENCE.constants]
    if table[SEQUENCE.several] == 0:
        return kept(at_slot(slots, constants, places.i64[0]))
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            PyTuple_SetItem(out, k, kept(at_slot(slots, constants, places.i64[k])))
    return out


@native("ptr(ptr, ptr, u64, ptr)")
def sequence_plan(self, args, flagged, names):
    """Run other plans, on the arguments, on constants and on the results of plans before them."""
    table = table_of(self, SEQUENCE_TAG)
    if CHECKED:
        if table is None:
            return None
    given, total = table[SEQUENCE.given], table[SEQUENCE.n_slots]
    slots = stack(8 * SEQUENCE_SLOTS)
    for k in range(total):
        slots.ptr[k] = None
        if k < given:
            slots.ptr[k] = args.ptr[k]
    Py_IncRef(self)  # what runs may let go of plans
    out = ptr(0)
    if run_sequence(table, slots) == 0:
        out = sequence_results(table, slots)
    for k in range(given, total):
        if slots.ptr[k] is not None:
            Py_DecRef(slots.ptr[k])
    Py_DecRef(self)
    return out


# ***** what Python calls *****


@native("ptr(i64)")
def plan_function(tag):
    """The vectorcall of plans with tables of this kind."""
    if tag == KERNEL_TAG:
        return kernel_plan
    if tag == VIEW_TAG:
        return view_plan
    if tag == INPLACE_TAG:
        return inplace_plan
    if tag == DETACH_TAG:
        return detach_plan
    if tag == IDENTITY_TAG:
        return identity_plan
    if tag == CONSTANT_TAG:
        return constant_plan
    if tag == FRESH_TAG:
        return fresh_plan
    if tag == ITEM_TAG:
        return item_plan
    if tag == CHOOSE_TAG:
        return choose_plan
    if tag == SHOW_TAG:
        return show_plan
    if tag == RETYPE_TAG:
        return retype_plan
    return sequence_plan


@native("ptr(ptr, ptr, ptr)")
def new_plan(otherwise, keep, table):
    """A plan object with this table, of the kind that its tag says."""
    self = PyObject_New(HOST.ptr[PLAN_TYPE])
    if self is None:
        return None
    self.ptr[P_CALL] = plan_function(table[PLAN.tag])
    self.ptr[P_FALLBACK] = kept(otherwise)
    self.ptr[P_KEEP] = kept(keep)
    self.ptr[P_TABLE] = table
    return self


@native("ptr(ptr, ptr, i64)")
def py_plan(unused, args, count):
    """plan(fallback, keep, address of the table) -> plan object"""
    return new_plan(args.ptr[0], args.ptr[1], ptr(PyLong_AsLongLong(args.ptr[2])))


@native("void(ptr, ptr, ptr, ptr, ptr)")
def cast_table(table, changes, values, specs, backward_spec):
    """Fill in the words in which a table differs; `changes` is a record CAST."""
    items = sequence_items(values)
    step = changes[CAST.steps]
    end = table + 8 * changes[CAST.n_words]
    for _k in range(changes[CAST.n_steps]):
        start, stop = step[CAST_CONSTANTS.start], step[CAST_CONSTANTS.stop]
        table.ptr[step[CAST_CONSTANTS.place]] = end
        for j in range(start, stop):
            value = small_int(items.ptr[j])
            if unlikely(value == -1 << 63):  # the bits of a double, as they may be
                value = PyLong_AsLongLong(items.ptr[j])
            end.i64[j - start] = value
        end = end + 8 * (stop - start)
        step = step + 8 * CAST_CONSTANTS_WORDS
    places = changes[CAST.specs]
    for k in range(changes[CAST.n_specs]):
        table.ptr[places.i64[k]] = sequence_items(specs).ptr[k]
    view = changes[CAST.offsets]
    for _k in range(changes[CAST.n_offsets]):
        table.i64[view[CAST_OFFSET.place]] = small_int(items.ptr[view[CAST_OFFSET.value]]) * changes[CAST.itemsize]
        view = view + 8 * CAST_OFFSET_WORDS
    if changes[CAST.backward_spec] != 0:
        table.ptr[changes[CAST.backward_spec]] = backward_spec


@native("ptr(ptr, ptr, i64)")
def py_cast(unused, args, count):
    """cast(fallback, first, table: bytes, changes: bytes, values: tuple, specs: tuple, backward spec) -> plan object

    A plan that differs from another, whose table is `table` and which keeps `first`, in its constants, specs, offsets
    of views and backward spec.  `changes` is a record CAST: it says where these are, and which of `values`.
    """
    before, changes, values, specs = args.ptr[2], PyBytes_AsString(args.ptr[3]), args.ptr[4], args.ptr[5]
    size = before.i64[2]
    held = PyBytes_FromStringAndSize(None, size + 8 * changes[CAST.n_constants])
    if held is None:
        return None
    table = PyBytes_AsString(held)
    memcpy(table, PyBytes_AsString(before), size)
    keep = PyTuple_New(4)
    if keep is None:
        Py_DecRef(held)
        return None
    PyTuple_SetItem(keep, 0, kept(args.ptr[1]))
    PyTuple_SetItem(keep, 1, kept(specs))
    PyTuple_SetItem(keep, 2, kept(args.ptr[6]))
    PyTuple_SetItem(keep, 3, held)
    cast_table(table, changes, values, specs, args.ptr[6])
    out = new_plan(args.ptr[0], keep, table)
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
    """kernel_address(handle) -> where the kernel behind a callable that has a stub lies; None for other functions"""
    handle = args.ptr[0]
    if handle.ptr[1] == HOST.ptr[HANDLE_TYPE]:
        if handle.ptr[H_METHOD + 1] != handle.ptr[H_FN]:
            return PyLong_FromUnsignedLongLong(handle.u64[H_FN])
    return kept(Py_None)
