"""Parametrizations: a parameter of a module as a function of other tensors, which are what is trained.

>>> import rushlight as torch
>>> from rushlight.nn.utils import parametrize
>>> class Symmetric(torch.nn.Module):
...     def forward(self, x):
...         return x.triu() + x.triu(1).T
>>> layer = parametrize.register_parametrization(torch.nn.Linear(3, 3), "weight", Symmetric())
>>> bool((layer.weight == layer.weight.T).all())
True
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn.modules import conversion
from rushlight.nn.modules.container import ModuleDict, ModuleList
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.utils.swapping import swap_tensors

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip


# ***** the cache *****

_caches_open = 0
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Inside, a parametrized tensor is computed by its first use and kept until the (outermost) block ends.

    For modules that use one parameter several times, such as recurrent ones.
    """
    global _caches_open
    _caches_open += 1
    try:
        yield
    finally:
        _caches_open -= 1
        if not _caches_open:
            _cache.clear()


# ***** one parametrized tensor *****


def _take_over(dest: Any, src: Any) -> None:
    """`dest` keeps its identity, which optimizers hold, and gets the memory of `src`."""
    if dest is src:
        return
    if conversion.swaps() or conversion.wraps_tensors(dest):
        swap_tensors(dest, Parameter(src, requires_grad=dest.requires_grad) if isinstance(dest, Parameter) else src)
    else:
        dest.data = src.detach()


def _inverses(modules: Sequence[Any]) -> Iterator[Any]:
    """The `right_inverse` of each module that has one, last module first."""
    for module in reversed(modules):
        if hasattr(module, "right_inverse"):
            yield module.right_inverse


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, in the order in which they are applied, and what they are applied to.

    That is the parameter (or buffer) `original`, or several, `original0`, `original1` ..., if `right_inverse` of the
    parametrizations makes several tensors out of one. Calling the list computes the parametrized tensor.
    With `unsafe` shapes and dtypes are not checked. Made by `register_parametrization`.
    """

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        before = _facts(original)
        with rushlight.no_grad():
            new: Any = original
            for inverse in _inverses(list(self)):
                try:
                    new = inverse(new)
                except NotImplementedError:
                    continue  # taken for the identity
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            self._keep_one(original, new)
        else:
            self._keep_several(original, new)
        if not unsafe:
            self._check(before)

    def _keep_one(self, original: Any, new: Any) -> None:
        for what in ("dtype", "device"):
            old, made = getattr(original, what), getattr(new, what)
            if old != made:
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                    f"original.{what}: {old}\nright_inverse(original).{what}: {made}"
                )
        with rushlight.no_grad():
            _take_over(original, new)
        _register(self, "original", original)

    def _keep_several(self, original: Any, new: Any) -> None:
        for i, part in enumerate(new):
            if not isinstance(part, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                    f"Got element {i} of the sequence with type {type(part).__name__}."
                )
            if isinstance(original, Parameter):
                part = Parameter(part, original.requires_grad)
            part.requires_grad_(original.requires_grad)
            _register(self, f"original{i}", part)

    def _check(self, before: tuple[Any, Any]) -> None:
        made = self()
        if not isinstance(made, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
        for what, old, now in zip(("dtype", "shape"), before, _facts(made), strict=True):
            if old != now:
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag is enabled.\n"
                    f"unparametrized {what}: {old}\nparametrized {what}: {now}"
                )

    def _originals(self) -> list[Any]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the original tensors so that the parametrized one becomes `value`, as far as `right_inverse` can say how.

        Called by the assignment `module.weight = value`. RuntimeError where a parametrization has no `right_inverse`.
        """
        with rushlight.no_grad():
            new: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                new = module.right_inverse(new)
            if self.is_tensor:
                if not isinstance(new, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(new).__name__}")
                if new.dtype != self.original.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {new.dtype} while `original` has dtype {self.original.dtype}"
                    )
                _take_over(self.original, new)
                return
            self._assign_several(new)

    def _assign_several(self, new: Any) -> None:
        if not isinstance(new, Sequence):
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(new).__name__}.")
        if len(new) != self.ntensors:
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length {len(new)}."
            )
        for i, (part, original) in enumerate(zip(new, self._originals(), strict=True)):
            if not isinstance(part, Tensor):
                raise ValueError(
                    f"`right_inverse` must return a sequence of tensors. Got element {i} of type {type(part).__name__}"
                )
            if part.dtype != original.dtype:
                raise ValueError(
                    f"Tensor {i} returned by `right_inverse` has dtype {part.dtype} while `original{i}` has dtype {original.dtype}"
                )
            _take_over(original, part)

    def forward(self) -> Tensor:
        """The parametrized tensor."""
        first, *rest = self
        made = first(*self._originals())
        for module in rest:
            made = module(made)
        return made


def _facts(tensor: Any) -> tuple[Any, Any]:
    return tensor.dtype, getattr(tensor, "shape", None)


def _register(module: Module, name: str, tensor: Any) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


# ***** modules with parametrized tensors *****


def _become_parametrized(module: Module) -> None:
    """Give the module a class of its own, on which properties stand for the parametrized tensors."""
    cls: Any = type(module)

    def no_pickling(self: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(). See:\n"
            "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
            "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
        )

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        # The ordinary way goes through __getstate__.
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = self.__new__(type(self))
            found.__dict__ = copy.deepcopy(self.__dict__, memo)
        return found

    members: dict[str, Any] = {"__getstate__": no_pickling}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _stand_in(module: Module, tensor_name: str) -> None:
    """A property of the module's own class that computes the tensor, and whose assignment sets the originals."""

    def get(self: Any) -> Any:
        if not _caches_open:
            return self.parametrizations[tensor_name]()
        key = id(module), tensor_name
        if key not in _cache:
            _cache[key] = self.parametrizations[tensor_name]()
        return _cache[key]

    def set(self: Any, value: Any) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, set))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make `module.<tensor_name>` the result of `parametrization`, a module that takes the tensor and returns one.

    What is trained, `module.parametrizations.<tensor_name>.original`, is the old parameter (or buffer) itself; if the
    parametrization has a method `right_inverse`, its result for the old value is the start, and may be several tensors.
    More parametrizations of one tensor are applied one after the other. `unsafe` drops the checks that neither shape
    nor dtype change. Returns `module`, whose class is a subclass of its old one. ValueError for a tensor that is not
    there.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_addition(tensor_name, getattr(module, tensor_name), parametrization)
        found: Any = module.parametrizations[tensor_name]
        found.append(parametrization)
        found.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _become_parametrized(module)
            module.parametrizations = ModuleDict()
        _stand_in(module, tensor_name)
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'"
        )
    return module


def _check_addition(tensor_name: str, before: Any, parametrization: Any) -> None:
    """A further parametrization must keep dtype and shape, and so must its inverse."""
    place = f"module.{tensor_name}"
    after = parametrization(before)
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    for what, old, new in zip(("dtype", "shape"), _facts(before), _facts(after), strict=True):
        if old != new:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless the `unsafe` flag is enabled.\n"
                f"{place}.{what}: {old}\nparametrization({place}).{what}: {new}"
            )
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    for what, old, new in zip(("dtype", "shape"), _facts(before), _facts(back), strict=True):
        if old != new:
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} as {place}, unless the `unsafe` flag is "
                f"enabled.\n{place}.{what}: {old}\nreturned {what}: {new}"
            )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has parametrized tensors, or whether the one of this name is parametrized.

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    >>> torch.nn.utils.parametrize.is_parametrized(layer, "weight"), torch.nn.utils.parametrize.is_parametrized(layer, "bias")
    (True, False)
    """
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a parametrized tensor an ordinary parameter (or buffer) again; returns the module.

    It has the present value, or with `leave_parametrized=False` the original one, which there is only if the
    parametrizations have one original tensor (else ValueError). The parameter is the one that was trained.

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    >>> torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    Linear(in_features=2, out_features=2, bias=True)
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations: Any = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        original = parametrizations.original
        if leave_parametrized:
            with rushlight.no_grad():
                _take_over(original, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before its first parametrization.

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    >>> torch.nn.utils.parametrize.type_before_parametrizations(layer) is torch.nn.Linear, type(layer) is torch.nn.Linear
    (True, False)
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give `to_module` the parametrizations of `from_module` (of one tensor, or of all), with copies of their tensors.

    Tensors that `to_module` lacks are made. Returns `to_module`, unchanged if there is nothing to transfer. KeyError
    for a tensor that is not parametrized.
    """
    found: Any = from_module.parametrizations if is_parametrized(from_module) else {}
    for name in found if tensor_name is None else [tensor_name] if found else []:
        parametrizations = found[name]
        if not hasattr(to_module, name):
            # Only its place counts: its value is overwritten below.
            value = parametrizations.original if parametrizations.is_tensor else Parameter(parametrizations().detach())
            setattr(to_module, name, copy.deepcopy(value))
        for parametrization in parametrizations:
            register_parametrization(to_module, name, parametrization)
        for key in (
            ["original"] if parametrizations.is_tensor else [f"original{i}" for i in range(parametrizations.ntensors)]
        ):
            setattr(to_module.parametrizations[name], key, copy.deepcopy(getattr(parametrizations, key)))
    return to_module
