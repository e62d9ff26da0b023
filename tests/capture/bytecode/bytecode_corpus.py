"""Small functions that go through every opcode: a test runs each by CPython and by the interpreter, and compares everything seen."""

import contextlib
import dataclasses
import enum
import functools
import itertools
import sys
import warnings
from collections import OrderedDict, namedtuple

GLOBAL = 10


def names():
    global GLOBAL, _made
    _made = GLOBAL
    GLOBAL += 1
    r = (_made, GLOBAL)
    GLOBAL = 10
    del _made
    try:
        _made
    except NameError as e:
        return r, str(e), e.name


def no_such_name():
    return undefined_name + 1


def delete_missing_global():
    global never_there
    del never_there


def unbound_local():
    if GLOBAL < 0:
        x = 1
    return x


def deleted_local():
    x = 1
    del x
    return x


def delete_twice():
    x = 1
    del x
    del x


def unbound_cell():
    def f():
        return x

    if GLOBAL < 0:
        x = 1
    return f()


def unbound_own_cell():
    if GLOBAL < 0:
        x = 1
    f = lambda: x
    return x


def delete_cell():
    x = 1
    f = lambda: x
    del x
    try:
        f()
    except NameError as e:
        print(e)
    del x


def cells():
    x = 1

    def up():
        nonlocal x
        x += 1
        return x

    def down(n=[0], *, by=2):
        nonlocal x
        x -= by
        n.append(x)
        return n

    return up(), up(), down(), down(by=5), x, up.__closure__ == down.__closure__


def late_cells():
    return [f() for f in [lambda: i for i in range(3)]], [f() for f in [lambda i=i: i for i in range(3)]]


def cell_argument(a=3, *args, b=4, **kw):
    def f():
        return a, args, b, kw

    a += 1
    return f()


def operators():
    a, b = 13, 4
    r = [a + b, a - b, a * b, a / b, a // b, a % b, a**b, a << b, a >> b, a & b, a | b, a ^ b, -a, +a, ~a, not a]
    for op in range(13):
        x = 13
        if op == 0:
            x += b
        elif op == 1:
            x -= b
        elif op == 2:
            x *= b
        elif op == 3:
            x /= b
        elif op == 4:
            x //= b
        elif op == 5:
            x %= b
        elif op == 6:
            x **= b
        elif op == 7:
            x <<= b
        elif op == 8:
            x >>= b
        elif op == 9:
            x &= b
        elif op == 10:
            x |= b
        else:
            x ^= b
        r.append(x)
    return r


class Mat:
    def __init__(self, n):
        self.n = n

    def __matmul__(self, other):
        print("matmul")
        return Mat(self.n * other.n)

    def __imatmul__(self, other):
        print("imatmul")
        self.n += other.n
        return self

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return NotImplemented

    def __repr__(self):
        return f"Mat({self.n})"

    def __pos__(self):
        return "pos"

    __hash__ = None


def matrices():
    a, b = Mat(2), Mat(3)
    c = a @ b
    a @= b
    return a, c, +a, a == b, a != b


def not_comparable():
    return Mat(1) < Mat(2)


def bad_operands():
    return 1 + "a"


def inplace_aliases():
    a = b = [1]
    a += [2]
    c = a
    c = c + [3]
    return a, b, c


def comparisons():
    x = 5
    return (
        x < 6,
        x <= 5,
        x == 5,
        x != 5,
        x > 4,
        x >= 6,
        1 < x < 10,
        1 < x > 7 < 9,
        x is None,
        x is not None,
        x in (1, 5),
        x not in [1],
    )


def chained():
    def f(n):
        print("f", n)
        return n

    return f(1) < f(2) < f(0) < f(5), f(1) < f(2) and f(0) or f(7), not f(0), f(3) if f(0) else f(4)


def boolean(a=0, b="x"):
    return (a or b), (a and b), (a or None or b), (b and a), not (a or b)


def none_jumps():
    out = []
    for x in (None, 1, None):
        if x is None:
            out.append("n")
        if x is not None:
            out.append("y")
        out.append("a" if x is None else "b")
        while x is not None:
            x = None
        y = 1
        while y is None:
            pass
    i = 0
    x = None
    while x is None:
        i += 1
        if i > 2:
            x = i
    while x is not None:
        i += 1
        if i > 5:
            x = None
    return out, i


def loops():
    out = []
    for i in range(10):
        if i == 2:
            continue
        if i == 6:
            break
        out.append(i)
    else:
        out.append("never")
    for i in range(2):
        pass
    else:
        out.append("else")
    n = 3
    while n:
        n -= 1
        if n == 1:
            continue
        out.append(n)
    else:
        out.append("w")
    while True:
        n += 1
        if n > 4:
            break
    do = 0
    while not do > 3:
        do += 1
    return out, n, do


def displays():
    a, b = [1, 2], {"k": 1}
    return (
        [*a, 3, *range(2)], (*a, 4), {*a, 5}, {**b, "z": 2, **{"k": 3}}, {1: 2, 3: 4}, {"a": a, "b": b}, {1, 2}, [], (), {}, {a[0], a[1]},
        {"p": a[0], "q": a[1], "r": 1}, [1, 2, 3, 4], {1, 2, 3, 4},
    )  # fmt: skip


def comprehensions():
    n = 3
    return (
        [i * n for i in range(4) if i % 2], {i: i * n for i in range(3)}, {i % 2 for i in range(5)}, list(i + j for i in range(2) for j in range(i + 1)),
        [[k * n for k in range(j)] for j in range(3)], [x for x, in [(1,), (2,)]], [y := 5, y + 1],
    )  # fmt: skip


def not_iterable():
    return [*5]


def set_not_iterable():
    return {*5}


def not_mapping():
    return {**5}


def unpacking():
    a, b = 1, 2
    (c, d), e = "xy", 3
    f, *g = range(4)
    *h, i = "abc"
    j, *k, l = [1, 2]
    [m, (n, *o)] = [0, "pq"]
    a, b = b, a
    return a, b, c, d, e, f, g, h, i, j, k, l, m, n, o


def unpack_few():
    a, b, c = [1, 2]


def unpack_many():
    a, b = {1: 1, 2: 2, 3: 3}


def unpack_few_star():
    a, b, *c = [1]


def unpack_int():
    a, b = 5


def unpack_broken():
    def g():
        yield 1
        raise KeyError("in the middle")

    a, b = g()


class Box:
    kind = "box"

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs
        self.items = {}

    def __getitem__(self, key):
        return self.items.get(key, key)

    def __setitem__(self, key, value):
        print("set", key, value)
        self.items[key] = value

    def __delitem__(self, key):
        del self.items[key]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return "attr " + name

    @property
    def size(self):
        return len(self.items)

    @size.setter
    def size(self, value):
        print("size", value)

    @property
    def fails(self):
        raise ValueError("in property")

    @property
    def missing(self):
        raise AttributeError("in property")

    @staticmethod
    def static(x):
        return x + 1

    @classmethod
    def make(cls, x):
        return cls(x)

    def __contains__(self, x):
        return x == 3

    def __len__(self):
        return 0

    def __call__(self, *args, **kwargs):
        return args, kwargs


def attributes():
    b = Box(1, k=2)
    b.x = 5
    b.x += 2
    b[1] = 2
    b[1] += 3
    b[1:2, ...] = 4
    del b[1]
    b.size = 9
    out = (
        b.x,
        b.y,
        b[7],
        b.size,
        b.args,
        b.kwargs,
        b.static(1),
        Box.make(3).args,
        3 in b,
        4 in b,
        4 not in b,
        bool(b),
        b(1, z=2),
        b.missing,
    )
    del b.x
    return out, b.x, b[1:2], b[::3], b[1:], Box.kind


def property_raises():
    return Box().fails


def no_attribute():
    return (5).nothing


def no_attribute_method():
    return (5).nothing()


def delete_no_attribute():
    b = Box()
    del b.zzz


def not_subscriptable():
    return GLOBAL[0]


def no_key():
    return {}["a"]


def slices():
    a = list(range(10))
    a[1:3] = "xyz"
    del a[-1:]
    i = 2
    a[i - 1 : i] = a[:1]
    return a[i:], a[:i], a[::2], a[i:6:2], a[-1], a[i - 1]


def formats():
    x, w = 3.14159, 10
    d = {"a": 1}
    return (
        f"{x:.2f}|{x!r:>{w}}|{x!s}|{'é'!a}|{d['a']}|{{}}|{x=}|{x:{w}.{2}}" + f"{w}"
        "tail" + f"{w:>5}{x}" + "%s-%d" % (x, 3) + "{}".format(w)
    )


def calls():
    def f(a, b=2, /, c=3, *args, d, e=5, **kw):
        return a, b, c, args, d, e, kw

    args, kw = (1, 2, 3, 4), {"d": 8, "z": 9}
    return (
        f(1, d=1),
        f(1, 2, 3, 4, 5, d=0, q=1),
        f(*args, **kw),
        f(*[1], 5, *args, d=2, **{"y": 1}),
        f(1, **kw, b=4),
        max(*args),
        dict(**kw, a=1),
    )


def arity(f, *args, **kwargs):
    try:
        return f(*args, **kwargs)
    except TypeError as e:
        print(e)


def arities():
    def f(a, b):
        pass

    def g(a, b=1, *, c, d):
        pass

    def h(a, /, b, *, k=1):
        pass

    def i():
        pass

    def j(a, b, c, d):
        pass

    class K:
        def m(self, x):
            pass

        def __init__(self, y):
            pass

    arity(f)
    arity(f, 1)
    arity(f, 1, 2, 3)
    arity(f, 1, 2, a=3)
    arity(f, 1, z=2)
    arity(f, **{"a": 1})
    arity(g, 1)
    arity(g, 1, 2, 3)
    arity(g, 1, 2, 3, c=4)
    arity(g)
    arity(g, 1, c=1, e=1)
    arity(g, 1, 2, 3, 4, d=1, c=2)
    arity(h, a=1, b=2)
    arity(h, 1, 2, 3)
    arity(h, 1, a=2, b=3)
    arity(i, 1)
    arity(i, x=1)
    arity(j)
    arity(j, 1)
    arity(j, 1, 2)
    arity(K)
    arity(K, 1, 2)
    arity(K(1).m)
    arity(K(1).m, 1, 2)
    arity(lambda: 0, 1)
    arity(lambda *, a: 0)
    arity(f, **{1: 2})


def keyword_twice():
    return Box(**{"a": 1}, **{"a": 2})


def keyword_twice_method():
    return Box().make(x=1, **{"x": 2})


def keyword_twice_builtin():
    return dict(a=1, **{"a": 2})


def keyword_not_string():
    return dict(a=1, **{1: 2})


def star_int():
    return print(*5)


def star_int_more():
    return print(1, *5)


def double_star_int():
    return print(**5)


def not_callable():
    return GLOBAL()


def not_callable_attribute():
    return GLOBAL.real()


def defaults():
    def f(a: int = GLOBAL, *b: "str", c: float = 2.5, **d) -> None:
        "doc"

    g = lambda x=1, *, y=2: (x, y)
    return (
        f.__defaults__,
        f.__kwdefaults__,
        f.__annotations__,
        f.__doc__,
        f.__name__,
        f.__qualname__,
        f.__module__,
        g(),
        g(y=3),
        g.__name__,
        g.__qualname__,
    )


def decorators():
    def twice(f):
        @functools.wraps(f)
        def inner(*args):
            return f(f(*args))

        return inner

    def add(n):
        return lambda f: lambda x: f(x) + n

    @twice
    @add(3)
    def g(x):
        return x * 2

    @functools.lru_cache
    def fib(n):
        print("fib", n)
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return g(1), fib(5), fib.cache_info()


def recursion(n=6):
    return 1 if n < 2 else n * recursion(n - 1)


def walrus():
    out = []
    it = iter([1, 2, 0, 3])
    while n := next(it):
        out.append(n)
    return out, [last := i for i in range(3)], last, (m := 3) + m


def assertion():
    assert GLOBAL == 10
    assert GLOBAL == 11, f"not {GLOBAL}"


def assertion_bare():
    assert not GLOBAL


def classes():
    class A:
        """doc of A"""

        x: int = 1
        y: str
        z = [i for i in range(x + 1)]

        def f(self):
            return __class__, self.x

        for i in range(3):
            pass
        else:
            j = i
        del i
        name = __qualname__

    class B(A):
        x = A.x + 1

        def f(self, /):
            return super().f()[1] + super(B, self).f()[1]

        def g(this):
            h = lambda: this
            return super().f(), h()

    class C(B, metaclass=type):
        def f(self):
            return super().f() + 1

        @classmethod
        def made(cls):
            return cls

        @property
        def p(self):
            return super().x

    return (
        A.__doc__,
        A.__annotations__,
        A.z,
        A().f()[1],
        B().f(),
        C().f(),
        B.__mro__ == (B, A, object),
        C.made() is C,
        C().p,
        A.j,
        A.name,
        A.__module__,
        hasattr(A, "i"),
        type(B().g()[1]) is B,
    )


def class_scopes():
    x = "outer"

    class A:
        y = x

        def f(self):
            return x

        z = f

    class B:
        x = "own"
        try:
            q
        except NameError as e:
            text = str(e)

    return A.y, A().z(), A().f(), B.x, B.text


def class_scope_cell():
    x = 1

    class A:
        print(x)

        def f(self):
            return x

    return A().f()


def class_cell_shadowed():
    x = 1

    class A:
        print(x)
        locals()["x"] = 2
        print(x)
        f = lambda: x

    return A.f()


def class_name_unbound():
    x = 1

    class A:
        x = x + 1


def class_delete_missing():
    class A:
        del nothing


def metaclasses():
    class Meta(type):
        @classmethod
        def __prepare__(cls, name, bases, **kw):
            print("prepare", name, kw)
            return OrderedDict(pre=1)

        def __new__(cls, name, bases, ns, **kw):
            print("new", name, list(ns), kw)
            return super().__new__(cls, name, bases, dict(ns))

        def __init__(self, name, bases, ns, **kw):
            super().__init__(name, bases, ns)

        def __call__(cls, *args):
            print("call", args)
            return super().__call__(*args)

    class A(metaclass=Meta, flag=True):
        def __init__(self, x):
            self.x = x

        def __init_subclass__(cls, **kw):
            print("subclass", cls.__name__, kw)

    class B(A):
        def __new__(cls, x):
            print("B.__new__")
            return super().__new__(cls)

        def get(self):
            return __class__

    class Item:
        def __mro_entries__(self, bases):
            return (A,)

    class C(Item()):
        pass

    return A(1).x, B(2).x, B(3).get() is B, C.__bases__ == (A,), type(C.__orig_bases__[0]) is Item


def init_returns():
    class A:
        def __init__(self):
            return 1

    A()


def super_without_arguments():
    def f():
        super()

    f()


def super_outside():
    def f(x):
        super().g()

    f(1)


def super_deleted():
    class A:
        def f(self):
            del self
            super().f()

    A().f()


def slots_and_dunders():
    class P:
        __slots__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

        def __add__(self, o):
            return P(self.x + o.x, self.y + o.y)

        def __radd__(self, o):
            return P(self.x + o, self.y)

        def __iadd__(self, o):
            self.x += o
            return self

        def __iter__(self):
            yield self.x
            yield self.y

        def __eq__(self, o):
            return tuple(self) == tuple(o)

        def __hash__(self):
            return hash((self.x, self.y))

        def __bool__(self):
            print("bool")
            return self.x > 0

        def __enter__(self):
            print("enter")
            return self

        def __exit__(self, *e):
            print("exit", e[0])
            return e[0] is KeyError

        def __format__(self, spec):
            return f"<{spec}>"

        def __neg__(self):
            return P(-self.x, -self.y)

        def __getitem__(self, i):
            return (self.x, self.y)[i]

    p = P(1, 2)
    q = p + P(3, 4)
    r = 5 + q
    r += 1
    x, y = r
    with p as z:
        raise KeyError("swallowed")
    return (
        (x, y),
        list(q),
        p == P(1, 2),
        {p: 1}[P(1, 2)],
        not p,
        p and 1,
        f"{p:abc}",
        list(-p),
        z is p,
        p[0],
        [*p],
        dict([p]),
    )


def dataclass_and_enum():
    @dataclasses.dataclass(order=True)
    class D:
        a: int
        b: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.c = self.a + 1

    class E(enum.Enum):
        ONE = 1
        TWO = enum.auto()

        def __str__(self):
            return f"E.{self.name.lower()}"

    N = namedtuple("N", "p q")
    d = D(1, [2])
    return (
        d,
        d < D(2),
        dataclasses.replace(d, a=5),
        dataclasses.asdict(d),
        str(E.TWO),
        E(1),
        E["TWO"].value,
        list(E),
        N(1, 2)._replace(q=3),
        N.__module__,
        [*N(1, 2)],
    )


# ***** exceptions *****


def try_all():
    out = []
    for n in range(5):
        try:
            if n == 0:
                raise ValueError("v")
            if n == 1:
                raise KeyError("k")
            if n == 2:
                1 / 0
            if n == 3:
                continue
            out.append("body")
        except ValueError as e:
            out.append(repr(e))
        except (KeyError, ZeroDivisionError) as e:
            out.append((type(e).__name__, e.args))
        else:
            out.append("else")
        finally:
            out.append("finally")
    return out


def finally_returns():
    def f(n):
        try:
            if n:
                raise KeyError
            return "try"
        finally:
            print("f")
            if n == 2:
                return "finally"

    out = [f(0), f(2)]
    for i in range(3):
        try:
            if i == 1:
                break
        finally:
            out.append(i)
    try:
        f(1)
    except KeyError:
        out.append("K")
    return out


def contexts():
    try:
        try:
            try:
                1 / 0
            except ZeroDivisionError:
                raise KeyError("a")
        except KeyError as e:
            raise ValueError("b") from e
    except ValueError as e:
        try:
            raise IndexError("c") from None
        except IndexError as f:
            return [
                repr(x)
                for x in (
                    e,
                    e.__cause__,
                    e.__context__,
                    e.__context__.__context__,
                    f.__context__,
                    f.__cause__,
                    f.__suppress_context__,
                )
            ]


def context_of_native():
    try:
        {}["x"]
    except KeyError:
        int("q")


def context_in_finally():
    try:
        raise ValueError(1)
    finally:
        raise KeyError(2)


def reraise():
    try:
        try:
            raise ValueError("x")
        except ValueError:
            print(sys.exc_info()[0])
            raise
    except ValueError as e:
        print("again", e)
        raise


def reraise_nothing():
    raise


def reraise_outer():
    def f():
        raise

    try:
        raise KeyError("outer")
    except KeyError:
        f()


def exc_info():
    def f():
        return sys.exc_info()[1]

    out = [f()]
    try:
        raise KeyError(1)
    except KeyError:
        out.append(repr(f()))
        try:
            raise ValueError(2)
        except ValueError:
            out.append(repr(f()))
        out.append(repr(f()))
    out.append(f())
    return out


def exception_name_unbound():
    e = 1
    try:
        raise ValueError
    except ValueError as e:
        pass
    return e


def catch_not_class():
    try:
        raise ValueError("x")
    except 5:
        pass


def catch_other():
    try:
        raise ValueError("x")
    except (KeyError, IndexError):
        pass


def raise_class():
    raise ValueError


def raise_int():
    raise 5


def raise_from_class():
    raise ValueError("a") from KeyError


def raise_from_int():
    raise ValueError("a") from 5


def raise_own():
    class Mine(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    raise Mine(7)


def raise_not_exception():
    class Odd(Exception):
        def __new__(cls):
            return 5

    raise Odd


def deep():
    def a(n):
        return b(n - 1) if n else {}[n]

    def b(n):
        x = [n for _ in range(2)]
        return a(n)

    return a(3)


def in_comprehension():
    return [1 // (2 - i) for i in range(4)]


def in_lambda_of_native():
    return sorted([3, 1, 2], key=lambda x: x // (x - 1))


def notes():
    try:
        raise ValueError("x")
    except ValueError as e:
        e.add_note("more")
        raise


def groups():
    out = []
    for errors in (
        [ValueError(1), TypeError(2)],
        [KeyError(3)],
        [ValueError(1), ExceptionGroup("in", [TypeError(5), OSError(6)])],
    ):
        try:
            try:
                raise ExceptionGroup("g", errors)
            except* ValueError as e:
                out.append(("V", repr(e), [repr(x) for x in e.exceptions]))
            except* (TypeError, OSError) as e:
                out.append(("T", repr(e)))
            else:
                out.append("else")
            finally:
                out.append("finally")
        except BaseException as e:
            out.append(("left", repr(e)))
    try:
        raise ValueError("naked")
    except* ValueError as e:
        out.append(repr(e))
    try:
        pass
    except* ValueError:
        pass
    else:
        out.append("none")
    return out


def group_raises():
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), OSError(3)])
    except* ValueError as e:
        raise KeyError("new")
    except* TypeError:
        raise


def group_left():
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), OSError(3)])
    except* ValueError as e:
        pass


def group_naked_left():
    try:
        raise OSError(1)
    except* ValueError as e:
        pass


def group_of_group():
    try:
        raise ValueError(1)
    except* ExceptionGroup:
        pass


def group_not_class():
    try:
        raise ValueError(1)
    except* 3:
        pass


# ***** with *****


class Manager:
    def __init__(self, name, swallow=False, fail=None):
        self.name, self.swallow, self.fail = name, swallow, fail

    def __enter__(self):
        print("enter", self.name)
        if self.fail == "enter":
            raise OSError("enter")
        return self.name

    def __exit__(self, kind, error, trace):
        print("exit", self.name, kind, error, trace is not None, sys.exc_info()[1])
        if self.fail == "exit":
            raise OSError("exit")
        return self.swallow


def withs():
    with Manager("a") as a, Manager("b") as b:
        print(a, b)
    with Manager("c", swallow=True):
        raise ValueError("gone")
    for i in range(3):
        with Manager(i):
            if i == 0:
                continue
            if i == 1:
                break
    with Manager("r"):
        return "returned"


def with_raises():
    with Manager("a"), Manager("b"):
        1 / 0


def with_enter_fails():
    with Manager("a"), Manager("b", fail="enter"):
        pass


def with_exit_fails():
    with Manager("a", fail="exit"):
        raise KeyError("first")


def with_no_manager():
    with 5:
        pass


def with_half_manager():
    class Half:
        def __enter__(self):
            pass

    with Half():
        pass


def contextmanagers():
    @contextlib.contextmanager
    def cm(x):
        print("before", x)
        try:
            yield x + 1
        except KeyError as e:
            print("caught", e)
        finally:
            print("after", x)

    with cm(1) as a:
        print(a)
    with cm(2):
        raise KeyError("k")
    with contextlib.ExitStack() as stack:
        stack.enter_context(cm(3))
        stack.callback(print, "callback")
    with contextlib.suppress(ValueError):
        raise ValueError
    with cm(4):
        raise ValueError("through")


# ***** generators *****


def gens():
    def count(n):
        for i in range(n):
            got = yield i
            if got:
                print("got", got)
        return "end"

    def deleg(n):
        r = yield from count(n)
        print("r", r)
        yield from [7, 8]
        return r

    g = deleg(3)
    out = [next(g), g.send("x"), list(g), list(count(0))]
    try:
        next(g)
    except StopIteration as e:
        out.append(e.value)
    g = count(1)
    next(g)
    try:
        g.send(None)
    except StopIteration as e:
        out.append(e.value)
    return (
        out,
        next(g, "default"),
        sum(count(5)),
        dict(zip(count(3), "abc")),
        [*map(str, count(2))],
        max(deleg(2)),
        2 in count(3),
        sorted(count(3), key=lambda x: -x),
        set(count(3)),
        tuple(count(2)),
        "".join(str(i) for i in count(3)),
        any(x > 1 for x in count(9)),
        list(enumerate(count(2))),
    )


def gen_throw():
    def g():
        while True:
            try:
                x = yield 1
                print("x", x)
            except KeyError as e:
                print("caught", e)
                yield 2
            finally:
                print("finally")

    def outer():
        yield from g()

    for f in (g, outer):
        it = f()
        print(next(it), it.throw(KeyError("k")), next(it))
        try:
            it.throw(ValueError, "v")
        except ValueError as e:
            print(repr(e))
        it = f()
        next(it)
        print(it.close(), it.close())
        print(list(it))
    it = g()
    try:
        it.throw(ValueError("early"))
    except ValueError as e:
        print(e)
    it.close()


def gen_stop_iteration():
    def g():
        yield 1
        raise StopIteration(5)

    list(g())


def gen_stop_in_next():
    def g():
        yield next(iter([]))

    for _ in g():
        pass


def gen_ignores_exit():
    def g():
        while True:
            try:
                yield 1
            except GeneratorExit:
                pass

    it = g()
    next(it)
    try:
        it.close()
    finally:

        def stop():
            raise KeyError("x")

        try:
            it.throw(KeyError("end"))
        except KeyError:
            pass


def gen_running():
    def g():
        yield next(me)

    me = g()
    next(me)


def gen_sent_early():
    def g():
        yield 1

    g().send(3)


def gen_raises():
    def g(n):
        yield 1
        yield 1 // n

    def h():
        yield from g(0)

    return [x for x in h()]


def gen_exception_state():
    def g():
        try:
            raise ValueError("in g")
        except ValueError:
            yield sys.exc_info()[1]
            yield sys.exc_info()[1]

    out = []
    it = g()
    out.append(repr(next(it)))
    out.append(sys.exc_info()[1])
    try:
        raise KeyError("in caller")
    except KeyError:
        out.append(repr(next(it)))
        out.append(repr(sys.exc_info()[1]))

    def h():
        yield repr(sys.exc_info()[1])

    it = h()
    try:
        raise IndexError("caller")
    except IndexError:
        out.append(next(it))
    return out


def gen_throw_inner_without():
    class It:
        def __iter__(self):
            return self

        def __next__(self):
            return 1

    def g():
        try:
            yield from It()
        except KeyError as e:
            yield repr(e)

    it = g()
    return next(it), it.throw(KeyError("k")), list(it)


def gen_throw_returns_from_inner():
    def inner():
        try:
            yield 1
        except KeyError:
            return "inner done"

    def g():
        r = yield from inner()
        yield r

    it = g()
    return next(it), it.throw(KeyError), list(it)


def gen_expressions():
    n = 2
    g = (i * n for i in range(4) if i)
    n = 3
    return next(g), list(g), sum(x for x in (y + 1 for y in range(3)))


def gen_finally_on_delete():
    def g():
        try:
            yield 1
        finally:
            print("cleaned")

    it = g()
    next(it)
    del it
    print("after")


def gen_with():
    def g():
        with Manager("in gen"):
            yield 1
            yield 2

    for x in g():
        print(x)
        if x == 1:
            break
    print("after")
    return list(g())


def yield_from_int():
    def g():
        yield from 5

    list(g())


def iterators():
    class Up:
        def __init__(self, n):
            self.i, self.n = 0, n

        def __iter__(self):
            return self

        def __next__(self):
            self.i += 1
            if self.i > self.n:
                raise StopIteration
            return self.i

    class Old:
        def __getitem__(self, i):
            if i > 2:
                raise IndexError
            return i * i

    class Bad:
        def __iter__(self):
            return 5

    out = [[x for x in Up(3)], [x for x in Old()], list(Up(2)), [a for a in zip(Up(3), Old())]]
    for x in Up(2):
        out.append(x)
    try:
        for x in Bad():
            pass
    except TypeError as e:
        out.append(str(e))
    try:
        for x in 5:
            pass
    except TypeError as e:
        out.append(str(e))
    return out, list(itertools.islice(Up(9), 2))


def iterator_raises():
    class Up:
        def __iter__(self):
            return self

        def __next__(self):
            raise KeyError("next")

    for x in Up():
        pass


# ***** coroutines *****


def drive(coroutine):
    out = []
    send = None
    try:
        while True:
            out.append(coroutine.send(send))
            send = len(out)
    except StopIteration as e:
        return out, e.value


class Wait:
    def __init__(self, x):
        self.x = x

    def __await__(self):
        r = yield self.x
        return r


class AsyncManager:
    async def __aenter__(self):
        print("aenter")
        return await Wait("in enter")

    async def __aexit__(self, kind, error, trace):
        print("aexit", kind)
        await Wait("in exit")
        return kind is KeyError


class AsyncIter:
    def __init__(self, n):
        self.n = n

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.n:
            raise StopAsyncIteration
        self.n -= 1
        await Wait(("next", self.n))
        return self.n


def coroutines():
    async def leaf(x):
        return x + await Wait(x)

    async def main():
        a = await leaf(10)
        b = [await leaf(i) for i in range(2)]
        async with AsyncManager() as m:
            print("m", m)
        async with AsyncManager():
            raise KeyError
        out = []
        async for i in AsyncIter(2):
            out.append(i)
        else:
            out.append("else")
        c = [i async for i in AsyncIter(2) if i]
        return a, b, out, c

    return drive(main())


def coroutine_raises():
    async def f():
        await Wait(1)
        raise ValueError("in coroutine")

    async def g():
        try:
            await f()
        finally:
            print("g")

    return drive(g())


def await_int():
    async def f():
        await 5

    return drive(f())


def async_with_int():
    async def f():
        async with 5:
            pass

    return drive(f())


def async_for_int():
    async def f():
        async for x in 5:
            pass

    return drive(f())


def coroutine_reused():
    async def f():
        return 1

    c = f()
    drive(c)
    drive(c)


def async_generators():
    async def g(n):
        for i in range(n):
            try:
                got = yield i
                if got:
                    print("got", got)
                await Wait(("waits", i))
            finally:
                print("step", i)

    async def main():
        out = [x async for x in g(2)]
        it = g(3)
        out.append(await it.__anext__())
        out.append(await it.asend("hello"))
        try:
            await it.athrow(ValueError("thrown"))
        except ValueError as e:
            out.append(repr(e))
        it = g(2)
        await it.__anext__()
        await it.aclose()
        try:
            await it.__anext__()
        except StopAsyncIteration:
            out.append("stopped")
        return out, {x async for x in g(2)}, {x: y async for x in g(2) for y in range(x + 1)}

    return drive(main())


def generator_coroutine():
    import types

    @types.coroutine
    def old():
        r = yield "old"
        return r

    async def f():
        return await old()

    return drive(f())


# ***** match *****


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


def matching():
    def f(v):
        match v:
            case 0 | 1:
                return "small"
            case int(n) if n > 100:
                return "big", n
            case int() | float():
                return "number"
            case "a" | "b":
                return "letter"
            case str() as s:
                return "string", s
            case []:
                return "empty"
            case [x]:
                return "one", x
            case [1, *rest]:
                return "from one", rest
            case (x, y) if x == y:
                return "same"
            case [_, _, *_, last]:
                return "last", last
            case {"k": k, "z": {"in": z}}:
                return "deep", k, z
            case {"k": 1, **rest}:
                return "k", rest
            case {}:
                return "mapping"
            case Point(0, 0):
                return "origin"
            case Point(x=0, y=y):
                return "on y", y
            case Point(x, y=Point() as p):
                return "nested", x, p.x
            case Point():
                return "point"
            case None:
                return "none"
            case enum.Enum.__class__:
                return "?"
            case _:
                return "other"

    values = [
        0,
        1,
        500,
        5,
        2.5,
        "a",
        "xyz",
        [],
        [3],
        [1, 2, 3],
        (4, 4),
        [7, 8, 9],
        {"k": 2, "z": {"in": 3}},
        {"k": 1, "q": 5},
        {"other": 1},
        Point(0, 0),
        Point(0, 3),
        Point(1, Point(2, 3)),
        Point(1, 2),
        None,
        b"bytes",
        {1},
        range(3),
    ]
    return [f(v) for v in values]


def match_too_many():
    match Point(1, 2):
        case Point(a, b, c):
            pass


def match_twice():
    match Point(1, 2):
        case Point(1, x=1):
            pass


def match_no_args():
    match Box():
        case Box(a):
            pass


def match_not_class():
    match 5:
        case GLOBAL():
            pass


# ***** frames, imports, others *****


def local_names(a=1, *b, **c):
    d = 2
    f = lambda: d
    del a
    before = dict(locals())
    e = 3
    return (
        sorted(before),
        sorted(locals()),
        sorted(vars()),
        dir(),
        locals() is locals(),
        globals()["GLOBAL"],
        locals()["d"],
    )


def evaluates():
    x = 4
    exec("y = x + 1; print(y)")
    return (
        eval("x * 2"),
        eval("x + z", {"x": 1, "z": 2}),
        eval("x", globals(), {"x": 9}),
        eval(compile("x + 1", "<c>", "eval")),
    )


def imports():
    import os.path
    import json.decoder as jd
    from math import pi, floor as fl
    from . import bytecode_corpus_missing


def imports_fine():
    import os.path as p
    import xml.dom
    from math import pi, floor as fl

    return p.join("a", "b"), fl(pi), xml.dom.__name__


def import_missing_name():
    from math import nothing_like_it


def import_missing_module():
    import no_such_module_at_all


def import_missing_in_file():
    from contextlib import nothing_like_it


def warns():
    def inner():
        warnings.warn("careful", DeprecationWarning, stacklevel=2)

    warnings.warn("plain")
    inner()
    warnings.warn(UserWarning("instance"), stacklevel=1)
    return 1


def native_callbacks():
    out = []
    sorted([3, 1, 2], key=lambda x: out.append(x) or x)
    r = functools.reduce(lambda a, b: a * 10 + b, [1, 2, 3])
    p = functools.partial(lambda a, b, c=0: (a, b, c), 1, c=5)
    return (
        out,
        r,
        p(2),
        list(map(lambda x, y: x + y, [1, 2], [3, 4])),
        list(filter(None, [0, 1])),
        list(filter(lambda x: x > 1, [1, 2, 3])),
    )


def long_jumps():
    out = 0
    for i in range(3):
        if i == 1:
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
            out += 1
        else:
            out += 100
    return out


def many_constants():
    return [
        0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, GLOBAL, 3.1,
    ]  # fmt: skip


def backward_conditional_jumps():
    out, i, j = [], 0, 5
    while i < 3:
        i += 1
    while not i > 6:
        i += 1
    x = [None, None, 3]
    k = 0
    while x[k] is None:
        k += 1
    while x[k] is not None and k:
        k -= 1
    return i, k


def swapped():
    a, b, c = 1, 2, 3
    a, b, c = c, a, b
    x = [0, 1]
    i = 0
    i, x[i] = 1, 9
    return a, b, c, i, x


def deleting():
    a = [1, 2, 3]
    d = {"x": 1}
    del a[0], d["x"]
    b = Box()
    b.q = 1
    del b.q, b
    return a, d


def type_flags():
    import collections.abc

    class S(collections.abc.Sequence):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return (5, 6)[i]

    match S():
        case [a, b]:
            return a, b
