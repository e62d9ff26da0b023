"""How much memory tensors held over time, as a file: what `export_memory_timeline` writes.

PyTorch sorts bytes by what they are for.  That is not known here: everything is in the last of its categories, the
unknown one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from rushlight.profiler.recorder import Recorder
from rushlight.profiler.writing import write_text

__all__ = ["write_memory_timeline"]

# Columns of PyTorch's rows: a zero, parameters, states of optimizers, inputs, temporaries, activations, gradients,
# details of autograd, the rest.
_CATEGORIES = 8
_UNKNOWN = _CATEGORIES - 1
_PREEXISTING, _CREATE, _DESTROY = 1, 2, 4


def _changes(recorder: Recorder, offset: int) -> Iterator[tuple[int, int]]:
    """(time in ns, bytes more or less), `offset` added to the times, in order: of each call what it did itself, at its
    end.
    """
    own = {id(record): record.memory for record in recorder.records}
    for record in recorder.records:
        if record.parent is not None:
            own[id(record.parent)] -= record.memory
    for record in sorted(recorder.records, key=lambda r: (r.end, -r.place)):
        if own[id(record)]:
            yield record.end + offset, own[id(record)]


def _raw(recorder: Recorder, offset: int) -> list[tuple[int, int, int, int]]:
    before = [(-1, _PREEXISTING, recorder.held_before, _UNKNOWN)] if recorder.held_before else []
    return before + [(at, _CREATE if n > 0 else _DESTROY, n, _UNKNOWN) for at, n in _changes(recorder, offset)]


def _sums(recorder: Recorder, offset: int) -> tuple[list[int], list[list[int]]]:
    """Times in microseconds, and for each the bytes of every category."""
    total = recorder.held_before
    times, held = [(recorder.began + offset) // 1000], [total]
    for at, n in _changes(recorder, offset):
        total += n
        if at // 1000 != times[-1]:
            times.append(at // 1000)
            held.append(total)
        held[-1] = total
    return times, [[0] * _CATEGORIES + [each] for each in held]


def _page(recorder: Recorder, offset: int, width: int = 1000, height: int = 400) -> str:
    """A picture of the sums."""
    times, sizes = _sums(recorder, offset)
    held = [row[-1] for row in sizes]
    span, top = max(times[-1] - times[0], 1), max(*held, 1)
    points = [f"0,{height}"]
    for at, (t, n) in enumerate(zip(times, held, strict=True)):
        x, y = (t - times[0]) / span * width, height - n / top * height
        points += [f"{x:.1f},{y:.1f}"] if at == 0 else [f"{x:.1f},{points[-1].partition(',')[2]}", f"{x:.1f},{y:.1f}"]
    points.append(f"{width},{height}")
    return (
        f"<html><head><meta charset='utf-8'><title>CPU Memory Timeline</title></head><body><h3>Memory held by tensors: at most {top / 2**20:.2f} MiB, "
        f"in {span / 1000:.1f} ms</h3><svg width='{width}' height='{height}' style='border:1px solid'>"
        f"<polygon points='{' '.join(points)}' fill='grey'/></svg></body></html>\n"
    )


def write_memory_timeline(recorder: Recorder, path: str) -> None:
    """A picture for `.html`, single changes for `.raw.json.gz`, sums over time for any other name, compressed if it
    ends in `.gz`.
    """
    offset = time.time_ns() - time.perf_counter_ns()  # records are timed by the clock that never goes back
    if path.endswith(".html"):
        text = _page(recorder, offset)
    else:
        text = json.dumps(_raw(recorder, offset) if path.endswith("raw.json.gz") else _sums(recorder, offset))
    write_text(path, text, path.endswith(".gz"))
