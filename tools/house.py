"""Count what tells how well the package is kept: sizes, parameters, imports, circles, what an import costs.

    python tools/house.py                             # a table for src/rushlight
    python tools/house.py --json before.json          # and the figures in a file
    python tools/house.py --before before.json        # a column for what was counted earlier
    python tools/house.py --places "late imports"     # where each one is
    python tools/house.py OTHER/src/rushlight         # another tree

Rooms are the names in the tree's `LAYERS` file; `public` is what users import.  Nothing here says what is too much.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COLUMNS, PARAMETERS, FILES_IN_FOLDER = 120, 8, 20
# The room by which public packages use the others.
INTERFACE = "_interface"
STARTS = 9  # processes whose median counts
# Pages about the CPU itself may name its backend.
CPU_PAGES = ("cpu/", "cpu.py", "__config__.py")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_COUNT = re.compile(r"\b(1\d\d|(?:about |over |some )?(?:a|one) hundred)\b", re.IGNORECASE)


class Import(NamedTuple):
    module: str
    line: int
    top: bool  # runs when the module is loaded


@dataclass
class Figure:
    """A number (or a text) with the places that it counts."""

    value: float | str
    places: list[str] = field(default_factory=list)


class Source:
    """One file of the package."""

    def __init__(self, package: Path, path: Path) -> None:
        self.label = path.relative_to(package).as_posix()
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.splitlines()
        parts = path.relative_to(package.parent).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.module = ".".join(parts[:-1] if self.is_package else parts)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.label)

    def at(self, line: int, text: str = "") -> str:
        return f"{self.label}:{line} {text or self.lines[line - 1].strip()}"


class House:
    """A package's files, with the rooms they are in."""

    def __init__(self, package: Path, bytecode: str) -> None:
        self.package, self.name, self.bytecode = package, package.name, bytecode
        paths = sorted(p for p in package.rglob("*.py") if "__pycache__" not in p.parts)
        self.sources = [Source(package, path) for path in paths]
        self.modules = {source.module: source for source in self.sources}
        layers = package / "LAYERS"
        lines = layers.read_text().splitlines() if layers.exists() else []
        self.rooms = [line for line in lines if line and not line.startswith("#")]

    @cached_property
    def private_pages(self) -> frozenset[str]:
        """Modules with an underscore that users import all the same, as `_base/alias.py` lists them."""
        source = self.modules.get(f"{self.name}._base.alias")
        for node in source.tree.body if source else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PRIVATE_PAGES":
                return frozenset(n.value for n in ast.walk(node) if isinstance(n, ast.Constant))
        return frozenset()

    def room(self, module: str) -> str:
        first = module.split(".")[1] if "." in module else ""
        private = first.startswith("_") and not first.startswith("__") and first not in self.private_pages
        return first if private else "public"

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        """The imports of our own modules by each module, those for type checkers left out."""
        return {source.module: list(self._imports(source)) for source in self.sources}

    def _imports(self, source: Source) -> Iterator[Import]:
        package = source.module if source.is_package else source.module.rpartition(".")[0]

        def named(node: ast.Import | ast.ImportFrom) -> list[str]:
            if isinstance(node, ast.Import):
                return [alias.name for alias in node.names]
            parts = package.split(".")
            base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
            base = base if node.level else node.module or ""
            found = (f"{base}.{alias.name}" for alias in node.names)
            return sorted({one if one in self.modules else base for one in found})

        def visit(node: ast.AST, top: bool) -> Iterator[Import]:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.Import, ast.ImportFrom)):
                    ours = (m for m in named(child) if m.split(".")[0] == self.name)
                    yield from (Import(m, child.lineno, top) for m in ours)
                elif isinstance(child, ast.If) and ast.unparse(child.test).split(".")[-1] == "TYPE_CHECKING":
                    continue
                else:
                    yield from visit(child, top and not isinstance(child, (*FUNCTIONS.__args__, ast.Lambda)))

        return visit(source.tree, True)

    def functions(self) -> Iterator[tuple[Source, ast.FunctionDef | ast.AsyncFunctionDef, tuple[str, ...]]]:
        """Each function with the names of what it stands in."""

        def visit(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
            for child in ast.iter_child_nodes(node):
                inside = names
                if isinstance(child, (*FUNCTIONS.__args__, ast.ClassDef)):
                    inside = (*names, child.name)
                    if not isinstance(child, ast.ClassDef):
                        yield child, names
                yield from visit(child, inside)

        for source in self.sources:
            yield from ((source, node, names) for node, names in visit(source.tree, ()))  # type: ignore[misc]


# ***** files and functions *****


def files(house: House) -> dict[str, Figure]:
    folders = Counter(source.label.rpartition("/")[0] or "." for source in house.sources)
    many = [f"{n} {folder}" for folder, n in folders.most_common() if n > FILES_IN_FOLDER]
    return {
        "files": Figure(len(house.sources)),
        "lines": Figure(sum(len(source.lines) for source in house.sources)),
        "folders": Figure(len(folders), [f"{n} {folder}" for folder, n in folders.most_common()]),
        f"folders of more than {FILES_IN_FOLDER} files": Figure(len(many), many),
        "files in the largest folder": Figure(max(folders.values(), default=0), many[:1]),
        "longest file, lines": longest((len(source.lines), source.label) for source in house.sources),
        f"lines over {COLUMNS} columns": places(
            source.at(n) for source in house.sources for n, line in enumerate(source.lines, 1) if len(line) > COLUMNS
        ),
        "`fmt: skip`": places(
            source.at(n) for source in house.sources for n, line in enumerate(source.lines, 1) if "# fmt: skip" in line
        ),
    }


def places(found: Iterable[str]) -> Figure:
    listed = list(found)
    return Figure(len(listed), listed)


def longest(sizes: Iterable[tuple[int, str]]) -> Figure:
    ordered = sorted(sizes, reverse=True)
    return Figure(ordered[0][0] if ordered else 0, [f"{size} {where}" for size, where in ordered[:20]])


def functions(house: House) -> dict[str, Figure]:
    sizes, theirs, ours = [], [], []
    for source, node, names in house.functions():
        documented = ast.get_docstring(node, clean=False) is not None and len(node.body) > 1
        first = node.body[1 if documented else 0]
        sizes.append(((node.end_lineno or 0) - first.lineno + 1, source.at(node.lineno, node.name)))
        a = node.args
        count = len([*a.posonlyargs, *a.args, *a.kwonlyargs])
        if count >= PARAMETERS:
            hidden = any(n.startswith("_") and not n.endswith("__") for n in (*names, node.name))
            pytorchs = house.room(source.module) == "public" and not hidden
            (theirs if pytorchs else ours).append(source.at(node.lineno, f"{node.name}: {count}"))
    lengths = sorted(size for size, _ in sizes)
    return {
        "functions": Figure(len(sizes)),
        "median function, lines": Figure(statistics.median(lengths) if lengths else 0),
        "99th percentile, lines": Figure(lengths[len(lengths) * 99 // 100] if lengths else 0),
        "longest function, lines": longest(sizes),
        f"private functions of {PARAMETERS} or more parameters": places(ours),
        f"public ones of {PARAMETERS} or more parameters": places(theirs),
    }


# ***** imports *****


def imports(house: House) -> dict[str, Figure]:
    late = (house.modules[m].at(i.line) for m, found in house.imports.items() for i in found if not i.top)
    public = [m for m in house.modules if house.room(m) == "public"]
    rooms = {"public", INTERFACE}
    inner = [house.modules[m].at(i.line) for m in public for i in house.imports[m] if house.room(i.module) not in rooms]
    found = {"late imports": places(sorted(set(late)))}
    for label, with_late in (("at module level", False), ("with late imports", True)):
        knots = circles(house, with_late)
        found[f"circles of imports, {label}"] = places(f"{len(knot)} {' '.join(knot)}" for knot in knots)
        found[f"modules in circles, {label}"] = Figure(sum(map(len, knots)))
        found[f"modules in the largest circle, {label}"] = Figure(max(map(len, knots), default=0))
    found["imports of private rooms from public packages"] = places(sorted(set(inner)))
    found["names of the interface"] = places(sorted(_interface(house)))
    return found


def _interface(house: House) -> Iterator[str]:
    """The names that the interface's modules show."""
    for module, source in house.modules.items():
        for node in source.tree.body if house.room(module) == INTERFACE else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                yield from (f"{source.label} {n.value}" for n in ast.walk(node.value) if isinstance(n, ast.Constant))


def circles(house: House, late: bool) -> list[list[str]]:
    """The strongly connected components of more than one module, the largest first."""
    edges = {
        m: sorted(
            {
                i.module
                for i in found
                if (i.top or late) and i.module in house.modules and not f"{m}.".startswith(f"{i.module}.")
            }
        )
        for m, found in house.imports.items()
    }
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    knots: list[list[str]] = []

    def visit(module: str) -> None:  # Tarjan's algorithm
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in edges[module]:
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            at = stack.index(module)
            knots.append(sorted(stack[at:]))
            del stack[at:]

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 2 * len(edges))
    try:
        for module in edges:
            if module not in order:
                visit(module)
    finally:
        sys.setrecursionlimit(before)
    return sorted((knot for knot in knots if len(knot) > 1), key=len, reverse=True)


# ***** the seam for devices, and state of modules *****


def devices(house: House) -> dict[str, Figure]:
    """Lines above the backends (and of the host's runtime) that know the CPU's."""
    above = {"public", *house.rooms[house.rooms.index("_backends") + 1 :]} if "_backends" in house.rooms else {"public"}
    names: dict[str, list[str]] = {"_engine": [], "_host": [], "_surface": [], "public": []}
    compared: dict[str, list[str]] = {room: [] for room in names}
    for source in house.sources:
        room = house.room(source.module)
        if room not in {*above, "_host"} - {"_cli"} or source.label.startswith(CPU_PAGES):
            continue
        code = source.text if re.search(r"_backends\.cpu|_backends import cpu", source.text) else ""
        for n, line in enumerate(code.splitlines(), 1):
            if re.search(r"_backends\.cpu\b|_backends import cpu\b", line.split("#")[0]):
                names.setdefault(room, []).append(source.at(n))
        lines = {node.lineno for node in ast.walk(source.tree) if isinstance(node, ast.Compare) and _with_cpu(node)}
        compared.setdefault(room, []).extend(source.at(n) for n in sorted(lines))
    found = {f"lines of {room} that name `_backends.cpu`": places(where) for room, where in names.items()}
    return found | {f"lines of {room} that compare with the CPU": places(where) for room, where in compared.items()}


def _with_cpu(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    sides += [e for side in sides if isinstance(side, (ast.Tuple, ast.List, ast.Set)) for e in side.elts]
    return any(
        (isinstance(s, ast.Constant) and s.value == "cpu")
        or (isinstance(s, (ast.Name, ast.Attribute)) and ast.unparse(s).split(".")[-1] == "CPU")
        for s in sides
    )


def state(house: House) -> dict[str, Figure]:
    """Lists of at most one element at module level whose element another module sets."""
    cells: dict[tuple[str, str], str] = {}
    for source in house.sources:
        for node in source.tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and isinstance(value, ast.List) and len(value.elts) <= 1:
                if not target.id.startswith("__"):
                    cells[source.module, target.id] = source.at(node.lineno)
    found = {}
    for source in house.sources:
        names = _bound_names(house, source)
        for text in _set_elements(source.tree):
            head, _, name = text.rpartition(".")
            cell = (names.get(head, ""), name) if head else tuple(names.get(name, "").rsplit(".", 1))
            if cell in cells and cell[0] != source.module:
                found[cell] = cells[cell]  # type: ignore[index]
    return {"one-element lists set from elsewhere": places(found.values())}


def _bound_names(house: House, source: Source) -> dict[str, str]:
    """What the names that a file imports stand for: a module, or a module and a name in it."""
    found = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == house.name:
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.Import):
            found.update({alias.asname: alias.name for alias in node.names if alias.asname})
    return found


def _set_elements(tree: ast.Module) -> Iterator[str]:
    """The texts of lists whose first element, or all, an assignment or a method sets."""
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            for one in targets:
                if isinstance(one, ast.Subscript) and ast.unparse(one.slice) in ("0", ":", "slice(None)"):
                    yield ast.unparse(one.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            yield ast.unparse(node.func.value)


# ***** documents, and what an import costs *****


def primitives(house: House) -> dict[str, Figure]:
    """The numbers of primitives that documents and docstrings state, with the one that is."""
    root = house.package.parents[1]
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *house.package.glob("_prims/*.py")]
    said = []
    for path in sorted(pages):
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            number = _COUNT.search(line)
            if number and re.search(r"\bprimitives?\b", line, re.IGNORECASE):
                said.append((number[1], f"{path.relative_to(root)}:{n} {number[1]}"))
    code = f"from {house.name}._prims import PRIMITIVES; print(len(PRIMITIVES))"
    real = _python(house, code)
    numbers = ", ".join(sorted({number for number, _ in said}))
    return {
        "primitives": Figure(int(real) if real else "unknown"),
        "numbers of primitives that are stated": Figure(numbers or "none", [where for _, where in said]),
    }


def start(house: House) -> dict[str, Figure]:
    """Modules that `import` loads, and the median of its time over some processes."""
    code = (
        "import sys, time; before = set(sys.modules); t = time.perf_counter();"
        f"import {house.name}; t = time.perf_counter() - t; new = set(sys.modules) - before;"
        f"print(t, len(new), sum(m.split('.')[0] == {house.name!r} for m in new))"
    )
    answers = [_python(house, code).split() for _ in range(STARTS + 1)][1:]  # the first writes bytecode
    if not all(answers):
        return {"modules loaded by the import": Figure("it fails")}
    return {
        "modules loaded by the import": Figure(int(answers[0][1])),
        "of them ours": Figure(int(answers[0][2])),
        "import, ms": Figure(round(1e3 * statistics.median(float(a[0]) for a in answers), 1)),
    }


def _python(house: House, code: str) -> str:
    """What a program prints that finds the package first; empty where it fails."""
    env = {**os.environ, "PYTHONPATH": str(house.package.parent), "PYTHONPYCACHEPREFIX": house.bytecode}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip()


COUNTS: tuple[Callable[[House], dict[str, Figure]], ...] = (
    files, functions, imports, devices, state, primitives, start,
)  # fmt: skip


def counted(package: Path) -> dict[str, Figure]:
    """All figures of a package, by name."""
    with tempfile.TemporaryDirectory() as bytecode:  # of the processes that import the package
        house = House(package, bytecode)
        return {name: figure for count in COUNTS for name, figure in count(house).items()}


def table(figures: dict[str, Figure], before: dict[str, float | str] | None) -> str:
    rows = [("", "before", "now")] if before is not None else []
    for name, figure in figures.items():
        earlier = (f"{before.get(name, '')}",) if before is not None else ()
        rows.append((name, *earlier, f"{figure.value}"))  # type: ignore[arg-type]
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{row[0]:{width}s}" + "".join(f" {cell:>14s}" for cell in row[1:]) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", nargs="?", type=Path, default=ROOT / "src" / "rushlight")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    parser.add_argument("--before", type=Path, help="a file that --json wrote, for a column beside")
    parser.add_argument("--places", metavar="NAME", help="list the places that one figure counts")
    options = parser.parse_args()
    figures = counted(options.package.resolve())
    if options.places:
        if options.places not in figures:
            parser.error(f"no figure is called {options.places!r}")
        print("\n".join(figures[options.places].places))
        return
    values = {name: figure.value for name, figure in figures.items()}
    print(table(figures, json.loads(options.before.read_text()) if options.before else None))
    if options.json:
        options.json.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
