"""Signs of life, in the native language: a thread that needs no interpreter, so that a rank which is busy is not silent."""

from __future__ import annotations

from rushlight._native import atomic_load, extern, i32, i64, native, stack

__all__ = ["BYTE", "DESCRIPTOR", "PERIOD", "STOP", "WORDS", "start_beat"]

DESCRIPTOR, PERIOD, STOP, BYTE, WORDS = 0, 1, 2, 3, 4  # words of the beat's state; the period is in microseconds
QUIETLY = 0x4000 | 0x40  # MSG_NOSIGNAL | MSG_DONTWAIT
SIG_SETMASK = 2

send = extern("send", "i64(i32, ptr, i64, i32)")
usleep = extern("usleep", "i32(i32)")
close = extern("close", "i32(i32)")
pthread_create = extern("pthread_create", "i32(ptr, ptr, ptr, ptr)")
pthread_attr_init = extern("pthread_attr_init", "i32(ptr)")
pthread_attr_setstacksize = extern("pthread_attr_setstacksize", "i32(ptr, i64)")
pthread_attr_setdetachstate = extern("pthread_attr_setdetachstate", "i32(ptr, i32)")
pthread_attr_destroy = extern("pthread_attr_destroy", "i32(ptr)")
pthread_sigmask = extern("pthread_sigmask", "i32(i32, ptr, ptr)")
sigfillset = extern("sigfillset", "i32(ptr)")


@native("ptr(ptr)")
def beat(state):
    """A byte, and a pause, until it is told to stop; the descriptor is its own."""
    while atomic_load(i64, state, STOP) == 0:
        send(i32(state.i64[DESCRIPTOR]), state + 8 * BYTE, 1, i32(QUIETLY))
        usleep(i32(state.i64[PERIOD]))
    close(i32(state.i64[DESCRIPTOR]))
    return None


@native("i32(ptr)")
def start_beat(state):
    """Start the thread, whom no signals reach; what pthread_create answers."""
    attributes, thread = stack(256), stack(8)
    every, before = stack(128), stack(128)
    pthread_attr_init(attributes)
    pthread_attr_setstacksize(attributes, 256 << 10)
    pthread_attr_setdetachstate(attributes, 1)
    sigfillset(every)
    pthread_sigmask(SIG_SETMASK, every, before)
    answer = pthread_create(thread, attributes, beat, state)
    pthread_sigmask(SIG_SETMASK, before, None)
    pthread_attr_destroy(attributes)
    return answer
