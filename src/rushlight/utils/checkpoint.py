"""Less memory for more work: parts of a model that keep nothing for backward and are computed again there.

>>> import rushlight as torch
>>> from rushlight.utils.checkpoint import checkpoint
>>> x = torch.ones(2, requires_grad=True)
>>> checkpoint(lambda v: (v * v).exp(), x, use_reentrant=False).sum().backward()
>>> x.grad
tensor([5.4366, 5.4366])

Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost" (2016).
"""

from __future__ import annotations

import enum
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import rushlight
from rushlight._interface.autograd import last_change
from rushlight._interface.base import LazyModule, shorten, trace_marks, tree_flatten, tree_map
from rushlight._interface.devices import backend_of, default_generators
from rushlight._interface.dispatch import Observer, observe, unobserve
from rushlight._interface.tensors import STATE
from rushlight.autograd.function import Function
from rushlight.autograd.graph import Node, saved_tensors_hooks
from rushlight.overrides import TorchFunctionMode

__all__ = [
    "SAC_IGNORED_OPS", "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "DefaultDeviceType", "GraphExecGroup",
    "SelectiveCheckpointContext", "check_backward_validity", "checkpoint", "checkpoint_sequential", "create_selective_checkpoint_contexts",
    "detach_variable", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip

# What `set_checkpoint_early_stop` and `set_checkpoint_debug_enabled` say inside; None: each checkpoint says for itself.
_EARLY_STOP: list[bool | None] = [None]
_DEBUG: list[bool | None] = [None]
TIP = "\nWith `debug=True` (or inside of `set_checkpoint_debug_enabled(True)`) this message also lists the operators of both computations."


class CheckpointError(RuntimeError):
    """The part computed something else the second time."""


class _Done(Exception):
    """Everything that backward needs has been computed again."""


def noop_context_fn() -> tuple[Any, Any]:
    """Contexts for the first and the second computation that do nothing."""
    return nullcontext(), nullcontext()


@contextmanager
def _setting(cell: list[bool | None], value: bool | None) -> Any:
    before = cell[0]
    cell[0] = value
    try:
        yield
    finally:
        cell[0] = before


@trace_marks.changes_later_calls
def set_checkpoint_early_stop(enable: bool) -> Any:
    """Inside, whether computing again ends as soon as all that was asked for is there, whatever the checkpoints say."""
    return _setting(_EARLY_STOP, enable)


@trace_marks.changes_later_calls
def set_checkpoint_debug_enabled(enabled: bool | None) -> Any:
    """Inside, whether errors list the operators of both computations; None leaves it to each checkpoint's `debug`."""
    return _setting(_DEBUG, enabled)


# ***** what surrounds the second computation *****


def _tensors_in(given: Any) -> list[Any]:
    return [x for x in tree_flatten(given)[0] if isinstance(x, rushlight.Tensor)]


def _random_states(given: Any) -> list[tuple[Any, Any]]:
    """The default generators of the devices in use, and of those where tensors of `given` lie, with their states."""
    devices = {x.device for x in _tensors_in(given) if not backend_of(x.device).shapes_only}
    return [(generator, generator.get_state()) for generator in default_generators(devices)]


@contextmanager
def _random_from(kept: list[tuple[Any, Any]] | None) -> Any:
    """Inside, random numbers start from the states that are `kept` (None: go on); afterwards they go on as if nothing had
    happened.
    """
    if kept is None:
        yield
        return
    before = [(generator, generator.get_state()) for generator, _ in kept]
    for generator, state in kept:
        generator.set_state(state)
    try:
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)


def _cast_on(kind: str) -> Any:
    """A function that makes a context with the automatic casts of a device type that are on at present."""
    enabled, dtype = rushlight.is_autocast_enabled(kind), rushlight.get_autocast_dtype(kind)
    keeps = rushlight.is_autocast_cache_enabled()
    if not enabled:
        return lambda: rushlight.autocast(kind, enabled=False) if rushlight.is_autocast_enabled(kind) else nullcontext()
    return lambda: rushlight.autocast(kind, dtype=dtype, cache_enabled=keeps)


def _casting() -> Any:
    """The same for all device types that have them."""
    on_host, on_gpu = _cast_on("cpu"), _cast_on("cuda")

    @contextmanager
    def casting() -> Any:
        with on_host(), on_gpu():
            yield

    return casting


class DefaultDeviceType:
    """The type of device that `set_device_states` means where none is named."""

    _name = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Name another type."""
        DefaultDeviceType._name = device

    @staticmethod
    def get_device_type() -> str:
        """The type that was named."""
        return DefaultDeviceType._name


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """(the numbers of the GPUs on which tensors among the arguments lie, the random states of these GPUs)."""
    devices = {x.device.index: x.device for x in _tensors_in(args) if x.device.type == "cuda"}
    return list(devices), [rushlight.cuda.get_rng_state(device) for device in devices.values()]


@trace_marks.changes_later_calls
def set_device_states(devices: Sequence[int], states: Sequence[Any], *, device_type: str | None = None) -> None:
    """Give GPUs their random states back; RuntimeError for devices of another type."""
    kind = device_type or DefaultDeviceType.get_device_type()
    if kind == "meta":
        return
    if kind != "cuda" and list(devices):
        raise RuntimeError(f"set_device_states: rushlight keeps states of GPUs, but found states for {kind}")
    for device, state in zip(devices, states, strict=True):
        rushlight.cuda.set_rng_state(state, device)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors of a tuple outside of the graph, as leaves that want gradients where the originals do; RuntimeError
    for anything but a tuple.
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, rushlight.Tensor) else x for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no tensor wants a gradient."""
    if not any(isinstance(x, rushlight.Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", UserWarning, stacklevel=3)


# ***** the checkpoint *****


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which only the arguments are kept for backward.

    - `use_reentrant=True` runs a backward inside of the backward, and sees only tensors among the positional arguments;
      with False each tensor that backward asks for is computed again when it is asked for.
    - `context_fn()` gives two contexts, for the first and the second computation; see
      `create_selective_checkpoint_contexts`.
    - `determinism_check="none"` lets the second computation give other shapes and dtypes; `debug` lists the operators
      of both in errors.
    - `early_stop`: the second computation ends as soon as all that backward needs is there.
    - `preserve_rng_state`: random numbers are the same the second time.  Automatic casts always are.

    CheckpointError where the second computation differs; ValueError for options that do not go together.
    """
    try:
        if use_reentrant is None:
            warnings.warn(
                "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly; without it the reentrant form is used, as in PyTorch. "
                "use_reentrant=False is recommended.",
                UserWarning,
                stacklevel=2,
            )
            use_reentrant = True
        if use_reentrant:
            if kwargs:
                raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}")
            if context_fn is not noop_context_fn or debug:
                raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
            return CheckpointFunction.apply(function, preserve_rng_state, *args)
        if determinism_check not in ("default", "none"):
            raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
        first, second = context_fn()
        if not rushlight.is_grad_enabled():
            return function(*args, **kwargs)
        again = _Again(function, args, kwargs, second, determinism_check == "default")
        again.states = _random_states((args, kwargs)) if preserve_rng_state else None
        again.early_stop = early_stop if _EARLY_STOP[0] is None else _EARLY_STOP[0]
        again.names = _Names() if (debug if _DEBUG[0] is None else _DEBUG[0]) else None
        with saved_tensors_hooks(again.pack, again.unpack), _watched(again.names), first:
            result = function(*args, **kwargs)
        again.complete = True
        return result
    except BaseException as error:
        shorten(error)
        raise


class _Names(Observer):
    """The operators that a computation called, for messages."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def enter(self, kind: str, name: str, given: Any, subject: Any) -> Any:
        if kind == "operator":
            values = ", ".join(
                f"{type(v).__name__}{list(v.shape)}" if isinstance(v, rushlight.Tensor) else repr(v) for _, v in given()
            )
            self.names.append(f"{name}({values})")

    def leave(self, mark: Any, made: Any) -> None:
        """Nothing: a call is noted when it begins."""


@contextmanager
def _watched(names: _Names | None) -> Any:
    if names is None:
        yield
        return
    observe(names)
    try:
        yield
    finally:
        unobserve(names)


class _Again:
    """One checkpointed call: numbers stand for its saved tensors until backward asks for them."""

    states: Any
    early_stop: bool
    names: _Names | None

    def __init__(self, function: Any, args: Any, kwargs: Any, context: Any, check: bool) -> None:
        self.function, self.args, self.kwargs, self.context, self.check = function, args, kwargs, context, check
        self.casting = _casting()
        self.complete = False  # a backward inside of the function asks for tensors before all are shown
        self.shown: list[tuple[Any, Any, Any]] = []
        self.values: dict[int, Any] = {}
        self.owner: Any = None  # the backward (or group of them) for which `values` were computed

    def pack(self, tensor: Any) -> int:
        self.shown.append((tensor.shape, tensor.dtype, tensor.device))
        return len(self.shown) - 1

    def unpack(self, number: int) -> Any:
        owner = GraphExecGroup._get_current_group() or STATE.task
        if owner is None or self.owner is None or self.owner() is not owner:
            self._compute()
            self.owner = (lambda: None) if owner is None else weakref.ref(owner)
        if number not in self.values:
            overlap = (
                ""
                if GraphExecGroup._get_current_group() is None
                else "Two backward calls in one GraphExecGroup may not need the same saved tensor. "
            )
            raise CheckpointError(
                f"torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. {overlap}If you are calling "
                "ctx.saved_tensors in backward, make sure to do so only once."
            )
        return self.values.pop(number)

    def _compute(self) -> None:
        found: list[Any] = []

        def pack(tensor: Any) -> int:
            if self.complete and len(found) >= len(self.shown):
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original forward pass "
                    f"({len(self.shown)})." + self._details(names)
                )
            found.append(tensor.detach() if tensor.requires_grad else tensor)
            if len(found) == len(self.shown) and self.early_stop:
                raise _Done
            return len(found) - 1

        names = None if self.names is None else _Names()
        try:
            with rushlight.enable_grad(), _random_from(self.states), self.casting(), _watched(names), self.context:
                with saved_tensors_hooks(pack, lambda number: found[number]):
                    self.function(*self.args, **self.kwargs)
        except _Done:
            pass
        if len(found) < len(self.shown):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.shown)}\nNumber of tensors saved during recomputation: {len(found)}."
                + self._details(names)
            )
        self._compare(found, names)
        self.values = dict(enumerate(found))

    def _compare(self, found: list[Any], names: Any) -> None:
        words = ("shape", "dtype", "device")
        wrong = []
        for place, (held, tensor) in enumerate(zip(self.shown, found, strict=False)):
            now = (tensor.shape, tensor.dtype, tensor.device)
            if self.check and now != held:
                pair = [str(dict(zip(words, each, strict=True))) for each in (held, now)]
                wrong.append(
                    f"tensor at position {place}:\nsaved metadata: {pair[0]}\nrecomputed metadata: {pair[1]}\n"
                )
        if wrong:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.\n"
                + "".join(wrong)
                + self._details(names)
            )

    def _details(self, names: _Names | None) -> str:
        if self.names is None or names is None:
            return TIP
        lists = ["\n".join(f"  {name}" for name in each.names) for each in (self.names, names)]
        return f"\nOperators during the original forward:\n{lists[0]}\nOperators during recomputation:\n{lists[1]}"


class GraphExecGroup:
    """Several backward calls that belong together: what one of them computed again, the next ones use.

    RuntimeError for a group inside of a group.

        >>> import rushlight as torch
        >>> from rushlight.utils.checkpoint import GraphExecGroup, checkpoint
        >>> x = torch.ones(2, requires_grad=True)
        >>> a, b = checkpoint(lambda v: (v.sin(), v.exp()), x, use_reentrant=False)
        >>> with GraphExecGroup():
        ...     a.sum().backward(retain_graph=True)
        ...     b.sum().backward()
        >>> x.grad
        tensor([3.2586, 3.2586])
    """

    _open: list[GraphExecGroup] = []

    def __enter__(self) -> None:
        if GraphExecGroup._open:
            raise RuntimeError("GraphExecGroup contexts cannot be nested.")
        GraphExecGroup._open.append(self)

    def __exit__(self, *exc: object) -> None:
        GraphExecGroup._open.pop()

    @classmethod
    def _get_current_group(cls) -> GraphExecGroup | None:
        return cls._open[-1] if cls._open else None


class CheckpointFunction(Function):
    """The older form: backward runs the part again, and a backward of its own through it."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.function, ctx.casting = run_function, _casting()
        ctx.states = _random_states(args) if preserve_rng_state else None
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, rushlight.Tensor)]
        ctx.rest = [None if isinstance(a, rushlight.Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if STATE.task is not None and STATE.task.needed is not None:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to .backward(). To "
                "resolve this error, you can either set use_reentrant=False, or call .backward() without passing the `inputs` argument."
            )
        args = list(ctx.rest)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with rushlight.enable_grad(), _random_from(ctx.states), ctx.casting():
            outputs = ctx.function(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (o, g)
            for o, g in zip(outputs, grads, strict=True)
            if isinstance(o, rushlight.Tensor) and o.requires_grad and g is not None
        ]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        rushlight.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *[a.grad if isinstance(a, rushlight.Tensor) else None for a in args])


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Modules one after another, in `segments` parts of which all but the last are checkpointed.

    `preserve_rng_state` (True by default) is the only further option; ValueError for others.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly; without it the reentrant form is "
            "used, as in PyTorch. use_reentrant=False is recommended.",
            UserWarning,
            stacklevel=2,
        )
        use_reentrant = True
    keep = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    modules: Sequence[Any] = (
        list(functions.children()) if isinstance(functions, rushlight.nn.Sequential) else list(functions)
    )
    size = len(modules) // segments
    if not size:
        raise ValueError(
            f"checkpoint_sequential: {segments} segments were asked for, but there are only {len(modules)} functions"
        )

    def part(start: int, stop: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for module in modules[start:stop]:
                x = module(x)
            return x

        return run

    last = size * (segments - 1)
    for start in range(0, last, size):
        input = checkpoint(part(start, start + size), input, use_reentrant=use_reentrant, preserve_rng_state=keep)
    return part(last, len(modules))(input)


# ***** a choice of what is computed again *****


class CheckpointPolicy(enum.Enum):
    """The treatment of one operator's result.  "Must" and "prefer" differ for compilers alone; on a CPU nothing needs
    to be moved there.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_SAVING = (
    CheckpointPolicy.MUST_SAVE,
    CheckpointPolicy.PREFER_SAVE,
    CheckpointPolicy.MUST_CPU_OFFLOAD,
    CheckpointPolicy.PREFER_CPU_OFFLOAD,
)


class SelectiveCheckpointContext:
    """Argument of a policy besides the call: whether this is the second computation, and the first one's result where
    it is known.
    """

    function: Any = None  # the public function that was called

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output

    def __repr__(self) -> str:
        return f"SelectiveCheckpointContext(is_recompute={self.is_recompute})"


def _key(function: Any) -> Any:
    """Key that two forms of an operator (`torch.mm`, `Tensor.mm`) share."""
    return getattr(function, "operator", function)


_calls: Any = LazyModule("rushlight.library.aten.calls")  # with the first selective checkpoint

# Functions that PyTorch makes of native operators, of which a policy asks.
_PRODUCTS = {(1, 1): "dot", (2, 1): "mv", (2, 2): "mm"}


def _overload(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The native operator (`torch.ops.aten.mm.default`) that PyTorch would call, where it has a name here; else the
    function.
    """
    name = getattr(_key(function), "public", None)
    if name is None or hasattr(function, "overloadpacket"):
        return function
    if name == "linear":
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        name = "mm" if bias is None else "addmm"
    elif name == "matmul" and len(args) == 2 and all(isinstance(a, rushlight.Tensor) for a in args):
        name = _PRODUCTS.get((args[0].dim(), args[1].dim()), "bmm")
    elif function.__name__.endswith("_") and not name.endswith("_"):
        name += "_"
    packet = getattr(rushlight.ops.aten, name, None)
    if packet is None:
        return function
    if "default" in packet.overloads():
        return packet.default
    found = _calls.resolve(name, args, kwargs)
    return function if found is None else found[0]


# Calls that no policy is asked about: they compute nothing that could be kept.
SAC_IGNORED_OPS: set[Any] = {
    getattr(rushlight.Tensor, name)
    for name in (
        "detach", "detach_", "size", "stride", "dim", "numel", "is_contiguous", "requires_grad_", "retain_grad", "register_hook",
    )
}  # fmt: skip


class _Ended(Node):
    """Where the graph of the second computation ends: nothing is ever sent back through it."""

    def __init__(self) -> None:
        self._start(())


class _Kept:
    """One result that was kept: its tensors, and which of the call's arguments its node saves."""

    def __init__(self, made: Any, places: list[int]) -> None:
        self.wants = [isinstance(t, rushlight.Tensor) and t.requires_grad for t in tree_flatten(made)[0]]
        self.made = tree_map(lambda t: t.detach() if isinstance(t, rushlight.Tensor) else t, made)
        self.versions = [
            (t._storage, t._version) for t in tree_flatten(self.made)[0] if isinstance(t, rushlight.Tensor)
        ]
        self.places = places

    def taken(self, name: str, may_change: bool) -> Any:
        """The result as the second computation goes on with it."""
        for storage, version in self.versions:
            if storage is not None and storage.version != version and not may_change:
                raise RuntimeError(
                    f"the result of {name} that was kept for a selective checkpoint has been changed in place, last at {last_change(storage)}; pass "
                    "allow_cache_entry_mutation=True to create_selective_checkpoint_contexts if that is meant"
                )
        wants = iter(self.wants)

        def fresh(t: Any) -> Any:
            want = next(wants)
            if not isinstance(t, rushlight.Tensor):
                return t
            made = t.detach()
            if want:
                made._node, made._rg = _Ended(), True
            return made

        return tree_map(fresh, self.made)


class _Choosing(TorchFunctionMode):
    """Asks the policy about every call: the first time (`second` is False) results are kept, the second time they are
    used.
    """

    def __init__(
        self, policy: Callable[..., Any], kept: dict[Any, list[_Kept]], second: bool, may_change: bool
    ) -> None:
        self.policy, self.kept, self.second, self.may_change = policy, kept, second, may_change
        self.taken: dict[Any, int] = {}

    def __enter__(self) -> Any:
        self.taken.clear()
        return super().__enter__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        inner = name.startswith("__") and _key(func) is func  # an attribute's value and the like
        if inner or func in SAC_IGNORED_OPS or not STATE.saved_hooks:
            return func(*args, **kwargs)
        asked = _overload(func, args, kwargs)
        context = SelectiveCheckpointContext(is_recompute=self.second)
        context.function = func
        chosen = self.policy(context, asked, *args, **kwargs)
        if isinstance(chosen, bool):
            chosen = CheckpointPolicy.MUST_SAVE if chosen else CheckpointPolicy.PREFER_RECOMPUTE
        if not isinstance(chosen, CheckpointPolicy):
            raise TypeError(
                f"a policy must return a CheckpointPolicy or a bool, but for {name} found {type(chosen).__name__}"
            )
        if chosen not in _SAVING:
            return func(*args, **kwargs)
        return self._take(func, name, args, kwargs) if self.second else self._keep(func, args, kwargs)

    def _keep(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run the call; what its node saves of the arguments is computed again, all else is kept."""
        pack, unpack = STATE.saved_hooks[-1]
        given = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, rushlight.Tensor)]
        places: list[int] = []

        def pack_one(tensor: Any) -> Any:
            for place, t in enumerate(given):
                if t._storage is tensor._storage and t._spec is tensor._spec and t._ptr == tensor._ptr:
                    places.append(place)
                    return True, pack(tensor)
            return False, tensor.detach()

        with saved_tensors_hooks(pack_one, lambda held: unpack(held[1]) if held[0] else held[1]):
            made = func(*args, **kwargs)
        self.kept.setdefault(_key(func), []).append(_Kept(made, places))
        return made

    def _take(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        key = _key(func)
        number = self.taken.get(key, 0)
        held = self.kept.get(key, ())
        if number >= len(held):
            raise RuntimeError(
                f"{name} was called more often when a selective checkpoint was computed again than it was kept the first time ({number})"
            )
        self.taken[key] = number + 1
        pack = STATE.saved_hooks[-1][0]
        given = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, rushlight.Tensor)]
        for place in held[number].places:
            pack(given[place])
        return held[number].taken(name, self.may_change)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """Contexts for `checkpoint(..., context_fn=...)` under which the results of some calls are kept and all others
    computed again.

    `policy_fn_or_list` is a list of functions (`torch.mm`, for all of its forms) or native operators
    (`torch.ops.aten.mm.default`) whose results are kept, or a function `policy(ctx, op, *args, **kwargs)` that returns
    a `CheckpointPolicy` for each call of a public function: `op` is the native operator where it has a name here (a
    linear layer asks for `aten.addmm` or `aten.mm`), else the function.  TypeError for anything else; RuntimeError
    where a result that was kept is changed in place, unless `allow_cache_entry_mutation`.

        >>> import functools
        >>> import rushlight as torch
        >>> from rushlight.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
        >>> keep_products = functools.partial(create_selective_checkpoint_contexts, [torch.mm])
        >>> w = torch.eye(2, requires_grad=True)
        >>> checkpoint(lambda w: torch.mm(w, w).exp(), w, use_reentrant=False, context_fn=keep_products).sum().backward()
        >>> w.grad
        tensor([[5.4366, 2.0000],
                [2.0000, 5.4366]])
    """
    policy = policy_fn_or_list
    if isinstance(policy_fn_or_list, (list, tuple, set)):
        for item in policy_fn_or_list:
            if not callable(item):
                raise ValueError(
                    f"create_selective_checkpoint_contexts expects functions in its list, but found {item!r} of type {type(item).__name__}"
                )
        listed = {_key(f) for f in policy_fn_or_list}

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            same = op in listed or _key(ctx.function) in listed
            return CheckpointPolicy.MUST_SAVE if same else CheckpointPolicy.PREFER_RECOMPUTE

    elif not callable(policy_fn_or_list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept: dict[Any, list[_Kept]] = {}
    return _Choosing(policy, kept, False, allow_cache_entry_mutation), _Choosing(
        policy, kept, True, allow_cache_entry_mutation
    )
