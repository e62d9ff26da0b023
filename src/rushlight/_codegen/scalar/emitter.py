"""The emitter that knows the primitives: a `Writer` with the table of all pointwise lowerings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .convert import bfloat16_part, bitcast, convert
from .lowerings import BINARY, BOOL_BINARY, BOOL_UNARY, COMPLEX_BINARY, COMPLEX_UNARY, INT_BINARY, INT_UNARY, UNARY
from .words import dp4a
from .writer import Check, Pairs, Val, Writer, lane_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from rushlight._types.dtype import DType

    from .writer import Value

__all__ = ["UNROUNDED", "Emitter", "supports"]


class Emitter(Writer):
    """Writes pointwise primitives as instructions of one vector width.

    em = Emitter(16, ModuleText())
    y = em.op("exp", [em.wrap("%x", FLOAT32)], [FLOAT32], FLOAT32)      # y.name: the SSA value of type <16 x float>
    em.lines                                                           # the instructions
    """

    __slots__ = ()

    def op(
        self,
        prim: str,
        args: Sequence[Value],
        in_dtypes: Sequence[DType],
        out_dtype: DType,
        params: Mapping[str, Any] | None = None,
    ) -> Value:
        """Emit the pointwise primitive `prim`.

        Operands and result are `Val`s, or pairs of them for complex dtypes.  NotImplementedError for a combination of
        primitive and dtype that does not exist.
        """
        special = _SPECIAL.get(prim)
        if special is not None:
            return special(args, in_dtypes, out_dtype)
        if prim == "full":
            return self.number((params or {})["value"], out_dtype)
        if prim == "require":
            return _require(args, (params or {})["requirement"])
        dtype = in_dtypes[0]
        if dtype.wide is not dtype and prim in _THROUGH_WIDE[dtype.kind]:
            return _through_wide(self, prim, args, in_dtypes, out_dtype, params)
        function = _find(prim, dtype, len(args))
        if function is None:
            raise NotImplementedError(f"the primitive {prim} has no lowering for {dtype.name}")
        # The same for both parts: as they lie in memory
        if prim in _BOTH_PARTS and all(type(a) is Pairs for a in args):
            raw = [a.raw for a in args if type(a) is Pairs]
            return Pairs.of(function(*args), (UNARY if len(raw) == 1 else BINARY)[prim](*raw))  # type: ignore[arg-type]
        return function(*args, dtype.is_signed) if dtype.kind in "iu" else function(*args, **(params or {}))

    def reduce(self, prim: str, value: Value, dtype: DType) -> Value:
        """All lanes combined with the primitive `prim`, by halves in a fixed order; a value of width 1."""
        em, width = self, self.width
        while width > 1:
            if width % 2:
                raise ValueError(f"the lanes of a vector of width {self.width} cannot be combined by halves")
            width //= 2
            narrow = em.at(width)
            value = narrow.op(prim, [_lanes(value, narrow, start) for start in (0, width)], [dtype, dtype], dtype)
            em = narrow
        return value


_BOTH_PARTS = frozenset({"add", "sub", "neg"})


def supports(prim: str, dtype: DType) -> bool:
    """Whether `prim` has a lowering when its first operand has `dtype`."""
    if dtype.wide is not dtype:
        return prim in _SPECIAL or prim in _THROUGH_WIDE[dtype.kind]
    return prim in _SPECIAL or any(_find(prim, dtype, arity) is not None for arity in (1, 2))


def _find(prim: str, dtype: DType, arity: int) -> Callable[..., Value] | None:
    if dtype.wide is not dtype or dtype.kind not in _TABLES:
        return None
    return _TABLES[dtype.kind][arity - 1].get(prim) if arity < 3 else None


_TABLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "b": (BOOL_UNARY, BOOL_BINARY),
    "u": (INT_UNARY, INT_BINARY),
    "i": (INT_UNARY, INT_BINARY),
    "f": (UNARY, BINARY),
    "c": (COMPLEX_UNARY, COMPLEX_BINARY),
}


# what these give is one of the operands, or one with another sign: it need not be rounded
UNROUNDED = frozenset({"neg", "abs", "copysign", "maximum", "minimum"})
# the neighbour of a value depends on the format, so it cannot be found in another one
_THROUGH_WIDE = {"f": frozenset({*UNARY, *BINARY} - {"nextafter"}), "c": frozenset({*COMPLEX_UNARY, *COMPLEX_BINARY})}


def _through_wide(
    em: Emitter,
    prim: str,
    args: Sequence[Value],
    in_dtypes: Sequence[DType],
    out_dtype: DType,
    params: Mapping[str, Any] | None,
) -> Value:
    """A primitive on a narrow dtype: computed in a wider one and rounded once."""
    wide = [convert(x, d, d.wide) for x, d in zip(args, in_dtypes)]
    y = em.op(prim, wide, [d.wide for d in in_dtypes], out_dtype.wide, params)
    if prim in UNROUNDED and out_dtype.name == "bfloat16" and isinstance(y, Val):
        return bfloat16_part(y)
    return convert(y, out_dtype.wide, out_dtype)


def _lanes(value: Value, narrow: Writer, start: int) -> Value:
    """As many lanes of `value` from `start` on as `narrow` has."""
    if isinstance(value, tuple):
        return tuple(_lanes(part, narrow, start) for part in value)  # type: ignore[return-value]
    if narrow.width == 1:
        return narrow.emit(f"extractelement {value.vt} {value}, i64 {start}", value.type)
    mask = lane_mask(range(start, start + narrow.width))
    return narrow.emit(f"shufflevector {value.vt} {value}, {value.vt} poison, {mask}", value.type)


def _select(args: Sequence[Value], in_dtypes: Sequence[DType], out_dtype: DType) -> Value:
    cond, a, b = args
    assert isinstance(cond, Val)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return cond.em.select(cond, a[0], b[0]), cond.em.select(cond, a[1], b[1])
    return cond.em.select(cond, a, b)  # type: ignore[arg-type]


def _require(args: Sequence[Value], requirement: str) -> Value:
    x, holds = args
    assert isinstance(holds, Val)
    holds.em.checks.append(Check(requirement, ~holds, holds.em.width))
    return x


# primitives that are the same for every dtype, or mix dtypes: (args, in_dtypes, out_dtype) -> value
_SPECIAL: dict[str, Callable[[Sequence[Any], Sequence[DType], DType], Value]] = {
    "convert": lambda args, in_dtypes, out: convert(args[0], in_dtypes[0], out),
    "bitcast": lambda args, in_dtypes, out: bitcast(args[0], in_dtypes[0], out),
    "select": _select,
    "fma": lambda args, in_dtypes, out: args[0].em.fma(*args),
    "dp4a": lambda args, in_dtypes, out: dp4a(*args),
    "complex": lambda args, in_dtypes, out: (args[0], args[1]),
    "real": lambda args, in_dtypes, out: args[0][0] if isinstance(args[0], tuple) else args[0],
    "imag": lambda args, in_dtypes, out: (
        args[0][1] if isinstance(args[0], tuple) else args[0].em.const(args[0].type, 0)
    ),
    "conj": lambda args, in_dtypes, out: (args[0][0], -args[0][1]) if isinstance(args[0], tuple) else args[0],
}
