"""Runs the functions of a file whose names begin with `page_`, and prints what became of each."""

from __future__ import annotations

import importlib
import json
import sys
import traceback


def main(path: str) -> None:
    folder, _, name = path.rpartition("/")
    sys.path.insert(0, folder)  # of processes that are started from here, too
    module = importlib.import_module(name.removesuffix(".py"))
    found = {}
    for name, function in list(vars(module).items()):
        if name.startswith("page_"):
            try:
                function()
                found[name] = ""
            except BaseException:
                found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
