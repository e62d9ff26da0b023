"""Dynamic batches: requests that come within a few milliseconds share a call."""

import queue
import threading
import time
from concurrent.futures import Future

import numpy as np


class Batcher:
    """Calls `program` with the items of up to `most` requests, the oldest of which has waited `seconds` at most."""

    def __init__(self, program, most=8, seconds=0.002):
        self.program, self.most, self.seconds = program, most, seconds
        self.requests, self.items, self.calls = queue.SimpleQueue(), 0, 0
        self.thread = threading.Thread(target=self.loop, name="batcher", daemon=True)
        self.thread.start()

    def submit(self, item):
        """A future of the result for one item, an array without the dim of the batch."""
        future = Future()
        self.requests.put((item, future))
        return future

    def stop(self):
        """Answer what was taken, then end."""
        self.requests.put(None)
        self.thread.join()

    def loop(self):
        ended = False
        while not ended:
            batch, deadline = [], None
            while len(batch) < self.most:
                try:
                    request = self.requests.get(
                        timeout=None if deadline is None else max(0.0, deadline - time.perf_counter())
                    )
                except queue.Empty:
                    break
                if request is None:
                    ended = True
                    break
                batch.append(request)
                deadline = deadline or time.perf_counter() + self.seconds
            if batch:
                self.run(batch)

    def run(self, batch):
        try:
            results = self.program(np.stack([item for item, _ in batch]))
        except Exception as error:
            for _, future in batch:
                future.set_exception(error)
            return
        self.items, self.calls = self.items + len(batch), self.calls + 1
        for result, (_, future) in zip(results, batch, strict=True):
            future.set_result(result)
