"""Operators of a user's: a schema, kernels by dispatch key, and rules for gradients, batches, fake tensors and
automatic casts.

`torch.ops.<namespace>.<name>` is a packet of overloads; each overload checks its arguments against its schema and finds
what is to run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import rushlight
from rushlight import Tag
from rushlight._interface.base import LazyModule, tree_flatten, tree_unflatten
from rushlight._interface.devices import backends, private_type
from rushlight._interface.dispatch import DISPATCH_CLASSES, dispatch, has_override
from rushlight._interface.functorch import LEVELS, BatchedTensor, top_level
from rushlight._interface.tensors import FUNCTION_MODE, STATE, inherit
from rushlight.library.applied import applied_class
from rushlight.library.schema import Argument, FunctionSchema

builtin: Any = LazyModule("rushlight.library.builtin")
calls: Any = LazyModule("rushlight.library.aten.calls")

__all__ = [
    "HERE",
    "AnyOverload",
    "OpNamespace",
    "OpOverload",
    "OpOverloadPacket",
    "below_autograd",
    "describing",
    "find",
    "key_of",
    "namespace",
    "overriding",
    "register",
    "unregister",
]

_KEYS = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta", "xpu": "XPU", "mps": "MPS", "hpu": "HPU", "mtia": "MTIA"}


def key_of(device_type: str) -> str:
    """The dispatch key of kernels for a type of device; "PrivateUse1" for a type from outside."""
    found = _KEYS.get(device_type)
    if found is not None:
        return found
    return "PrivateUse1" if device_type in backends() or device_type == private_type() else device_type


class _Here(threading.local):
    """State of one thread: whether autograd's kernels have had their turn, and which fake implementation is
    running.
    """

    below_autograd = 0
    fake: OpOverload | None = None
    context: Any = None  # what makes unknown sizes for it; None on the meta device
    uncast = 0


HERE = _Here()
inherit(HERE)


@contextlib.contextmanager
def describing(op: Any, context: Any) -> Iterator[None]:
    """Inside, fake implementations get a context that makes unknown sizes."""
    before = HERE.fake, HERE.context
    HERE.fake, HERE.context = op, context
    try:
        yield
    finally:
        HERE.fake, HERE.context = before


class below_autograd:
    """Inside, operators go to their kernels and past those that were registered for autograd."""

    def __enter__(self) -> None:
        HERE.below_autograd += 1

    def __exit__(self, *exc: object) -> None:
        HERE.below_autograd -= 1


def overriding(values: Sequence[Any]) -> list[Any]:
    """The arguments whose classes are told of an operator itself, not of the function that it runs."""
    return [] if STATE.overrides_off else has_override(values, {})


class OpOverload:
    """One form of an operator: a schema and what was registered for it.  Calling it checks the arguments and runs what
    applies.
    """

    form = None  # of aten operators
    is_view = False

    def __init__(
        self, packet: OpOverloadPacket, schema: FunctionSchema, tags: Sequence[Tag] = (), place: str = ""
    ) -> None:
        self._packet, self._schema, self.tags, self.place = packet, schema, list(tags), place
        self._overloadname = schema.overload_name or "default"
        self.namespace, _, self._opname = schema.name.partition("::")
        self.__name__ = f"{self._opname}.{self._overloadname}"
        self.__module__, self.__qualname__ = f"torch._ops.{self.namespace}", self.__name__
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.fake: Callable[..., Any] | None = None
        self.setup: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.vmap: Callable[..., Any] | None = None
        self.casts: dict[str, Any] = {}
        self.by_class: dict[type, Callable[..., Any]] = {}
        self.definition: Any = None

    # ***** what it is *****

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """The packet that it belongs to."""
        return self._packet

    @property
    def op(self) -> Callable[..., Any]:
        """Itself: what runs."""
        return self

    @property
    def in_place(self) -> bool:
        """Whether it changes its first argument and gives that (a list need not be given)."""
        return self._schema.in_place

    def name(self) -> str:
        """`namespace::name`, with the overload's name where it has one."""
        return self._schema.name + (f".{self._schema.overload_name}" if self._schema.overload_name else "")

    @property
    def _name(self) -> str:
        return self.name()

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return find, (self.name(),)

    # ***** calls *****

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        values = self.bind(args, kwargs)
        asked = overriding(values)
        if asked or STATE.function_modes and STATE.word & FUNCTION_MODE:
            return dispatch(self, asked, args, kwargs)
        return self.run(values)

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The value of every argument of the schema, in its order; RuntimeError for arguments that do not fit."""
        schema, name = self._schema, self._schema.name
        if len(args) > len(schema.positional):
            raise RuntimeError(
                f"{name}() expected at most {len(schema.positional)} argument(s) but received {len(args)} argument(s). Declaration: {schema}"
            )
        values, left = [], dict(kwargs)
        for place, argument in enumerate(schema.arguments):
            if place < len(args) and not argument.kwarg_only:
                if argument.name in left:
                    raise RuntimeError(
                        f"{name}() got multiple values for argument '{argument.name}'. Declaration: {schema}"
                    )
                values.append(self._fitting(argument, args[place], place))
            elif argument.name in left:
                values.append(self._fitting(argument, left.pop(argument.name), place))
            elif argument.has_default:
                values.append(argument.default)
            else:
                raise RuntimeError(f"{name}() is missing value for argument '{argument.name}'. Declaration: {schema}")
        if left:
            raise RuntimeError(f"Unknown keyword argument '{next(iter(left))}' for operator '{name}'. Schema: {schema}")
        return values

    def _fitting(self, argument: Argument, value: Any, place: int) -> Any:
        if fits(argument, value):
            return list(value) if argument.list_depth and isinstance(value, tuple) else value
        if (
            argument.list_depth
            and fits_base(argument.base, value)
            and argument.base != "Tensor"
            and not argument.type.endswith("[]")
        ):
            return [value]
        raise RuntimeError(
            f"{self._schema.name}() Expected a value of type '{_spoken(argument)}' for argument '{argument.name}' but instead found type "
            f"'{type(value).__name__}'.\nPosition: {place}\nValue: {str(value)[:200]}\nDeclaration: {self._schema}\nCast error details: Unable to "
            f"cast {str(value)[:200]} to {_spoken(argument)}"
        )

    def split(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a kernel's call: arguments by place, and by name those that can only be given so, without
        defaults that end the list.
        """
        arguments = self._schema.arguments
        count = len(self._schema.positional)
        while count and _is_default(arguments[count - 1], values[count - 1]):
            count -= 1
        named = {a.name: v for a, v in zip(arguments, values, strict=True) if a.kwarg_only and not _is_default(a, v)}
        return tuple(values[:count]), named

    def run(self, values: list[Any]) -> Any:
        """Run what applies to these values."""
        leaves = [leaf for leaf in tree_flatten(values)[0] if isinstance(leaf, rushlight.Tensor)]
        if self.casts and not HERE.uncast and (dtype := self._cast_to(leaves)) is not None:
            return self._run_cast(values, dtype)
        if not HERE.below_autograd:
            kernel = self._autograd_kernel(leaves)
            if kernel is not None:
                return self._called(kernel, values)
            recorded = bool(rushlight.is_grad_enabled()) and any(leaf.requires_grad for leaf in leaves)
            known = self.backward is not None or self.definition is not None or self.vmap is not None
            if (
                known
                and (recorded or leaves and LEVELS.stack)
                or isinstance(top_level([leaves]), _batched())
                and not self._is_composite()
            ):
                return applied_class(self).run(values)
        found = self.backend(values)
        if self.definition is None and not HERE.below_autograd:
            self._warn_on_backward(found, leaves)
        return found

    def _is_composite(self) -> bool:
        return "CompositeImplicitAutograd" in self.kernels

    def _autograd_kernel(self, leaves: Sequence[Any]) -> Callable[..., Any] | None:
        if not leaves or self.backward is not None:
            return None
        device = key_of(leaves[0].device.type)
        return next((self.kernels[key] for key in (f"Autograd{device}", "Autograd") if key in self.kernels), None)

    def _called(self, kernel: Callable[..., Any], values: Sequence[Any]) -> Any:
        args, kwargs = self.split(values)
        return kernel(*args, **kwargs)

    def backend(self, values: Sequence[Any]) -> Any:
        """Show the call to dispatch modes and classes, else run the kernel for the device of the tensors;
        NotImplementedError where there is none.
        """
        if not self._is_composite() and (STATE.dispatch_modes or DISPATCH_CLASSES) and not STATE.dispatch_off:
            args, kwargs = self.split(values)
            if STATE.dispatch_modes or calls.asks(args, kwargs):
                return calls.redispatch(self, args, kwargs)
        return self.kernel_for(values)

    def kernel(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel on arguments, below dispatch modes."""
        return self.kernel_for(self.bind(args, kwargs))

    def kernel_for(self, values: Sequence[Any]) -> Any:
        """Run the kernel for the device of the tensors; NotImplementedError where there is none."""
        leaves = [leaf for leaf in tree_flatten(list(values))[0] if isinstance(leaf, rushlight.Tensor)]
        device = next((leaf.device.type for leaf in leaves), None)
        if device is None:
            given = [
                v for a, v in zip(self._schema.arguments, values, strict=True) if a.base == "Device" and v is not None
            ]
            device = rushlight.device(given[0]).type if given else "cpu"
        key = key_of(device)
        if key == "Meta" and self.fake is not None and "Meta" not in self.kernels:
            before, HERE.fake = HERE.fake, self
            try:
                return self._called(self.fake, values)
            finally:
                HERE.fake = before
        composite = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")
        if key == "Meta" and self.definition is not None:
            composite = composite[2:]
        for name in (key, *composite):
            if name in self.kernels:
                return self._called(self.kernels[name], values)
        raise self._no_kernel(key)

    def _no_kernel(self, key: str) -> Exception:
        if key == "Meta" and self.definition is not None:
            return RuntimeError(
                f"There was no fake impl registered for {self.definition}. This is necessary for torch.compile/export/fx tracing to work. "
                f"Please use `{self._opname}.register_fake` to add an fake impl."
            )
        if key == "Meta":
            return NotImplementedError(
                f"{self.name()}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel registered. "
                "Add one with torch.library.register_fake."
            )
        return NotImplementedError(
            f"Could not run '{self.name()}' with arguments from the '{key}' backend: no kernel is registered for it. Kernels exist for: "
            f"{sorted(self.kernels) or 'nothing'}."
        )

    def _cast_to(self, leaves: Sequence[Any]) -> Any:
        """The dtype of automatic casts that is in force here."""
        for device, dtype in self.casts.items():
            if any(leaf.device.type == device for leaf in leaves) and rushlight.is_autocast_enabled(device):
                return dtype
        return None

    def _run_cast(self, values: list[Any], dtype: Any) -> Any:
        def cast(value: Any) -> Any:
            eligible = (
                isinstance(value, rushlight.Tensor)
                and value.is_floating_point()
                and value.dtype is not rushlight.float64
            )
            return value.to(dtype) if eligible else value

        leaves, structure = tree_flatten(values)
        HERE.uncast += 1
        try:
            with rushlight.autocast(next(iter(self.casts)), enabled=False):
                return self.run(tree_unflatten([cast(leaf) for leaf in leaves], structure))
        finally:
            HERE.uncast -= 1

    def _warn_on_backward(self, found: Any, leaves: Sequence[Any]) -> None:
        """Gradients that flow through a kernel without a rule for autograd may be wrong: say so when they do."""
        if not any(leaf.requires_grad for leaf in leaves) or self._is_composite():
            return

        def warn(grad: Any) -> None:
            import warnings

            warnings.warn(
                f"{self.name()}: an autograd kernel was not registered to the Autograd key(s) but we are trying to backprop through it. This may "
                "lead to silently incorrect behavior. Register one with torch.library.register_autograd.",
                UserWarning,
                stacklevel=2,
            )

        for leaf in tree_flatten(found)[0]:
            if isinstance(leaf, rushlight.Tensor) and leaf.grad_fn is not None:
                leaf.register_hook(warn)


def _batched() -> type:
    return BatchedTensor


_PYTHON: dict[str, Any] = {
    "int": int, "SymInt": int, "bool": bool, "SymBool": bool, "str": str, "float": (int, float), "SymFloat": (int, float),
    "Scalar": (int, float, complex),
}  # fmt: skip


def fits_base(base: str, value: Any) -> bool:
    """Whether a value is of a type without marks."""
    if base in _PYTHON:
        return (
            isinstance(value, _PYTHON[base])
            or base in ("float", "SymFloat", "Scalar", "int", "SymInt")
            and _is_number_tensor(base, value)
        )
    if base == "Tensor":
        return isinstance(value, rushlight.Tensor) or hasattr(type(value), "__torch_function__")
    if base == "Device":
        return isinstance(value, (rushlight.device, str))
    named = {
        "ScalarType": rushlight.dtype,
        "Layout": rushlight.layout,
        "MemoryFormat": rushlight.memory_format,
        "Generator": rushlight.Generator,
    }
    kind: Any = named.get(base, object)
    return isinstance(value, kind)


def _is_number_tensor(base: str, value: Any) -> bool:
    numeric = hasattr(value, "__index__") if base in ("int", "SymInt") else hasattr(value, "__float__")
    return numeric and not isinstance(value, rushlight.Tensor)


def fits(argument: Argument, value: Any) -> bool:
    """Whether a value is of an argument's type."""
    if value is None:
        return argument.optional
    if not argument.list_depth:
        return fits_base(argument.base, value)
    if not isinstance(value, (list, tuple)):
        return False
    holes = "?[" in argument.type
    return all(holes and item is None or fits_base(argument.base, item) for item in value)


def _spoken(argument: Argument) -> str:
    words = {"SymInt": "int", "Scalar": "number", "Device": "Device", "ScalarType": "int"}
    shown = words.get(argument.base, argument.base)
    shown = f"List[{shown}]" if argument.list_depth else shown
    return f"Optional[{shown}]" if argument.optional else shown


def _is_default(argument: Argument, value: Any) -> bool:
    if not argument.has_default:
        return False
    default = argument.default
    return (
        value is default
        or type(value) is type(default)
        and not isinstance(value, rushlight.Tensor)
        and bool(value == default)
    )


# ***** packets and namespaces *****


class OpOverloadPacket:
    """All forms of an operator: `torch.ops.my.op`.  A call runs the first whose schema the arguments fit; `.default`,
    `.out`... are the forms.
    """

    def __init__(self, space: str, name: str) -> None:
        self._space, self.__name__ = space, name
        self._qualified_op_name = f"{space}::{name}"
        self.__module__, self.__qualname__ = f"torch._ops.{space}", name
        self.forms: dict[str, OpOverload] = {}

    def overloads(self) -> list[str]:
        """The names of the forms."""
        return list(self.forms)

    def __iter__(self) -> Iterator[str]:
        return iter(self.forms)

    def __getattr__(self, name: str) -> OpOverload:
        forms = self.__dict__.get("forms", {})
        if name in forms:
            return forms[name]
        if name.startswith("__"):
            raise AttributeError(f"'OpOverloadPacket' object has no attribute {name!r}")
        raise AttributeError(f"The underlying op of '{self._space}.{self.__name__}' has no overload name '{name}'")

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        asked = overriding((*args, *kwargs.values()))
        if asked or STATE.function_modes and STATE.word & FUNCTION_MODE:
            return dispatch(self, asked, args, kwargs)
        forms = list(self.forms.values())
        for form in forms[:-1]:
            try:
                form.bind(args, kwargs)
            except RuntimeError:
                continue
            return form(*args, **kwargs)
        return forms[-1](*args, **kwargs) if len(forms) == 1 else self._last(forms, args, kwargs)

    def _last(self, forms: list[OpOverload], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            forms[-1].bind(args, kwargs)
        except RuntimeError as error:
            known = "\n".join(str(form._schema) for form in forms)
            raise RuntimeError(
                f"Could not find any overload of {self._qualified_op_name} for these arguments ({error})\nOverloads:\n{known}"
            ) from None
        return forms[-1](*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._space}.{self.__name__}')>"

    def __str__(self) -> str:
        return f"{self._space}.{self.__name__}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _packet, (self._space, self.__name__)


class OpNamespace(ModuleType):
    """`torch.ops.<name>`: the operators of a namespace."""

    __file__ = "torch.ops"

    def __init__(self, name: str) -> None:
        super().__init__(f"torch.ops.{name}")
        self._word = name
        self.packets: dict[str, OpOverloadPacket] = {}

    def __getattr__(self, name: str) -> Any:
        packets = self.__dict__.get("packets", {})
        if name in packets:
            return packets[name]
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.ops.{self.__dict__.get('_word')}' has no attribute {name!r}")
        raise AttributeError(f"'_OpNamespace' '{self._word}' object has no attribute '{name}'")

    def __dir__(self) -> list[str]:
        return sorted(self.packets)

    def __iter__(self) -> Iterator[str]:
        return iter(self.packets)


_SPACES: dict[str, OpNamespace] = {}


def namespace(name: str) -> OpNamespace:
    """The namespace of this name, empty until something is defined in it."""
    found = _SPACES.get(name)
    if found is None:
        found = _SPACES[name] = builtin.BuiltinNamespace() if name == "aten" else OpNamespace(name)
    return found


def _packet(space: str, name: str) -> Any:
    return getattr(namespace(space), name)


def find(qualname: str) -> Any:
    """The overload `namespace::name` or `namespace::name.overload`; AttributeError where there is none."""
    space, _, rest = qualname.partition("::")
    name, _, overload = rest.partition(".")
    return getattr(getattr(namespace(space), name), overload or "default")


def register(schema: FunctionSchema, tags: Sequence[Tag], place: str) -> OpOverload:
    """Make an operator known; RuntimeError where there is one of its name."""
    space_name, _, name = schema.name.partition("::")
    space = namespace(space_name)
    packet = space.packets.get(name) or OpOverloadPacket(space_name, name)
    overload = schema.overload_name or "default"
    if overload in packet.forms:
        raise RuntimeError(
            f"Tried to register an operator ({schema}) with the same name and overload name multiple times. Each overload's schema should only be "
            f"registered with a single call to def(). Duplicate registration: registered at {place}. Original registration: registered at "
            f"{packet.forms[overload].place}"
        )
    made = packet.forms[overload] = OpOverload(packet, schema, tags, place)
    space.packets[name] = packet
    return made


def unregister(overload: OpOverload) -> None:
    """Forget an operator."""
    packet, packets = overload.overloadpacket, namespace(overload.namespace).packets
    packet.forms.pop(overload._overloadname, None)
    if not packet.forms and packets.get(packet.__name__) is packet:
        del packets[packet.__name__]


class _EveryOverload(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, (OpOverload, builtin.BuiltinOverload))


class AnyOverload(metaclass=_EveryOverload):
    """Base class of forms of operators, the package's own and those of users."""


AnyOverload.__name__ = AnyOverload.__qualname__ = "OpOverload"
# PyTorch's `torch._ops` holds these classes; the room of that name here shows them too.
_room = sys.modules["rushlight._ops"]
_room.__dict__.update(OpOverload=AnyOverload, OpOverloadPacket=OpOverloadPacket)
