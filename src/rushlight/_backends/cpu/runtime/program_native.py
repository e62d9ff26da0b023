"""Whole programs in the native language: the stub that runs all kernels of a linked program, one wave after another.

A wave is kernels that do not wait for each other; the pieces of all are handed out together.  Python is entered once:
to turn the arguments into words, and to make the storages of the results.
"""

from __future__ import annotations

from rushlight._backends.cpu.runtime.pool_native import block_alloc, block_free
from rushlight._backends.cpu.runtime.stub_native import F_CODE, F_LOCK, results, rl_raise
from rushlight._backends.cpu.runtime.threads_native import rl_parallel_for
from rushlight._host.arguments_native import H_FN, rl_count_error, word
from rushlight._host.call_words_native import sequence_size
from rushlight._host.dispatch_words import O_PTR, O_SPEC
from rushlight._host.python_native import (
    Py_DecRef,
    Py_IncRef,
    Py_None,
    PyErr_Clear,
    PyErr_Fetch,
    PyErr_NoMemory,
    PyErr_Restore,
    PyEval_RestoreThread,
    PyEval_SaveThread,
    PyList_New,
    PyList_SetItem,
    PyLong_FromUnsignedLongLong,
    PyObject_Vectorcall,
    free,
    kept,
    malloc,
    sequence_items,
)
from rushlight._host.storage_native import S_PTR, storage_new
from rushlight._host.tensor_native import new_tensor, slot
from rushlight._native import Record, call_ptr, extern, i32, i64, native, ptr, stack, u64, unlikely

__all__ = [
    "FILL",
    "LINKED",
    "MADE",
    "OVER_TENSORS",
    "PHASE",
    "SOURCE",
    "WAVE",
    "WAVE_STEP",
    "fill_words",
    "nanoseconds",
    "over_tensors_stub",
    "program_stub",
    "run_waves",
]

LINKED = Record(
    "linked",
    ("n_words", i64, "arguments of a call"),
    ("n_results", i64, "storages that a call makes"),
    ("n_blocks", i64, "blocks of memory that a call takes, each for some phases; the first for all"),
    ("table", i64, "where in the first block the words of the kernels begin"),
    ("n_phases", i64, "phases"),
    ("phases", ptr, "for each: its PHASE"),
    ("unlock", i64, "whether other Python threads run meanwhile"),
    ("sizes", ptr, "bytes of the results"),
    ("blocks", ptr, "bytes of the blocks"),
    ("times", ptr, "the number of a clock, then for each wave the nanoseconds of all calls so far; null: not measured"),
    ("abandon", ptr, "a Python function to call before memory is given up after a failure; null: none"),
)
PHASE = Record(
    "phase",
    ("n_made", i64, "results that it makes first"),
    ("made", ptr, "their numbers"),
    ("n_taken", i64, "blocks that it takes first"),
    ("taken", ptr, "their numbers"),
    ("n_given", i64, "blocks that it gives back at the end"),
    ("given", ptr, "their numbers"),
    ("n_fills", i64, "words of its kernels"),
    ("fills", ptr, "for each: FILL"),
    ("n_waves", i64, "waves"),
    ("waves", ptr, "for each: its WAVE"),
    ("first", i64, "the number of its first wave"),
)
FILL = Record(
    "fill",
    ("place", i64, "the word in the table"),
    ("base", i64, "0: none; then the arguments, the results, the blocks"),
    ("offset", i64, "bytes from there, or a number"),
)
WAVE = Record(
    "wave",
    ("count", i64, "kernels"),
    ("pieces", i64, "of all of them; 0: one after another by the calling thread"),
    ("steps", ptr, "for each: WAVE_STEP"),
)
WAVE_STEP = Record(
    "wave_step",
    ("fn", ptr, "the kernel"),
    ("ints", ptr, "its constants"),
    ("bufs", i64, "where its words begin, in bytes from the table"),
    ("first", i64, "the number of its first piece in the wave"),
    ("pieces", i64, "how many it has"),
)
STEP_BYTES, WAVE_BYTES, FILL_BYTES, PHASE_BYTES = 8 * len(WAVE_STEP), 8 * len(WAVE), 8 * len(FILL), 8 * len(PHASE)
STACK_BASES = 120

clock_gettime = extern("clock_gettime", "i32(i32, ptr)")


@native("i32(ptr, ptr, i64)")
def wave_piece(table, wave, piece):
    """A piece of a wave: a piece of one of its kernels."""
    low = i64(0)
    high = wave[WAVE.count]
    steps = wave[WAVE.steps]
    while high - low > 1:
        middle = (low + high) >> 1
        at = steps + STEP_BYTES * middle
        if at[WAVE_STEP.first] <= piece:
            low = middle
        else:
            high = middle
    step = steps + STEP_BYTES * low
    return call_ptr(
        "i32(ptr, ptr, i64)",
        step[WAVE_STEP.fn],
        table + step[WAVE_STEP.bufs],
        step[WAVE_STEP.ints],
        piece - step[WAVE_STEP.first],
    )


@native("i32(ptr, ptr)")
def run_serial(table, wave):
    """The kernels of a wave by the calling thread."""
    step = wave[WAVE.steps]
    for _k in range(wave[WAVE.count]):
        bufs = table + step[WAVE_STEP.bufs]
        for piece in range(step[WAVE_STEP.pieces]):
            status = call_ptr("i32(ptr, ptr, i64)", step[WAVE_STEP.fn], bufs, step[WAVE_STEP.ints], piece)
            if unlikely(status != 0):
                return status
        step += STEP_BYTES
    return 0


@native("i64(ptr)")
def nanoseconds(times):
    """Those of the clock whose number `times` begins with."""
    spec = stack(16)
    clock_gettime(i32(times.i64[0]), spec)
    return spec.i64[0] * 1_000_000_000 + spec.i64[1]


@native("i32(ptr, ptr, ptr, ptr)")
def run_waves(linked, phase, table, failed):
    """All waves of a phase.  The status of a kernel that failed, whose words `failed` gets, or 0."""
    wave = phase[PHASE.waves]
    times = linked[LINKED.times]
    if unlikely(times is not None):
        times += 8 * phase[PHASE.first]
    began = i64(0)
    for k in range(phase[PHASE.n_waves]):
        if unlikely(times is not None):
            began = nanoseconds(linked[LINKED.times])
        step = wave[WAVE.steps]
        count = wave[WAVE.count]
        for _j in range(count):
            bufs = table + step[WAVE_STEP.bufs]
            bufs.i64[F_LOCK] = 0
            bufs.i64[F_CODE] = -1
            step += STEP_BYTES
        step = wave[WAVE.steps]
        if wave[WAVE.pieces] == 0:
            status = run_serial(table, wave)
        elif count == 1:
            status = rl_parallel_for(
                step[WAVE_STEP.fn], table + step[WAVE_STEP.bufs], step[WAVE_STEP.ints], wave[WAVE.pieces]
            )
        else:
            status = rl_parallel_for(wave_piece, table, wave, wave[WAVE.pieces])
        if unlikely(status != 0):
            failed.ptr[0] = table + step[WAVE_STEP.bufs]
            for _j in range(count):
                bufs = table + step[WAVE_STEP.bufs]
                if bufs.i64[F_CODE] >= 0:
                    failed.ptr[0] = bufs
                    return status
                step += STEP_BYTES
            return status
        if unlikely(times is not None):
            times.i64[1 + k] += nanoseconds(linked[LINKED.times]) - began
        wave += WAVE_BYTES
    return 0


@native("ptr(ptr, ptr, ptr, ptr)")
def fill_words(linked, phase, bases, block):
    """Put the words of a phase's kernels where these look for them; the table of all words."""
    table = block + linked[LINKED.table]
    fill = phase[PHASE.fills]
    for _k in range(phase[PHASE.n_fills]):
        table.i64[fill[FILL.place]] = bases.i64[fill[FILL.base]] + fill[FILL.offset]
        fill += FILL_BYTES
    return table


@native("i32(ptr, ptr, ptr, ptr, ptr)")
def fill_and_run(linked, phase, bases, block, failed):
    """Put the words of a phase's kernels where these look for them, and run the kernels."""
    table = fill_words(linked, phase, bases, block)
    if linked[LINKED.unlock] == 0:
        return run_waves(linked, phase, table, failed)
    state = PyEval_SaveThread()
    status = run_waves(linked, phase, table, failed)
    PyEval_RestoreThread(state)
    return status


@native("i32(ptr, ptr, ptr)")
def take_memory(linked, phase, bases):
    """Make the storages and take the blocks that a phase begins with; 1 with an exception set."""
    results = bases + 8 * (1 + linked[LINKED.n_words])
    blocks = results + 8 * linked[LINKED.n_results]
    storages = blocks + 8 * linked[LINKED.n_blocks]
    numbers = phase[PHASE.made]
    for k in range(phase[PHASE.n_made]):
        n = numbers.i64[k]
        storage = storage_new(block_alloc, block_free, linked[LINKED.sizes].i64[n])
        if storage is None:
            return 1
        storages.ptr[n] = storage
        results.ptr[n] = storage.ptr[S_PTR]
    numbers = phase[PHASE.taken]
    for k in range(phase[PHASE.n_taken]):
        n = numbers.i64[k]
        block = block_alloc(linked[LINKED.blocks].i64[n])
        if block is None:
            return 1
        blocks.ptr[n] = block
    return 0


@native("void(ptr)")
def abandon(function):
    """Call a Python function while an exception is set, which stays the one that is raised."""
    held = stack(24)
    PyErr_Fetch(held, held + 8, held + 16)
    found = PyObject_Vectorcall(function, held, 0, None)
    if found is None:
        PyErr_Clear()
    else:
        Py_DecRef(found)
    PyErr_Restore(held.ptr[0], held.ptr[1], held.ptr[2])


@native("i32(ptr, ptr)")
def run_program(linked, bases):
    """A call whose arguments are in their places: makes the storages of the results and runs; 1 with an exception set.

    `bases` has room for its words: a zero, arguments, results, blocks, and behind these the storages made.
    """
    results, n_blocks = linked[LINKED.n_results], linked[LINKED.n_blocks]
    blocks = bases + 8 * (1 + linked[LINKED.n_words] + results)
    storages = blocks + 8 * n_blocks
    bases.i64[0] = 0
    for k in range(n_blocks + results):
        blocks.ptr[k] = None
    failed = stack(8)
    bad = i64(0)
    n = i64(0)
    phase = linked[LINKED.phases]
    while n < linked[LINKED.n_phases] and bad == 0:
        if take_memory(linked, phase, bases) != 0:
            bad = 1
        else:
            status = fill_and_run(linked, phase, bases, blocks.ptr[0], failed)
            if unlikely(status != 0):
                rl_raise(failed.ptr[0], status)
                bad = 1
            else:
                given = phase[PHASE.given]
                for k in range(phase[PHASE.n_given]):
                    number = given.i64[k]
                    block_free(blocks.ptr[number], linked[LINKED.blocks].i64[number])
                    blocks.ptr[number] = None
        phase += PHASE_BYTES
        n += 1
    if unlikely(bad != 0):
        if linked[LINKED.abandon] is not None:
            abandon(linked[LINKED.abandon])
        for k in range(n_blocks):
            if blocks.ptr[k] is not None:
                block_free(blocks.ptr[k], linked[LINKED.blocks].i64[k])
        for k in range(results):
            if storages.ptr[k] is not None:
                Py_DecRef(storages.ptr[k])
        return 1
    return 0


@native("i64(ptr)", inline=True)
def storages_at(linked):
    """Where among the words of a call its storages begin."""
    return 1 + linked[LINKED.n_words] + linked[LINKED.n_results] + linked[LINKED.n_blocks]


@native("ptr(ptr, ptr, ptr)")
def call_program(linked, args, bases):
    """A call of addresses and numbers: what it returns."""
    words = linked[LINKED.n_words]
    for k in range(words):
        if word(args.ptr[k], bases + 8 * (1 + k)) != 0:
            return None
    if run_program(linked, bases) != 0:
        return None
    return results(bases + 8 * storages_at(linked), linked[LINKED.n_results])


@native("ptr(ptr, ptr, i64)")
def program_stub(self, args, nargs):
    """`program(*words)`: the METH_FASTCALL function behind linked programs."""
    linked = self.ptr[H_FN]
    if nargs != linked[LINKED.n_words]:
        rl_count_error(self, nargs, linked[LINKED.n_words])
        return None
    room = storages_at(linked) + linked[LINKED.n_results]
    if room <= STACK_BASES:
        bases = stack(8 * STACK_BASES)
        return call_program(linked, args, bases)
    memory = malloc(8 * room)
    if memory is None:
        return PyErr_NoMemory()
    out = call_program(linked, args, memory)
    free(memory)
    return out


# ***** calls of tensors *****

OVER_TENSORS = Record(
    "over_tensors",
    ("linked", ptr, "the program, LINKED"),
    ("n_inputs", i64, "tensors of a call"),
    ("specs", ptr, "the spec of each"),
    ("sources", ptr, "for each argument of the program: SOURCE"),
    ("n_made", i64, "tensors that a call makes"),
    ("made", ptr, "for each: MADE"),
)
SOURCE = Record(
    "source", ("number", i64, "of a tensor; -1 - n: the word n of the call"), ("step", i64, "bytes from there")
)
MADE = Record(
    "made",
    ("number", i64, "of a result"),
    ("spec", ptr, "of the tensor"),
    ("offset", i64, "bytes from where it begins"),
)
SOURCE_BYTES, MADE_BYTES = 8 * len(SOURCE), 8 * len(MADE)


@native("ptr(ptr, ptr)")
def tensors_of(over, storages):
    """A list of the tensors that a call makes, over its storages."""
    count = over[OVER_TENSORS.n_made]
    out = PyList_New(count)
    if out is None:
        return None
    made = over[OVER_TENSORS.made]
    for k in range(count):
        storage = storages.ptr[made[MADE.number]]
        address = PyLong_FromUnsignedLongLong(u64(storage.i64[S_PTR] + made[MADE.offset]))
        tensor = new_tensor(kept(storage), made[MADE.spec], address)
        if tensor is None:
            Py_DecRef(out)
            return None
        PyList_SetItem(out, k, tensor)
        made += MADE_BYTES
    return out


@native("ptr(ptr, ptr, ptr, ptr)")
def call_over_tensors(over, inputs, more, bases):
    """A call with room for its words (see `run_program`)."""
    linked = over[OVER_TENSORS.linked]
    source = over[OVER_TENSORS.sources]
    for k in range(linked[LINKED.n_words]):
        number = source[SOURCE.number]
        item: ptr = None
        if number >= 0:
            item = slot(inputs.ptr[number], O_PTR)
        else:
            item = more.ptr[-1 - number]
        if word(item, bases + 8 * (1 + k)) != 0:
            return None
        bases.i64[1 + k] += source[SOURCE.step]
        source += SOURCE_BYTES
    if run_program(linked, bases) != 0:
        return None
    results = linked[LINKED.n_results]
    storages = bases + 8 * storages_at(linked)
    out = tensors_of(over, storages)
    for j in range(results):
        Py_DecRef(storages.ptr[j])
    return out


@native("ptr(ptr, ptr, i64)")
def over_tensors_stub(self, args, nargs):
    """`program(tensors, words=())`: a list of tensors; None where the tensors, a list or tuple, have other specs than it
    was made for.
    """
    over = self.ptr[H_FN]
    if nargs != 2 and nargs != 1:
        rl_count_error(self, nargs, 2)
        return None
    inputs = sequence_items(args.ptr[0])
    more = inputs  # not looked at in a call of tensors alone
    if nargs == 2:
        more = sequence_items(args.ptr[1])
    count = sequence_size(args.ptr[0])
    if count != over[OVER_TENSORS.n_inputs]:
        Py_IncRef(Py_None)
        return Py_None
    specs = over[OVER_TENSORS.specs]
    for k in range(count):
        if slot(inputs.ptr[k], O_SPEC) != specs.ptr[k]:
            Py_IncRef(Py_None)
            return Py_None
    linked = over[OVER_TENSORS.linked]
    room = storages_at(linked) + linked[LINKED.n_results]
    if room <= STACK_BASES:
        bases = stack(8 * STACK_BASES)
        return call_over_tensors(over, inputs, more, bases)
    memory = malloc(8 * room)
    if memory is None:
        return PyErr_NoMemory()
    out = call_over_tensors(over, inputs, more, memory)
    free(memory)
    return out
