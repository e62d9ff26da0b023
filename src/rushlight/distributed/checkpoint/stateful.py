"""Objects that say and take their own state."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Stateful", "StatefulT"]


@runtime_checkable
class Stateful(Protocol):
    """An object with `state_dict` and `load_state_dict`: modules, optimizers, loaders, classes of one's own.

    >>> import rushlight as torch
    >>> isinstance(torch.nn.Linear(1, 1), Stateful), isinstance({}, Stateful)
    (True, False)
    """

    def state_dict(self) -> dict[str, Any]:
        """The state to save."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state that was loaded."""
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)
