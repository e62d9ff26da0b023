"""Which libraries programs ask for, of those that may compute for them.

>>> from rushlight._backends.preferences import LIBRARIES
>>> LIBRARIES.linalg, LIBRARIES.cudnn
('default', True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LIBRARIES"]


class _Libraries:
    """Settings of a process; `changed` are called when `set` changes one, because plans depend on them."""

    def __init__(self) -> None:
        self.linalg = "default"  # `torch.backends.cuda.preferred_linalg_library`: or cusolver, magma
        self.cudnn = True  # `torch.backends.cudnn.enabled`
        self.cudnn_benchmark = False
        self.cudnn_deterministic = False
        self.changed: list[Callable[[], None]] = []

    def set(self, name: str, value: Any) -> None:
        """Change one."""
        if getattr(self, name) != value:
            setattr(self, name, value)
            for function in self.changed:
                function()


LIBRARIES = _Libraries()
