"""The thread pool, in the native language: workers that spin, then sleep, and take pieces from a counter.

A job is (kernel, bufs, ints, number of pieces).  The *ticket* is one 64-bit word: the job's number above, below it how
many pieces were taken from the end and how many from the front.  The caller takes from the front and the workers from
the end, so that from job to job a thread meets the same part of an array, which may still be in its cache.  To take a
piece a thread reads the ticket and the job, and compare-and-swaps the ticket to the next state; success means that the
job it read is the one still running, because the job's fields change only between two tickets. The caller waits for the
pieces that were taken, never for threads: one that lost its core before it took a piece delays nobody.  After a failure
the pieces behind it are passed over, those before it are not, so which failure is reported (that of the lowest piece)
does not depend on the number of threads.

Only one job runs at a time: whoever finds the pool taken (a second Python thread, a kernel inside a kernel) runs its
pieces alone.

A piece that was taken must be waited for, even if its thread has lost its core to another program, for a whole slice of
the scheduler's time. Where that has happened, short jobs are run by their caller alone for a while: in the quiet case
sharing one halves its time, in the other it costs a hundred times it.  After a single loss that while is as short as
the loss, since any machine takes a core away now and then; each further loss that comes before sharing has paid doubles
it.

Better than to wait for such a piece is that nobody loses a core in the middle of one.  So a worker works in *quanta*
shorter than the slices of a scheduler: when its quantum is over it offers its core, between two pieces.  Nobody else
wants it on a quiet machine, and that costs a microsecond; on a busy one the worker is passed over until it comes back
with a fresh slice.  How long a quantum may be is measured: one that ended well makes the next ones longer, a piece that
was waited for makes them shorter.

The scheduler likes to wake a worker where it was woken from, and so puts it on the caller's core, where all it does is
keep the caller from working.  A worker that finds itself there moves to another core before it takes a piece.  And a
sleep is expensive beside another program, for who wakes up must wait for a slice to end: a worker that met that spins
longer the next time.
"""

from __future__ import annotations

import os
import sys

from rushlight._native import (
    atomic_add,
    atomic_cas,
    atomic_load,
    atomic_store,
    call_ptr,
    extern,
    float_control,
    i32,
    i64,
    native,
    pause,
    ptr,
    set_float_control,
    stack,
    static,
    ticks,
    u64,
    unlikely,
)
from rushlight._native.target import host_target

__all__ = [
    "LONGEST_QUANTUM", "MAX_THREADS", "RUNNING", "SPIN", "THREADS", "QUANTUM", "WANTED", "rl_parallel_for", "spin_many",
    "threads_forked", "threads_hold", "threads_init", "threads_stop",
]  # fmt: skip

MAX_THREADS = 1024
THREADS = static("rl_threads", 512)
IDS = static("rl_thread_ids", 8 * MAX_THREADS)
MUTEX = static("rl_mutex", 256)
CONDITION = static("rl_condition", 256)

# Words of THREADS; what different threads write lies on different cache lines.  A name with 4 counts 32-bit words.
TICKET = 0
EPOCH4, SLEEPERS4, STOP4 = 16, 18, 20
FN, BUFS, INTS, PIECES, FAILED, FIRST = 16, 17, 18, 19, 20, 21
CALLER4 = 44  # the core that the caller was on when it began the job
DONE4, STATUS4, WAITING4 = 48, 50, 52
LOCK4, WANTED, RUNNING, SPIN, ALONE, DOUBT, UNPAID, QUANTUM, LONGEST_QUANTUM, WOKEN, HOLDER = (
    64,
    33,
    34,
    35,
    36,
    37,
    38,
    39,
    40,
    41,
    42,
)
SHORT = 16  # pieces up to which a job is short
IN_VAIN = 4  # times its own work that a caller must have waited before it counts as lost
PATIENCE = 32  # times that wait during which short jobs are not shared, at most
PAYS = 8  # times that wait which short jobs must then be shared without another, for sharing to pay
DEAR = 5  # doublings of the time for which a worker spins that was woken, and then had to wait for a core
SPIN_HALVINGS = 2  # of the time for which a worker spins in vain; any shorter, and it sleeps between two calls in a row
CORES = 8192  # that a set of cores can name
PLACES = sys.platform == "linux"  # whether a thread can tell its core, and choose among cores

END_BITS = 18  # bits of each of the two counts of a ticket
MOST_PIECES = (1 << END_BITS) - 1  # of one job; what has more runs as several
JOB_SHIFT = 2 * END_BITS
CLOSED = MOST_PIECES  # the lower part of a ticket that hands nothing out
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221}
_MACHINE = os.uname().machine if sys.platform == "linux" else ""
FUTEX = _FUTEX.get(_MACHINE, 0)  # 0: sleep on a condition variable
SIGBUS = 7 if sys.platform == "linux" else 10
SIG_SETMASK = 2 if sys.platform == "linux" else 3
MOST = 0x7FFFFFFF

syscall = extern("syscall", "i64(i64, ...)")
pthread_self = extern("pthread_self", "i64()")
sched_getaffinity = extern("sched_getaffinity", "i32(i32, i64, ptr)")
sched_getcpu = extern("sched_getcpu", "i32()")
sched_setaffinity = extern("sched_setaffinity", "i32(i32, i64, ptr)")
sched_yield = extern("sched_yield", "i32()")
pthread_create = extern("pthread_create", "i32(ptr, ptr, ptr, ptr)")
pthread_join = extern("pthread_join", "i32(ptr, ptr)")
pthread_sigmask = extern("pthread_sigmask", "i32(i32, ptr, ptr)")
sigdelset = extern("sigdelset", "i32(ptr, i32)")
sigfillset = extern("sigfillset", "i32(ptr)")
pthread_attr_init = extern("pthread_attr_init", "i32(ptr)")
pthread_attr_setstacksize = extern("pthread_attr_setstacksize", "i32(ptr, i64)")
pthread_attr_destroy = extern("pthread_attr_destroy", "i32(ptr)")
pthread_mutex_init = extern("pthread_mutex_init", "i32(ptr, ptr)")
pthread_mutex_lock = extern("pthread_mutex_lock", "i32(ptr)")
pthread_mutex_unlock = extern("pthread_mutex_unlock", "i32(ptr)")
pthread_cond_init = extern("pthread_cond_init", "i32(ptr, ptr)")
pthread_cond_wait = extern("pthread_cond_wait", "i32(ptr, ptr)")
pthread_cond_broadcast = extern("pthread_cond_broadcast", "i32(ptr)")


# ***** sleeping *****


@native("void(ptr, i32)")
def sleep_on(word, seen):
    """Sleep while the 32-bit `word` is `seen`; may return early."""
    if FUTEX:
        syscall(FUTEX, word, 128, seen, None)  # FUTEX_WAIT | FUTEX_PRIVATE_FLAG
    else:
        pthread_mutex_lock(MUTEX)
        while atomic_load(i32, word, 0) == seen:
            pthread_cond_wait(CONDITION, MUTEX)
        pthread_mutex_unlock(MUTEX)


@native("void(ptr, i32)")
def wake(word, count):
    """Wake up to `count` of those who sleep on `word`."""
    if FUTEX:
        syscall(FUTEX, word, 129, count)  # FUTEX_WAKE | FUTEX_PRIVATE_FLAG
    else:
        pthread_mutex_lock(MUTEX)
        pthread_cond_broadcast(CONDITION)
        pthread_mutex_unlock(MUTEX)


@native("i64(i64)")
def spin_many(n):
    """`n` spin steps, for measuring how long one takes; the ticks that went by."""
    began = ticks()
    for _i in range(n):
        pause()
        ticks()
        atomic_load(i32, THREADS, EPOCH4)
    return ticks() - began


# ***** taking pieces *****


@native("void(i64)")
def note_failure(piece):
    """LoweredCall behind this one need not be run any more."""
    while True:
        before = atomic_load(i64, THREADS, FAILED)
        if piece >= before or atomic_cas(i64, THREADS, FAILED, before, piece) == before:
            return


@native("void(i64, i64)")
def take_pieces(from_end, until):
    """Run pieces of the current job until none is left, from the front or from the end; a worker, until its quantum is
    over.
    """
    step = u64(1) << u64(END_BITS * from_end)
    while True:
        t = atomic_load(u64, THREADS, TICKET)
        front = i64(t & MOST_PIECES)
        behind = i64((t >> END_BITS) & MOST_PIECES)
        pieces = atomic_load(i64, THREADS, PIECES)
        if front + behind >= pieces or (from_end != 0 and ticks() > until):
            return
        fn = atomic_load(ptr, THREADS, FN)
        bufs = atomic_load(ptr, THREADS, BUFS)
        ints = atomic_load(ptr, THREADS, INTS)
        first = atomic_load(i64, THREADS, FIRST)
        if atomic_cas(u64, THREADS, TICKET, t, t + step) == t:
            piece = first + (front if from_end == 0 else pieces - 1 - behind)
            if piece < atomic_load(i64, THREADS, FAILED):
                status = call_ptr("i32(ptr, ptr, i64)", fn, bufs, ints, piece)
                if unlikely(status != 0):
                    atomic_cas(i32, THREADS, STATUS4, 0, status)
                    note_failure(piece)
            done = atomic_add(i32, THREADS, DONE4, 1) + 1
            if done == i32(pieces) and atomic_load(i32, THREADS, WAITING4) != 0:
                wake(THREADS + 4 * DONE4, 1)


@native("void()")
def step_aside():
    """Move the calling thread to another core if it is on the caller's."""
    if PLACES:
        place = i64(sched_getcpu())
        if unlikely(place >= 0 and place == i64(atomic_load(i32, THREADS, CALLER4))):
            allowed, others = stack(CORES // 8), stack(CORES // 8)
            size = i64(sched_getaffinity(0, CORES // 8, allowed))
            left = u64(0)
            for k in range(CORES // 64):
                word = u64(allowed.i64[k])
                if k == place >> 6:
                    word &= ~(u64(1) << u64(place & 63))
                others.i64[k] = i64(word)
                left |= word
            if size == 0 and left != 0 and sched_setaffinity(0, CORES // 8, others) == 0:
                sched_setaffinity(0, CORES // 8, allowed)  # it may be moved again as before


@native("i64()")
def offer_core():
    """Between two quanta: let others have this core, if any wants it.  When the next quantum is over."""
    began = ticks()
    sched_yield()
    now = ticks()
    quantum, longest = THREADS.i64[QUANTUM], THREADS.i64[LONGEST_QUANTUM]
    if now - began > longest >> 4:  # somebody did
        quantum = min(quantum + (quantum >> 5), longest)
        THREADS.i64[QUANTUM] = quantum
    return now + quantum


@native("ptr(ptr)")
def worker(unused):
    """The life of a worker thread."""
    longest = THREADS.i64[SPIN]
    budget = longest
    long = THREADS.i64[LONGEST_QUANTUM] >> 4  # nothing that a thread does on its core takes as long between two ticks
    until = ticks() + THREADS.i64[QUANTUM]
    while True:
        # A thread may begin long after it was created, even after it was told to stop: the epoch is read first.
        seen = atomic_load(i32, THREADS, EPOCH4)
        if atomic_load(i32, THREADS, STOP4) != 0:
            return None
        if longest > 0:  # else there are more threads than cores anyway
            step_aside()
        take_pieces(1, until)
        if ticks() > until:
            until = offer_core()
            continue
        k = 0
        last = ticks()
        while k < budget and atomic_load(i32, THREADS, EPOCH4) == seen:
            pause()
            k += 1
            now = ticks()
            if unlikely(now - last > long):  # it was without a core
                until = now + THREADS.i64[QUANTUM]
            last = now
        # Spinning that finds work pays, so it may last longer next time; spinning in vain takes a core from others.
        if atomic_load(i32, THREADS, EPOCH4) == seen:
            budget = max(budget >> 1, longest >> SPIN_HALVINGS)
            atomic_add(i32, THREADS, SLEEPERS4, 1)
            while atomic_load(i32, THREADS, EPOCH4) == seen:
                sleep_on(THREADS + 4 * EPOCH4, seen)
            atomic_add(i32, THREADS, SLEEPERS4, -1)
            now = ticks()
            until = now + THREADS.i64[QUANTUM]
            woken = THREADS.i64[WOKEN]
            THREADS.i64[WOKEN] = 0
            if woken != 0 and now - woken > long:  # beside another program: a sleep lasts until that one's slice ends
                budget = longest << DEAR
        else:
            budget = max(budget, min(budget << 1, longest))


# ***** starting and stopping; the caller holds the lock *****


@native("void(i64)")
def start_workers(count):
    """Start `count` worker threads; fewer when the system refuses."""
    attributes = stack(256)
    every, before = stack(128), stack(128)
    pthread_attr_init(attributes)
    pthread_attr_setstacksize(attributes, 4 << 20)
    sigfillset(every)
    for signal in range(4, 12):  # faults of the thread itself: SIGILL 4, SIGBUS 7 (10), SIGFPE 8, SIGSEGV 11
        if signal == 4 or signal == SIGBUS or signal == 8 or signal == 11:
            sigdelset(every, i32(signal))
    pthread_sigmask(SIG_SETMASK, every, before)  # signals are for Python's threads
    started = 0
    while started < count:
        if pthread_create(IDS + 8 * started, attributes, worker, None) != 0:
            break
        started += 1
    pthread_sigmask(SIG_SETMASK, before, None)
    pthread_attr_destroy(attributes)
    THREADS.i64[RUNNING] = started
    if started < count:
        THREADS.i64[WANTED] = started + 1


@native("void()")
def threads_init():
    """Set the sleeping machinery up, and a ticket that hands nothing out."""
    atomic_store(u64, THREADS, TICKET, u64(CLOSED))
    if FUTEX:
        pass
    else:
        pthread_mutex_init(MUTEX, None)
        pthread_cond_init(CONDITION, None)


@native("void()")
def threads_forked():
    """In a child process: the workers have stayed with the parent."""
    THREADS.i64[RUNNING] = 0
    THREADS.i32[SLEEPERS4] = 0
    THREADS.i32[STOP4] = 0
    THREADS.i32[WAITING4] = 0
    THREADS.i32[LOCK4] = 0
    THREADS.i64[HOLDER] = 0
    THREADS.i64[ALONE] = 0
    THREADS.i64[DOUBT] = 0
    THREADS.i64[UNPAID] = 0
    threads_init()


@native("void(i64)")
def threads_stop(wanted):
    """Stop all workers and wait for them; from now on `wanted` threads work on a job (0: as before)."""
    while atomic_cas(i32, THREADS, LOCK4, 0, 1) != 0:
        sched_yield()
    atomic_store(i32, THREADS, STOP4, 1)
    atomic_add(i32, THREADS, EPOCH4, 1)
    wake(THREADS + 4 * EPOCH4, MOST)
    for k in range(THREADS.i64[RUNNING]):
        pthread_join(IDS.ptr[k], None)
    THREADS.i64[RUNNING] = 0
    atomic_store(i32, THREADS, STOP4, 0)
    if wanted > 0:
        THREADS.i64[WANTED] = wanted
    atomic_store(i32, THREADS, LOCK4, 0)


@native("void(i64)")
def threads_hold(on):
    """Keep the workers from all jobs, which their callers then do alone (1), or let them go (0) where this thread has
    kept them.
    """
    if on != 0:
        while atomic_cas(i32, THREADS, LOCK4, 0, 1) != 0:
            sched_yield()
        THREADS.i64[HOLDER] = pthread_self()
    elif THREADS.i64[HOLDER] == pthread_self():
        THREADS.i64[HOLDER] = 0
        atomic_store(i32, THREADS, LOCK4, 0)


# DAZ and FTZ of MXCSR; FZ of FPCR
FLUSH_BITS = {"x86_64": 0x8040, "aarch64": 1 << 24}.get(host_target().arch, 0)


@native("i64(i64)")
def flush_denormals(on):
    """Let the calling thread take denormal numbers for zero, or not; workers inherit it when they start.

    Returns 1 where the machine can.
    """
    word = float_control()
    set_float_control(word | u64(FLUSH_BITS) if on != 0 else word & ~u64(FLUSH_BITS))
    return i64(FLUSH_BITS != 0)


# ***** running *****


@native("i32(ptr, ptr, ptr, i64)")
def serial_for(fn, bufs, ints, pieces):
    """All pieces in order, up to the first failure."""
    for piece in range(pieces):
        status = call_ptr("i32(ptr, ptr, i64)", fn, bufs, ints, piece)
        if status != 0:
            return status
    return 0


@native("i32(i32)")
def wait_done(pieces):
    """Wait until all pieces are done: spin, then sleep."""
    k = 0
    spin = THREADS.i64[SPIN]
    while atomic_load(i32, THREADS, DONE4) != pieces:
        if k < spin:
            pause()
            k += 1
        else:
            atomic_store(i32, THREADS, WAITING4, 1)
            done = atomic_load(i32, THREADS, DONE4)
            if done != pieces:
                sleep_on(THREADS + 4 * DONE4, done)
            atomic_store(i32, THREADS, WAITING4, 0)
    return atomic_load(i32, THREADS, STATUS4)


@native("i32(ptr, ptr, ptr, i64)")
def alone_for(fn, bufs, ints, pieces):
    """A short job while sharing does not pay."""
    began = ticks()
    status = serial_for(fn, bufs, ints, pieces)
    THREADS.i64[ALONE] -= ticks() - began  # other callers may do so too: a lost update only ends the time later
    return status


@native("void(i64, i64)")
def judge_sharing(worked, waited):
    """After a short job that was shared: for how long the next ones are not."""
    unpaid = THREADS.i64[UNPAID]
    if waited > IN_VAIN * worked:
        doubt = i64(1)
        if unpaid > 0:
            doubt = min(2 * THREADS.i64[DOUBT], i64(PATIENCE))
        THREADS.i64[DOUBT] = doubt
        THREADS.i64[UNPAID] = PAYS * waited
        THREADS.i64[ALONE] = doubt * waited
    elif unpaid > 0:
        THREADS.i64[UNPAID] = unpaid - worked - waited


@native("void(i64, i64, i64)")
def judge_quantum(worked, pieces, waited):
    """After a job of which the caller ran `pieces`: shorter quanta where it waited for a piece whose core was taken
    away.
    """
    longest = THREADS.i64[LONGEST_QUANTUM]
    if unlikely(waited > longest >> 2 and pieces > 0 and waited * pieces > IN_VAIN * worked):
        quantum = THREADS.i64[QUANTUM]
        THREADS.i64[QUANTUM] = max(quantum - (quantum >> 2), longest >> 4)


@native("i32(ptr, ptr, ptr, i64, i64)")
def run_job(fn, bufs, ints, first, pieces):
    """The pieces from `first` on, on all threads; the caller holds the lock."""
    job = (atomic_load(u64, THREADS, TICKET) >> JOB_SHIFT) + 1
    atomic_store(u64, THREADS, TICKET, (job << JOB_SHIFT) | u64(CLOSED))
    if PLACES:
        atomic_store(i32, THREADS, CALLER4, sched_getcpu())
    atomic_store(ptr, THREADS, FN, fn)
    atomic_store(ptr, THREADS, BUFS, bufs)
    atomic_store(ptr, THREADS, INTS, ints)
    atomic_store(i64, THREADS, PIECES, pieces)
    atomic_store(i64, THREADS, FIRST, first)
    atomic_store(i64, THREADS, FAILED, first + pieces)
    atomic_store(i32, THREADS, DONE4, 0)
    atomic_store(i32, THREADS, STATUS4, 0)
    atomic_store(u64, THREADS, TICKET, job << JOB_SHIFT)
    atomic_add(i32, THREADS, EPOCH4, 1)
    if atomic_load(i32, THREADS, SLEEPERS4) > 0:
        if THREADS.i64[WOKEN] == 0:
            THREADS.i64[WOKEN] = ticks()
        wake(THREADS + 4 * EPOCH4, i32(min(pieces - 1, i64(MOST))))
    began = ticks()
    take_pieces(0, 0)
    worked = ticks()
    mine = i64(atomic_load(u64, THREADS, TICKET) & MOST_PIECES)
    status = wait_done(i32(pieces))
    waited = ticks() - worked
    judge_quantum(worked - began, mine, waited)
    if pieces <= SHORT:
        judge_sharing(worked - began, waited)
    # no job from here on: a worker that comes late finds nothing
    atomic_store(u64, THREADS, TICKET, (job << JOB_SHIFT) | u64(CLOSED))
    return status


@native("i32(ptr, ptr, ptr, i64)")
def rl_parallel_for(fn, bufs, ints, pieces):
    """Run `fn(bufs, ints, piece)` for every piece, on all threads; the status of a failed piece, or 0."""
    wanted = THREADS.i64[WANTED]
    if pieces <= 1 or wanted <= 1:
        return serial_for(fn, bufs, ints, pieces)
    if pieces <= SHORT and THREADS.i64[ALONE] > 0:
        return alone_for(fn, bufs, ints, pieces)
    if atomic_cas(i32, THREADS, LOCK4, 0, 1) != 0:
        return serial_for(fn, bufs, ints, pieces)
    if THREADS.i64[RUNNING] == 0:
        start_workers(wanted - 1)
    first = 0
    status: i32 = 0
    while first < pieces and status == 0:
        count = min(pieces - first, MOST_PIECES)
        status = run_job(fn, bufs, ints, first, count)
        first += count
    atomic_store(i32, THREADS, LOCK4, 0)
    return status
