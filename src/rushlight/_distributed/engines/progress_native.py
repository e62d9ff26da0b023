"""Starting a call of MPI and waiting for it, without Python and without the interpreter lock.

A call is a block of words: the address of the function, its arguments, then the request that it fills.  Every argument
of MPI's functions fits a word, and a function ignores words behind its last argument.
"""

from __future__ import annotations

from typing import Any

from rushlight._host.stubs import bind
from rushlight._native import call_ptr, extern, i64, native, pause, stack

__all__ = ["ARGUMENTS", "BLOCK_WORDS", "CODE", "FIRST", "FLAG", "FUNCTION", "REQUEST", "STATUS", "TEST", "bound"]

# Words of a block.
FUNCTION, FIRST, ARGUMENTS = 0, 1, 10
# MPI_Test, the request, whether it is done, what `test` gave, 64 bytes of status
TEST, REQUEST, FLAG, CODE, STATUS = 11, 12, 13, 14, 15
BLOCK_WORDS = STATUS + 8
REQUEST8, FLAG8, STATUS8 = 8 * REQUEST, 8 * FLAG, 8 * STATUS
SPIN = 50_000  # ns
LONGEST_NAP = 400_000
CLOCK_MONOTONIC = 1

clock_gettime = extern("clock_gettime", "i32(i32, ptr)")
nanosleep = extern("nanosleep", "i32(ptr, ptr)")
sched_yield = extern("sched_yield", "i32()")


@native("i64()")
def rl_mpi_now():
    """Nanoseconds of the monotonic clock."""
    time = stack(16)
    clock_gettime(CLOCK_MONOTONIC, time)
    return time.i64[0] * 1000000000 + time.i64[1]


@native("i64(ptr)")
def rl_mpi_start(block):
    """Call the function of a block; its error code, negative, or 0."""
    code = call_ptr(
        "i32(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64)", block.ptr[FUNCTION],
        block.i64[1], block.i64[2], block.i64[3], block.i64[4], block.i64[5], block.i64[6], block.i64[7], block.i64[8], block.i64[9], block.i64[10],
    )  # fmt: skip
    return -i64(code)


@native("i64(ptr)")
def rl_mpi_test(block):
    """1 where the request of a block is done, 0 where it is not, or a negative error code."""
    code = call_ptr("i32(ptr, ptr, ptr)", block.ptr[TEST], block + REQUEST8, block + FLAG8, block + STATUS8)
    if code != 0:
        block.i64[CODE] = -i64(code)
    else:
        block.i64[CODE] = i64(1) if block.i32[2 * FLAG] != 0 else i64(0)
    return block.i64[CODE]


@native("void(i64, i64, i64)")
def rl_mpi_pass_time(elapsed, quick, yielding):
    """One step of waiting: spin at first where it is `quick`, then yield, then sleep longer and longer."""
    if elapsed < SPIN and quick != 0:
        pause()
    elif elapsed < yielding:
        sched_yield()
    else:
        time = stack(16)
        time.i64[0] = 0
        time.i64[1] = min(20000 + (elapsed - yielding) // 32, LONGEST_NAP)
        nanosleep(time, None)


@native("i64(ptr, i64, i64, i64)")
def rl_mpi_wait(block, quick, yielding, limit):
    """Test a block's request until it is done (1) or `limit` nanoseconds are over (0); a negative error code."""
    began = rl_mpi_now()
    while True:
        found = rl_mpi_test(block)
        if found != 0:
            return found
        elapsed = rl_mpi_now() - began
        if elapsed >= limit:
            return i64(0)
        rl_mpi_pass_time(elapsed, quick, yielding)


@native("i64(ptr, i64, i64)")
def rl_mpi_run(block, yielding, limit):
    """Start a block's call and wait for it, as `rl_mpi_wait`."""
    code = rl_mpi_start(block)
    if code != 0:
        return code
    return rl_mpi_wait(block, 1, yielding, limit)


@native("i64(ptr, i64, ptr, i64, i64)")
def rl_mpi_poll(blocks, count, kick, yielding, limit):
    """Test the requests of many blocks in turn: the index of one that is done or failed, or -1 when `limit` is over or
    somebody set the word `kick`.
    """
    began = rl_mpi_now()
    while True:
        for k in range(count):
            if rl_mpi_test(blocks.ptr[k]) != 0:
                return k
        elapsed = rl_mpi_now() - began
        if elapsed >= limit or kick.i64[0] != 0:
            return i64(-1)
        rl_mpi_pass_time(elapsed, 1, yielding)


_BOUND: dict[str, Any] = {}


def bound(name: str) -> Any:
    """One of `start`, `test`, `wait`, `run`, `poll` as a function of Python's that runs without the interpreter lock."""
    found = _BOUND.get(name)
    if found is None:
        from_native = {
            "start": rl_mpi_start,
            "test": rl_mpi_test,
            "wait": rl_mpi_wait,
            "run": rl_mpi_run,
            "poll": rl_mpi_poll,
        }
        found = _BOUND[name] = bind(from_native[name], nogil=True)
    return found
