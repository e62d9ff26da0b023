"""Kernels that choose among configurations by measuring, or compute settings from their arguments."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..compiler.errors import CompilationError
from ..testing import do_bench as default_bench
from .cache import FileCacheManager
from .driver import driver
from .errors import AutotunerError, OutOfResources
from .jit import JITFunction, KernelInterface

__all__ = ["Autotuner", "Config", "Heuristics", "autotune", "heuristics"]

_OPTION_NAMES = ("num_warps", "num_ctas", "num_stages", "maxnreg")


class Config:
    """Values of constexpr parameters and launch options to try; `pre_hook(arguments)` runs before each launch with it."""

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[..., Any] | None = None,
        ir_override: str | None = None,
    ) -> None:
        self.kwargs, self.num_warps, self.num_stages = dict(kwargs), num_warps, num_stages
        self.num_ctas, self.maxnreg, self.pre_hook, self.ir_override = num_ctas, maxnreg, pre_hook, ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """The keyword arguments of a launch."""
        options = {name: getattr(self, name) for name in _OPTION_NAMES}
        return {**self.kwargs, **{name: value for name, value in options.items() if value is not None}}

    def __str__(self) -> str:
        shown = [f"{name}: {value}" for name, value in self.kwargs.items()]
        shown += [f"{name}: {getattr(self, name)}" for name in _OPTION_NAMES]
        return ", ".join(shown)

    def __hash__(self) -> int:
        return hash((*self.all_kwargs().items(), self.pre_hook))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and (self.all_kwargs(), self.pre_hook) == (other.all_kwargs(), other.pre_hook)


class Autotuner(KernelInterface[Any]):
    """A kernel with configurations: the fastest is found for each value of the key, and kept.

    `reset_to_zero` and `restore_value` name arguments that a launch changes: they are set to 0, or set back, before each
    measured launch and before the first real one.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None,
        restore_value: Sequence[str] | None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        self.fn, self.arg_names, self.keys = fn, list(arg_names), list(key)
        self.configs = list(configs) or [Config({})]
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.configs_timings: dict[Config, Any] = {}
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.restore_copies: dict[str, Any] = {}
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self.pre_hook: Callable[..., Any] = pre_hook or self._reset
        self.post_hook: Callable[..., Any] = post_hook or self._restore
        prune = dict(prune_configs_by or {})
        self.perf_model, self.configs_top_k = prune.get("perf_model"), prune.get("top_k", 1.0)
        self.early_config_prune = prune.get("early_config_prune")
        self.warmup_ms, self.rep_ms, self._do_bench = warmup or 5, rep or 20, do_bench
        self.cache_results = cache_results or os.environ.get("TRITON_CACHE_AUTOTUNING", "0") == "1"
        self.nargs: dict[str, Any] | None = None
        self.best_config: Config | None = None
        self.bench_time = 0.0

    @property
    def base_fn(self) -> Callable[..., Any]:
        """The Python function."""
        return _innermost(self.fn).fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "fn" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.fn, name)

    # ***** measuring *****

    def _reset(self, named: dict[str, Any], reset_only: bool = False) -> None:
        """Set arguments to 0, and keep those to be set back."""
        for name in self.reset_to_zero:
            if named.get(name) is not None:
                named[name].zero_()
        if not reset_only:
            self.restore_copies = {n: named[n].clone() for n in self.restore_value if named.get(n) is not None}

    def _restore(self, named: dict[str, Any], exception: Exception | None) -> None:
        """Set arguments back."""
        for name, value in self.restore_copies.items():
            named[name].copy_(value)
        self.restore_copies = {}

    def _bench(self, *args: Any, config: Config, **meta: Any) -> Any:
        """Quantiles of the milliseconds of a launch; infinity for a configuration that cannot run.  Tuners of other
        packages call it as Triton's.
        """
        conflicts = meta.keys() & config.kwargs.keys()
        if conflicts:
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't re-define auto-tuned symbols."
            )
        current = {**meta, **config.all_kwargs()}
        named = {**(self.nargs or {}), **current}

        def launch() -> None:
            if config.pre_hook is not None:
                config.pre_hook(named)
            self.pre_hook(named)
            try:
                self.fn.run(*args, **current)
            except Exception as error:
                self.post_hook(named, exception=error)
                raise
            self.post_hook(named, exception=None)

        bench = self._do_bench or (
            lambda f, quantiles: default_bench(f, self.warmup_ms, self.rep_ms, quantiles=quantiles)
        )
        try:
            return bench(launch, quantiles=(0.5, 0.2, 0.8))
        except (OutOfResources, CompilationError):
            return [float("inf")] * 3

    def _tune(self, key: tuple[Any, ...], args: Sequence[Any], kwargs: dict[str, Any]) -> Config:
        pruned = self.prune_configs(kwargs)
        stored = self._stored(key) if self.cache_results else None
        if stored is not None:
            return stored
        begin = time.perf_counter()
        timings = {config: self._bench(*args, config=config, **kwargs) for config in _distinct(pruned)}
        self.bench_time = time.perf_counter() - begin
        best = min(timings, key=lambda config: _first(timings[config]))
        if _first(timings[best]) == float("inf"):
            best = self._explain(best, args, kwargs)
        self.configs_timings = timings
        if self.cache_results:
            self._store(key, best)
        self.pre_hook({**(self.nargs or {}), **kwargs, **best.all_kwargs()}, reset_only=True)
        return best

    def _explain(self, config: Config, args: Sequence[Any], kwargs: dict[str, Any]) -> Config:
        """No configuration ran: raise what one of them raises."""
        try:
            self.fn.run(*args, **{**kwargs, **config.all_kwargs()})
        except Exception as error:
            raise AutotunerError(f"no configuration of {self.base_fn.__name__} ran; {config}: {error}") from error
        return config

    # ***** results on disk *****

    def _file(self, key: tuple[Any, ...]) -> FileCacheManager:
        text = json.dumps([_innermost(self.fn).src, list(map(str, key)), list(map(str, self.configs)), "rushlight"])
        return FileCacheManager(hashlib.sha256(text.encode()).hexdigest())

    def _stored(self, key: tuple[Any, ...]) -> Config | None:
        path = self._file(key).get_file("best.json")
        if path is None:
            return None
        with open(path) as file:
            wanted = json.load(file)
        return next((config for config in self.configs if str(config) == wanted), None)

    def _store(self, key: tuple[Any, ...], best: Config) -> None:
        self._file(key).put(json.dumps(str(best)), "best.json")

    # ***** launches *****

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the best configuration; the first launch with a key measures all."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        config = self.configs[0] if len(self.configs) == 1 else self._choose(args, kwargs)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        self.nargs = None
        return result

    def _choose(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Config:
        named = {**(self.nargs or {}), **kwargs}
        given = {name: value for name, value in named.items() if name in self.arg_names}
        key = tuple(given[name] for name in self.keys if name in given)
        key += tuple(str(value.dtype) for value in given.values() if hasattr(value, "dtype"))
        config = self.cache.get(key)
        if config is None and any(getattr(value, "is_meta", False) for value in named.values()):
            return self.configs[0]  # launches on tensors without data do nothing
        if config is None:
            config = self.cache[key] = self._tune(key, args, kwargs)
            if os.environ.get("TRITON_PRINT_AUTOTUNING", "0") == "1":
                name = self.base_fn.__name__
                print(
                    f"Triton autotuning for function {name}, with key as {key}, finished after {self.bench_time:.2f}s, best config selected: {config};"
                )
        return config

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Config]:
        """The configurations that are worth measuring, by `early_config_prune` and `perf_model`."""
        configs = self.configs
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, self.nargs, **kwargs))
            if not configs:
                raise AutotunerError(
                    "No valid autotuner configs after pruning. `early_config_prune` should return at least one config."
                )
        if self.perf_model is not None:
            top = self.configs_top_k
            count = max(1, int(len(self.configs) * top)) if isinstance(top, float) and top <= 1.0 else int(top)
            if len(configs) > count:
                named = {**(self.nargs or {}), **kwargs}
                configs = sorted(configs, key=lambda c: self.perf_model(**{**named, **c.all_kwargs()}))[:count]
        return configs

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Compile every configuration."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        found = [self.fn.warmup(*args, **kwargs, **config.all_kwargs()) for config in self.prune_configs(kwargs)]
        self.nargs = None
        return found


def _distinct(configs: Sequence[Config]) -> list[Config]:
    """One of those that give the same kernel: without a GPU, numbers of warps and stages change nothing."""
    if driver.active.get_current_target().warp_size > 1:
        return list(configs)
    found: dict[Any, Config] = {}
    for config in configs:
        found.setdefault((repr(sorted(config.kwargs.items())), config.pre_hook), config)
    return list(found.values())


def _first(timing: Any) -> float:
    return float(timing[0] if isinstance(timing, (list, tuple)) else timing)


def _innermost(fn: Any) -> JITFunction[Any]:
    while not isinstance(fn, JITFunction):
        fn = fn.fn
    return fn


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Let a kernel choose among `configs` by measuring, anew for each combination of the arguments named by `key`.

    `prune_configs_by` may hold `early_config_prune(configs, arguments, **kwargs)`, `perf_model(**arguments)` and `top_k`.
    With `cache_results` the choice is kept on disk.
    """

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(
            fn, fn.arg_names, configs, key, reset_to_zero, restore_value, pre_hook, post_hook, prune_configs_by, warmup, rep,
            use_cuda_graph, do_bench, cache_results,
        )  # fmt: skip

    return decorate


class Heuristics(KernelInterface[Any]):
    """A kernel some of whose parameters are functions of its arguments."""

    def __init__(
        self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]
    ) -> None:
        self.fn, self.arg_names, self.values = fn, list(arg_names), dict(values)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the computed values."""
        for name, function in self.values.items():
            kwargs[name] = function({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        return self.fn.run(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "fn" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.fn, name)


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Compute parameters from the arguments of a launch: name -> function of a dict of them."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)
