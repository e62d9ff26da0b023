"""Continuous batching over a paged cache: sequences come and go between any two tokens, and share each call of the model.

It needs NumPy and something to call, which `server.py` takes from packages: no compiler, no tensors.

A sequence takes a page of the cache when it needs one.  Where there is none left, the sequence that came last gives its pages back, and is computed anew from
its tokens when there is room again.  Its reader does not notice.
"""

import json
import os
import threading
import time
from collections import deque

import numpy as np

AT_ONCE = 4  # pieces of prompts between two tokens of the others


class Sequence:
    """A prompt and what was generated; `emit` is called with each token, and with None at the end."""

    def __init__(self, prompt, count, emit, temperature=0.0, seed=None):
        self.tokens, self.left, self.emit, self.temperature = list(prompt), count, emit, temperature
        self.rng = np.random.default_rng(seed)
        self.pages, self.done, self.cancelled = [], 0, False  # `done`: positions whose keys and values are in the cache
        self.began, self.first = time.perf_counter(), None


class Engine:
    """The scheduler, in a thread of its own.  `decode` and `prefill` are programs (see `model.py`)."""

    def __init__(self, config, decode, prefill, pages=None):
        self.config, self.decode, self.prefill = config, decode, prefill
        L, N, K = config["layers"], config["slots"] * config["pages"] + 1, config["page"]
        shape = (L, N, K, config["heads"], config["width"] // config["heads"])
        self.keys, self.values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.free = list(
            range(1, min(N, (pages or N - 1) + 1))
        )  # page 0 stands for pages that a sequence does not have
        self.total = len(self.free)
        self.context = config["page"] * config["pages"]
        self.waiting, self.running = deque(), []
        self.changed, self.stopping = threading.Condition(), False
        self.counts = {
            "requests": 0,
            "tokens": 0,
            "prompt_tokens": 0,
            "calls": 0,
            "preemptions": 0,
            "cancelled": 0,
            "failures": 0,
            "first_token_seconds": 0.0,
        }
        self.thread = threading.Thread(target=self.loop, name="engine", daemon=True)
        self.thread.start()

    # ***** what requests see *****

    def submit(self, sequence):
        """Take a sequence.  ValueError for one that cannot fit, RuntimeError while the engine stops."""
        if not sequence.tokens or sequence.left < 1 or not all(0 <= t < self.config["vocab"] for t in sequence.tokens):
            raise ValueError("a prompt has at least one token, and asks for one")
        length = len(sequence.tokens) + sequence.left
        if length > self.context or -(-length // self.config["page"]) > self.total:
            raise ValueError(f"prompt and answer have {self.context} tokens at most")
        with self.changed:
            if self.stopping:
                raise RuntimeError("the server is stopping")
            self.counts["requests"] += 1
            self.waiting.append(sequence)
            self.changed.notify()

    def cancel(self, sequence):
        """Nobody reads a sequence any more."""
        sequence.cancelled = True

    def stop(self, seconds=30.0):
        """Finish what was taken, take nothing more."""
        with self.changed:
            self.stopping = True
            self.changed.notify()
        self.thread.join(seconds)

    def metrics(self):
        """Numbers for `/metrics`."""
        return {
            **self.counts,
            "running": len(self.running),
            "waiting": len(self.waiting),
            "pages_used": self.total - len(self.free),
            "pages": self.total,
        }

    # ***** the loop *****

    def loop(self):
        while True:
            with self.changed:
                while not (self.waiting or self.running or self.stopping):
                    self.changed.wait()
                if self.stopping and not (self.waiting or self.running):
                    return
            try:
                self.step()
            except Exception:  # the programs refused: whoever waits is told, and the next requests are served
                self.counts["failures"] += 1
                for sequence in [*self.running, *self.waiting]:
                    self.end(sequence)
                self.waiting.clear()

    def step(self):
        """Drop who left, read pieces of a few prompts, then one token for everybody else."""
        for sequence in [s for s in (*self.running, *self.waiting) if s.cancelled]:
            self.counts["cancelled"] += 1
            self.end(sequence)
        self.admit()
        reading = [s for s in self.running if len(s.tokens) - s.done > 1]
        for sequence in reading[:AT_ONCE]:
            if sequence in self.running:  # it may have had to give pages back
                self.read(sequence)
        ready = [s for s in self.running if len(s.tokens) - s.done == 1]
        ready = [s for s in ready if s in self.running and self.room(s, s.done + 1)]
        ready = [s for s in ready if s in self.running]  # somebody may have had to give pages back
        if ready:
            self.write(ready)

    def admit(self):
        while self.waiting and len(self.running) < self.config["slots"]:
            first = self.waiting[0]
            if len(self.free) < -(-len(first.tokens) // self.config["page"]) and self.running:
                return
            self.running.append(self.waiting.popleft())

    def room(self, sequence, length):
        """Give a sequence pages for so many positions; False where it had to give its own back."""
        while len(sequence.pages) * self.config["page"] < length:
            if self.free:
                sequence.pages.append(self.free.pop())
                continue
            last = next(s for s in reversed(self.running) if s.pages or s is sequence)
            self.counts["preemptions"] += 1
            self.drop(last)
            self.waiting.appendleft(last)
            if last is sequence:
                return False
        return True

    def drop(self, sequence):
        self.running.remove(sequence)
        self.free += sequence.pages
        sequence.pages, sequence.done = [], 0

    def end(self, sequence):
        """Nothing more comes from a sequence."""
        if sequence in self.running:
            self.drop(sequence)
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.emit(None)

    # ***** calls of the model *****

    def read(self, sequence):
        """Up to a chunk of a prompt, but for its last token."""
        chunk = self.config["chunk"]
        count = min(chunk, len(sequence.tokens) - 1 - sequence.done)
        if not self.room(sequence, sequence.done + count):
            return
        tokens = np.zeros((1, chunk), np.int64)
        tokens[0, :count] = sequence.tokens[sequence.done : sequence.done + count]
        positions = np.minimum(sequence.done + np.arange(chunk), self.context - 1)[None]
        self.counts["prompt_tokens"] += count
        _, keys, values = self.prefill(
            tokens, positions, np.zeros(1, np.int64), self.tables([sequence]), self.keys, self.values
        )
        self.store(sequence, keys[:, 0, :count], values[:, 0, :count])

    def write(self, ready):
        """The next token of some sequences."""
        tokens = np.array([[s.tokens[-1]] for s in ready], np.int64)
        positions = np.array([[s.done] for s in ready], np.int64)
        self.counts["calls"] += 1
        logits, keys, values = self.decode(
            tokens, positions, np.zeros(len(ready), np.int64), self.tables(ready), self.keys, self.values
        )
        size, places = self.config["page"], positions[:, 0]
        pages = np.array([s.pages[s.done // size] for s in ready], np.int64)
        self.keys[:, pages, places % size], self.values[:, pages, places % size] = keys[:, :, 0], values[:, :, 0]
        likeliest = logits.argmax(1)
        for k, sequence in enumerate(ready):
            sequence.done += 1
            token = (
                chosen(logits[k], sequence.temperature, sequence.rng) if sequence.temperature > 0 else int(likeliest[k])
            )
            sequence.tokens.append(token)
            sequence.left -= 1
            self.counts["tokens"] += 1
            if sequence.first is None:
                sequence.first = time.perf_counter()
                self.counts["first_token_seconds"] += sequence.first - sequence.began
            sequence.emit(token)
            if sequence.left == 0:
                self.end(sequence)

    def tables(self, sequences):
        """The pages of some sequences."""
        table = np.zeros((len(sequences), self.config["pages"]), np.int64)
        for k, s in enumerate(sequences):
            table[k, : len(s.pages)] = s.pages
        return table

    def store(self, sequence, keys, values):
        """Put keys and values (L, positions, H, D) into the pages of a sequence."""
        size = self.config["page"]
        places = sequence.done + np.arange(keys.shape[1])
        pages = np.array(sequence.pages, np.int64)[places // size]
        self.keys[:, pages, places % size], self.values[:, pages, places % size] = keys, values
        sequence.done += keys.shape[1]


def chosen(logits, temperature, rng):
    """A token by its probability."""
    scaled = (logits - logits.max()) / temperature
    weights = np.exp(scaled)
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def engine_of(folder, load, pages=None):
    """The engine over the packages in a folder, which `load` reads."""
    with open(os.path.join(folder, "model.json")) as file:
        config = json.load(file)
    return Engine(config, load(os.path.join(folder, "decode.rlp")), load(os.path.join(folder, "prefill.rlp")), pages)
