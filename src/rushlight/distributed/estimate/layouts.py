"""How a model is spread over ranks, and what that makes of its layers."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rushlight.distributed.estimate.work import Layer, Work

__all__ = ["SHARDS", "Layout", "SpreadLayer", "stages_of", "tensor_parallel", "units_of"]

# What data parallel ranks divide among them: nothing; the optimizer's state (ZeRO 1); also gradients and parameters, which
# are gathered once in a step (ZeRO 2, `reshard_after_forward=False`); or again in backward (ZeRO 3, FSDP).
SHARDS = ("none", "optimizer", "gradients", "parameters")


@dataclass(frozen=True)
class Layout:
    """`dp` x `tp` x `pp` ranks; what data parallel ranks divide (`SHARDS`), micro-batches of a step, and the schedule
    ("gpipe", "1f1b", "interleaved" with `stages_per_rank`).

    With `checkpoint` each block keeps its inputs alone, and runs forward again in backward.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    shard: str = "none"
    micro_batches: int = 1
    schedule: str = "1f1b"
    stages_per_rank: int = 1
    bucket_bytes: int = 25 << 20
    checkpoint: bool = False

    def __post_init__(self) -> None:
        if self.shard not in SHARDS:
            raise ValueError(f"shard is one of {', '.join(SHARDS)}, got {self.shard!r}")
        if min(self.dp, self.tp, self.pp, self.micro_batches, self.stages_per_rank) < 1:
            raise ValueError(f"sizes of a layout are at least 1, got {self}")
        if self.schedule not in ("gpipe", "1f1b", "interleaved"):
            raise ValueError(f"schedule is gpipe, 1f1b or interleaved, got {self.schedule!r}")
        if self.stages_per_rank > 1 and self.schedule != "interleaved":
            raise ValueError("several stages on a rank need the schedule 'interleaved'")

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.dp * self.tp * self.pp

    def __str__(self) -> str:
        parts = [f"dp {self.dp}", f"tp {self.tp}", f"pp {self.pp}", self.shard, f"{self.micro_batches} micro-batches"]
        if self.pp > 1:
            parts.append(self.schedule + (f" x {self.stages_per_rank}" if self.stages_per_rank > 1 else ""))
        if self.checkpoint:
            parts.append("checkpoint")
        return ", ".join(parts)


@dataclass
class SpreadLayer:
    """A layer on one rank; bytes of the all-reduces that tensor parallel adds after its forward and after its backward."""

    layer: Layer
    after_forward: float = 0.0
    after_backward: float = 0.0
    spread: bool = False  # whether its operators run on DTensors


def _parts(layer: Layer, size: int, whole_input: bool) -> Layer:
    """One of `size` parts of a layer; its saved input may be whole."""

    def part(work: Work) -> Work:
        return Work(work.flops / size, work.nbytes / size, work.calls)

    saved = layer.saved if whole_input else layer.saved / size
    return replace(
        layer,
        elements=-(-layer.elements // size),
        forward=part(layer.forward),
        backward=part(layer.backward),
        saved=saved,
    )


def _styles(layers: Sequence[Layer], plan: Mapping[str, str] | None) -> dict[str, str]:
    """Name of a layer -> "colwise" or "rowwise"."""
    if plan is not None:
        found = {}
        for layer in layers:
            for pattern, style in plan.items():
                if fnmatch.fnmatch(layer.name.partition(".")[2], pattern):
                    found[layer.name] = style
        return found
    linear = [layer.name for layer in layers if layer.kind == "Linear"]
    families: dict[str, list[str]] = {}
    for name in linear:
        families.setdefault(name.rpartition(".")[0], []).append(name)
    return {
        name: "rowwise" if name == own[-1] and len(own) > 1 else "colwise" for own in families.values() for name in own
    }


def tensor_parallel(layers: Sequence[Layer], size: int, plan: Mapping[str, str] | None = None) -> list[SpreadLayer]:
    """The layers of one of `size` tensor parallel ranks.

    `plan` says which layers are "colwise" and which "rowwise", by patterns of names as `layers.*.mlp.up`.  Without it,
    of the Linear layers of one module the last is rowwise and the others are colwise.  What lies between works on parts.
    """
    if size == 1:
        return [SpreadLayer(layer) for layer in layers]
    styles, parted, found = _styles(layers, plan), False, []
    for layer in layers:
        style = styles.get(layer.name)
        if style == "colwise":
            found.append(SpreadLayer(_parts(layer, size, not parted), after_backward=layer.given, spread=True))
            parted = True
        elif style == "rowwise":
            found.append(SpreadLayer(_parts(layer, size, False), after_forward=layer.made, spread=True))
            parted = False
        elif parted and not layer.elements:
            found.append(SpreadLayer(_parts(layer, size, False)))
        else:
            parted = False
            found.append(SpreadLayer(layer))
    return found


def units_of(layers: Sequence[SpreadLayer]) -> list[list[SpreadLayer]]:
    """Layers that are gathered together: those of one block, which is named by its number, else neighbours."""

    def block(spread: SpreadLayer) -> str:
        parts = spread.layer.name.split(".")
        number = next((i for i, part in enumerate(parts) if part.isdigit()), None)
        return "" if number is None else ".".join(parts[: number + 1])

    return [list(part) for _, part in itertools.groupby(layers, block)]


def stages_of(layers: Sequence[SpreadLayer], seconds: Sequence[float], count: int) -> list[list[SpreadLayer]]:
    """Consecutive parts of layers, so that the slowest part is as fast as can be.  ValueError for too few layers."""
    if count > len(layers):
        raise ValueError(f"{count} stages of {len(layers)} layers: there must be a layer for each")
    low, high = max(seconds), sum(seconds)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if len(list(_filled(seconds, middle))) <= count else (middle, high)
    ends = list(_filled(seconds, high))
    while len(ends) < count:  # divide the longest part, so that every stage has layers
        starts = [0, *ends[:-1]]
        k = max(range(len(ends)), key=lambda i: ends[i] - starts[i])
        ends.insert(k, (starts[k] + ends[k]) // 2)
    return [list(layers[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _filled(seconds: Sequence[float], limit: float) -> Iterator[int]:
    """Where parts end that are as long as the limit lets them."""
    total = 0.0
    for i, each in enumerate(seconds):
        if total and total + each > limit * (1 + 1e-12):
            yield i
            total = 0.0
        total += each
    yield len(seconds)
