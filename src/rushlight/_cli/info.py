"""`python -m rushlight info`: what is installed, what the machine can do, what is set."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import pkgutil
import platform
import sys
from pathlib import Path
from typing import Any

from rushlight._base.errors import MissingExtraError
from rushlight._native.target import usable_cores

__all__ = ["load_every_room", "main", "report"]


def main(arguments: list[str]) -> int:
    """Print the report; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rushlight info", description=__doc__.splitlines()[0])
    try:
        parser.parse_args(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    print(report())
    return 0


def report() -> str:
    """The whole report as text: sections of aligned `name: value` lines."""
    load_every_room()
    sections = [
        ("versions", _versions()),
        ("machine", _machine()),
        ("threads", _threads()),
        ("kernel cache", _cache()),
        ("products of matrices", _products()),
        ("knobs", _knobs()),
    ]
    lines: list[str] = []
    for title, rows in sections:
        width = max((len(name) for name, _ in rows), default=0)
        lines += [f"***** {title} *****", *(f"{name + ':':{width + 1}} {value}" for name, value in rows), ""]
    return "\n".join(lines).rstrip()


def load_every_room() -> None:
    """Import every module of the package, so that every knob is registered; but for pages whose extra is not installed."""
    import rushlight

    for module in pkgutil.walk_packages(rushlight.__path__, "rushlight.", onerror=lambda name: None):
        if not module.name.startswith(("rushlight._cli", "rushlight.__main__")):
            with contextlib.suppress(MissingExtraError):
                importlib.import_module(module.name)


def _versions() -> list[tuple[str, str]]:
    import llvmlite
    import llvmlite.binding
    import numpy

    import rushlight

    implementation = f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}"
    llvm = ".".join(str(part) for part in llvmlite.binding.llvm_version_info)
    return [
        ("rushlight", f"{rushlight.__version__}, {Path(rushlight.__file__).parent}"),
        ("Python", implementation),
        ("NumPy", numpy.__version__),
        ("llvmlite", f"{llvmlite.__version__} (LLVM {llvm})"),
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
    ]


def _cpu_name() -> str:
    """The processor's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _machine() -> list[tuple[str, str]]:
    import llvmlite.binding as llvm

    features: dict[str, bool] = dict(llvm.get_host_cpu_features())
    wide = [(512, "avx512f"), (256, "avx2"), (128, "sse2"), (128, "neon")]
    bits = next((bits for bits, name in wide if features.get(name)), 64)
    return [
        ("CPU", f"{_cpu_name()} (LLVM: {llvm.get_host_cpu_name()})"),
        ("cores", f"{usable_cores()} usable of {os.cpu_count()}"),
        ("vectors", f"{bits} bits, {bits // 32} floats"),
        ("features", " ".join(sorted(name for name, there in features.items() if there))),
    ]


def _threads() -> list[tuple[str, str]]:
    import rushlight

    return [("threads", str(rushlight.get_num_threads()))]


def _products() -> list[tuple[str, str]]:
    """Who computes each class of products: what was measured here, for as far as it was."""
    from rushlight._backends.cpu.gemm import choice
    from rushlight._backends.cpu.gemm.blas import blas

    measured = [
        (name, str(found))
        for name in (*choice.CLASSES, *choice.AMX_CLASSES)
        if (found := choice.known(name)) is not None
    ]
    return [("library", blas().path or "none"), *(measured or [("measured", "nothing yet")])]


def _cache() -> list[tuple[str, str]]:
    from rushlight._base.knobs import KNOBS

    folder = Path(str(KNOBS["cache_dir"].get()))
    entries = size = 0
    for path in folder.rglob("*") if folder.is_dir() else ():
        try:
            if path.is_file():
                entries, size = entries + 1, size + path.stat().st_size
        except OSError:
            continue  # another process may be cleaning up
    return [("folder", str(folder)), ("entries", str(entries)), ("size", f"{size / 2**20:.1f} MiB")]


def _knobs() -> list[tuple[str, str]]:
    from rushlight._base.knobs import KNOBS

    return [(knob.env, _knob(knob)) for _, knob in sorted(KNOBS.items())]


def _knob(knob: Any) -> str:
    """A knob's value, said plainly; one with a wrong environment variable says so instead of failing the report."""
    try:
        value = knob.get()
    except ValueError as error:
        return f"invalid: {error}"
    if isinstance(value, (set, frozenset)):
        value = ",".join(sorted(value)) or "(none)"
    return f"{value}   ({knob.doc})"
