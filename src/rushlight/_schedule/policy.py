"""The target of a schedule: its vectors and caches, its library, and the policy by which work is fused, stored and
divided.

    target = cpu_target(host_target())
    small = target._replace(policy=target.policy._replace(piece=1, least_piece=1))  # divides everything, for a test

A backend supplies its targets; nothing of a machine is known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rushlight._schedule.library import Library

__all__ = ["Policy", "Recompute", "Target"]


class Recompute(NamedTuple):
    """Which results of a program are computed again for their late readers."""

    least_bytes: int
    """Bytes of a result, at least."""
    least_total: int
    """Bytes of all such results, at least."""
    most_cost: float
    """Cost of an element, at most, in the time that moving one takes."""
    far: int
    """A reader is late behind a gap of this part of the program's calls."""
    near: int
    """Calls for which what is read again may live longer."""
    depth: int
    """Calls that are computed again one after another, at most."""
    small: int
    """A buffer smaller than a result by this factor may live longer for it."""


class Policy(NamedTuple):
    """Thresholds of a target.  Where nothing else is said they count elements; costs are in the time that moving one
    element takes.
    """

    # ***** dividing work among threads *****
    piece: int
    """Elements, weighted by their cost, that are worth another thread."""
    least_piece: int
    """Elements of any cost that take longer than handing them to another thread."""
    max_pieces: int
    """Pieces of one kernel, at most."""
    serial_work: int
    """Elements of a reduction up to which one thread does all of it."""
    many_rows: int
    """Rows from which on they occupy the threads by themselves."""
    max_parts: int
    """Parts into which a long reduction is cut, at most."""
    scan_rows: int
    """Rows up to which a scan goes through parts of each row side by side."""
    scan_length: int
    """Elements of a row from which on that is done."""
    scan_parts: tuple[int, ...]
    """Numbers of parts to choose from, the largest first."""
    scan_part: int
    """Elements of a part, at least."""

    # ***** fusing *****
    max_stores: int
    """Arrays that one kernel may store, at most: the outputs that a call of the backend can allocate."""
    max_joined: int
    """Operands of a concatenation that one kernel stores, at most."""
    max_reads: int
    """Arrays that a value may read before it is stored for its second use."""
    small_graph: int
    """Nodes of a graph up to which values are not stored for that."""
    large: int
    """Elements from which on reading in the wrong direction costs more than reading twice."""
    short_run: int
    """Neighbours that are too few to be read by themselves: less than a few cache lines."""
    long_column: int
    """Elements of a column from which on few columns side by side are reduced in blocks of whole rows."""
    tall_column: int
    """Elements of a column from which on that is done for matrices that no cache holds."""

    # ***** calls of a program as one *****
    joined_nodes: int
    """Nodes of a cluster of calls, at most."""
    joined_operands: int
    """Operands of a cluster of calls, at most."""
    joined_constant: int
    """Nodes of a call without operands that its readers compute, at most."""
    joined_views: int
    """Nodes of a cluster without loops of its own, at most."""
    joined_work: float
    """Work of a cluster of loops over rows, at most, in that of its calls by themselves."""
    recompute: Recompute
    """Which results a program computes again."""

    # ***** storing what would be computed again *****
    repeated: int
    """Elements of a value from which on it may be stored before a broadcast, windows or a scatter repeat it."""
    repeats: int
    """How many times it must be repeated for that."""
    expensive: float
    """Cost of an element from which on it is stored rather than computed again."""
    expensive_reduction: float
    """The same for elements computed from reductions."""

    # ***** memory *****
    line_bytes: int
    """Bytes of a cache line."""
    row_ahead_bytes: int
    """Bytes of a row that is fetched while the row before it is read, at most."""
    least_tile: int
    """Elements of a side of the tiles that are transposed in registers, at least."""
    few_neighbours: int
    """Channels of a group that lie side by side, below which sums over the group take the positions first."""
    interleaved: int
    """Elements of an image from which on that is done."""
    stride_costs: Mapping[int, int]
    """How much slower than neighbours elements that lie so far apart are read."""
    far_cost: int
    """The same for distances that are not in `stride_costs`."""

    # ***** computing *****
    costs: Mapping[str, float]
    """Cost of each operation that is not a plain one, by the primitive's name."""
    plain_cost: float
    """Cost of an addition, a comparison and the like."""
    lanes: tuple[int, int] | None = None
    """Lanes of a vector, and vectors in a step, of sums along rows; None: by what an element costs."""
    whole_accesses: bool = False
    """Whether what is read once for a row or a column has no say in how a matrix lies, beside what is read for each element."""
    alike_rows: bool = False
    """Whether a kernel goes through rows of one length and direction where it sums: else a sum would be taken in another
    order than by itself.
    """
    places: bool = False
    """Whether reductions say where an element is among those that they reduce, for comparing the orders of sums."""

    def cost(self, primitive: str) -> float:
        """Cost of one element of a pointwise primitive."""
        return self.costs.get(primitive, self.plain_cost)


class Target(NamedTuple):
    """The machine, as the schedule and the code generator see it."""

    vector_bytes: int
    l2_bytes: int
    l3_bytes: int
    fma: bool
    library: Library
    policy: Policy
    byte_dots: bool = False  # whether an instruction adds four products of bytes
