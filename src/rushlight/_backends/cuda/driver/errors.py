"""Errors of the CUDA driver: the codes that a program can meet, and the exception that carries one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from rushlight._base.errors import AcceleratorError

__all__ = ["ASYNCHRONOUS", "CODES", "CudaError", "explain_by", "fail"]

# Name of an error -> its code, and what the driver says of it.
CODES: dict[str, tuple[int, str]] = {
    "CUDA_ERROR_INVALID_VALUE": (1, "invalid argument"),
    "CUDA_ERROR_OUT_OF_MEMORY": (2, "out of memory"),
    "CUDA_ERROR_NOT_INITIALIZED": (3, "initialization error"),
    "CUDA_ERROR_DEINITIALIZED": (4, "driver shutting down"),
    "CUDA_ERROR_NO_DEVICE": (100, "no CUDA-capable device is detected"),
    "CUDA_ERROR_INVALID_DEVICE": (101, "invalid device ordinal"),
    "CUDA_ERROR_INVALID_IMAGE": (200, "device kernel image is invalid"),
    "CUDA_ERROR_INVALID_CONTEXT": (201, "invalid device context"),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": (209, "no kernel image is available for execution on the device"),
    "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED": (217, "peer access is not supported between these two devices"),
    "CUDA_ERROR_INVALID_PTX": (218, "a PTX JIT compilation failed"),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": (222, "the provided PTX was compiled with an unsupported toolchain."),
    "CUDA_ERROR_INVALID_HANDLE": (400, "invalid resource handle"),
    "CUDA_ERROR_NOT_FOUND": (500, "named symbol not found"),
    "CUDA_ERROR_NOT_READY": (600, "device not ready"),
    "CUDA_ERROR_ILLEGAL_ADDRESS": (700, "an illegal memory access was encountered"),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (701, "too many resources requested for launch"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (702, "the launch timed out and was terminated"),
    "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED": (704, "peer access is already enabled"),
    "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE": (708, "cannot set while device is active in this process"),
    "CUDA_ERROR_ASSERT": (710, "device-side assert triggered"),
    "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED": (712, "part or all of the requested memory range is already mapped"),
    "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED": (713, "pointer does not correspond to a registered memory region"),
    "CUDA_ERROR_LAUNCH_FAILED": (719, "unspecified launch failure"),
    "CUDA_ERROR_NOT_SUPPORTED": (801, "operation not supported"),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (803, "system has unsupported display driver / cuda driver combination"),
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": (900, "operation not permitted when stream is capturing"),
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": (901, "operation failed due to a previous error during capture"),
    "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED": (903, "capture was not ended in the same stream as it began"),
    "CUDA_ERROR_STREAM_CAPTURE_UNJOINED": (904, "capturing stream has unjoined work"),
    "CUDA_ERROR_STREAM_CAPTURE_ISOLATION": (905, "dependency created on uncaptured work in another stream"),
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": (906, "operation would make the legacy stream depend on a capturing blocking stream"),
    "CUDA_ERROR_CAPTURED_EVENT": (907, "operation not permitted on an event last recorded in a capturing stream"),
    "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD": (908, "attempt to terminate a thread-local capture sequence from another thread"),
    "CUDA_ERROR_UNKNOWN": (999, "unknown error"),
}  # fmt: skip

# Codes of errors in kernels: a later call reports them, and the context is of no use any longer.
ASYNCHRONOUS = frozenset((700, 702, 710, 719, 999))


class CudaError(AcceleratorError):
    """A call of the driver failed: `name` is the driver's name of the error, `error_code` its number, `call` the call."""

    def __init__(self, name: str, code: int, text: str, call: str, more: str = "") -> None:
        self.name, self.error_code, self.text, self.call, self.more = name, code, text, call, more
        self.launch: Any = None  # who started the kernel that failed, where the driver knows
        super().__init__(f"CUDA error: {text}")

    def __str__(self) -> str:
        told = "".join(explain(self) for explain in _EXPLANATIONS) if self.error_code in ASYNCHRONOUS else ""
        return f"CUDA error: {self.text} ({self.name} {self.error_code} from {self.call}){self.more}{told}"


_EXPLANATIONS: list[Callable[[CudaError], str]] = []


def explain_by(explain: Callable[[CudaError], str]) -> None:
    """Let errors of kernels that ran earlier end with what `explain` says of them."""
    _EXPLANATIONS.append(explain)


def fail(name: str, call: str, more: str = "") -> NoReturn:
    """Raise the exception of an error by its name."""
    code, text = CODES[name]
    raise CudaError(name, code, text, call, more and f": {more}")
