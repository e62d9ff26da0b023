"""Orders of computations: which rank computes what, and when, for each kind of schedule.

Each function gives a dict: rank -> list of actions.  Idle steps are not in it: `lowering.in_steps` finds them.  `ranks` is the
number of ranks, `microbatches` the number of micro-batches; with `stages_per_rank` each rank has several stages.
"""

from __future__ import annotations

from collections import deque

from rushlight.distributed.pipelining.actions import Action, ComputationType, Order

__all__ = [
    "breadth_first", "dual_pipe_v", "gpipe", "interleaved", "interleaved_zero_bubble", "one_forward_one_backward", "stages_in_loop", "stages_in_v",
    "zero_bubble_v",
]  # fmt: skip

F, B = ComputationType.FORWARD, ComputationType.FULL_BACKWARD
I, W = ComputationType.BACKWARD_INPUT, ComputationType.BACKWARD_WEIGHT


def stages_in_loop(ranks: int, stages: int) -> dict[int, int]:
    """Stage -> rank where stages go round: 0, 1, 0, 1.  ValueError if ranks would have different numbers of stages."""
    if stages % ranks:
        raise ValueError(f"num_stages {stages} must be evenly divisible by pp_size {ranks}")
    return {stage: stage % ranks for stage in range(stages)}


def stages_in_v(ranks: int, stages: int) -> dict[int, int]:
    """Stage -> rank where every second round runs back: 0, 1, 1, 0."""
    stages_in_loop(ranks, stages)
    return {s: s % ranks if s // ranks % 2 == 0 else ranks - 1 - s % ranks for s in range(stages)}


def gpipe(ranks: int, microbatches: int) -> Order:
    """All forwards, then all backwards (Huang et al., 2018)."""
    each = range(microbatches)
    return {r: [*(Action(r, F, m) for m in each), *(Action(r, B, m) for m in each)] for r in range(ranks)}


def one_forward_one_backward(ranks: int, microbatches: int) -> Order:
    """Forwards until the first micro-batch has reached the last stage, then one backward and one forward in turn: a rank
    keeps at most `ranks` micro-batches (Narayanan et al., 2019).
    """
    found: Order = {}
    for rank in range(ranks):
        ahead = min(microbatches, ranks - rank)
        actions = [Action(rank, F, m) for m in range(ahead)]
        for m in range(microbatches):
            actions.append(Action(rank, B, m))
            if ahead + m < microbatches:
                actions.append(Action(rank, F, ahead + m))
        found[rank] = list(actions)
    return found


def breadth_first(ranks: int, stages_per_rank: int, microbatches: int) -> Order:
    """All micro-batches through one stage before the next (Lamy-Poirier, 2022)."""
    found: Order = {}
    for rank in range(ranks):
        stages = range(rank, ranks * stages_per_rank, ranks)
        ahead = [Action(s, F, m) for s in stages for m in range(microbatches)]
        back = [Action(s, B, m) for s in reversed(stages) for m in reversed(range(microbatches))]
        found[rank] = [*ahead, *back]
    return found


class _Rounds:
    """Interleaved schedules: micro-batches go in rounds through one stage of a rank after the other."""

    def __init__(self, ranks: int, stages_per_rank: int, microbatches: int) -> None:
        rounds = max(1, microbatches // ranks)
        if microbatches % rounds:
            raise ValueError(
                "Interleaved schedules require the number of microbatches to be a multiple of the number of rounds"
                f" ({rounds}), but got {microbatches}."
            )
        self.ranks, self.stages, self.size = ranks, stages_per_rank, microbatches // rounds
        self.total = microbatches * stages_per_rank

    def ahead(self, rank: int, factor: int) -> int:
        """The number of forwards before the first backward."""
        return min((self.stages - 1) * self.size + factor * (self.ranks - 1 - rank), self.total)

    def _place(self, step: int) -> tuple[int, int]:
        turn, within = divmod(step, self.size)
        round_, stage = divmod(turn, self.stages)
        return stage, round_ * self.size + within

    def forward(self, rank: int, step: int) -> Action:
        """The forward with this number."""
        stage, microbatch = self._place(step)
        return Action(stage * self.ranks + rank, F, microbatch)

    def backward(self, rank: int, step: int, kind: ComputationType) -> Action:
        """The backward with this number."""
        stage, microbatch = self._place(step)
        return Action((self.stages - 1 - stage) * self.ranks + rank, kind, microbatch)


def interleaved(ranks: int, stages_per_rank: int, microbatches: int) -> Order:
    """1F1B with several stages on each rank (Narayanan et al., 2021).

    ValueError unless micro-batches fill whole rounds of at least `ranks`.
    """
    rounds = _Rounds(ranks, stages_per_rank, microbatches)
    found: Order = {}
    for rank in range(ranks):
        ahead = rounds.ahead(rank, 2)
        actions = [rounds.forward(rank, k) for k in range(ahead)]
        for k in range(rounds.total):
            if ahead + k < rounds.total:
                actions.append(rounds.forward(rank, ahead + k))
            actions.append(rounds.backward(rank, k, B))
        found[rank] = list(actions)
    return found


def interleaved_zero_bubble(ranks: int, stages_per_rank: int, microbatches: int) -> Order:
    """Interleaved 1F1B whose backward is in two halves: gradients of inputs at once, those of weights where a rank would
    wait (Qi et al., 2023, ZB1P).
    """
    rounds = _Rounds(ranks, stages_per_rank, microbatches)
    found: Order = {}
    for rank in range(ranks):
        ahead, weights = rounds.ahead(rank, 1), 0
        actions = [rounds.forward(rank, k) for k in range(ahead)]
        for k in range(rounds.total):
            if ahead + k < rounds.total:
                actions.append(rounds.forward(rank, ahead + k))
            actions.append(rounds.backward(rank, k, I))
            if k >= rank:
                actions.append(rounds.backward(rank, weights, W))
                weights += 1
        actions += [rounds.backward(rank, k, W) for k in range(weights, rounds.total)]
        found[rank] = list(actions)
    return found


class _V:
    """The actions of one rank with two stages, one on the way down the V and one on the way up."""

    def __init__(self, ranks: int, rank: int) -> None:
        self.stages = rank, 2 * ranks - 1 - rank
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.actions: list[Action | None] = []
        self.weights: deque[Action] = deque()

    def forward(self, way: int) -> Action:
        """The next forward of the stage on the way down (0) or up (1)."""
        self.forwards[way] += 1
        return Action(self.stages[way], F, self.forwards[way] - 1)

    def full(self, way: int) -> Action:
        """The next backward."""
        self.backwards[way] += 1
        return Action(self.stages[way], B, self.backwards[way] - 1)

    def run_forward(self, way: int) -> None:
        """Add a forward."""
        self.actions.append(self.forward(way))

    def run_full(self, way: int) -> None:
        """Add a backward."""
        self.actions.append(self.full(way))

    def run_input(self, way: int) -> None:
        """Add the first half of a backward; the second waits."""
        microbatch = self.backwards[way]
        self.backwards[way] += 1
        self.actions.append(Action(self.stages[way], I, microbatch))
        self.weights.append(Action(self.stages[way], W, microbatch))

    def run_weight(self) -> None:
        """Add the second half that has waited longest."""
        self.actions.append(self.weights.popleft())

    def take_weight(self, way: int) -> None:
        """Add the second half of this stage that has waited longest."""
        found = next(w for w in self.weights if w.stage_index == self.stages[way])
        self.weights.remove(found)
        self.actions.append(found)

    def run_together(self, ahead: int, back: int) -> None:
        """Add a forward of one stage and a backward of the other, as one action."""
        pair = (self.forward(ahead), self.full(back))
        self.actions.append(Action(-1, ComputationType.OVERLAP_F_B, None, pair))


def zero_bubble_v(ranks: int, microbatches: int) -> Order:
    """Two stages on each rank in the form of a V, backward in two halves (Qi et al., 2024, ZBV).

    The order is that of as many micro-batches as fill the pipeline, of which the further ones are left out.
    """
    count = max(2 * ranks - 1, microbatches)
    found: Order = {}
    for rank in range(ranks):
        found[rank] = [
            action
            for action in _zero_bubble_v(_V(ranks, rank), ranks - rank, rank, count)
            if action is not None and (action.microbatch_index or 0) < microbatches
        ]
    return found


def _zero_bubble_v(v: _V, below: int, rank: int, count: int) -> list[Action | None]:
    """The actions of a rank with `below` ranks from it to the bottom of the V, itself counted."""
    for _ in range(2 * below - 1):
        v.run_forward(0)
    for _ in range(rank):
        v.run_forward(1)
        v.run_forward(0)
    for _ in range(below):
        v.run_forward(1)
        v.run_input(1)
        v.take_weight(1)
    while v.forwards[1] < v.forwards[0] or v.forwards[0] < count:
        if v.forwards[0] < count:
            v.run_forward(0)
        v.run_input(0)
        v.take_weight(0)
        v.run_forward(1)
        v.run_input(1)
        v.take_weight(1)
    for _ in range(rank):
        v.run_input(0)
        v.run_input(1)
    for _ in range(below):
        v.run_input(0)
        v.take_weight(0)
    for way in (1, 0):
        while any(w.stage_index == v.stages[way] for w in v.weights):
            v.take_weight(way)
    return v.actions


def dual_pipe_v(ranks: int, microbatches: int) -> Order:
    """The halves of DeepSeek's DualPipe on a V: a forward and the backward of another micro-batch are one action.

    ValueError for fewer micro-batches than stages.
    """
    if microbatches < 2 * ranks:
        raise ValueError(
            f"DualPipeV requires at least as many microbatches as stages, but got {microbatches} microbatches and {2 * ranks} stages."
        )
    return {rank: _dual_pipe_v(_V(ranks, rank), ranks, rank, microbatches) for rank in range(ranks)}


def _dual_pipe_v(v: _V, ranks: int, rank: int, microbatches: int) -> list[Action | None]:
    below, last = ranks - rank - 1, rank == ranks - 1
    for _ in range(2 * below):
        v.run_forward(0)
    for _ in range(rank + 1):
        v.run_forward(0)
        v.run_forward(1)
    for _ in range(below):
        v.run_input(1)
        v.run_weight()
        v.run_forward(1)
    for k in range(microbatches - 2 * ranks + rank + 1):
        if k == 0 and last:  # both stages are here: nothing could be overlapped with the first backward
            v.run_forward(0)
            v.run_full(1)
        else:
            v.run_together(0, 1)
        v.run_together(1, 0)
    for _ in range(below):
        v.run_full(1)
        v.run_together(1, 0)
    halved = False
    for k in range(rank + 1):
        halved = halved or (k == (rank + 1) // 2 and rank % 2 == 1)
        (v.run_input if halved else v.run_full)(1)
        halved = halved or (k == (rank + 1) // 2 and rank % 2 == 0)
        (v.run_input if halved else v.run_full)(0)
    for _ in range(below):
        v.run_weight()
        v.run_input(0)
    while v.weights:
        v.run_weight()
    return v.actions
