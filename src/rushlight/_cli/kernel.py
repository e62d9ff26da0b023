"""`python -m rushlight kernel install`: a kernel for Jupyter in whose notebooks `import torch` is rushlight."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from typing import Any

from rushlight._base.lazy import require

__all__ = ["COMMAND", "main", "specification"]

COMMAND = "python -m rushlight kernel"
NAME = "rushlight"


def specification(display_name: str) -> dict[str, Any]:
    """Content of `kernel.json` for Jupyter: how to start the kernel, and what to call it."""
    return {
        "argv": [sys.executable, "-m", "rushlight", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": display_name,
        "language": "python",
        "metadata": {"debugger": True},
    }


def main(arguments: list[str]) -> int:
    """Install or remove the kernel; returns the exit status."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("action", choices=("install", "remove"))
    parser.add_argument("--name", default=NAME, help="the kernel's name for `jupyter --kernel` (%(default)s)")
    parser.add_argument(
        "--display-name", default="Python 3 (rushlight as torch)", help="what notebooks show (%(default)s)"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--prefix", help="install below this folder, as a virtual environment has it")
    where.add_argument(
        "--sys-prefix",
        action="store_const",
        const=sys.prefix,
        dest="prefix",
        help="install into this Python's environment",
    )
    where.add_argument("--user", action="store_true", help="install for this user (the default)")
    try:
        given = parser.parse_args(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    try:
        require("ipykernel", "notebook")
        manager = require("jupyter_client.kernelspec", "notebook").KernelSpecManager()
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    if given.action == "remove":
        if given.name not in manager.find_kernel_specs():
            print(f"there is no kernel {given.name!r}", file=sys.stderr)
            return 1
        print(f"removed: {manager.remove_kernel_spec(given.name)}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "kernel.json"), "w", encoding="utf-8") as file:
            json.dump(specification(given.display_name), file, indent=1)
        print(
            f"installed: {manager.install_kernel_spec(folder, given.name, user=given.prefix is None, prefix=given.prefix)}"
        )
    return 0
