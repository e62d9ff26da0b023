"""Autograd nodes in the native language: recording for a call, for views, and the backward of a node by its last plan."""

from __future__ import annotations

from rushlight._host.call_words_native import is_plain, state_word
from rushlight._host.dispatch_words import HOST, O_NODE, O_RG, O_SPEC, O_STORAGE
from rushlight._host.plans.plan_records import FROM_NUMBER, FROM_RESULT, RECORDING, SAVED
from rushlight._host.python_native import (
    Py_DecRef,
    Py_IncRef,
    Py_None,
    Py_NotImplemented,
    Py_True,
    PyFloat_Type,
    PyIter_Next,
    PyList_Append,
    PyList_New,
    PyLong_FromLongLong,
    PyLong_Type,
    PyObject_Vectorcall,
    PyTuple_New,
    PyTuple_SetItem,
    PyTuple_Type,
    PyType_GenericAlloc,
    PyWeakref_NewRef,
    kept,
    sequence_items,
    small_int,
)
from rushlight._host.storage_native import S_VERSION
from rushlight._host.tensor_native import (
    ADD_VIEW,
    COUNTER,
    EMPTY_TEXT,
    O_BASE,
    O_CREATION,
    O_EDGES,
    O_EXTRA,
    O_INFO,
    O_OUTPUT_NR,
    O_SAVED,
    O_SEQ,
    O_VERSIONS,
    O_VIEWS,
    O_WHERE,
    R_MAP,
    R_PLAN,
    R_SPEC,
    R_WORD,
    alias,
    edge_of,
    meta_of,
    replace_slot,
    set_slot,
    slot,
    user_place,
)
from rushlight._native import i32, native, stack, u64

__all__ = ["link_view", "py_quick_backward", "record", "record_view"]


SAVED_WORDS = len(SAVED)


# ***** recording *****


@native("ptr(ptr, ptr)")
def new_node(recording, args):
    """A node with its edges; the caller fills the other slots."""
    node = PyType_GenericAlloc(recording[RECORDING.node_type], 0)
    if node is None:
        return None
    count, places = recording[RECORDING.n_edges], recording[RECORDING.edges]
    edges = PyTuple_New(count)
    failed = edges is None
    for k in range(count):
        if not failed:
            edge = edge_of(args.ptr[places.i64[k]])
            if edge is None:
                failed = True
            else:
                PyTuple_SetItem(edges, k, edge)
    number = PyIter_Next(HOST.ptr[COUNTER])
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
    set_slot(node, O_INFO, kept(recording[RECORDING.backward_spec]))
    return node


@native("ptr(ptr)", inline=True)
def version_of(x):
    """The `stamp` of the storage of `x`: counters of writes and of other changes."""
    storage = slot(x, O_STORAGE)
    if storage == Py_None:
        return PyLong_FromLongLong(0)
    return PyLong_FromLongLong(storage.i64[S_VERSION])


@native("i32(ptr, ptr, ptr, ptr)")
def save(node, recording, args, results):
    """Save the values that backward needs; 1 with an exception set."""
    count, value = recording[RECORDING.n_saved], recording[RECORDING.saved]
    saved, versions = PyTuple_New(count), PyTuple_New(count)
    failed = saved is None or versions is None
    for k in range(count):
        if not failed:
            source, index = value[SAVED.source], value[SAVED.index]
            value = value + 8 * SAVED_WORDS
            if source == FROM_RESULT:
                item = alias(results.ptr[index])
            else:
                item = kept(args.ptr[index])
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


@native("i32(ptr, i64, ptr, i64)")
def show(node, differentiable, results, count):
    """Set the node as the `grad_fn` of the results that have a gradient: a bit for each, the last for all further ones;
    1 with an exception set.
    """
    for k in range(count):
        if (differentiable >> (k if k < 63 else 63)) & 1 != 0:
            out = results.ptr[k]
            replace_slot(out, O_NODE, kept(node))
            replace_slot(out, O_RG, kept(Py_True))
            if k > 0:
                meta = meta_of(out)
                if meta is None:
                    return 1
                replace_slot(meta, O_OUTPUT_NR, PyLong_FromLongLong(k))
    return 0


@native("i32(ptr, ptr, ptr, i64)")
def record(recording, args, results, count):
    """Record a node for a call whose first `count` results the caller gets; 1 with an exception set."""
    node = new_node(recording, args)
    if node is None:
        return 1
    failed = save(node, recording, args, results)
    if failed == 0:
        failed = show(node, recording[RECORDING.differentiable], results, count)
    Py_DecRef(node)
    return failed


# ***** views *****


@native("i32(ptr, ptr)")
def add_view(base, view):
    """Add a view to the list of its base; 1 with an exception set."""
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
    if count > 8 and count & (count - 1) == 0:  # drop the views that are gone
        arguments = stack(16)
        arguments.ptr[0] = base
        arguments.ptr[1] = view
        done = PyObject_Vectorcall(HOST.ptr[ADD_VIEW], arguments, u64(2), None)
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
def link_view(base, meta_of_source, out, creation):
    """Mark `out` as a view of `base`, made from a tensor with the meta `meta_of_source`; 1 with an exception set."""
    meta = meta_of(out)
    if meta is None:
        return 1
    replace_slot(meta, O_BASE, kept(base))
    if creation == HOST.ptr[EMPTY_TEXT] and meta_of_source != Py_None:
        if slot(meta_of_source, O_BASE) != Py_None:
            creation = slot(meta_of_source, O_CREATION)
    if creation != HOST.ptr[EMPTY_TEXT]:
        replace_slot(meta, O_CREATION, kept(creation))
    return add_view(base, out)


@native("i32(ptr, ptr, ptr, i64)")
def record_view(recording, args, views, count):
    """Record a node for views, which all have gradients; 1 with an exception set."""
    node = new_node(recording, args)
    if node is None:
        return 1
    set_slot(node, O_SAVED, PyTuple_New(0))
    set_slot(node, O_VERSIONS, PyTuple_New(0))
    set_slot(node, O_WHERE, kept(Py_None))
    failed = show(node, -1, views, count)
    Py_DecRef(node)
    return failed


# ***** backward *****


@native("i64(ptr, ptr, ptr)")
def unpack(saved, versions, out):
    """Write the values that a node saved.  Returns how many, -1 where one was changed since."""
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
def mapped(results, order):
    """The items of a tuple (whose reference is taken over) in another order; None where the order says None."""
    count = order.i64[2]
    items, places = sequence_items(results), sequence_items(order)
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            place = places.ptr[k]
            PyTuple_SetItem(out, k, kept(Py_None if place == Py_None else items.ptr[small_int(place)]))
    Py_DecRef(results)
    return out


@native("ptr(ptr, ptr, i64)")
def py_quick_backward(unused, args, count):
    """quick_backward(node, grad) -> gradients for the node's edges by the last plan of its backward spec;
    NotImplemented where that does not fit

    The node is an `OpNode` with one result.
    """
    node, grad = args.ptr[0], args.ptr[1]
    backward_spec = slot(node, O_INFO)
    plan = slot(backward_spec, R_PLAN)
    if plan != Py_None and is_plain(grad) != 0:
        if slot(backward_spec, R_SPEC) == slot(grad, O_SPEC) and small_int(slot(backward_spec, R_WORD)) == state_word():
            inputs = stack(8 * 64)
            n = unpack(slot(node, O_SAVED), slot(node, O_VERSIONS), inputs)
            if n >= 0:
                inputs.ptr[n] = grad
                Py_IncRef(plan)
                out = PyObject_Vectorcall(plan, inputs, u64(n + 1), None)
                Py_DecRef(plan)
                if out is None or slot(backward_spec, R_MAP) == Py_None:
                    return out
                return mapped(out, slot(backward_spec, R_MAP))
    return kept(Py_NotImplemented)
