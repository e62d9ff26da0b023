"""Plans that run without Python, in the native language: kernels, views, in-place changes, and the nodes they record.

A *plan object* does for one signature what a closure in Python does: `kernel_plan` runs the steps of a program and makes tensors of what
comes out, `view_plan` shows the same memory under other strides, `inplace_plan` runs a program for its effect.  Whatever is not the common
case (a tensor of inference mode, operands that share memory) goes to the closure, which is kept beside.
"""

from __future__ import annotations

from rushlight._backends.cpu.dispatch_native import (
    FAST,
    O_META,
    O_NODE,
    O_PTR,
    O_RG,
    O_SPEC,
    O_STORAGE,
    PLAN_TYPE,
    TENSOR_TYPE,
    Py_False,
    Py_True,
    PyLong_FromLongLong,
    PyObject_GetAttr,
    PyObject_Vectorcall,
    PyTuple_Type,
    is_plain,
    sequence_items,
    small_int,
    state_word,
)
from rushlight._backends.cpu.pool_native import (
    HANDLE_TYPE,
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
    storage_wrap,
    zeroed_storage,
)
from rushlight._backends.cpu.stub_native import (
    F_CODE,
    F_LOCK,
    H_FN,
    H_METHOD,
    HEADER,
    PyErr_Clear,
    PyFloat_Type,
    PyLong_Type,
    PyTuple_New,
    PyTuple_SetItem,
    kernel_stub,
    malloc,
    rl_raise,
    run,
    word,
)
from rushlight._backends.native import extern, extern_data, f64, i32, i64, native, ptr, stack, static, u64, unlikely

__all__ = ["PLAN_BYTES", "plan_dealloc", "py_kernel_address", "py_nested", "py_new_meta", "py_over_array", "py_plan", "py_quick_backward", "py_user_place"]

# words of FAST that plans need besides those of `dispatch_native`
O_EDGES, O_EXTRA, O_SEQ, O_INFO, O_SAVED, O_VERSIONS, O_WHERE = range(40, 47)
META_TYPE, COUNTER, EDGE_OF, ADD_VIEW, FILENAME, PREFIX, EMPTY_TEXT = range(48, 55)
O_OUTPUT_NR, O_ACCUMULATOR, O_BASE, O_VIEWS, O_CREATION, O_INFERENCE = range(56, 62)
R_SPEC, R_WORD, R_PLAN, R_MAP = range(92, 96)  # of a recipe: for which gradient and state its last plan was, that plan, its results' order
META_SLOTS, META_TABLE = 64, 65  # how many slots an AutogradMeta has; then for each its offset and its first value

CODES = static("rl_codes", 16 * 256)  # of code objects met: itself, and whether it is the package's own

# words of a plan object
P_CALL, P_FALLBACK, P_KEEP, P_DATA = range(2, 6)
PLAN_BYTES = 8 * 6

# words of a plan's description (see `_backends.cpu.dispatch`)
N_INPUTS, N_TENSORS, N_STEPS, STEPS, N_WORDS, LARGEST, N_RESULTS, RESULTS, N_SHOWN, ORDER = range(10)
RECIPE, NODE_TYPE, N_EDGES, EDGES, N_SAVED, SAVED, DIFFERENTIABLE = range(10, 17)
CREATION, RECORDS, SEVERAL, N_GIVEN, CONSTANTS, OFFSET, SILENT, QUIET, TARGET, BOUNDED, LEAST, MOST, DESCRIPTION_WORDS = range(17, 30)
FROM_TENSOR, FROM_NUMBER, FROM_RESULT = 0, 1, 2  # what a saved value is: an argument, or a result or residual
ROOM = 128  # words on the stack

PyType_GenericAlloc = extern("PyType_GenericAlloc", "ptr(ptr, i64)")
PyIter_Next = extern("PyIter_Next", "ptr(ptr)")
PyLong_FromUnsignedLongLong = extern("PyLong_FromUnsignedLongLong", "ptr(u64)")
PyEval_GetFrame = extern("PyEval_GetFrame", "ptr()")
PyFrame_GetBack = extern("PyFrame_GetBack", "ptr(ptr)")
PyFrame_GetCode = extern("PyFrame_GetCode", "ptr(ptr)")
PyFrame_GetLasti = extern("PyFrame_GetLasti", "i32(ptr)")
PyUnicode_Tailmatch = extern("PyUnicode_Tailmatch", "i64(ptr, ptr, i64, i64, i32)")
PyWeakref_NewRef = extern("PyWeakref_NewRef", "ptr(ptr, ptr)")
PyList_New = extern("PyList_New", "ptr(i64)")
Py_NotImplemented = extern_data("_Py_NotImplementedStruct")
PyList_SetItem = extern("PyList_SetItem", "i32(ptr, i64, ptr)")
PyFloat_FromDouble = extern("PyFloat_FromDouble", "ptr(f64)")
PyList_Append = extern("PyList_Append", "i32(ptr, ptr)")


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


# ***** programs *****


@native("i32(ptr, ptr, ptr, ptr, ptr)")
def run_steps(data, args, held, made, bufs):
    """Run a program's steps.  `held` gets the words of its inputs and outputs, `made` the storages; 1 with an exception set."""
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
    need = 2 * total + HEADER + data.i64[LARGEST]
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
    failed = run_steps(data, args, held, made, memory + 8 * (2 * total + HEADER))
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
    if failed != 0:
        for k in range(data.i64[N_RESULTS]):
            if out.ptr[k] is not None:
                Py_DecRef(out.ptr[k])
    if need > ROOM:
        free(memory)
    return failed


# ***** nodes *****


@native("ptr(ptr, ptr, ptr)")
def new_node(data, args, kind):
    """A node with its edges; the rest of its slots is filled by the caller."""
    node = PyType_GenericAlloc(kind, 0)
    if node is None:
        return None
    count = data.i64[N_EDGES]
    places = data + 8 * data.i64[EDGES]
    edges = PyTuple_New(count)
    failed = edges is None
    for k in range(count):
        if not failed:
            edge = edge_of(args.ptr[places.i64[k]])
            if edge is None:
                failed = True
            else:
                PyTuple_SetItem(edges, k, edge)
    number = PyIter_Next(FAST.ptr[COUNTER])
    if failed or number is None:
        if edges is not None:
            Py_DecRef(edges)
        if number is not None:
            Py_DecRef(number)
        Py_DecRef(node)
        return None
    set_slot(node, O_EDGES, edges)
    set_slot(node, O_SEQ, number)
    set_slot(node, O_EXTRA, kept(Py_None))
    set_slot(node, O_INFO, kept(data.ptr[RECIPE]))
    return node


@native("ptr(ptr)", inline=True)
def version_of(x):
    """How often the memory of `x` was changed, as an int."""
    storage = slot(x, O_STORAGE)
    if storage == Py_None:
        return PyLong_FromLongLong(0)
    return PyLong_FromLongLong(storage.i64[S_VERSION])


@native("i32(ptr, ptr, ptr, ptr)")
def save(node, data, args, made):
    """Keep what backward needs; 1 with an exception set."""
    count = data.i64[N_SAVED]
    sources = data + 8 * data.i64[SAVED]
    saved, versions = PyTuple_New(count), PyTuple_New(count)
    failed = saved is None or versions is None
    for k in range(count):
        if not failed:
            source, place = sources.i64[2 * k], sources.i64[2 * k + 1]
            if source == FROM_RESULT:
                item = alias(made.ptr[place])
            else:
                item = kept(args.ptr[place])
            if item is None:
                failed = True
            else:
                PyTuple_SetItem(saved, k, item)
                PyTuple_SetItem(versions, k, kept(Py_None) if source == FROM_NUMBER else version_of(item))
    if failed:
        if saved is not None:
            Py_DecRef(saved)
        if versions is not None:
            Py_DecRef(versions)
        return 1
    set_slot(node, O_SAVED, saved)
    set_slot(node, O_VERSIONS, versions)
    set_slot(node, O_WHERE, user_place() if count > 0 else kept(Py_None))
    return 0


@native("i32(ptr, ptr, ptr)")
def show(node, data, made):
    """Make the node the history of the results; 1 with an exception set."""
    for k in range(data.i64[N_SHOWN]):
        if (data.i64[DIFFERENTIABLE] >> k) & 1 != 0:
            out = made.ptr[k]
            replace_slot(out, O_NODE, kept(node))
            replace_slot(out, O_RG, kept(Py_True))
            if k > 0:
                meta = meta_of(out)
                if meta is None:
                    return 1
                replace_slot(meta, O_OUTPUT_NR, PyLong_FromLongLong(k))
    return 0


@native("i32(ptr, ptr, ptr)")
def record(data, args, made):
    """A node for one call; 1 with an exception set."""
    node = new_node(data, args, data.ptr[NODE_TYPE])
    if node is None:
        return 1
    failed = save(node, data, args, made)
    if failed == 0:
        failed = show(node, data, made)
    Py_DecRef(node)
    return failed


# ***** plans *****


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
    made = stack(8 * 64)
    if run_program(data, args, made) != 0:
        return None
    total, shown = data.i64[N_RESULTS], data.i64[N_SHOWN]
    results = data + 8 * data.i64[RESULTS]
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


@native("i64(ptr, ptr)", inline=True)
def may_overlap(a, b):
    """Whether two storages share memory."""
    if a == Py_None:
        return 1
    return i64(a.i64[S_PTR] < b.i64[S_PTR] + b.i64[S_NBYTES] and b.i64[S_PTR] < a.i64[S_PTR] + a.i64[S_NBYTES])


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
    meta = slot(x, O_META)
    if meta != Py_None:
        if slot(meta, O_INFERENCE) == Py_True or slot(meta, O_CREATION) != FAST.ptr[EMPTY_TEXT]:
            return elsewhere(self, args, flagged, names)
    order = data + 8 * data.i64[ORDER]
    for k in range(data.i64[N_TENSORS]):
        if order.i64[k] != data.i64[TARGET] and may_overlap(slot(args.ptr[order.i64[k]], O_STORAGE), storage) != 0:
            return elsewhere(self, args, flagged, names)
    made = stack(64)
    if run_program(data, args, made) != 0:
        return None
    storage.i64[S_VERSION] += 1
    before = storage.ptr[S_CHANGED]
    storage.ptr[S_CHANGED] = user_place()
    if before is not None:
        Py_DecRef(before)
    return kept(Py_None if data.i64[SILENT] != 0 else x)


# ***** views *****


@native("i32(ptr, ptr)")
def add_view(base, view):
    """Let `base` know of a view; 1 with an exception set."""
    meta = meta_of(base)
    if meta is None:
        return 1
    views = slot(meta, O_VIEWS)
    if views == Py_None:
        views = PyList_New(0)
        if views is None:
            return 1
        replace_slot(meta, O_VIEWS, views)
    count = views.i64[2]
    if count > 8 and count & (count - 1) == 0:  # time to forget those that are gone
        arguments = stack(16)
        arguments.ptr[0] = base
        arguments.ptr[1] = view
        done = PyObject_Vectorcall(FAST.ptr[ADD_VIEW], arguments, u64(2), None)
        if done is None:
            return 1
        Py_DecRef(done)
        return 0
    weak = PyWeakref_NewRef(view, None)
    if weak is None:
        return 1
    failed = PyList_Append(views, weak)
    Py_DecRef(weak)
    return i32(failed != 0)


@native("i32(ptr, ptr, ptr, ptr)")
def link_view(base, held, out, creation):
    """Remember that `out` is a view of `base`, made from a tensor with the meta `held`; 1 with an exception set."""
    meta = meta_of(out)
    if meta is None:
        return 1
    replace_slot(meta, O_BASE, kept(base))
    if creation == FAST.ptr[EMPTY_TEXT] and held != Py_None:
        if slot(held, O_BASE) != Py_None:
            creation = slot(held, O_CREATION)
    if creation != FAST.ptr[EMPTY_TEXT]:
        replace_slot(meta, O_CREATION, kept(creation))
    return add_view(base, out)


@native("i32(ptr, ptr, ptr)")
def record_view(data, args, made):
    """A node for views; 1 with an exception set."""
    node = new_node(data, args, data.ptr[NODE_TYPE])
    if node is None:
        return 1
    set_slot(node, O_SAVED, PyTuple_New(0))
    set_slot(node, O_VERSIONS, PyTuple_New(0))
    set_slot(node, O_WHERE, kept(Py_None))
    failed = show(node, data, made)
    Py_DecRef(node)
    return failed


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


# ***** backward *****


@native("i64(ptr, ptr, ptr)")
def unpack(saved, versions, out):
    """Write what a node saved; how much it is, -1 where something is not as it was left."""
    if saved.ptr[1] != PyTuple_Type or versions.ptr[1] != PyTuple_Type or saved.i64[2] > 60:
        return -1
    items, numbers = sequence_items(saved), sequence_items(versions)
    for k in range(saved.i64[2]):
        item = items.ptr[k]
        if numbers.ptr[k] == Py_None:
            if item.ptr[1] != PyFloat_Type and item.ptr[1] != PyLong_Type:
                return -1
        else:
            storage = slot(item, O_STORAGE)
            if storage == Py_None or small_int(numbers.ptr[k]) != storage.i64[S_VERSION]:
                return -1
        out.ptr[k] = item
    return saved.i64[2]


@native("ptr(ptr, ptr)")
def mapped(made, order):
    """The items of a tuple (whose reference is taken over) in another order; None where the order says None."""
    count = order.i64[2]
    items, places = sequence_items(made), sequence_items(order)
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            place = places.ptr[k]
            PyTuple_SetItem(out, k, kept(Py_None if place == Py_None else items.ptr[small_int(place)]))
    Py_DecRef(made)
    return out


@native("ptr(ptr, ptr, i64)")
def py_quick_backward(unused, args, count):
    """quick_backward(node, grad) -> the gradients of the node's edges by its recipe's last plan; NotImplemented for what it is not made for

    The node is an `OpNode` with one result.
    """
    node, grad = args.ptr[0], args.ptr[1]
    recipe = slot(node, O_INFO)
    plan = slot(recipe, R_PLAN)
    if plan != Py_None and is_plain(grad) != 0:
        if slot(recipe, R_SPEC) == slot(grad, O_SPEC) and small_int(slot(recipe, R_WORD)) == state_word():
            inputs = stack(8 * 64)
            n = unpack(slot(node, O_SAVED), slot(node, O_VERSIONS), inputs)
            if n >= 0:
                inputs.ptr[n] = grad
                Py_IncRef(plan)
                out = PyObject_Vectorcall(plan, inputs, u64(n + 1), None)
                Py_DecRef(plan)
                if out is None or slot(recipe, R_MAP) == Py_None:
                    return out
                return mapped(out, slot(recipe, R_MAP))
    return kept(Py_NotImplemented)


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
    """Run the steps of a tape.  `places` has the arguments, and gets what the steps give (new references); 1 with an exception set."""
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
def tape_plan(self, args, flagged, names):
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


@native("ptr(ptr, i64)")
def number_at(p, code):
    """The element at an address as a Python number; `code` is one of `NUMBER_CODES` in `_engine.native_plans`."""
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


# ***** what Python calls *****


@native("ptr(ptr, ptr, i64)")
def py_plan(unused, args, count):
    """plan(kind: int, fallback, keep, address of the description) -> plan object"""
    kind, data = PyLong_AsLongLong(args.ptr[0]), PyLong_AsLongLong(args.ptr[3])
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
        self.ptr[P_CALL] = tape_plan
    self.ptr[P_FALLBACK] = kept(args.ptr[1])
    self.ptr[P_KEEP] = kept(args.ptr[2])
    self.i64[P_DATA] = data
    return self


@native("ptr(ptr, ptr, i64)")
def py_new_meta(unused, args, count):
    """new_meta() -> an `AutogradMeta` with its defaults"""
    return new_meta()


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
