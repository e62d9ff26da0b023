"""Linked programs for other sizes, made of one that is there: only words that differ are written.

A program of symbolic sizes has the same clusters, waves and buffers at most sizes.  A `Template` keeps an executable
whose buffers have some room, and which of its clusters depend on sizes.  For other sizes these are laid anew; where
they have the launches that they had, the arrays of the program are copied as far as they differ.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rushlight._backends.cpu.launches import Launch, unlocks
from rushlight._backends.cpu.program.launched import Place, laid_cluster
from rushlight._backends.cpu.program.linked import (
    FEW_PIECES,
    LAUNCH_FLAGS,
    LinkedExecutable,
    Origins,
    Words,
    pieces_shared,
    roomy_size,
)
from rushlight._backends.cpu.program.wiring import Part, Wired, Wiring
from rushlight._backends.cpu.runtime.program_native import FILL, LINKED, PHASE, WAVE, WAVE_STEP
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._host.device_records import MAY_UNLOCK

__all__ = ["Template"]


class _Differs(Exception):
    """The program for these sizes is not like the template."""


class _Row(NamedTuple):
    """A cluster of a template: the number of its program, its first launch, buffer and result, where its tensors are, and
    for each launch the numbers of its words among the cluster's places.
    """

    part: int
    launch: int
    buffer: int
    value: int
    tensors: list[Place]
    words: list[list[int]]


class Template:
    """An executable of which those for other sizes are made.

    `varying` are the clusters that depend on sizes: the number of the program of each.
    """

    def __init__(self, executable: LinkedExecutable, varying: Mapping[int, int]) -> None:
        self.executable, self.origins = executable, Origins(executable)
        wiring = executable.wiring
        self._where: list[Place] = [("word", word, 0) for word in wiring.words]
        self._rows: dict[int, _Row] = {}
        launch = buffer = 0
        for k in range(len(wiring.clusters)):
            cluster, value = wiring.clusters[k], len(self._where)
            laid = laid_cluster(cluster, self._where, buffer)
            if k in varying:
                words = [row[1] for row in _flat(cluster.part)]
                self._rows[k] = _Row(varying[k], launch, buffer, value, laid.tensors, words)
            launch, buffer = launch + len(laid.launches), buffer + len(laid.buffers)
            self._where += laid.results
        self.read = {value for cluster in wiring.clusters for value, _ in cluster.tensors} | set(wiring.outputs)
        self._moved = [x.moved for x in executable.launches]
        self._flags = [x.launch.ints[LAUNCH_FLAGS] for x in executable.launches if x.launch.ints is not None]
        self._pieces = [x.pieces for x in executable.launches]
        self._first: list[int] = [0]  # launch of each wave
        for wave in executable.waves:
            self._first.append(self._first[-1] + len(wave))

    @staticmethod
    def serves(executable: Any) -> bool:
        """Whether others can be made of it: nothing lies in the memory of a result, nothing is done in Python, and
        nothing stays packed.
        """
        return (
            type(executable) is LinkedExecutable
            and executable.words is not None
            and all(block >= 0 for block, _ in executable.offsets.values())
            and not any(x.launch.host or x.launch.pinned for x in executable.launches)
        )

    def refilled(
        self,
        tensors: Mapping[int, list[int]],
        parts: Sequence[Part],
        describe: Callable[[], Wiring],
        derive: Callable[[], Any],
    ) -> LinkedExecutable | None:
        """The executable with these programs, and other memory for the `tensors` of some clusters (packed); None where it
        is not like this one.  `describe` and `derive` give its wiring and its program, for who wants to look inside.
        """
        try:
            return _Copy(self, tensors, parts).executable(describe, derive)
        except _Differs:
            return None

    @staticmethod
    def check(made: LinkedExecutable) -> None:
        """AssertionError where a copy is not the executable that is laid anew."""
        whole = LinkedExecutable.kept(made.wiring, lambda: made.linked, like=made._looked[0])
        found, wanted = made.words, whole.words
        assert found is not None and wanted is not None and made.buffers == whole.buffers
        assert found.fills == wanted.fills and found.sizes == wanted.sizes and found.at == wanted.at
        assert found.head[LINKED.unlock.place] == wanted.head[LINKED.unlock.place]
        for mine, other in zip(found.waves, wanted.waves, strict=True):
            assert _without(mine, len(WAVE), WAVE.steps.place) == _without(other, len(WAVE), WAVE.steps.place)
        launches, size, at = iter(whole.launches), len(WAVE_STEP), WAVE_STEP.ints.place
        for mine, other in zip(found.steps, wanted.steps, strict=True):
            assert _without(mine, size, at) == _without(other, size, at)
            for address, x in zip(mine[at::size], launches, strict=False):
                ints = list(x.launch.ints or ())
                assert list((ctypes.c_int64 * len(ints)).from_address(address)) == ints


def _flat(part: Part) -> list[tuple[Launch, list[int], list[int], int]]:
    """(launch, numbers of its words among the places of a cluster, bytes of the buffers that it fills, bytes moved)."""
    return [
        (launch, words, bytes_of, part.steps[at].moved // len(laid))
        for at, laid in part.laid()
        for launch, words, _, bytes_of in laid
        if launch is not None
    ]


class _Copy:
    """The words of a template for other sizes."""

    def __init__(self, template: Template, tensors: Mapping[int, list[int]], parts: Sequence[Part]) -> None:
        self.template, self.of = template, template.executable
        self.buffers = list(self.of.buffers)
        self.launches: dict[int, tuple[Launch, int]] = {}  # with the bytes that they move
        self.fills: list[tuple[int, int, Place]] = []  # launch, number of its word, where that comes from
        flat: dict[int, Any] = {}
        for k, row in template._rows.items():
            cluster, part = self.of.wiring.clusters[k], parts[row.part]
            if k in tensors:
                self._place(row, cluster, tensors[k])
            if part is cluster.part:
                continue
            if row.part not in flat:
                flat[row.part] = self._alike(part, cluster.part)
            launches, buffers = flat[row.part]
            for j, launch in enumerate(launches, row.launch):
                self.launches[j] = launch
            self.buffers[row.buffer : row.buffer + len(buffers)] = buffers
        self._check_room()

    def _place(self, row: _Row, cluster: Wired, packed: list[int]) -> None:
        """Note the words of a cluster whose tensors lie elsewhere in what they are part of."""
        where, moved = self.template._where, dict[int, Place]()
        for t, (value, step) in enumerate(zip(packed[::2], packed[1::2], strict=True)):
            kind, number, offset = where[value]
            place = kind, number, offset + step
            if place != row.tensors[t]:
                if place[:2] != row.tensors[t][:2] or t in cluster.aliases.values() and not self._last(cluster, t, row):
                    raise _Differs
                moved[t] = place
        for j, words in enumerate(row.words) if moved else ():
            fresh = len(self.of.launches[row.launch + j].fresh)
            self.fills += [(row.launch + j, fresh + n, moved[w]) for n, w in enumerate(words) if w in moved]

    def _last(self, cluster: Wired, t: int, row: _Row) -> bool:
        """Whether no cluster reads the results in a tensor."""
        return all(row.value + j not in self.template.read for j, tensor in cluster.aliases.items() if tensor == t)

    def _alike(self, part: Part, before: Part) -> tuple[list[tuple[Launch, int]], list[int]]:
        """The launches of a program with the bytes that they move, and the bytes of its buffers."""
        old, new = _flat(before), _flat(part)
        if len(old) != len(new) or part.program.results != before.program.results:
            raise _Differs
        for (a, words, fresh, _), (b, others, made, _) in zip(new, old, strict=True):
            if a.ints is None or b.ints is None or a.host or a.pinned:
                raise _Differs
            if words != others or len(fresh) != len(made) or (a.ints[0] > FEW_PIECES) is not (b.ints[0] > FEW_PIECES):
                raise _Differs
        buffers = [[n for _, laid in p.laid() for _, _, _, bytes_of in laid for n in bytes_of] for p in (part, before)]
        if len(buffers[0]) != len(buffers[1]):
            raise _Differs
        return [(launch, moved) for launch, _, _, moved in new], buffers[0]

    def _check_room(self) -> None:
        """Whether buffers between kernels have the room that they need, and not far too much."""
        least = most = 0
        for b in self.of.offsets:
            room, nbytes = self.of.room.get(b), self.buffers[b]
            if room is None and nbytes != self.of.buffers[b] or room is not None and nbytes > room:
                raise _Differs
            if room is not None:
                least, most = least + roomy_size(nbytes), most + room
        if most > 2 * least + _SPARE:
            raise _Differs

    def executable(self, describe: Callable[[], Wiring], derive: Any) -> LinkedExecutable:
        """An executable of them."""
        of, words = self.of, self.of.words
        assert words is not None
        made = LinkedExecutable.__new__(LinkedExecutable)
        made._linked, made._derive, made._looked = None, derive, (of, describe)
        made.buffers, made.room, made.outputs, made.offsets = self.buffers, of.room, of.outputs, of.offsets
        made.division, made.peak, made.held = of.division, of.peak, of.held
        made.clock, made.native = None, True
        made._keep = list(of._keep)
        made.words = new = self._words(words, made._keep)
        made.head = new.head
        made.head[LINKED.phases.place] = _kept(made._keep, new.phases)
        made.head[LINKED.sizes.place] = _kept(made._keep, new.sizes)
        made.head[LINKED.unlock.place] = int(self._unlocks())
        made._address = _kept(made._keep, made.head)
        made._run = made._callable()
        return made

    def _words(self, words: Words, keep: list[Any]) -> Words:
        """The words, copied where they differ; arrays that others point to are kept in `keep`."""
        fills, waves, steps = list(words.fills), list(words.waves), dict[int, Any]()
        self._fill(fills, words)
        constants: dict[int, tuple[int, int]] = {}
        for number, (launch, _) in self.launches.items():
            phase, _, wave, place = words.at[number]
            if waves[phase] is words.waves[phase]:
                waves[phase] = waves[phase][:]
            if wave not in steps:
                steps[wave] = words.steps[wave][:]
            if id(launch) not in constants:  # alike clusters have the same
                address = runtime().kernel_address(launch.call.__self__)  # type: ignore[attr-defined]
                constants[id(launch)] = address, _kept(keep, launch.constants())
                keep += (launch, launch.call)
            at = place * _STEP
            steps[wave][at + _FN], steps[wave][at + _INTS] = constants[id(launch)]
        for wave, row in steps.items():
            self._share(wave, row, waves, _kept(keep, row))
        phases = words.phases[:]
        for phase in range(len(fills)):
            at = phase * len(PHASE)
            if fills[phase] is not words.fills[phase]:
                phases[at + PHASE.fills.place] = _kept(keep, fills[phase])
            if waves[phase] is not words.waves[phase]:
                phases[at + PHASE.waves.place] = _kept(keep, waves[phase])
        sizes = array("q", [self.buffers[p[1]] if p[0] == "buffer" else 0 for p in self.of.outputs] or [0])
        rows = [steps.get(wave, row) for wave, row in enumerate(words.steps)]
        return Words(words.head[:], phases, fills, waves, rows, sizes, words.at)

    def _fill(self, fills: list[array[int]], words: Words) -> None:
        """The fills of words: other bytes from the same bases."""
        origins, size = self.template.origins, len(FILL)
        for number, word, place in self.fills:
            phase, begin, _, _ = words.at[number]
            if fills[phase] is words.fills[phase]:
                fills[phase] = fills[phase][:]
            base, offset = origins(place)
            at = begin + word * size
            if fills[phase][at + FILL.base.place] != base:
                raise _Differs
            fills[phase][at + FILL.offset.place] = offset

    def _share(self, wave: int, row: array[int], waves: list[array[int]], address: int) -> None:
        """The pieces of a wave's kernels, and of all of them."""
        template, first = self.template, self.template._first[wave]
        count, begin, moved = template._first[wave + 1] - first, 0, []
        at = 0
        for k in range(first, first + count):
            change = self.launches.get(k)
            if change is None:
                pieces, nbytes = template._pieces[k], template._moved[k]
            else:
                pieces, nbytes = change[0].ints[0], change[1]  # type: ignore[index]
            moved.append(nbytes)
            row[at + _FIRST], row[at + _PIECES] = begin, pieces
            begin, at = begin + pieces, at + _STEP
        phase = self.of.words.at[first][0]  # type: ignore[union-attr]
        at = (wave - self._wave_before(phase)) * len(WAVE)
        waves[phase][at + WAVE.pieces.place] = pieces_shared(moved, begin)
        waves[phase][at + WAVE.steps.place] = address

    def _wave_before(self, phase: int) -> int:
        return self.of.division.ends[phase - 1] if phase else 0

    def _unlocks(self) -> bool:
        moved, flags = list(self.template._moved), list(self.template._flags)
        for number, (launch, nbytes) in self.launches.items():
            moved[number], flags[number] = nbytes, launch.ints[LAUNCH_FLAGS]  # type: ignore[index]
        return unlocks(nbytes=sum(moved)) or any(flag & MAY_UNLOCK for flag in flags)


def _without(words: array[int], size: int, place: int) -> list[int]:
    """The words of records of this size, but for those at one place, which are addresses."""
    return [word for k, word in enumerate(words) if k % size != place]


# Places in the record of a step: looked up once, as they are written for each kernel at each call of another size.
_STEP, _FN, _INTS = len(WAVE_STEP), WAVE_STEP.fn.place, WAVE_STEP.ints.place
_FIRST, _PIECES = WAVE_STEP.first.place, WAVE_STEP.pieces.place
_SPARE = 1 << 16  # bytes that a template may have more than twice what is needed


def _kept(keep: list[Any], words: array[int]) -> int:
    """The address of an array, which stays there."""
    keep.append(words)
    address: int = words.buffer_info()[0]
    return address
