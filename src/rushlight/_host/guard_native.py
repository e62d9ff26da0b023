"""Guards as a table of words: what a trace read is as it was where certain words in memory are.

A table is a program of few instructions (`GUARD_OPS`), each of four words: the instruction, then x, y, z.  It works on
registers that hold addresses.  Every word is read only after those before it were found as noted, from which it follows
that the object it lies in is alive: a dict that has its version still has its values, a slot that has its address still
keeps that object.  So nothing has to be held for its address alone.

No Python code runs between the first instruction and the last, so nothing changes meanwhile and the registers may be
common to all threads.
"""

from __future__ import annotations

from rushlight._host.call_words_native import thread_state
from rushlight._host.python_native import (
    Py_DecRef,
    Py_None,
    PyDict_GetItemWithError,
    PyErr_Clear,
    PyTuple_New,
    kept,
    sequence_items,
    small_int,
)
from rushlight._native import Words, clz, extern, i64, memset, native, static, u8, u64
from rushlight._native.objects import TUPLE_ITEMS

__all__ = [
    "BYTES_WORDS",
    "DICT_KEYS_WORD",
    "GUARD_HEADER",
    "GUARD_OPS",
    "REGISTERS",
    "STATE",
    "THREAD",
    "ZERO",
    "first_place_of",
    "py_guarded",
]

REGISTERS = 2048
# Registers that are set before the first instruction: zero, the items of the state, the dict of this thread's dispatch
# state.
ZERO, STATE, THREAD = range(3)
GUARD_HEADER = Words("outputs hits")
GUARD_OPS = Words("end run words set load other item absent integer text same differs equal distinct out given")
BYTES_WORDS = 4  # a bytes object's words before its contents
HEADER_BYTES = 8 * len(GUARD_HEADER)
DICT_KEYS_WORD, KEYS_KIND = (
    4,
    10,
)  # of a dict, the address of its keys; of these, the byte that tells whether all are texts

PyUnicode_Compare = extern("PyUnicode_Compare", "i32(ptr, ptr)")
FEW = 8  # registers that are compared with each other one by one
_FACTOR = 0x9E3779B97F4A7C15
_registers = static("rl_guard_registers", 8 * REGISTERS)
_seen = static("rl_guard_seen", 8 * 4 * REGISTERS)


@native("i64(ptr, i64)", inline=True)
def run_holds(at, count):
    """Whether `count` pairs of an address and a word are as noted."""
    for k in range(count):
        if at.ptr[2 * k].u64[0] != at.u64[2 * k + 1]:
            return 0
    return 1


@native("i64(ptr, ptr, i64)", inline=True)
def words_of(obj, at, count):
    """Whether `count` words of an object, each told by its offset, are as noted."""
    for k in range(count):
        if (obj + at.i64[2 * k]).u64[0] != at.u64[2 * k + 1]:
            return 0
    return 1


@native("ptr(ptr, ptr)", inline=True)
def text_item(held, key):
    """The value of a text in a dict all of whose keys are texts (borrowed); None without."""
    if held.ptr[DICT_KEYS_WORD].u8[KEYS_KIND] == 0:
        return None
    return PyDict_GetItemWithError(held, key)


@native("i64(ptr, ptr)", inline=True)
def text_absent(held, key):
    """Whether a dict all of whose keys are texts lacks one."""
    if held.ptr[DICT_KEYS_WORD].u8[KEYS_KIND] == 0:
        return 0
    return i64(PyDict_GetItemWithError(held, key) is None)


@native("i64(i64, i64)", inline=True)
def first_place(word, mask):
    """Where a search for an address begins in a table."""
    return i64((u64(word) * u64(_FACTOR)) >> u64(40)) & mask


def first_place_of(address: int, mask: int) -> int:
    """`first_place` in Python."""
    return (address * _FACTOR & (1 << 64) - 1) >> 40 & mask


@native("i64(ptr, i64, i64, i64)", inline=True)
def is_new(table, mask, word, put):
    """Whether an address is not in a table; it is then put there if asked."""
    at = first_place(word, mask)
    while table.i64[at] != 0:
        if table.i64[at] == word:
            return 0
        at = (at + 1) & mask
    if put != 0:
        table.i64[at] = word
    return 1


@native("i64(ptr, ptr, i64, i64)")
def all_distinct(registers, places, count, mask):
    """Whether registers hold different addresses, none of which is in a table: `count` numbers of registers, then mask
    + 1 words.
    """
    table, own = places + 8 * count, 0
    if count > FEW:
        own = 1 << (64 - i64(clz(u64(2 * count))))
        memset(_seen, u8(0), 8 * own)
    for k in range(count):
        word = registers.i64[places.i64[k]]
        if mask >= 0:
            if is_new(table, mask, word, 0) == 0:
                return 0
        if own > 0:
            if is_new(_seen, own - 1, word, 1) == 0:
                return 0
        else:
            for j in range(k):
                if registers.i64[places.i64[j]] == word:
                    return 0
    return 1


@native("i64(ptr, ptr, ptr)")
def words_hold(at, registers, out):
    """Whether everything is as noted; then `out` has been filled."""
    while True:
        op, x, y = at.i64[0], at.i64[1], at.i64[2]
        source = registers + 8 * (x & 0xFFFF)
        if op == GUARD_OPS.run:
            if run_holds(at + 32, x) == 0:
                return 0
            at += 16 * x
        elif op == GUARD_OPS.words:
            if words_of(source.ptr[0], at + 32, y) == 0:
                return 0
            at += 16 * y
        elif op == GUARD_OPS.load:
            found = (source.ptr[0] + y).ptr[0]
            if found is None:  # a slot that nobody has filled
                return 0
            registers.ptr[at.i64[3]] = found
        elif op == GUARD_OPS.out:
            given = source.ptr[0] + at.i64[3]
            given.i64[0] += 1  # words are noted where no object is immortal
            out.ptr[TUPLE_ITEMS + y] = given
        elif op == GUARD_OPS.given:
            for k in range(x):
                given = at.ptr[4 + k]
                given.i64[0] += 1  # words are noted where no object is immortal
                out.ptr[TUPLE_ITEMS + y + k] = given
            at += 8 * x
        elif op == GUARD_OPS.set:
            registers.i64[at.i64[3]] = y
        elif op == GUARD_OPS.other:
            if (source.ptr[0] + y).u64[0] == at.u64[3]:
                return 0
        elif op == GUARD_OPS.item:
            found = text_item(source.ptr[0], at.ptr[2])
            if found is None:
                return 0
            registers.ptr[at.i64[3]] = found
        elif op == GUARD_OPS.absent:
            if text_absent(source.ptr[0], at.ptr[2]) == 0:
                return 0
        elif op == GUARD_OPS.integer:
            if small_int(source.ptr[0]) != y:
                return 0
        elif op == GUARD_OPS.text:
            if PyUnicode_Compare(source.ptr[0], at.ptr[2]) != 0:
                return 0
        elif op == GUARD_OPS.same:
            if source.i64[0] != y:
                return 0
        elif op == GUARD_OPS.differs:
            if source.i64[0] == y:
                return 0
        elif op == GUARD_OPS.equal:
            if source.i64[0] != registers.i64[y]:
                return 0
        elif op == GUARD_OPS.distinct:
            if all_distinct(registers, at + 32, x, y) == 0:
                return 0
            at += 8 * (x + y + 1)
        else:
            return 1
        at += 32
    return 0


@native("ptr(ptr, ptr, i64)")
def py_guarded(unused, args, count):
    """guarded(table, state) -> the values that a table gives, as a tuple; None where a word is not as noted

    `table` is None or a tuple that begins with the words, as bytes; `state` is a tuple or a list.
    """
    table, state = args.ptr[0], args.ptr[1]
    if table == Py_None:
        return kept(Py_None)
    words = sequence_items(table).ptr[0] + 8 * BYTES_WORDS
    out = PyTuple_New(words.i64[GUARD_HEADER.outputs])
    if out is None:
        return None
    thread = thread_state()
    if thread is None:
        PyErr_Clear()
        Py_DecRef(out)
        return kept(Py_None)
    _registers.i64[ZERO] = 0
    _registers.ptr[STATE] = sequence_items(state)
    _registers.ptr[THREAD] = thread
    if words_hold(words + HEADER_BYTES, _registers, out) == 0:
        Py_DecRef(out)
        return kept(Py_None)
    words.i64[GUARD_HEADER.hits] += 1
    return out
