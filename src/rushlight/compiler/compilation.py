"""`torch.compile`: arguments checked, modules wrapped, and functions handed to the tracer.

>>> import rushlight as torch
>>> @torch.compile(backend="eager")
... def double(x):
...     return x * 2
>>> double(torch.ones(2))
tensor([2., 2.])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight._interface.compiling import PASSES, CompileSettings, compile_function
from rushlight.compiler import backends
from rushlight.compiler.marks import innermost_function
from rushlight.compiler.optimized_module import OptimizedModule
from rushlight.compiler.report import timed
from rushlight.compiler.settings import settings
from rushlight.compiler.stances import current_stance, set_stance
from rushlight.nn.modules.module import Module

__all__ = ["MODES", "CompileContext", "compile", "disable", "optimize", "optimize_assert", "run"]

# What a mode sets, as in PyTorch; `allow_reordering` lets sums be added in another order, which changes last bits.
MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "lite": {
        "fallback_by_default": True, "selective_decompose": True, "reorder_for_peak_memory": False, "reorder_for_compute_comm_overlap": False,
        "triton.reorder_for_reducing_graph_partitions": False, "use_pre_grad_passes": False, "use_joint_graph_passes": False,
        "use_post_grad_passes": False, "use_dce": False, "allow_buffer_reuse": False,
    },
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
}  # fmt: skip
# Options of rushlight's own: its passes by name, and whether sums may be added in another order.
OWN_OPTIONS: Mapping[str, type] = {"allow_reordering": bool, **dict.fromkeys(PASSES, bool)}


def mode_options(mode: str | None, dynamic: bool | None = None) -> dict[str, Any]:
    """Options of a mode; RuntimeError for an unknown one."""
    if mode is None or mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    return dict(MODES[mode])


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names as settings; RuntimeError for an unknown name, and for a value of the wrong type."""
    known, found = settings("torch._inductor.config"), {}
    for key, value in options.items():
        word = key.replace("-", "_")
        if word not in OWN_OPTIONS and word not in known:
            raise RuntimeError(
                f"Unexpected optimization option {key}, known options are {[*OWN_OPTIONS, *known.defaults]}"
            )
        kind = OWN_OPTIONS.get(word) or known.type_of(word)
        if kind is not None and not isinstance(value, kind):
            raise RuntimeError(f"Unexpected type of attr {key}, got {type(value).__name__} should be {kind.__name__}")
        found[word] = value
    return found


def own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of rushlight's own among all: PyTorch's word for graphs of launches is one of them."""
    found = {word: value for word, value in options.items() if word in OWN_OPTIONS}
    if options.get("triton.cudagraphs"):
        found.setdefault("launch_graph", True)
    return found


# Modes of `torch._dynamo.config.optimize_ddp` beside True, the first of them, and False, the last.
_DDP_MODES = ("ddp_optimizer", "python_reducer", "python_reducer_without_compiled_forward", "no_optimization")


class CompileContext:
    """How functions are compiled: `context(function)` is the compiled one.  Contexts of equal settings are equal, and
    can be pickled.
    """

    def __init__(
        self,
        backend: str | Callable[..., Any],
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        mode: str | None = None,
        options: dict[str, Any] | None = None,
        name: str | None = None,
        recompile_limit: int | None = None,
    ) -> None:
        self.recompile_limit = recompile_limit
        if dynamic is not None and not isinstance(dynamic, bool):
            raise AssertionError(f"Expected enable to be a bool, got {type(dynamic)}")
        self.fullgraph, self.dynamic, self.mode, self.name = fullgraph, dynamic, mode, name
        self.options = dict(options or {})
        self.own = backend == backends.OWN
        self.backend = backend
        if self.own:
            set_by_mode = mode_options(mode) if mode else {}
            self.options = {**check_options(set_by_mode), **check_options(self.options)}
            if mode is not None and mode.startswith("max-autotune"):
                self.options.setdefault("allow_reordering", True)
                self.options.setdefault("autotune", True)
                self.options.setdefault("packed_weights", True)
            if self.options.get("freezing", settings("torch._inductor.config").get("freezing")):
                self.options.setdefault("packed_weights", True)
        else:
            backends.lookup_backend(backend)

    @property
    def ends_at_buckets(self) -> bool:
        """Whether programs of `DistributedDataParallel` end where another bucket of gradients begins: where
        `torch._dynamo.config.optimize_ddp` is True or "ddp_optimizer", and `fullgraph` does not ask for one program.

        AssertionError for a mode that there is not.
        """
        mode = settings("torch._dynamo.config").get("optimize_ddp")
        if mode not in (True, False, *_DDP_MODES):
            raise AssertionError(f"Invalid optimize_ddp mode {mode=}: True, False, or one of {', '.join(_DDP_MODES)}")
        return not self.fullgraph and mode in (True, "ddp_optimizer")

    @property
    def backend_function(self) -> Callable[..., Any] | None:
        """The backend with its mode and options; None for rushlight's own compiler."""
        if self.own:
            return None
        function = backends.lookup_backend(self.backend)
        extra = {"mode": self.mode if self.mode != "default" else None, "options": self.options}
        return backends.checked(function, {word: value for word, value in extra.items() if value})

    def __call__(
        self, function: Callable[..., Any], source_names: Mapping[str, str] | None = None
    ) -> Callable[..., Any]:
        """The compiled function; `source_names` are other names of what it reads, for fx graphs."""
        backend = self.backend_function
        wanted = CompileSettings(
            fullgraph=self.fullgraph,
            dynamic=self.dynamic,
            backend=backend,
            asked_backend=backend,
            options=own_options(self.options),
            name=self.name or "",
            recompile_limit=self.recompile_limit or settings("torch._dynamo.config").get("recompile_limit"),
            own_limit=self.recompile_limit is not None,
            source_names=dict(source_names or {}),
        )
        return _function_of(compile_function(function, wanted), function)

    def __reduce__(self) -> Any:
        keywords = {
            word: getattr(self, word) for word in ("fullgraph", "dynamic", "mode", "options", "name", "recompile_limit")
        }
        return _remade, (self.backend, {**keywords, "mode": None if self.own else self.mode})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompileContext) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((str(self.backend), self.fullgraph, self.dynamic))


def _function_of(compiled: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function for a compiled one: programs look at its attributes, and put it into classes."""
    made = compiled.caller
    functools.update_wrapper(made, function)
    made._compiled = compiled
    return timed(made, function)


def _remade(backend: Any, keywords: dict[str, Any]) -> CompileContext:
    """A context from what was pickled."""
    return CompileContext(backend, **keywords)


class _AsItIs:
    """The context of modules for which compilation is disabled."""

    def __call__(self, function: Callable[..., Any], source_names: Any = None) -> Callable[..., Any]:
        return disable(function)

    def __reduce__(self) -> Any:
        return _AsItIs, ()


@trace_marks.changes_later_calls
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """A function or module that is compiled when it is called; without one a decorator.

    - `fullgraph`: `torch._dynamo.exc.Unsupported` where the program cannot be captured whole
    - `dynamic`: sizes are symbols from the first call on (True), never (False), or where they were seen to change
      (None)
    - `backend`: `"inductor"` is rushlight's own compiler; another name, or `backend(gm, example_inputs)`, gets fx
      graphs
    - `mode`: "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"; or `options` of the backend,
      not both
    - `disable`: the model is given back as it is

    RuntimeError for unknown modes and options, `InvalidBackend` for an unknown backend, AssertionError for what cannot
    be called.
    """
    if model is None:
        arguments = dict(
            fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, name=name, disable=disable,
            recompile_limit=recompile_limit, isolate_recompiles=isolate_recompiles, shapes_spec=shapes_spec,
        )  # fmt: skip
        return functools.partial(compile, **arguments)
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if disable or settings("torch._dynamo.config").get("disable"):
        return model
    context = CompileContext(
        backends.get_default_backend() if backend is None else backend,
        fullgraph=fullgraph,
        dynamic=dynamic,
        mode=mode,
        options=options,
        name=name,
        recompile_limit=recompile_limit,
    )
    return _apply(context, model)


def _apply(context: Callable[..., Any], model: Any) -> Any:
    """The compiled form of a function, a module or a class."""
    model = innermost_function(model)
    if isinstance(model, Module):
        return OptimizedModule(model, context)
    if isinstance(model, type):
        model.__call__ = context(model.__call__)  # type: ignore[method-assign]
        return model
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    return _marked(context(model), model)


def _marked(made: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Attributes by which programs find what a compiled function was made of."""
    made._torchdynamo_orig_callable = made._torchdynamo_inline = function  # type: ignore[attr-defined]
    made._torchdynamo_wrapper_id, made._is_torch_compile = id(made), True  # type: ignore[attr-defined]
    made.get_compiler_config = lambda: None  # type: ignore[attr-defined]
    return made


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
    """A function (module, class) that runs eagerly; with `recursive=False` what it calls may be compiled.  Without one
    a decorator.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason, wrapping=wrapping)
    fn = innermost_function(fn)
    if not callable(fn):
        raise AssertionError(f"A callable function is expected, but {type(fn)} is provided.")
    if isinstance(fn, Module):
        return OptimizedModule(fn, _AsItIs())
    if isinstance(fn, type):
        for name in ("__init__", "__call__", "_call_impl"):
            if name != "_call_impl" or issubclass(fn, Module):
                setattr(fn, name, disable(getattr(fn, name), recursive, reason=reason))
        return fn

    def eager(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    if wrapping:
        eager = functools.wraps(fn)(eager)
    marks = {
        "_torchdynamo_disable": True, "_torchdynamo_disable_msg": reason, "_torchdynamo_orig_callable": fn, "_torchdynamo_wrapper_id": id(eager),
        "_torchdynamo_disable_recursive": recursive,
    }  # fmt: skip
    vars(eager).update(marks)
    return eager


def optimize(
    backend: Any = "inductor",
    *,
    nopython: bool = False,
    dynamic: bool | None = None,
    disable: bool = False,
    error_on_graph_break: bool | None = None,
    guard_export_fn: Any = None,
    guard_fail_fn: Any = None,
    guard_filter_fn: Any = None,
    **others: Any,
) -> Callable[[Any], Any]:
    """A decorator that compiles with a backend: the older form of `compile`."""
    if disable or settings("torch._dynamo.config").get("disable"):
        return lambda model: model
    context = CompileContext(backend, fullgraph=nopython or bool(error_on_graph_break), dynamic=dynamic)
    return functools.partial(_apply, context)


def optimize_assert(backend: Any, **keywords: Any) -> Callable[[Any], Any]:
    """`optimize` with `nopython=True`."""
    return optimize(backend, nopython=True, **keywords)


def run(fn: Any = None) -> Any:
    """A compiled function that is not compiled again: where no program fits, it runs eagerly."""
    if fn is None:
        return run

    @functools.wraps(fn)
    def only_run(*args: Any, **kwargs: Any) -> Any:
        if current_stance().stance != "default":
            return fn(*args, **kwargs)
        with set_stance("eager_on_recompile"):
            return fn(*args, **kwargs)

    return only_run
