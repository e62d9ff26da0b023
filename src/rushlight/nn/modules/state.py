"""`state_dict` and `load_state_dict`: a module's tensors by name, out and in."""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import shorten
from rushlight.nn.modules import conversion
from rushlight.nn.modules.hooks import _WrappedHook
from rushlight.nn.parameter import Parameter, is_lazy
from rushlight.utils.hooks import RemovableHandle
from rushlight.utils.swapping import swap_tensors

__all__ = ["StateDict"]

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """Result of `load_state_dict`: missing and unexpected names."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class StateDict:
    """The part of `Module` that writes and reads state dicts."""

    _version: int = 1
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Any]  # modules or None; not their class, which programs would have to find to read this
    _state_dict_hooks: OrderedDict[int, Callable[..., Any]]
    _state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]

    # ***** hooks *****

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before the module writes its state."""
        return self._register_state_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after the state was written; it changes it in place."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return self._register_state_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was "
                "previously registered via register_state_dict_post_hook"
            )
        return self._register_state_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`
        before the module reads its part of a state dict."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        wrapped = _WrappedHook(hook, self if with_module else None)  # type: ignore[arg-type]
        return self._register_state_hook(self._load_state_dict_pre_hooks, wrapped)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading; it may change the two lists in place."""
        return self._register_state_hook(self._load_state_dict_post_hooks, hook)

    @staticmethod
    def _register_state_hook(table: OrderedDict[int, Any], hook: Any) -> RemovableHandle:
        handle = RemovableHandle(table)
        table[handle.id] = hook
        return handle

    # ***** extra state *****

    def get_extra_state(self) -> Any:
        """Override together with `set_extra_state` to put more than tensors into the state dict."""
        raise RuntimeError(f"{type(self).__name__} has no extra state: override get_extra_state to give it one")

    def set_extra_state(self, state: Any) -> None:
        """Receive what `get_extra_state` returned when the state dict was written."""
        raise RuntimeError(f"{type(self).__name__} has no extra state: override set_extra_state to read one")

    # ***** out *****

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> OrderedDict[str, Any]:
        """Return an ordered map from dotted names to the parameters and persistent buffers of the whole tree.

        The tensors are detached but share storage with the module, unless `keep_vars=True` returns the parameters
        themselves. Names start with `prefix`; entries go into `destination` if one is given.

        Example: `torch.save(model.state_dict(), "model.pt")`
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead. Refer to "
                "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for details.",
                FutureWarning,
                stacklevel=2,
            )
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # type: ignore[attr-defined]
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            given = hook(self, destination, prefix, local_metadata)
            if given is None:
                continue
            if getattr(hook, "_from_public_api", False):
                raise RuntimeError("state_dict post-hook must return None")
            destination = given
        result: OrderedDict[str, Any] = destination
        return result

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Write this module's own tensors (not those of its children) into `destination`."""
        for name, param in self._parameters.items():
            if param is not None:
                destination[prefix + name] = param if keep_vars else param.detach()
        for name, buf in self._buffers.items():
            if buf is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buf if keep_vars else buf.detach()
        if type(self).get_extra_state is not StateDict.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    # ***** in *****

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy tensors from `state_dict` into the parameters and buffers of the same names.

        `strict=True` raises `RuntimeError` for names that are missing or unknown; a wrong shape always raises. All
        problems are reported in one error. `assign=True` puts the given tensors themselves in place, with their
        dtype and device. Returns the missing and the unexpected names.

        After `torch.__future__.set_swap_module_params_on_conversion(True)` every parameter and buffer is swapped with
        what its `module_load(entry, assign=assign)` returns, and so keeps its identity.

        Example: `model.load_state_dict(torch.load("model.pt"))`
        """
        try:
            if not isinstance(state_dict, Mapping):
                raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
            missing: list[str] = []
            unexpected: list[str] = []
            errors: list[str] = []
            metadata = getattr(state_dict, "_metadata", None)
            # Hooks may rename entries: they get a copy, the caller's dict stays as it is.
            entries: Any = OrderedDict(state_dict)
            if metadata is not None:
                entries._metadata = metadata
            keys = _IncompatibleKeys(missing, unexpected)
            _load_tree(self, entries, "", _LoadTask(metadata, assign, keys, errors))
            if strict:
                for label, names in (("Unexpected", unexpected), ("Missing", missing)):
                    if names:
                        quoted = ", ".join(f'"{name}"' for name in names)
                        errors.insert(0, f"{label} key(s) in state_dict: {quoted}. ")
                errors += _odd_prefix(missing, unexpected)
            if errors:
                lines = "\n\t".join(errors)
                raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{lines}")
            return keys
        except BaseException as error:
            shorten(error)
            raise

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Read this module's own tensors. Problems go into the three lists; nothing is raised."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        persistent = ((k, v) for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set)
        local_state = {k: v for k, v in itertools.chain(self._parameters.items(), persistent) if v is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, param in local_state.items():
            key = prefix + name
            if key in state_dict:
                self._load_one(name, param, key, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not StateDict.set_extra_state:
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    head, *rest = key[len(prefix) :].split(".", 1)
                    if head not in (self._modules if rest else local_state):
                        unexpected_keys.append(key)

    def _load_one(self, name: str, param: Any, key: str, given: Any, assign: bool, error_msgs: list[str]) -> None:
        if not (isinstance(given, Tensor) or hasattr(given, "__torch_function__")):
            error_msgs.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object '
                f"from checkpoint but received {type(given)}"
            )
            return
        lazy = is_lazy(param)
        # Files of PyTorch before 0.4 hold scalars as tensors of one element.
        if not lazy and len(param.shape) == 0 and len(given.shape) == 1 and given.shape[0] == 1:
            given = given[0]
        if not lazy and given.shape != param.shape:
            error_msgs.append(
                f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
                f"the shape in current model is {param.shape}."
            )
            return
        if param.is_meta and not given.is_meta and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
                "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary "
                "to their corresponding key in the module instead of copying them in place?)",
                stacklevel=2,
            )
        try:
            with rushlight.no_grad():
                if conversion.swaps():
                    _swap_in(param, given, assign)
                elif assign:
                    given = _of_kind(param, given)
                    setattr(self, name, given)
                else:
                    param.copy_(given)
        except Exception as error:  # every problem of every entry is reported together
            action = "swapping" if conversion.swaps() else "copying"
            error_msgs.append(
                f'While {action} the parameter named "{key}", whose dimensions in the model are {param.size()} and '
                f"whose dimensions in the checkpoint are {given.size()}, an exception occurred : {error.args}."
            )


def _of_kind(param: Any, given: Any) -> Any:
    """The tensor as a parameter that requires gradients as `param` does, if `param` is one."""
    if not isinstance(param, Parameter):
        return given
    if isinstance(given, Parameter):
        return given.requires_grad_(param.requires_grad)
    return Parameter(given, requires_grad=param.requires_grad)


def _swap_in(param: Any, given: Any, assign: bool) -> None:
    """Let `param` become what its `module_load` makes of `given`.  RuntimeError if that is one of the two themselves."""
    loaded = param.module_load(given, assign=assign)
    if loaded is given or loaded is param:
        raise RuntimeError(
            "module_load returned one of self or other, please .detach() the result if returning one of the inputs in module_load"
        )
    swap_tensors(param, _of_kind(param, loaded))


def _odd_prefix(missing: Sequence[str], unexpected: Sequence[str]) -> list[str]:
    """A line on the prefix that all keys of a state dict have too much, or too little (`module.` of DataParallel,
    `_orig_mod.`), if there is one.
    """
    for longer, shorter, words in (
        (unexpected, missing, "begin with {0!r}: without it"),
        (missing, unexpected, "lack {0!r}: with it"),
    ):
        for name in shorter:
            if longer and longer[0].endswith(f".{name}"):
                prefix = longer[0].removesuffix(name)
                if set(longer) == {prefix + each for each in shorter}:
                    return [f"The keys of state_dict {words.format(prefix)} they would fit."]
    return []


class _LoadTask:
    """State shared while `load_state_dict` walks over the tree of modules."""

    __slots__ = ("assign", "errors", "keys", "metadata")

    def __init__(self, metadata: Any, assign: bool, keys: _IncompatibleKeys, errors: list[str]) -> None:
        self.metadata = metadata
        self.assign = assign
        self.keys = keys
        self.errors = errors


def _load_tree(module: Any, entries: Any, prefix: str, task: _LoadTask) -> None:
    local_metadata = {} if task.metadata is None else task.metadata.get(prefix[:-1], {})
    if task.assign:
        local_metadata["assign_to_params_buffers"] = task.assign
    keys = task.keys
    module._load_from_state_dict(
        entries, prefix, local_metadata, True, keys.missing_keys, keys.unexpected_keys, task.errors
    )
    for name, child in module._modules.items():
        if child is not None:
            child_prefix = prefix + name + "."
            child_entries = {k: v for k, v in entries.items() if k.startswith(child_prefix)}
            _load_tree(child, child_entries, child_prefix, task)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, "
                "if incompatible_keys need to be modified, it should be done inplace."
            )
