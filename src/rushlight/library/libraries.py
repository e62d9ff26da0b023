"""`Library` and the functions that register schemas, kernels and rules for operators by name."""

from __future__ import annotations

import contextlib
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

from rushlight import DispatchKey, Tag
from rushlight.library import operators
from rushlight.library.operators import HERE, OpOverload, OpOverloadPacket
from rushlight.library.schema import FunctionSchema, parse

__all__ = [
    "Library", "define", "fallthrough_kernel", "get_ctx", "get_kernel", "impl", "impl_abstract", "overload_of", "register_autocast",
    "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap",
]  # fmt: skip

_RESERVED = ("prim",)
_OWNERS: dict[str, str] = {"aten": "PyTorch"}


def fallthrough_kernel(*args: Any, **kwargs: Any) -> NoReturn:
    """Stands for no kernel: `Library.impl(op, fallthrough_kernel, key)` takes one away."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def _caller(depth: int = 2) -> str:
    frame = sys._getframe(depth)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Library:
    """Operators of a namespace, and kernels for them; what it registered goes when it does.

    `kind`: "DEF" makes the one library that defines a namespace, "FRAGMENT" adds to a namespace, "IMPL" only registers
    kernels, for `dispatch_key` where calls name none.

    >>> import rushlight as torch
    >>> library = torch.library.Library("doc_library", "DEF")
    >>> library.define("twice(Tensor x) -> Tensor")
    'twice'
    >>> library.impl("twice", lambda x: 2 * x, "CompositeImplicitAutograd")
    >>> torch.ops.doc_library.twice(torch.ones(2))
    tensor([2., 2.])
    """

    made: ClassVar[int] = 0
    """How many there have been: with none, every operator is what the package says."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in _RESERVED and kind != "IMPL":
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        place = _caller()
        if kind == "DEF":
            if ns in _OWNERS:
                raise RuntimeError(
                    f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; please put all of your definitions in a single "
                    f"TORCH_LIBRARY block, or use kind 'FRAGMENT'. Previous registration: {_OWNERS[ns]}; latest registration: {place}"
                )
            _OWNERS[ns] = place
        Library.made += 1
        self.ns, self.kind, self.dispatch_key = ns, kind, str(dispatch_key)
        self._defined: list[OpOverload] = []
        self._undo: list[Callable[[], None]] = []
        self._finalizer = weakref.finalize(self, _forget, ns, kind, self._defined, self._undo)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def _destroy(self) -> None:
        """Take back all that was registered."""
        self._finalizer()

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator by its schema and return its name; RuntimeError where it exists."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        if self.kind == "IMPL":
            raise RuntimeError("Cannot define operators in a library of kind 'IMPL': use 'DEF' or 'FRAGMENT'")
        given = (tags,) if isinstance(tags, Tag) else tuple(tags)
        parsed = parse(schema, self.ns)
        if not parsed.name.startswith(f"{self.ns}::"):
            raise RuntimeError(f"the operator {parsed.name} cannot be defined in a library of namespace {self.ns}")
        _check_tags(parsed, given)
        made = operators.register(parsed, given, _caller())
        self._defined.append(made)
        return made._opname

    def _register_torch_dispatch_rule(self, op_name: str, torch_dispatch_class: type, fn: Callable[..., Any]) -> None:
        """Register what an operator does under a mode or with tensors of a class, as long as this library lives."""
        rules = overload_of(op_name if "::" in op_name else f"{self.ns}::{op_name}").by_class
        rules[torch_dispatch_class] = fn
        self._undo.append(lambda: rules.pop(torch_dispatch_class, None))

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: Any = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Register a kernel of an operator for a dispatch key ("CPU", "Meta", "Autograd", "CompositeImplicitAutograd",
        ...).

        A kernel for an operator that is not defined yet waits for it.  `with_keyset` kernels take a first argument that
        stands for the keys.
        """
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        key = str(dispatch_key or self.dispatch_key or "CompositeImplicitAutograd").removeprefix("DispatchKey.")
        if key not in DispatchKey.__members__ and not key.startswith("Autograd"):
            raise RuntimeError(f"could not parse dispatch key: {key}")
        op = overload_of(
            op_name
            if isinstance(op_name, (OpOverload, OpOverloadPacket)) or "::" in op_name
            else f"{self.ns}::{op_name}",
            missing=None,
        )
        if op is None:
            return
        if not isinstance(op, OpOverload):
            raise NotImplementedError(f"rushlight cannot replace its own operators: {op} is one")
        if op.namespace != self.ns:
            raise RuntimeError(f"the kernel of {op} belongs to a library of namespace {op.namespace}, not {self.ns}")
        kernel = (lambda *args, **kwargs: fn(None, *args, **kwargs)) if with_keyset else fn
        before = op.kernels.get(key)
        if fn is fallthrough_kernel:
            op.kernels.pop(key, None)
        else:
            op.kernels[key] = kernel
        kernels = op.kernels

        def undo() -> None:
            if kernels.get(key) is kernel:
                kernels.pop(key)
                if before is not None:
                    kernels[key] = before

        self._undo.append(undo)

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """NotImplementedError: there is no dispatcher through which all operators go."""
        raise NotImplementedError(
            "rushlight has no dispatcher through which all operators go: Library.fallback cannot be honoured"
        )

    def register_symm_mem_args(self, op_name: str, arg_names: Sequence[str]) -> None:
        """NotImplementedError: there is no memory that several accelerators share."""
        raise NotImplementedError(
            "rushlight has no symmetric memory: Library.register_symm_mem_args cannot be honoured"
        )


def _forget(ns: str, kind: str, defined: list[OpOverload], undo: list[Callable[[], None]]) -> None:
    for step in reversed(undo):
        step()
    undo.clear()
    for op in defined:
        operators.unregister(op)
    defined.clear()
    if kind == "DEF":
        _OWNERS.pop(ns, None)


def _check_tags(schema: FunctionSchema, tags: Iterable[Tag]) -> None:
    """ValueError where the schema is not that of an operator in place, or with `out=`, as its tag says."""
    changed = [a for a in schema.arguments if a.written]
    if Tag.out in tags and (
        not changed
        or any(not a.kwarg_only for a in changed)
        or [r.alias for r in schema.returns] != [a.alias for a in changed]
    ):
        raise ValueError(
            f"Schema tagged with torch.Tag.out must return its mutable keyword-only arguments. Got: {schema}"
        )
    first = schema.positional[:1]
    if Tag.inplace in tags and (changed != first or [r.alias for r in schema.returns] != [a.alias for a in first]):
        raise ValueError(
            f"Schema tagged with torch.Tag.inplace must mutate and return its first positional argument. Got: {schema}"
        )


@contextlib.contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A context with a `Library` of these arguments; what it registered is taken back at the end."""
    made = Library(*args, **kwargs)
    try:
        yield made
    finally:
        made._destroy()


# ***** by name *****

_KEPT: dict[str, Library] = {}


def _parts(qualname: str) -> tuple[str, str]:
    space, marks, name = qualname.partition("::")
    if not marks or not space or not name or "::" in name:
        raise ValueError(
            f'Expected `qualname` to be of the form "namespace::name", but got {qualname}. The qualname passed to the torch.library APIs must '
            "consist of a namespace and a name, e.g. aten::sin"
        )
    return space, name


def fragment(space: str) -> Library:
    """A library that lives as long as the program, for what is registered by functions."""
    if space not in _KEPT:
        _KEPT[space] = Library(space, "FRAGMENT")
    return _KEPT[space]


_RAISE: Any = object()


def overload_of(op: Any, missing: Any = _RAISE) -> Any:
    """The overload that is meant by a name, a packet, an overload or a custom operator's definition."""
    if isinstance(op, OpOverload):
        return op
    if hasattr(op, "_opoverload"):
        return op._opoverload
    if isinstance(op, OpOverloadPacket):
        return op.default
    if not isinstance(op, str):
        raise ValueError(f"expected an operator or its name, got {type(op)}")
    _parts(op)
    try:
        return operators.find(op)
    except AttributeError:
        if missing is _RAISE:
            raise
        return missing


def _unknown(op: str) -> str:
    """Error for an operator that nobody has defined."""
    space = _parts(op)[0]
    why = (
        f"nothing has defined an operator of {space!r} yet. If it is a package with a compiled part, that part (a file such as {space}/_C.so) was not found"
        if not operators.namespace(space).packets
        else "torch.library.define makes one"
    )
    return f"operator {op} does not exist: {why}"


def define(qualname: str, schema: Any = None, *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Define an operator: its name `namespace::name` and its schema `(Tensor x) -> Tensor`."""
    if isinstance(qualname, Library):  # the older form, which gives a decorator
        name = qualname.define(schema, tags=tags)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(name, function)
            return function

        return decorate
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    space, name = _parts(qualname)
    if not re.fullmatch(r"\s*\(.*\) -> .*", schema or "", re.DOTALL):
        raise ValueError(
            f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got "{schema}"'
        )
    (lib or fragment(space)).define(name + schema, tags=tags)
    return None


def impl(
    qualname: Any, types: Any = None, func: Callable[..., Any] | None = None, *, lib: Library | None = None
) -> Any:
    """Register a kernel of an operator for device types ("cpu", or several, or "default" for all) or a dispatch key;
    also a decorator.
    """
    if isinstance(qualname, Library):  # the older form: impl(library, name, key)
        return lambda function: (qualname.impl(types, function, func or ""), function)[1]  # type: ignore[func-returns-value]
    wanted = (types,) if isinstance(types, str) else tuple(types)
    keys = ["CompositeExplicitAutograd" if word == "default" else operators.key_of(word) for word in wanted]
    space, _ = _parts(qualname)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for key in keys:
            (lib or fragment(space)).impl(qualname, function, key)
        return function

    if func is None:
        return register
    register(func)
    return None


# Libraries of compiled operators that a program asked for and that cannot be loaded here.
REFUSED: set[str] = set()


def _is_of_refused(op: Any) -> bool:
    """Whether an operator is one that such a library would have defined, as far as can be known: nothing else has its
    namespace.
    """
    return isinstance(op, str) and bool(REFUSED) and not operators.namespace(_parts(op)[0]).packets


def _rule(op: Any, func: Callable[..., Any] | None, put: Callable[[OpOverload, Callable[..., Any]], None]) -> Any:
    found = overload_of(op)
    if not isinstance(found, OpOverload):
        raise NotImplementedError(f"rushlight's own operators have their rules already: {found} is one")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        put(found, function)
        return function

    return register if func is None else register(func)


def register_kernel(
    op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Register what computes an operator on device types ("cpu", or several; None for all); also a decorator."""
    found = overload_of(op)
    if found.definition is not None:
        return found.definition.register_kernel(device_types, func)
    wanted = (
        (None,) if device_types is None else (device_types,) if isinstance(device_types, str) else tuple(device_types)
    )
    return (
        impl(found.name(), ["default" if d is None else d for d in wanted], func, lib=lib)
        if func is None
        else _registered(found, wanted, func, lib)
    )


def _registered(
    op: OpOverload, devices: Iterable[str | None], func: Callable[..., Any], lib: Library | None
) -> Callable[..., Any]:
    impl(op.name(), ["default" if d is None else d for d in devices], func, lib=lib)
    return func


def register_fake(
    op: Any,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = True,
) -> Any:
    """Register what says an operator's results without data: shapes, dtypes, strides; tensors on the meta device go to
    it.  Also a decorator.
    """

    if overload_of(op, missing=None) is None:
        if not _is_of_refused(op):
            raise RuntimeError(_unknown(op))
        return func if func is not None else lambda function: function  # a rule for what nobody can call

    def put(found: OpOverload, function: Callable[..., Any]) -> None:
        if "Meta" in found.kernels or "CompositeImplicitAutograd" in found.kernels:
            raise RuntimeError(f"register_fake(...): the operator {found.name()} already has a kernel for Meta tensors")
        if found.fake is not None and not allow_override:
            raise RuntimeError(f"register_fake(...): the operator {found.name()} already has an fake impl registered")
        found.fake = function

    return _rule(op, func, put)


def impl_abstract(
    qualname: str, func: Callable[..., Any] | None = None, *, lib: Library | None = None, _stacklevel: int = 1
) -> Any:
    """The older name of `register_fake`."""
    return register_fake(qualname, func, lib=lib, _stacklevel=_stacklevel + 1)


def register_autograd(
    op: Any,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
) -> None:
    """Register an operator's gradient: `setup_context(ctx, inputs, output)` saves what `backward(ctx, *grads)` needs.

    Where arguments can only be given by name, `setup_context` takes them as `keyword_only_inputs`.  `backward` returns
    a gradient, or None, for every argument that is given by place, a list of them for a list.  RuntimeError for an
    operator that changes its arguments.
    """
    found = overload_of(op)
    if not isinstance(found, OpOverload):
        raise NotImplementedError(f"rushlight's own operators have their gradients already: {found} is one")
    schema = found._schema
    if schema.is_mutable or any(r.alias for r in schema.returns):
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {found} with schema {schema}. Please create a functional operator and "
            "register an autograd formula for that."
        )
    if any(a.kwarg_only and a.is_tensor_like for a in schema.arguments):
        raise NotImplementedError(
            f"register_autograd with kwarg-only Tensor args. In the original definition of the op, please make your tensors not kwarg-only. Got: {schema}"
        )
    found.backward, found.setup = backward, setup_context


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None) -> Any:
    """Register how an operator takes a batch: `func(info, in_dims, *args)` returns the results and their batch dims.
    Also a decorator.
    """
    return _rule(op, func, lambda found, function: setattr(found, "vmap", function))


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None) -> None:
    """Register the dtype to which an operator's floating inputs are cast under `autocast` on a device type."""
    if not isinstance(device_type, str):
        raise ValueError(f"register_autocast(device_type): expected a text, got {type(device_type)}")
    if device_type not in ("cpu", "cuda", "xpu"):
        raise ValueError(f"Unknown device type: {device_type}")
    overload_of(op).casts[device_type] = cast_inputs


def register_torch_dispatch(
    op: Any, torch_dispatch_class: type, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None
) -> Any:
    """Register what an operator does under a mode, `func(mode, func, types, args, kwargs)`, or with tensors of a class
    that has a dispatch, `func(cls, func, types, args, kwargs)`.  Also a decorator.
    """
    return _rule(op, func, lambda found, function: found.by_class.__setitem__(torch_dispatch_class, function))


def get_ctx() -> Any:
    """The context of the fake implementation that is running; None outside of one.

    `ctx.new_dynamic_size(min=0, max=None)` gives a size that depends on data.  Tensors on the meta device cannot have
    one: RuntimeError inside an implementation that is run for them.
    """
    if HERE.fake is None or HERE.context is not None:
        return HERE.context
    raise RuntimeError(
        f"{HERE.fake.name()}: You're trying to run this operator with meta Tensors (as opposed to FakeTensors), but this operator may return an "
        "output Tensor with data-dependent shape. Meta Tensors don't support operators with outputs that have data-dependent shapes."
    )


class _Kernel:
    """A kernel of an operator for one dispatch key, to be called past all others: `kernel.call_boxed(keys, *args)`."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function, self._name = function, name

    def call_boxed(self, keyset: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run it; the keys are taken for the form's sake."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"SafeKernelFunction(debug='{self._name}')"


def get_kernel(op: Any, dispatch_key: Any) -> Any:
    """The kernel that an operator has for a dispatch key; RuntimeError where it has none."""
    found = overload_of(op)
    key = str(dispatch_key).removeprefix("DispatchKey.")
    kernels = getattr(found, "kernels", {})
    if key not in kernels:
        raise RuntimeError(f"no kernel for {key} for {found}: it has kernels for {sorted(kernels) or 'nothing'}")
    return _Kernel(kernels[key], f"{found.name()} for {key}")
