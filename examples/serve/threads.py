"""How much more two Python threads serve than one: eager, compiled, and by package, each call on one core.

python -m rushlight examples/serve/threads.py
"""

import argparse
import os
import tempfile
import threading
import time

import torch
from torch import nn


def rate(call, threads, seconds):
    """Calls a second of so many threads."""
    counts, stop = [0] * threads, time.perf_counter() + seconds

    def work(k):
        while time.perf_counter() < stop:
            call()
            counts[k] += 1

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(options.width, options.width), nn.GELU()) for _ in range(4)]).eval()
    x = torch.randn(options.batch, options.width)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = torch._inductor.aoti_compile_and_package(model, (x,), package_path=os.path.join(folder, "model.rlp"))
        package, compiled = torch._inductor.aoti_load_package(path, run_single_threaded=True), torch.compile(model)
        for name, call in (("eager", model), ("compiled", compiled), ("package", package)):
            with torch.no_grad():
                call(x)
            one, two = (rate(lambda: guarded(call, x), k, options.seconds) for k in (1, 2))
            print(f"{name:9} one thread {one:7.1f}, two {two:7.1f} calls a second: {two / one:.2f} times")


def guarded(call, x):
    with torch.no_grad():
        return call(x)


if __name__ == "__main__":
    main()
