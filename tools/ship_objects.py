"""Compile what nearly every program needs for generic machines, into packs that the wheel carries.

    python tools/ship_objects.py                               # packs for what this machine can stand for
    python tools/ship_objects.py --python python3.12 --python python3.13
    python tools/ship_objects.py --only x86-64-v3 --list

Each program of `tools/ship/` runs once for every level and every Python, in a process of its own with an empty cache; what it compiles
goes into the pack.  Objects whose text has `half` or `bfloat` stay out: how those are computed depends on more than the level.
The packs lie in `src/rushlight/_native/packs`, which git ignores; they are found by digests of the sources, so after an edit of the
generator they are dead weight, and `make wheel` makes them anew.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = sorted((ROOT / "tools" / "ship").glob("*.py"))
sys.path.insert(0, str(ROOT / "src"))
_UNPORTABLE = re.compile(r"(?<![%@\w.])(half|bfloat)\b")  # the types, not values of that name


def record(program: str, folder: Path) -> None:
    """Run a program in this process, and write each object that it compiles to a file named by its key in a pack."""
    import runpy

    from rushlight._base.digest import digest
    from rushlight._native import jit, objectcode
    from rushlight._native.cache import key_of, llvm_version
    from rushlight._native.shipped import fingerprint_of
    from rushlight._native.target import host_target

    level = host_target().level
    assert level is not None, "RUSHLIGHT_TARGET names no level"
    fingerprint = fingerprint_of(level, digest(llvm_version()))
    seen: dict[bytes, bool] = {}
    compiled, asked = jit.compile_object, objectcode.obtain

    def compile_object(text: str, opt: str = "kernel") -> bytes:
        data = compiled(text, opt)
        seen[data] = not _UNPORTABLE.search(text)
        return data

    def noted(opt: str, make: object, *parts: str | bytes) -> bytes:
        data = asked(opt, make, *parts)  # type: ignore[arg-type]
        if seen.get(data):
            (folder / key_of(fingerprint, parts).hex()).write_bytes(data)
        return data

    jit.compile_object = compile_object
    for module in list(sys.modules.values()):
        if getattr(module, "obtain", None) is asked:
            module.obtain = noted  # type: ignore[attr-defined]
    sys.argv = [program]
    runpy.run_path(program, run_name="__main__")


def collect(level: str, pythons: list[str], programs: list[Path]) -> dict[bytes, bytes]:
    """What the programs compile for a level under these Pythons."""
    found: dict[bytes, bytes] = {}
    for python in pythons:
        for program in programs:
            with tempfile.TemporaryDirectory() as folder:
                env = {
                    **os.environ, "PYTHONPATH": str(ROOT / "src"), "RUSHLIGHT_TARGET": level, "RUSHLIGHT_CACHE_DIR": f"{folder}/cache",
                    "RUSHLIGHT_SHIPPED": "0", "RUSHLIGHT_COMPILE_WORKERS": "0", "RUSHLIGHT_NOTICES": "0",
                }  # fmt: skip
                objects = Path(folder, "objects")
                objects.mkdir()
                subprocess.run([python, __file__, "--record", str(program), str(objects)], env=env, check=True)
                new = {bytes.fromhex(path.name): path.read_bytes() for path in objects.iterdir()}
            print(
                f"{level} {python} {program.name}: {len(new)} objects, {len(new.keys() - found.keys())} new", flush=True
            )
            found |= new
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", help="interpreters to run the programs with (default: this one)")
    parser.add_argument("--only", default="", help="levels whose name matches this regular expression")
    parser.add_argument("--program", action="append", type=Path, help="a program to run instead of those of tools/ship")
    parser.add_argument("--out", default="", help="folder for the packs (default: where the package looks for them)")
    parser.add_argument(
        "--list", action="store_true", help="say which levels this machine can stand for, and do nothing"
    )
    parser.add_argument("--record", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record(options.record[0], Path(options.record[1]))
        return
    from rushlight._base.digest import digest
    from rushlight._native.cache import llvm_version
    from rushlight._native.shipped import FOLDER, write_pack
    from rushlight._native.target import LEVELS, host_target

    host = host_target()
    levels = [
        v.name for v in LEVELS if v.arch == host.arch and v.flags <= host.flags and re.search(options.only, v.name)
    ]
    if options.list:
        print("\n".join(levels))
        return
    programs = options.program or PROGRAMS
    for level in levels:
        objects = collect(level, options.python or [sys.executable], programs)
        path = os.path.join(options.out or FOLDER, f"{level}.pack")
        write_pack(path, digest(llvm_version()), objects)
        print(f"{path}: {len(objects)} objects, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
