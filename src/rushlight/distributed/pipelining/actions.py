"""Actions of the ranks of a pipeline, as data: actions, their text, and tables of them.

An action is a computation of one stage on one micro-batch (`2F0`: forward of stage 2 on micro-batch 0), a message
(`2SEND_F0`, `3RECV_F0`), or something that is done for a stage as a whole (`2REDUCE_GRAD`).  A pipeline's order is a
dict: rank -> its actions, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

__all__ = ["Action", "ComputationType", "Order", "flat", "read_table"]


class ComputationType(str, Enum):  # noqa: UP042 - PyTorch's is no StrEnum
    """The kinds of actions; the value is what stands in an action's text."""

    FORWARD = "F"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    UNSHARD = "UNSHARD"
    RESHARD = "RESHARD"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    FULL_BACKWARD = "B"
    OVERLAP_F_B = "OVERLAP_F_B"
    REDUCE_GRAD = "REDUCE_GRAD"

    def __str__(self) -> str:
        return self.value

    @staticmethod
    def from_str(action: str) -> ComputationType:
        """The kind with this text; RuntimeError for another."""
        try:
            return ComputationType(action)
        except ValueError:
            raise RuntimeError(f"Invalid computation type {action}") from None


COMPUTED = frozenset(
    {
        ComputationType.FORWARD,
        ComputationType.FULL_BACKWARD,
        ComputationType.BACKWARD_INPUT,
        ComputationType.BACKWARD_WEIGHT,
        ComputationType.OVERLAP_F_B,
    }
)
# Longest texts first: "F" is the end of others.
_KINDS = "|".join(sorted((kind.value for kind in ComputationType), key=len, reverse=True))
_TEXT = re.compile(rf"(\d+)({_KINDS})(\d*)")


class Action(NamedTuple):
    """One action.

    - `stage_index`: the stage; for `OVERLAP_F_B`, -1
    - `computation_type`: the kind
    - `microbatch_index`: None where the action is for the whole stage
    - `sub_actions`: for `OVERLAP_F_B`, the two actions that are done together

        >>> from rushlight.distributed.pipelining.actions import Action
        >>> Action.from_str("2F0")
        2F0
        >>> Action.from_str("2F0").microbatch_index
        0
    """

    stage_index: int
    computation_type: ComputationType
    microbatch_index: int | None = None
    sub_actions: tuple[Action, ...] | None = None

    def __str__(self) -> str:
        if self.sub_actions is not None:
            return f"({';'.join(map(str, self.sub_actions))}){self.computation_type}"
        return (
            f"{self.stage_index}{self.computation_type}{'' if self.microbatch_index is None else self.microbatch_index}"
        )

    def __repr__(self) -> str:
        return str(self)

    @property
    def is_compute_op(self) -> bool:
        """Whether it runs a part of a stage's module, forward or backward."""
        return self.computation_type in COMPUTED

    @staticmethod
    def from_str(action_string: str) -> Action | None:
        """The action with this text; None for an empty one, RuntimeError for what is no action."""
        text = action_string.strip()
        if not text:
            return None
        overlapped = re.fullmatch(r"\((.+)\)OVERLAP_F_B", text)
        if overlapped:
            parts = tuple(part for part in map(Action.from_str, overlapped[1].split(";")) if part is not None)
            return Action(-1, ComputationType.OVERLAP_F_B, None, parts)
        found = _TEXT.fullmatch(text)
        if found is None:
            raise RuntimeError(
                f"Invalid action string: {action_string}, should be formatted as [stage][action type][(microbatch)] e.g. 2F0"
            )
        return Action(int(found[1]), ComputationType(found[2]), int(found[3]) if found[3] else None)


Order = dict[int, list[Action | None]]


def flat(actions: Iterable[Action | None]) -> list[Action]:
    """Actions without idle steps, and with the parts of overlapped ones."""
    found: list[Action] = []
    for action in actions:
        if action is not None:
            found += action.sub_actions or [action]
    return found


def read_table(lines: Iterable[str]) -> Order:
    """An order from lines of comma-separated actions, one line for each rank; an empty cell is an idle step."""
    return {
        rank: [Action.from_str(cell) for cell in line.strip().split(",")]
        for rank, line in enumerate(line for line in lines if line.strip())
    }
