"""Launches without Python: a program's kernels are given to the calling thread's stream, one after the other.

`launch` is the `DEVICE.launch` of a GPU: the host's native plans call it with the addresses of results, temporaries
and inputs.  `program_stub` does the same for programs that Python calls with addresses and numbers.
"""

from __future__ import annotations

from rushlight._backends.cuda.native.memory_native import allocate, release
from rushlight._backends.cuda.native.parameters_native import (
    fill_addresses,
    fill_maps,
    fill_numbers,
    may_wait,
    pass_parameters,
)
from rushlight._backends.cuda.native.records import CALL, LAUNCHED, LAUNCHED_BYTES, PROGRAM
from rushlight._backends.cuda.native.words_native import AT, MOST_DEVICES, STATE, THREAD_WORDS, THREADS, stream_here
from rushlight._host.arguments_native import H_FN, rl_count_error, word
from rushlight._host.device_records import FRESH_SIZES, HEADER, LAUNCH
from rushlight._host.python_native import (
    Py_DecRef,
    Py_None,
    PyErr_NoMemory,
    PyEval_RestoreThread,
    PyEval_SaveThread,
    PyList_Append,
    PyList_New,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyLong_FromUnsignedLongLong,
    PyObject_Vectorcall,
    PyThreadState_Get,
    PyThreadState_GetID,
    PyTuple_New,
    PyTuple_SetItem,
    free,
    kept,
    malloc,
    sequence_items,
)
from rushlight._host.storage_native import S_OWNER, S_PTR, storage_new
from rushlight._host.tensor_native import user_frame_code
from rushlight._native import call_ptr, i32, i64, native, ptr, stack, u8, u32, u64, unlikely

__all__ = [
    "ASK_PYTHON", "LIBRARY_FAILED", "NOTES", "fail", "launch", "no_launch", "program_stub", "py_note", "py_notes", "py_tell_thread", "py_thread",
]  # fmt: skip

NOTES = 64  # launches that are remembered
ASK_PYTHON = -2  # the status of an emulated launch that Python is to do: it knows why
ONE_BY_ONE = -3  # the status of a graph whose launches are given one after the other
LIBRARY_FAILED = 1 << 20  # and the status that a function of a library returned
RAISED = -1  # the status of a launch whose exception is set
STACK_WORDS = 64


# ***** threads, and who started what *****


@native("ptr(ptr, ptr, i64)")
def py_thread(unused, args, count):
    """thread() -> the number of the calling thread, which no other ever has"""
    return PyLong_FromUnsignedLongLong(PyThreadState_GetID(PyThreadState_Get()))


@native("ptr(ptr, ptr, i64)")
def py_tell_thread(unused, args, count):
    """tell_thread(device, streams: tuple): the context of the calling thread and its current streams, by device"""
    number = PyThreadState_GetID(PyThreadState_Get())
    entry = STATE.ptr[AT.threads] + 8 * THREAD_WORDS * i64(number & u64(THREADS - 1))
    entry.u64[0] = number
    entry.i64[1] = PyLong_AsLongLong(args.ptr[0])
    items = sequence_items(args.ptr[1])
    for k in range(min(args.ptr[1].i64[2], i64(MOST_DEVICES))):
        entry.i64[2 + k] = PyLong_AsLongLong(items.ptr[k])
    return kept(Py_None)


@native("void(ptr)")
def note(name):
    """Remember that the user's line starts `name`."""
    at = stack(8)
    code = user_frame_code(at)
    count = STATE.ptr[AT.note_count]
    entry = STATE.ptr[AT.notes] + 24 * (count.i64[0] & (NOTES - 1))
    count.i64[0] += 1
    before_name, before = entry.ptr[0], entry.ptr[1]
    entry.ptr[0] = kept(name)
    entry.ptr[1] = code
    entry.i64[2] = at.i64[0]
    if before_name is not None:
        Py_DecRef(before_name)
    if before is not None:
        Py_DecRef(before)


@native("ptr(ptr, ptr, i64)")
def py_note(unused, args, count):
    """note(name): the user's line starts something of this name"""
    note(args.ptr[0])
    return kept(Py_None)


@native("ptr(ptr, ptr, i64)")
def py_notes(unused, args, count):
    """notes(most) -> so many of the last launches, (name, code object or None, instruction) each, and how many there were
    in all
    """
    total = STATE.ptr[AT.note_count].i64[0]
    most = min(PyLong_AsLongLong(args.ptr[0]), i64(NOTES))
    out = PyList_New(0)
    for k in range(max(total - most, i64(0)), total):
        entry = STATE.ptr[AT.notes] + 24 * (k & (NOTES - 1))
        row = PyTuple_New(3)
        if row is None or out is None:
            return None
        PyTuple_SetItem(row, 0, kept(entry.ptr[0]))
        code = entry.ptr[1]
        PyTuple_SetItem(row, 1, kept(Py_None if code is None else code))
        PyTuple_SetItem(row, 2, PyLong_FromLongLong(entry.i64[2]))
        PyList_Append(out, row)
        Py_DecRef(row)
    pair = PyTuple_New(2)
    if pair is not None:
        PyTuple_SetItem(pair, 0, out)
        PyTuple_SetItem(pair, 1, PyLong_FromLongLong(total))
    return pair


# ***** launches *****


@native("i32(ptr, ptr)")
def call_library(item, stream):
    """Call a function of a library; 0, or LIBRARY_FAILED with its status."""
    words = item[LAUNCHED.words]
    words.ptr[item[LAUNCHED.stream]] = stream
    status = call_ptr(
        "i32(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64)",
        item[LAUNCHED.function],
        words.i64[0], words.i64[1], words.i64[2], words.i64[3], words.i64[4], words.i64[5], words.i64[6], words.i64[7],
        words.i64[8], words.i64[9], words.i64[10], words.i64[11], words.i64[12], words.i64[13], words.i64[14], words.i64[15],
    )  # fmt: skip
    if unlikely(status != 0):
        return LIBRARY_FAILED + status
    return i32(0)


@native("i32(ptr, ptr, ptr, ptr)")
def start(program, item, bufs, stream):
    """Give one kernel to a stream; the driver's status, or ASK_PYTHON."""
    function, threads, shared = item[LAUNCHED.function], item[LAUNCHED.threads], item[LAUNCHED.shared]
    unaligned = fill_addresses(item, bufs)
    if item[LAUNCHED.stream] >= 0:
        if unlikely(unaligned != 0):
            return ASK_PYTHON
        return call_library(item, stream)
    if unlikely(unaligned != 0):
        function, threads, shared = item[LAUNCHED.other], item[LAUNCHED.other_threads], item[LAUNCHED.other_shared]
        if function is None:
            return ASK_PYTHON
    if item[LAUNCHED.n_numbers] != 0:
        fill_numbers(item, bufs)
    if item[LAUNCHED.n_maps] != 0:
        status = fill_maps(item)
        if unlikely(status != 0):
            return status
    return pass_parameters(program, item, function, threads, shared, stream)


@native("i32(ptr, ptr)")
def called(function, given):
    """Call a function in Python with two objects, which are let go of; RAISED with an exception set, or 0."""
    found: ptr = None
    if given.ptr[0] is not None and given.ptr[1] is not None:
        found = PyObject_Vectorcall(function, given, u64(2), None)
    for k in range(2):
        if given.ptr[k] is not None:
            Py_DecRef(given.ptr[k])
    if found is None:
        return RAISED
    Py_DecRef(found)
    return 0


@native("i32(ptr, ptr, i64)")
def launch_slow(program, bufs, first):
    """The launches from one on, by Python; RAISED with an exception set, or 0."""
    given = stack(16)
    given.ptr[0] = PyLong_FromUnsignedLongLong(u64(i64(bufs)))
    given.ptr[1] = PyLong_FromLongLong(first)
    return called(program[PROGRAM.run], given)


@native("i32(ptr, ptr, ptr)")
def launch_graph(program, bufs, stream):
    """Give a program's graph to a stream: nodes whose parameters differ from those of the last call are given them first.

    ONE_BY_ONE, with nothing given, where an address is not aligned as kernels count on.
    """
    item, unaligned = program[PROGRAM.launches], i64(0)
    for _k in range(program[PROGRAM.n_launches]):
        unaligned = unaligned | fill_addresses(item, bufs)
        fill_numbers(item, bufs)
        item += LAUNCHED_BYTES
    if unlikely(unaligned != 0):
        return ONE_BY_ONE
    item = program[PROGRAM.launches]
    for _k in range(program[PROGRAM.n_launches]):
        if item[LAUNCHED.given] == 0:
            status = fill_maps(item)
            if status == 0:
                status = give_node(program[PROGRAM.executable], item)
            if unlikely(status != 0):
                return status
            item[LAUNCHED.given] = 1
        item += LAUNCHED_BYTES
    if unlikely(may_wait(stream) != 0):
        held = kept(program[PROGRAM.run])
        thread = PyEval_SaveThread()
        status = call_ptr("i32(ptr, ptr)", STATE.ptr[AT.launch_graph], program[PROGRAM.executable], stream)
        PyEval_RestoreThread(thread)
        Py_DecRef(held)
        return status
    return call_ptr("i32(ptr, ptr)", STATE.ptr[AT.launch_graph], program[PROGRAM.executable], stream)


@native("i32(ptr, ptr)")
def give_node(executable, item):
    """Give the node of a launch its parameters: a CUDA_KERNEL_NODE_PARAMS of the first version."""
    given = stack(56)
    given.ptr[0] = item[LAUNCHED.function]
    given.u32[2] = u32(item[LAUNCHED.x])
    given.u32[3] = u32(item[LAUNCHED.y])
    given.u32[4] = u32(item[LAUNCHED.z])
    given.u32[5] = u32(item[LAUNCHED.threads])
    given.u32[6] = u32(1)
    given.u32[7] = u32(1)
    given.u32[8] = u32(item[LAUNCHED.shared])
    given.ptr[5] = item[LAUNCHED.pointers]
    given.ptr[6] = None
    return call_ptr("i32(ptr, ptr, ptr)", STATE.ptr[AT.set_node], executable, item[LAUNCHED.node], given)


@native("i32(ptr, ptr, ptr)")
def launch(program, bufs, constants):
    """`DEVICE.launch`: a program's kernels on the calling thread's stream.  `bufs` has the addresses of what was made
    for the call, then its inputs.
    """
    stream = stack(8)
    if unlikely(STATE.i64[AT.slow] != 0 or stream_here(stream) == 0):
        return launch_slow(program, bufs, 0)
    note(program[PROGRAM.name])
    if program[PROGRAM.executable] is not None:
        status = launch_graph(program, bufs, stream.ptr[0])
        if status == ASK_PYTHON:
            return launch_slow(program, bufs, 0)
        if status != ONE_BY_ONE:
            return status
    item = program[PROGRAM.launches]
    for k in range(program[PROGRAM.n_launches]):
        status = start(program, item, bufs, stream.ptr[0])
        if unlikely(status != 0):
            if status == ASK_PYTHON:
                return launch_slow(program, bufs, k)
            return status
        item += LAUNCHED_BYTES
    return 0


@native("i32(ptr, u32, u32, u32, u32, u32, u32, u32, ptr, ptr, ptr)")
def no_launch(function, x, y, z, threads, rows, layers, shared, stream, parameters, extra):
    """A `cuLaunchKernel` that does nothing: with it the host's own work is measured."""
    return 0


@native("ptr(ptr, i32)")
def fail(bufs, status):
    """`DEVICE.fail`: the exception of a launch that the driver refused."""
    if status == RAISED:
        return None
    given = stack(8)
    given.ptr[0] = PyLong_FromLongLong(i64(status))
    found = PyObject_Vectorcall(STATE.ptr[AT.fail_slow], given, u64(1), None)
    Py_DecRef(given.ptr[0])
    if found is not None:
        Py_DecRef(found)
    return None


@native("i32(ptr, i64)")
def zero(address, nbytes):
    """Fill memory with zeros, in the order of the calling thread's stream; the driver's status, or RAISED."""
    stream = stack(8)
    if STATE.i64[AT.slow] == 0 and stream_here(stream) != 0:
        status = call_ptr("i32(ptr, u8, i64, ptr)", STATE.ptr[AT.memset], address, u8(0), nbytes, stream.ptr[0])
        if status != ASK_PYTHON:
            return status
    given = stack(16)
    given.ptr[0] = PyLong_FromUnsignedLongLong(u64(i64(address)))
    given.ptr[1] = PyLong_FromLongLong(nbytes)
    return called(STATE.ptr[AT.zero_slow], given)


@native("ptr(i64)")
def allocate_zeroed(nbytes):
    """`DEVICE.allocate_zeroed`: the same as `allocate`, filled with zeros."""
    address = allocate(nbytes)
    if address is not None:
        status = zero(address, nbytes)
        if unlikely(status != 0):
            release(address, nbytes)
            return fail(None, status)
    return address


# ***** programs that Python calls *****


@native("i32(ptr, ptr, ptr, ptr)")
def run(call, args, bufs, storages):
    """A call: makes the storages, and launches; 1 with an exception set."""
    constants = call[CALL.constants]
    fresh = constants[LAUNCH.fresh]
    for k in range(fresh):
        storages.ptr[k] = None
    for k in range(call[CALL.n_words]):
        if word(args.ptr[k], bufs + 8 * (fresh + k)) != 0:
            return 1
    for k in range(fresh):
        storage = storage_new(allocate, release, constants.i64[FRESH_SIZES + k])
        if storage is None:
            return 1
        storage.ptr[S_OWNER] = kept(call[CALL.owner])
        storages.ptr[k] = storage
        bufs.ptr[k] = storage.ptr[S_PTR]
    status = launch(call[CALL.program], bufs, constants)
    if unlikely(status != 0):
        fail(bufs, status)
        return 1
    return 0


@native("ptr(ptr, ptr, ptr)")
def call_program(call, args, memory):
    """A call, in memory for its words and its storages; what it returns."""
    fresh, count = call[CALL.constants][LAUNCH.fresh], call[CALL.n_results]
    bufs = memory + 8 * HEADER
    storages = bufs + 8 * (fresh + call[CALL.n_words])
    failed = run(call, args, bufs, storages) != 0
    for k in range(fresh):
        if storages.ptr[k] is not None and (failed or k >= count):
            Py_DecRef(storages.ptr[k])
    if failed:
        return None
    if count == 1:
        return storages.ptr[0]
    if count == 0:
        return kept(Py_None)
    out = PyTuple_New(count)
    for k in range(count):
        if out is not None:
            PyTuple_SetItem(out, k, storages.ptr[k])
        else:
            Py_DecRef(storages.ptr[k])
    return out


@native("ptr(ptr, ptr, i64)")
def program_stub(self, args, nargs):
    """`program(*words)`: the METH_FASTCALL function behind the programs of a GPU."""
    call = self.ptr[H_FN]
    if nargs != call[CALL.n_words]:
        rl_count_error(self, nargs, call[CALL.n_words])
        return None
    need = HEADER + 2 * call[CALL.constants][LAUNCH.fresh] + nargs
    if need <= STACK_WORDS:
        room = stack(8 * STACK_WORDS)
        return call_program(call, args, room)
    memory = malloc(8 * need)
    if memory is None:
        return PyErr_NoMemory()
    out = call_program(call, args, memory)
    free(memory)
    return out
