"""`torch.onnx.InputObserver`: example arguments and sizes that vary, from calls that a program makes anyway."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Iterator, Mapping
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.onnx.exporting.program import _ort_session_initializer
from rushlight.utils._pytree import tree_flatten, tree_map

__all__ = ["InputObserver"]


def _copied(value: Any) -> Any:
    return tree_map(lambda v: v.detach().clone() if isinstance(v, Tensor) else v, value)


class InputObserver:
    """Keeps the arguments and results of calls of a module.

    >>> import rushlight as torch
    >>> model, observer = torch.nn.Linear(2, 3), InputObserver()
    >>> with observer(model):
    ...     for count in (2, 5):
    ...         _ = model(torch.ones(count, 2))
    >>> observer.num_obs(), observer.infer_dynamic_shapes()
    (2, ({0: DimHint(DYNAMIC)},))
    """

    def __init__(self, value_if_missing: Mapping[str | int, Any] | None = None) -> None:
        self.value_if_missing = dict(value_if_missing or {})
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any], Any, float]] = []
        self.names: list[str] = []

    def num_obs(self) -> int:
        """How many calls are kept."""
        return len(self.calls)

    @contextlib.contextmanager
    def __call__(self, model: Any, store_n_calls: int = 3, method_name: str = "forward") -> Iterator[InputObserver]:
        """A context in which up to `store_n_calls` calls of a method are kept."""
        method = getattr(model, method_name)
        own = method_name in model.__dict__
        self.names = [
            n
            for n, p in inspect.signature(method).parameters.items()
            if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]

        def watched(*args: Any, **kwargs: Any) -> Any:
            keep = len(self.calls) < store_n_calls
            given = (_copied(args), _copied(kwargs)) if keep else ((), {})
            start = time.perf_counter()
            made = method(*args, **kwargs)
            if keep:
                self.calls.append((*given, _copied(made), time.perf_counter() - start))
            return made

        model.__dict__[method_name] = watched
        try:
            yield self
        finally:
            if own:
                model.__dict__[method_name] = method
            else:
                del model.__dict__[method_name]

    # ***** what follows from the calls *****

    def _fullest(self) -> tuple[list[Any], dict[str, Any]]:
        """Every argument that a call had, from the first call that had it; ValueError before any call."""
        if not self.calls:
            raise ValueError("no call was observed")
        given: list[tuple[Any, ...]] = [c[0] for c in self.calls]
        longest = max(given, key=len)
        args: list[Any] = list(longest)
        kwargs: dict[str, Any] = {}
        for _, named, _, _ in self.calls:
            for key, value in named.items():
                if kwargs.get(key) is None:
                    kwargs[key] = value
        for key, value in self.value_if_missing.items():
            if isinstance(key, int):
                args[key] = value if args[key] is None else args[key]
            elif kwargs.get(key) is None:
                kwargs[key] = value
        return args, kwargs

    def infer_arguments(
        self, index_or_args_or_kwargs: Any = None, flat: bool = False, as_args_kwargs: bool = False
    ) -> Any:
        """Arguments for an export: a tuple, or a dict where all were named; both with `as_args_kwargs`.

        `index_or_args_or_kwargs` takes those of one call, or makes them of given ones; with `flat` all tensors as a list.
        """
        if isinstance(index_or_args_or_kwargs, int):
            args, kwargs = list(self.calls[index_or_args_or_kwargs][0]), dict(self.calls[index_or_args_or_kwargs][1])
        elif isinstance(index_or_args_or_kwargs, tuple):
            args, kwargs = list(index_or_args_or_kwargs), {}
        elif isinstance(index_or_args_or_kwargs, dict):
            args, kwargs = [], dict(index_or_args_or_kwargs)
        else:
            args, kwargs = self._fullest()
        if flat:
            return [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, Tensor)]
        if as_args_kwargs:
            return tuple(args), kwargs
        if args and kwargs:
            raise RuntimeError("some arguments are named and some are not: ask with as_args_kwargs=True")
        return kwargs if kwargs else tuple(args)

    def infer_dynamic_shapes(self, set_batch_dimension_for: Any = None) -> Any:
        """Which sizes differ among the calls, as `torch.export.export` takes them: by name, or in order.

        The first dim of arguments in `set_batch_dimension_for` (names, places, True for all) varies in any case.
        """
        args, kwargs = self._fullest()
        chosen = set_batch_dimension_for

        def batched(key: Any) -> bool:
            return chosen is True or bool(chosen) and key in chosen

        places = [
            self._varying(
                value,
                [c[0][i] for c in self.calls if i < len(c[0])],
                batched(i) or i < len(self.names) and batched(self.names[i]),
            )
            for i, value in enumerate(args)
        ]
        named = {k: self._varying(v, [c[1][k] for c in self.calls if k in c[1]], batched(k)) for k, v in kwargs.items()}
        if not named:
            return tuple(places)
        return {**dict(zip(self.names, places, strict=False)), **named}

    def _varying(self, value: Any, seen: list[Any], batched: bool) -> Any:
        if isinstance(value, Tensor):
            shapes = [tuple(v.shape) for v in seen if isinstance(v, Tensor) and v.ndim == value.ndim] or [
                tuple(value.shape)
            ]
            dims = {d for d in range(value.ndim) if len({s[d] for s in shapes}) > 1} | (
                {0} if batched and value.ndim else set()
            )
            return dict.fromkeys(sorted(dims), rushlight.export.Dim.DYNAMIC)
        if isinstance(value, (list, tuple)):
            parts = [
                self._varying(v, [s[i] for s in seen if isinstance(s, (list, tuple)) and i < len(s)], batched)
                for i, v in enumerate(value)
            ]
            return type(value)(parts) if type(value) in (list, tuple) else parts
        if isinstance(value, dict):
            return {
                k: self._varying(v, [s[k] for s in seen if isinstance(s, dict) and k in s], batched)
                for k, v in value.items()
            }
        return None

    def check_discrepancies(
        self, onnx_program: Any, atol: float = 1e-4, rtol: float = 0.1, progress_bar: bool = False, initializer: Any = _ort_session_initializer,
        skip_none: bool = True,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """For each call that was kept, how far the model's results are from those: `abs`, `rel`, `SUCCESS`; or `error`."""
        rows = []
        onnx_program.initialize_inference_session(initializer)
        for index, (args, kwargs, wanted, seconds) in enumerate(self.calls):
            row: dict[str, Any] = {"index": index, "duration_torch": seconds}
            try:
                start = time.perf_counter()
                found = onnx_program(*args, **kwargs)
                row["duration_ort"] = time.perf_counter() - start
                outs = [v for v in tree_flatten(wanted)[0] if not (skip_none and v is None)]
                row |= _difference(found, outs, atol, rtol)
            except Exception as error:  # the summary says what failed
                row |= {"error": str(error), "SUCCESS": False}
            rows.append(row)
        return rows


def _difference(found: list[Any], wanted: list[Any], atol: float, rtol: float) -> dict[str, Any]:
    worst, relative = 0.0, 0.0
    if len(found) != len(wanted):
        return {"error": f"{len(found)} results, not {len(wanted)}", "SUCCESS": False}
    for have, want in zip(found, wanted, strict=True):
        gap = (have.double() - want.double()).abs()
        if gap.numel():
            worst = max(worst, float(gap.max()))
            relative = max(relative, float((gap / want.double().abs().clamp_min(1e-12)).max()))
    return {"abs": worst, "rel": relative, "SUCCESS": worst <= atol or relative <= rtol}
