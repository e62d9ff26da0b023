"""The routines of `Backend.routine` on a CUDA device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.immediate import Immediate, Placed
from rushlight._backends.cuda.selection import kernels
from rushlight._backends.cuda.selection.kernels import PIECE
from rushlight._base.lazy import numpy as np
from rushlight._types.dtype import BY_NAME

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._types.device import Device

__all__ = ["PIECE", "routine"]


def routine(backend: CudaBackend, device_of: Callable[[int], Device], name: str, key: Any) -> Callable[..., Any]:
    """A routine by its name; see the protocol for what it is given."""
    found = getattr(_Routines(backend, device_of, key), name, None)
    if found is None:
        raise NotImplementedError(f"the backend of device type 'cuda' has no routine '{name}'")
    return found


class _Routines:
    """One routine a method; addresses are of the device, but those of `before`, `sizes` and `addresses`."""

    def __init__(self, backend: CudaBackend, device_of: Callable[[int], Device], key: Any) -> None:
        self.backend, self.device_of, self.key = backend, device_of, key

    def _now(self, address: int) -> Immediate:
        return Immediate(self.backend, self.device_of(address))

    def count_true(self, mask: int, n: int, before: int) -> int:
        """How many are set, and before each piece."""
        table = np.ctypeslib.as_array((ctypes.c_int64 * (-(-n // PIECE) + 1)).from_address(before))
        table[0] = 0
        if n:
            now, pieces = self._now(mask), -(-n // PIECE)
            storage, counts = now.allocate(4 * pieces)
            now.run([kernels.count_launch(Placed(mask), n, counts)])
            table[1:] = np.cumsum(np.frombuffer(now.read(counts, 4 * pieces), np.int32), dtype=np.int64)
            del storage
        return int(table[-1])

    def _with_before(self, mask: int, n: int, before: int, launch: Callable[[Placed], Any]) -> None:
        """A launch that is given the counts before pieces."""
        if not n:
            return
        now, nbytes = self._now(mask), 8 * (-(-n // PIECE) + 1)
        storage, counts = now.allocate(nbytes)
        now.write(counts, ctypes.string_at(before, nbytes))
        now.run([launch(counts)])
        del storage

    def list_true(self, mask: int, n: int, before: int, indices: int) -> None:
        self._with_before(mask, n, before, lambda c: kernels.list_launch(Placed(mask), n, c, Placed(indices)))

    def compact(self, source: int, mask: int, n: int, before: int, result: int) -> None:
        size, places = int(self.key), (Placed(source), Placed(mask), Placed(result))
        at, chosen, to = places
        self._with_before(mask, n, before, lambda c: kernels.compact_launch(at, size, chosen, n, c, to))

    def number_runs(self, mask: int, n: int, before: int, order: int, result: int) -> None:
        by = Placed(order) if order else None
        self._with_before(mask, n, before, lambda c: kernels.number_launch(Placed(mask), n, c, by, Placed(result)))

    def unravel(self, indices: int, n: int, sizes: int, ndim: int, coordinates: int) -> None:
        shape = list((ctypes.c_int64 * ndim).from_address(sizes))
        if n and ndim:
            self._now(indices).run([kernels.unravel_launch(Placed(indices), n, shape, Placed(coordinates))])

    def mark_runs(self, x: int, n: int, mask: int) -> None:
        if n:
            dtype = BY_NAME["uint8" if self.key == "bool" else self.key]
            self._now(x).run([kernels.mark_launch(Placed(x), dtype, n, Placed(mask))])

    def run_lengths(self, starts: int, n: int, total: int, result: int) -> None:
        if n:
            self._now(starts).run([kernels.lengths_launch(Placed(starts), n, total, Placed(result))])

    def copy_rows(self, target: int, addresses: int, n: int, nbytes: int) -> None:
        if not n or not nbytes:
            return
        now = self._now(target)
        table = ctypes.string_at(addresses, 8 * n)
        whole = np.frombuffer(table, np.int64)
        aligned = not ((whole | target | nbytes) & 7).any()
        storage, places = now.allocate(8 * n)
        now.write(places, table)
        now.run([kernels.rows_launch(Placed(target), places, n, nbytes, bool(aligned))])
        del storage
