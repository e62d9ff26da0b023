"""Every module of the installed PyTorch, imported here under its name: it loads, or its absence is said by its name.

    python tools/sweeps/module_sweep.py [--private] [--list]

Prints counts for each package, and every import that ends otherwise (status 1).  `--private` takes modules with an underscore too, `--list` names
those that are absent.  Needs `torch`, whose files are listed and not imported.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections import Counter
from pathlib import Path

from rushlight._base.alias import install


def modules(private: bool) -> list[str]:
    """The dotted names below `torch`, by the files of the installed package."""
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        sys.exit("torch is not installed")
    root = Path(found.submodule_search_locations[0])
    names = set()
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts and all(p.isidentifier() and (private or not p.startswith("_") or p.startswith("__")) for p in parts):
            names.add(".".join(parts))
    return sorted(names)


def outcome(name: str) -> str:
    """`loads`, `absent`, `extra` (one of our extras is not installed), or the error."""
    try:
        importlib.import_module(f"torch.{name}")
    except ModuleNotFoundError as error:
        return (
            "absent"
            if "rushlight has no" in str(error) and f"torch.{name}.".startswith(f"{error.name}.")
            else f"{error!r}"
        )
    except ImportError as error:
        return "extra" if "belongs to the extra" in str(error) else f"{error!r}"
    except BaseException as error:
        return f"{error!r}"
    return "loads"


def main() -> int:
    """Import them all; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--private", action="store_true")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    names = modules(given.private)
    install(children=False)
    results = {name: outcome(name) for name in names}
    packages: dict[str, Counter[str]] = {}
    for name, result in results.items():
        packages.setdefault(name.partition(".")[0], Counter())[
            result if result in ("loads", "absent", "extra") else "wrong"
        ] += 1
    for package, counts in sorted(packages.items()):
        print(f"{package:20s}", ", ".join(f"{count} {word}" for word, count in counts.most_common()))
    wrong = {name: result for name, result in results.items() if result not in ("loads", "absent", "extra")}
    print("\nall", dict(sum(packages.values(), Counter())))
    if given.list:
        print("\n".join(name for name, result in results.items() if result == "absent"))
    for name, result in wrong.items():
        print(f"wrong: torch.{name}: {result}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
