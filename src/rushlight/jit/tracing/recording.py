"""Records of a trace: operators, sizes, calls of modules."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.jit.errors import TracerWarning
from rushlight.jit.ir.types import ShapedType
from rushlight.jit.runtime.constants import TENSOR_WORDS
from rushlight.jit.serialization.packed import packed_type
from rushlight.jit.tracing.forms import recorded_form, without_whole_slices
from rushlight.jit.tracing.quantized import as_operator, meets_quantized
from rushlight.library.aten.calls import bound
from rushlight.nn.modules import hooks
from rushlight.overrides import TorchFunctionMode
from rushlight.utils._python_dispatch import TorchDispatchMode

__all__ = ["Call", "Recorder", "Step", "TracedInt"]

_LEAVES = {
    "__bool__": "boolean", "is_nonzero": "boolean", "__int__": "integer", "__index__": "index", "__float__": "float", "item": "number", "tolist": "list",
    "__complex__": "complex number", "numpy": "NumPy array", "__array__": "NumPy array",
}  # fmt: skip
_ARITHMETIC = frozenset(
    "add sub mul div true_divide floor_divide remainder pow rsub eq ne lt gt le ge __add__ __sub__ __mul__ __truediv__ __floordiv__ __mod__ __pow__"
    " __radd__ __rsub__ __rmul__ __rtruediv__ __eq__ __ne__ __lt__ __gt__ __le__ __ge__ add_ sub_ mul_ div_ __iadd__ __isub__ __imul__".split()
)
_CONSTANT = (
    "Converting a tensor to a Python {} might cause the trace to be incorrect. We can't record the data flow of Python values, so "
    "this value will be treated as a constant in the future. This means that the trace might not generalize to other inputs!"
)
_UNRECORDED = frozenset(("item", "_local_scalar_dense", "is_nonzero", "equal", "is_same_size"))


class TracedInt(int):
    """A size that came out of a tensor while a trace records: what is computed of it is recorded too."""

    recorder: Any
    number: int

    def _with(self, name: str, other: Any, swapped: bool = False, kind: str = "") -> Any:
        if isinstance(other, rushlight.Tensor):
            return NotImplemented
        operation = getattr(int, f"__{name}__")
        found = operation(self, other) if not swapped else getattr(int, f"__r{name}__")(self, other)
        if found is NotImplemented or not isinstance(other, int) or isinstance(other, bool):
            return found
        pair = (other, self) if swapped else (self, other)
        return self.recorder.computed(f"aten::{kind or name}", pair, int(found))

    def __add__(self, other: Any) -> Any:
        return self._with("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._with("add", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("sub", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("mul", other, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with("floordiv", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with("floordiv", other, True)

    def __mod__(self, other: Any) -> Any:
        return self._with("mod", other, kind="remainder")

    def __neg__(self) -> Any:
        return self.recorder.computed("aten::neg", (self,), -int(self))

    # What no operator of numbers is recorded for becomes a constant: the program is told.

    def __truediv__(self, other: Any) -> Any:
        return self._as_number(int.__truediv__, "float", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._as_number(int.__rtruediv__, "float", other)

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        return self._as_number(int.__pow__, "number", other, modulo)

    def __float__(self) -> float:
        return float(self._as_number(int.__float__, "float"))

    def _as_number(self, operation: Any, word: str, *other: Any) -> Any:
        if other and isinstance(other[0], rushlight.Tensor):
            return NotImplemented
        if not self.recorder.paused and not _is_own(sys._getframe(2)):
            warnings.warn(_CONSTANT.format(word), TracerWarning, stacklevel=3)
        return operation(int(self), *other)


def _is_own(frame: Any) -> bool:
    """Whether code of the package runs in a frame."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "rushlight"


# What brings a call to the record
_BELOW = ("rushlight._", "rushlight.overrides", "rushlight.jit.", "rushlight.utils.")


def _asked_by_layer() -> bool:
    """Whether a layer of the package reads a number on its way, which is no concern of the program."""
    frame: Any = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_BELOW):
        frame = frame.f_back
    return frame is not None and _is_own(frame)


class Step:
    """One operator: its schema's name, the values of all arguments, the numbers of its results."""

    __slots__ = ("arguments", "function", "kind", "location", "module", "overload", "outputs", "scope", "shapes")

    def __init__(self, kind: str, overload: str, arguments: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.kind, self.overload, self.arguments, self.outputs = kind, overload, list(arguments), list(outputs)
        self.location: Any = None
        self.scope = ""
        self.function: Any = None  # that is called, a method of `module` where that is one
        self.module: Any = None
        self.shapes: list[str] = []


class Ref:
    """A value of the record: a tensor or a number that a step gave, or an input."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Attribute:
    """A parameter, a buffer or another tensor of a module, by its module and name."""

    __slots__ = ("module", "name")

    def __init__(self, module: Any, name: str) -> None:
        self.module, self.name = module, name


class Call:
    """A call of a module (None: of a function): its steps and inner calls."""

    def __init__(self, module: Any, outer: Call | None) -> None:
        self.module, self.outer = module, outer
        self.steps: list[Any] = []


class Recorder:
    """Records one call."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.root = self.current = Call(module, None)
        self.numbers: dict[int, Any] = {}
        self.kept: list[Any] = []
        self.noted: list[tuple[Any, int]] = []
        self.count = 0
        self.inputs: list[Any] = []
        self.result: Any = None
        self.shapes: dict[int, ShapedType] = {}
        self.names: dict[int, str] = {}  # of values, by the variable that held one at its first use
        self.strict = True
        self.inlines = False  # whether methods of compiled modules are recorded by their operators
        self.paused = 0
        self.scopes: list[str] = []
        self._attributes: dict[int, Attribute] = {}
        self._handles: list[Any] = []
        self.modules: set[int] = set()
        if module is not None:
            for inner in module.modules():
                self.modules.add(id(inner))
                for table in (inner._parameters, inner._buffers, inner.__dict__):
                    for name, value in table.items():
                        if isinstance(value, rushlight.Tensor) or packed_type(value) is not None:
                            self._attributes.setdefault(id(value), Attribute(inner, name))

    # ***** entering *****

    def __enter__(self) -> Recorder:
        if self.module is not None:
            self._handles = [
                hooks.register_module_forward_pre_hook(self._entered),
                hooks.register_module_forward_hook(self._left, always_call=True),
            ]
        self._modes = (_Operators(self), _Functions(self))
        _CURRENT.append(self)
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*exc)
        _CURRENT.pop()
        for handle in self._handles:
            handle.remove()

    def _entered(self, module: Any, args: Any) -> None:
        if (
            id(module) in self.modules
            and not self.paused
            and module is not self.module
            and not _keeps_its_graph(module)
        ):
            inner = Call(module, self.current)
            self.current.steps.append(inner)
            self.current = inner

    def _left(self, module: Any, args: Any, result: Any) -> None:
        if self.current.module is module and self.current.outer is not None and not self.paused:
            self.current = self.current.outer

    def push_scope(self, name: str) -> None:
        """Put what is recorded from here on into a scope of the one that is open (`scopeName` of nodes)."""
        self.scopes.append(name)

    def pop_scope(self) -> None:
        """Leave the innermost scope."""
        self.scopes.pop()

    def current_scope(self) -> str:
        """The names of the open scopes."""
        return "/".join(self.scopes)

    def run(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], lifted: Sequence[rushlight.Tensor] = ()
    ) -> Any:
        """Call a function with inputs that are noted; `lifted` tensors that it reads are inputs behind these."""
        self.paused += 1
        given = [self._input(a) for a in args]
        named = {k: self._input(v) for k, v in kwargs.items()}
        for tensor in lifted:
            self.note(tensor)
        self.paused -= 1
        self.inputs = [*given, *named.values(), *lifted]
        self.result = func(*given, **named)
        return self.result

    def _input(self, value: Any) -> Any:
        if isinstance(value, rushlight.Tensor):
            # A tensor of its own: one that is given twice is two inputs.
            fresh = (
                value.detach().requires_grad_(value.requires_grad)
                if value.requires_grad and value.is_leaf
                else value.view_as(value)
            )
            self.note(fresh)
            return fresh
        if isinstance(value, (tuple, list)):
            made = [self._input(v) for v in value]
            return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
        if isinstance(value, dict):
            return {k: self._input(v) for k, v in value.items()}
        return value

    # ***** values *****

    def note(self, value: Any) -> Any:
        """Give a tensor a number."""
        if isinstance(value, (list, tuple)):
            return [self.note(v) for v in value]
        if not isinstance(value, rushlight.Tensor):
            return None
        made = Ref(self.count)
        self.count += 1
        self.numbers[id(value)] = made
        self.noted.append((value, made.number))
        self.paused += 1  # what the record itself asks is no part of it
        self.shapes[made.number] = shaped_type(value)
        self.paused -= 1
        return made

    def ref(self, value: Any) -> Any:
        """The reference to a value in the record."""
        if isinstance(value, rushlight.Tensor):
            found = self.numbers.get(id(value))
            if found is not None:
                if found.number not in self.names:
                    self.names[found.number] = _variable_of(value)
                return found
            attribute = self._attributes.get(id(value))
            if attribute is not None:
                return attribute
            self.kept.append(value)
            if value.requires_grad:
                raise RuntimeError(
                    "Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or input, or detaching the gradient"
                )
            return value
        if isinstance(value, TracedInt):
            return Ref(value.number)
        if isinstance(value, (list, tuple)):
            return [self.ref(v) for v in value]
        return value if packed_type(value) is None else self._attributes.get(id(value), value)

    def computed(self, kind: str, arguments: Sequence[Any], value: int) -> Any:
        """A number that was computed of others."""
        if self.paused or not _CURRENT or _CURRENT[-1] is not self:
            return value
        made = TracedInt(value)
        made.recorder, made.number = self, self.count
        self.count += 1
        self.add(Step(kind, "int", [self.ref(a) for a in arguments], [Ref(made.number)]))
        return made

    def size(self, tensor: Any, dim: int) -> Any:
        """The size of a dim, as a number of the record."""
        made = TracedInt(tensor.shape[dim])
        made.recorder, made.number = self, self.count
        self.count += 1
        self.add(Step("aten::size", "int", [self.ref(tensor), dim], [Ref(made.number)]))
        return made

    def tensor_of(self, number: TracedInt) -> Any:
        """A number of the record as a tensor without dims."""
        self.paused += 1
        made = rushlight.scalar_tensor(int(number), dtype=rushlight.int64)
        self.paused -= 1
        self.add(Step("prim::NumToTensor", "Scalar", [Ref(number.number)], [self.note(made)]))
        return made

    def add(self, step: Any) -> None:
        """One more step."""
        step.location, step.scope = _user_place(), self.current_scope()
        self.current.steps.append(step)

    def operator(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """An operator that ran."""
        if self.paused or func._opname in _UNRECORDED:
            return
        if func.form is None:
            raise RuntimeError(f"torch.jit.trace cannot record {func}: it is no operator of PyTorch's")
        values = bound(func, args, kwargs)
        name, overload = func._opname, "" if func._overloadname == "default" else func._overloadname
        name, overload, values = recorded_form(name, overload, values)
        step = Step(f"aten::{name}", overload, [self.ref(v) for v in values.values()], [])
        many = isinstance(result, (tuple, list))
        results = func.form.parsed().returns
        if many and len(results) == 1:
            step.outputs = [self.note(list(result))]
        else:
            step.outputs = [self.note(r) for r in (result if many else (result,))]
        self.add(step)

    def quantized(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a function of quantized tensors as one operator."""
        schema, values, finish = as_operator(function, args, kwargs)
        self.paused += 1
        try:
            result = function(*args, **kwargs)
            values = [self._without_history(v) for v in values]
        finally:
            self.paused -= 1
        step = Step(schema.name, schema.overload_name, [self.ref(v) for v in values], [])
        if finish is None and isinstance(result, tuple) and len(schema.returns) > 1:
            step.outputs = [self.note(r) for r in result]
        else:
            step.outputs = [self.note(list(result) if isinstance(result, (tuple, list)) else result)]
        self.add(step)
        return result

    def _without_history(self, value: Any) -> Any:
        """A tensor that the record does not know, as a constant: operators over packed weights give no gradients."""
        known = id(value) in self.numbers or id(value) in self._attributes
        return value.detach() if isinstance(value, rushlight.Tensor) and value.requires_grad and not known else value

    def call_function(self, function: Any, values: Sequence[Any], module: Any = None) -> Any:
        """A compiled function, or a compiled module's method, that is called by the traced one: it keeps its graph."""
        if module is not None and id(module) not in self.modules:
            raise RuntimeError(
                f"Tried to trace {module._type.name} but it is not part of the active trace. Modules that are called during a trace must be registered as submodules of the thing being traced."
            )
        arguments = [self.ref(v) for v in values]
        self.paused += 1
        try:
            result = function.run(*values) if module is None else function.run(module, *values)
        finally:
            self.paused -= 1
        outputs = self.note(result) if isinstance(result, rushlight.Tensor) else self._structure(result)
        step = Step("prim::CallFunction" if module is None else "prim::CallMethod", "", arguments, [outputs])
        step.function, step.module = function, module
        self.add(step)
        return result

    def _structure(self, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(self.note(r) if isinstance(r, rushlight.Tensor) else self._structure(r) for r in result)
        if isinstance(result, list):
            return [self.note(r) for r in result]
        return None


def _keeps_its_graph(module: Any) -> bool:
    """Whether a module was compiled before: a trace calls its methods."""
    return "_type" in module.__dict__


_CURRENT: list[Recorder] = []


def current() -> Recorder | None:
    """The recorder of the trace that runs."""
    return _CURRENT[-1] if _CURRENT and not _CURRENT[-1].paused else None


_WORDS = {dtype: word for word, dtype in TENSOR_WORDS.items()}


def shaped_type(x: Any) -> ShapedType:
    """A tensor's type as traced graphs have it."""
    word = _WORDS.get(x.dtype, "Tensor")
    strides = x.stride() if x.layout is rushlight.strided else None
    return ShapedType(x.dtype, word, [int(n) for n in x.shape], strides, x.device, x.requires_grad)


def _user_place() -> Any:
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] != "rushlight" or name.startswith("rushlight.nn.modules."):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _variable_of(tensor: Any) -> str:
    """The variable that holds a tensor where the user's program calls an operator; empty for none."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] != "rushlight" or name.startswith("rushlight.nn.modules."):
            found = next((word for word, held in frame.f_locals.items() if held is tensor), "")
            return "" if found == "self" else found
        frame = frame.f_back
    return ""


class _Operators(TorchDispatchMode):
    """Sees operators above autograd."""

    pre_dispatch = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.recorder.operator(func, args, kwargs, result)
        return result


class _Functions(TorchFunctionMode):
    """Sees sizes, and what leaves tensors for Python."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        recorder = self.recorder
        if recorder.paused:
            return func(*args, **kwargs)
        if (
            name == "__get__"
            and getattr(func, "__self__", None) is rushlight.Tensor.shape
            or name == "size"
            and len(args) == 1
            and not kwargs
        ):
            found = func(*args, **kwargs)
            return rushlight.Size([recorder.size(args[0], d) for d in range(len(found))])
        if name == "size":
            dim = args[1] if len(args) > 1 else kwargs.get("dim")
            if isinstance(dim, int):
                func(*args, **kwargs)
                return recorder.size(args[0], dim)
        if name in _ARITHMETIC and any(isinstance(a, TracedInt) for a in args):
            args = tuple(recorder.tensor_of(a) if isinstance(a, TracedInt) else a for a in args)
        if name in ("__getitem__", "__setitem__") and isinstance(args[0], rushlight.Tensor):
            found = without_whole_slices(args[0], args[1])
            if found is not None:
                args = (*found, *args[2:])
        if meets_quantized(func, args, kwargs):
            return recorder.quantized(func, args, kwargs)
        if name in _LEAVES and not _asked_by_layer():
            warnings.warn(_CONSTANT.format(_LEAVES[name]), TracerWarning, stacklevel=3)
        return func(*args, **kwargs)
