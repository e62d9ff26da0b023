"""The schema of a Python function, from the annotations of its parameters."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import rushlight
from rushlight import Tag

__all__ = ["infer_schema"]

_NUMBER = frozenset((int, float, bool))
# Python's type, the schema's, and what else it may be: a list, a list of optionals, an optional list.
_PARAMETERS: tuple[tuple[Any, str, str], ...] = (
    ("Tensor", "Tensor", "[] ?[]"), (int, "SymInt", "[] []?"), (float, "float", "[] []?"), (bool, "bool", "[] []?"), (str, "str", ""),
    (_NUMBER, "Scalar", "[]"), ("dtype", "ScalarType", ""), ("device", "Device", ""),
)  # fmt: skip


def _plain(annotation: Any) -> tuple[Any, str]:
    """A type as what it is a list or an optional of, and the marks for that, outermost last: `List[Optional[int]]` is
    (int, "?[]").
    """
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        kinds = [a for a in args if a is not type(None)]
        inner, marks = (frozenset(kinds), "") if len(kinds) > 1 else _plain(kinds[0])
        return inner, marks + ("?" if len(kinds) < len(args) else "")
    if origin in (list, collections.abc.Sequence) and len(args) == 1:
        inner, marks = _plain(args[0])
        return inner, marks + "[]"
    return annotation, ""


def _schema_type(annotation: Any) -> str | None:
    kind, marks = _plain(annotation)
    for python, schema, lists in _PARAMETERS:
        wanted = getattr(rushlight, python) if isinstance(python, str) else python
        if kind is wanted or isinstance(kind, frozenset) and kind == wanted:
            return schema + marks if marks in ("", "?", *lists.split()) else None
    return None


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """The schema of a function, from its annotations: tensors, numbers, texts, dtypes, devices, and lists and optionals
    of them.

    `mutates_args` names the arguments that it changes, or is "unknown": all tensors then.  ValueError for what a schema
    cannot say.

    >>> import rushlight as torch
    >>> def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor: ...
    >>> torch.library.infer_schema(scaled, mutates_args=(), op_name="scaled")
    'scaled(Tensor x, float factor=2.0) -> Tensor'
    """
    signature = inspect.signature(prototype_function)
    tags = (tags,) if isinstance(tags, Tag) else tuple(tags or ())

    def refuse(what: str) -> NoReturn:
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are mutated or the string 'unknown'. "
        )
    mutated = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
    hints = _hints(prototype_function, signature, refuse)
    parts: list[str] = []
    for place, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            refuse("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        kind = _parameter_type(name, parameter, hints, refuse)
        if mutated == "unknown" and kind.startswith("Tensor") or mutated != "unknown" and name in mutated:
            if not kind.startswith("Tensor"):
                refuse(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
            kind = f"Tensor(a{place}!){kind[len('Tensor') :]}"
        parts.append(f"{kind} {name}{_default(name, parameter, refuse)}")
    if mutated != "unknown" and (strange := set(mutated) - set(signature.parameters)):
        refuse(
            f"{strange} in mutates_args were not found in the custom op's signature. mutates_args should contain the names of the args that "
            "the custom op mutates, or just the string 'unknown' if you don't know."
        )
    results = _results(hints.get("return", inspect.Parameter.empty), refuse)
    results = _aliased(results, parts, tags, refuse)
    return f"{op_name or ''}({', '.join(parts)}) -> {results}"


def _hints(function: Any, signature: inspect.Signature, refuse: Callable[[str], NoReturn]) -> dict[str, Any]:
    found = {name: p.annotation for name, p in signature.parameters.items()} | {"return": signature.return_annotation}
    if any(isinstance(annotation, str) for annotation in found.values()):
        try:
            return found | typing.get_type_hints(function)
        except NameError as error:
            refuse(
                f"Unsupported type annotation. It is not a type. ({error}). Types must be importable where the function's module is."
            )
    return found


def _parameter_type(
    name: str, parameter: inspect.Parameter, hints: dict[str, Any], refuse: Callable[[str], NoReturn]
) -> str:
    if parameter.annotation is parameter.empty:
        refuse(f"Parameter {name} must have a type annotation.")
    found = _schema_type(hints[name])
    if found is None:
        advice = ""
        if typing.get_origin(hints[name]) is tuple:
            advice = "We do not support Tuple inputs in schema. As a workaround, please try to use List instead. "
        known = ", ".join(
            str(getattr(p, "__name__", p if isinstance(p, str) else "Union[int, float, bool]"))
            for p, _, _ in _PARAMETERS
        )
        refuse(
            f"Parameter {name} has unsupported type {hints[name]}. {advice}The valid types are: {known}, optionals and lists of them."
        )
    return found


def _default(name: str, parameter: inspect.Parameter, refuse: Callable[[str], NoReturn]) -> str:
    value = parameter.default
    if value is parameter.empty:
        return ""
    if value is None or isinstance(value, (int, float)):
        return f"={value}"
    if isinstance(value, (str, rushlight.device)):
        return f'="{value}"'
    if isinstance(value, rushlight.dtype):
        return f"={str(value).removeprefix('torch.')}"
    refuse(
        f"Parameter {name} has an unsupported default value type {type(value)}: numbers, texts, dtypes, devices and None can be written down."
    )


def _results(annotation: Any, refuse: Callable[[str], NoReturn]) -> str:
    if annotation is None or annotation is type(None):
        return "()"
    if annotation is inspect.Parameter.empty:
        refuse("No return type annotation was provided. Please add one.")
    parts = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else (annotation,)
    found = [_schema_type(part) for part in parts]
    if any(kind not in ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar") for kind in found):
        refuse(
            f"Return has unsupported type {annotation}. The valid types are: Tensor, List[Tensor], int, float, bool, and tuples of them."
        )
    joined = ", ".join(str(kind) for kind in found)
    if parts == (annotation,):
        return joined
    return f"(({joined}))" if len(parts) == 1 else f"({joined})"


def _aliased(results: str, parts: list[str], tags: tuple[Any, ...], refuse: Callable[[str], NoReturn]) -> str:
    """The results of an operator that is tagged as one in place, or with `out=`: the arguments that it changes."""
    if Tag.inplace in tags and Tag.out in tags:
        raise AssertionError("torch.Tag.inplace and torch.Tag.out are mutually exclusive")
    changed = [part.split(" ")[0] for part in parts if "!" in part]
    if Tag.inplace in tags:
        if not parts or len(changed) != 1 or not parts[0].startswith(changed[0]) or results != "Tensor":
            refuse(
                "torch.Tag.inplace requires that the first positional Tensor, and it alone, is mutated and returned."
            )
        return changed[0]
    if Tag.out in tags:
        keywords = [part.split(" ")[0] for part in parts[parts.index("*") + 1 :] if "!" in part] if "*" in parts else []
        if not changed or changed != keywords or results.strip("()").split(", ") != ["Tensor"] * len(changed):
            refuse("torch.Tag.out requires mutable keyword-only Tensor arguments, and that they are returned.")
        return changed[0] if len(changed) == 1 else f"({', '.join(changed)})"
    return results
