"""The error of a step that failed on some processes."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

__all__ = ["CheckpointException"]

Failure = tuple[BaseException, traceback.StackSummary]


class CheckpointException(BaseException):
    """A step of saving or loading failed: `failures` has the exception of each rank that failed, and where it was raised.

    Raised on all ranks of a checkpoint.  It is no `Exception`, as in PyTorch: catch it by its name.
    """

    def __init__(self, msg: str, failures: dict[int, Failure]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, Failure]:
        """Rank -> (exception, frames)."""
        return self._failures

    def __str__(self) -> str:
        text = f"CheckpointException ranks:{self._failures.keys()}\n"
        for rank, (error, frames) in self._failures.items():
            text += f"Traceback (most recent call last): (RANK {rank})\n{''.join(traceback.format_list(frames))}"
            text += "".join(traceback.format_exception_only(error))
        return text


def _wrap_exception(exc: BaseException) -> Failure:
    """An exception and its frames, in a form that other processes can read."""
    try:
        pickle.loads(pickle.dumps(exc))
    except Exception:  # an exception of any class may refuse
        exc = RuntimeError(f"{type(exc).__name__}: {exc}")
        return exc, traceback.StackSummary.from_list([])
    return exc, traceback.extract_tb(exc.__traceback__)


def _is_wrapped_exception(obj: Any) -> bool:
    """Whether a result is what `_wrap_exception` made."""
    return (
        isinstance(obj, tuple)
        and len(obj) == 2
        and isinstance(obj[0], BaseException)
        and isinstance(obj[1], traceback.StackSummary)
    )
