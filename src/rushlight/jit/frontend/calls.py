"""Calls: of functions, methods and modules, and the special forms that get syntax instead of values."""

from __future__ import annotations

import ast
from typing import Any

from rushlight.jit.frontend.errors import CompileError, FrontendError, NotSupportedError, own_place, stays_python
from rushlight.jit.frontend.expressions import Expressions
from rushlight.jit.frontend.iterables import Iterable, Range, Static, Tree, counter, elements
from rushlight.jit.frontend.matching import match_schemas
from rushlight.jit.frontend.sugared import (
    Given,
    Items,
    KnownKeys,
    Methods,
    New,
    NoneValue,
    Simple,
    SliceParts,
    Special,
    Sugared,
    builtin_call,
)
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Location, Value
from rushlight.jit.ir.passes.constants import constant_of, is_constant
from rushlight.jit.ir.types import Type
from rushlight.jit.runtime.constants import number_of
from rushlight.jit.runtime.objects import enum_class

__all__ = ["Calls"]


class Calls(Expressions):
    """The part of the emitter that is about calls."""

    resolver: Any
    calls: list[Any]

    def special_name(self, node: ast.expr) -> str | None:
        """The name of the special form that an expression stands for; None for none."""
        if isinstance(node, ast.Name) and self.find(node.id) is not None:
            return None
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        try:
            held = self.sugared(node) if isinstance(node, ast.Name) or _dotted(node) else None
        except (CompileError, FrontendError):
            return None
        return held.name if isinstance(held, Special) else None

    def _expr_Call(self, node: ast.Call, hint: Type | None) -> Sugared:
        at = self.at(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "tolist" and not node.args:
            return self._tolist(node.func, hint, at)
        callee = self.sugared(node.func)
        if isinstance(callee, Special):
            return self._special(callee, node, hint, at)
        args = [] if isinstance(callee, New) else self.many(node.args, None)
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise NotSupportedError("keyword-arg expansion is not supported", at)
            kwargs[keyword.arg] = self.expr(keyword.value)
        self.graph.location = at
        return callee.call(self, at, args, kwargs)

    def _tolist(self, node: ast.Attribute, hint: Type | None, at: Location) -> Sugared:
        value = self.expr(node.value)
        if value.type != T.TENSOR:
            raise CompileError(f"'{value.type.annotation}' object has no attribute or method 'tolist'.", at)
        if hint is None:
            raise CompileError("Expected type hint for result of tolist()", at)
        self.graph.location = at
        return Simple(self.graph.op("prim::tolist", [value], hint))

    def compile_called(self, function: Any, at: Location) -> None:
        """Compile a function that is called; errors tell from where."""
        try:
            function.schema  # noqa: B018
        except CompileError:
            raise
        except RecursionError as error:
            raise CompileError(str(error), at) from None

    # ***** special forms *****

    def _special(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        handler = getattr(self, f"_form_{special.name}", None)
        if handler is None:
            raise NotSupportedError(f"{special.name} isn't supported in scripts", at)
        return handler(special, node, hint, at)

    def _form_isinstance(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        return Simple(self.condition(node).value)

    _form_hasattr = _form_is_scripting = _form_is_tracing = _form_is_compiling = _form_isinstance

    def _form_annotate(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        if len(node.args) != 2:
            raise CompileError(f"expected two arguments to attribute but found {len(node.args)}", at)
        kind = self.type_expression(node.args[0])
        value = self.expr(node.args[1], kind)
        value = self.convert(value, kind, at, "annotate")
        if value.type == T.NONE and kind.name in ("Optional", "Union"):  # an attribute takes the annotated type
            self.graph.location = at
            return Simple(self.graph.op("prim::unchecked_cast", [value], kind))
        return Simple(value)

    def _form_unchecked_cast(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        kind = self.type_expression(node.args[0])
        value = self.expr(node.args[1])
        self.graph.location = at
        return Simple(self.graph.op("prim::unchecked_cast", [value], kind))

    def _form_uninitialized(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        kind = self.type_expression(node.args[0])
        self.graph.location = at
        return Simple(self.graph.op("prim::Uninitialized", [], kind))

    def _form_getattr(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        value = self.expr(node.args[1]) if len(node.args) > 1 else None
        if value is None or not is_constant(value) or not isinstance(constant_of(value), str):
            raise CompileError("getattr's second argument must be a string literal", at)
        name = constant_of(value)
        held = self.sugared(node.args[0])
        if len(node.args) == 3 and not self.has_attribute(node):
            return self.sugared(node.args[2])
        return held.attr(self, at, name)

    def _form_print(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        values = self.many(node.args, None)
        self.graph.location = at
        self.graph.insert(self.graph.create("prim::Print", values, ()))
        return NoneValue()

    def _form_warn(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        level = next((k.value for k in node.keywords if k.arg == "stacklevel"), None)
        values = [self.expr(node.args[0])]
        if values[0].type != T.STR:
            values = [builtin_call(self, at, "aten::str", values, {})]
        values.append(self.graph.constant(2, T.INT) if level is None else self.expr(level))
        self.graph.location = at
        return Simple(builtin_call(self, at, "aten::warn", values, {}))

    def _form_check(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        """An assertion, as in PyTorch's scripts; its message may be a function without arguments, as in eager programs."""
        given = dict(zip(("cond", "message"), node.args, strict=False)) | {k.arg or "": k.value for k in node.keywords}
        if not 1 <= len(node.args) + len(node.keywords) <= 2:
            count = len(node.args) + len(node.keywords)
            raise CompileError(f"torch._check() expects 1 or 2 arguments, got {count}", at)
        if "cond" not in given or given.keys() - {"cond", "message"}:
            raise CompileError("torch._check() takes cond and message", at)
        message = given.get("message")
        if isinstance(message, ast.Lambda):
            message = message.body
        if isinstance(message, ast.Constant) and message.value is None:
            message = None
        made = ast.copy_location(ast.Assert(given["cond"], message), node)
        self.statements([made])  # type: ignore[attr-defined]
        return NoneValue()

    def _form_legacy_tensor(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        """`torch.FloatTensor(data)`, and of sizes."""
        values = [self.expr(a) for a in node.args]
        if node.keywords:
            raise CompileError("tensors of a type are made of data, or of sizes", at)
        self.graph.location = at
        dtype = {"dtype": self.graph.constant(number_of(special.payload), T.INT)}
        if len(values) == 1 and values[0].type.name in ("List", "Tuple"):
            return Simple(builtin_call(self, at, "aten::tensor", values, dtype))
        sizes = self.graph.op("prim::ListConstruct", values, T.list_of(T.INT))
        return Simple(builtin_call(self, at, "aten::empty", [sizes], dtype))

    def _form_record_function(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        """A named part of a program, for `with`."""
        values = self.many(node.args, None)
        kwargs = {k.arg: self.expr(k.value) for k in node.keywords if k.arg is not None}
        function, schema, kind = special.payload
        matched = match_schemas(self.graph, [schema], values, kwargs, at)
        self.graph.location = at
        return Simple(self.graph.op("prim::PythonOp", matched.inputs, kind, function=function, name="record_function"))

    def _form_tuple(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        if not node.args:
            return Items([])
        parts = self.sugared(node.args[0]).items(self, at)
        if parts is None:
            raise CompileError("cannot make a tuple of a value whose length is not known", at)
        return Simple(Items(parts).value(self, at))

    def _form_list(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        wanted = hint.inner[0] if hint is not None and hint.name == "List" else None
        if not node.args:
            return Simple(self.list_of_values([], wanted, at))
        held = self.sugared(node.args[0])
        if isinstance(held, Simple) and held.inner.type.name == "List":
            return Simple(builtin_call(self, at, "aten::list", [held.inner], {}))
        if isinstance(held, Simple) and held.inner.type == T.STR:
            return Simple(builtin_call(self, at, "aten::list", [held.inner], {}))
        iterable = elements(self, held, at)
        if iterable.static is not None:
            return Simple(self.list_of_values([p.value(self, at) for p in iterable.static], wanted, at))
        made = self.graph.op("prim::ListConstruct", [], T.list_of(wanted or T.TENSOR))

        def body() -> None:
            item = self.expr(ast.copy_location(ast.Name("_item", ast.Load()), node))
            made.type = T.list_of(wanted or item.type)
            builtin_call(self, at, "aten::append", [made, item], {})

        with self.scope():
            self.loop(at, iterable, ast.copy_location(ast.Name("_item", ast.Store()), node), body)
        return Simple(made)

    def _form_dict(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        if not node.args:
            keys = [ast.copy_location(ast.Constant(k.arg), node) for k in node.keywords]
            made = ast.copy_location(ast.Dict(list(keys), [k.value for k in node.keywords]), node)
            return self.sugared(made, hint)
        if node.keywords:
            base = ast.copy_location(ast.Call(node.func, node.args, []), node)
            made_ = self.expr(base, hint)
            for keyword in node.keywords:
                key = self.graph.constant(keyword.arg, T.STR)
                builtin_call(self, at, "aten::_set_item", [made_, key, self.expr(keyword.value)], {})
            return Simple(made_)
        if isinstance(node.args[0], ast.DictComp):
            return self.sugared(node.args[0], hint)
        if isinstance(node.args[0], (ast.List, ast.Tuple)) and all(
            isinstance(n, (ast.Tuple, ast.List)) for n in node.args[0].elts
        ):
            pairs: list[Any] = list(node.args[0].elts)
            made = ast.copy_location(ast.Dict([p.elts[0] for p in pairs], [p.elts[1] for p in pairs]), node)
            return self.sugared(made, hint)
        held = self.sugared(node.args[0], hint)
        if not isinstance(held, Simple):
            return self._dict_of_pairs(node, held, hint, at)
        return Simple(builtin_call(self, at, "aten::dict", [held.inner], {}))

    def _dict_of_pairs(self, node: ast.Call, held: Sugared, hint: Type | None, at: Location) -> Sugared:
        """`dict(zip(keys, values))`."""
        made = self.graph.op("prim::DictConstruct", [], hint or T.dict_of(T.STR, T.TENSOR))
        pair = ast.Tuple([ast.Name("_key", ast.Store()), ast.Name("_value", ast.Store())], ast.Store())
        for each in ast.walk(pair):
            ast.copy_location(each, node)

        def body() -> None:
            key, value = (self.lookup(name, at).value(self, at) for name in ("_key", "_value"))
            if hint is None:
                made.type = T.dict_of(key.type, value.type)
            builtin_call(self, at, "aten::_set_item", [made, key, value], {})

        iterable = elements(self, held, at)
        with self.scope():
            if iterable.static is None:
                self.loop(at, iterable, pair, body)
            for item in iterable.static or ():
                self.assign(pair, item)
                body()
        return Simple(made)

    def _form_range(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        return Range(self, at, self.many(node.args, None))

    def _form_enumerate(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        start = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "start"), None)
        first = None if start is None else self.expr(start)
        return self._tree([counter(self, first), self.iterable(node.args[0])], at)

    def _form_zip(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        return self._tree([self.iterable(n) for n in node.args], at)

    def _tree(self, parts: list[Iterable], at: Location) -> Tree:
        try:
            return Tree(parts)
        except CompileError as error:
            raise CompileError(error.plain, at) from None

    def _form_reversed(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        held = self.sugared(node.args[0])
        known = held.items(self, at)
        if known is not None:
            return Static(list(reversed(known)))
        if isinstance(held, Range):
            raise NotSupportedError("reversed of a range isn't supported: give range a negative step", at)
        copy = builtin_call(self, at, "aten::list", [held.value(self, at)], {})
        builtin_call(self, at, "aten::reverse", [copy], {})
        return Simple(copy)

    def _form_iter(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        raise NotSupportedError("iter isn't supported in scripts", at)

    def _form_slice(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        if not 1 <= len(node.args) <= 3 or node.keywords:
            raise CompileError(f"slice expected at least 1 and at most 3 arguments, got {len(node.args)}", at)
        parts = [None if isinstance(a, ast.Constant) and a.value is None else self.expr(a) for a in node.args]
        lower, upper, step = [None, *parts, None] if len(parts) == 1 else [*parts, None][:3]
        return SliceParts(lower, upper, step)

    def _form_type(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        raise NotSupportedError("type() isn't supported in scripts: use isinstance", at)

    def _form_super(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        found = self.resolver.parent(self, at)
        if found is None:
            raise CompileError("super() is only supported in methods of modules and classes", at)
        return found

    def _form_fork(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        return self._task("prim::fork", T.future_of, node, at)

    def _form_awaitable(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        return self._task("prim::awaitable", T.await_of, node, at)

    def _task(self, kind: str, made_of: Any, node: ast.Call, at: Location) -> Sugared:
        """A call that is made beside what follows, or later: a block of its own."""
        callee = self.sugared(node.args[0])
        args = self.many(node.args[1:], None)
        kwargs = {k.arg: self.expr(k.value) for k in node.keywords if k.arg is not None}
        self.graph.location = at
        made = self.graph.create(kind, [], ())
        block = made.add_block()
        with self.inside(block):
            value = callee.call(self, at, args, kwargs).value(self, at)
            block.add_result(value)
        self.graph.insert(made)
        return Simple(made.add_output(made_of(value.type)))

    def _form_wait(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        value = self.expr(node.args[0])
        self.graph.location = at
        return Simple(builtin_call(self, at, "aten::wait", [value], {}))

    def _form_value_of_module(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        raise NotSupportedError("modules cannot be made in scripts", at)

    def _form_unused(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        """A function that must not be called: calling it raises."""
        text = self.graph.constant("Exception: Unused function: this function was marked as unused", T.STR)
        self._raise(text, self.graph.constant("builtins.NotImplementedError", T.STR), at)  # type: ignore[attr-defined]
        return Simple(self.graph.op("prim::Uninitialized", [], special.payload))

    def _form_boolean_dispatch(self, special: Special, node: ast.Call, hint: Type | None, at: Location) -> Sugared:
        raise NotSupportedError("boolean dispatch with this argument isn't supported", at)

    # ***** loops *****

    def iterable(self, node: ast.expr) -> Iterable:
        """The items of a loop."""
        held = self.sugared(node)
        self.graph.location = self.at(node)
        return elements(self, held, self.at(node))

    # ***** modules and classes: what the resolver knows *****

    def module_attribute(self, owner: Value, kind: T.ClassType, name: str, at: Location) -> Sugared:
        """An attribute of an object."""
        self.graph.location = at
        value = self.graph.op("prim::GetAttr", [owner], kind.attributes[name], name=name)
        value.set_name(f"_{name}" if name[0].isdigit() else name)
        return Simple(value)

    def raw_attribute(self, owner: Value, kind: T.ClassType, name: str, at: Location) -> Sugared | None:
        """Members of a class that are no attributes: functions, ignored methods, modules of Python."""
        if name not in kind.raw:
            return None
        held = kind.raw[name]
        modifier = getattr(held, "_torchscript_modifier", "")
        if (modifier.startswith(("ignore", "unused")) or stays_python(held)) and not hasattr(held, "__self__"):
            return self.resolver.ignored(held, owner)
        return self.resolver.python_value(held, at, self)

    def static_method(self, kind: T.ClassType, name: str) -> Sugared | None:
        """A static method of a class."""
        return self.resolver.static_method(kind, name, self)

    def python_attribute(self, held: Any, name: str, at: Location) -> Sugared:
        """An attribute of a Python object."""
        return self.resolver.attribute(held, name, at, self)

    def enum_member(self, kind: T.EnumType, name: str) -> Any:
        """A member of an enumeration."""
        return enum_class(kind)[name]

    def type_expression(self, node: ast.expr) -> Any:
        """The type that an expression stands for."""
        return self.resolver.type(node, self.at(node))

    def call_module(
        self, owner: Value, kind: Any, at: Location, args: list[Value], kwargs: dict[str, Value]
    ) -> Sugared:
        """A call of a module: its hooks, its `forward`."""
        if isinstance(kind, T.InterfaceType):
            return Methods(owner, ["forward"]).call(self, at, args, kwargs)
        given = args
        if kind.pre_hooks:
            given = self._pre_hooks(owner, kind, given, at)
        result = Simple(owner).attr(self, at, "forward").call(self, at, given, kwargs)
        for name in kind.forward_hooks:
            packed = Items([Simple(v) for v in given]).value(self, at)
            found = Methods(owner, [name]).call(self, at, [packed, result.value(self, at)], {})
            if found.value(self, at).type != T.NONE:
                result = found
        return result

    def _pre_hooks(self, owner: Value, kind: T.ClassType, args: list[Value], at: Location) -> list[Value]:
        for name in kind.pre_hooks:
            packed = Items([Simple(v) for v in args]).value(self, at)
            found = Methods(owner, [name]).call(self, at, [packed], {}).value(self, at)
            if found.type == T.NONE:
                continue
            parts = Simple(found).items(self, at)
            args = [found] if parts is None else [p.value(self, at) for p in parts]
        return args

    def module_items(self, owner: Value, kind: T.ClassType, at: Location) -> list[Sugared] | None:
        """The modules of a list of modules, the keys of a dict of them."""
        words = self.resolver.container(kind)
        if words is None:
            return None
        if words[0] == "dict":
            return [Simple(self.graph.constant(name, T.STR)) for name in words[1]]
        return [self.module_attribute(owner, kind, name, at) for name in words[1]]

    def container_method(self, owner: Value, kind: T.ClassType, name: str, at: Location) -> Sugared | None:
        """`items`, `keys` and `values` of a dict of modules, and the length of any container."""
        words = (
            self.resolver.container(kind) if name in ("items", "keys", "values", "__len__", "__contains__") else None
        )
        if words is None:
            return None
        names = words[1]
        if name == "__len__":
            return Given(Simple(self.graph.constant(len(names), T.INT)))
        if words[0] != "dict":
            return None
        if name == "__contains__":
            return KnownKeys(names) if own_place(kind.python.__contains__) else None
        keys: list[Sugared] = [Simple(self.graph.constant(n, T.STR)) for n in names]
        if name == "keys":
            return Given(Items(keys))
        values = [self.module_attribute(owner, kind, n, at) for n in names]
        if name == "values":
            return Given(Items(values))
        return Given(Items([Items([k, v]) for k, v in zip(keys, values, strict=True)]))

    def module_getitem(self, owner: Value, index: Value, at: Location) -> Sugared:
        """One module of a list or a dict of modules."""
        kind: Any = owner.type
        words = self.resolver.container(kind)
        if words is None:
            return Simple(owner).attr(self, at, "__getitem__").call(self, at, [index], {})
        names = words[1]
        if not is_constant(index):
            raise CompileError(
                "Unable to extract string literal index or integer literal: modules are picked by constants", at
            )
        held = constant_of(index)
        if isinstance(held, str):
            if held not in names:
                raise CompileError(f"Key Error, {held}", at)
            return self.module_attribute(owner, kind, held, at)
        if not -len(names) <= held < len(names):
            raise CompileError("module list index out of range", at)
        return self.module_attribute(owner, kind, names[held], at)


def _dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
