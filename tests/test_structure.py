"""The house rules of docs/architecture.md, held by the syntax trees of every file in the package."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from rushlight._base.alias import PRIVATE_PAGES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "rushlight"
FILES = sorted(p for p in PACKAGE.rglob("*.py") if "__pycache__" not in p.parts)
LAYERS = [line for line in (PACKAGE / "LAYERS").read_text().split("\n") if line and not line.startswith("#")]
# The formatter breaks lines at 120 columns; rows of tables may keep their shape (`# fmt: skip`) up to this.
LINES_IN_FILE, LINES_IN_FUNCTION, COLUMNS = 1200, 80, 150
LEFTOVERS = {"utils.py", "helpers.py", "misc.py", "common.py", "util.py", "helper.py"}


@cache
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(source(path), str(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree(path)))


@pytest.fixture(scope="module", autouse=True)
def _trees_stay() -> Iterator[None]:
    """The trees are a million objects that nothing frees before the end: the collector need not go over them."""
    gc.disable()
    yield
    for cached in (source, tree, nodes, imports, literal_imports):
        cached.cache_clear()
    gc.enable()


def for_each_file(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """One test of a rule that each of `paths` must keep; it names all files that break it."""

    every = list(paths)

    def decorate(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            wrong = []
            for path in every:
                try:
                    rule(path)
                except AssertionError as error:
                    wrong.append(f"{label(path)}: {error}")
            assert not wrong, "\n".join(wrong)

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return decorate


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


# Found by programs under PyTorch's names: pages of users, though they lie beside what finds them.
PAGES_OF_OTHERS = "rushlight._base.as_torch."


def room_of(module: str) -> str:
    """The room of a module of ours: the first folder, or `public` for what users import."""
    if module.startswith(PAGES_OF_OTHERS):
        return "public"
    first = module.split(".")[1] if "." in module else ""
    users = not first.startswith("_") or first.startswith("__") or first in PRIVATE_PAGES
    return "public" if users else first


def label(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@cache
def imports(path: Path) -> list[tuple[str, int, bool, bool]]:
    """(module, line, at module level, for type checkers only) of every import, relative ones resolved."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    found: list[tuple[str, int, bool, bool]] = []

    def visit(node: ast.AST, top: bool, typing_only: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):  # holds no statements
                continue
            if isinstance(child, ast.Import):
                found.extend((a.name, child.lineno, top, typing_only) for a in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*above, *filter(None, [child.module])])
                for alias in child.names:
                    whole = f"{base}.{alias.name}"
                    found.append((whole if whole in MODULES else base, child.lineno, top, typing_only))
            inner = top and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            checking = isinstance(child, ast.If) and ast.unparse(child.test) in (
                "TYPE_CHECKING",
                "typing.TYPE_CHECKING",
            )
            visit(child, inner, typing_only or checking)

    visit(tree(path), True, False)
    return found


IMPORTERS = ("import_module", "__import__", "LazyModule")


def imported_texts(path: Path, *more: str) -> list[tuple[ast.expr, int]]:
    """What is given to `import_module`, `__import__` or a lazy module."""
    if not any(name in source(path) for name in (*IMPORTERS, *more)):
        return []
    calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
    return [
        (c.args[0], c.lineno) for c in calls if c.args and ast.unparse(c.func).split(".")[-1] in (*IMPORTERS, *more)
    ]


def literal_name(text: ast.expr) -> str | None:
    """The module that a text names, or, where its end is made at run time, the package; None where nothing is known."""
    if isinstance(text, ast.JoinedStr):
        head = text.values[0]
        package = literal_name(head) or ""
        return package.rpartition(".")[0] if package.count(".") > 1 else None
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else None


@cache
def literal_imports(path: Path) -> list[tuple[str, int]]:
    """Modules of ours named by a text given to `import_module`, `__import__` or a lazy module."""
    named = [(literal_name(text), line) for text, line in imported_texts(path, "require")]
    return [(name, line) for name, line in named if name is not None]


# ***** rooms *****


def test_every_module_is_in_a_room() -> None:
    strangers = sorted({m for m in MODULES if room_of(m) not in LAYERS})
    assert not strangers, f"rooms that src/rushlight/LAYERS does not name: {strangers}"


@for_each_file(FILES)
def test_no_upward_import(path: Path) -> None:
    here = LAYERS.index(room_of(module_name(path)))
    if module_name(path) == "rushlight.__main__":
        here = LAYERS.index("_cli")
    wrong = []
    named = [(m, line) for m, line, _, typing_only in imports(path) if not typing_only] + literal_imports(path)
    for module, line in named:
        if module.split(".")[0] == "rushlight" and LAYERS.index(room_of(module)) > here:
            wrong.append(f"{path}:{line} imports {module}, which is above {LAYERS[here]}")
    assert not wrong, "\n".join(wrong)


# Files below the public packages that import modules whose names are made at run time, each with its reason.  The list only shrinks.
NAMED_AT_RUN_TIME = {
    "_base/alias.py": "gives programs our modules under PyTorch's names",
    "_base/alias_table.py": "the table of those names",
    "_base/importing.py": "`require`: imports what a program or a stored plan names",
    "_capture/bytecode/calls.py": "the instruction of a program that is followed",
    "_capture/trace/__init__.py": "files of its own folder",
    "_capture/trace/tracer.py": "the imports of a program that is followed",
    "_cli/info.py": "loads every module, so that every knob is there",
    "_ops/families.py": "files of its own folder",
    "_surface/composites/__init__.py": "files of its own folder",
    "_surface/reference/stubs.py": "reads every public module",
}


@for_each_file(p for p in FILES if room_of(module_name(p)) != "public")
def test_names_made_at_run_time_are_listed(path: Path) -> None:
    """An import through a name that the rule of rooms cannot read is an exception with a reason."""
    hidden = [line for text, line in imported_texts(path) if literal_name(text) is None]
    if label(path) in NAMED_AT_RUN_TIME:
        assert hidden, "no longer made at run time: take it from the list"
    else:
        assert not hidden, f"name the module in a text: lines {hidden}"


# Pages that may import private rooms, each with its reason.  The list only shrinks.
DOORS = {
    "__init__.py": "puts the package together",
    "__main__.py": "starts the command line",
    "__config__.py": "reports on the CPU's backend and its libraries",
    "cpu/__init__.py": "is about the CPU's backend",
}
INTERFACE = "rushlight._interface"
NAMES_OF_THE_INTERFACE = 289


def shown_names(path: Path) -> set[str]:
    """The names that a page shows: those in its `__all__`, and what it imports under its own name (`import x as x`)."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names if alias.asname == alias.name}
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found |= {n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)}
    return found


@for_each_file(
    p
    for p in FILES
    if room_of(module_name(p)) == "public" and label(p) not in DOORS and not module_name(p).startswith(PAGES_OF_OTHERS)
)
def test_public_packages_use_the_interface(path: Path) -> None:
    """Public packages use rooms through `_interface`; a page that shows a public name may take it from the room that defines it."""
    shown, wrong = shown_names(path), []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names = [(alias.name, "", "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [(node.module, alias.name, alias.asname or alias.name) for alias in node.names]
        else:
            continue
        for module, name, bound in names:
            ours = module.split(".")[0] == "rushlight" and not module.startswith(INTERFACE)
            if (
                ours
                and room_of(f"{module}.{name}") != "public"
                and f"{module}.{name}" != "rushlight._OWN_VERSION"
                and bound not in shown
            ):
                wrong.append(f"{path}:{node.lineno} imports {module} ({name}); take it from {INTERFACE}")
    assert not wrong, "\n".join(wrong)


def test_the_interface_is_small() -> None:
    """Modules of the interface hold no code, and show few names; each is used."""
    names = {}
    for path in (PACKAGE / "_interface").glob("*.py"):
        body = [node for node in tree(path).body if not isinstance(node, (ast.ImportFrom, ast.Expr))]
        assert all(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in body), path
        for name in shown_names(path) if body else ():
            names[module_name(path), name] = 0
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(INTERFACE):
                for alias in node.names:
                    names[node.module or "", alias.name] += 1
    assert len(names) <= NAMES_OF_THE_INTERFACE
    unused = sorted(key for key, count in names.items() if not count)
    assert not unused, f"nobody uses {unused}"


# Files that import within functions, each with its reason.  The list only shrinks; nothing is imported late for the sake of order.
LATE = {
    "__main__.py": "what it starts with decides what is imported",
    "__config__.py": "the report is rarely asked for",
    "_cli/docs.py": "`--help` answers at once",
    "_cli/info.py": "says what an installation lacks, so each part of it may fail",
    "_cli/stubs.py": "`--help` answers at once",
}
# Modules that are loaded by their first use, each with its reason: `import rushlight` and the common ways through a program stay
# cheap.  Counted apart from late imports.
LAZY = {
    "rushlight._backends.cpu.blocks": "kernels of the Triton language are rare",
    "rushlight._backends.cpu.program.collectives": "most programs have one process",
    "rushlight._engine.core.cuda_array": "few programs show arrays of other libraries on GPUs",
    "rushlight._engine.core.dlpack_capsules": "NumPy makes the capsules of the host's memory",
    "rushlight.fx.codegen": "short names of dtypes are for printed specs alone",
    "rushlight.compiler.compilation": "settings are read by programs that compile nothing",
    "rushlight._backends.cpu.attention.attention": "routines of programs that are recorded where nothing was compiled",
    "rushlight._backends.cpu.conv.conv": "likewise",
    "rushlight._backends.cpu.conv.winograd": "likewise",
    "rushlight._backends.cpu.image.unpool": "likewise",
    "rushlight._backends.cpu.gemm.product_choice": "likewise",
    "rushlight._backends.cpu.gemm.product_spec": "likewise",
    "rushlight._backends.cpu.program.measuring": "only who looks inside measures",
    "rushlight._capture.recording.trial": "only who looks inside runs a program by itself",
    "rushlight.export._decompose": "only who asks for other operators rewrites a program",
    "rushlight.export.pt2_archive": "most exported programs are not written to files",
    "rushlight.export._dataclasses": "few programs register containers",
    "rushlight.export._draft": "programs that export need no draft",
    "rushlight.export.unflatten": "most exported programs stay flat",
    "rushlight.export._trace": "most programs are not exported; `torch.export.Dim` needs no tracer",
    "rushlight.onnx.exporting.capture": "the package is a page of names for programs that export nothing",
    "rushlight.onnx.exporting.custom": "likewise",
    "rushlight.onnx.exporting.exportable": "likewise",
    "rushlight.onnx.exporting.exporter": "likewise",
    "rushlight.onnx.exporting.operators": "likewise",
    "rushlight.export._unlift": "an exported program is made into a module on request",
    "rushlight.fx.passes.fake_tensor_prop": "of `ShapeProp` in a fake mode",
    "rushlight.library.aten.calls": "nobody looks below autograd, mostly",
    "rushlight.library.aten.derived": "of operators without a formula",
    "rushlight.library.aten.fronts": "for graphs that are written above autograd",
    "rushlight.library.aten.functions": "with all handlers, for the first mode",
    "rushlight.library.aten.kernels": "for the first operator of `torch.ops.aten`",
    "rushlight.library.aten.nodes": "of recorded calls that a mode sees",
    "rushlight.library.aten.whole": "with the kernels, for the first operator of `torch.ops.aten`",
    "rushlight.compiler": "whether a program is being exported is asked by operators that a mode sees",
    "rushlight.library.aten.tables": "with all formulas, for the first recorded call that a mode sees",
    "rushlight.nn.parallel.batch_statistics": "most normalisation is of one process",
    "rushlight.nn.functional": "loaded with most programs, but not by `torch.ops`",
    "rushlight._backends.cpu.program.records": "plans that are found on disk need no schedule",
    "rushlight._backends.cpu.runtime.threads": "the native runtime is loaded by the first operation",
    "rushlight.nn.parallel._functions": "loads `torch.cuda`, for copies between GPUs",
    "rushlight.utils.data._utils.worker": "takes up an error of a replica on a GPU",
    "rushlight._base.collector": "objects are searched for where memory moves under its tensors",
    "rushlight._base.handles": "hooks are rare",
    "rushlight._codegen.llvm_function": "kernels that are found on disk need no text",
    "rushlight._codegen.scalar.coefficients": "kernels that are found on disk need no text",
    "rushlight._codegen.scalar.emitter": "kernels that are found on disk need no text",
    "rushlight._codegen.scalar.writer": "kernels that are found on disk need no text",
    "rushlight._cli.demo_export": "it loads NumPy and what models are exported by",
    "rushlight._distributed.launch.failures": "only workers of a launcher leave files of errors",
    "rushlight._distributed.launch.monitor": "agents of one machine watch no others",
    "rushlight._host.stubs": "agents of launchers run no native code",
    "rushlight": "`torchrun` counts GPUs on demand",
    "rushlight._engine.autograd.anomaly": "anomaly mode is rare",
    "rushlight._engine.autograd.streams": "few programs have streams of their own",
    "rushlight._engine.autograd.halves": "most programs have no pipelines",
    "rushlight._engine.autograd.saved": "what nodes show is rarely asked for",
    "rushlight._engine.core.describe": "a program may print nothing",
    "rushlight._engine.core.lazy_clone": "lazy clones are rare",
    "rushlight._engine.dispatch.kept.kept_plans": "loaded with the first plan",
    "rushlight._engine.dispatch.kept.kept_programs": "loaded with the first tensor that is filled",
    "rushlight._engine.dispatch.kept.plan_packing": "loaded with the first plan",
    "rushlight._engine.dispatch.plans.stepping": "loaded with the first graph that is run",
    "rushlight._engine.functorch.gradients": "batched gradients are rare",
    "rushlight._engine.sharing.ipc": "most programs have one process",
    "rushlight._engine.sharing.mapped": "mapped files are rare",
    "rushlight._engine.sharing.shared": "most programs have one process",
    "rushlight._native.cache": "loaded with the first plan",
    "rushlight._native.compiler": "needs `ast`, and only where something is compiled",
    "rushlight._native.llvm_compiler": "needs LLVM, and only where something is compiled",
    "rushlight._native.record_store": "loaded with the first plan",
    "rushlight._native.sources": "loaded with the first plan",
    "rushlight._native.target": "loaded with the first plan",
    "rushlight._transforms.vjp": "programs without gradients need none",
    "rushlight.autograd.forward_ad": "gradcheck uses it on demand",
    "rushlight.distributed._shard.sharded_tensor.api": "how tensors are cut is read without tensors that are",
    "rushlight.func": "gradcheck uses it on demand",
    "rushlight.jit.errors": "`torch.jit` is read by most packages, and used by few programs",
    "rushlight.jit.freezing": "loaded with the first call",
    "rushlight.jit.frontend.classes": "few scripts have classes of their own",
    "rushlight.jit.ir.copying": "loaded with the first copy of a graph",
    "rushlight.jit.modules": "loaded with the first compiled module",
    "rushlight.jit.scripting": "loaded with the first script",
    "rushlight.ao.operators.packed": "loaded with the first quantized layer of a script or an archive",
    "rushlight.ao.nn.quantized.dynamic.recurrent": "loaded with the first quantized recurrent layer of a script or an archive",
    "rushlight.jit.serialization.reader": "loaded with the first archive",
    "rushlight.jit.serialization.records": "loaded with the first archive",
    "rushlight.jit.serialization.writer": "loaded with the first archive",
    "rushlight.jit.tracing.tracer": "loaded with the first trace",
    "rushlight.jit.units": "text is rarely compiled",
    "rushlight.library.builtin": "`torch.ops.aten` is rare",
    "rushlight.multiprocessing": "few checkpoints are written by a process of their own",
    "rushlight.nested.tensors": "files rarely hold nested tensors",
    "rushlight.package.exporting": "loaded with the first package",
    "rushlight.package.importing": "loaded with the first package",
    "rushlight.profiler": "a benchmark is profiled on demand",
    "rushlight.serialization": "storages are rarely pickled",
    "rushlight.serialization.safetensors": "needs an extra",
    "rushlight.utils.data._utils.fetch": "workers load it themselves",
    "rushlight.utils.data._utils.wire": "loaders without workers need no messages",
    "rushlight.utils.data._utils.worker_pool": "loaders without workers need none",
    "rushlight.utils.data.graph_settings": "data pipes are rare",
}


def test_nothing_is_imported_late_for_order() -> None:
    late = {
        label(p) for p in FILES for m, _, top, typing_only in imports(p) if not (top or typing_only) and m in MODULES
    }
    assert late <= set(LATE), f"import at the top of the file, or through `LazyModule`: {sorted(late - set(LATE))}"
    assert set(LATE) <= late, f"no late import any more, so leave it out of the list: {sorted(set(LATE) - late)}"


def test_modules_loaded_by_their_first_use_have_a_reason() -> None:
    lazy = {
        node.args[0].value
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "LazyModule"
        and isinstance(node.args[0], ast.Constant)
    }
    lazy = {module for module in lazy if module.split(".")[0] == "rushlight"}
    assert lazy == set(LAZY), f"new ones need a reason, gone ones leave the list: {sorted(lazy ^ set(LAZY))}"


def test_no_circular_imports() -> None:
    """No circle among imports, those within functions included."""
    edges = {
        name: {
            m
            for m, _, top, typing_only in imports(path)
            if not typing_only and m in MODULES and m != name and not name.startswith(m + ".")
        }
        for name, path in MODULES.items()
    }
    state: dict[str, int] = {}
    trail: list[str] = []

    def visit(name: str) -> None:
        state[name] = 1
        trail.append(name)
        for other in sorted(edges[name]):
            assert state.get(other) != 1, "a circle: " + " -> ".join([*trail[trail.index(other) :], other])
            if other not in state:
                visit(other)
        trail.pop()
        state[name] = 2

    for name in edges:
        if name not in state:
            visit(name)


@for_each_file(FILES)
def test_never_imports_torch(path: Path) -> None:
    wrong = [f"{path}:{line}" for module, line, *_ in imports(path) if module.split(".")[0] in ("torch", "functorch")]
    wrong += [f"{path}:{line}" for module, line in literal_imports(path) if module.split(".")[0] == "torch"]
    assert not wrong, wrong


# ***** the seam of devices *****

# Pages of the CPU itself, which may name its backend, each with the reason.
NAMES_CPU = {
    "__config__.py": "shows which BLAS the CPU's backend found",
    "_cli/info.py": "reports on the installation: whose products are used on this machine",
    "_surface/settings.py": "set_num_threads is about the CPU's threads",
    "_surface/switches.py": "set_flush_denormal is about the CPU's threads",
    "profiler/recorder.py": "how much of the pool is allocated is read at every event",
}
# Lines that compare a device with the CPU, where PyTorch's own rule is about the CPU and no code path is chosen by it.
COMPARES_CPU = {
    "_capture/recording/device.py": "what stands for the CPU equals it",
    "_engine/core/describe.py": "printed tensors name every device but the CPU",
    "_surface/methods.py": "Tensor.is_cpu",
    "_surface/casts.py": "Tensor.cpu() gives the tensor itself where it is there",
    "_types/device.py": "the canonical device for a string",
    "_utils.py": "_get_device_index: CPUs have no number",
    "futures.py": "only accelerators are named for a future",
    "nn/utils/rnn.py": "batch sizes must be on the CPU",
    "serialization/legacy.py": "where a file's storage was put",
    "serialization/locations.py": "the tag of a file's storage",
    "sparse/construct.py": "sparse tensors exist on the CPU alone, and others are refused",
}
COMPARISON = re.compile(r"\bis (not )?CPU\b|[!=]= CPU\b|[!=]= \"cpu\"")
ABOVE_BACKENDS = [p for p in FILES if LAYERS.index(room_of(module_name(p))) > LAYERS.index("_backends")]


@for_each_file(ABOVE_BACKENDS)
def test_nothing_above_the_backends_knows_which_device_it_is(path: Path) -> None:
    named = [(m, line) for m, line, _, typing_only in imports(path) if not typing_only] + literal_imports(path)
    wrong = [f"{path}:{line} imports {m}" for m, line in named if m.startswith("rushlight._backends.cpu")]
    if label(path) not in NAMES_CPU:
        assert not wrong, wrong
    else:
        assert wrong, f"{label(path)} no longer names the CPU's backend: take it from NAMES_CPU"
    lines = [line for line in source(path).splitlines() if not line.lstrip().startswith(("#", ">>>"))]
    compared = [line.strip() for line in lines if COMPARISON.search(line)]
    if label(path) not in COMPARES_CPU:
        assert not compared, f"{path} chooses by the CPU: ask the device's backend ({compared})"


# Functions that load or store through an address; in the engine and above only a backend's methods do that.
RAW_ACCESS = ("memmove", "memset", "string_at", "from_address")
RAW_ALLOWED = {
    "_engine/dispatch/plans/native_plans.py": "reads types of CPython, not elements",
    "multiprocessing/spawn.py": "no elements",
}


@for_each_file(ABOVE_BACKENDS)
def test_nothing_above_the_backends_loads_through_an_address(path: Path) -> None:
    wrong = [
        f"{path}:{node.lineno} {ast.unparse(node.func)}"
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in RAW_ACCESS
        and ast.unparse(node.func).split(".")[0] in ("ctypes", "pointer")
    ]
    assert not wrong or label(path) in RAW_ALLOWED, wrong


# ***** files and functions *****


@for_each_file(FILES)
def test_files_have_a_subject_and_a_size(path: Path) -> None:
    assert path.name not in LEFTOVERS, "a drawer for leftovers: name the file after what it is about"
    lines = source(path).splitlines()
    first_lines = "\n".join(lines[:40]).lower()
    if len(lines) > LINES_IN_FILE:
        assert "long file:" in first_lines, f"{len(lines)} lines; split it, or say why near the top: `# long file: ...`"
    if lines:
        assert ast.get_docstring(tree(path)), "a module says in its first line what it knows"


@for_each_file(FILES)
def test_functions_fit_on_a_page(path: Path) -> None:
    lines, wrong = source(path).splitlines(), []
    for node in nodes(path):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        # The length is the code's: a docstring may take the room it needs.
        first = (
            node.body[1] if ast.get_docstring(node, clean=False) is not None and len(node.body) > 1 else node.body[0]
        )
        length = (node.end_lineno or 0) - first.lineno + 1
        near = "\n".join(lines[max(0, node.lineno - 4) : node.lineno + 6]).lower()
        if length > LINES_IN_FUNCTION and "long function:" not in near:
            wrong.append(
                f"{path}:{node.lineno} {node.name}: {length} lines; split it, or say why: `# long function: ...`"
            )
    assert not wrong, "\n".join(wrong)


@for_each_file(FILES)
def test_no_debts_and_no_long_lines(path: Path) -> None:
    debts = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")
    wrong = []
    for number, line in enumerate(source(path).splitlines(), 1):
        if any(word in line for word in debts):
            wrong.append(f"{path}:{number} leaves a debt: {line.strip()}")
        # An error message may stay in one piece, so that it can be searched for.
        if len(re.sub(r'"[^"]*"', '""', line)) > COLUMNS:
            wrong.append(f"{path}:{number} has {len(line)} columns")
    assert not wrong, "\n".join(wrong)


# Formulas of sizes are compiled by Python as loops are by LLVM: their text is made of names and numbers alone, where it is used.
# A graph of `torch.fx` is a program in Python, and its module runs it.
# What was traced of a function is run by a function in Python, with the conditions that a user may read.
# Modules of a package run where its reader was told to allow it.
# A TorchScript graph is run by a function in Python whose text is made of numbered names alone.
# A repeated launch of a Triton kernel makes its key by a function of numbered names and of the names of its parameters.
CODE_FROM_TEXT = {
    "_types/shape_env.py",
    "export/_guards.py",
    "fx/graph_module.py",
    "_capture/trace/segments/generated.py",
    "jit/runtime/compiler.py",
    "package/importing.py",
    "triton/_launch/quick.py",
}


@for_each_file(path for path in FILES if label(path) not in CODE_FROM_TEXT)
def test_no_code_from_text(path: Path) -> None:
    wrong = [
        f"{path}:{node.lineno}"
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec")
    ]
    assert not wrong, wrong


# ***** what an import costs *****

HEAVY = (
    "numpy",
    "llvmlite",
    "triton",
    "torch",
    "scipy",
    "ctypes",
    "dataclasses",
    "inspect",
    "asyncio",
    "concurrent",
    "logging",
    "subprocess",
)


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys; before = set(sys.modules); import rushlight; print(*[m for m in {HEAVY} if m in sys.modules and m not in before])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_public_names() -> None:
    code = (
        "import sys, rushlight; names = rushlight.__all__; assert len(set(names)) == len(names), 'a name twice';"
        "missing = [n for n in names if not hasattr(rushlight, n)]; assert not missing, missing;"
        "private = [n for n in names if n.startswith('_') and not n.startswith('__')]; assert not private, private;"
        "absent = [n for n in names if n not in dir(rushlight)]; assert not absent, absent;"
        "import re; assert re.fullmatch(r'\\d+\\.\\d+\\.\\d+.*', str(rushlight.__version__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_layers_are_the_folders() -> None:
    folders = {p.parent.name for p in PACKAGE.glob("_*/__init__.py")}
    assert folders <= {*LAYERS, *PRIVATE_PAGES}, f"not in LAYERS: {sorted(folders - set(LAYERS))}"
    assert len(set(LAYERS)) == len(LAYERS)
