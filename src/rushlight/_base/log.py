"""`RUSHLIGHT_LOG=topic,topic`: prints internal events to standard error as they happen.

Topics: `plan` (a call without a plan), `graph` (primitive graphs), `schedule`, `loops`, `llvm`, `asm`, `cache`,
`threads`, `all`.  Of compiled programs: `breaks` and `recompiles` with their reasons, `guards`, `program`, `joint` (its
forward and backward graphs), `fusion`, `native`, `effects`, `hints`, `source` and `bytecode` (what is traced).
"""

from __future__ import annotations

import sys

from rushlight._base.knobs import Knob

__all__ = ["TOPICS", "enabled", "log"]

TOPICS = (
    "plan", "graph", "schedule", "loops", "llvm", "asm", "cache", "threads",
    "breaks", "recompiles", "guards", "program", "joint", "source", "fusion", "native", "effects", "hints", "bytecode",
)  # fmt: skip


def _topics(text: str) -> frozenset[str]:
    names = {word.strip() for word in text.split(",") if word.strip()}
    unknown = names - set(TOPICS) - {"all"}
    if unknown:
        raise ValueError(f"unknown log topics {sorted(unknown)}; known: {', '.join(TOPICS)}, all")
    return frozenset(TOPICS if "all" in names else names)


LOG: Knob[frozenset[str]] = Knob(
    "log",
    env="RUSHLIGHT_LOG",
    kind=_topics,
    default=frozenset(),
    doc="Topics to print, separated by commas; `all` for every one.",
)


def enabled(topic: str) -> bool:
    """Whether `topic` is printed; ask before building a long text."""
    return topic in LOG.get()


def log(topic: str, text: str) -> None:
    """Print `text` under `topic` if that topic is enabled."""
    if topic in LOG.get():
        print(f"[rushlight {topic}] {text}", file=sys.stderr, flush=True)
