"""NCCL's library: where it is, its functions by ctypes, its codes for results, dtypes and reductions.

The ABI is that of NCCL 2.18 and later; `Config` is the part of `ncclConfig_t` that all of them have.
"""

from __future__ import annotations

import ctypes
import os
from importlib.util import find_spec
from typing import Any, ClassVar

from rushlight._base.errors import MissingExtraError
from rushlight._base.knobs import Knob
from rushlight._distributed.errors import DistBackendError

__all__ = [
    "DTYPES",
    "IN_PROGRESS",
    "OPERATIONS",
    "SUCCESS",
    "Config",
    "NCCLLibrary",
    "UniqueId",
    "find_library",
    "nccl_library",
]

LIBRARY: Knob[str] = Knob(
    "nccl_library", env="RUSHLIGHT_NCCL_LIBRARY", kind=str, default="",
    doc="The path of NCCL's library; empty: that of NVIDIA's wheel, else libnccl.so.2 where the loader finds it.",
)  # fmt: skip

NAME = "libnccl.so.2"
OLDEST = 21800  # the first with `ncclCommSplit`
SUCCESS, IN_PROGRESS = 0, 7
NO_COLOR = -1
_RESULTS = (
    "success", "unhandled CUDA error", "system error", "internal error", "invalid argument", "invalid usage", "remote error", "in progress",
    "timeout",
)  # fmt: skip
DTYPES = {
    "int8": 0, "uint8": 1, "bool": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
_UNDEFINED = -(1 << 31)
_MAGIC = 0xCAFEBEEF


class UniqueId(ctypes.Structure):
    """`ncclUniqueId`: by which the ranks of a communicator find one another."""

    _fields_ = (("internal", ctypes.c_char * 128),)


class Config(ctypes.Structure):
    """`ncclConfig_t` as of version 2.18: later libraries read its size, and take their defaults for the rest."""

    _fields_: ClassVar[Any] = (
        ("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", ctypes.c_int), ("cgaClusterSize", ctypes.c_int),
        ("minCTAs", ctypes.c_int), ("maxCTAs", ctypes.c_int), ("netName", ctypes.c_char_p), ("splitShare", ctypes.c_int),
    )  # fmt: skip


def non_blocking(version: int) -> Config:
    """The settings of a communicator whose calls return at once."""
    undefined = _UNDEFINED
    return Config(
        ctypes.sizeof(Config), _MAGIC, min(version, OLDEST), 0, undefined, undefined, undefined, None, undefined
    )


_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (_P,),
    "ncclGetUniqueId": (_P,),
    "ncclCommInitRankConfig": (_P, _I, UniqueId, _I, _P),
    "ncclCommSplit": (_P, _I, _I, _P, _P),
    "ncclCommFinalize": (_P,),
    "ncclCommDestroy": (_P,),
    "ncclCommAbort": (_P,),
    "ncclCommGetAsyncError": (_P, _P),
    "ncclRedOpCreatePreMulSum": (_P, _P, _I, _I, _P),
    "ncclRedOpDestroy": (_I, _P),
    "ncclAllReduce": (_P, _P, _N, _I, _I, _P, _P),
    "ncclReduce": (_P, _P, _N, _I, _I, _I, _P, _P),
    "ncclReduceScatter": (_P, _P, _N, _I, _I, _P, _P),
    "ncclBroadcast": (_P, _P, _N, _I, _I, _P, _P),
    "ncclAllGather": (_P, _P, _N, _I, _P, _P),
    "ncclSend": (_P, _N, _I, _I, _P, _P),
    "ncclRecv": (_P, _N, _I, _I, _P, _P),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}


class NCCLLibrary:
    """The functions of a loaded library, which run without the interpreter's lock; `call` raises for their errors."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        self.functions: dict[str, Any] = {}
        for name, arguments in _SIGNATURES.items():
            try:
                function = getattr(self._library, name)
            except AttributeError:
                raise DistBackendError(f"{path} has no {name}: rushlight needs NCCL 2.18 or later") from None
            function.argtypes, function.restype = arguments, ctypes.c_int
            self.functions[name] = function
        found = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(found))
        self.version = found.value
        if self.version < OLDEST:
            raise DistBackendError(f"{path} is NCCL {self.version_text()}: rushlight needs 2.18 or later")

    def version_text(self) -> str:
        """The version, as "2.27.3"."""
        return f"{self.version // 10000}.{self.version // 100 % 100}.{self.version % 100}"

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function: SUCCESS or IN_PROGRESS; DistBackendError for anything else."""
        code: int = self.functions[name](*arguments)
        if code not in (SUCCESS, IN_PROGRESS):
            raise DistBackendError(f"NCCL error in {name}: {self.error_text(code)}")
        return code

    def error_text(self, code: int) -> str:
        """An error code in words, and NCCL's last message about it, if there is one."""
        text = _RESULTS[code] if 0 <= code < len(_RESULTS) else "unknown"
        last = getattr(self._library, "ncclGetLastError", None)
        if last is None:
            return f"{text} (NCCL error {code}, NCCL {self.version_text()})"
        last.argtypes, last.restype = (ctypes.c_void_p,), ctypes.c_char_p
        said = (last(None) or b"").decode(errors="replace").strip()
        return f"{text} (NCCL error {code}, NCCL {self.version_text()}{': ' + said if said else ''})"

    def unique_id(self) -> bytes:
        """A new identity of a communicator."""
        made = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(made))
        return bytes(made)


def find_library() -> str | None:
    """The path of NCCL's library, or the name by which the loader finds it; None where it is not installed."""
    if LIBRARY.get():
        return LIBRARY.get()
    found = find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = os.path.join(folder, "nccl", "lib", NAME)
        if os.path.exists(path):
            return path
    try:
        ctypes.CDLL(NAME)
    except OSError:
        return None
    return NAME


_LOADED: list[NCCLLibrary] = []


def nccl_library() -> NCCLLibrary:
    """The library of this process; ImportError that names the extra where there is none."""
    if not _LOADED:
        path = find_library()
        if path is None:
            raise MissingExtraError("NCCL (nvidia-nccl-cu12)", "cuda")
        try:
            _LOADED.append(NCCLLibrary(path))
        except OSError as error:
            raise DistBackendError(f"NCCL's library cannot be loaded: {error}") from error
    return _LOADED[0]
