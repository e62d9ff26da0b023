"""Exceptions on their way to the caller: their class, and a text that says where and how they came up."""

from __future__ import annotations

import pickle
import traceback
from typing import Any, NamedTuple

__all__ = ["RemoteError", "as_error"]


class RemoteError(NamedTuple):
    """An exception of a function on another worker."""

    text: str
    kind: Any

    @staticmethod
    def of(error: BaseException, worker: Any) -> RemoteError:
        """An exception of this worker, whose class can be sent: RuntimeError in place of others."""
        text = f"On {worker}:\n{error!r}\n{''.join(traceback.format_exception(error))}"
        kind = type(error) if isinstance(error, Exception) else RuntimeError
        try:
            pickle.dumps(kind)
        except Exception:  # how a class refuses to be pickled is its own affair
            kind = RuntimeError
        return RemoteError(text, kind)


def as_error(value: RemoteError) -> Exception:
    """The exception to raise here: of the same class, if one can be made of a text alone."""
    try:
        made = value.kind(value.text)
    except Exception:  # the class wants other arguments than a text
        made = RuntimeError(f"{value.kind.__name__}: {value.text}")
    return made if isinstance(made, Exception) else RuntimeError(value.text)
