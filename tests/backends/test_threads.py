"""The thread pool: same bits for any number of threads, forks, several Python threads, interrupts."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

import numpy as np
import pytest

from rushlight._backends.cpu.runtime import stubs, threads
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.threads_native import (
    ALONE,
    CALLER4,
    DOUBT,
    LONGEST_QUANTUM,
    MOST_PIECES,
    PATIENCE,
    PLACES,
    QUANTUM,
    RUNNING,
    THREADS,
    UNPAID,
    WANTED,
    sched_getcpu,
    step_aside,
)  # fmt: skip
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._native import atomic_store, extern, f32, i32, i64, native, pause, target, ticks

rl_parallel_for = extern("rl_parallel_for", "i32(ptr, ptr, ptr, i64)")


@native("i32(ptr, ptr, i64)")
def square_kernel(bufs, ints, piece):
    o, a, n = bufs.ptr[0], bufs.ptr[1], ints.i64[8]
    for _round in range(ints.i64[9]):
        for i in range(piece * n, piece * n + n):
            o.f32[i] = a.f32[i] * a.f32[i] + f32(piece)
    return 0


pthread_self = extern("pthread_self", "i64()")


@native("i32(ptr, ptr, i64)")
def lingering_kernel(bufs, ints, piece):
    """Notes who ran the piece; whoever is not the thread in ints[9] stays for long."""
    me = pthread_self()
    bufs.ptr[0].i64[piece] = me
    if me != ints.i64[9]:
        began = ticks()
        for _k in range(2_000_000):
            pause()
        bufs.ptr[0].i64[piece + 2] = ticks() - began
    else:
        for _k in range(1_000):
            pause()
    return 0


@native("i32(ptr, ptr, i64)")
def nested_kernel(bufs, ints, piece):
    """Piece 0 runs another parallel loop, with its own bufs and ints."""
    if piece == 0:
        return rl_parallel_for(square_kernel, bufs.ptr[0], bufs.ptr[1], bufs.ptr[1].i64[0])
    return 0


def constants(pieces, size, rounds=1, flags=0):
    return (ctypes.c_int64 * 16)(pieces, flags, 0, 0, 0, 0, 0, 0, size, rounds)


def run(pieces, size, rounds=1, flags=0):
    a = np.arange(pieces * size, dtype=np.float32)
    o = np.zeros_like(a)
    ints = constants(pieces, size, rounds, flags)
    square()(ctypes.addressof(ints), o.ctypes.data, a.ctypes.data)
    np.testing.assert_array_equal(o, a * a + np.repeat(np.arange(pieces, dtype=np.float32), size))


def square():
    return stubs.make_kernel_callable(stubs.native_address(square_kernel), "square")


@pytest.fixture(autouse=True)
def restore():
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("flags", [0, 1])
def test_every_piece_runs_once(count, flags):
    threads.set_num_threads(count)
    assert threads.get_num_threads() == count
    for pieces, size in ((1, 5), (2, 3), (7, 100), (500, 3), (64, 1000)):
        for _ in range(20):
            run(pieces, size, flags=flags)
    assert runtime().threads[RUNNING] == (count - 1 if count > 1 else 0)


def test_work_may_be_kept_from_workers():
    """As it is while two ways of computing products are compared: no worker is started, and afterwards they are again."""
    threads.set_num_threads(3)
    threads.stop_threads()
    other = threading.Thread(target=runtime().plain("threads_hold", ctypes.c_int64), args=(0,))
    with pytest.raises(KeyError), threads.alone():
        other.start()  # who has not kept them cannot let them go
        other.join()
        run(500, 3)
        assert runtime().threads[RUNNING] == 0
        raise KeyError
    run(500, 3)
    assert runtime().threads[RUNNING] == 2


def eventually(condition):
    """Whether something happens: a busy machine may give a worker, or this thread, no core for long, so what counts is that it does."""
    deadline = time.monotonic() + 60
    while not (met := condition()) and time.monotonic() < deadline:
        pass
    return met


def test_many_small_jobs():
    threads.set_num_threads(4)
    k, o, a = square(), np.zeros(4, np.float32), np.ones(4, np.float32)
    ints = constants(4, 1)
    for i in range(20_000):
        o[:] = -1
        k(ctypes.addressof(ints), o.ctypes.data, a.ctypes.data)
        assert o[3] == 4, i
        if i % 5000 == 0:
            time.sleep(0.02)  # long enough for the workers to fall asleep


def test_stopping_and_starting():
    for count in (2, 4, 1, 3):
        threads.set_num_threads(count)
        run(32, 10)
        threads.stop_threads()
        assert runtime().threads[RUNNING] == 0
        run(32, 10)
        assert runtime().threads[WANTED] == count


def test_wrong_numbers_of_threads():
    with pytest.raises(RuntimeError, match="positive"):
        threads.set_num_threads(0)
    with pytest.raises(TypeError, match="int"):
        threads.set_num_threads(2.0)
    with pytest.raises(TypeError, match="int"):
        threads.set_num_threads(True)


def test_python_threads_at_once():
    """Several Python threads call kernels that drop the GIL: one has the pool, the others work alone."""
    threads.set_num_threads(3)
    errors = []

    def work():
        try:
            for _ in range(100):
                run(16, 500, rounds=3, flags=1)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not errors


def test_nested_calls_run_serially():
    threads.set_num_threads(4)
    a, o = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    inner = constants(10, 4)
    outer = constants(4, 0)
    pair = np.array([o.ctypes.data, a.ctypes.data], dtype=np.int64)
    nested = stubs.make_kernel_callable(stubs.native_address(nested_kernel), "nested")
    nested(ctypes.addressof(outer), pair.ctypes.data, ctypes.addressof(inner))
    np.testing.assert_array_equal(o, a * a + np.repeat(np.arange(10, dtype=np.float32), 4))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_its_own_pool():
    threads.set_num_threads(3)
    run(64, 100)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run(64, 100)
            threads.set_num_threads(2)
            run(64, 100)
            code = 0
        finally:
            os._exit(code)
    run(64, 100)
    deadline = time.monotonic() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hung")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(status) == 0


_FORK = """
import os, sys, warnings
sys.path.insert(0, {here!r})
import test_threads as t
warnings.simplefilter("error")
t.threads.set_num_threads(3)
t.run(64, 100)
before = len(os.listdir("/proc/self/task"))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    child = os.fork()
    if child == 0:
        os._exit(0)
print(before >= 3, len(os.listdir("/proc/self/task")), told, os.waitpid(child, 0)[1])
t.run(64, 100)
print(len(os.listdir("/proc/self/task")) >= 3)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
def test_no_worker_runs_during_a_fork(run_python):
    """Python warns of threads that a copy of the process would lack (from 3.12 on)."""
    done = run_python(
        "-c", _FORK.format(here=os.path.dirname(__file__)), env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, check=True
    )
    assert done.stdout.splitlines() == ["True 1 [] 0", "True"]


_INTERRUPT = """
import ctypes, os, signal, sys, threading, time
sys.path.insert(0, {here!r})
import test_threads as t
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
t.threads.set_num_threads(2)
t.run(4, 10)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        t.run(8, 100_000, rounds=100, flags=1)
except KeyboardInterrupt:
    t.run(8, 100)
    print("interrupted and well")
"""


def test_an_interrupt_arrives_after_the_kernel(run_python):
    done = run_python("-c", _INTERRUPT.format(here=os.path.dirname(__file__)))
    assert done.returncode == 0, done.stderr
    assert "interrupted and well" in done.stdout


_EXIT = """
import sys
sys.path.insert(0, {here!r})
import test_threads as t
t.threads.set_num_threads(4)
for _ in range(50):
    t.run(16, 50)
assert t.threads.get_num_threads() == 4
"""


def test_a_clean_exit(run_python):
    for _ in range(3):
        done = run_python("-c", _EXIT.format(here=os.path.dirname(__file__)))
        assert done.returncode == 0 and done.stderr == ""


_KNOB = """
from rushlight._backends.cpu.runtime import threads
from rushlight._backends.cpu.runtime.runtime import runtime
print(threads.get_num_threads())
runtime()
print(threads.get_num_threads())
"""


@pytest.mark.parametrize(
    ("environment", "want"),
    [({"OMP_NUM_THREADS": "3"}, 3), ({"OMP_NUM_THREADS": "3,2"}, 3),
     ({"OMP_NUM_THREADS": "3", "RUSHLIGHT_NUM_THREADS": "5"}, 5),
     ({"OMP_NUM_THREADS": "many"}, None)],
)  # fmt: skip
def test_the_environment_decides(run_python, environment, want, monkeypatch):
    for name in ("OMP_NUM_THREADS", "RUSHLIGHT_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = run_python("-c", _KNOB)
    cores = target.usable_cores()
    assert done.stdout.split() == [str(want or cores)] * 2, done.stderr


_CONDITION = """
import sys
from rushlight._backends.cpu.runtime import threads_native
threads_native.FUTEX = 0
sys.path.insert(0, {here!r})
import test_threads as t
t.threads.set_num_threads(4)
t.test_many_small_jobs()
for _ in range(200):
    t.run(16, 50)
"""


def test_sleeping_without_futex(run_python):
    """The way of systems without futex: a condition variable."""
    done = run_python("-c", _CONDITION.format(here=os.path.dirname(__file__)))
    assert done.returncode == 0, done.stderr


@native("i32(ptr, ptr, i64)")
def halve_kernel(bufs, ints, piece):
    bufs.ptr[0].f32[piece] = bufs.ptr[1].f32[piece] * f32(0.5)
    return 0


def test_flush_denormal_reaches_the_workers():
    threads.set_num_threads(3)
    k = stubs.make_kernel_callable(stubs.native_address(halve_kernel), "halve")
    a, o = np.full(5000, 2e-38, np.float32), np.zeros(5000, np.float32)

    words = constants(5000, 1)

    def halves():
        o[:] = -1
        k(ctypes.addressof(words), o.ctypes.data, a.ctypes.data)
        return o

    assert (halves() == np.float32(1e-38)).all()
    try:
        if not threads.set_flush_denormal(True):
            pytest.skip("this machine cannot")
        assert (halves() == 0).all()
    finally:
        threads.set_flush_denormal(False)
    assert (halves() == np.float32(1e-38)).all()


def test_short_jobs_are_not_shared_with_a_thread_that_lost_its_core():
    threads.set_num_threads(2)
    words, me = runtime().threads, threading.get_ident()
    kernel = stubs.make_kernel_callable(stubs.native_address(lingering_kernel), "lingering")
    ints = constants(2, 0, rounds=me)

    def shared():
        """Runs a job: whether a worker took part in it, and for how many ticks."""
        out = np.zeros(4, np.int64)
        kernel(ctypes.addressof(ints), out.ctypes.data, out.ctypes.data)
        return bool((out[:2] != me).any()), int(out[2:].max())

    def waited_in_vain():
        words[ALONE] = 0
        took_part, _ = shared()
        return took_part and words[ALONE] > 0

    def waited_in_vain_again():
        words[ALONE], words[DOUBT], words[UNPAID] = 0, PATIENCE, long
        took_part, lingered = shared()
        return took_part and words[ALONE] > lingered

    def paid():
        words[ALONE], words[UNPAID] = 0, 1
        shared()
        return words[ALONE] == 0 and words[UNPAID] <= 0

    long = 1 << 60  # longer than any interruption of this thread
    words[DOUBT] = words[UNPAID] = 0
    try:
        for doubt in (1, 2, 4):  # a single loss may be chance
            assert eventually(waited_in_vain)
            assert words[DOUBT] == doubt and words[UNPAID] > words[ALONE] / doubt
            words[UNPAID] = long
        assert eventually(waited_in_vain_again) and words[DOUBT] == PATIENCE
        assert eventually(paid)
        assert eventually(waited_in_vain) and words[DOUBT] == 1
        words[ALONE] = long
        assert not any(shared()[0] for _ in range(20))
        assert 0 < words[ALONE] < long  # the time spent alone is taken off
        words[ALONE] = 0
        assert eventually(lambda: shared()[0])  # and shared again when the time is over
    finally:
        words[ALONE] = words[DOUBT] = words[UNPAID] = 0


@native("i32(ptr, ptr, i64)")
def halves_kernel(bufs, ints, piece):
    """Notes by whom the piece was run; both halves take a while."""
    bufs.ptr[0].i64[piece] = pthread_self()
    for _k in range(20_000):
        pause()
    return 0


def test_the_caller_works_from_the_front_and_workers_from_the_end():
    threads.set_num_threads(2)
    me = threading.get_ident()
    kernel = stubs.make_kernel_callable(stubs.native_address(halves_kernel), "halves")
    pieces = 20
    ints, out = constants(pieces, 0), np.zeros(pieces, np.int64)

    def both_took_part():
        out[:] = 0
        kernel(ctypes.addressof(ints), out.ctypes.data, out.ctypes.data)
        mine = out == me
        assert out.all() and (np.diff(mine.astype(int)) <= 0).all()
        return mine.any() and not mine.all()

    assert eventually(both_took_part)


def test_a_worker_whose_turn_is_over_leaves_no_piece_out():
    threads.set_num_threads(3)
    words = runtime().threads
    before = words[QUANTUM]
    try:
        words[QUANTUM] = (
            words[LONGEST_QUANTUM] >> 10
        )  # so short that a worker offers its core in the middle of a job, again and again
        for pieces, size in ((2, 3), (7, 100), (500, 3), (64, 1000)):
            for _ in range(20):
                run(pieces, size)
    finally:
        words[QUANTUM] = before


def test_a_piece_that_was_waited_for_makes_turns_shorter():
    threads.set_num_threads(2)
    words, me = runtime().threads, threading.get_ident()
    kernel = stubs.make_kernel_callable(stubs.native_address(lingering_kernel), "lingering")
    ints, out = constants(2, 0, rounds=me), np.zeros(4, np.int64)
    longest = words[LONGEST_QUANTUM]
    assert 0 < words[QUANTUM] <= longest

    def shortened():
        words[ALONE] = 0
        words[QUANTUM] = longest
        kernel(ctypes.addressof(ints), out.ctypes.data, out.ctypes.data)
        return words[QUANTUM] < longest

    try:
        assert eventually(shortened)
        assert longest - (longest >> 2) <= words[QUANTUM]  # an offer that was taken may have made it longer again
    finally:
        words[ALONE] = words[DOUBT] = words[UNPAID] = 0


@native("i32(ptr, ptr, i64)")
def aside_kernel(bufs, ints, piece):
    """Steps aside from the core it is on, and notes both."""
    place = sched_getcpu()
    atomic_store(i32, THREADS, CALLER4, place)
    step_aside()
    bufs.ptr[0].i64[0] = i64(place)
    bufs.ptr[0].i64[1] = i64(sched_getcpu())
    return 0


@pytest.mark.skipif(not PLACES, reason="a thread cannot choose its core here")
def test_a_worker_leaves_the_core_of_its_caller():
    threads.set_num_threads(1)  # no other thread reads the caller's place
    kernel = stubs.make_kernel_callable(stubs.native_address(aside_kernel), "aside")
    ints, out = constants(1, 0), np.zeros(2, np.int64)
    allowed = os.sched_getaffinity(0)

    def moved():
        kernel(ctypes.addressof(ints), out.ctypes.data, out.ctypes.data)
        assert os.sched_getaffinity(0) == allowed  # it may be anywhere again
        return out[0] != out[1]

    if len(allowed) > 1:
        assert eventually(moved)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        kernel(ctypes.addressof(ints), out.ctypes.data, out.ctypes.data)
        assert out.tolist() == [min(allowed)] * 2  # there is no other
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)


def test_more_pieces_than_a_ticket_counts():
    threads.set_num_threads(3)
    run(MOST_PIECES * 2 + 5, 1)


@native("i64(i64)")
def borrowing(nbytes):
    """Two blocks at once, then one: their slots, and whether what was written to the last is still there; -1 where they are not apart."""
    first = borrow(nbytes)
    second = borrow(nbytes)
    x, y = borrowed(first), borrowed(second)
    x.i64[0], y.i64[0] = 1, 2
    x.i64[nbytes // 8 - 1], y.i64[nbytes // 8 - 1] = 3, 4
    apart = x.i64[0] == 1 and y.i64[0] == 2 and x.i64[nbytes // 8 - 1] == 3
    give_back(first)
    give_back(second)
    third = borrow(nbytes)
    kept = third == second and borrowed(third).i64[0] == 2
    give_back(third)
    return (first * 256 + second) * 256 + third if apart and kept else i64(-1)


def test_a_thread_borrows_the_memory_that_it_had_last():
    run = stubs.bind(borrowing)
    assert run(64) == 0x000101  # slots 0 and 1 are free; the last one that was had is 1
    assert run(1 << 20) == 0x010000  # which is taken first now, and grows
    results = []
    for _ in range(3):
        worker = threading.Thread(target=lambda: results.append(run(64)))
        worker.start()
        worker.join(60)
    assert len(results) == 3 and {*results} <= {0x000101, 0x010000}  # what other threads gave back is used again
