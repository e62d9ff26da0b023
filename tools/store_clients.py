"""How long it takes until many clients of a TCPStore have passed a barrier.

    python tools/store_clients.py [CLIENTS] [PROCESSES]

Every client is a connection of its own; processes make theirs one after the other, and all of them wait at one barrier.
"""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta

from rushlight._distributed.stores.tcp_store import TCPStore


def worker(port: int, count: int, total: int) -> None:
    """Connect `count` clients; the last one to come opens the barrier for all."""
    stores = [TCPStore("localhost", port, timeout=timedelta(seconds=60)) for _ in range(count)]
    for store in stores:
        if store.add("arrived", 1) == total:
            store.set("open", "1")
    for store in stores:
        store.wait(["open"])


def main(clients: int = 2000, processes: int = 4) -> None:
    """Print the time from the first connection to the last that has passed, and of the processes' start before it."""
    master = TCPStore("localhost", 0, is_master=True)
    share = clients // processes
    command = [sys.executable, __file__, "worker", str(master.port), str(share), str(share * processes)]
    workers = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(processes)]
    for process in workers:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for process in workers:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in workers:
        process.communicate()
    print(f"{share * processes} clients of {processes} processes: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        print("ready", flush=True)
        sys.stdin.readline()
        worker(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
