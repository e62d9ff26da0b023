"""Which steps a random program may take after the values it has: families of operators, drawn by Hypothesis.

A family looks only at shapes and dtypes (`Writer.shape`, `Writer.dtype`), so programs can be written beside PyTorch's run or NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from tests.eager_programs import DTYPES, Leaf, Name, Ref, Step

HALVES = ("float16", "bfloat16")
LARGEST = 200  # elements of a value

UNARY = (
    "neg", "abs", "sin", "tanh", "sigmoid", "relu", "square", "exp", "log1p", "sqrt", "rsqrt", "reciprocal", "floor", "round",
    "sign", "erf", "expm1", "atan", "clone", "logical_not", "bitwise_not", "isnan", "positive", "trunc", "ceil", "frac",
    "conj_physical", "angle", "log", "cos", "cosh", "sgn", "nan_to_num", "asinh", "exp2", "signbit", "softsign", "gelu", "silu",
)  # fmt: skip
EXACT = (
    "neg",
    "abs",
    "relu",
    "square",
    "floor",
    "sign",
    "clone",
    "logical_not",
    "bitwise_not",
    "isnan",
    "positive",
    "trunc",
    "ceil",
    "signbit",
)
# where a last digit decides, only on what is equal to the last bit
STEEP = ("floor", "round", "sign", "trunc", "ceil", "frac", "sgn", "angle", "signbit", "logical_not")
BINARY = (
    "add", "sub", "mul", "div", "maximum", "minimum", "fmod", "remainder", "floor_divide", "atan2", "pow", "hypot",
    "logical_and", "logical_xor", "eq", "lt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor", "copysign", "true_divide", "rsub",
    "bitwise_left_shift", "bitwise_right_shift", "fmax", "gcd", "lcm", "heaviside", "xlogy", "nextafter", "logaddexp", "dist",
)  # fmt: skip
STEEP_BINARY = ("fmod", "remainder", "floor_divide", "eq", "lt", "ge", "logical_and", "logical_xor", "heaviside", "nextafter", "copysign",
                "maximum", "minimum", "fmax")  # fmt: skip
SIGNS = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<", "<=", ">", "==", "!=", "<<", ">>", "**")
REDUCE = ("sum", "mean", "amax", "amin", "prod", "all", "any", "argmax", "argmin", "logsumexp", "var", "std", "nansum",
          "count_nonzero", "max", "min", "norm", "cumsum", "cumprod", "median", "aminmax", "logcumsumexp", "cummax")  # fmt: skip
STEEP_REDUCE = (
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "amax",
    "amin",
    "max",
    "min",
    "median",
    "aminmax",
    "cummax",
)
VIEWS = (
    "transpose", "permute", "reshape", "view", "unsqueeze", "squeeze", "expand", "slice", "select", "narrow", "flatten", "T", "mT",
    "diagonal", "unfold", "as_strided", "split", "chunk", "unbind", "movedim", "view_as", "swapaxes", "real", "view_as_real", "expand_as",
    "detach", "contiguous", "view_dtype", "index", "t", "unflatten", "view_as_complex", "imag", "ravel", "alias", "tensor_split", "conj",
)  # fmt: skip
INPLACE = (
    "add_", "sub_", "mul_", "div_", "copy_", "fill_", "zero_", "neg_", "tanh_", "relu_", "exp_", "sigmoid_", "clamp_", "masked_fill_",
    "addcmul_", "pow_", "sqrt_", "square_", "lerp_", "t_", "unsqueeze_", "squeeze_", "transpose_", "index_add_", "scatter_", "floor_",
    "fill_diagonal_", "tril_", "eq_", "remainder_", "bitwise_xor_", "abs_", "cumsum_", "clamp_min_", "round_", "resize_as_",
    "index_fill_", "index_copy_", "masked_scatter_", "addcdiv_", "sign_", "lt_", "detach_", "bitwise_and_",
)  # fmt: skip


class Writer:
    """Draws steps.  `values` are those of the run that is looked at; `same` says of a value whether it is equal here and there to the bit."""

    def __init__(
        self,
        draw: Callable[[Any], Any],
        shape: Callable[[Any], tuple[int, ...]],
        dtype: Callable[[Any], str],
        same: Callable[[int], bool] = lambda place: True,
        known: Callable[[Step], bool] = lambda step: True,
        room: Callable[[Any], int] = lambda value: 0,
        dtypes: Sequence[str] = DTYPES,
    ) -> None:
        self.draw, self.shape_of, self.dtype_of, self.same = draw, shape, dtype, same
        self.known, self.room, self.dtypes = known, room, tuple(dtypes)
        self.values: list[Any] = []

    # ***** choices *****

    def of(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def upto(self, n: int, low: int = 0) -> int:
        return self.draw(st.integers(low, max(low, n)))

    def yes(self) -> bool:
        return self.draw(st.booleans())

    def shape(self, place: int) -> tuple[int, ...]:
        return self.shape_of(self.values[place])

    def dtype(self, place: int) -> str:
        return self.dtype_of(self.values[place])

    def size(self, place: int) -> int:
        return math.prod(self.shape(place))

    def place(self, fits: Callable[[int], bool] = lambda place: True) -> int | None:
        """A value that fits; the last is the simplest choice."""
        found = [i for i in range(len(self.values) - 1, -1, -1) if self.values[i] is not None and fits(i)]
        return self.of(found) if found else None

    def partner(self, a: int) -> int:
        """A value that broadcasts with this one, most of the time."""
        shape = self.shape(a)

        def fits(b: int) -> bool:
            return all(m == n or 1 in (m, n) for m, n in zip(reversed(self.shape(b)), reversed(shape), strict=False))

        found = self.place(fits)
        assert found is not None
        return found

    def dim(self, place: int) -> int:
        n = max(len(self.shape(place)), 1)
        d = self.upto(n - 1)
        return d - n if self.yes() else d

    def number(self) -> Any:
        return self.of([2, 1, 0, -1, 3, 0.5, -1.5, 2.25, True, 200, 40000, 1 + 2j])

    # ***** leaves *****

    def leaf(self) -> Leaf:
        dtype = self.of(self.dtypes)
        shape = self.draw(st.lists(st.sampled_from([2, 3, 1, 4, 0]), max_size=3))
        salt = self.upto(5)
        grad = dtype[0] in "fcb" and dtype != "bool" and self.yes()
        count = iter(range(10**6))

        def number() -> Any:
            i = next(count)
            n = (i * 7 + salt * 5 + 3) % 23 - 11
            if dtype == "bool":
                return n % 3 == 0
            if dtype.startswith("int"):
                return n * (11 if salt == 4 else 1)
            if dtype == "uint8":
                return abs(n) * (20 if salt == 4 else 1)
            return (
                complex(n / 4, ((n * 5) % 17 - 8) / 4) if dtype.startswith("complex") else n / 4 + 0.0625 * (salt == 3)
            )

        def nest(dims: list[int]) -> Any:
            return [nest(dims[1:]) for _ in range(dims[0])] if dims else number()

        return Leaf(nest(shape), dtype, grad)

    # ***** steps *****

    def step(self) -> Step | None:
        family = self.of([
            self.view, self.inplace, self.binary, self.unary, self.reduce, self.store, self.index, self.join, self.cast, self.operator,
            self.view, self.inplace, self.other, self.out, self.ternary,
        ])  # fmt: skip
        made = family()
        if made is None or not self.known(made):
            return None
        if made.kind in ("method", "function") and self.upto(9) == 9:
            return Step(made.kind, made.name, made.args, made.kwargs, made.part, no_grad=True)
        return made

    def unary(self) -> Step | None:
        name = self.of(UNARY)
        x = self.place(lambda i: name not in STEEP or self.same(i))
        if x is None:
            return None
        where = "nn.functional." if name in ("softsign", "gelu", "silu") else ""
        return Step("function", where + name, (Ref(x),))

    def binary(self) -> Step | None:
        name = self.of(BINARY)
        a = self.place(lambda i: name not in STEEP_BINARY or self.same(i))
        if a is None:
            return None
        if self.yes() and name not in (
            "maximum",
            "minimum",
            "fmax",
            "gcd",
            "lcm",
            "atan2",
            "hypot",
            "heaviside",
            "nextafter",
            "logaddexp",
            "dist",
        ):
            return Step("function", name, (Ref(a), self.number()))
        b = self.partner(a)
        if name in STEEP_BINARY and not self.same(b):
            return None
        more = {"alpha": self.of([2, 0.5, -1])} if name in ("add", "sub") and self.yes() else {}
        if name == "div" and self.yes() and self.same(a) and self.same(b):
            more = {"rounding_mode": self.of(["floor", "trunc"])}
        return Step("function", name, (Ref(a), Ref(b)), more)

    def operator(self) -> Step | None:
        sign = self.of(SIGNS)
        exact = sign not in "+-*/**"
        a = self.place(lambda i: not exact or self.same(i))
        if a is None:
            return None
        if self.yes():
            pair = (Ref(a), self.number())
            return Step("operator", sign, pair if self.yes() else pair[::-1])
        b = self.partner(a)
        return Step("operator", sign, (Ref(a), Ref(b))) if not exact or self.same(b) else None

    def ternary(self) -> Step | None:
        name = self.of(["where", "addcmul", "lerp", "clamp", "addcdiv", "where_number"])
        a = self.place()
        if a is None:
            return None
        b, c = self.partner(a), self.partner(a)
        if name.startswith("where"):
            mask = self.place(lambda i: self.dtype(i) == "bool")
            if mask is None:
                return None
            return Step("function", "where", (Ref(mask), Ref(a), self.number() if name == "where_number" else Ref(b)))
        if name == "clamp":
            return Step("function", "clamp", (Ref(a), self.of([-1, -0.5, None]), self.of([1, 0.75])))
        return Step("function", name, (Ref(a), Ref(b), Ref(c)))

    def reduce(self) -> Step | None:
        name = self.of(REDUCE)
        x = self.place(lambda i: name not in STEEP_REDUCE or self.same(i))
        if x is None:
            return None
        d = self.dim(x)
        part = 0 if name in ("max", "min", "median", "aminmax", "cummax") else None
        if name in ("cumsum", "cumprod", "logcumsumexp", "cummax"):
            return Step("function", name, (Ref(x), d), part=part)
        if name == "norm":
            return Step("function", "linalg.vector_norm", (Ref(x), self.of([2, 1, 3, 0, math.inf])), {"dim": d})
        if name == "count_nonzero":
            return Step("function", name, (Ref(x),), {"dim": d})
        if name != "logsumexp" and name != "aminmax" and self.yes():
            return Step("function", name, (Ref(x),))
        if name in ("sum", "mean", "amax", "var", "logsumexp") and self.yes():
            dims = tuple(sorted({d % max(len(self.shape(x)), 1), 0}))
            return Step("function", name, (Ref(x), dims), {"keepdim": self.yes()})
        keep = {"keepdim": self.yes()}
        return (
            Step("function", name, (Ref(x),), {"dim": d, **keep}, part)
            if part is not None
            else Step("function", name, (Ref(x), d), keep)
        )

    # ***** views *****

    def view(self) -> Step | None:
        name = self.of(VIEWS)
        x = self.place()
        if x is None:
            return None
        shape, n = self.shape(x), len(self.shape(x))
        d = self.dim(x)
        length = shape[d] if n else 0
        ref = Ref(x)

        def method(*args: Any, **kwargs: Any) -> Step:
            return Step("method", name, (ref, *args), kwargs)

        match name:
            case "transpose" | "swapaxes":
                return method(d, self.dim(x))
            case "permute":
                return method(self.draw(st.permutations(range(n))))
            case "movedim":
                return method(d, self.dim(x))
            case "reshape" | "view":
                return method(self.regrouped(self.size(x)))
            case "unsqueeze":
                return method(self.upto(n, -n - 1))
            case "squeeze":
                return method(d) if self.yes() else method()
            case "expand":
                return method(
                    *[self.upto(2, 1)] * self.upto(1), *(self.of([s, -1]) if s != 1 else self.upto(3, 1) for s in shape)
                )
            case "slice":
                return Step("index", "", (ref, self.slices(shape)))
            case "select":
                return method(d, self.upto(length - 1, -length)) if length else None
            case "narrow":
                start = self.upto(length)
                return method(d, start, self.upto(length - start))
            case "flatten" | "ravel" | "detach" | "contiguous" | "view_as_real" | "t" | "view_as_complex":
                return Step("function", name, (ref,)) if name.startswith("view") else method()
            case "conj":
                return method() if self.yes() else Step("method", "resolve_conj", (ref,))
            case "alias":
                return Step("index", "", (ref, Ellipsis)) if self.yes() else Step("index", "", (ref, None))
            case "T" | "mT" | "real" | "imag":
                return Step("attribute", name, (ref,))
            case "diagonal":
                return method(self.upto(2, -2), d, self.dim(x))
            case "unfold":
                return method(d, self.upto(max(length, 1)), self.upto(3, 1))
            case "split":
                return Step("method", name, (ref, self.upto(2, 1), d), part=self.of([0, -1]))
            case "chunk" | "tensor_split":
                return Step("method", name, (ref, self.upto(3, 1), d), part=self.of([0, -1]))
            case "unbind":
                return Step("method", name, (ref, d), part=self.of([0, -1])) if length else None
            case "view_as" | "expand_as":
                return method(Ref(self.partner(x)))
            case "view_dtype":
                return Step("method", "view", (ref, Name(self.of(self.dtypes)))) if self.same(x) else None
            case "unflatten":
                return method(d, self.regrouped(length))
            case "index":
                return Step("index", "", (ref, self.slices(shape, plain=False)))
            case "as_strided":
                return self.strided(x)
        raise AssertionError(name)

    def strided(self, x: int) -> Step | None:
        """Any window of the storage, overlapping ones too."""
        room = self.room(self.values[x])
        size, stride, last = [], [], 0
        for _ in range(self.upto(2)):
            s, n = self.upto(3), self.upto(3, 1)
            size.append(n)
            stride.append(s)
            last += s * (n - 1)
        if last >= room:
            return None
        return Step("method", "as_strided", (Ref(x), tuple(size), tuple(stride), self.upto(min(room - 1 - last, 4))))

    def regrouped(self, count: int) -> tuple[int, ...]:
        """A shape of so many elements."""
        out = []
        for _ in range(self.upto(2)):
            f = self.of([f for f in range(1, max(count, 1) + 1) if count % f == 0])
            out.append(f)
            count //= f
        return (*out, count) if not self.yes() or not count else (*out, -1)

    def slices(self, shape: tuple[int, ...], plain: bool = True) -> tuple[Any, ...]:
        made: list[Any] = []
        for n in shape[: self.upto(len(shape))]:
            if not plain and self.yes():
                made.append(None)
            if n and self.yes():
                made.append(self.upto(n - 1, -n))
            else:
                made.append(slice(self.of([None, 1, 0, -1]), self.of([None, n, -1, 1]), self.of([None, 2, 1])))
        if self.yes():
            made.append(Ellipsis)
        return tuple(made)

    # ***** indexing *****

    def places(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """A place with lists, masks and index tensors in it."""
        made: list[Any] = []
        for n in shape[: self.upto(len(shape), 1)]:
            kind = self.of(["list", "slice", "int", "none", "column", "mask", "all"])
            rows = [self.upto(n - 1, -n) for _ in range(2)] if n else []
            if kind == "list":
                made.append(rows)
            elif kind == "column":
                made.append([[r] for r in rows] if rows else [])
            elif kind == "int" and n:
                made.append(rows[0])
            elif kind == "mask":
                made.append([self.yes() for _ in range(n)])
            elif kind == "none":
                made += [None, slice(None)]
            else:
                made.append(slice(None) if kind == "all" else slice(self.of([None, 1]), None, self.of([None, 2])))
        if self.upto(4) == 4:
            made.append(Ellipsis)
        return tuple(made)

    def index(self) -> Step | None:
        x = self.place()
        if x is None:
            return None
        shape, d = self.shape(x), self.dim(x)
        n = shape[d] if shape else 1
        kind = self.of(["places", "mask", "index_select", "take", "gather", "tensor", "take_along_dim"])
        if kind == "mask":
            mask = self.place(
                lambda i: (
                    self.dtype(i) in ("bool", "uint8") and len(self.shape(i)) <= len(shape) and self.dtype(i) == "bool"
                )
            )
            return None if mask is None else Step("index", "", (Ref(x), Ref(mask)))
        if kind == "places":
            return Step("index", "", (Ref(x), self.places(shape)))
        at = self.place(lambda i: self.dtype(i) in ("int64", "int32"))
        if at is None:
            return None
        if not shape and kind in ("index_select", "take"):  # known: places of a 0-dim tensor are not checked
            return None
        if kind in ("tensor", "take"):
            place = Ref(at)
            return Step("index", "", (Ref(x), place)) if kind == "tensor" else Step("function", "take", (Ref(x), place))
        return (
            Step("function", kind, (Ref(x), d, Ref(at)))
            if kind != "take_along_dim"
            else Step("function", kind, (Ref(x), Ref(at), d if n else 0))
        )

    def store(self) -> Step | None:
        x = self.place()
        if x is None:
            return None
        place = self.places(self.shape(x)) if self.yes() else self.slices(self.shape(x), plain=self.yes())
        if self.upto(4) == 4:
            mask = self.place(lambda i: self.dtype(i) == "bool" and self.shape(i) == self.shape(x))
            place = place if mask is None else Ref(mask)
        other = self.partner(x)  # a tensor written over itself is no step
        return Step("store", "", (Ref(x), place, self.number() if self.yes() or other == x else Ref(other)))

    # ***** in-place, out= *****

    def inplace(self) -> Step | None:
        name = self.of(INPLACE)
        x = self.place(
            lambda i: (
                name not in ("floor_", "remainder_", "eq_", "round_", "lt_", "logical_not_", "sign_") or self.same(i)
            )
        )
        if x is None:
            return None
        ref, d, other = Ref(x), self.dim(x), Ref(self.partner(x))

        def method(*args: Any, **kwargs: Any) -> Step:
            return Step("method", name, (ref, *args), kwargs)

        match name:
            case (
                "add_"
                | "sub_"
                | "mul_"
                | "div_"
                | "pow_"
                | "remainder_"
                | "eq_"
                | "bitwise_xor_"
                | "lt_"
                | "bitwise_and_"
            ):
                more = {"alpha": 2} if name in ("add_", "sub_") and self.yes() else {}
                if name in ("remainder_", "eq_", "lt_") and not self.same(other.place):
                    return None
                return method(other if self.yes() else self.number(), **more)
            case "copy_" | "resize_as_":
                return method(other) if name == "copy_" else None
            case "fill_":
                return method(self.number())
            case "clamp_":
                return method(-1, self.of([1, 0.5]))
            case "clamp_min_":
                return method(self.number())
            case "masked_fill_" | "masked_scatter_":
                mask = self.place(lambda i: self.dtype(i) == "bool")
                value = self.number() if name == "masked_fill_" else other
                return None if mask is None else method(Ref(mask), value)
            case "addcmul_" | "addcdiv_" | "lerp_":
                return method(other, self.number() if name == "lerp_" else Ref(self.partner(x)))
            case "unsqueeze_" | "squeeze_" | "cumsum_":
                return method(d)
            case "transpose_":
                return method(d, self.dim(x))
            case "fill_diagonal_":
                return method(self.number())
            case "index_add_" | "index_copy_" | "index_fill_":
                at = self.place(lambda i: self.dtype(i) == "int64" and len(self.shape(i)) == 1)
                return None if at is None else method(d, Ref(at), self.number() if name == "index_fill_" else other)
            case "scatter_":
                at = self.place(lambda i: self.dtype(i) == "int64" and len(self.shape(i)) == len(self.shape(x)))
                return None if at is None else method(d, Ref(at), self.number() if self.yes() else other)
        return method()

    def out(self) -> Step | None:
        """A result written into a value: of any shape and dtype, for PyTorch has rules for that."""
        name = self.of(
            [
                "add",
                "mul",
                "div",
                "sin",
                "sum",
                "amax",
                "clone",
                "matmul",
                "cat",
                "where",
                "index_select",
                "cumsum",
                "eq",
            ]
        )
        a = self.place()
        if a is None:
            return None
        b = self.partner(a)
        into = self.place(lambda i: self.shape(i) == self.shape(a)) if self.yes() else self.place()
        if (
            into is None
            or name == "clone"
            or (into in (a, b) and name in ("sum", "amax", "matmul", "cat", "cumsum"))
            or (name in ("eq", "amax") and not (self.same(a) and self.same(b)))
        ):
            return None
        args: tuple[Any, ...] = (Ref(a), Ref(b))
        if name == "sin":
            args = (Ref(a),)
        elif name in ("sum", "amax", "cumsum"):
            args = (Ref(a), self.dim(a))
        elif name == "cat":
            args = ([Ref(a), Ref(b)],)
        elif name in ("where", "index_select"):
            return None
        return Step("function", name, args, {"out": Ref(into)}, no_grad=self.yes())

    # ***** joining, casting, the rest *****

    def join(self) -> Step | None:
        a = self.place()
        if a is None:
            return None
        b, d, name = (
            self.partner(a),
            self.dim(a),
            self.of(["cat", "stack", "matmul", "@", "outer", "hstack", "mv", "bmm", "einsum", "addmm"]),
        )
        pair = [Ref(a), Ref(b)]
        if name in ("cat", "stack"):
            return Step("function", name, (pair, d))
        if name == "hstack":
            return Step("function", name, (pair,))
        if name == "@":
            return Step("operator", name, (Ref(a), Ref(b)))
        if name == "outer":
            return Step("function", name, (Ref(a), Ref(b))) if len(self.shape(a)) == len(self.shape(b)) == 1 else None
        shape = self.shape(a)
        if name == "mv":
            return Step("function", "matmul", (Ref(a), Ref(a)))
        if name == "einsum":
            if self.dtype(a) == "bool":
                return None
            letters = "ijkl"[: len(shape)]
            return Step("function", name, (f"{letters},{letters}->{letters[: self.upto(len(shape))]}", Ref(a), Ref(a)))
        other = self.place(lambda i: bool(self.shape(i)) and self.shape(i)[-2:][:1] == shape[-1:])
        if other is None or not shape:
            return None
        return Step("function", "matmul", (Ref(a), Ref(other)))

    def cast(self) -> Step | None:
        to = self.of(self.dtypes)
        x = self.place(lambda i: to[0] in "fcb" and to != "bool" or self.same(i))
        if x is None:
            return None
        return Step("method", "to", (Ref(x), Name(to)), {"copy": True} if self.yes() else {})

    def other(self) -> Step | None:
        name = self.of(["softmax", "log_softmax", "flip", "tril", "roll", "sort", "retain_grad", "empty_like", "zeros_like", "repeat",
                        "topk", "nonzero", "unique", "layer_norm", "tile", "triu", "diag", "kron", "trace", "diff", "pad",
                        "repeat_interleave", "new_zeros", "full_like", "masked_select", "bincount", "requires_grad_"])  # fmt: skip
        x = self.place(
            lambda i: (
                (name not in ("sort", "topk", "nonzero", "unique") or self.same(i))
                and (name != "repeat_interleave" or bool(self.shape(i)))
            )
        )
        if x is None:
            return None
        d, ref, shape = self.dim(x), Ref(x), self.shape(x)
        match name:
            case "softmax" | "log_softmax":
                if self.dtype(x)[0] not in "fb" or self.dtype(x) == "bool":
                    return None
                return Step("function", name, (ref, d))
            case "flip" | "roll":
                return Step("function", name, (ref, (d,)) if name == "flip" else (ref, self.upto(2, -2), d))
            case "tril" | "triu" | "diag":
                return Step("function", name, (ref, self.upto(1, -1)))
            case "sort":
                return Step("method", name, (ref,), {"dim": d, "stable": True, "descending": self.yes()}, part=0)
            case "retain_grad" | "empty_like" | "bincount" | "kron":
                return None
            case "zeros_like" | "trace" | "nonzero":
                return Step("function", name, (ref,))
            case "full_like" | "new_zeros":
                return Step("function", "full_like", (ref, self.number()))
            case "repeat" | "tile":
                return Step("method", name, (ref, *(self.upto(2, 1) for _ in range(max(len(shape), 1)))))
            case "topk":
                return Step("function", name, (ref, 1, d), part=0)
            case "unique":
                return Step("function", name, (ref,))
            case "layer_norm":
                return Step("function", "nn.functional.layer_norm", (ref, tuple(shape[-1:])))
            case "diff":
                return Step("function", name, (ref,))
            case "pad":
                return Step("function", "nn.functional.pad", (ref, (self.upto(2, -1), 1)))
            case "repeat_interleave":
                return Step("function", name, (ref, 2, d))
            case "masked_select":
                mask = self.place(lambda i: self.dtype(i) == "bool")
                return None if mask is None else Step("function", name, (ref, Ref(mask)))
            case "requires_grad_":
                return Step("method", name, (ref,))
        raise AssertionError(name)
