"""From the syntax of a function to its graph."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight.jit.frontend.calls import Calls
from rushlight.jit.frontend.errors import CompileError, NotSupportedError, Source, UnsupportedNodeError
from rushlight.jit.frontend.matching import converted
from rushlight.jit.frontend.sugared import Items, PythonValue, Raised, Simple, Sugared, builtin_call
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Block, Graph, Location, Value
from rushlight.jit.ir.passes.constants import fold_constants, order_outputs, pool_constants
from rushlight.jit.ir.passes.ssa import convert_to_ssa
from rushlight.jit.ir.passes.tuples import lower_simple_tuples
from rushlight.jit.ir.schemas import Argument, Schema, variants
from rushlight.jit.ir.types import Type

__all__ = ["Emitter", "clean"]

_AUGMENTED = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "remainder", ast.Pow: "pow", ast.BitOr: "__or__",
    ast.BitAnd: "__and__", ast.BitXor: "__xor__", ast.LShift: "__lshift__", ast.RShift: "__rshift__", ast.MatMult: "matmul",
}  # fmt: skip


def _is_meaningful(name: str) -> bool:
    """Whether a variable gives its value a name: `_` and `_1` do not."""
    return name[0] not in "$0123456789" and not (name[0] == "_" and name[1:].isdigit() or name == "_")


class _Frame:
    """The variables that a block gave values: types of those that live in the graph, and things that do not."""

    __slots__ = ("block", "errors", "held", "outer", "types")

    def __init__(self, block: Block, outer: _Frame | None) -> None:
        self.block, self.outer = block, outer
        self.types: dict[str, Type] = {}
        self.held: dict[str, Sugared] = {}
        self.errors: dict[str, str] = {}


class Emitter(Calls):
    """Compiles one function.  `resolver` knows the names that the function does not define."""

    def __init__(self, source: Source, resolver: Any) -> None:
        self.source, self.resolver = source, resolver
        self.graph = Graph()
        self.frame = _Frame(self.graph.block, None)
        self.returns: Type | None = None
        self.returned: list[Type] = []
        self.loops = 0
        self.grad_modes: list[tuple[str, int]] = []  # variables that hold the modes before, and the loops around them
        self.calls: list[Any] = []
        self.function_name = ""

    def at(self, node: Any) -> Location:
        """The place of a node of the syntax."""
        return self.source.at(node)

    # ***** a whole function *****

    def function(
        self, node: ast.FunctionDef, arguments: Sequence[Argument], returns: Type | None, owner: Type | None = None
    ) -> tuple[Graph, Schema]:
        """The graph and the schema of a function whose arguments have these types; `owner` is the type of `self`."""
        self.function_name = node.name
        self.returns = returns
        listed = list(arguments)
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        if owner is not None:
            listed.insert(0, Argument(names[0], owner))
        for argument in listed:
            value = self.graph.block.add_input(argument.type, argument.name)
            if owner is not None and argument is listed[0]:
                self.frame.held[argument.name] = Simple(value)  # a module is no variable of the graph
            else:
                self.set_variable(argument.name, Simple(value), self.at(node))
        self.statements(node.body)
        result = self._finish(node)
        schema = Schema(node.name, "", listed, [Argument("", result)])
        convert_to_ssa(self.graph)
        clean(self.graph)
        return self.graph, schema

    def _finish(self, node: ast.FunctionDef) -> Type:
        """The result: every path ends with a return, or gives None."""
        at = self.at(node)
        falls = not _always_exits(node.body)
        kinds = list(self.returned)
        if falls:
            if self.returns is not None and self.returns != T.NONE and self.returns.name not in ("Optional", "Any"):
                if kinds or self.returns.name != "Union":
                    raise CompileError(
                        "Function was not annotated as having type None, but does not return along all paths", at
                    )
            if kinds and self.returns is None and any(k != T.NONE for k in kinds):
                raise CompileError(
                    "Function was not annotated as having type None, but does not return along all paths", at
                )
            self.graph.location = None
            none = self.graph.constant(None, T.NONE)
            self._return(none, at)
            kinds = self.returned
        result = self.returns
        if result is None:
            result = kinds[0] if kinds else T.NONE
            for kind in kinds[1:]:
                joined = T.unify(result, kind)
                if joined is None:
                    raise CompileError(
                        f"Previous return statement returned a value of type {result.annotation} but this return statement returns a value of type {kind.annotation}",
                        at,
                    )
                result = joined
        last = self.graph.block.nodes[-1] if self.graph.block.nodes else None
        if last is not None and last.kind_ == "prim::ReturnStmt":
            value = last.inputs[0]
            last.destroy()
        else:
            value = self.graph.create("prim::Uninitialized", (), (result,)).outputs[0]
            node_ = value.node
            assert node_ is not None
            self.graph.block.append(node_)
        self.graph.block.add_result(value)
        return result

    def _return(self, value: Value, at: Location) -> None:
        self.returned.append(value.type)
        for name, _ in reversed(self.grad_modes):
            self._restore_grad(name, at)
        self.graph.location = at
        self.graph.insert(self.graph.create("prim::ReturnStmt", [value], ()))

    def _restore_grad(self, name: str, at: Location) -> None:
        before = self.lookup(name, at).value(self, at)
        builtin_call(self, at, "aten::set_grad_enabled", [before], {})

    def _with_grad(self, node: ast.With, enabled: bool, at: Location) -> None:
        """`with torch.no_grad():`"""
        name = f"grad_mode_{len(self.grad_modes)}"
        self.set_variable(name, Simple(builtin_call(self, at, "aten::is_grad_enabled", [], {})), at)
        builtin_call(self, at, "aten::set_grad_enabled", [self.graph.constant(enabled, T.BOOL)], {})
        self.grad_modes.append((name, self.loops))
        self.statements(node.body)
        self.grad_modes.pop()
        if not _always_exits(node.body):
            self._restore_grad(name, at)

    # ***** variables *****

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Build in a block, with variables of its own."""
        at, before = self.graph.at, self.graph.before
        self.graph.at, self.graph.before = block, None
        self.frame = _Frame(block, self.frame)
        try:
            yield
        finally:
            assert self.frame.outer is not None
            self.frame = self.frame.outer
            self.graph.at, self.graph.before = at, before

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Variables of its own, in the same block."""
        frame = self.frame
        types, held, errors = dict(frame.types), dict(frame.held), dict(frame.errors)
        values = {n: self.lookup(n, self.graph.location) for n in types}
        try:
            yield
        finally:
            for name in set(frame.types) - set(types):
                del frame.types[name]
            for name, value in values.items():
                if frame.types.get(name) != types[name] and isinstance(value, Simple):
                    self._store(name, value.inner)
            frame.held, frame.errors = held, errors

    def find(self, name: str) -> tuple[_Frame, Type | Sugared] | None:
        """Where a variable has its value."""
        frame: _Frame | None = self.frame
        while frame is not None:
            if name in frame.types:
                return frame, frame.types[name]
            if name in frame.held:
                return frame, frame.held[name]
            frame = frame.outer
        return None

    def lookup(self, name: str, at: Location | None) -> Sugared:
        """The meaning of a name; CompileError where it has none."""
        found = self.find(name)
        if found is not None:
            meaning = found[1]
            if isinstance(meaning, Sugared):
                return meaning
            return Simple(self.graph.insert(self.graph.load(name, meaning)).outputs[0])
        error = self._error_of(name)
        if error is not None:
            raise CompileError(error, at)
        outside = self.resolver.value(name, at, self)
        if outside is not None:
            return outside
        raise CompileError(f"undefined value {name}", at)

    def _error_of(self, name: str) -> str | None:
        frame: _Frame | None = self.frame
        while frame is not None:
            if name in frame.errors:
                return frame.errors[name]
            frame = frame.outer
        return None

    def _store(self, name: str, value: Value) -> None:
        node = self.graph.create("prim::Store", (value,), ())
        node.attributes["name"] = name
        self.graph.insert(node)
        self.frame.types[name] = value.type
        self.frame.held.pop(name, None)

    def set_variable(
        self, name: str, meaning: Sugared, at: Location | None, annotated: Type | None = None, refining: bool = False
    ) -> None:
        """Give a variable a value; one that an outer block defined keeps its type."""
        if not isinstance(meaning, Simple) and not isinstance(meaning, Items):
            if (
                at is not None
                and self.find(name) is not None
                and self.frame.outer is not None
                and name not in self.frame.held
            ):
                raise CompileError(f"Cannot re-assign '{name}' to a {meaning.kind}", at)
            self.frame.held[name] = meaning
            self.frame.types.pop(name, None)
            return
        if isinstance(meaning, Items):
            if any(not isinstance(p, Simple) for p in meaning.parts):
                self.frame.held[name] = meaning
                return
            assert at is not None
            meaning = Simple(meaning.value(self, at))
        value = meaning.inner
        if not value.name and _is_meaningful(name) and (value.node is None or value.node.block is self.frame.block):
            value.set_name(name)
        outer = self._outer_type(name)
        if isinstance(outer, Type):
            self.graph.insert(self.graph.load(name, outer))  # as PyTorch looks at the type that it had
        if outer is not None and not refining:
            if isinstance(outer, Sugared):
                raise CompileError(
                    f"Cannot re-assign '{name}' because it has type {outer.kind}. Only reassignments to first-class values are allowed",
                    at,
                )
            if annotated is not None:
                raise CompileError(
                    f"Attempting to declare and annotate the type of variable '{name}' that is already defined in an outer block",
                    at,
                )
            value = converted(self.graph, outer, value, True)
            if not T.is_subtype(value.type, outer):
                raise CompileError(
                    f"Variable '{name}' previously had type {outer.annotation} but is now being assigned to a value of type {value.type.annotation}",
                    at,
                )
            if self.loops and value.type != outer and self._crosses_loop(name):
                value = self._widened(value, outer)
        elif annotated is not None and not refining:
            value = converted(self.graph, annotated, value, True)
            if not T.is_subtype(value.type, annotated):
                raise CompileError(
                    f"Variable '{name}' is annotated with type {annotated.annotation} but is being assigned to a value of type {value.type.annotation}",
                    at,
                )
            if value.type != annotated:
                value = self._widened(value, annotated)
        self._store(name, value)

    def _widened(self, value: Value, kind: Type) -> Value:
        """A value as one of a wider type."""
        if value.type == T.NONE and kind.name == "Optional":
            pass
        return self.graph.op("prim::unchecked_cast", [value], kind) if value.type != kind else value

    def _crosses_loop(self, name: str) -> bool:
        frame: _Frame | None = self.frame
        while frame is not None and name not in frame.types:
            owner = frame.block.owner
            if owner is not None and owner.kind_ == "prim::Loop":
                return True
            frame = frame.outer
        return False

    def _outer_type(self, name: str) -> Any:
        frame = self.frame.outer
        while frame is not None:
            if name in frame.types:
                return frame.types[name]
            if name in frame.held:
                return frame.held[name]
            frame = frame.outer
        return None

    # ***** statements *****

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Compile statements; what follows an exit is left out."""
        for node in body:
            handler = getattr(self, f"_stmt_{type(node).__name__}", None)
            if handler is None:
                raise UnsupportedNodeError(f"{_spoken(node)} aren't supported", self.at(node))
            handler(node)
            if isinstance(node, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
                return

    def _stmt_Pass(self, node: ast.Pass) -> None:
        pass

    def _stmt_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        self.sugared(node.value)

    def _stmt_Return(self, node: ast.Return) -> None:
        at = self.at(node)
        if node.value is None:
            value = self.graph.constant(None, T.NONE)
        else:
            value = self.expr(node.value, self.returns)
        if self.returns is not None:
            value = converted(self.graph, self.returns, value, True) if self.returns != T.ANY else value
            if not T.is_subtype(value.type, self.returns):
                raise CompileError(
                    f"Return value was annotated as having type {self.returns.annotation} but is actually of type {value.type.annotation}",
                    at,
                )
        self._return(value, at)

    def _stmt_Assign(self, node: ast.Assign) -> None:
        first = node.targets[0]
        meaning = self.sugared(node.value)
        if len(node.targets) > 1 and not isinstance(meaning, Simple):
            meaning = Simple(meaning.value(self, self.at(node.value)))
        del first
        for target in node.targets:
            self.assign(target, meaning)

    def assign(self, target: ast.expr, meaning: Sugared) -> None:
        """Give a target a value."""
        at = self.at(target)
        if isinstance(target, ast.Name):
            if isinstance(meaning, PythonValue):
                meaning.value(self, at)
            self.set_variable(target.id, meaning, at)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, meaning, at)
        elif isinstance(target, ast.Attribute):
            self._set_attribute(target, meaning.value(self, at), at)
        elif isinstance(target, ast.Subscript):
            self._set_item(target, meaning.value(self, at), at)
        else:
            raise NotSupportedError(f"{type(target).__name__} as a target of an assignment isn't supported", at)

    def _unpack(self, target: ast.Tuple | ast.List, meaning: Sugared, at: Location) -> None:
        targets = target.elts
        stars = [i for i, t in enumerate(targets) if isinstance(t, ast.Starred)]
        if isinstance(meaning, Simple) and meaning.inner.type.name == "List":
            if stars:
                raise CompileError("Starred unpacking of lists isn't supported: the number of elements isn't known", at)
            kind = meaning.inner.type.inner[0]
            made = self.graph.insert(self.graph.create("prim::ListUnpack", [meaning.inner], [kind] * len(targets)))
            parts: list[Sugared] = [Simple(v) for v in made.outputs]
        else:
            found = meaning.items(self, at)
            if found is None:
                raise CompileError(f"{meaning.kind} cannot be used as a tuple", at)
            parts = found
        if stars:
            where, after = stars[0], len(targets) - stars[0] - 1
            if len(parts) < len(targets) - 1:
                raise CompileError(f"need at least {len(targets) - 1} values to unpack but found {len(parts)}", at)
            middle = Items(parts[where : len(parts) - after])
            parts = [*parts[:where], middle, *parts[len(parts) - after :]]
            targets = [t.value if isinstance(t, ast.Starred) else t for t in targets]
        if len(parts) != len(targets):
            wrong = "need" if len(parts) < len(targets) else "too many values to unpack: need"
            raise CompileError(f"{wrong} {len(targets)} values but found {len(parts)}", at)
        for each, part in zip(targets, parts, strict=True):
            self.assign(each, part)

    def _set_attribute(self, target: ast.Attribute, value: Value, at: Location) -> None:
        owner = self.sugared(target.value)
        if not isinstance(owner, Simple) or not isinstance(owner.inner.type, T.ClassType):
            raise CompileError(f"Tried to set an attribute: {target.attr} on a non-class: {owner.kind}", at)
        kind = owner.inner.type
        if target.attr in kind.properties:
            setter = kind.properties[target.attr][1]
            if setter is None:
                raise CompileError(f"Tried to set read-only attribute: {target.attr}", at)
            Simple(owner.inner).attr(self, at, setter).call(self, at, [value], {})
            return
        wanted = kind.attributes.get(target.attr)
        if wanted is None:
            if self.function_name != "__init__" or kind.is_module:
                raise CompileError(
                    f"Tried to set nonexistent attribute: {target.attr}. Did you forget to initialize it in __init__()?",
                    at,
                )
            if self.frame.outer is not None:
                raise CompileError(
                    "First assignment cannot be in a control-flow block. Initialize the field at the top level first",
                    at,
                )
            kind.attributes[target.attr] = wanted = value.type
        self.graph.location = at
        value = converted(self.graph, wanted, value, True)
        if not T.is_subtype(value.type, wanted):
            raise CompileError(
                f"Wrong type for attribute assignment. Expected {wanted.annotation} but got {value.type.annotation}", at
            )
        node = self.graph.create("prim::SetAttr", [owner.inner, value], ())
        node.attributes["name"] = target.attr
        self.graph.insert(node)

    def _set_item(self, target: ast.Subscript, value: Value, at: Location) -> None:
        base = self.expr(target.value)
        if base.type == T.TENSOR:
            self.store_index(base, target.slice, value, at)
            return
        if isinstance(base.type, T.ClassType):
            Simple(base).attr(self, at, "__setitem__").call(self, at, [self.expr(target.slice), value], {})
            return
        if base.type.name == "Tuple":
            raise CompileError(f"{base.type.annotation} does not support subscripted assignment", at)
        if self.slice_of(target.slice) is not None:
            raise CompileError("Sliced assignment to lists isn't supported", at)
        index = self.expr(target.slice)
        self.graph.location = at
        builtin_call(self, at, "aten::_set_item", [base, index, value], {})

    def _stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        at = self.at(node)
        kind = self.type_expression(node.annotation)
        if node.value is None:
            return
        value = self.expr(node.value, kind)
        if isinstance(node.target, ast.Name):
            if self._outer_type(node.target.id) is not None and self._outer_type(node.target.id) == kind:
                self.set_variable(node.target.id, Simple(value), at)
            else:
                self.set_variable(node.target.id, Simple(value), at, annotated=kind)
            return
        value = self.convert(value, kind, at, "annotated assignment")
        self.assign(node.target, Simple(value))

    def _stmt_AugAssign(self, node: ast.AugAssign) -> None:
        at = self.at(node)
        name = _AUGMENTED[type(node.op)]
        target = node.target
        if isinstance(target, ast.Subscript):
            self._augment_item(target, name, node, at)
            return
        current = self.expr(target)
        value = self.expr(node.value)
        self.graph.location = at
        if current.type == T.TENSOR:
            self._in_place(name, current, value, target, at)
            return
        if current.type.name == "List" and name == "add":
            made = builtin_call(self, at, "aten::add_", [current, value], {})
        elif isinstance(current.type, T.ClassType):
            kind = current.type
            magic = {"add": "__iadd__", "sub": "__isub__", "mul": "__imul__", "div": "__itruediv__"}.get(name, "")
            if kind.find_method(magic) is not None:
                made = Simple(current).attr(self, at, magic).call(self, at, [value], {}).value(self, at)
            else:
                made = self.binary(name, current, value, at)
        else:
            made = self.binary(name, current, value, at)
        self.assign(target, Simple(made))

    def _in_place(self, name: str, current: Value, value: Value, target: ast.expr, at: Location) -> None:
        words = {
            "floordiv": "floor_divide_", "__or__": "bitwise_or_", "__and__": "bitwise_and_", "__xor__": "bitwise_xor_", "__lshift__": "__ilshift__",
            "__rshift__": "__irshift__",
        }  # fmt: skip
        if name == "matmul":
            self.assign(target, Simple(self.binary(name, current, value, at)))
            return
        made = self.operator(at, f"aten::{words.get(name, name + '_')}", [current, value], {})
        if isinstance(target, ast.Name):
            self.set_variable(target.id, Simple(made), at)
        else:
            self.assign(target, Simple(made))

    def _augment_item(self, target: ast.Subscript, name: str, node: ast.AugAssign, at: Location) -> None:
        base = self.expr(target.value)
        if base.type == T.TENSOR:
            part, tensors = self.index_parts(base, target.slice, at)
            if any(t is not None for t in tensors):
                current = self.tensor_index(base, target.slice, at)
                made = self.binary(name, current, self.expr(node.value), at)
                self.store_index(base, target.slice, made, at)
                return
            value = self.expr(node.value)
            self.operator(at, f"aten::{'floor_divide' if name == 'floordiv' else name}_", [part, value], {})
            return
        index = self.expr(target.slice)
        self.graph.location = at
        current = builtin_call(self, at, "aten::__getitem__", [base, index], {})
        made = self.binary(name, current, self.expr(node.value), at)
        builtin_call(self, at, "aten::_set_item", [base, index, made], {})

    def _stmt_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Subscript):
                if isinstance(target, ast.Name):
                    self._forget(target.id, self.at(target))
                    continue
                raise NotSupportedError(
                    "del statements are only supported for deleting items of lists and dicts", self.at(node)
                )
            base, index = self.expr(target.value), self.expr(target.slice)
            if isinstance(base.type, T.ClassType):
                Simple(base).attr(self, self.at(node), "__delitem__").call(self, self.at(node), [index], {})
                continue
            builtin_call(self, self.at(node), "aten::Delete", [base, index], {})

    def _forget(self, name: str, at: Location) -> None:
        """A variable has no value from here on."""
        if self.find(name) is None:
            raise CompileError(f"undefined value {name}", at)
        self.frame.held.pop(name, None)
        self.frame.types.pop(name, None)
        self.frame.errors[name] = f"undefined value {name}"

    # ***** control flow *****

    def _stmt_If(self, node: ast.If) -> None:
        condition = self.condition(node.test)
        if condition.static is not None:
            with self.refined(condition, condition.static):
                self.statements(node.body if condition.static else node.orelse)
            return
        self.graph.location = self.at(node)
        made = self.graph.insert(self.graph.create("prim::If", [condition.value], ()))
        frames = []
        for body, positive in ((node.body, True), (node.orelse, False)):
            with self.inside(made.add_block()), self.refined(condition, positive):
                self.statements(body)
                frames.append(self.frame)
        self._merge(node, frames, [_always_exits(node.body), _always_exits(node.orelse)])

    def _merge(self, node: ast.If, frames: list[_Frame], exits: list[bool]) -> None:
        """Types of variables behind an if; those that one branch leaves without a value cannot be used."""
        names = dict.fromkeys(n for f in frames for n in f.types)
        for name in names:
            kinds = []
            for frame in frames:
                kinds.append(frame.types.get(name) or self._type_before(name))
            # A branch that is left says nothing about what is behind it.
            if exits[0] != exits[1]:
                kept = kinds[1 if exits[0] else 0]
                if kept is None:
                    self.frame.errors[name] = f"{name} is not defined in the {'false' if exits[0] else 'true'} branch"
                    continue
                left = frames[0 if exits[0] else 1]
                self._store_unset(left, name, kept)
                self.frame.types[name] = kept
                self.frame.held.pop(name, None)
                continue
            if kinds[0] is None or kinds[1] is None:
                which = "true" if kinds[0] is None else "false"
                self.frame.errors[name] = f"{name} is not defined in the {which} branch"
                continue
            joined = T.unify(kinds[0], kinds[1])
            if joined is None:
                self.frame.errors[name] = (
                    f"Type mismatch: {name} is set to type {kinds[0].annotation} in the true branch and type {kinds[1].annotation} in the false branch"
                )
                self.frame.types.pop(name, None)
                continue
            self.frame.types[name] = joined
            self.frame.held.pop(name, None)

    def _store_unset(self, frame: _Frame, name: str, kind: Type) -> None:
        """In a branch that is always left, a variable that the other branch sets has no value."""
        if frame.types.get(name) == kind and name in frame.types:
            return
        unset = self.graph.create("prim::Uninitialized", (), (kind,))
        store = self.graph.create("prim::Store", (unset.outputs[0],), ())
        store.attributes["name"] = name
        frame.block.append(unset)
        frame.block.append(store)

    def _type_before(self, name: str) -> Type | None:
        found = self.find(name)
        return found[1] if found is not None and isinstance(found[1], Type) else None

    def _stmt_While(self, node: ast.While) -> None:
        if node.orelse:
            raise NotSupportedError("else branches of while loops aren't supported", self.at(node))
        self.loop_node(self.at(node), None, node.test, lambda _: self.statements(node.body))

    def _stmt_For(self, node: ast.For) -> None:
        at = self.at(node)
        if node.orelse:
            raise NotSupportedError("else branches of for loops aren't supported", at)
        iterable = self.iterable(node.iter)
        if iterable.static is not None:
            if any(isinstance(n, (ast.Break, ast.Continue)) for n in _own_nodes(node.body)):
                raise NotSupportedError(
                    "break and continue in loops that are unrolled (over modules or tuples) aren't supported", at
                )
            for item in iterable.static:
                self.assign(node.target, item)
                self.statements(node.body)
            return
        self.loop(self.at(node), iterable, node.target, lambda: self.statements(node.body))

    def loop(self, at: Location, iterable: Any, target: ast.expr, body: Callable[[], None]) -> None:
        """A loop over something whose length is known when it runs."""
        self.graph.location = at
        count = iterable.length(self, at)

        def each(index: Value) -> None:
            self.graph.location = at
            self.assign(target, iterable.item(self, at, index))
            body()

        if isinstance(target, ast.Name) and iterable.plain:

            def each(index: Value) -> None:
                index.set_name(target.id)
                self.set_variable(target.id, Simple(index), at)
                body()

        self.loop_node(at, count, None, each)

    def loop_node(
        self, at: Location, count: Value | None, test: ast.expr | None, body: Callable[[Value], None]
    ) -> None:
        """`prim::Loop`: at most `count` times, while `test` holds."""
        self.graph.location = at
        if count is None:
            count = self.graph.literal(2**63 - 1, T.INT)
        always = [self.graph.constant(True, T.BOOL)] if test is None else []
        # The second is the first condition, once it is known
        node = self.graph.create("prim::Loop", [count, count], ())
        condition = Block(self.graph, node)
        node.attributes["condition"] = condition
        told = None
        with self.inside(condition):
            if test is None:
                condition.set_results(always)
            else:
                told = self.condition(test)
                condition.add_result(told.value)
        self.graph.location = at
        self.graph.insert(node)
        block = node.add_block()
        index = block.add_input(T.INT)
        self.loops += 1
        with self.inside(block):
            if told is not None:
                with self.refined(told, True):
                    body(index)
            else:
                body(index)
        self.loops -= 1

    def _stmt_Break(self, node: ast.Break) -> None:
        self._leave("prim::BreakStmt", node)

    def _stmt_Continue(self, node: ast.Continue) -> None:
        self._leave("prim::ContinueStmt", node)

    def _leave(self, kind: str, node: ast.stmt) -> None:
        if not self.loops:
            raise CompileError("break statement must be within a loop", self.at(node))
        if any(loops == self.loops for _, loops in self.grad_modes):
            raise NotSupportedError("break and continue out of torch.no_grad() aren't supported", self.at(node))
        self.graph.location = self.at(node)
        self.graph.insert(self.graph.create(kind, (), ()))

    def _stmt_Assert(self, node: ast.Assert) -> None:
        at = self.at(node)
        condition = self.condition(node.test)
        if condition.static is True:
            return
        self.graph.location = at
        made = self.graph.insert(self.graph.create("prim::If", [condition.value], ()))
        made.add_block()
        with self.inside(made.add_block()):
            message = self._assertion(node, at)
            self._raise(message, self.graph.constant(None, T.NONE), at)
        for name, kind in condition.positive.items():
            self.refine(name, kind)

    def _assertion(self, node: ast.Assert, at: Location) -> Value:
        if node.msg is None:
            return self.graph.constant("AssertionError: ", T.STR)
        message = self.expr(node.msg)
        if message.type != T.STR:
            message = builtin_call(self, at, "aten::str", [message], {})
        prefix = self.graph.constant("AssertionError: ", T.STR)
        return builtin_call(self, at, "aten::add", [prefix, message], {})

    def _raise(self, message: Value, name: Value, at: Location) -> None:
        self.graph.location = at
        node = self.graph.create("prim::RaiseException", [message, name], ())
        node.schema = variants("prim::RaiseException")[0]
        self.graph.insert(node)

    def _stmt_Raise(self, node: ast.Raise) -> None:
        at = self.at(node)
        if node.exc is None:
            raise NotSupportedError("raise without an exception isn't supported", at)
        held = self.sugared(node.exc)
        if not isinstance(held, Raised):
            held = held.call(self, at, [], {})
        if not isinstance(held, Raised):
            raise CompileError("The type of the raised value is not an exception", at)
        self.graph.location = at
        if not held.args:
            message = self.graph.constant("", T.STR)
        elif len(held.args) == 1:
            message = held.args[0]
            if message.type != T.STR:
                message = builtin_call(self, at, "aten::str", [message], {})
        else:
            joined = self.graph.op("prim::TupleConstruct", held.args, T.tuple_of(*[v.type for v in held.args]))
            message = builtin_call(self, at, "aten::str", [joined], {})
        self._raise(message, self.graph.constant(held.name, T.STR), at)

    def _stmt_With(self, node: ast.With) -> None:
        at = self.at(node)
        first = node.items[0].context_expr
        mode = self.special_name(first.func) if isinstance(first, ast.Call) else None
        if mode in ("no_grad", "enable_grad") and len(node.items) == 1:
            self._with_grad(node, mode == "enable_grad", at)
            return
        self._entered(node, 0)

    def _entered(self, node: ast.With, place: int) -> None:
        """The body of a `with` behind the objects from this place on: each is left wherever the body is."""
        if place == len(node.items):
            self.statements(node.body)
            return
        item, at = node.items[place], self.at(node)
        value = self.expr(item.context_expr)
        kind = value.type
        if (
            not isinstance(kind, T.ClassType)
            or kind.find_method("__enter__") is None
            or kind.find_method("__exit__") is None
        ):
            raise CompileError("with item expression must return an object with __enter__ and __exit__", at)
        self.graph.location = at
        found = self.graph.op("prim::Enter", [value], kind.find_method("__enter__").schema.returns[0].type)
        if item.optional_vars is not None:
            self.assign(item.optional_vars, Simple(found))
        made = self.graph.insert(self.graph.create("prim::With", [], ()))
        body, leave = made.add_block(), made.add_block()
        with self.inside(body):
            self._entered(node, place + 1)
            frame = self.frame
        with self.inside(leave):
            self.graph.location = at
            self.graph.insert(self.graph.create("prim::Exit", [value], (T.ANY,)))
        self.frame.types |= frame.types
        self.frame.held |= frame.held
        self.frame.errors |= frame.errors


def _own_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    for node in body:
        yield node
        if isinstance(node, (ast.For, ast.While)):
            continue
        for name in ("body", "orelse"):
            yield from _own_nodes(getattr(node, name, ()))


def _always_exits(body: Sequence[ast.stmt]) -> bool:
    """Whether no path leads behind these statements."""
    for node in body:
        if isinstance(node, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            return True
        if isinstance(node, ast.If) and node.orelse and _always_exits(node.body) and _always_exits(node.orelse):
            return True
        if isinstance(node, ast.With) and _always_exits(node.body):
            return True
    return False


_SPOKEN = {"Try": "try blocks", "FunctionDef": "function definitions", "ClassDef": "class definitions", "AsyncFunctionDef": "async function definitions",
           "Global": "global variables", "Nonlocal": "nonlocal variables", "Import": "import statements", "ImportFrom": "import statements",
           "Match": "match statements"}  # fmt: skip


def _spoken(node: ast.stmt) -> str:
    return _SPOKEN.get(type(node).__name__, type(node).__name__)


def clean(graph: Graph) -> None:
    """The passes that follow every compilation."""
    lower_simple_tuples(graph)
    fold_constants(graph)
    pool_constants(graph)
    order_outputs(graph)
