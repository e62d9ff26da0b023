"""Words that the native half of a GPU and Python share, and the stream of the calling thread.

Each device has a unit of its own, so its static memory is that device's.  Everything here runs with the GIL held.
"""

from __future__ import annotations

from rushlight._host.python_native import PyThreadState_Get, PyThreadState_GetID
from rushlight._native import Words, i64, native, static, u64

__all__ = ["AT", "STATE", "STATE_WORDS", "THREADS", "MOST_DEVICES", "THREAD_WORDS", "stream_here"]

STATE_WORDS = 128
STATE = static("rl_cuda_state", 8 * STATE_WORDS)
AT = Words(
    "slow index launch_kernel memset lend take_back threads notes note_count "
    # further functions of the driver: 0 where it has none
    "query encode_map encode_windows launch_graph set_node "
    # launches since the device was known to have none left, the stream of the last one, whether others were on further streams
    "waiting stream several_streams "
    # what Python does where native code cannot: functions
    "allocate_slow zero_slow release_slow launch_slow fail_slow "
    # how many records of chunks there are, and how many lists
    "chunks lists"
)
THREADS, MOST_DEVICES = 64, 16
THREAD_WORDS = 2 + MOST_DEVICES  # number of the thread, device of its context, current stream on each device


@native("i64(ptr)", inline=True)
def stream_here(out):
    """1, with the calling thread's current stream in `out`, where this device's context is the thread's; else 0."""
    number = PyThreadState_GetID(PyThreadState_Get())
    entry = STATE.ptr[AT.threads] + 8 * THREAD_WORDS * i64(number & u64(THREADS - 1))
    if entry.u64[0] != number or entry.i64[1] != STATE.i64[AT.index]:
        return 0
    out.i64[0] = entry.i64[2 + STATE.i64[AT.index]]
    return 1
