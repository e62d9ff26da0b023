"""`torch.distributed.elastic.timer`: time limits of pieces of a worker's program, kept by a server that ends the worker.

A worker says when it begins and ends a piece (`expires`), through a client; the server, in the launcher's process, ends
workers whose time is over. Client and server share a queue, or a named pipe.

>>> import multiprocessing
>>> from rushlight.distributed.elastic import timer
>>> queue = multiprocessing.get_context("spawn").Queue()
>>> server = timer.LocalTimerServer(queue, max_interval=0.1)
>>> server.start()
>>> timer.configure(timer.LocalTimerClient(queue))
>>> with timer.expires(after=60):
...     print("in time")
in time
>>> server.stop()
"""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = [
    "FileTimerClient", "FileTimerRequest", "FileTimerServer", "LocalTimerClient", "LocalTimerServer", "TimerClient", "TimerRequest", "TimerServer",
    "configure", "expires",
]  # fmt: skip

_HOMES = {
    name: "file_based_local_timer" if name.startswith("File") else "local_timer" if name.startswith("Local") else "api"
    for name in __all__
}
__getattr__ = lazy_files(__name__, _HOMES, ("api", "file_based_local_timer", "local_timer"))
