"""The machine that CPU kernels are compiled for: triple, features, vector width, caches, cores.

Nothing here loads LLVM: warm starts compare the fingerprint of the machine with that of the cached object files.
"""

from __future__ import annotations

import os
import sys

from rushlight._base.knobs import Knob

__all__ = [
    "LEVELS",
    "TARGET",
    "VECTOR_BYTES",
    "Level",
    "TargetDescription",
    "aim_at",
    "host_target",
    "level_of",
    "usable_cores",
]


class Level:
    """A generic machine that code can be made for: LLVM's name of it, the flags it has (as in /proc/cpuinfo), its
    vectors.
    """

    __slots__ = ("arch", "features", "flags", "name", "vector_bytes")

    def __init__(self, name: str, arch: str, flags: str, vector_bytes: int, features: str = "") -> None:
        self.name, self.arch, self.flags, self.vector_bytes = name, arch, frozenset(flags.split()), vector_bytes
        self.features = features


_V3 = "cx16 lahf_lm popcnt sse2 sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
# The best one first.  LLVM's v4 splits vectors of 64 bytes in loops that it vectorises itself; ours have full width.
LEVELS = (
    Level("x86-64-v4", "x86_64", f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl", 64, "-prefer-256-bit"),
    Level("x86-64-v3", "x86_64", _V3, 32),
    Level("generic", "aarch64", "fp asimd", 16),
)

TARGET: Knob[str] = Knob(
    "target",
    env="RUSHLIGHT_TARGET",
    kind=str,
    default="",
    doc="Make code for a generic machine, x86-64-v3, x86-64-v4 or generic (aarch64), which must be no more than this one "
    "has; empty: for this machine.",
)

VECTOR_BYTES: Knob[int] = Knob(
    "vector_bytes",
    env="RUSHLIGHT_VECTOR_BYTES",
    kind=int,
    default=0,
    doc="Width of a vector register in bytes (16, 32 or 64); 0 takes the machine's. A smaller width also switches "
    "wider instructions off.",
)

_WIDTH_FLAGS = {"x86_64": ((64, "avx512f"), (32, "avx2"), (16, "sse2")), "aarch64": ((16, "asimd"), (16, "neon"))}
# LLVM's features to drop when only narrower vectors are wanted: each one takes all that depend on it along.
_NARROW = {"x86_64": {32: ("-avx512f", "-avx10.1", "-evex512"), 16: ("-avx512f", "-avx10.1", "-evex512", "-avx")}}


class TargetDescription:
    """A machine: `arch`, `system`, `flags` (as in /proc/cpuinfo), `model`, `vector_bytes`, caches in bytes, `cores`."""

    __slots__ = (
        "arch", "cores", "flags", "group_bytes", "l1_bytes", "l2_bytes", "l3_bytes", "level", "line_bytes", "memory_bytes", "model",
        "native_vector_bytes", "page_bytes", "system", "vector_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        machine = os.uname().machine if hasattr(os, "uname") else "x86_64"
        self.arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
        self.system = sys.platform
        self.model, self.flags = _cpuinfo()
        self.level = self._level(TARGET.get())
        if self.level is not None:
            self.model, self.flags = self.level.name, self.level.flags
        self.native_vector_bytes = _vector_bytes(self.arch, self.flags)
        wanted = VECTOR_BYTES.get()
        if wanted not in (0, 16, 32, 64):
            raise ValueError(f"RUSHLIGHT_VECTOR_BYTES must be 0, 16, 32 or 64, not {wanted}")
        self.vector_bytes = min(wanted, self.native_vector_bytes) if wanted else self.native_vector_bytes
        caches = _caches()
        self.l1_bytes, self.l2_bytes = caches.get(1, 32 << 10), caches.get(2, 1 << 20)
        self.l3_bytes, self.line_bytes = caches.get(3, 8 << 20), 64
        self.cores = usable_cores()
        self.page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        self.group_bytes = _group_bytes()
        self.memory_bytes = _memory_bytes(self.group_bytes)

    def _level(self, name: str) -> Level | None:
        """The generic machine of that name, which this one must be able to stand for; None for no name."""
        if not name:
            return None
        for level in LEVELS:
            if level.name == name and level.arch == self.arch:
                if level.flags <= self.flags:
                    return level
                missing = ", ".join(sorted(level.flags - self.flags))
                raise ValueError(f"RUSHLIGHT_TARGET={name}: this machine lacks {missing}")
        known = ", ".join(level.name for level in LEVELS if level.arch == self.arch)
        raise ValueError(f"RUSHLIGHT_TARGET must be one of {known}, not {name!r}")

    def __repr__(self) -> str:
        name = f"{self.arch}-{self.system}, {self.model}"
        return f"TargetDescription({name}, {8 * self.vector_bytes}-bit vectors, {self.cores} cores)"

    def has(self, flag: str) -> bool:
        """Whether the machine has a feature, by its name in /proc/cpuinfo (`avx2`, `amx_bf16`, `asimd`)."""
        return flag in self.flags

    @property
    def fma(self) -> bool:
        """Whether multiply-add is one instruction."""
        return self.arch != "x86_64" or self.has("fma")

    @property
    def fingerprint(self) -> str:
        """Text that differs whenever machine code of another machine may not run here, or is for other vectors."""
        return f"{self.arch}/{self.system}/{self.model}/{self.vector_bytes}/{' '.join(sorted(self.flags))}"

    @property
    def llvm_suffix(self) -> str:
        """Features to append to LLVM's host features: switches off what is wider than `vector_bytes`."""
        if self.vector_bytes >= self.native_vector_bytes:
            return ""
        return "," + ",".join(_NARROW.get(self.arch, {}).get(self.vector_bytes, ()))


def level_of(target: TargetDescription) -> Level | None:
    """The best generic machine whose code runs on this one and has vectors as wide."""
    for level in LEVELS:
        if (
            level.arch == target.arch
            and level.vector_bytes == target.vector_bytes
            and level.flags <= target.flags
            and target.system == "linux"
        ):
            return level
    return None


def _cpuinfo() -> tuple[str, frozenset[str]]:
    """Model name and feature flags of the first core (empty where there is no /proc/cpuinfo)."""
    model, flags = "", frozenset[str]()
    try:
        with open("/proc/cpuinfo", "rb") as file:
            text = file.read(16384).decode("ascii", "replace")
    except OSError:
        if sys.platform == "darwin":
            model = f"{os.uname().machine} {os.uname().release}"
        return model, flags
    names = []
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        key = key.strip().lower()
        if key in ("flags", "features"):
            flags = frozenset(value.split())
        elif key in ("model name", "cpu family", "model", "stepping", "cpu implementer", "cpu part", "cpu variant"):
            names.append(value.strip())
    return " ".join(names) or model, flags


def _vector_bytes(arch: str, flags: frozenset[str]) -> int:
    return next((width for width, flag in _WIDTH_FLAGS.get(arch, ()) if flag in flags), 16)


def _caches() -> dict[int, int]:
    """Sizes of the data caches of core 0 by level, from sysfs."""
    sizes: dict[int, int] = {}
    for i in range(8):
        base = f"/sys/devices/system/cpu/cpu0/cache/index{i}/"
        try:
            with open(base + "type") as kind, open(base + "level") as level, open(base + "size") as size:
                if kind.read().strip() != "Instruction":
                    text = size.read().strip()
                    scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
                    sizes[int(level.read())] = int(text.rstrip("KM")) * scale
        except (OSError, ValueError):
            break
    return sizes


def usable_cores() -> int:
    """The number of cores that this process may run on; a container's share of processor time counts as cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, -(-int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return max(1, cores)


def _group_bytes() -> int:
    """Most memory that the control group may have; 0 where there is no such limit."""
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            text = file.read().strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def _memory_bytes(group: int) -> int:
    """Memory of the machine, or of the control group when that is less."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        total = 8 << 30
    return min(total, group) if group else total


_HOST: list[TargetDescription] = []


def host_target() -> TargetDescription:
    """The description of this machine (made once)."""
    if not _HOST:
        _HOST.append(TargetDescription())
    return _HOST[0]


def aim_at(level: str) -> None:
    """Make code for a generic machine with its full vectors from here on.  Code that is loaded already stays."""
    TARGET.set(level)
    VECTOR_BYTES.set(0)
    _HOST.clear()
