"""Modules of the standard library interpreted from the call down: what they give is what CPython gives."""

from __future__ import annotations

import argparse
import ast
import asyncio
import collections
import configparser
import contextlib
import copy
import csv
import dataclasses
import difflib
import fractions
import functools
import heapq
import importlib.util
import inspect
import io
import json
import random
import statistics
import string
import sys
import textwrap
import tokenize
import typing
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from tests.capture.bytecode.interpreted import interpret, outcome

from rushlight._capture.bytecode.versions import interpreted

pytestmark = pytest.mark.skipif(not interpreted(), reason="no tested table of opcodes for this version of Python")

TEXT = (
    "The quick  brown fox jumped over the lazy dog, and (so it is said) it did so more-than-once in a well-known book. "
    * 3
)
DOCUMENT: dict[str, Any] = {
    "a": [1, 2.5, None, True, {"b": "c\n\u00e9"}],
    "d": {},
    "e": [],
    "f": {"g": [[[]]], "h": -1e300},
}


def pure(name: str, *without: str) -> ModuleType:
    """A module of the library without the accelerator written in C."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    hidden = {module: sys.modules.pop(module, None) for module in without}
    sys.modules.update(dict.fromkeys(without))  # type: ignore[arg-type]
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for key, value in hidden.items():
            sys.modules.pop(key)
            if value is not None:
                sys.modules[key] = value
    return module


HEAPQ = pure("heapq", "_heapq")
DECODER, SCANNER, ENCODER = pure("json.decoder", "_json"), pure("json.scanner", "_json"), pure("json.encoder", "_json")
DATETIME = pure("datetime", "_datetime")


def wrapping() -> Any:
    wrapper = textwrap.TextWrapper(
        width=30, initial_indent="* ", subsequent_indent="  ", max_lines=8, placeholder=" ..."
    )
    return (
        textwrap.wrap(TEXT, 24),
        wrapper.fill(TEXT),
        textwrap.dedent("  a\n    b\n  c"),
        textwrap.shorten(TEXT, 40),
        textwrap.indent("a\nb", "> "),
    )


def json_read() -> Any:
    decoder = DECODER.JSONDecoder()
    decoder.parse_string = DECODER.py_scanstring
    decoder.scan_once = SCANNER.py_make_scanner(decoder)
    out = [decoder.decode(text) for text in (json.dumps(DOCUMENT), "[1, 2e3, -0.5]", '"\\u00e9\\n"', "{}", "true")]
    for text in ("", "[1,", '{"a" 1}', '"abc', "nul", "[1] 2", '"\\x"'):
        try:
            decoder.decode(text)
        except ValueError as error:
            out.append(str(error))
    return out


def json_write() -> Any:
    encoder = ENCODER.JSONEncoder(indent=2, sort_keys=True)
    return "".join(encoder.iterencode(DOCUMENT)), ENCODER.JSONEncoder(separators=(",", ":")).encode(DOCUMENT)


def json_circle() -> Any:
    circle: list[Any] = []
    circle.append(circle)
    return ENCODER.JSONEncoder(indent=1).encode(circle)


def differences() -> Any:
    a, b = TEXT.split(", "), TEXT.replace("fox", "cat").split(", ")
    matcher = difflib.SequenceMatcher(None, "private Thread currentThread;", "private volatile Thread currentThread;")
    return (
        list(difflib.unified_diff(a, b, "old", "new")), list(difflib.ndiff(a, b)), matcher.ratio(), matcher.get_opcodes(),
        difflib.get_close_matches("appel", ["ape", "apple", "peach", "puppy"]),
    )  # fmt: skip


def heaps() -> Any:
    draw = random.Random(3)
    values = [draw.randrange(100) for _ in range(60)]
    heap = values[:30]
    HEAPQ.heapify(heap)
    for value in values[30:]:
        HEAPQ.heappush(heap, value)
    merged = list(HEAPQ.merge([1, 4, 9], [2, 3, 10], [0], key=lambda x: x + 1))
    return (
        [HEAPQ.heappop(heap) for _ in range(20)],
        HEAPQ.nlargest(3, values, key=lambda x: -x),
        HEAPQ.nsmallest(4, values),
        merged,
        heapq.nlargest(2, values),
    )


def collections_used() -> Any:
    counter = collections.Counter("abracadabra")
    counter.update("bar")
    chain = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    point = collections.namedtuple("point", "x y", defaults=(5,))  # type: ignore[misc]

    class Mapping(collections.UserDict):  # type: ignore[type-arg]
        def __missing__(self, key: str) -> str:
            return key * 2

    ordered = collections.OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    return (
        counter.most_common(2),
        counter - collections.Counter("aab"),
        sorted(counter.elements()),
        dict(chain),
        point(1),
        point(1)._asdict(),
        Mapping(a=1)["z"],
        ordered,
        repr(counter),
    )


def dataclasses_made() -> Any:
    @dataclasses.dataclass(frozen=True, order=True, slots=True)
    class Pair:
        a: int
        b: list[int] = dataclasses.field(default_factory=list, compare=False)
        c: typing.ClassVar[int] = 3

    @dataclasses.dataclass
    class Triple:
        x: int
        y: dataclasses.InitVar[int] = 2

        def __post_init__(self, y: int) -> None:
            self.x += y

    out: list[Any] = [
        Pair(1, [2]),
        Pair(1) == Pair(1, [9]),
        Pair(1) < Pair(2),
        hash(Pair(3)) == hash(Pair(3)),
        Triple(1),
        [f.name for f in dataclasses.fields(Pair)],
    ]
    try:
        Pair(1).a = 2  # type: ignore[misc]
    except dataclasses.FrozenInstanceError as error:
        out.append(str(error))
    return out, dataclasses.make_dataclass("Made", ["p", ("q", int, 3)])(1)


def arguments() -> Any:
    parser = argparse.ArgumentParser("prog", description=TEXT, exit_on_error=False)
    parser.add_argument("files", nargs="*")
    parser.add_argument("-n", "--number", type=int, default=3, help="how many (default: %(default)s)")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--fast", action="store_true")
    group.add_argument("--slow", action="store_const", const=7)
    sub = argparse.ArgumentParser("sub")
    commands = sub.add_subparsers(dest="command")
    commands.add_parser("run").add_argument("--level", choices=["a", "b"], default="a")
    out: list[Any] = [
        vars(parser.parse_args(["a", "b", "-n", "5", "--fast"])),
        parser.format_help(),
        vars(sub.parse_args(["run", "--level", "b"])),
    ]
    for wrong in (["-n", "x"], ["--fast", "--slow"]):
        try:
            parser.parse_args(wrong)
        except argparse.ArgumentError as error:
            out.append(str(error))
    return out


def figures() -> Any:
    data = [1.5, 2.5, 2.5, 2.75, 3.25, 4.75]
    normal = statistics.NormalDist.from_samples(data)
    return (
        statistics.mean(data), statistics.stdev(data), statistics.median(data), statistics.mode(data), statistics.quantiles(data, n=4),
        statistics.linear_regression(data, data[::-1]), normal.cdf(2.0), normal.inv_cdf(0.3), statistics.harmonic_mean(data),
        statistics.fmean(data), statistics.multimode("aabbc"), statistics.correlation(data, data),
    )  # fmt: skip


def no_figures() -> Any:
    return statistics.mean([])


def ratios() -> Any:
    third = fractions.Fraction(1, 3)
    return (
        third + 2, third * fractions.Fraction("0.75"), -third // 2, divmod(fractions.Fraction(7, 2), third), third**-2, round(third, 3),
        fractions.Fraction(3.14).limit_denominator(100), sum([third] * 3), third == 1 / 3, hash(third), sorted([third, 0.25, 1]), str(third),
    )  # fmt: skip


def no_ratio() -> Any:
    return fractions.Fraction("1/0")


def syntax_written() -> Any:
    tree = ast.parse(inspect.getsource(textwrap))
    extra = "async def f(a, /, *b, c=1, **d):\n match a:\n  case {'x': [1, *_], **r}: return f'{a!r:>{c}}'\n async with x as y: await z\n"
    return (
        ast.unparse(tree),
        ast.unparse(ast.parse(extra)),
        ast.dump(ast.parse("x = 1 if y else [*z]")),
        ast.literal_eval("{'a': [1, (2, -3)]}"),
    )


def tokens() -> Any:
    source = "def f(x):\n    return x + 1  # comment\n\nclass A: 'doc'\n"
    return [(t.type, t.string, t.start) for t in tokenize.generate_tokens(io.StringIO(source).readline)]


def dates() -> Any:
    day = DATETIME.datetime(2024, 2, 29, 12, 30, tzinfo=DATETIME.timezone.utc)
    return (
        str(day + DATETIME.timedelta(days=366)),
        day.isoformat(),
        day.strftime("%Y %j %U"),
        DATETIME.date.fromisoformat("2020-01-05").isocalendar(),
        repr(DATETIME.timedelta(hours=-5)),
    )


def settings() -> Any:
    parser = configparser.ConfigParser()
    parser.read_string("[a]\nx = 1\ny = %(x)s2\n[b]\nz: multi\n  line\n")
    out = io.StringIO()
    parser.write(out)
    return {s: dict(parser[s]) for s in parser.sections()}, parser.getint("a", "y"), out.getvalue()


def tables() -> Any:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["a", "b"])
    writer.writeheader()
    writer.writerow({"a": 1, "b": 'x"y'})
    return list(csv.DictReader(io.StringIO(out.getvalue()))), csv.Sniffer().sniff("a;b\n1;2\n").delimiter


def copies() -> Any:
    class Node:
        def __init__(self, value: int) -> None:
            self.value, self.next = value, self

    copied = copy.deepcopy([Node(1), {"a": {2}}, (3, [4])])
    return copied[0].next is copied[0], copied[1:], copy.copy(Node(5)).value  # type: ignore[attr-defined]


def templates() -> Any:
    return (
        string.Template("$a and ${b} $$").substitute(a=1, b=2),
        string.Formatter().format("{0!r:>5} {x[k]}", "a", x={"k": 3}),
        string.capwords("a b c"),
    )


def dispatch() -> Any:
    @functools.singledispatch
    def f(x: object) -> str:
        return "object"

    @f.register
    def _(x: int) -> str:
        return "int"

    @functools.total_ordering
    class Version:
        def __init__(self, n: int) -> None:
            self.n = n

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Version) and self.n == other.n

        def __lt__(self, other: Version) -> bool:
            return self.n < other.n

    class Lazy:
        @functools.cached_property
        def value(self) -> int:
            print("computed")
            return 4

    lazy = Lazy()
    return (
        f(1),
        f(True),
        f("a"),
        Version(1) >= Version(0),
        lazy.value,
        lazy.value,
        functools.reduce(lambda a, b: a + b, [[1], [2]]),
    )


def contexts() -> Any:
    out = []

    @contextlib.contextmanager
    def named(name: str) -> Any:
        out.append(f"in {name}")
        try:
            yield name
        finally:
            out.append(f"out {name}")

    @named("decorated")
    def f() -> int:
        return 3

    f()
    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(named(str(i))) for i in range(3)]
        stack.callback(out.append, "callback")
        stack.push(lambda *error: error[0] is KeyError)
        raise KeyError(names)
    return out, contextlib.nullcontext(1).__enter__()


def asynchronous() -> Any:
    async def work(n: int, log: list[str]) -> int:
        for i in range(n):
            await asyncio.sleep(0)
            log.append(f"{n}.{i}")
        if n == 3:
            raise ValueError(n)
        return n * n

    async def numbers(n: int) -> Any:
        for i in range(n):
            yield i
            await asyncio.sleep(0)

    async def main() -> Any:
        log: list[str] = []
        results = await asyncio.gather(*(work(n, log) for n in (1, 2, 3)), return_exceptions=True)
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        async with asyncio.timeout(5):
            task = asyncio.create_task(queue.put(4))
            log.append(str(await queue.get()))
            await task
        try:
            await asyncio.wait_for(asyncio.sleep(10), 0.001)
        except TimeoutError:
            log.append("timeout")
        return log, [str(r) for r in results], [x async for x in numbers(3)]

    return asyncio.run(main())


PROGRAMS: list[Callable[[], Any]] = [
    wrapping, json_read, json_write, json_circle, differences, heaps, collections_used, dataclasses_made, arguments, figures, no_figures, ratios,
    no_ratio, syntax_written, tokens, dates, settings, tables, copies, templates, dispatch, contexts, asynchronous,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_library(program: Callable[[], Any]) -> None:
    assert outcome(lambda: interpret(program)) == outcome(program)
