"""Native functions to LLVM text.

Every local variable is an `alloca` (LLVM's mem2reg turns them into registers), every expression is either a `Val` (a
typed LLVM value) or a compile-time Python object; the latter are folded, and become values where a type is known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from rushlight._base.digest import digest
from rushlight._native.emitter import NativeError, Val
from rushlight._native.expressions import Expressions
from rushlight._native.function import NativeFunction
from rushlight._native.types import Signature, Type, void

__all__ = ["Unit", "compile_unit"]


class Unit:
    """One module of LLVM text: the wanted functions, exported, and all they call, internal.

    `imported` names static memory that belongs to another unit: whoever loads this one says where it lies.
    """

    def __init__(self, roots: Iterable[NativeFunction], arch: str, imported: Iterable[str] = ()) -> None:
        self.arch, self.imported = arch, frozenset(imported)
        self.roots = list(roots)
        self._symbols: dict[int, str] = {}
        self._taken: set[str] = set()
        self._todo: list[NativeFunction] = []
        self._globals: dict[str, str] = {}
        self._keep: list[NativeFunction] = []
        self._strings: dict[bytes, str] = {}
        self._identities: dict[int, bytes | None] = {}
        self._alike: dict[bytes, NativeFunction] = {}
        for root in self.roots:
            if root.symbol in self._taken:
                raise NativeError(f"two functions of one unit are called {root.symbol!r}; give one of them name=...")
            self.symbol(root)

    def symbol(self, function: NativeFunction) -> str:
        """The name of a function in this unit; asks for its compilation, unless another one is the same."""
        found = self._symbols.get(id(function))
        if found is None and (identity := self._identity(function)) is not None:
            same = self._alike.setdefault(identity, function)
            if same is not function:
                self._keep.append(function)
                found = self._symbols[id(function)] = self._symbols[id(same)]
        if found is None:
            found, n = function.symbol, 0
            while found in self._taken:
                n += 1
                found = f"{function.symbol}.{n}"
            self._taken.add(found)
            self._symbols[id(function)] = found
            self._todo.append(function)
            self._keep.append(function)
        return found

    def _identity(self, function: NativeFunction) -> bytes | None:
        """A digest of the name and code of a function and of all it calls; None for functions that call themselves in
        the end.

        A factory that is called twice makes functions that are the same but for where they lie.
        """
        number = id(function)
        if number not in self._identities:
            self._identities[number] = None  # what meets it again from below calls itself
            own, called = function.own_parts()
            parts = [own]
            for other in called:
                part = self._identity(other)
                if part is None:
                    return None
                parts.append(part)
            self._identities[number] = digest(b"".join(parts))
        return self._identities[number]

    def declare(self, symbol: str, text: str) -> str:
        """Add a declaration or global once; returns `@symbol`."""
        before = self._globals.setdefault(symbol, text)
        if before != text:
            raise NativeError(f"{symbol} is declared in two ways: {before!r} and {text!r}")
        return f"@{symbol}"

    def extern(self, symbol: str, signature: Signature) -> str:
        args = ", ".join([t.llvm for t in signature.args] + (["..."] if signature.varargs else []))
        return self.declare(symbol, f"declare {signature.result.llvm} @{symbol}({args})")

    def string(self, text: bytes) -> str:
        """A private zero-terminated constant."""
        name = self._strings.setdefault(text, f".str.{len(self._strings)}")
        data = "".join(f"\\{byte:02X}" for byte in text + b"\0")
        return self.declare(name, f'@{name} = private unnamed_addr constant [{len(text) + 1} x i8] c"{data}"')

    def text(self) -> str:
        """The whole module."""
        bodies, done = [], 0
        while done < len(self._todo):
            function = self._todo[done]
            bodies.append(FunctionCompiler(self, function, exported=done < len(self.roots)).text())
            done += 1
        return "\n".join([*self._globals.values(), *bodies, ""])


def compile_unit(roots: Iterable[NativeFunction], arch: str, imported: Iterable[str] = ()) -> str:
    """LLVM text that defines `roots` (exported) and everything they call.  `arch` is the first part of the triple,
    `imported` as of `Unit`.
    """
    return Unit(roots, arch, imported).text()


class FunctionCompiler(Expressions):
    """Compiles one function: statements by `s_Name` methods, one for a kind of node."""

    def block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.node = statement
            method = getattr(self, "s_" + type(statement).__name__, None)
            if method is None:
                self.fail(f"{type(statement).__name__} statements are not in the subset")
            method(statement)

    def s_Pass(self, node: ast.Pass) -> None:
        pass

    def s_Expr(self, node: ast.Expr) -> None:
        if not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
            self.expr(node.value)

    def s_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.fail("a = b = c is not in the subset")
        target = node.targets[0]
        if isinstance(target, ast.Tuple):
            if not isinstance(node.value, ast.Tuple) or len(node.value.elts) != len(target.elts):
                self.fail("a tuple assignment needs a tuple of the same length on the right")
            values = [self.natural(self.expr(e)) for e in node.value.elts]
            for t, v in zip(target.elts, values, strict=True):
                self.assign(t, v)
        else:
            self.assign(target, self.expr(node.value))

    def s_AnnAssign(self, node: ast.AnnAssign) -> None:
        """`x: u32 = 0` fixes the type of x."""
        type_ = self.expr(node.annotation)
        if not isinstance(type_, Type) or node.value is None:
            self.fail("an annotated assignment is written x: u32 = value")
        self.assign(node.target, self.typed(self.expr(node.value), type_))

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            type_, address = self.element(target)
            self.store(type_, address, value)
        elif isinstance(target, ast.Name):
            if target.id not in self.vars:
                type_ = self.natural(value).type
                if type_ is void:
                    self.fail("a void call has no value")
                self.vars[target.id] = (type_, self.slot(type_, target.id))
            type_, slot = self.vars[target.id]
            if isinstance(value, Val) and value.type is not type_:
                self.fail(f"variable {target.id!r} is {type_}, the value is {value.type}; cast with {type_}(...)")
            self.emit(f"store {self.typed(value, type_)}, ptr {slot}")
        else:
            self.fail("only names and elements p.T[i] can be assigned")

    def s_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            type_, address = self.element(node.target)
            result = self.binary(type(node.op), self.load(type_, address), self.expr(node.value))
            self.store(type_, address, result)
        elif isinstance(node.target, ast.Name):
            old = self.e_Name(ast.Name(node.target.id, ast.Load()))
            self.assign(node.target, self.binary(type(node.op), old, self.expr(node.value)))

    def s_Return(self, node: ast.Return) -> None:
        result = self.signature.result
        if node.value is None or result is void:
            if node.value is not None or result is not void:
                self.fail(f"the function returns {result}")
            self.emit("ret void")
        else:
            self.emit(f"ret {self.typed(self.expr(node.value), result)}")
        self.dead = True

    def s_If(self, node: ast.If) -> None:
        condition = self.expr(node.test)
        if not isinstance(condition, Val):  # known at compile time: the other arm is not even looked at
            self.block(node.body if condition else node.orelse)
            return
        yes, no, end = self.label("then"), self.label("else"), self.label("endif")
        self.branch(self.truth(condition), yes, no)
        self.place(yes)
        self.block(node.body)
        self.jump(end)
        self.place(no)
        self.block(node.orelse)
        self.place(end)

    def loop_body(self, statements: list[ast.stmt], next_: str, end: str) -> None:
        self.loops.append((next_, end))
        self.block(statements)
        self.loops.pop()

    def s_While(self, node: ast.While) -> None:
        if node.orelse:
            self.fail("else on a loop is not in the subset")
        head, body, end = self.label("while"), self.label("body"), self.label("done")
        self.place(head)
        condition = self.expr(node.test)
        if not isinstance(condition, Val) and condition:
            self.jump(body)
        else:
            self.branch(self.truth(condition), body, end)
        self.place(body)
        self.loop_body(node.body, head, end)
        self.jump(head)
        self.place(end)

    def s_For(self, node: ast.For) -> None:
        """`for i in range(...)`: bounds are read once; the step is a constant."""
        call = node.iter
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        if not is_range or node.orelse or not isinstance(node.target, ast.Name):
            self.fail("a for loop is written: for i in range(start, stop, step)")
        args = [self.expr(a) for a in call.args]  # type: ignore[attr-defined]
        start, stop = (0, args[0]) if len(args) == 1 else args[:2]
        step = args[2] if len(args) == 3 else 1
        if not isinstance(step, int) or step == 0:
            self.fail("the step of range must be a non-zero constant")
        start, stop = self.pair(start, stop)
        counter = self.slot(start.type, "count")
        self.emit(f"store {start}, ptr {counter}")
        head, body, next_, end = (self.label(x) for x in ("for", "body", "next", "done"))
        self.place(head)
        i = self.op(start.type, f"load {start.type.llvm}, ptr {counter}")
        self.branch(self.compare(ast.Lt if step > 0 else ast.Gt, i, stop), body, end)
        self.place(body)
        self.assign(node.target, i)
        self.loop_body(node.body, next_, end)
        self.place(next_)
        i = self.op(start.type, f"load {start.type.llvm}, ptr {counter}")
        i = self.op(start.type, f"add {i}, {self.constant(step, start.type).text}")
        self.emit(f"store {i}, ptr {counter}")
        self.jump(head)
        self.place(end)

    def s_Break(self, node: ast.Break) -> None:
        if not self.loops:
            self.fail("break outside a loop")
        self.jump(self.loops[-1][1])

    def s_Continue(self, node: ast.Continue) -> None:
        if not self.loops:
            self.fail("continue outside a loop")
        self.jump(self.loops[-1][0])

    # ***** the whole *****

    def text(self) -> str:
        """The LLVM definition."""
        node = self.node
        assert isinstance(node, ast.FunctionDef)
        params = []
        for arg, type_ in zip(node.args.args, self.signature.args, strict=True):
            params.append(f"{type_.llvm} %arg.{arg.arg}")
            slot = self.slot(type_, arg.arg)
            self.vars[arg.arg] = (type_, slot)
            self.emit(f"store {type_.llvm} %arg.{arg.arg}, ptr {slot}")
        self.block(node.body)
        if not self.dead:
            self.node = node
            if self.signature.result is not void:
                self.fail("the function can end without returning a value")
            self.emit("ret void")
        linkage = "" if self.exported else "internal "
        attributes = "nounwind" + (" alwaysinline" if self.function.inline and not self.exported else "")
        name = f"{self.signature.result.llvm} @{self.unit.symbol(self.function)}"
        head = f"define {linkage}{name}({', '.join(params)}) {attributes} {{"
        return "\n".join([head, "entry:", *self.entry, *self.body, "}"])
