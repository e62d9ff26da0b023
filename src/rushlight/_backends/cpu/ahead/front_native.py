"""A library's code around its kernels, in the native language: it chooses code for the processor, starts threads, and
runs programs.

It is made for any x86-64 processor, so that it can refuse one.  Threads, scratch memory, failures and the walk over
waves are those of this process's own runtime.  Nothing here ends the process: whatever fails is a code and a text.
"""

from __future__ import annotations

from rushlight._backends.cpu.pinned_native import PINNED
from rushlight._backends.cpu.runtime.limits import QUANTUM_SECONDS, SPIN_SECONDS
from rushlight._backends.cpu.runtime.pool_native import madvise
from rushlight._backends.cpu.runtime.program_native import LINKED, fill_words, nanoseconds, run_waves
from rushlight._backends.cpu.runtime.stub_native import (
    BY_ZERO,
    F_CODE,
    F_DIM,
    F_SIZE,
    F_VALUE,
    MOVED,
    OUT_OF_BOUNDS,
    OUT_OF_RANGE,
    UNKNOWN_FAILURE,
    rl_fail,
    unfulfilled,
)
from rushlight._backends.cpu.runtime.threads_native import (
    LONGEST_QUANTUM,
    MAX_THREADS,
    QUANTUM,
    SPIN,
    THREADS,
    rl_parallel_for,
    sched_getaffinity,
    sched_yield,
    spin_many,
    threads_forked,
    threads_init,
    threads_stop,
)
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import (
    Record,
    atomic_cas,
    atomic_load,
    atomic_store,
    extern,
    i32,
    i64,
    native,
    popcount,
    ptr,
    stack,
    static,
    u8,
)
from rushlight._types.layout import BELOW_ALL

__all__ = [
    "CALL",
    "CODES",
    "CPUID",
    "FUNCTIONS",
    "MODEL",
    "PIN",
    "PLAIN",
    "RANGE",
    "SHARED",
    "SIZED",
    "SOURCE",
    "TABLE",
    "TENSOR",
    "VARIANT",
    "XGETBV",
]

MODEL = Record(
    "model",
    ("state", i64, "FRESH, BUSY, READY or REFUSED"),
    ("process", i64, "the process that threads were started in"),
    ("chosen", ptr, "the VARIANT for this processor"),
    ("weights", ptr, "where weights begin; null: not told yet"),
    ("n_variants", i64, "sets of code"),
    ("variants", ptr, "for each: VARIANT, the best one first"),
    ("n_inputs", i64, "tensors of a call"),
    ("n_outputs", i64, "tensors that a call fills"),
    ("n_sizes", i64, "sizes that a call chooses"),
    ("ranges", ptr, "for each: RANGE"),
    ("calls", ptr, "for each choice of sizes, the last one fastest: the address of its CALL"),
    ("running", i64, "calls that run, and ENDED where one has ended; PINNING; PINS: weights stay packed"),
)
CALL = Record(
    "call",
    ("inputs", ptr, "for each: TENSOR"),
    ("outputs", ptr, "for each: TENSOR"),
    ("sources", ptr, "for each word of the program: SOURCE"),
    ("results", ptr, "for each result of the program: the number of the output"),
)
VARIANT = Record(
    "variant",
    ("programs", ptr, "for each choice of sizes: the address of its LINKED, of one phase"),
    ("name", ptr, "what processor it is for"),
    ("features", i64, "bits that leaf 1 must have in ecx"),
    ("extended", i64, "bits that leaf 7 must have in ebx"),
    ("further", i64, "bits that leaf 0x80000001 must have in ecx"),
    ("states", i64, "bits of registers that the system must save"),
    ("n_pins", i64, "weights that stay packed"),
    ("pins", ptr, "for each: PIN"),
)
PIN = Record(
    "pin",
    ("pinned", ptr, "its PINNED"),
    ("offset", i64, "bytes from where weights begin"),
    ("nbytes", i64, "bytes that it takes packed"),
)
RANGE = Record("range", ("least", i64, "the least size"), ("most", i64, "the greatest"), ("name", ptr, "text"))
SOURCE = Record("source", ("input", i64, "the number of a tensor; -1: a weight"), ("offset", i64, "bytes from there"))
TENSOR = Record(
    "tensor",
    ("name", ptr, "text"),
    ("dtype", ptr, "text"),
    ("rank", i64, "dims"),
    ("shape", ptr, "their sizes"),
    ("nbytes", i64, "bytes, row-major"),
)
FRESH, BUSY, READY, REFUSED = 0, 1, 2, 3
VARIANT_BYTES, PIN_BYTES, SOURCE_BYTES, TENSOR_BYTES = 8 * len(VARIANT), 8 * len(PIN), 8 * len(SOURCE), 8 * len(TENSOR)
RANGE_BYTES = 8 * len(RANGE)

# What a call returns, and what it says.
CODES = {
    "OK": 0, "INDEX": 1, "DIVISION": 2, "MEMORY": 3, "VALUE": 4, "PROCESSOR": 5, "ARGUMENT": 6, "WEIGHTS": 7, "KERNEL": 8, "SIZES": 9,
}  # fmt: skip
INDEX, DIVISION, MEMORY, VALUE = CODES["INDEX"], CODES["DIVISION"], CODES["MEMORY"], CODES["VALUE"]
PROCESSOR, ARGUMENT, WEIGHTS, KERNEL, SIZES = (
    CODES["PROCESSOR"],
    CODES["ARGUMENT"],
    CODES["WEIGHTS"],
    CODES["KERNEL"],
    CODES["SIZES"],
)

TABLE = static("rlp_model", 8 * len(MODEL))
snprintf = extern("snprintf", "i32(ptr, i64, ptr, ...)")
getenv = extern("getenv", "ptr(ptr)")
getpid = extern("getpid", "i32()")
# LLVM's text has no such instructions, so these two are machine code: void cpuid(i32 leaf, i32 part, ptr four words), u64 xgetbv()
cpuid = extern("rlp_cpuid", "void(i32, i32, ptr)")
xgetbv = extern("rlp_xgetbv", "u64()")
CPUID = bytes.fromhex("53 4989d0 89f8 89f1 0fa2 418900 41895804 41894808 4189500c 5b c3")
XGETBV = bytes.fromhex("31c9 0f01d0 48c1e220 89c0 4809d0 c3")
SAVES = 1 << 27  # leaf 1, ecx: the system saves wide registers, and tells which
CORES = 8192
FEW = 16  # digits of a number that is read from the environment, at most
PAGE, HUGE_PAGES = 4096, 14  # bytes of a page; MADV_HUGEPAGE
LONGEST_NS, SPIN_NS = int(1e9 * QUANTUM_SECONDS), int(1e9 * SPIN_SECONDS)
STATE, PROCESS, RUNNING = MODEL.state.place, MODEL.process.place, MODEL.running.place
TOO_FAR = "the size %s is from %lld to %lld, not %lld"
ENDED, PINNING, PINS = 1 << 32, -1, -2


# ***** the processor *****


@native("i64(ptr)")
def fits(variant):
    """Whether the processor, and the system on it, can run a variant."""
    words = stack(16)
    cpuid(1, 0, words)
    first = i64(words.u32[2])
    if first & SAVES == 0 or first & variant[VARIANT.features] != variant[VARIANT.features]:
        return 0
    cpuid(0, 0, words)
    if words.i32[0] < 7:
        return 0
    cpuid(7, 0, words)
    if i64(words.u32[1]) & variant[VARIANT.extended] != variant[VARIANT.extended]:
        return 0
    cpuid(i32(-2147483647), 0, words)  # 0x80000001
    if i64(words.u32[2]) & variant[VARIANT.further] != variant[VARIANT.further]:
        return 0
    states = variant[VARIANT.states]
    if i64(xgetbv()) & states != states:
        return 0
    return 1


# ***** threads *****


@native("i64(ptr)")
def number_of(name):
    """The number in a variable of the environment; 0 where there is none."""
    text = getenv(name)
    found: i64 = 0
    if text is not None:
        k = 0
        while k < FEW and text.u8[k] >= 48 and text.u8[k] <= 57:
            found = found * 10 + i64(text.u8[k]) - 48
            k += 1
    return found


@native("i64()")
def cores():
    """How many cores this process may run on."""
    allowed = stack(CORES // 8)
    for k in range(CORES // 64):
        allowed.i64[k] = 0
    found: i64 = 0
    if sched_getaffinity(0, CORES // 8, allowed) == 0:
        for k in range(CORES // 64):
            found += popcount(allowed.i64[k])
    return max(found, i64(1))


@native("void(i64)")
def use_threads(count):
    """Let so many threads run a call; with more of them than cores they do not spin while they wait."""
    count = max(i64(1), min(count, i64(MAX_THREADS)))
    clock = stack(8)
    clock.i64[0] = 1
    spin_many(1)
    began = nanoseconds(clock)
    passed = spin_many(500)
    spent = max(nanoseconds(clock) - began, i64(500))
    longest = passed * LONGEST_NS // spent
    THREADS.i64[LONGEST_QUANTUM] = longest
    THREADS.i64[QUANTUM] = longest // 2
    THREADS.i64[SPIN] = SPIN_NS * 500 // spent if count <= cores() else i64(0)
    threads_stop(count)


@native("i32()")
def prepare():
    """Choose the code and start over with threads, once; a code."""
    state = TABLE
    while True:
        seen = atomic_load(i64, state, STATE)
        if seen == READY:
            return 0
        if seen == REFUSED:
            return PROCESSOR
        if seen == FRESH and atomic_cas(i64, state, STATE, FRESH, BUSY) == FRESH:
            break
        sched_yield()
    variant = state[MODEL.variants]
    for _k in range(state[MODEL.n_variants]):
        if state[MODEL.chosen] is None and fits(variant) != 0:
            state[MODEL.chosen] = variant
        variant += VARIANT_BYTES
    if state[MODEL.chosen] is None:
        atomic_store(i64, state, STATE, REFUSED)
        return PROCESSOR
    threads_init()
    count = number_of("RUSHLIGHT_NUM_THREADS")
    if count == 0:
        count = number_of("OMP_NUM_THREADS")
    if count == 0:
        count = cores()
    use_threads(count)
    state[MODEL.process] = i64(getpid())
    atomic_store(i64, state, STATE, READY)
    return 0


@native("void()")
def notice_fork():
    """In a child process: the threads have stayed with the parent."""
    now = i64(getpid())
    before = atomic_load(i64, TABLE, PROCESS)
    if before != now and atomic_cas(i64, TABLE, PROCESS, before, now) == before:
        threads_forked()


# ***** failures *****


@native("i32(i32, ptr, i64)")
def told(code, message, size):
    """The code of a failure before any kernel ran, with its text."""
    if message is not None and size > 0:
        if code == PROCESSOR:
            snprintf(message, size, "%s", "this library has no code for the processor: it needs AVX2 and FMA at least")
        elif code == WEIGHTS:
            snprintf(message, size, "%s", "the weights were not given yet")
        elif code == MEMORY:
            snprintf(message, size, "%s", "out of memory")
        else:
            snprintf(message, size, "%s", "")
    return code


@native("i32(ptr, i32, ptr, i64)")
def failure(bufs, status, message, size):
    """The code of a failure that a kernel noted before `bufs`, with its text."""
    code, value = bufs.i64[F_CODE], bufs.i64[F_VALUE]
    dim, length = bufs.i64[F_DIM], bufs.i64[F_SIZE]
    if value < MOVED:
        value += BELOW_ALL
    if message is None:
        size = 0
    if code == 0 or code == 1:
        snprintf(message, size, OUT_OF_BOUNDS, value, dim, length)
        return INDEX
    if code == 2:
        snprintf(message, size, "%s", OUT_OF_RANGE)
        return INDEX
    if code == 3:
        snprintf(message, size, "%s", BY_ZERO)
        return DIVISION
    if code == 4:
        return told(MEMORY, message, size)
    text = unfulfilled(code)
    if text is not None:
        snprintf(message, size, "%s", text)
        return VALUE
    snprintf(message, size, UNKNOWN_FAILURE, status, code, value)
    return KERNEL


@native("i64(ptr, ptr, i64)")
def missing(tensors, given, count):
    """The number of a tensor with elements for which no memory was given; -1 where there is none."""
    for k in range(count):
        if tensors[TENSOR.nbytes] > 0 and (given is None or given.ptr[k] is None):
            return k
        tensors += TENSOR_BYTES
    return -1


@native("i32(ptr, ptr, ptr, ptr, i64)")
def refused(call, inputs, outputs, message, size):
    """ARGUMENT where memory is missing, else 0."""
    at = missing(call[CALL.inputs], inputs, TABLE[MODEL.n_inputs])
    if at >= 0:
        if message is not None:
            snprintf(message, size, "input %lld has no memory", at)
        return ARGUMENT
    at = missing(call[CALL.outputs], outputs, TABLE[MODEL.n_outputs])
    if at >= 0:
        if message is not None:
            snprintf(message, size, "output %lld has no memory", at)
        return ARGUMENT
    return 0


@native("i64(ptr)")
def choice(sizes):
    """The number of a choice of sizes; -1 where one is out of its range."""
    found: i64 = 0
    bounds = TABLE[MODEL.ranges]
    for k in range(TABLE[MODEL.n_sizes]):
        least, most = bounds[RANGE.least], bounds[RANGE.most]
        if sizes is None or sizes.i64[k] < least or sizes.i64[k] > most:
            return -1
        found = found * (most - least + 1) + sizes.i64[k] - least
        bounds += RANGE_BYTES
    return found


@native("i32(ptr, ptr, i64)")
def out_of_range(sizes, message, size):
    """SIZES, with the first size that is out of its range."""
    bounds = TABLE[MODEL.ranges]
    if message is None:
        return SIZES
    if sizes is None:
        snprintf(message, size, "%s", "no sizes were given")
        return SIZES
    for k in range(TABLE[MODEL.n_sizes]):
        least, most = bounds[RANGE.least], bounds[RANGE.most]
        if sizes.i64[k] < least or sizes.i64[k] > most:
            snprintf(message, size, TOO_FAR, bounds[RANGE.name], least, most, sizes.i64[k])
            return SIZES
        bounds += RANGE_BYTES
    return SIZES


# ***** calls *****


@native("void(ptr, ptr, ptr, ptr, ptr)")
def place_words(linked, call, bases, inputs, outputs):
    """Put where everything is: a zero, arguments, results."""
    source = call[CALL.sources]
    weights = i64(TABLE[MODEL.weights])
    bases.i64[0] = 0
    count = linked[LINKED.n_words]
    for k in range(count):
        number = source[SOURCE.input]
        if number < 0:
            bases.i64[1 + k] = weights + source[SOURCE.offset]
        else:
            bases.i64[1 + k] = inputs.i64[number] + source[SOURCE.offset]
        source += SOURCE_BYTES
    for k in range(linked[LINKED.n_results]):
        bases.ptr[1 + count + k] = outputs.ptr[call[CALL.results].i64[k]]


@native("void()")
def pin_weights():
    """Let weights stay packed from now on, in huge pages where the system has them."""
    pin = TABLE[MODEL.chosen][VARIANT.pins]
    for _k in range(TABLE[MODEL.chosen][VARIANT.n_pins]):
        pinned = pin[PIN.pinned]
        panels = pinned[PINNED.panels]
        before = i64(panels) % PAGE
        madvise(panels - before, before + pin[PIN.nbytes], HUGE_PAGES)
        pinned[PINNED.weight] = i64(TABLE[MODEL.weights]) + pin[PIN.offset]
        pin += PIN_BYTES


@native("void()")
def begin_call():
    """Weights stay packed from the second call on: a process that wants one result does not pay for a copy of them.

    No call runs meanwhile: kernels of one call must agree on where a weight is packed.
    """
    while True:
        seen = atomic_load(i64, TABLE, RUNNING)
        if seen == PINS:
            return
        if seen == PINNING:
            sched_yield()
        elif seen == ENDED:
            if atomic_cas(i64, TABLE, RUNNING, seen, PINNING) == seen:
                pin_weights()
                atomic_store(i64, TABLE, RUNNING, PINS)
                return
        elif atomic_cas(i64, TABLE, RUNNING, seen, seen + 1) == seen:
            return


@native("void()")
def end_call():
    """A call that `begin_call` began has ended."""
    while True:
        seen = atomic_load(i64, TABLE, RUNNING)
        if seen == PINS or atomic_cas(i64, TABLE, RUNNING, seen, (seen - 1) | ENDED) == seen:
            return


@native("i32(ptr, ptr, ptr, ptr, i64)")
def run_sized(sizes, inputs, outputs, message, size):
    """Run the program for some sizes: `inputs` and `outputs` are lists of addresses.  A code, and a text where it is not
    0.
    """
    if message is not None and size > 0:
        message.u8[0] = u8(0)
    code = prepare()
    if code == 0 and TABLE[MODEL.weights] is None:
        code = WEIGHTS
    if code != 0:
        return told(code, message, size)
    number = choice(sizes)
    if number < 0:
        return out_of_range(sizes, message, size)
    call = TABLE[MODEL.calls].ptr[number]
    code = refused(call, inputs, outputs, message, size)
    if code != 0:
        return code
    notice_fork()
    linked = TABLE[MODEL.chosen][VARIANT.programs].ptr[number]
    words = 8 * (2 + linked[LINKED.n_words] + linked[LINKED.n_results])
    head = (words + 63) // 64 * 64
    slot = borrow(head + linked[LINKED.blocks].i64[0])
    if slot < 0:
        return told(MEMORY, message, size)
    bases = borrowed(slot)
    place_words(linked, call, bases, inputs, outputs)
    bases.ptr[words // 8 - 1] = bases + head
    phase = linked[LINKED.phases]
    begin_call()
    table = fill_words(linked, phase, bases, bases + head)
    failed = stack(8)
    status = run_waves(linked, phase, table, failed)
    end_call()
    if status != 0:
        code = failure(failed.ptr[0], status, message, size)
    give_back(slot)
    return code


@native("i32(ptr, ptr, ptr, i64)")
def run(inputs, outputs, message, size):
    """The same for a program that has one set of sizes."""
    return run_sized(None, inputs, outputs, message, size)


# ***** what programs ask *****


@native("i64()")
def input_count():
    """How many tensors a call takes."""
    return TABLE[MODEL.n_inputs]


@native("i64()")
def output_count():
    """How many tensors a call fills."""
    return TABLE[MODEL.n_outputs]


@native("ptr(ptr, i64)")
def input_sized(sizes, number):
    """Description of an input for given sizes; null where there is none of that number, or a size is out of its range."""
    at = choice(sizes)
    if number < 0 or number >= TABLE[MODEL.n_inputs] or at < 0:
        return None
    return TABLE[MODEL.calls].ptr[at][CALL.inputs] + TENSOR_BYTES * number


@native("ptr(ptr, i64)")
def output_sized(sizes, number):
    """Description of an output for given sizes; null where there is none of that number, or a size is out of its range."""
    at = choice(sizes)
    if number < 0 or number >= TABLE[MODEL.n_outputs] or at < 0:
        return None
    return TABLE[MODEL.calls].ptr[at][CALL.outputs] + TENSOR_BYTES * number


@native("ptr(i64)")
def input_at(number):
    """Description of an input; null where there is none of that number."""
    return input_sized(None, number)


@native("ptr(i64)")
def output_at(number):
    """Description of an output; null where there is none of that number."""
    return output_sized(None, number)


@native("ptr()")
def processor():
    """The name of the code that was chosen; null where none runs here."""
    if prepare() != 0:
        return None
    return TABLE[MODEL.chosen][VARIANT.name]


@native("i32(i64)")
def set_threads(count):
    """Let so many threads run a call; a code."""
    if count < 1 or count > MAX_THREADS:
        return ARGUMENT
    code = prepare()
    if code == 0:
        use_threads(count)
    return code


@native("i32(ptr)")
def set_weights(weights):
    """Say where weights are, which stay there; a code."""
    code = prepare()
    if code != 0:
        return code
    if weights is None:
        return ARGUMENT
    TABLE[MODEL.weights] = weights
    return 0


# What a library exports, behind its prefix: of all programs, of those with one set of sizes, of those with several; and
# what its kernels call.
FUNCTIONS = {
    "input_count": input_count, "output_count": output_count, "processor": processor, "set_threads": set_threads, "set_weights": set_weights,
}  # fmt: skip
PLAIN = {"run": run, "input": input_at, "output": output_at}
SIZED = {"run": run_sized, "input": input_sized, "output": output_sized}
SHARED = (rl_fail, rl_parallel_for)
