"""Settings of the tracer: which functions say that code is being compiled, which pages are followed, how fx graphs are
made, when it may trace.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight._C import DisableTorchFunctionSubclass
from rushlight._interface.base import import_whole, tree_flatten, tree_map
from rushlight._interface.compiling import HOOKS, look_again
from rushlight._interface.operators import ALLOWED, INSTEAD
from rushlight.compiler import backends
from rushlight.compiler.errors import BackendCompilerFailed, FailOnRecompileLimitHit, RecompileError, Unsupported
from rushlight.compiler.settings import settings
from rushlight.compiler.stances import current_stance
from rushlight.compiler.strictness import strict
from rushlight.library.operators import describing

__all__ = ["register"]


def _document(tracer: Any, outputs: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
    """The fx graph of a trace as a module, the tensors it takes, and where they come from."""
    tracer.document.output(outputs)
    document = tracer.document
    with DisableTorchFunctionSubclass():  # what is written of a result is no call of the program
        made = import_whole("rushlight.fx._document").graph_module(document.calls, document.numbers, document.required)
    varying = tracer.outside.varying
    known = [
        (value, varying.places[varying.number_of(value)])
        if isinstance(value, rushlight.SymInt)
        else tracer.outside.tensors[id(value)]
        for value in made.inputs
    ]
    return made.module, [real for real, _ in known], [source for _, source in known]


def _opaque(function: Any) -> Any:
    """The operator of a custom one, which is a node of its own, and the launch of a Triton kernel; None for everything
    else.  The package's own operators are followed.
    """
    kind = type(function)
    page = kind.__module__.partition(".")[2]  # also where the package is called torch, and triton
    if page in ("triton.runtime.jit", "runtime.jit") and kind.__name__ == "Launch":
        return function
    if page not in ("library.custom", "library.operators"):
        return None
    return getattr(function, "_opoverload", function)


def _fake(env: Any, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Tensors like the results of a custom operator, which want gradients where the operator has one; None where it
    does not say.  Sizes that only elements tell are symbols of `env`, if it is given.
    """
    overload = operator if hasattr(operator, "fake") else getattr(operator, "default", None)
    if overload is None or overload.fake is None:
        return None
    fakes = import_whole("rushlight._subclasses.fake_tensor")
    with rushlight.no_grad(), describing(overload, fakes.FakeImplCtx(env, overload)):
        try:
            found = overload.fake(*args, **kwargs)
        except fakes.DynamicOutputShapeException:
            return None
    given = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, rushlight.Tensor)]
    if overload.backward is not None and rushlight.is_grad_enabled() and any(leaf.requires_grad for leaf in given):
        for leaf in tree_flatten(found)[0]:
            if isinstance(leaf, rushlight.Tensor) and leaf.is_floating_point():
                leaf.requires_grad_()
    return found


def _sized_by_elements(env: Any, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The results of a function as fake tensors whose unknown sizes are symbols of `env`, in a tuple; None where fake
    tensors cannot tell.
    """
    fakes = import_whole("rushlight._subclasses.fake_tensor")
    mode = fakes.FakeTensorMode(shape_env=env)

    def fake(value: Any) -> Any:
        if not isinstance(value, rushlight.Tensor):
            return value
        made = mode.sized(tuple(value.shape), tuple(value.stride()), value.dtype, rushlight.device(value.device.type))
        lengths = value.__dict__.setdefault("_lengths", {})  # of masks: the same mask has as many places each time
        if (env, value._version) in lengths:
            made.__dict__["_length"] = mode.writes, env, lengths[env, value._version]
        fakes_of.append((value, made))
        return made.requires_grad_() if value.requires_grad else made

    fakes_of: list[tuple[Any, Any]] = []
    owner = getattr(function, "__self__", None)
    if isinstance(owner, rushlight.Tensor):
        function, args = getattr(rushlight.Tensor, function.__name__), (owner, *args)
    try:
        with mode:
            found = function(*tree_map(fake, tuple(args)), **tree_map(fake, kwargs))
    except (RuntimeError, TypeError, NotImplementedError, AssertionError):
        return None
    for value, made in fakes_of:
        if "_length" in made.__dict__:
            value.__dict__["_lengths"][env, value._version] = made.__dict__["_length"][2]
    return (found,)


def _forced(backend: Any) -> Any:
    """The backend that a stance puts in the place of all others; None for rushlight's own."""
    return None if backend == backends.OWN else backends.checked(backends.lookup_backend(backend), {})


def _allowed(compiled: Any, again: bool, why: str) -> bool:
    """Whether a function may be traced now (`again`: though it was before); the stance and the settings say it."""
    (stance, _, forced), config = current_stance(), settings("torch._dynamo.config")
    compiled.settings.backend = compiled.settings.asked_backend if forced is None else _forced(forced)
    if not compiled.settings.own_limit:
        compiled.settings.recompile_limit = config.get("recompile_limit")
    if stance == "default":
        if again and config.get("error_on_recompile"):
            raise RecompileError(
                f"Recompiling function {_place(compiled)}\n    triggered by the following guard failure(s):\n    - {why}"
            )
        return True
    if stance == "fail_on_recompile":
        code = compiled.target.__code__
        text = (
            "Detected recompile when torch.compile stance is 'fail_on_recompile'. "
            f"filename: '{code.co_filename}', function name: '{code.co_name}', line number: {code.co_firstlineno}"
        )
        raise RuntimeError(text + (f"\n    triggered by the following guard failure(s):\n    - {why}" if why else ""))
    if stance in ("eager_then_compile", "aot_eager_then_compile"):
        called = compiled.__dict__.get("_called_eagerly", False)
        compiled._called_eagerly = True
        return called
    return False


def _settled() -> bool:
    """Whether neither the stance nor the settings ask to be told of calls that no program fits."""
    return current_stance().stance == "default" and not settings("torch._dynamo.config").get("error_on_recompile")


def _settings_text() -> str:
    """The settings that have another value than PyTorch gives them."""
    pages = [settings(name) for name in ("torch._dynamo.config", "torch._inductor.config")]
    return "\n".join(f"{page.name} {sorted(page.values.items())}" for page in pages)


def _place(compiled: Any) -> str:
    code = compiled.target.__code__
    return f"{code.co_name} in {code.co_filename}:{code.co_firstlineno}"


def _dynamic(asked: bool | None) -> bool | None:
    """Whether sizes are symbols: from the first trace on, where they change (None), or where they are marked alone."""
    page = settings("torch._dynamo.config")
    if asked is not None:
        return asked
    if not page.get("dynamic_shapes"):
        return False
    if not page.get("assume_static_by_default"):
        return True
    return None if page.get("automatic_dynamic_shapes") else False


def _limited(compiled: Any, whole: bool, why: str) -> None:
    """FailOnRecompileLimitHit where a function that has as many programs as it may have must not run as it is: one graph
    is asked for (`whole`), or the settings say so.
    """
    if whole or settings("torch._dynamo.config").get("fail_on_recompile_limit_hit"):
        asking = "fullgraph=True" if whole else "fail_on_recompile_limit_hit"
        raise FailOnRecompileLimitHit(
            f"{_place(compiled)} was compiled {compiled.settings.recompile_limit} times, the limit, and {asking} forbids to run it as it is; "
            f"the last time because this did not hold: {why}"
        )


def register(*compiling: Callable[[], bool]) -> None:
    """Tell the tracer; `compiling` are functions that are true while code is being compiled."""
    HOOKS.document = _document
    HOOKS.opaque, HOOKS.fake, HOOKS.sized_by_elements = _opaque, _fake, _sized_by_elements
    HOOKS.allowed, HOOKS.settled, HOOKS.limited = _allowed, _settled, _limited
    settings("torch._dynamo.config").told["error_on_recompile"] = lambda value: look_again()
    HOOKS.strict = strict
    HOOKS.dynamic = _dynamic
    HOOKS.settings_text = _settings_text
    HOOKS.public = rushlight
    HOOKS.follows_numpy = lambda: bool(settings("torch._dynamo.config").get("trace_numpy"))
    HOOKS.captures_sizes = lambda: bool(settings("torch._dynamo.config").get("capture_dynamic_output_shape_ops"))
    HOOKS.captures_elements = lambda: bool(settings("torch._dynamo.config").get("capture_scalar_outputs"))
    HOOKS.compiling.extend(compiling)
    HOOKS.unsupported = Unsupported
    HOOKS.fatal = (*HOOKS.fatal, Unsupported, BackendCompilerFailed, RecompileError, FailOnRecompileLimitHit)
    functions = ("associative_scan", "cond", "map", "scan", "while_loop")
    HOOKS.handled |= {(f"rushlight._higher_order_ops.{name}", name): name for name in functions}
    HOOKS.handled["rushlight._higher_order_ops.operators", "cond"] = "cond"
    HOOKS.handled["rushlight.optim.lr_scheduler", "step"] = "scheduler_step"
    HOOKS.world = _world
    HOOKS.states += [INSTEAD.state, ALLOWED.state]
    HOOKS.communicating |= {f"rushlight.distributed.{module}": names for module, names in _COMMUNICATING.items()}
    for name in ("before", "after"):
        HOOKS.handled["rushlight.distributed.fsdp.states", name] = f"shard_{name}"
    HOOKS.wrappers["rushlight.distributed.tensor", "DTensor"] = ("_mesh", "_placed")
    HOOKS.values |= {"rushlight.distributed.tensor.placement_types", "rushlight.library.builtin"}
    checks = dict.fromkeys(("_check", "_check_index", "_check_value", "_check_type", "_check_not_implemented"), "check")
    checks |= {"_check_with": "check_with", "_check_is_size": "check_is_size"}
    HOOKS.handled |= {("rushlight._surface.checks", name): handler for name, handler in checks.items()}
    HOOKS.inlined = (
        *HOOKS.inlined, "rushlight._higher_order_ops.", "rushlight.amp.grad_scaler", "rushlight.func.modules",
        "rushlight.distributed.algorithms._checkpoint",
        "rushlight.onnx.importing.", "rushlight.serialization.gguf.packed",
        "rushlight.compiler.optimized_module", "rushlight.nn.parallel.distributed", "rushlight.nn.parallel.reducer",
        "rushlight.nn.parallel.buckets", "rushlight.triton.runtime.jit", "rushlight.library.kernels", "rushlight.distributed.tensor._modules",
        "rushlight.distributed.tensor.parallel.style",
    )  # fmt: skip


def _world() -> Any:
    """The state of `torch.distributed` in this process."""
    return importlib.import_module("rushlight.distributed.c10d.world").WORLD


# Functions that depend on process groups, by module; none named: all of it.
_COMMUNICATING: dict[str, frozenset[str]] = {
    "c10d.collectives": frozenset(), "_functional_collectives": frozenset(), "nn.functional": frozenset(),
    "c10d.groups": frozenset((
        "get_rank", "get_world_size", "get_group_rank", "get_global_rank", "get_process_group_ranks", "get_backend", "is_initialized",
        "get_node_local_rank",
    )),
    "c10d.world": frozenset(("rank", "size", "name")),
    "tensor._api": frozenset(("from_local", "to_local", "redistribute", "full_tensor")),
    "device_mesh": frozenset(("get_rank", "get_local_rank", "get_group", "get_coordinate", "size")),
}  # fmt: skip
