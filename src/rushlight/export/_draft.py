"""`draft_export`: an export that goes on where `export` gives up, and says what was in its way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rushlight import Tensor
from rushlight._dynamo.exc import UserError, UserErrorType
from rushlight._interface.base import warn_user
from rushlight.export._trace import exported
from rushlight.export.dynamic_shapes import Dim, combined_args
from rushlight.fx.experimental.symbolic_shapes import ConstraintViolationError
from rushlight.utils._pytree import tree_map

__all__ = ["DraftExportReport", "FailureReport", "drafted"]


@dataclass
class FailureReport:
    """An obstacle to an export: its kind, and the text of the error."""

    failure_type: str
    data: dict[str, Any] = field(default_factory=dict)

    def print(self) -> str:
        """As text."""
        return f"{self.failure_type}: {self.data.get('message', '')}"


@dataclass
class DraftExportReport:
    """All that was in the way of an export."""

    failures: list[FailureReport] = field(default_factory=list)

    def successful(self) -> bool:
        """Whether `export` would have given the same program."""
        return not self.failures

    def __str__(self) -> str:
        if self.successful():
            return "No issues were found during export. You can now go back to torch.export.export()."
        rows = "\n".join(f"{n}. {f.print()}" for n, f in enumerate(self.failures, 1))
        return f"{len(self.failures)} issue(s) were found during export, and it was not able to soundly produce a graph.\n\n{rows}"


def drafted(mod: Any, args: Any, kwargs: Any, dynamic_shapes: Any, strict: bool, preserve: Any) -> Any:
    """See `torch.export.draft_export`."""
    report = DraftExportReport()
    try:
        program = exported(mod, args, kwargs, dynamic_shapes, strict, preserve)
    except (UserError, ConstraintViolationError, ValueError) as error:
        kind = getattr(error, "error_type", UserErrorType.CONSTRAINT_VIOLATION)
        if dynamic_shapes is None or kind is UserErrorType.INVALID_INPUT:
            raise
        report.failures.append(FailureReport("CONSTRAINT_VIOLATION_ERROR", {"message": str(error).strip()}))
        program = exported(mod, args, kwargs, _free(mod, args, kwargs), strict, preserve)
    program._report = report
    if not report.successful():
        warn_user(f"{report}")
    return program


def _free(mod: Any, args: Any, kwargs: Any) -> Any:
    """Specs that let all dims vary as far as the program does."""

    return tree_map(
        lambda v: (Dim.AUTO,) * v.dim() if isinstance(v, Tensor) else None, combined_args(mod, args, kwargs)
    )
