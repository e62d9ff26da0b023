"""Programs for loaders with workers and for data pipes; the same lines run with rushlight and with PyTorch.

`python tests/data_loading/pipes.py` writes what PyTorch yields to `pipes.json`.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import random
from typing import Any


def plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def pipes(name: str) -> dict[str, Any]:
    """Steps of pipes."""
    t: Any = importlib.import_module(name)
    d: Any = importlib.import_module(f"{name}.utils.data")
    iters: Any = importlib.import_module(f"{name}.utils.data.datapipes.iter")
    maps: Any = importlib.import_module(f"{name}.utils.data.datapipes.map")
    wrap, sequence = iters.IterableWrapper, maps.SequenceWrapper
    t.manual_seed(0)
    w, m = wrap(range(10)), sequence(range(5))
    pairs = wrap([(1, 2), (3, 4)])
    even, odd = w.demux(2, lambda x: x % 2)
    found: dict[str, Any] = {
        "batch": [list(w.batch(3)), list(w.batch(3, drop_last=True)), len(w.batch(3)), list(w.batch(2).batch(2).unbatch(-1))],
        "shuffle": [list(w.shuffle()), list(w.shuffle().set_seed(3)), list(w.shuffle(buffer_size=2).set_seed(0)), float(t.rand(1))],
        "off": list(w.shuffle().set_shuffle(False)),
        "inside": list(w.batch(2).shuffle(unbatch_level=1).set_seed(1)),
        "fork": list(zip(*w.fork(3), strict=True)),
        "demux": [list(even), list(odd)],
        "joined": [list(w.concat(pairs)), list(w.zip(wrap("abc"))), list(w.mux(wrap(range(3)), wrap("xyz")))],
        "groups": [list(w.groupby(lambda x: x % 3)), list(w.groupby(lambda x: x % 2, group_size=3, keep_key=True))],
        "columns": [
            list(pairs.map(lambda a: a * 10, input_col=0, output_col=column)) for column in (None, 1, -1)
        ] + [list(pairs.map(lambda a, b: a + b, input_col=[0, 1])), list(pairs.filter(lambda a: a > 2, input_col=1))],
        "collate": plain(list(w.batch(4).collate())),
        "map": [list(m.map(lambda x: x * 2).batch(2)), list(m.concat(m)), list(m.zip(m)), list(m.shuffle()), list(m.shuffle().set_seed(0))],
        "sampler": list(iters.Sampler(w)),
    }  # fmt: skip
    shard = w.sharding_filter()
    shard.apply_sharding(3, 1)
    found["sharding"] = [list(shard), len(shard)]
    for workers in (0, 2):
        t.manual_seed(0)
        loader = d.DataLoader(w.shuffle().sharding_filter(), num_workers=workers, batch_size=2, shuffle=True)
        found[f"loader {workers}"] = [plain(list(loader)), plain(list(loader)), float(t.rand(1))]
    return found


def dataset_class(name: str) -> Any:
    t: Any = importlib.import_module(name)
    d: Any = importlib.import_module(f"{name}.utils.data")
    numpy = importlib.import_module("numpy")

    class Drawing(d.Dataset):  # type: ignore[misc]
        """Every sample draws from all generators."""

        def __len__(self) -> int:
            return 10

        def __getitem__(self, i: int) -> Any:
            return t.tensor([i, int(t.randint(0, 1000, (1,))), random.randrange(1000), int(numpy.random.randint(1000))])

    class Uneven(d.IterableDataset):  # type: ignore[misc]
        """Streams of different lengths."""

        def __iter__(self) -> Any:
            worker = d.get_worker_info()
            return iter(range(worker.id * 100, worker.id * 100 + (5, 1, 7)[worker.id]))

    return Drawing(), Uneven()


OPTIONS: list[dict[str, Any]] = [
    {"num_workers": 2}, {"num_workers": 3, "prefetch_factor": 1, "batch_size": 2, "drop_last": True}, {"num_workers": 2, "batch_size": None},
    {"num_workers": 3, "persistent_workers": True, "batch_size": 2},
]  # fmt: skip


def workers(name: str) -> dict[str, Any]:
    """What workers yield, in two passes and a third that is broken off, and where the main process' generator stands afterwards."""
    t: Any = importlib.import_module(name)
    d: Any = importlib.import_module(f"{name}.utils.data")
    samples, stream = dataset_class(name)
    found: dict[str, Any] = {}
    for options in OPTIONS:
        for shuffle in (True, False):
            t.manual_seed(5)
            loader = d.DataLoader(samples, shuffle=shuffle, **options)
            passes = [plain(list(loader)) for _ in range(2)]
            broken = [plain(next(iter(loader))) for _ in range(2)]
            found[f"{options} {shuffle}"] = [passes, broken, float(t.rand(1))]
        found[f"{options} stream"] = plain(list(d.DataLoader(stream, **options)))
    generator = t.Generator().manual_seed(9)
    found["generator"] = [
        plain(list(d.DataLoader(samples, shuffle=True, generator=generator, num_workers=1))),
        float(t.rand(1, generator=generator)),
    ]
    return found


if __name__ == "__main__":
    text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in (pipes("torch") | workers("torch")).items())
    pathlib.Path(__file__).with_name("pipes.json").write_text("{\n" + text + "\n}\n")
