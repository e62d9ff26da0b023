"""From the order of computations to what a rank does: checks, messages, gathering of parameters, reduction of gradients.

Messages are put in by running all ranks at once, as far as their computations can go: each send and its receive take their
places at the same moment.  So the ranks' messages are in the order of one sequence of events, and none can wait for ever,
not even where a receive blocks everything behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rushlight.distributed.pipelining.actions import Action, ComputationType, Order, flat

__all__ = [
    "check",
    "in_steps",
    "merged",
    "needs",
    "with_gathering",
    "with_late_receives",
    "with_messages",
    "with_reductions",
]

F, B = ComputationType.FORWARD, ComputationType.FULL_BACKWARD
I, W = ComputationType.BACKWARD_INPUT, ComputationType.BACKWARD_WEIGHT


def needs(action: Action, stages: int) -> Iterator[tuple[Action, ...]]:
    """Actions that must be done before: of each tuple one."""
    stage, kind, m, _ = action
    if kind == F and stage:
        yield (Action(stage - 1, F, m),)
    elif kind in (B, I):
        yield (Action(stage, F, m),)
        if stage < stages - 1:
            yield (Action(stage + 1, B, m), Action(stage + 1, I, m))
    elif kind == W:
        yield (Action(stage, I, m),)
    elif kind == ComputationType.REDUCE_GRAD:
        return


def _ready(action: Action, done: set[Action], stages: int) -> bool:
    """Whether it can be done; parts of an overlapped action may need each other's predecessors, not each other."""
    return all(any(a in done for a in some) for part in flat([action]) for some in needs(part, stages))


def _stages(order: Mapping[int, Sequence[Action | None]]) -> int:
    return 1 + max((a.stage_index for actions in order.values() for a in flat(actions)), default=-1)


def in_steps(order: Mapping[int, Sequence[Action | None]]) -> Order:
    """The order with idle steps (None): each action takes one step, and begins when all that it needs was done in steps
    before.  ValueError where that is never.
    """
    stages, done = _stages(order), set[Action]()
    left = {rank: [a for a in actions if a is not None] for rank, actions in order.items()}
    found: Order = {rank: [] for rank in order}
    while any(left.values()):
        moved = [rank for rank in order if left[rank] and _ready(left[rank][0], done, stages)]
        if not moved:
            waiting = {rank: str(actions[0]) for rank, actions in left.items() if actions}
            raise ValueError(f"the schedule cannot go on; each rank's next action: {waiting}")
        for rank in order:
            if left[rank]:
                found[rank].append(left[rank].pop(0) if rank in moved else None)
        done.update(a for rank in moved for a in flat([found[rank][-1]]))
    return found


def shown(order: Mapping[int, Sequence[Action | None]], error_step_number: int | None = None) -> str:
    """A table with a row for each step and a column for each rank; a step where `error_step_number` says so is marked.

    >>> from rushlight.distributed.pipelining.lowering import shown
    >>> from rushlight.distributed.pipelining.orders import one_forward_one_backward
    >>> print(shown(one_forward_one_backward(2, 2)))
           Rank 0 Rank 1
    Step 0 0F0
    Step 1 0F1    1F0
    Step 2        1B0
    Step 3 0B0    1F1
    Step 4        1B1
    Step 5 0B1
    """
    steps = in_steps(order) if not any(None in actions for actions in order.values()) else order
    ranks = sorted(steps)
    count = max((len(steps[rank]) for rank in ranks), default=0)
    rows = [["", *(f"Rank {rank}" for rank in ranks)]]
    for step in range(count):
        cells = [steps[rank][step] if step < len(steps[rank]) else None for rank in ranks]
        mark = " <-- ERROR HERE" if step == error_step_number else ""
        rows.append([f"Step {step:0{len(str(count - 1))}d}", *("" if c is None else str(c) for c in cells), mark])
        if not mark:
            rows[-1].pop()
    widths = [max(len(row[k]) for row in rows if k < len(row)) for k in range(len(ranks) + 1)]
    return "\n".join(
        " ".join(cell.ljust(widths[k]) if k < len(widths) else cell for k, cell in enumerate(row)).rstrip()
        for row in rows
    )


def check(order: Mapping[int, Sequence[Action | None]], ranks: int, stages: int, microbatches: int) -> dict[int, int]:
    """Stage -> rank.  ValueError for ranks that are missing, a stage on two ranks, a micro-batch that misses a forward or
    a backward, computations in an impossible order.
    """
    if len(order) != ranks:
        raise ValueError(f"Schedule has incorrect number of ranks - expected {ranks}, actual {len(order)}")
    owner: dict[int, int] = {}
    counts: dict[tuple[int, ComputationType], set[int | None]] = {}
    for rank, actions in order.items():
        for action in flat(actions):
            if not action.is_compute_op:
                continue
            if owner.setdefault(action.stage_index, rank) != rank:
                raise ValueError(
                    f"Stage {action.stage_index} is assigned to both rank {rank} and rank {owner[action.stage_index]}"
                )
            counts.setdefault((action.stage_index, action.computation_type), set()).add(action.microbatch_index)
    for stage in range(stages):
        seen = {kind: counts.get((stage, kind), set()) for kind in (F, B, I, W)}
        for what, found in (("F", seen[F]), ("B or I", seen[B] | seen[I])):
            if found != set(range(microbatches)) or (what != "F" and seen[B] & seen[I]):
                raise ValueError(
                    f"Stage {stage} has {what} for micro-batches {sorted(map(str, found))}, expected {microbatches}"
                )
        if seen[W] != seen[I]:
            raise ValueError(f"Stage {stage} has I and W for different micro-batches")
    try:
        in_steps({r: [a for a in actions if a and a.is_compute_op] for r, actions in order.items()})
    except ValueError as error:
        raise ValueError(f"{error}\n{shown({r: [None, *a] for r, a in order.items()})}") from None
    return owner


def with_reductions(actions: Sequence[Action | None], microbatches: int) -> list[Action | None]:
    """Actions of one rank with a `REDUCE_GRAD` after the last backward of each stage."""
    found: list[Action | None] = []
    counts: dict[int, int] = {}
    for action in actions:
        found.append(action)
        for part in flat([action]):
            if part.computation_type in (B, W):
                counts[part.stage_index] = counts.get(part.stage_index, 0) + 1
                if counts[part.stage_index] == microbatches:
                    found.append(Action(part.stage_index, ComputationType.REDUCE_GRAD, None))
    return found


def with_gathering(actions: Sequence[Action | None], most: int = 3) -> list[Action]:
    """Actions of one rank with `UNSHARD` before a stage is used and `RESHARD` when `most` others are needed first: at most
    so many stages have their parameters gathered at a time.
    """
    computed = [a for a in actions if a is not None]

    def coming(start: int) -> list[int]:
        stages: list[int] = []
        for action in flat(computed[start:]):
            if action.stage_index not in stages:
                stages.append(action.stage_index)
            if len(stages) == most:
                break
        return stages

    gathered: list[int] = []
    found: list[Action] = []
    for k, action in enumerate(computed):
        wanted = coming(k)
        for stage in [s for s in gathered if s not in wanted]:
            gathered.remove(stage)
            found.append(Action(stage, ComputationType.RESHARD))
        for stage in wanted:
            if stage not in gathered:
                gathered.append(stage)
                found.append(Action(stage, ComputationType.UNSHARD))
        found.append(action)
    return [*found, *(Action(stage, ComputationType.RESHARD) for stage in gathered)]


def merged(actions: Sequence[Action | None]) -> list[Action]:
    """Actions of one rank in which an `I` and the `W` behind it are one `B`."""
    found: list[Action] = []
    for action in actions:
        if action is None:
            continue
        if action.computation_type == W and found and found[-1] == action._replace(computation_type=I):
            found[-1] = action._replace(computation_type=B)
        else:
            found.append(action)
    return found


def with_messages(
    order: Mapping[int, Sequence[Action | None]], rank_of: Callable[[int], int], stages: int
) -> dict[int, list[Action]]:
    """The order with `SEND_F` behind each forward whose next stage is on another rank, `RECV_F` there, and the same for
    backwards.  ValueError for an order that cannot go on.
    """
    left = {rank: [a for a in actions if a is not None] for rank, actions in order.items()}
    found: dict[int, list[Action]] = {rank: [] for rank in order}
    done: set[Action] = set()
    while any(left.values()):
        moved = False
        for rank in order:
            if not left[rank] or not _ready(left[rank][0], done, stages):
                continue
            action, moved = left[rank].pop(0), True
            found[rank].append(action)
            for part in flat([action]):
                done.add(part)
                for here, there in _messages(part, rank_of, stages):
                    found[rank].append(here)
                    found[rank_of(there.stage_index)].append(there)
        if not moved:
            waiting = {rank: str(actions[0]) for rank, actions in left.items() if actions}
            raise ValueError(f"the schedule cannot go on; each rank's next action: {waiting}")
    return found


def _messages(action: Action, rank_of: Callable[[int], int], stages: int) -> Iterator[tuple[Action, Action]]:
    """The send that follows an action, and its receive."""
    stage, kind, m, _ = action
    if kind == F and stage + 1 < stages and rank_of(stage) != rank_of(stage + 1):
        yield Action(stage, ComputationType.SEND_F, m), Action(stage + 1, ComputationType.RECV_F, m)
    elif kind in (B, I) and stage and rank_of(stage) != rank_of(stage - 1):
        yield Action(stage, ComputationType.SEND_B, m), Action(stage - 1, ComputationType.RECV_B, m)


def with_late_receives(actions: Mapping[int, Sequence[Action]]) -> dict[int, list[Action]]:
    """The actions with each receive directly before the computation that needs it."""
    kinds = {F: (ComputationType.RECV_F,), B: (ComputationType.RECV_B,), I: (ComputationType.RECV_B,), W: ()}
    found: dict[int, list[Action]] = {}
    for rank, row in actions.items():
        received = {a for a in row if a.computation_type in (ComputationType.RECV_F, ComputationType.RECV_B)}
        found[rank] = []
        for action in row:
            if action in received:
                continue
            for part in flat([action]):
                for kind in kinds.get(part.computation_type, ()):
                    asked = Action(part.stage_index, kind, part.microbatch_index)
                    found[rank] += [asked] if asked in received else []
            found[rank].append(action)
    return found
