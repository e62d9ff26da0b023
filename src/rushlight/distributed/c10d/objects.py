"""Collectives of Python objects.

Objects are pickled, and unpickling runs what a pickle says: only use these among processes that trust one another, as
those of one job do.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.distributed.c10d.collectives import all_gather, all_gather_into_tensor, broadcast, gather, scatter
from rushlight.distributed.c10d.messages import recv, send
from rushlight.distributed.c10d.world import BaseGroup, member, place_in

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list", "send_object_list",
]  # fmt: skip


def _home(pg: BaseGroup) -> Any:
    """Where tensors of bytes are: the CPU, if a group's engines include one for it."""
    return "cpu" if pg._on_host else next(iter(pg._devices))


def _as_bytes(value: Any, pg: BaseGroup) -> Tensor:
    """An object as a tensor of bytes."""
    held = io.BytesIO()
    pickle.Pickler(held, pickle.HIGHEST_PROTOCOL).dump(value)
    found = rushlight.frombuffer(bytearray(held.getbuffer()), dtype=rushlight.uint8)
    return found if pg._on_host else found.to(_home(pg))


def _as_object(data: Tensor, size: int) -> Any:
    """The object of so many bytes."""
    return pickle.loads(bytes(memoryview(data[:size].cpu().numpy())))


def _sizes(own: int, pg: BaseGroup) -> list[int]:
    """How many bytes each process has."""
    found = rushlight.empty(pg.size(), dtype=rushlight.int64, device=_home(pg))
    here = rushlight.tensor([own], device=_home(pg))
    if pg.is_users:  # which may have `allgather` alone
        all_gather(list(found.split(1)), here, group=pg)
    else:
        all_gather_into_tensor(found, here, group=pg)
    return found.tolist()


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Every process's object into `object_list`, on all of them."""
    pg = member(group, "all_gather_object")
    if pg is None:
        return
    data = _as_bytes(obj, pg)
    sizes = _sizes(data.numel(), pg)
    if pg.is_users:  # which may take parts of one size alone
        parts = [rushlight.empty(max(sizes), dtype=rushlight.uint8, device=_home(pg)) for _ in sizes]
        data = rushlight.cat([data, data.new_zeros(max(sizes) - data.numel())])
    else:
        parts = [rushlight.empty(size, dtype=rushlight.uint8, device=_home(pg)) for size in sizes]
    all_gather(parts, data, group=pg)
    for rank, part in enumerate(parts):
        object_list[rank] = _as_object(part, sizes[rank])


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Every process's object into `object_gather_list` on rank `dst` (0 where none is named)."""
    pg = member(group, "gather_object")
    if pg is None:
        return
    root = place_in(pg, dst, group_dst if dst is not None or group_dst is not None else 0)
    here = pg.rank() == root
    if here and not object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    if not here and object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    data = _as_bytes(obj, pg)
    sizes = _sizes(data.numel(), pg)
    largest = max(sizes)
    sent = rushlight.zeros(largest, dtype=rushlight.uint8, device=_home(pg))
    sent[: data.numel()] = data
    parts = [rushlight.empty(largest, dtype=rushlight.uint8, device=_home(pg)) for _ in sizes] if here else None
    gather(sent, parts, group=pg, group_dst=root)
    if parts is not None and object_gather_list is not None:
        for rank, part in enumerate(parts):
            object_gather_list[rank] = _as_object(part, sizes[rank])


def _joined(objects: list[Any], pg: BaseGroup) -> tuple[Tensor, Tensor]:
    """The sizes of objects as a tensor, and their bytes one behind the other."""
    parts = [_as_bytes(value, pg) for value in objects]
    sizes = rushlight.tensor([part.numel() for part in parts], dtype=rushlight.int64, device=_home(pg))
    return sizes, rushlight.cat(parts) if parts else rushlight.empty(0, dtype=rushlight.uint8, device=_home(pg))


def _taken_apart(objects: list[Any], sizes: Tensor, data: Tensor) -> None:
    start = 0
    for k, size in enumerate(sizes.tolist()):
        objects[k] = _as_object(data[start:], size)
        start += size


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """The objects in rank `src`'s `object_list` into everybody's, which has the same length (0 where none is named)."""
    pg = member(group, "broadcast_object_list")
    if pg is None:
        return
    root = place_in(pg, src, group_src if src is not None or group_src is not None else 0)
    here = pg.rank() == root
    sizes, data = (
        _joined(object_list, pg)
        if here
        else (rushlight.empty(len(object_list), dtype=rushlight.int64, device=_home(pg)), None)
    )
    broadcast(sizes, group=pg, group_src=root)
    if data is None:
        data = rushlight.empty(int(sizes.sum()), dtype=rushlight.uint8, device=_home(pg))
    broadcast(data, group=pg, group_src=root)
    if not here:
        _taken_apart(object_list, sizes, data)


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None, group: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """This process's place in rank `src`'s list into the first place of its output list (0 where none is named)."""
    pg = member(group, "scatter_object_list")
    if pg is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = place_in(pg, src, group_src if src is not None or group_src is not None else 0)
    sent = None
    about = rushlight.zeros(2, dtype=rushlight.int64, device=_home(pg))
    rows = None
    if pg.rank() == root:
        if scatter_object_input_list is None or len(scatter_object_input_list) != pg.size():
            raise ValueError("source rank must provide a list of objects to scatter, one for each process")
        parts = [_as_bytes(value, pg) for value in scatter_object_input_list]
        largest = max(part.numel() for part in parts)
        sent = [rushlight.zeros(largest, dtype=rushlight.uint8, device=_home(pg)) for _ in parts]
        for place, part in zip(sent, parts, strict=True):
            place[: part.numel()] = part
        rows = [rushlight.tensor([part.numel(), largest], device=_home(pg)) for part in parts]
    scatter(about, rows, group=pg, group_src=root)
    size, largest = about.tolist()
    got = rushlight.empty(largest, dtype=rushlight.uint8, device=_home(pg))
    scatter(got, sent, group=pg, group_src=root)
    scatter_object_output_list[0] = _as_object(got, size)


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send objects to another process."""
    pg = member(group, "send_object_list")
    if pg is None:
        return
    to = place_in(pg, dst, group_dst)
    if to == pg.rank():
        raise ValueError(
            "Invalid destination rank: destination rank should not be the same as the rank of the current process."
        )
    sizes, data = _joined(object_list, pg)
    send(sizes, group=pg, group_dst=to)
    send(data, group=pg, group_dst=to)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive objects into a list of their number; the rank that they came from."""
    pg = member(group, "recv_object_list")
    if pg is None:
        return -1
    sizes = rushlight.empty(len(object_list), dtype=rushlight.int64, device=_home(pg))
    source = recv(sizes, src, group=pg, group_src=group_src)
    data = rushlight.empty(int(sizes.sum()), dtype=rushlight.uint8, device=_home(pg))
    if recv(data, source, group=pg) != source:
        raise RuntimeError("Mismatch in return ranks for object sizes and objects.")
    _taken_apart(object_list, sizes, data)
    return source
