"""Recording programs on a device without memory that looks like the CPU, and running what was recorded."""

from rushlight._capture.recording.device import shown
from rushlight._capture.recording.errors import CheckFailed, DataDependentError, RecordingError
from rushlight._capture.recording.recording import Recording
from rushlight._capture.recording.running.host_numbers import HostNumber
from rushlight._capture.recording.running.program import CompiledProgram

__all__ = ["CheckFailed", "CompiledProgram", "DataDependentError", "HostNumber", "Recording", "RecordingError", "shown"]
