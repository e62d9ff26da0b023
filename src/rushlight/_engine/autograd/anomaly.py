"""Anomaly mode: which forward line made the backward fail or return NaN.  Post-hooks of nodes run here too."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from rushlight._base.errors import PACKAGE
from rushlight._base.tracebacks import TRACEBACK
from rushlight._engine.autograd.hooks import after_node
from rushlight._engine.core.state import ANOMALY, STATE
from rushlight._engine.core.tensor import Tensor

__all__ = [
    "detect_anomaly",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "remember",
    "run_watched",
    "set_detect_anomaly",
]


def remember(node: Any) -> None:
    """Keep the stack of the forward call, without frames of the package unless the knob `traceback` asks for all."""
    stack = traceback.extract_stack()
    shown = stack[:-3] if TRACEBACK.get() == "full" else [f for f in stack if not f.filename.startswith(PACKAGE)]
    node.metadata["traceback_"] = traceback.format_list(shown)
    if STATE.current_node is not None:
        node.metadata["parent_"] = STATE.current_node


def _warn(text: str) -> None:
    """Warn.  If warnings are errors, print the text instead, so that the error being raised is not replaced."""
    try:
        warnings.warn(text, UserWarning, stacklevel=4)
    except UserWarning:
        print(f"UserWarning: {text}", file=sys.stderr)


def _report(node: Any) -> None:
    lines = node.metadata.get("traceback_")
    if lines is None:
        _warn(
            f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly during forward pass for more information."
        )
        return
    _warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{''.join(lines)}")
    parent = node.metadata.get("parent_")
    if parent is not None and "traceback_" in parent.metadata:
        _warn(
            f"\n\nPrevious calculation was induced by {parent.name()}. Traceback of forward call that induced the previous calculation:\n"
            f"{''.join(parent.metadata['traceback_'])}"
        )


def run_watched(node: Any, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
    """Run a node with its post-hooks, and in anomaly mode with checks."""
    watched = STATE.word & ANOMALY
    outer = STATE.current_node
    STATE.current_node = node
    given = tuple(grads)
    try:
        runs = node._wants_none or any(g is not None for g in grads)
        found = list(node.apply(grads)) if runs else [None] * len(node._edges)
    except Exception:
        if watched:
            _report(node)
        raise
    finally:
        STATE.current_node = outer
    if watched and STATE.anomaly_check_nan:
        for i, grad in enumerate(found):
            if isinstance(grad, Tensor) and _has_nan(grad):
                _report(node)
                raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
    hooks = node._extra.post_hooks if node._extra is not None else None
    if hooks is not None:
        found = after_node(node, hooks, found, given)
    return found


def _has_nan(grad: Tensor) -> bool:
    if grad._storage is None or not (grad._spec.dtype.is_floating_point or grad._spec.dtype.is_complex):
        return False
    return bool(grad.detach().isnan().any())


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread."""
    return bool(STATE.word & ANOMALY)


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for NaN."""
    return STATE.anomaly_check_nan


class set_detect_anomaly:
    """Switch anomaly mode at once; used with `with`, switch it back at the end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        if not isinstance(mode, bool):
            raise TypeError(
                f"set_detect_anomaly(): argument 'mode' (position 1) must be bool, not {type(mode).__name__}"
            )
        self._before = (STATE.word & ANOMALY, STATE.anomaly_check_nan)
        STATE.word = STATE.word | ANOMALY if mode else STATE.word & ~ANOMALY
        STATE.anomaly_check_nan = check_nan

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        STATE.word = (STATE.word & ~ANOMALY) | self._before[0]
        STATE.anomaly_check_nan = self._before[1]


class detect_anomaly:
    """Inside, backward reports the forward line behind an error or a NaN gradient."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
            UserWarning,
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._mode = set_detect_anomaly(True, self.check_nan)

    def __exit__(self, *exc: object) -> None:
        self._mode.__exit__()
