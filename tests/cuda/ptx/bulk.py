"""Bulk copies of tiles of arrays (TMA): tensor maps as the driver is asked for them, boxes, windows of images (im2col), swizzles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .control import MemoryBarrier, barrier_at
from .machine import Machine, Step, instruction
from .matrix import swizzled
from .memory import PARAM_WINDOW
from .parser import Address, Instruction, PtxError, Vector
from .state import Block, Lanes

__all__ = ["MapDriver", "TensorMap"]

Array = Any

# CUtensorMapDataType: bytes of an element
_TYPE_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}
_SWIZZLE_BITS = {0: 0, 1: 1, 2: 2, 3: 3}
_MAGIC = b"tensor map"


@dataclass(frozen=True)
class TensorMap:
    """An array, the dim with neighbours in memory first; strides in bytes of all dims, the first one's being the element's."""

    itemsize: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]  # traversal strides
    swizzle: int  # bits
    box: tuple[int, ...] = ()  # of tiles
    lower: tuple[int, ...] = ()  # of windows: corners of the bounding box, W first
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0

    def gathered(self, memory: Any, places: Sequence[Array]) -> Array:
        """The bytes of elements at coordinates, zeros where one is outside of the array."""
        inside = np.ones(np.broadcast_shapes(*(p.shape for p in places)), np.bool_)
        offset = np.zeros(inside.shape, np.int64) + (self.address - memory.base)
        for place, size, stride in zip(places, self.sizes, self.strides, strict=True):
            inside &= (place >= 0) & (place < size)
            offset = offset + place.astype(np.int64) * stride
        columns = np.where(inside, offset, self.address - memory.base)[..., None] + np.arange(self.itemsize)
        if (columns < 0).any() or (columns >= len(memory.data)).any() or not memory.valid[columns[inside]].all():
            raise PtxError("a bulk copy reads outside of global memory: the tensor map is wrong")
        return np.where(inside[..., None], memory.data[columns], np.uint8(0))

    def tile(self, memory: Any, at: Sequence[int]) -> Array:
        """A box, its rows one after the other."""
        counts = [-(-n // step) for n, step in zip(self.box, self.steps, strict=True)]
        places = np.meshgrid(
            *(c + np.arange(n) * s for c, n, s in zip(at, counts, self.steps, strict=True)), indexing="ij"
        )
        order = tuple(range(len(places)))[::-1]
        return self.gathered(memory, [p.transpose(order) for p in places]).reshape(-1)

    def windows(self, memory: Any, at: Sequence[int], offsets: Sequence[int]) -> Array:
        """Pixels of images, each with some channels.  The base goes along the bounding box, line after line, image after image; what is
        read lies the offsets further.
        """
        channel, *bases, image = at
        number, run, counts = 0, 1, []
        for base, low, high, size, step in zip(
            bases, self.lower, self.upper, self.sizes[1:-1], self.steps[1:-1], strict=True
        ):
            last = size - 1 + high
            if not low <= base <= last or (base - low) % step:
                raise PtxError(
                    f"the first pixel at {base} is outside of the bounding box from {low} to {last} in steps of {step}"
                )
            counts.append((last - low) // step + 1)
            number += (base - low) // step * run
            run *= counts[-1]
        flat = number + np.arange(self.pixels)
        places = [np.arange(self.channels)[None, :] + channel]
        left = flat % run
        for count, low, step, offset in zip(counts, self.lower, self.steps[1:-1], offsets, strict=True):
            places.append((low + left % count * step + offset)[:, None])
            left = left // count
        places.append((image + flat // run)[:, None])
        return self.gathered(memory, places).reshape(-1)


class MapDriver:
    """Encodes tensor maps as a CUDA driver does, as far as a kernel sees it: 128 bytes that only bulk copies can read.  Arguments are
    checked against what the driver's documentation demands.
    """

    def __init__(self) -> None:
        self.maps: list[TensorMap] = []

    def cuTensorMapEncodeTiled(
        self,
        kind: int,
        address: int,
        sizes: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        steps: Sequence[int],
        *how: int,
    ) -> bytes:
        made = self._common(kind, address, sizes, strides, steps, how, box=tuple(box))
        if len(box) != len(sizes) or any(not 0 < n <= 256 for n in box):
            raise PtxError(f"the box {list(box)}: 1 to 256 elements along each of {len(sizes)} dims are possible")
        self._inner(made, box[0])
        return self._token(made)

    def cuTensorMapEncodeIm2col(
        self, kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], lower: Sequence[int], upper: Sequence[int],
        channels: int, pixels: int, steps: Sequence[int], *how: int,
    ) -> bytes:  # fmt: skip
        more = {"lower": tuple(lower), "upper": tuple(upper), "channels": channels, "pixels": pixels}
        made = self._common(kind, address, sizes, strides, steps, how, **more)
        rank = len(sizes)
        if rank < 3 or not len(lower) == len(upper) == rank - 2:
            raise PtxError("windows are of arrays of 3 to 5 dims, with corners along all but the first and the last")
        bound = 1 << {3: 15, 4: 7, 5: 4}[rank]
        if any(not -bound <= x < bound for x in (*lower, *upper)):
            raise PtxError(f"the corners {list(lower)}, {list(upper)}: from {-bound} to {bound - 1} is possible")
        if not 0 < channels <= 256 or not 0 < pixels <= 1024:
            raise PtxError(f"{channels} channels of {pixels} pixels: at most 256 and 1024 are possible")
        self._inner(made, channels)
        return self._token(made)

    def _common(
        self,
        kind: int,
        address: int,
        sizes: Sequence[int],
        strides: Sequence[int],
        steps: Sequence[int],
        how: Sequence[int],
        **more: Any,
    ) -> TensorMap:
        size, (interleave, swizzle, _promotion, fill) = _TYPE_BYTES[kind], how
        if interleave or fill:
            raise PtxError("interleaved layouts, and NaN outside, are unknown")
        if address % 16 or any(s % 16 or not 0 < s < 1 << 40 for s in strides):
            raise PtxError(f"the address {address:#x} and the strides {list(strides)} must be multiples of 16 bytes")
        if not 1 <= len(sizes) <= 5 or len(strides) != len(sizes) - 1 or any(not 0 < n <= 1 << 32 for n in sizes):
            raise PtxError(f"the sizes {list(sizes)}: up to 5 dims of up to 2^32 elements are possible")
        if len(steps) != len(sizes) or any(not 1 <= s <= 8 for s in steps) or steps[0] != 1:
            raise PtxError(f"the traversal strides {list(steps)}: from 1 to 8 is possible, 1 along the first dim")
        return TensorMap(size, address, tuple(sizes), (size, *strides), tuple(steps), _SWIZZLE_BITS[swizzle], **more)

    def _inner(self, made: TensorMap, count: int) -> None:
        inner = count * made.itemsize
        if inner % 16 or (made.swizzle and inner > 16 << made.swizzle):
            raise PtxError(
                f"a box of {inner} bytes along the first dim does not fit its swizzle of {16 << made.swizzle} bytes"
            )

    def _token(self, made: TensorMap) -> bytes:
        self.maps.append(made)
        return (_MAGIC + (len(self.maps) - 1).to_bytes(4, "little")).ljust(128, b"\x5a")


class BulkCopy:
    """A copy under way: where its bytes go, and the barrier that counts them."""

    def __init__(self, at: Array, data: Array, barrier: MemoryBarrier, address: int) -> None:
        self.at, self.data, self.barrier, self.address = at, data, barrier, address

    def land(self, machine: Machine, block: Block) -> None:
        block.shared.data[self.at] = self.data
        block.shared.copy_lands(self.at)
        self.barrier.bytes -= len(self.data)
        self.barrier.settle(block, self.address)


@instruction("cp.async.bulk.tensor")
def bulk_tensor(machine: Machine, i: Instruction) -> Step:
    """[shared], [map, {coordinates}], [mbarrier] and, for windows, {offsets}."""
    rank, to, given, mode, completion = i.parts[4:9] if i.parts[3] == "tensor" else (None,) * 5
    dims = int(str(rank)[:-1])
    if (to, given, completion) != ("shared::cluster", "global", "mbarrier::complete_tx::bytes") or mode not in (
        "tile",
        "im2col",
    ):
        raise PtxError("the form is unknown")
    if i.parts[9:]:
        raise PtxError(f"the modifiers {i.parts[9:]} are unknown")
    target, source, barrier, *more = i.operands
    assert isinstance(source, Address) and isinstance(source.more, Vector)
    if len(source.more.items) != dims:
        raise PtxError(f"{len(source.more.items)} coordinates of {dims} dims")
    coordinates = [machine.source(x, "s32") for x in source.more.items]
    offsets = [machine.source(x, "u16") for x in more[0].items] if more else []  # type: ignore[union-attr]
    if len(offsets) != (dims - 2 if mode == "im2col" else 0):
        raise PtxError(f"{len(offsets)} offsets of {dims} dims")
    to_address, map_address = machine.address(target), machine.address(Address(source.base, source.offset))
    barrier_address = machine.address(barrier)

    def step(block: Block, lanes: Lanes) -> None:
        columns = (to_address(lanes).tolist(), map_address(lanes).tolist(), barrier_address(lanes).tolist())
        for t, at, where, counter in zip(block.numbers(lanes).tolist(), *columns, strict=True):
            tensor = map_at(machine, where)
            places = [int(c[t]) for c in coordinates]
            begin(machine, block, t, (at, tensor, counter), places, [int(o[t]) for o in offsets])

    def begin(
        machine: Machine, block: Block, t: int, what: tuple[int, TensorMap, int], places: list[int], added: list[int]
    ) -> None:
        at, tensor, counter = what
        if bool(tensor.box) != (mode == "tile") or len(tensor.sizes) != dims:
            raise PtxError(
                f"a tensor map of {len(tensor.sizes)} dims {'' if tensor.box else 'of windows '}for a copy {mode} of {dims}"
            )
        if added and any(not 0 <= o < 1 << {3: 16, 4: 8, 5: 5}[dims] for o in added):
            raise PtxError(f"the offsets {added} are out of range")
        if at % 128:
            raise PtxError(f"a bulk copy to {at:#x}, which is no multiple of 128 bytes")
        found = barrier_at(block, counter, t)
        if block.shared.unfenced[counter : counter + 8].any():
            raise PtxError("an mbarrier object counts bytes of a bulk copy without a fence behind its initialisation")
        data = tensor.tile(machine.memory, places) if mode == "tile" else tensor.windows(machine.memory, places, added)
        inner = (tensor.box[0] if tensor.box else tensor.channels) * tensor.itemsize
        if tensor.swizzle and inner != 16 << tensor.swizzle:
            raise PtxError("boxes that are narrower than their swizzle are unknown")
        into = swizzled(at + np.arange(len(data)), tensor.swizzle)
        if not block.shared.valid[into].all():
            raise PtxError(f"a bulk copy of {len(data)} bytes to {at:#x} leaves shared memory")
        block.shared.copy_begins(into)
        machine.copies.append(BulkCopy(into, data, found, counter))
        if machine.landing == "early":
            machine.copies.pop().land(machine, block)

    return step


def map_at(machine: Machine, address: int) -> TensorMap:
    """The tensor map at a generic address: a parameter of the kernel that is no copy."""
    at = address - PARAM_WINDOW
    if not 0 <= at < len(machine.params) or at % 64:
        raise PtxError(f"a tensor map at {address:#x}, where no parameter is, or not a multiple of 64 bytes")
    raw = machine.params[at : at + 128].tobytes()
    if not raw.startswith(_MAGIC):
        raise PtxError(f"no tensor map lies at {address:#x}")
    found: TensorMap = machine.maps[int.from_bytes(raw[len(_MAGIC) : len(_MAGIC) + 4], "little")]
    return found
