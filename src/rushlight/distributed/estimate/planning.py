"""Step time and memory of a layout, and the layouts that are best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rushlight.distributed.estimate.layouts import Layout, stages_of, tensor_parallel
from rushlight.distributed.estimate.machine import Machine
from rushlight.distributed.estimate.pipelines import F, kept_at_most, order_of, replay
from rushlight.distributed.estimate.steps import Stage
from rushlight.distributed.estimate.work import ModelWork
from rushlight.distributed.pipelining.actions import Action

__all__ = ["STATES", "Estimate", "Memory", "better_layouts", "estimate", "table"]

_MORE, _MOST_STAGES = 8, 32  # layouts that are replayed beyond those wanted; stages that are tried
STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}  # numbers of float32 that an optimizer keeps for a parameter


@dataclass(frozen=True)
class Memory:
    """Bytes of the rank that needs most."""

    parameters: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    gathered: float = 0.0  # whole parameters while they are used, and buckets of gradients

    @property
    def total(self) -> float:
        """All of it."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.gathered


@dataclass(frozen=True)
class Estimate:
    """Costs of a step of a layout: predicted, not measured.

    `seconds` of a step; of these a rank computes for `compute` on average, `bubble` is the part of the time in which ranks
    of a pipeline wait for each other, `collectives` the seconds of each kind on the busiest rank (they may hide behind
    computing), `optimizer` those after backward.
    """

    layout: Layout
    batch: float
    seconds: float
    compute: float
    bubble: float
    optimizer: float
    collectives: Mapping[str, float]
    memory: Memory

    @property
    def items_per_second(self) -> float:
        """Items of the batch, in a second."""
        return self.batch / self.seconds

    def __str__(self) -> str:
        moved = ", ".join(f"{kind} {_time(s)}" for kind, s in sorted(self.collectives.items()) if s) or "none"
        m = self.memory
        parts = (
            ("parameters", m.parameters), ("gradients", m.gradients), ("optimizer", m.optimizer), ("activations", m.activations),
            ("gathered", m.gathered),
        )  # fmt: skip
        return "\n".join(
            (
                f"{self.layout}: {self.layout.ranks} ranks, batch {self.batch:g}",
                f"  step (predicted)   {_time(self.seconds)}, {self.items_per_second:,.1f} items/s",
                f"  computing          {_time(self.compute)} on a rank, optimizer {_time(self.optimizer)}",
                f"  pipeline bubble    {100 * self.bubble:.1f} %",
                f"  collectives        {moved}",
                f"  memory of a rank   {_size(m.total)}: " + ", ".join(f"{name} {_size(n)}" for name, n in parts if n),
            )
        )


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def _size(nbytes: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes / 1e3:.3g} kB"


def estimate(
    work: ModelWork,
    layout: Layout,
    machine: Machine,
    batch: float | None = None,
    optimizer: str = "adamw",
    plan: Mapping[str, str] | None = None,
) -> Estimate:
    """Replay one training step of a layout.

    `work` comes from `model_work`, `machine` from `measure` or from a data sheet; `batch` is that of all ranks together
    (without it: the one `work` was taken at, on each data parallel rank); `optimizer` one of `STATES`; `plan` says which layers
    tensor parallel divides (see `tensor_parallel`).  Work is taken to grow with the batch.  ValueError for layouts that
    cannot be: more stages than layers, micro-batches that a schedule does not take.
    """
    if optimizer not in STATES:
        raise ValueError(f"optimizer is one of {', '.join(STATES)}, got {optimizer!r}")
    whole = float(work.batch * layout.dp) if batch is None else float(batch)
    stages = _stages(work, layout, machine, whole / layout.dp / layout.micro_batches, plan)
    order, states = order_of(layout), STATES[optimizer]

    def took(action: Action) -> float:
        forward = action.computation_type == F
        marked = action.microbatch_index == (0 if forward else layout.micro_batches - 1)
        return stages[action.stage_index].run(not forward, marked).seconds

    run = replay(order, len(stages), took, lambda stage: _message(stages, stage))
    own = {rank: _own(stages, rank) for rank in order}
    after = max(_optimizer_seconds(mine, layout, machine, states) for mine in own.values())
    totals = [_totals(mine, layout) for mine in own.values()]
    collectives = max((found for found, _ in totals), key=lambda found: sum(found.values()))
    memory = max(
        (_memory(own[r], layout, states, kept_at_most(order[r], lambda s: stages[s].saved)) for r in order),
        key=lambda m: m.total,
    )
    bubble = 1 - sum(run.busy.values()) / (len(run.busy) * run.seconds) if run.seconds else 0.0
    computing = sum(seconds for _, seconds in totals) / len(totals)
    if layout.shard == "optimizer":
        collectives["all_gather"] += max(_gather_after(mine, layout, machine) for mine in own.values())
    return Estimate(layout, whole, run.seconds + after, computing, max(bubble, 0.0), after, dict(collectives), memory)


def _message(stages: Sequence[Stage], stage: int) -> float:
    """Seconds of the message between a stage and the next."""
    layout = stages[stage].layout
    return stages[stage].machine.seconds("send", stages[stage].made, 2, layout.tp * layout.dp)


def _own(stages: Sequence[Stage], rank: int) -> list[Stage]:
    """The stages of a rank of the pipeline."""
    return [stages[k] for k in range(rank, len(stages), stages[0].layout.pp)]


def _stages(
    work: ModelWork, layout: Layout, machine: Machine, micro: float, plan: Mapping[str, str] | None
) -> list[Stage]:
    spread = tensor_parallel(work.scaled(micro), layout.tp, plan)
    count = layout.pp * layout.stages_per_rank
    if count == 1:
        return [Stage(spread, layout, machine)]
    seconds = [
        sum(machine.compute(w.flops, w.nbytes, w.calls) for w in (s.layer.forward, s.layer.backward)) for s in spread
    ]
    return [Stage(part, layout, machine) for part in stages_of(spread, seconds, count)]


def _bytes(stages: Sequence[Stage]) -> float:
    return sum(stage.nbytes for stage in stages)


def _optimizer_seconds(stages: Sequence[Stage], layout: Layout, machine: Machine, states: int) -> float:
    """Parameters and states are read and written, gradients read; then parameters are gathered, where only states are
    divided.
    """
    elements = sum(stage.elements for stage in stages)
    divided = layout.dp if layout.shard != "none" else 1
    seconds = elements / divided * 4 * (3 + 2 * states) / machine.bandwidth + machine.overhead
    return seconds + (_gather_after(stages, layout, machine) if layout.shard == "optimizer" else 0.0)


def _gather_after(stages: Sequence[Stage], layout: Layout, machine: Machine) -> float:
    return machine.seconds("all_gather", _bytes(stages), layout.dp, layout.tp)


def _totals(stages: Sequence[Stage], layout: Layout) -> tuple[dict[str, float], float]:
    """Seconds of collectives by kind and of computing, of one rank in a step."""
    found: dict[str, float] = defaultdict(float)
    computing = 0.0
    for stage in stages:
        for backward in (False, True):
            for marked, times in ((True, 1), (False, layout.micro_batches - 1)):
                one = stage.run(backward, marked)
                computing += times * one.computing
                for kind, seconds in one.collectives.items():
                    found[kind] += times * seconds
    return found, computing


def _memory(own: Sequence[Stage], layout: Layout, states: int, activations: float) -> Memory:
    nbytes, elements = _bytes(own), sum(stage.elements for stage in own)
    held = nbytes if layout.shard in ("none", "optimizer") else nbytes / layout.dp
    gathered = 0.0
    if layout.dp > 1:  # whole parameters, or buckets of gradients
        gathered = max(stage.largest_units for stage in own) if layout.shard == "parameters" else nbytes
    activations += max(stage.saved_again for stage in own)
    optimizer = 4.0 * states * elements / (1 if layout.shard == "none" else layout.dp)
    return Memory(held, held, optimizer, activations, gathered)


# ***** the better layouts *****


def better_layouts(
    work: ModelWork, machine: Machine, ranks: int, batch: float, optimizer: str = "adamw", plan: Mapping[str, str] | None = None, most: int = 5
) -> list[Estimate]:  # fmt: skip
    """The quickest layouts of `ranks` ranks for a batch, best first, that fit into `machine.memory`.

    Tensor parallel stays within a node, a pipeline has at most 32 ranks, and every rank gets
    at least one item of a micro-batch.  ValueError where no layout fits.
    """
    if optimizer not in STATES:
        raise ValueError(f"optimizer is one of {', '.join(STATES)}, got {optimizer!r}")
    first = []
    for layout in _candidates(work, machine, ranks, batch):
        seconds, memory = _at_first_sight(work, layout, machine, batch, STATES[optimizer], plan)
        if machine.memory is None or memory <= machine.memory:
            first.append((seconds, str(layout), layout))
    found: list[Estimate] = []
    for _, _, layout in sorted(first):
        if len(found) >= most + _MORE:
            break
        try:
            one = estimate(work, layout, machine, batch, optimizer, plan)
        except ValueError:
            continue  # this schedule does not take such numbers
        if machine.memory is None or one.memory.total <= machine.memory:
            found.append(one)
    if not found:
        raise ValueError(f"no layout of {ranks} ranks fits into {_size(machine.memory or 0)} of a rank")
    return sorted(found, key=lambda one: (one.seconds, one.memory.total))[:most]


def _at_first_sight(
    work: ModelWork, layout: Layout, machine: Machine, batch: float, states: int, plan: Mapping[str, str] | None
) -> tuple[float, float]:
    """Seconds and bytes of a layout without replaying its pipeline: what all micro-batches take on the slowest rank, and
    what the first takes to come through.
    """
    stages = _stages(work, layout, machine, batch / layout.dp / layout.micro_batches, plan)
    ranks = [_own(stages, rank) for rank in range(layout.pp)]

    def once(stage: Stage) -> float:
        return stage.run(False, False).seconds + stage.run(True, True).seconds

    slowest = max(sum(map(once, own)) for own in ranks)
    through = sum(once(stage) for stage in stages) / layout.stages_per_rank
    messages = sum(2 * _message(stages, k) for k in range(len(stages) - 1))
    seconds = through + messages + (layout.micro_batches - 1) * slowest
    seconds += max(_optimizer_seconds(own, layout, machine, states) for own in ranks)
    held = min(layout.micro_batches, layout.pp)
    memory = max(_memory(own, layout, states, held * own[0].saved).total for own in ranks)
    return seconds, memory


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]


def _candidates(work: ModelWork, machine: Machine, ranks: int, batch: float) -> Iterator[Layout]:
    for tp in _divisors(ranks):
        if tp > min(machine.ranks_per_node, 64):
            continue
        for pp in _divisors(ranks // tp):
            dp = ranks // tp // pp
            if pp > min(len(work.layers), _MOST_STAGES) or dp > batch:
                continue
            for shard in ("none", "optimizer", "gradients", "parameters") if dp > 1 else ("none",):
                for count in (1, 2, 4, 8) if pp == 1 else (pp, 2 * pp, 4 * pp):
                    if dp * count > batch:
                        continue
                    # Without a limit of memory there is nothing to gain by computing twice.
                    for again in (False, True) if machine.memory is not None else (False,):
                        yield Layout(dp, tp, pp, shard, count, checkpoint=again)
                        if 1 < pp <= len(work.layers) // 2:
                            yield Layout(dp, tp, pp, shard, count, "interleaved", 2, checkpoint=again)


def table(estimates: Sequence[Estimate]) -> str:
    """Estimates as text, a line for each."""
    lines = [f"{'step (predicted)':>16}  {'items/s':>10}  {'bubble':>7}  {'memory':>8}  layout"]
    for one in estimates:
        lines.append(
            f"{_time(one.seconds):>16}  {one.items_per_second:>10,.1f}  {100 * one.bubble:>5.1f} %  {_size(one.memory.total):>8}  {one.layout}"
        )
    return "\n".join(lines)
