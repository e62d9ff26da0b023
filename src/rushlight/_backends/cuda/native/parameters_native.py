"""The parameters of a launch: addresses, numbers and tensor maps of a call, and how they reach the driver."""

from __future__ import annotations

from rushlight._backends.cuda.native.records import (
    ADDRESS,
    ADDRESS_BYTES,
    AS_DOUBLE,
    AS_INTEGER,
    AS_SINGLE,
    INTEGER_AS_SINGLE,
    LAUNCHED,
    MAP,
    MAP_RECORD_BYTES,
    NUMBER,
    NUMBER_BYTES,
    PROGRAM,
)
from rushlight._backends.cuda.native.words_native import AT, STATE
from rushlight._host.python_native import Py_DecRef, PyEval_RestoreThread, PyEval_SaveThread, kept
from rushlight._native import call_ptr, f32, f64, i32, i64, native, stack, u32, unlikely

__all__ = ["MOST_WAITING", "fill_addresses", "fill_maps", "fill_numbers", "may_wait", "pass_parameters"]

MOST_WAITING = 512  # launches that a driver takes without waiting for one to end: a queue has room for more
ASKED_EVERY = 64  # launches between two questions whether the device has nothing left to do
MOST_COPIED, MAP_WORDS = 512, 16  # words of parameters
# Of the driver's enumerations: how maps of ours lie in shared memory, lines of 256 bytes in L2
SWIZZLE_128, L2_256 = 3, 3


@native("i64(ptr, ptr)", inline=True)
def fill_addresses(item, bufs):
    """Put the addresses of a call among the parameters; not 0 where one is not aligned as the kernel counts on."""
    words, row = item[LAUNCHED.words], item[LAUNCHED.addresses]
    unaligned, changed = i64(0), i64(0)
    for _k in range(item[LAUNCHED.n_addresses]):
        at = bufs.i64[row[ADDRESS.buffer]] + row[ADDRESS.offset]
        changed = changed | (words.i64[row[ADDRESS.word]] ^ at)
        words.i64[row[ADDRESS.word]] = at
        unaligned = unaligned | (at & row[ADDRESS.mask])
        row += ADDRESS_BYTES
    if changed != 0:
        item[LAUNCHED.given] = 0
    return unaligned


@native("void(ptr, ptr)")
def fill_numbers(item, bufs):
    """Put the numbers of a call among the parameters."""
    words, row = item[LAUNCHED.words], item[LAUNCHED.numbers]
    for _k in range(item[LAUNCHED.n_numbers]):
        to, given, form = words + 8 * row[NUMBER.word], bufs + 8 * row[NUMBER.buffer], row[NUMBER.form]
        before = to.i64[0]
        if form == AS_SINGLE:
            to.f32[0] = f32(given.f64[0])
        elif form == INTEGER_AS_SINGLE:
            to.f32[0] = f32(given.i64[0])
        elif form == AS_DOUBLE:
            to.f64[0] = f64(given.i64[0])
        elif form == AS_INTEGER:
            to.i64[0] = i64(given.f64[0])
        else:
            to.i64[0] = given.i64[0]
        if to.i64[0] != before:
            item[LAUNCHED.given] = 0
        row += NUMBER_BYTES


@native("i32(ptr, i64)")
def encoded_windows(row, address):
    """Encode a map of windows; the driver's status."""
    box = row[MAP.box]
    return call_ptr(
        "i32(ptr, i32, u32, i64, ptr, ptr, ptr, ptr, u32, u32, ptr, i32, i32, i32, i32)",
        STATE.ptr[AT.encode_windows],
        row[MAP.map],
        i32(row[MAP.kind]),
        u32(row[MAP.dims]),
        address,
        row[MAP.sizes],
        row[MAP.strides],
        row[MAP.lower],
        row[MAP.upper],
        box.u32[0],
        box.u32[1],
        row[MAP.steps],
        i32(0),
        i32(SWIZZLE_128),
        i32(L2_256),
        i32(0),
    )


@native("i32(ptr)")
def fill_maps(item):
    """Encode the tensor maps of a launch for the addresses among its parameters; the driver's status."""
    row = item[LAUNCHED.maps]
    for _k in range(item[LAUNCHED.n_maps]):
        address = item[LAUNCHED.words].i64[row[MAP.word]]
        if row[MAP.address] != address:
            status = i32(0)
            if row[MAP.lower] is not None:
                status = encoded_windows(row, address)
            else:
                status = call_ptr(
                    "i32(ptr, i32, u32, i64, ptr, ptr, ptr, ptr, i32, i32, i32, i32)",
                    STATE.ptr[AT.encode_map],
                    row[MAP.map],
                    i32(row[MAP.kind]),
                    u32(row[MAP.dims]),
                    address,
                    row[MAP.sizes],
                    row[MAP.strides],
                    row[MAP.box],
                    row[MAP.steps],
                    i32(0),
                    i32(SWIZZLE_128),
                    i32(L2_256),
                    i32(0),
                )
            if unlikely(status != 0):
                row[MAP.address] = 0
                return status
            row[MAP.address] = address
        row += MAP_RECORD_BYTES
    return i32(0)


@native("i32(ptr, ptr, i64, i64, ptr, ptr)", inline=True)
def launched(item, function, threads, shared, stream, pointers):
    """`cuLaunchKernel`."""
    return call_ptr(
        "i32(ptr, u32, u32, u32, u32, u32, u32, u32, ptr, ptr, ptr)",
        STATE.ptr[AT.launch_kernel],
        function,
        u32(item[LAUNCHED.x]),
        u32(item[LAUNCHED.y]),
        u32(item[LAUNCHED.z]),
        u32(threads),
        u32(1),
        u32(1),
        u32(shared),
        stream,
        pointers,
        None,
    )


@native("i64(ptr)", inline=True)
def may_wait(stream):
    """Whether the next launch may have to wait for room in the device's queue."""
    waiting = STATE.i64[AT.waiting] + 1
    if STATE.ptr[AT.stream] != stream:
        if waiting > 1:
            STATE.i64[AT.several_streams] = 1
        STATE.ptr[AT.stream] = stream
    STATE.i64[AT.waiting] = waiting
    if waiting > MOST_WAITING and STATE.ptr[AT.query] is not None:
        if waiting % ASKED_EVERY == 0 and STATE.i64[AT.several_streams] == 0:
            if call_ptr("i32(ptr)", STATE.ptr[AT.query], stream) == 0:
                STATE.i64[AT.waiting] = 0
                return 0
        return 1
    return 0


@native("i32(ptr, ptr, ptr, i64, i64, ptr)")
def launch_released(program, item, function, threads, shared, stream):
    """A launch that may wait for room in the device's queue: other threads of Python run meanwhile, and may fill in the
    same parameters, so that these are copied.
    """
    count, maps = item[LAUNCHED.n_words], item[LAUNCHED.n_maps]
    if count + MAP_WORDS * maps > MOST_COPIED:
        return launched(item, function, threads, shared, stream, item[LAUNCHED.pointers])
    room, pointers = stack(8 * MOST_COPIED + 64), stack(8 * MOST_COPIED)
    at = room + (-i64(room) & 63)  # a tensor map is aligned
    for m in range(maps):
        source = item[LAUNCHED.pointers].ptr[count + m]
        for k in range(i64(MAP_WORDS)):
            at.i64[k] = source.i64[k]
        pointers.ptr[count + m] = at
        at += 8 * MAP_WORDS
    for k in range(count):
        at.i64[k] = item[LAUNCHED.words].i64[k]
        pointers.ptr[k] = at + 8 * k
    held = kept(program[PROGRAM.run])  # the tables stay where they are
    thread = PyEval_SaveThread()
    status = launched(item, function, threads, shared, stream, pointers)
    PyEval_RestoreThread(thread)
    Py_DecRef(held)
    return status


@native("i32(ptr, ptr, ptr, i64, i64, ptr)")
def pass_parameters(program, item, function, threads, shared, stream):
    """Give a kernel to a stream; the driver's status."""
    if unlikely(may_wait(stream) != 0):
        return launch_released(program, item, function, threads, shared, stream)
    return launched(item, function, threads, shared, stream, item[LAUNCHED.pointers])
