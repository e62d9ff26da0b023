"""`Optimizer`: parameter groups, state, hooks, and how both are saved."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import zero_gradients
from rushlight._interface.base import shorten
from rushlight._interface.multi_tensor import assumed_zero, is_captured, on_device
from rushlight.optim.authoring import CAPTURING_DEVICES
from rushlight.optim.authoring import default_to_fused_or_foreach as _default_to_fused_or_foreach  # noqa: F401
from rushlight.optim.authoring import group_tensors as _group_tensors
from rushlight.optim.authoring import use_grad_for_differentiable as _use_grad_for_differentiable  # noqa: F401
from rushlight.utils.hooks import RemovableHandle

__all__ = ["Optimizer", "ParamsT", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

_global_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()


SCALING = ("grad_scale", "found_inf")

# What optimizers take as parameters: tensors, groups, or pairs of a name and a tensor.
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


class _Required:
    """Stands for a default that every parameter group must give itself."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before every step of every optimizer."""
    return _register(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after every step of every optimizer."""
    return _register(_global_post_hooks, hook)


def _register(table: OrderedDict[int, Any], hook: Any, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(table)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


_HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


class Optimizer:
    """Base class of the optimizers.

    `params` is an iterable of tensors, of (name, tensor) pairs, or of dicts with `params` and the options of that
    group; `defaults` are the options of groups that do not give them. A subclass defines `step`.

    `param_groups` is a list of dicts that may be changed at any time (`group["lr"] = 0.1`); `state` maps each parameter
    to a dict of what the optimizer remembers about it.
    """

    # What hooks around steps are: the first kind may return new (args, kwargs).
    OptimizerPreHook: TypeAlias = Callable[
        [Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None
    ]
    OptimizerPostHook: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]

    _optimizer_step_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_step_post_hooks: OrderedDict[int, Callable[..., Any]]

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for name in _HOOK_TABLES:
            setattr(self, name, OrderedDict())
        self._patch_step_function()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {params.type()}"
            )
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        if not isinstance(params, Iterable):
            way = "; give its parameters()" if hasattr(params, "parameters") else ""
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {type(params).__name__}{way}"
            )
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list (a generator that was read before is empty, too)")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOK_TABLES:
            self.__dict__.setdefault(name, OrderedDict())
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params")
        return text + ")"

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> Any:
        return _group_tensors(tensorlistlist, with_indices)

    # ***** the step and its hooks *****

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters once. `closure`, if given, computes the loss again; its value is returned."""
        raise NotImplementedError

    def _patch_step_function(self) -> None:
        """Let the class's `step` run the hooks; done once for each class."""
        cls = type(self)
        if not getattr(cls.step, "hooked", None):
            cls.step = self.profile_hook_step(cls.step)  # type: ignore[method-assign]
            cls.step.hooked = True  # type: ignore[attr-defined]

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a `step` so that the hooks of steps run around it."""

        @functools.wraps(func)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if not (
                    self._optimizer_step_pre_hooks
                    or self._optimizer_step_post_hooks
                    or _global_pre_hooks
                    or _global_post_hooks
                ):
                    return func(self, *args, **kwargs)
                # Hooks see the arguments of the unbound call, the optimizer included, as in PyTorch.
                args = (self, *args)
                for hook in chain(_global_pre_hooks.values(), self._optimizer_step_pre_hooks.values()):
                    given = hook(self, args, kwargs)
                    if given is None:
                        continue
                    if not (isinstance(given, tuple) and len(given) == 2):
                        raise RuntimeError(
                            f"{func} must return None or a tuple of (new_args, new_kwargs), but got {given}."
                        )
                    args, kwargs = given
                result = func(*args, **kwargs)
                for hook in chain(self._optimizer_step_post_hooks.values(), _global_post_hooks.values()):
                    hook(self, args, kwargs)
                return result
            except BaseException as error:
                shorten(error)
                raise

        return wrapper

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return new (args, kwargs)."""
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict`."""
        return _register(self.__dict__["_optimizer_state_dict_pre_hooks"], hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after `state_dict`; a result replaces it."""
        return _register(self.__dict__["_optimizer_state_dict_post_hooks"], hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; a result replaces the state dict."""
        return _register(self.__dict__["_optimizer_load_state_dict_pre_hooks"], hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return _register(self.__dict__["_optimizer_load_state_dict_post_hooks"], hook, prepend)

    # ***** gradients *****

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros if `set_to_none=False`."""
        for group in self.param_groups:
            zero_gradients(group["params"], set_to_none)

    # ***** groups *****

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters: a dict with `params` and any options that differ from the defaults.

        Raises `TypeError` for what is not a tensor, `ValueError` for tensors that are not leaves, that are in another
        group already, or whose group lacks a required option.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        given = [params] if isinstance(params, Tensor) else list(params)
        names = [item[0] for item in given if isinstance(item, tuple)]
        param_group["params"] = given = [item[1] if isinstance(item, tuple) else item for item in given]
        if names:
            if len(names) != len(given):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            param_group["param_names"] = names
        self._check_params(given)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        self._check_against_groups(param_group)
        self.param_groups.append(param_group)

    def _check_params(self, params: list[Any]) -> None:
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_type_text(param)}")
            if not self.defaults.get("differentiable") and not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")

    def _check_against_groups(self, param_group: dict[str, Any]) -> None:
        ids = [id(param) for param in param_group["params"]]
        if len(ids) != len(set(ids)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=4,
            )
        taken: set[int] = set()
        named = "param_names" in param_group
        for group in self.param_groups:
            taken.update(id(param) for param in group["params"])
            if named != ("param_names" in group):
                how = "with names" if named else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {how} to the optimizer"
                )
        if not taken.isdisjoint(ids):
            raise ValueError("some parameters appear in more than one parameter group")

    # ***** saving and loading *****

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state: `state` by the parameters' numbers, and `param_groups` with numbers for
        parameters.

        Numbers count the parameters in the order of the groups. The tensors are those of the optimizer, not copies.
        """
        for hook in self.__dict__["_optimizer_state_dict_pre_hooks"].values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        start = 0
        for group in self.param_groups:
            packed = {key: value for key, value in group.items() if key != "params"}
            fresh = {id(param): i for i, param in enumerate(group["params"], start)}
            numbers = (
                fresh | numbers
            )  # what an earlier group has keeps its number; what stands twice in one group has the last
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            start += len(packed["params"])
            groups.append(packed)
        state = {numbers[id(key)] if isinstance(key, Tensor) else key: value for key, value in self.state.items()}
        state_dict: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self.__dict__["_optimizer_state_dict_post_hooks"].values():
            given = hook(self, state_dict)
            state_dict = state_dict if given is None else given
        return state_dict

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned, for the same parameters in the same order.

        Floating point state is converted to the dtype of its parameter. Raises `ValueError` if the groups do not match.
        """
        state_dict = state_dict.copy()
        for hook in self.__dict__["_optimizer_load_state_dict_pre_hooks"].values():
            given = hook(self, state_dict)
            state_dict = state_dict if given is None else given
        groups = self.param_groups
        saved_groups = deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(group["params"]) != len(saved["params"]) for group, saved in zip(groups, saved_groups, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        saved_ids = chain.from_iterable(saved["params"] for saved in saved_groups)
        own_params = chain.from_iterable(group["params"] for group in groups)
        by_number = dict(zip(saved_ids, own_params, strict=True))
        options = {number: saved for saved in saved_groups for number in saved["params"]}
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in by_number:
                state[by_number[key]] = _cast(by_number[key], value, options[key])
            else:
                state[key] = value
        for group, saved in zip(groups, saved_groups, strict=True):
            saved["params"] = group["params"]
            if "param_names" in group:
                saved.setdefault("param_names", group["param_names"])
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in self.__dict__["_optimizer_load_state_dict_post_hooks"].values():
            hook(self)


def _cast(param: Any, value: Any, options: dict[str, Any], key: Any = None) -> Any:
    """Put loaded state where its parameter is, in the parameter's dtype; step counters keep theirs."""
    if isinstance(value, Tensor):
        if key == "step":
            counts_there = options.get("capturable") or options.get("fused")
            return value.to(dtype=rushlight.float32, device=param.device) if counts_there else value
        return value.to(dtype=param.dtype if param.is_floating_point() else None, device=param.device)
    if isinstance(value, dict):
        return {name: _cast(param, item, options, name) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return type(value)(_cast(param, item, options) for item in value)  # type: ignore[call-arg]
    return value


def _type_text(value: Any) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


# ***** what the optimizers share *****


def run_closure(closure: Callable[[], Any] | None) -> Any:
    """Compute the loss again, recording gradients."""
    if closure is None:
        return None
    with rushlight.enable_grad():
        return closure()


def number(value: Any) -> Any:
    """A hyper-parameter as a Python number; it may be given as a tensor with one element."""
    return value.item() if isinstance(value, Tensor) else value


def step_dtype(group: Any = None) -> Any:
    """The dtype of step counters, of a group that is fused or of others."""
    wide = rushlight.get_default_dtype() is rushlight.float64 and not (group and group.get("fused"))
    return rushlight.float64 if wide else rushlight.float32


def check_implementation(optimizer: Any, options: dict[str, Any]) -> None:
    """Which of the ways to step that `foreach`, `fused` and `differentiable` ask for exclude each other; one kernel
    serves for all others.

    A `fused` optimizer takes the scale of a `GradScaler` itself.
    """
    if options.get("fused"):
        if options.get("differentiable"):
            raise RuntimeError("`fused` does not support `differentiable`")
        if options.get("foreach"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        optimizer._step_supports_amp_scaling = True


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    return [device for device in CAPTURING_DEVICES if supports_xla or device != "xla"]


def check_param(param: Any, group: dict[str, Any]) -> None:
    """Refuse what a parameter's group asks for and its device or dtype has not."""
    if group.get("capturable") and not group.get("fused") and param.device.type not in CAPTURING_DEVICES:
        raise AssertionError(
            f"If capturable=True, params and state_steps must be on supported devices: {list(CAPTURING_DEVICES)}."
        )
    if group.get("fused") and not param.is_floating_point():
        raise RuntimeError(
            "`fused=True` requires all the params to be floating point Tensors of supported devices: "
            f"['cpu'] but {param.dtype} and {param.device.type}"
        )
    if group.get("differentiable") and group.get("foreach"):
        raise AssertionError("_foreach ops don't support autograd")


def check_captured(optimizer: str, param: Any, group: dict[str, Any]) -> None:
    """Refuse a step in a graph that is being captured, unless the group counts on the device: each replay would be the
    step of the capture.
    """
    option = "capturable" if "capturable" in group else "fused"
    if not group.get(option) and is_captured(param):
        raise RuntimeError(
            f"Attempting {param.device.type.upper()} graph capture of step() for an instance of {optimizer} but "
            f"param_groups' {option} is False. The host counts its steps, which no replay does: pass {option}=True"
        )


def scaling_of(optimizer: Any) -> dict[str, Any]:
    """Options that a `GradScaler` sets on an optimizer for one step: `grad_scale` and `found_inf`."""
    given = {name: getattr(optimizer, name, None) for name in SCALING}
    return {} if all(value is None for value in given.values()) else given


def fused_options(param: Any, grads: list[Any], group: dict[str, Any]) -> dict[str, Any] | None:
    """The options of a fused step over parameters of the device of `param`; None where `found_inf` says to skip it.

    The host reads and unscales for itself alone.  On a device kernels do both, and the steps are counted there.
    """
    given = {name: group.get(name) for name in SCALING}
    scale, found = (x if x is None else x.to(param.device, non_blocking=True) for x in given.values())
    if on_device(param):
        return {**group, "capturable": True, "grad_scale": scale, "found_inf": found}
    if found is not None and assumed_zero(found):
        return None
    if scale is not None:
        with rushlight.no_grad():
            for grad in grads:
                grad.div_(scale)
    return {**group, "grad_scale": None, "found_inf": None}


def check_steps(steps: Any) -> None:
    """Refuse lists of steps in Python numbers, as old programs have them."""
    if not all(isinstance(step, Tensor) for step in steps):
        raise RuntimeError("API has changed, `state_steps` argument must contain a list of singleton tensors")


# ***** arithmetic with hyper-parameters, which a differentiable step may have to differentiate too *****


def hyper(group: dict[str, Any], name: str) -> Any:
    """A hyper-parameter; what is given as a tensor is computed with as a tensor of no dims, in its own precision.

    A differentiable step is differentiated by those that want a gradient, others are numbers to it.
    """
    value = group[name]
    if not isinstance(value, Tensor):
        return value
    if group.get("differentiable"):
        return value if value.requires_grad else value.item()
    return there(value) if group.get("capturable") else value.detach().reshape(())


def there(value: Any) -> Any:
    """A hyper-parameter of steps that graphs may capture: a tensor of no dims where it lies on a device, else a number, as
    kernels do not read the host's memory.
    """
    return value.detach().reshape(()) if isinstance(value, Tensor) and on_device(value) else number(value)
