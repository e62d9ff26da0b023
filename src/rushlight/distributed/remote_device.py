"""`torch.distributed.remote_device`: a device of another process, by name."""

from __future__ import annotations

from rushlight import device as Device

__all__: list[str] = []


class _remote_device:
    """A device of a worker ("trainer0/cpu"), of a rank ("rank:1/cuda:0"), or of this process ("cpu", or a device).

    The device is the CPU where it is left out.  ValueError for another text, TypeError for anything else.

    >>> device = _remote_device("rank:3")
    >>> device.rank(), device.worker_name(), device.device(), device
    (3, None, device(type='cpu'), rank:3/cpu)
    """

    def __init__(self, remote_device: str | Device) -> None:
        self._worker_name: str | None = None
        self._rank: int | None = None
        if isinstance(remote_device, Device):
            self._device = remote_device
            return
        if not isinstance(remote_device, str):
            raise TypeError(f"Invalid type for remote_device: {type(remote_device)}")
        owner, slash, place = remote_device.partition("/")
        if not slash and _is_device(owner):
            owner, place = "", owner
        elif not owner or "/" in place:
            raise _not_understood(remote_device)
        self._device = Device(place if place or slash else "cpu")
        kind, colon, number = owner.partition(":")
        if colon:
            if kind != "rank" or not number.isdigit():
                raise _not_understood(remote_device)
            self._rank = int(number)
        elif owner:
            self._worker_name = owner

    def worker_name(self) -> str | None:
        """The worker's name, if it was given."""
        return self._worker_name

    def rank(self) -> int | None:
        """The rank, if it was given."""
        return self._rank

    def device(self) -> Device:
        """The device there."""
        return self._device

    def __repr__(self) -> str:
        owner = self._worker_name if self._rank is None else f"rank:{self._rank}"
        return str(self._device) if owner is None else f"{owner}/{self._device}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _remote_device) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> tuple[str | None, int | None, Device]:
        return self._worker_name, self._rank, self._device


def _is_device(text: str) -> bool:
    try:
        Device(text)
    except Exception:  # whatever is wrong with it
        return False
    return True


def _not_understood(text: str) -> ValueError:
    return ValueError(
        f"Could not parse remote_device: {text}. The valid format is '<workername>/<device>' or 'rank:<rank>/<device>' "
        "or '<device>'"
    )
