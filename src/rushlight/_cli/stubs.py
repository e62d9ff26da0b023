"""`python -m rushlight stubs`: write the type stubs from the operator table and the live package, or check that they
are up to date.
"""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["COMMAND", "main"]

COMMAND = "python -m rushlight stubs"


def main(arguments: list[str]) -> int:
    """Write or check; 1 where a check finds a difference."""
    from rushlight._surface.reference import stubs

    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; name the files that differ, and exit with 1 if there are any",
    )
    parser.add_argument(
        "--out", type=Path, default=stubs.FOLDER, metavar="DIR", help="the stub package's folder (default: %(default)s)"
    )
    try:
        given = parser.parse_args(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    names = stubs.changed(given.out) if given.check else stubs.write(given.out)
    for name in names:
        print(f"{'differs' if given.check else 'written'}: {given.out / name}")
    if given.check and names:
        print(f"The stubs are not what the package says today. Run: {COMMAND}")
    return int(given.check and bool(names))
