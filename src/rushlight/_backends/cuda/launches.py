"""Starting kernels: on the current stream, with a note of who started them, for errors that show later.

    launcher(function, grid, block, shared_bytes, index, parameters, "softmax_0")

`CUDA_LAUNCH_BLOCKING=1` waits for each kernel, so that the line that started it is the line that fails.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.devices import Devices
from rushlight._backends.cuda.driver.api import Extent
from rushlight._backends.cuda.driver.errors import CudaError, explain_by
from rushlight._backends.cuda.streams import Streams
from rushlight._base.errors import describe_code

if TYPE_CHECKING:
    from rushlight._backends.cuda.native.unit import DeviceUnit
    from rushlight._backends.cuda.reports.activities import Activities

__all__ = ["Launcher"]

_SHOWN = 8


class Launcher:
    """Starts kernels on current streams."""

    def __init__(self, devices: Devices, streams: Streams, unit: DeviceUnit) -> None:
        self.devices, self.driver, self.streams, self.unit = devices, devices.driver, streams, unit
        self.blocking = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
        self.watch: Activities | None = None
        explain_by(self._explain)

    def __call__(
        self, function: int, grid: Extent, block: Extent, shared_bytes: int, index: int, parameters: Any, name: str
    ) -> None:  # fmt: skip
        """Start a kernel of a module of device `index`; `parameters` as of `Driver.cuLaunchKernel`."""
        self.devices.enter(index)
        self.note(name)
        stream = self.streams.current(index).id
        self.driver.cuLaunchKernel(function, grid, block, shared_bytes, stream, parameters)
        if self.blocking:
            self.driver.cuStreamSynchronize(stream)

    def note(self, name: str) -> None:
        """Remember that the user's line starts a kernel: in the ring that native launches write to, too."""
        self.unit.note(name)
        if self.driver.emulated:
            self.driver.launch = self.note_of(self.unit.shared.count[0])

    def note_of(self, number: int) -> tuple[str, Any] | None:
        """The note of the launch with a number, counted from 1: (name, place)."""
        behind = self.unit.shared.count[0] - number
        rows = self.unit.notes(behind + 1)[0]
        return _note(rows[0]) if len(rows) == behind + 1 else None

    def _explain(self, error: CudaError) -> str:
        """Which kernel failed, or which may have, as far as is known."""
        if error.launch is not None:
            name, code = error.launch
            return f"\nThe kernel '{name}' was started at {describe_code(code)}"
        lines = [f"  '{name}' at {describe_code(code)}" for name, code in map(_note, self.unit.notes(_SHOWN)[0])]
        if not lines:
            return ""
        if self.blocking:
            return "\nThe kernel that failed was started last:\n" + lines[-1]
        return "\n".join(
            (
                "\nKernels fail after the call that started them has returned. Started last were:",
                *lines,
                "With CUDA_LAUNCH_BLOCKING=1 the call itself fails.",
            )
        )


def _note(row: tuple[str, Any, int]) -> tuple[str, Any]:
    name, code, instruction = row
    return name, None if code is None else (code, instruction)
