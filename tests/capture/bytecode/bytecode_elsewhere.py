"""Compares the interpreter with the CPython that runs this file: every opcode, the corpus, new syntax, random programs.

The tests run it with every other CPython that is there; it needs no package but ours, and of ours only `_capture.bytecode`, so it runs
where the package itself does not, as on a CPython for WebAssembly.  It prints what differs and fails if anything does.
"""

from __future__ import annotations

import dis
import inspect
import sys
from importlib import import_module
from types import CodeType
from typing import Any

from tests.capture.bytecode import bytecode_corpus
from tests.capture.bytecode.interpreted import handled, interpret, outcome
from tests.python_programs import run, write

from rushlight._capture.bytecode import Interpreter, Operations
from rushlight._capture.bytecode.inline import Inlining
from rushlight._capture.bytecode.versions import table

HELPERS = {"arity", "drive"}
CASES = [
    name
    for name, value in vars(bytecode_corpus).items()
    if inspect.isfunction(value) and value.__module__ == bytecode_corpus.__name__ and name not in HELPERS
]
MODULES: dict[tuple[int, ...], str] = {
    (3, 11): """
import os.path as p, sys
from math import *
x: int = floor(2.5)
y: "str"
def f(a, b=x): return a + b
class A:
    z: int = x
    for i in range(3): pass
print(f(1), A.z, A.i, __annotations__, A.__annotations__, [i * x for i in range(3)])
try: nothing
except NameError as e: print(e)
del x
with open(p.devnull) as g: pass
""",
    (3, 11, 0): """
from __future__ import annotations
x: int = 3
print(__annotations__)
""",
    (3, 12): """
def first[T: int, *U, **V](x: T, *y: *U) -> T: return x
class Box[T: (int, str)]:
    def get(self) -> T: return self
type Pair[T] = tuple[T, later]
print(first.__type_params__, first(3), Box.__type_params__[0].__constraints__, Box[int], Pair.__name__, Pair.__type_params__)
try: Pair.__value__
except NameError as e: print(e)
later = int
print(Pair.__value__, f"{'a' + f"{1 + 1}"!r:>{8}}")
class C:
    x = [[i, j] for i in range(2) for j in range(i + 1)]
    y = (lambda: 3)()
    def m(self): return super().__repr__()[:5], super(C, self).__hash__ is not None
print(C.x, C.y, C().m(), [x for x in [1, 2]], {k: v for k, v in {1: 2}.items()})
class D:
    kind = int
    def f[T](self, a: kind, b: later) -> T: return b
print(D.f.__annotations__["a"], D().f(1, 2))
""",
    (3, 13): """
class Box[T = int]: pass
print(Box.__type_params__[0].__default__)
def f():
    x = 1
    a = locals(); x = 2; b = locals()
    return a, b["x"], a is b
print(f())
def g():
    try: yield 1
    except GeneratorExit: return 5
i = g(); next(i); print(i.close())
""",
    (3, 14): """
from annotationlib import get_annotations, Format
x: int = 3
def f(a: int, *b: later, c: "str" = 1) -> later: pass
class K:
    y: int = 1
    if x: z: later
    def m(self, a: K) -> later: return __class__
later = float
print(__annotations__, f.__annotations__, K.__annotations__, K.m.__annotations__, K().m(1), get_annotations(f, format=Format.STRING))
w, v = 6, "text"
t = t"a{v!r:>{w}}b{x}{w + x!s}"
print(t.strings, [(i.value, i.expression, i.conversion, i.format_spec) for i in t.interpolations], t"", t"{x:03}".interpolations)
try: raise ExceptionGroup("g", [KeyError(1), OSError(2)])
except* KeyError, ValueError: print("found")
except* OSError as e: print(e.exceptions)
try: raise KeyError
except KeyError, ValueError: print("no parentheses")
class A:
    async def __aenter__(self): pass
    async def __aexit__(self, *e): pass
def enter(m):
    try:
        with m: pass
    except TypeError as e: print(e)
async def enter_async(m):
    try:
        async with m: pass
    except TypeError as e: print(e)
class B:
    def __enter__(self): pass
    def __exit__(self, *e): pass
for m in (A(), 3, B()):
    enter(m)
    try: enter_async(m).send(None)
    except StopIteration: pass
for many in ([1, 2, 3], {1: 1, 2: 2, 3: 3}, (1, 2, 3), iter([1, 2, 3]), {1, 2, 3}):
    try: a, b = many
    except ValueError as e: print(e)
""",
}


def modules() -> list[str]:
    """Programs that this version can read."""
    return [text for version, text in MODULES.items() if sys.version_info >= version]


def run_module(text: str, interpreted: bool) -> Any:
    """The names that a module defines."""
    code = compile(text, "<module>", "exec", dont_inherit=True)
    space: dict[str, Any] = {"__name__": "elsewhere"}
    if interpreted:
        it = Interpreter(Inlining())
        it.push_code(code, space)
        it.run()
    else:
        exec(code, space)  # noqa: S102
    return sorted(space)


def without_a_handler() -> set[str]:
    """Opcodes neither in the table nor among those that are never executed, and those in it that there are not."""
    module = import_module(f"rushlight._capture.bytecode.opcodes_{sys.version_info[0]}{sys.version_info[1]}")
    known = {name for name in dis.opmap if not name.startswith("INSTRUMENTED_")}
    return (set(table()) | set(module.NOT_EXECUTED)) ^ known


def not_covered() -> set[str]:
    """Opcodes of the table that neither the corpus nor the modules contain."""
    seen: set[str] = set()

    def visit(code: CodeType) -> None:
        seen.update(instruction.opname for instruction in dis.get_instructions(code))
        for const in code.co_consts:
            if isinstance(const, CodeType):
                visit(const)

    for value in vars(bytecode_corpus).values():
        if inspect.isfunction(value) and value.__module__ == bytecode_corpus.__name__:
            visit(value.__code__)
        elif isinstance(value, type) and value.__module__ == bytecode_corpus.__name__:
            for method in vars(value).values():
                if inspect.isfunction(method):
                    visit(method.__code__)
    for text in modules():
        visit(compile(text, "<module>", "exec", dont_inherit=True))
    visit(compile("5", "<prompt>", "single"))
    return set(table()) - seen


def main() -> None:
    wrong = []
    for name in CASES:
        function = getattr(bytecode_corpus, name)
        pairs = [
            (outcome(lambda f=function: interpret(f)), outcome(function)),
            (outcome(lambda f=function: interpret(f, operations=Operations())), outcome(function)),
            (outcome(lambda f=function: handled(lambda: interpret(f))), outcome(lambda f=function: handled(f))),
        ]
        wrong += [f"{name}:\n  {a}\n  {b}" for a, b in pairs if a != b]
    for text in modules():
        a, b = outcome(lambda t=text: run_module(t, True)), outcome(lambda t=text: run_module(t, False))
        wrong += [f"{text}\n  {a}\n  {b}"] if a != b else []
    for seed in range(40):
        program = write(seed)
        if run(program, interpret) != run(program, lambda f, *a: f(*a)):
            wrong.append(program.source())
    wrong += [f"opcodes without a handler: {without_a_handler()}"] if without_a_handler() else []
    wrong += [f"opcodes not covered: {not_covered()}"] if not_covered() else []
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
