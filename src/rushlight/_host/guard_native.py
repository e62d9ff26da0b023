"""Guards as a table of words: what a trace read is as it was where certain words in memory are.

A table is a program of few instructions (`GUARD_OPS`), each of four words: the instruction, then x, y, z.  It works on
registers that hold addresses.  Every word is read only after those before it were found as noted, from which it follows
that the object it lies in is alive: a dict that has its version still has its values, a slot that has its address still
keeps that object.  So nothing has to be held for its address alone.

Versions of dicts are words of CPython 3.11's dicts.  Later ones are watched: CPython calls `dict_changed` before a
watched dict changes or dies, which raises the count at a place that the dict's address gives.  Two dicts may share a
place: then a change to one looks like a change to both, and the conditions are asked again.  `_changes` counts all of
them: while it stands still, no watched dict has changed, and a table need not look at any.

No Python code runs between the first instruction and the last, so nothing changes meanwhile and the registers may be
common to all threads.
"""

from __future__ import annotations

from rushlight._host.arguments_native import H_FN
from rushlight._host.call_words_native import sequence_size, thread_state
from rushlight._host.python_native import (
    Py_DecRef,
    Py_None,
    Py_True,
    PyDict_GetItemWithError,
    PyDict_SetItem,
    PyErr_Clear,
    PyErr_ExceptionMatches,
    PyExc_Exception,
    PyList_AsTuple,
    PyObject_Vectorcall,
    PyTuple_New,
    kept,
    kept_inline,
    sequence_items,
    small_int,
)
from rushlight._native import Record, Words, clz, extern, i64, memset, native, ptr, stack, static, u8, u64
from rushlight._native.objects import TUPLE_ITEMS

__all__ = [
    "BYTES_WORDS",
    "DICT_PLACES",
    "DICT_KEYS_WORD",
    "GUARD_HEADER",
    "GUARD_OPS",
    "REGISTERS",
    "SEARCH",
    "SEGMENT_RUN",
    "STATE",
    "THREAD",
    "ZERO",
    "dict_changed",
    "find_stub",
    "first_place_of",
    "py_guarded",
    "py_own_table",
    "segment_stub",
    "use_dict_places",
]

REGISTERS = 2048
# Registers that are set before the first instruction: zero, the items of the state, the dict of this thread's dispatch
# state.
ZERO, STATE, THREAD = range(3)
GUARD_HEADER = Words("outputs hits")
GUARD_OPS = Words(
    "end run alike versions words set load other item absent integer text same differs equal distinct out given"
)
BYTES_WORDS = 4  # a bytes object's words before its contents
HEADER_BYTES = 8 * len(GUARD_HEADER)
# Of a dict, the address of its keys; of these, the byte that tells whether all are texts
DICT_KEYS_WORD, KEYS_KIND = 4, 10

PyUnicode_Compare = extern("PyUnicode_Compare", "i32(ptr, ptr)")
FEW = 8  # registers that are compared with each other one by one
_FACTOR = 0x9E3779B97F4A7C15
DICT_PLACES = 1 << 20
_registers = static("rl_guard_registers", 8 * REGISTERS)
_changes = static("rl_dict_changes", 8)
_places = static("rl_dict_places", 8)  # where the counts of changes to dicts lie
_seen = static("rl_guard_seen", 8 * 4 * REGISTERS)


@native("i64(ptr, i64)", inline=True)
def run_holds(at, count):
    """Whether `count` pairs of an address and a word are as noted."""
    for k in range(count):
        if at.ptr[2 * k].u64[0] != at.u64[2 * k + 1]:
            return 0
    return 1


@native("i64(ptr, i64, u64)", inline=True)
def all_alike(at, count, word):
    """Whether the words at `count` addresses, a multiple of four, are all the same one.  The addresses are valid
    whatever these words are, so four are read at a time.
    """
    for _k in range(count >> 2):
        first = (at.ptr[0].u64[0] ^ word) | (at.ptr[1].u64[0] ^ word)
        second = (at.ptr[2].u64[0] ^ word) | (at.ptr[3].u64[0] ^ word)
        if (first | second) != 0:
            return 0
        at += 32
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


@native("i32(i32, ptr, ptr, ptr)")
def dict_changed(event, held, key, value):
    """Called by CPython before a watched dict changes, or when it dies."""
    _changes.i64[0] += 1
    _places.ptr[0].i64[first_place(i64(held), DICT_PLACES - 1)] += 1
    return 0


@native("void(ptr)")
def use_dict_places(places):
    """Count changes to dicts in this memory, of DICT_PLACES words."""
    _places.ptr[0] = places


@native("ptr(ptr, ptr, i64)")
def py_own_table(unused, args, count):
    """own_table(held, popitem): give the dict of an object, which is not empty, a table of its own

    `popitem` is `dict.popitem`, which does that; the item is put back before any other code runs.
    """
    held = args.ptr[0]
    pair = PyObject_Vectorcall(args.ptr[1], args, u64(1), None)
    if pair is None:
        return None
    failed = PyDict_SetItem(held, pair.ptr[TUPLE_ITEMS], pair.ptr[TUPLE_ITEMS + 1])
    Py_DecRef(pair)
    if failed != 0:
        return None
    return kept(Py_None)


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
        elif op == GUARD_OPS.alike:
            if all_alike(at + 32, x, at.u64[3]) == 0:
                return 0
            at += 8 * x
        elif op == GUARD_OPS.versions:
            changes = _changes.i64[0]
            if y != changes:
                if run_holds(at + 32, x) == 0:
                    return 0
                at.i64[2] = changes
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
            out.ptr[TUPLE_ITEMS + y] = kept_inline(source.ptr[0] + at.i64[3])
        elif op == GUARD_OPS.given:
            for k in range(x):
                out.ptr[TUPLE_ITEMS + y + k] = kept_inline(at.ptr[4 + k])
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


@native("ptr(ptr, ptr)")
def noted_values(table, state):
    """The values that a table gives, as a tuple; Py_None (borrowed) where a word is not as noted, None with an exception."""
    if table == Py_None:
        return Py_None
    words = sequence_items(table).ptr[0] + 8 * BYTES_WORDS
    out = PyTuple_New(words.i64[GUARD_HEADER.outputs])
    if out is None:
        return None
    thread = thread_state()
    if thread is None:
        PyErr_Clear()
        Py_DecRef(out)
        return Py_None
    _registers.i64[ZERO] = 0
    _registers.ptr[STATE] = sequence_items(state)
    _registers.ptr[THREAD] = thread
    if words_hold(words + HEADER_BYTES, _registers, out) == 0:
        Py_DecRef(out)
        return Py_None
    words.i64[GUARD_HEADER.hits] += 1
    return out


@native("ptr(ptr, ptr, i64)")
def py_guarded(unused, args, count):
    """guarded(table, state) -> the values that a table gives, as a tuple; None where a word is not as noted

    `table` is None or a tuple that begins with the words, as bytes; `state` is a tuple or a list.
    """
    out = noted_values(args.ptr[0], args.ptr[1])
    if out == Py_None:
        return kept(out)
    return out


# ***** segments that only compute *****

SEGMENT_RUN = Record(
    "segment_run",
    ("table", ptr, "a list whose first item `guarded` takes"),
    ("program", ptr, "a list whose first item is called with the values that the table gives"),
    ("chosen", i64, "which item of its list is the result; -1: all of them, as a tuple; -2: None; -3: see AS_IT_IS"),
    ("miss", ptr, "the result where the conditions do not hold"),
    ("again", ptr, "called with the state where the program raises an Exception; None: that is raised"),
)


AS_IT_IS = -3  # of `chosen`: what is called is a function of the items of the state, and gives the result


@native("ptr(ptr, ptr, i64)")
def segment_stub(self, args, count):
    """`run(state)` of a segment that has no conditions in Python and does nothing but to call its program."""
    segment = self.ptr[H_FN]
    table = sequence_items(segment[SEGMENT_RUN.table]).ptr[0]
    values = noted_values(table, args.ptr[0])
    if values == Py_None:
        return kept(segment[SEGMENT_RUN.miss])
    if values is None:
        return None
    rest = sequence_items(table).ptr[2]
    if rest != Py_None:
        found = PyObject_Vectorcall(rest, args, u64(1), None)
        if found != Py_True:
            Py_DecRef(values)
            if found is None:
                return None
            Py_DecRef(found)
            return kept(segment[SEGMENT_RUN.miss])
        Py_DecRef(found)
    if segment[SEGMENT_RUN.chosen] == AS_IT_IS:
        Py_DecRef(values)
        function = kept(sequence_items(segment[SEGMENT_RUN.program]).ptr[0])
        state = args.ptr[0]
        found = PyObject_Vectorcall(function, sequence_items(state), u64(sequence_size(state)), None)
        Py_DecRef(function)
        return found
    given = stack(8)
    given.ptr[0] = values
    # Whoever holds these may let go of them while the program runs.
    program = kept(sequence_items(segment[SEGMENT_RUN.program]).ptr[0])
    again = kept(segment[SEGMENT_RUN.again])
    results = PyObject_Vectorcall(program, given, u64(1), None)
    Py_DecRef(program)
    Py_DecRef(values)
    out: ptr = None
    if results is None:
        if again != Py_None and PyErr_ExceptionMatches(PyExc_Exception.ptr[0]) != 0:
            PyErr_Clear()
            out = PyObject_Vectorcall(again, args, u64(1), None)
        Py_DecRef(again)
        return out
    Py_DecRef(again)
    if segment[SEGMENT_RUN.chosen] == -2:
        out = kept(Py_None)
    elif segment[SEGMENT_RUN.chosen] < 0:
        out = PyList_AsTuple(results)
    else:
        out = kept(sequence_items(results).ptr[segment[SEGMENT_RUN.chosen]])
    Py_DecRef(results)
    return out


# ***** the search for a segment *****

SEARCH = Record(
    "search",
    ("runs", ptr, "a list of functions that are called with the state, one after another"),
    ("miss", ptr, "what those give whose conditions do not hold"),
    ("missed", ptr, "called with the state where all do"),
)


@native("ptr(ptr, ptr, i64)")
def find_stub(self, args, count):
    """`find(state)`: what the first segment gives whose conditions hold."""
    search = self.ptr[H_FN]
    runs = search[SEARCH.runs]
    k = i64(0)
    while k < sequence_size(runs):
        run = kept(sequence_items(runs).ptr[k])
        found = PyObject_Vectorcall(run, args, u64(1), None)
        Py_DecRef(run)
        if found != search[SEARCH.miss]:
            return found
        Py_DecRef(found)
        k += 1
    return PyObject_Vectorcall(search[SEARCH.missed], args, u64(1), None)
