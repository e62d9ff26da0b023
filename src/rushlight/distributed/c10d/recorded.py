"""Collectives while a program is recorded: notes in the recording, in the place of operations.

The compiled program carries them out at each call.  What a function of `collectives` would read or write in place is read
and written in the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor, no_grad
from rushlight._interface.autograd import bump
from rushlight._interface.distributed import RECORDING, STATE, Reduction
from rushlight.distributed.c10d.work import RecordedWork, Work
from rushlight.distributed.c10d.world import BaseGroup

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "is_recording", "reduce", "reduce_scatter", "refuse"]


def is_recording() -> bool:
    """Whether this thread records a program."""
    return bool(STATE.word & RECORDING)


def refuse(name: str) -> None:
    """RecordingError, where a program is recorded, for what cannot be part of one: the trace ends before it."""
    if STATE.word & RECORDING:
        raise STATE.recording.refused(f"{name} of torch.distributed")


def all_reduce(pg: BaseGroup, tensor: Tensor, reduction: Reduction, async_op: bool) -> Work | None:
    """`tensor` becomes the reduction."""
    with no_grad():
        x = _read(tensor)
        _note(pg, "all_reduce", x, tensor, _params(reduction))
    return _work(async_op, tensor)


def reduce(pg: BaseGroup, tensor: Tensor, reduction: Reduction, root: int, async_op: bool) -> Work | None:
    """`tensor` becomes the reduction on `root`."""
    params = {**_params(reduction), "root": root, "place": pg.rank()}
    with no_grad():
        x = _read(tensor)
        _note(pg, "reduce_to", x, tensor if pg.rank() == root else x.new_empty(x.shape), params)
    return _work(async_op, tensor)


def broadcast(pg: BaseGroup, tensor: Tensor, root: int, async_op: bool) -> Work | None:
    """`tensor` becomes that of `root`."""
    with no_grad():
        x = _read(tensor)
        out = x.new_empty(x.shape) if pg.rank() == root else tensor
        _note(pg, "broadcast_from", x, out, {"root": root, "place": pg.rank()})
    return _work(async_op, tensor)


def all_gather(pg: BaseGroup, outputs: Tensor | Sequence[Tensor], tensor: Tensor, async_op: bool) -> Work | None:
    """The elements of all processes, in one tensor or in one for each."""
    whole = isinstance(outputs, Tensor)
    with no_grad():
        sizes = [tensor.numel()] * pg.size() if isinstance(outputs, Tensor) else [out.numel() for out in outputs]
        params = {"sizes": tuple(sizes), "place": pg.rank(), "together": whole}
        _into(pg, "all_gather", _read(tensor).view(-1), outputs, sizes, params)
    return _work(async_op, outputs)


def reduce_scatter(
    pg: BaseGroup, output: Tensor, parts: Tensor | Sequence[Tensor], reduction: Reduction, async_op: bool
) -> Work | None:
    """`output` becomes the reduction of this process's part."""
    with no_grad():
        x, sizes = _joined(parts, [output.numel()] * pg.size())
        params = {**_params(reduction), "sizes": tuple(sizes), "place": pg.rank()}
        _into(pg, "reduce_scatter", x, output, [output.numel()], params)
    return _work(async_op, output)


def all_to_all(
    pg: BaseGroup,
    outputs: Tensor | Sequence[Tensor],
    parts: Tensor | Sequence[Tensor],
    counts: tuple[Sequence[int], Sequence[int]],
    together: bool,
    async_op: bool,
) -> Work | None:
    """Parts to all processes and from them; `counts` are their elements, of outputs and of parts."""
    with no_grad():
        x, sent = _joined(parts, counts[1])
        params = {"sent": tuple(sent), "got": tuple(counts[0]), "place": pg.rank(), "together": together}
        _into(pg, "all_to_all", x, outputs, counts[0], params)
    return _work(async_op, outputs)


# ***** tensors of the recording *****


def _own(x: Tensor) -> Tensor:
    """A tensor as that of the recording, without its history."""
    found: Tensor = STATE.recording.operands([x])[0]
    return found.detach()


def _read(x: Tensor) -> Tensor:
    """A tensor to send from, row-major."""
    return _own(x).resolve_conj().resolve_neg().contiguous()


def _joined(parts: Tensor | Sequence[Tensor], sizes: Sequence[int]) -> tuple[Tensor, Sequence[int]]:
    """The elements of all parts in a row, and how many each has."""
    if isinstance(parts, Tensor):
        return _read(parts).view(-1), sizes
    rows = [_read(part).view(-1) for part in parts]
    return rushlight.cat(rows), [row.numel() for row in rows]


def _into(
    pg: BaseGroup,
    name: str,
    x: Tensor,
    outputs: Tensor | Sequence[Tensor],
    sizes: Sequence[int],
    params: dict[str, Any],
) -> None:
    """Note a collective whose result is a row of elements, and put these into the outputs."""
    if isinstance(outputs, Tensor):
        out = _own(outputs)
        if out.is_contiguous() and not out.is_conj() and not out.is_neg():
            _note(pg, name, x, out.view(-1), params)
            return
        outputs = [outputs]
    row = x.new_empty(sum(sizes))
    _note(pg, name, x, row, params)
    for out, part in zip(outputs, row.split(list(sizes)), strict=True):
        _own(out).copy_(part.view(out.shape))


def _note(pg: BaseGroup, name: str, x: Tensor, out: Tensor, params: dict[str, Any]) -> None:
    out = _own(out)
    row_major = out.is_contiguous() and not out.is_conj() and not out.is_neg()
    target = out if row_major else x.new_empty(x.shape)
    STATE.recording.collective(name, x, target, {"group": pg._group.number, "size": pg.size(), **params})
    if row_major:
        bump(out._storage)
    else:
        out.copy_(target)


def _params(reduction: Reduction) -> dict[str, Any]:
    return {"reduce": reduction.name, "factor": reduction.factor}


def _work(async_op: bool, results: Any) -> Work | None:
    return RecordedWork(results) if async_op else None
