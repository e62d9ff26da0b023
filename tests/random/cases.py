"""The random programs whose results are known from real PyTorch.

Each case is a function of a module that looks like torch; it seeds, draws and returns the tensors to compare.  The same
functions run with real PyTorch (`tools/tables/make_random_expected.py` stores what it answers in `expected.json`) and with rushlight
(`test_expected.py` compares bit for bit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

CASES: dict[str, Callable[[Any], Any]] = {}

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("uint8", "int8", "int16", "int32", "int64")
# below 16 normal numbers are drawn one by one; 16 and up in blocks, with the last block drawn again;
# 624 words is one block of the engine; 100003 is long, odd and no multiple of anything
SIZES = (1, 2, 7, 15, 16, 17, 31, 32, 100, 623, 625, 1000, 100003)


def case(name: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def add(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        assert name not in CASES, name
        CASES[name] = function
        return function

    return add


# ***** one call, many sizes and dtypes *****


def _filled(method: str, *args: float) -> Callable[[Any, int, str], Any]:
    return lambda t, n, dtype: getattr(t.zeros(n, dtype=getattr(t, dtype)), method)(*args)


FILLS: dict[str, Callable[[Any, int, str], Any]] = {
    "rand": lambda t, n, dtype: t.rand(n, dtype=getattr(t, dtype)),
    "randn": lambda t, n, dtype: t.randn(n, dtype=getattr(t, dtype)),
    "uniform": _filled("uniform_", -3.5, 1.25),
    "normal": _filled("normal_", 1.5, 0.02),
    "exponential": _filled("exponential_", 2.5),
    "cauchy": _filled("cauchy_", 0.5, 2.0),
    "log_normal": _filled("log_normal_", 0.25, 0.75),
    "geometric": _filled("geometric_", 0.3),
    "bernoulli_scalar": _filled("bernoulli_", 0.3),
    "random": _filled("random_"),
    "random_to": _filled("random_", 100),
    "random_from_to": _filled("random_", -20, 77),
    "dropout": lambda t, n, dtype: t.nn.functional.dropout(t.ones(n, dtype=getattr(t, dtype)), 0.25),
    "bernoulli_tensor": lambda t, n, dtype: t.bernoulli((t.arange(n, dtype=t.float64) / n).to(getattr(t, dtype))),
    "poisson": lambda t, n, dtype: t.poisson((t.arange(n, dtype=t.float64) / n * 40).to(getattr(t, dtype))),
}


def _add_fills() -> None:
    for name, fill in FILLS.items():
        for dtype in FLOATS:
            for n in SIZES if name in ("rand", "randn", "normal", "exponential") else (7, 40, 1000):
                # the seed differs from case to case, and one is negative
                seed = len(CASES) * 7919 - 7919

                def run(t: Any, fill: Any = fill, n: int = n, dtype: str = dtype, seed: int = seed) -> Any:
                    t.manual_seed(seed)
                    return fill(t, n, dtype)

                case(f"{name}-{dtype}-{n}")(run)
    for name in ("random", "random_to", "geometric", "bernoulli_scalar"):
        for dtype in (*INTS, "bool"):
            if dtype == "bool" and name in ("geometric", "random_to"):
                continue

            def run_int(t: Any, name: str = name, dtype: str = dtype) -> Any:
                t.manual_seed(99)
                return FILLS[name](t, 500, dtype)

            case(f"{name}-{dtype}-500")(run_int)


_add_fills()


# ***** integers *****


@case("randint-ranges")
def _randint(t: Any) -> Any:
    """Ranges of 2**28 and more take 64 bits of the engine for each number."""
    t.manual_seed(2024)
    ranges = ((0, 10), (-5, 6), (0, 2**28 - 1), (0, 2**28), (0, 2**33), (-(2**62), 2**62), (0, 2**63 - 1))
    return [t.randint(low, high, (37,)) for low, high in ranges]


@case("randint-dtypes")
def _randint_dtypes(t: Any) -> Any:
    t.manual_seed(-5)
    dtypes = ("uint8", "int8", "int16", "int32", "int64", "float32", "float64", "float16", "bfloat16")
    return [t.randint(100, (3, 5), dtype=getattr(t, dtype)) for dtype in dtypes]


@case("random-open-ended")
def _random_from(t: Any) -> Any:
    t.manual_seed(11)
    whole = [
        t.zeros(20, dtype=getattr(t, d)).random_(-(2**63), None) for d in ("int64", "float32", "float64", "bfloat16")
    ]
    return whole + [t.zeros(20, dtype=getattr(t, d)).random_(3, None) for d in (*INTS, "float32", "float64", "float16")]


@case("randperm")
def _randperm(t: Any) -> Any:
    t.manual_seed(2**40 + 3)
    return [t.randperm(n) for n in (0, 1, 2, 3, 10, 100, 5000)] + [
        t.randperm(100, dtype=t.int32),
        t.randperm(50, dtype=t.float32),
    ]


@case("multinomial")
def _multinomial(t: Any) -> Any:
    t.manual_seed(31)
    row, rows = t.rand(50), t.rand(4, 30)
    out = [t.multinomial(row, 200, replacement=True), t.multinomial(rows, 9, replacement=True)]
    out += [t.multinomial(row, 20), t.multinomial(rows, 5), t.multinomial(rows, 1), t.multinomial(row, 50)]
    out += [t.multinomial(rows.double(), 5), t.multinomial(rows.double().t(), 9, replacement=True)]
    out += [t.multinomial(rows.double(), 1), t.multinomial(rows.bfloat16(), 1), t.multinomial(rows.bfloat16(), 3)]
    out += [t.multinomial(rows.t(), 1), t.multinomial(rows.t(), 2), t.multinomial(rows[:, ::2], 2)]
    return [*out, t.multinomial(rows.bfloat16(), 300, replacement=True), t.rand(2)]


# ***** order and state *****


@case("memory-order")
def _memory_order(t: Any) -> Any:
    """A tensor that is not contiguous is filled in the order of its memory, normal numbers one by one."""
    out = []
    for method in ("uniform_", "normal_", "bernoulli_", "exponential_", "random_"):
        t.manual_seed(5)
        out += [
            getattr(t.zeros(6, 7).t(), method)().contiguous(),
            getattr(t.zeros(8, 9)[:, ::2], method)().contiguous(),
            getattr(t.zeros(2, 3, 4, 5).permute(0, 2, 3, 1), method)().contiguous(),
            getattr(t.zeros(40, 5).t(), method)().contiguous(),
            getattr(t.zeros(3, 1, 4).transpose(0, 1), method)().contiguous(),
        ]
    return out


@case("bernoulli-broadcast")
def _bernoulli_broadcast(t: Any) -> Any:
    t.manual_seed(77)
    p = t.rand(5)
    return [
        t.zeros(4, 5).bernoulli_(p),
        t.zeros(5, 4).t().bernoulli_(p).contiguous(),
        t.zeros(4, 5, dtype=t.int64).bernoulli_(p.double()),
        t.zeros(4, 5, dtype=t.bool).bernoulli_(t.tensor(0.5)),
        t.bernoulli(t.rand(3, 4).t()).contiguous(),
        t.bernoulli(t.zeros(8), 0.5),
    ]


@case("normal-cache")
def _normal_cache(t: Any) -> Any:
    """Small draws leave a second number behind for the next small draw; large ones leave it alone; float64 shares it."""
    t.manual_seed(1)
    first = t.randn(3)
    out = [first, t.randn(20), t.randn(1), t.randn(5, dtype=t.float64), t.rand(3), t.zeros(2).log_normal_(), t.randn(2)]
    state = t.get_rng_state()
    again = t.randn(4)
    t.set_rng_state(state)
    return [*out, state, again, t.randn(4)]


@case("normal-overloads")
def _normal_overloads(t: Any) -> Any:
    t.manual_seed(8)
    mean, std = t.rand(20), t.rand(20)
    return [
        t.normal(mean, 2.0),
        t.normal(0.5, std),
        t.normal(mean, std),
        t.normal(t.zeros(3, 1), t.ones(5)),
        t.normal(0.5, 2.0, (4, 5)),
        t.normal(mean.double(), std),
    ]


@case("like-family")
def _like(t: Any) -> Any:
    t.manual_seed(9)
    x = t.zeros(3, 8)
    return [
        t.rand_like(x),
        t.randn_like(x),
        t.randint_like(x, 9),
        t.randint_like(x, -4, 9),
        t.rand_like(x.t()).contiguous(),
    ]


@case("complex")
def _complex(t: Any) -> Any:
    t.manual_seed(10)
    return [t.rand(9, dtype=t.complex64), t.randn(9, dtype=t.complex64), t.randn(5, dtype=t.complex128)]


@case("empty")
def _empty(t: Any) -> Any:
    """Nothing is drawn for a tensor without elements."""
    t.manual_seed(3)
    return [
        t.rand(0, 4),
        t.randn(0),
        t.randint(5, (2, 0)),
        t.zeros(0).exponential_(),
        t.bernoulli(t.zeros(0)),
        t.rand(2),
    ]


@case("generator")
def _generator(t: Any) -> Any:
    g = t.Generator()
    first = t.rand(3, generator=g)  # every new generator starts from the same seed
    g.manual_seed(123)
    out = [first, t.rand(5, generator=g), t.randn(20, generator=g), t.randperm(9, generator=g), g.get_state()]
    h = t.Generator()
    h.set_state(g.get_state())
    t.manual_seed(0)
    return [*out, t.randn(7, generator=h), t.zeros(3).exponential_(generator=g), t.rand(3)]


@case("states")
def _states(t: Any) -> Any:
    """The 5056 bytes of a state: just seeded, in a block, at the end of a block, after it."""
    out = []
    for n in (0, 1, 100, 622, 623, 624, 625, 1247, 1248, 1249, 3000):
        t.manual_seed(n * 12345678901)
        if n:
            t.rand(n)
        out.append(t.get_rng_state())
    return out


@case("binomial")
def _binomial(t: Any) -> Any:
    t.manual_seed(13)
    out = []
    for dtype in (t.float32, t.float64):
        for trials in (1, 7, 30, 1000, 123456):
            out.append(
                t.binomial(t.full((40,), float(trials), dtype=dtype), (t.arange(40, dtype=t.float64) / 39).to(dtype))
            )
    return [*out, t.rand(2)]


@case("activations")
def _activations(t: Any) -> Any:
    t.manual_seed(12)
    x = t.randn(6, 50)
    f = t.nn.functional
    return [f.rrelu(x, 0.1, 0.4, True), f.rrelu(x.double(), 0.1, 0.4, True), f.gumbel_softmax(x, hard=True), t.rand(2)]


def tensors(result: Any) -> Iterator[Any]:
    """The tensors of a case's result."""
    if isinstance(result, (list, tuple)):
        yield from result
    else:
        yield result
