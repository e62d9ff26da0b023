"""`Module`: a tree of parameters, buffers and submodules with a `forward`."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import zero_gradients
from rushlight._interface.operators import is_function
from rushlight.nn.modules import hooks as _hooks
from rushlight.nn.modules.conversion import Convertible
from rushlight.nn.modules.hooks import (
    HookedCall,
    _WrappedHook,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from rushlight.nn.modules.state import _EXTRA_STATE_KEY_SUFFIX, StateDict, _IncompatibleKeys
from rushlight.nn.parameter import Buffer, Parameter

# The tables of global hooks, by the names that PyTorch's have.
_global_buffer_registration_hooks = _hooks.global_buffer_registration_hooks
_global_module_registration_hooks = _hooks.global_module_registration_hooks
_global_parameter_registration_hooks = _hooks.global_parameter_registration_hooks
_global_backward_pre_hooks, _global_backward_hooks = _hooks.global_backward_pre_hooks, _hooks.global_backward_hooks
_global_forward_pre_hooks, _global_forward_hooks = _hooks.global_forward_pre_hooks, _hooks.global_forward_hooks
_global_forward_hooks_always_called = _hooks.global_forward_hooks_always_called
_global_forward_hooks_with_kwargs = _hooks.global_forward_hooks_with_kwargs

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "Module",
    "_EXTRA_STATE_KEY_SUFFIX",
    "_IncompatibleKeys",
    "_WrappedHook",
    "_addindent",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

# Every table that a module instance holds, in the order in which PyTorch creates them (pickles show the order).
_INITIAL_STATE: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("training", lambda: True),
    ("_parameters", dict),
    ("_buffers", dict),
    ("_non_persistent_buffers_set", set),
    ("_backward_pre_hooks", OrderedDict),
    ("_backward_hooks", OrderedDict),
    ("_is_full_backward_hook", lambda: None),
    ("_forward_hooks", OrderedDict),
    ("_forward_hooks_with_kwargs", OrderedDict),
    ("_forward_hooks_always_called", OrderedDict),
    ("_forward_pre_hooks", OrderedDict),
    ("_forward_pre_hooks_with_kwargs", OrderedDict),
    ("_state_dict_hooks", OrderedDict),
    ("_state_dict_pre_hooks", OrderedDict),
    ("_load_state_dict_pre_hooks", OrderedDict),
    ("_load_state_dict_post_hooks", OrderedDict),
    ("_modules", dict),
)


def typename(value: Any) -> str:
    """The full name of a value's type, as error messages show it."""
    if isinstance(value, Tensor):
        return str(value.type())
    cls = value if isinstance(value, type) or is_function(value) else type(value)
    module = cls.__module__
    return cls.__qualname__ if module in ("", "builtins", "__builtin__") else f"{module}.{cls.__qualname__}"


def _remedy(value: Any) -> str:
    """Advice for the error, where something that is often taken for a module was given as one."""
    if isinstance(value, type) and issubclass(value, Module):
        return f": it is the class; {value.__name__}(...) makes a module"
    return ": it is a function, which a module's forward() can call" if is_function(value) else ""


def _forward_unimplemented(self: Any, *input: Any) -> None:
    """The computation of the module. Every subclass defines it."""
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Module(HookedCall, StateDict, Convertible):
    """Base class of all layers and models.

    Parameters, buffers and submodules register themselves when they are assigned to an attribute (after
    `super().__init__()`); calling the instance runs the hooks and `forward`.

    Example::

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 2)

            def forward(self, x):
                return torch.relu(self.fc(x))
    """

    dump_patches: bool = False
    training: bool
    call_super_init: bool = False
    forward: Callable[..., Any] = _forward_unimplemented

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if self.call_super_init is False and kwargs:
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
            )
        if self.call_super_init is False and args:
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
            )
        state = self.__dict__
        for name, make in _INITIAL_STATE:
            state[name] = make()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # ***** registration *****

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Add a tensor that belongs to the module's state but is not trained.

        It moves with the module and, if `persistent`, is part of `state_dict`. None is allowed as a place holder.
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not (isinstance(tensor, Tensor) or hasattr(tensor, "__torch_function__")):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        tensor = _offered(_hooks.global_buffer_registration_hooks, self, name, tensor)
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Any) -> None:
        """Add a parameter under `name`; None is allowed as a place holder. It must be a leaf of autograd."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is None:
            self._parameters[name] = None
            return
        if not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)"
            )
        if param.grad_fn:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. "
                f"To express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        self._parameters[name] = _offered(_hooks.global_parameter_registration_hooks, self, name, param)

    def add_module(self, name: str, module: Any) -> None:
        """Add a submodule under `name`; None is allowed as a place holder."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{typename(module)} is not a Module subclass{_remedy(module)}")
        self._check_name("module", name, self._modules)
        self._modules[name] = _offered(_hooks.global_module_registration_hooks, self, name, module)

    def register_module(self, name: str, module: Any) -> None:
        """The same as `add_module`."""
        self.add_module(name, module)

    def _check_name(self, kind: str, name: Any, table: dict[str, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if name not in table and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    # ***** attributes *****

    def __getattr__(self, name: str) -> Any:
        # Only called when the ordinary lookup failed. Written out, not looped: every `self.weight` passes here.
        state = self.__dict__
        if "_modules" in state:
            table = state["_parameters"]
            if name in table:
                return table[name]
            table = state["_modules"]
            if name in table:
                return table[name]
            table = state["_buffers"]
            if name in table:
                return table[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        params = self.__dict__.get("_parameters")
        if isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, self.__dict__, self._buffers, self._modules)
            self.register_parameter(name, value)
        elif params is not None and name in params:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        elif not self._set_module(name, value) and not self._set_buffer(name, value):
            super().__setattr__(name, value)

    def _forget(self, name: str, *tables: dict[str, Any]) -> None:
        """A name belongs to one table only: take it out of the others."""
        for table in tables:
            table.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def _set_module(self, name: str, value: Any) -> bool:
        modules = self.__dict__.get("_modules")
        if isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, self.__dict__, self._parameters, self._buffers)
        elif modules is None or name not in modules:
            return False
        elif value is not None:
            raise TypeError(
                f"cannot assign '{typename(value)}' as child module '{name}' (torch.nn.Module or None expected)"
            )
        modules[name] = _offered(_hooks.global_module_registration_hooks, self, name, value)
        return True

    def _set_buffer(self, name: str, value: Any) -> bool:
        buffers = self.__dict__.get("_buffers")
        known = buffers is not None and name in buffers
        if not known and not isinstance(value, Buffer):
            return False
        if value is not None and not (isinstance(value, Tensor) or hasattr(value, "__torch_function__")):
            raise TypeError(
                f"cannot assign '{typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)"
            )
        persistent = value.persistent if isinstance(value, Buffer) else name not in self._non_persistent_buffers_set
        # A subclass may override register_buffer with an older signature, without `persistent`.
        if _takes_persistent(self.register_buffer):
            self.register_buffer(name, value, persistent)
        elif persistent:
            self.register_buffer(name, value)
        else:
            raise RuntimeError(
                "Registering a non-persistent buffer on a Module subclass that implements register_buffer() "
                "without the persistent argument is not allowed."
            )
        return True

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    def __dir__(self) -> list[str]:
        names = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(name for name in names if not name[0].isdigit())

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Modules pickled by older versions lack the tables that came later.
        for name, make in _INITIAL_STATE:
            if name not in self.__dict__:
                self.__dict__[name] = make()

    def _replicate_for_data_parallel(self) -> Self:
        """A shallow copy whose parameters are to be filled in by whoever makes replicas."""
        made = self.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._parameters = {}
        made._buffers = self._buffers.copy()
        made._modules = self._modules.copy()
        made._is_replica = True
        return made

    # ***** the tree *****

    def get_submodule(self, target: str) -> Module:
        """Return the submodule with the dotted name `target` ('' is the module itself), else `AttributeError`."""
        module: Any = self
        for item in target.split(".") if target else ():
            if not hasattr(module, item):
                raise AttributeError(f"{module._get_name()} has no attribute `{item}`")
            module = getattr(module, item)
            if not isinstance(module, Module):
                raise AttributeError(f"`{item}` is not an nn.Module")
        found: Module = module
        return found

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at the dotted name `target`; with `strict` the name must exist already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if not hasattr(parent, name):
            if strict:
                raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        elif not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Any:
        """Return the parameter with the dotted name `target`, else `AttributeError`."""
        _, name, value = self._get_member(target)
        if not isinstance(value, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return value

    def get_buffer(self, target: str) -> Any:
        """Return the buffer with the dotted name `target`, else `AttributeError`."""
        module, name, value = self._get_member(target)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return value

    def _get_member(self, target: str) -> tuple[Module, str, Any]:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return module, name, getattr(module, name)

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Iterable[tuple[str, Any]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        modules: Iterable[tuple[str, Module]] = [(prefix, self)]
        if recurse:
            modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for module_prefix, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield f"{module_prefix}.{name}" if module_prefix else name, value

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Iterate over the parameters, each once; `recurse=False` stays in this module."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Iterate over (dotted name, parameter)."""
        yield from self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """Iterate over the buffers, each once."""
        for _, buf in self.named_buffers(recurse=recurse):
            yield buf

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Iterate over (dotted name, buffer)."""
        yield from self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self) -> Iterator[Module]:
        """Iterate over the direct children, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Iterate over (name, direct child), each child once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Iterate over the whole tree, this module first."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Iterate over (dotted name, module) of the whole tree, depth first, this module first with name `prefix`."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every module of the tree, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # ***** modes and gradients *****

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout on, batch statistics) for the whole tree."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode: the same as `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Let autograd record operations on the parameters, or freeze them."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros if `set_to_none=False`."""
        if getattr(self, "_is_replica", False):
            warnings.warn(
                "Calling .zero_grad() from a module created with nn.DataParallel() has no effect: its parameters are "
                "copies that accumulate no gradients.",
                stacklevel=2,
            )
        zero_gradients(self.parameters(), set_to_none)

    # ***** printing *****

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The text between the parentheses of the printed form; subclasses override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        lines = extra_lines + child_lines
        if not lines:
            body = ""
        elif len(extra_lines) == 1 and not child_lines:
            body = extra_lines[0]
        else:
            body = "\n  " + "\n  ".join(lines) + "\n"
        return f"{self._get_name()}({body})"

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this module's call, in place; the arguments are those of `rushlight.compile`."""
        self._compiled_call_impl = rushlight.compile(self._call_impl, *args, **kwargs)


def _takes_persistent(method: Any) -> bool:
    """Whether a `register_buffer`, which may be a subclass's own, has the argument `persistent`."""
    if getattr(method, "__func__", None) is Module.register_buffer:
        return True
    from inspect import signature  # slow to load, and seldom needed

    return "persistent" in signature(method).parameters


def _offered(table: OrderedDict[int, Any], module: Module, name: str, value: Any) -> Any:
    """Show a new member to the registration hooks; the last one that returns something decides what is registered."""
    for hook in table.values():
        given = hook(module, name, value)
        if given is not None:
            value = given
    return value


def _addindent(s_: str, numSpaces: int) -> str:
    """Indent all lines but the first by so many spaces; blank lines become empty."""
    first, *rest = s_.split("\n")
    return "\n".join([first, *(" " * numSpaces + line if line.strip() else "" for line in rest)])
