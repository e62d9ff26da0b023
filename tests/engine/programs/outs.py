"""`out=`, promotion of dtypes, and errors of arguments."""

from __future__ import annotations

from typing import Any

from tests.engine.recording import Topic, attempt, warned

topic = Topic()

ALL = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()


@topic
def out(t: Any) -> Any:
    x, o = t.arange(3.0), t.zeros(3)
    r = t.add(x, 1, out=o)
    return (
        r is o,
        o,
        o._version,
        t.exp(x, out=t.empty(3)),
        t.sum(x, 0, out=t.empty(())),
        t.max(x.view(1, 3), 1, out=(t.empty(1), t.empty(1, dtype=t.long))),
        t.cat([x, x], out=t.empty(6)),
        t.matmul(x, x, out=t.empty(())),
        (t.stack([x, x], out=t.empty(2, 3))),
        t.mm(x.view(3, 1), x.view(1, 3), out=t.empty(3, 3)),
        t.sort(x, out=(t.empty(3), t.empty(3, dtype=t.long))),
    )


@topic
def out_is_resized(t: Any) -> Any:
    x = t.arange(3.0)
    empty, wrong = t.empty(0), t.empty(5)
    return (
        warned(lambda: t.add(x, 1, out=empty)),
        warned(lambda: t.add(x, 1, out=wrong)),
        empty.shape,
        wrong.shape,
        warned(lambda: t.sum(x, 0, out=t.empty(2)).shape),
    )


@topic
def out_keeps_its_layout(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    o = t.zeros(3, 2).t()
    big = t.zeros(4, 3)
    t.mul(x, 2, out=o)
    t.mul(x, 3, out=big[1:3])
    return o, big


@topic
def out_dtypes(t: Any) -> Any:
    x, i = t.arange(3.0), t.arange(3)
    return [
        attempt(lambda: t.add(x, 1, out=t.empty(3, dtype=t.int64))),
        attempt(lambda: t.add(i, 1, out=t.empty(3))),
        attempt(lambda: t.add(i, 1.5, out=t.empty(3, dtype=t.int32))),
        attempt(lambda: t.exp(i, out=t.empty(3, dtype=t.float64))),
        attempt(lambda: t.add(x, x, out=t.empty(3, dtype=t.float16))),
        attempt(lambda: t.gt(x, 1, out=t.empty(3, dtype=t.uint8))),
        attempt(lambda: t.add(i, 1j, out=t.empty(3))),
        attempt(lambda: t.sum(x, 0, out=t.empty((), dtype=t.float64))),
    ]


@topic
def out_and_gradients(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    with t.no_grad():
        a = t.add(x, 1, out=t.empty(2))
    return attempt(lambda: t.add(x, 1, out=t.empty(2))), attempt(lambda: t.add(t.ones(2), 1, out=x)), a


@topic
def out_overlaps(t: Any) -> Any:
    x = t.arange(6.0)
    y = t.arange(6.0)
    return (
        attempt(lambda: t.add(x[:5], x[1:], out=x[:5])),
        attempt(lambda: t.add(y, 1, out=y)),
        attempt(lambda: t.add(y[:3], y[3:], out=y[1:4])),
        attempt(lambda: t.exp(t.ones(4), out=t.ones(1).expand(4))),
    )


@topic
def promotion_of_tensors(t: Any) -> Any:
    ones = {d: t.ones(2, dtype=getattr(t, d)) for d in ALL}
    zero = {d: t.ones((), dtype=getattr(t, d)) for d in ALL}
    DTYPES = [d for d in ALL if d != "float16"]  # with complex it gives complex32
    return (
        [[str((ones[a] + ones[b]).dtype) for b in DTYPES] for a in DTYPES],
        [[str((ones[a] + zero[b]).dtype) for b in DTYPES] for a in DTYPES],
        ([[str(t.promote_types(getattr(t, a), getattr(t, b))) for b in DTYPES] for a in DTYPES]),
        [[str(t.result_type(ones[a], zero[b])) for b in DTYPES] for a in DTYPES],
        ([[t.can_cast(getattr(t, a), getattr(t, b)) for b in DTYPES] for a in DTYPES]),
    )


@topic
def promotion_of_numbers(t: Any) -> Any:
    found = {}
    for d in ALL:
        x = t.ones(2, dtype=getattr(t, d))
        found[d] = [
            str(f(x).dtype)
            for f in (
                lambda x: x + 1,
                lambda x: x + 1.5,
                lambda x: x + (1j if x.dtype is not t.float16 else 1),
                lambda x: x * True,
                lambda x: 2 * x,
                lambda x: x / 1,
                lambda x: x**1,
                lambda x: x.sum(),
                lambda x: x.cumsum(0),
                lambda x: x == 1,
            )
        ]
        found[d] += [
            attempt(lambda x=x: str(x.exp().dtype)),
            attempt(lambda x=x: str(x.mean().dtype)),
            attempt(lambda x=x: str((-x).dtype)),
            attempt(lambda x=x: str((x - x).dtype)),
            attempt(lambda x=x: str(x.prod().dtype)),
            attempt(lambda x=x: str((x & 1).dtype)),
            attempt(lambda x=x: str((~x).dtype)),
            attempt(lambda x=x: str((x > 0).dtype)),
            attempt(lambda x=x: str(x.abs().dtype)),
            attempt(lambda x=x: str((x % x).dtype)),
            attempt(lambda x=x: str(x.sqrt().dtype)),
            attempt(lambda x=x: str(x.softmax(0).dtype)),
            attempt(lambda x=x: str(x.max().dtype)),
            attempt(lambda x=x: str(x.clamp(0, 1).dtype)),
            attempt(lambda x=x: str(x.clamp(0.5).dtype)),
            attempt(lambda x=x: str(x.add_(1).dtype)),
            attempt(lambda x=x: str(x.add_(1.5).dtype)),
            attempt(lambda x=x: str(x.floor().dtype)),
            attempt(lambda x=x: str(x.round().dtype)),
            attempt(lambda x=x: str((x @ x).dtype)),
            attempt(lambda x=x: str(t.where(x > 0 if not x.is_complex() else x == 0, x, 1.5).dtype)),
        ]
    return found


@topic
def zero_dim_rules(t: Any) -> Any:
    h, d, i, f0, d0, i0, b0 = (
        t.ones(2, dtype=t.half),
        t.ones(2, dtype=t.double),
        t.ones(2, dtype=t.int32),
        t.tensor(1.0),
        t.tensor(1.0, dtype=t.double),
        t.tensor(1),
        t.tensor(True),
    )
    return [
        str(v.dtype)
        for v in (
            h + f0,
            h + d0,
            i + f0,
            i + d0,
            i + i0,
            h + i0,
            f0 + d0,
            i0 + f0,
            b0 + 1,
            b0 + 1.0,
            i0 + 1.0,
            d0 + 1,
            f0 * h,
            t.tensor(1j) * d,
            t.tensor(2, dtype=t.uint8) + t.tensor(3, dtype=t.int8),
            i + b0,
            b0 * b0,
        )
    ]


@topic
def casts(t: Any) -> Any:
    x = t.tensor([1.7, -2.3, 0.0])
    return [
        x.to(t.int64),
        x.int(),
        x.bool(),
        x.half(),
        x.bfloat16(),
        x.double(),
        x.to(t.complex64),
        t.tensor([300, -1]).to(t.uint8),
        t.tensor([1e10]).to(t.int32) if False else 0,
        t.tensor([3 + 4j]).to(t.float32),
        x.type(),
        x.type(t.int32),
        x.type("torch.DoubleTensor"),
        x.to(x) is x,
        x.to(t.float32) is x,
        x.to(t.float32, copy=True) is x,
        x.to("cpu") is x,
        x.to(t.zeros(1, dtype=t.int8)),
        x.type_as(t.ones(1, dtype=t.int16)),
        x.float() is x,
        t.tensor([True, False]).float(),
        t.tensor([70000.0]).half(),
        t.tensor([1e-8]).half(),
        t.tensor([1.0039]).bfloat16(),
        t.tensor([float("nan")]).bool(),
        attempt(lambda: x.to("nonsense")),
        attempt(lambda: x.to(5)),
        t.tensor([2.5, 3.5]).round(),
        x.to(dtype=t.float64, copy=True).dtype,
    ]


@topic
def shape_errors(t: Any) -> Any:
    a, b = t.ones(2, 3), t.ones(4)
    return [
        attempt(lambda: a + b),
        attempt(lambda: a @ b),
        attempt(lambda: a.mm(a)),
        attempt(lambda: t.cat([a, b])),
        attempt(lambda: t.stack([a, b])),
        attempt(lambda: a.view(5)),
        attempt(lambda: a.sum(2)),
        attempt(lambda: a.softmax(5)),
        attempt(lambda: a.add_(b)),
        attempt(lambda: b.dot(t.ones(3))),
        attempt(lambda: a.bmm(a)),
        attempt(lambda: t.cat([])),
        attempt(lambda: a.repeat(2)),
        attempt(lambda: a.gather(0, b.long())),
        attempt(lambda: t.where(a > 0, a, b)),
        attempt(lambda: t.broadcast_tensors(a, b)),
        attempt(lambda: t.einsum("ij,jk", a, a)),
        attempt(lambda: a.expand(2)),
        attempt(lambda: a.max(3)),
        attempt(lambda: t.zeros(0).max()),
        attempt(lambda: t.zeros(0, 2).argmax(0)),
        attempt(lambda: t.broadcast_shapes((2, 3), (4,))),
        attempt(lambda: t.zeros(2, 0).amax(1)),
        attempt(lambda: b.mv(b)),
        attempt(lambda: a.t().t().T.t().mm(b)),
    ]


@topic
def argument_errors(t: Any) -> Any:
    a = t.ones(2)
    return [
        attempt(lambda: t.add(a)),
        attempt(lambda: t.add(a, a, a)),
        attempt(lambda: t.add(a, "x")),
        attempt(lambda: t.add(a, None)),
        attempt(lambda: t.exp(3.0)),
        attempt(lambda: t.exp()),
        attempt(lambda: a.sum(nothing=1)),
        attempt(lambda: a.exp(1)),
        attempt(lambda: t.sum(a, dim="x")),
        attempt(lambda: t.cat(a)),
        attempt(lambda: t.cat([a, 1])),
        attempt(lambda: t.softmax(a)),
        attempt(lambda: t.zeros("x")),
        attempt(lambda: t.ones(2, dtype="float32")),
        attempt(lambda: a + "x"),
        attempt(lambda: a + None),
        attempt(lambda: a + [1, 2]),
        attempt(lambda: "x" + a),
        attempt(lambda: a < "x"),
        a == "x",
        a != None,
        attempt(lambda: a @ 2),
        attempt(lambda: t.matmul(a, 2)),
        attempt(lambda: t.add(a, a, alpha=1j)),
        attempt(lambda: t.add(t.tensor([1]), t.tensor([1]), alpha=1.5)),
        attempt(lambda: t.tensor([True]) - t.tensor([True])),
        attempt(lambda: -t.tensor([True])),
        attempt(lambda: ~a),
        attempt(lambda: a & a),
        attempt(lambda: a << 1 if False else t.bitwise_and(a, a)),
        attempt(lambda: t.tensor([1j]) > 0),
        attempt(lambda: t.tensor([1, 2]).mean()),
        attempt(lambda: t.tensor([1j]).max()),
        attempt(lambda: t.floor_divide(t.tensor([1]), 0)),
        attempt(lambda: t.tensor([1]) % 0),
        attempt(lambda: t.tensor([2]) ** -1),
    ]


@topic
def operators_of_python(t: Any) -> Any:
    a, b, i = t.tensor([1.0, -2.5]), t.tensor([2.0, 2.0]), t.tensor([5, -7])
    return [
        a + b,
        a - b,
        a * b,
        a / b,
        a // b,
        a % b,
        a**b,
        -a,
        +a,
        abs(a),
        a < b,
        a <= b,
        a > b,
        a >= b,
        a == b,
        a != b,
        i // 2,
        i % 3,
        i / 2,
        i & 3,
        i | 8,
        i ^ 1,
        ~i,
        i << 1,
        i >> 1,
        2 - a,
        2 / b,
        2 // b,
        7 % b,
        2**b,
        3 & i,
        3 | i,
        3 ^ i,
        2 << t.tensor([1, 2]),
        16 >> t.tensor([1, 2]),
        divmod(i, 2) if hasattr(t.Tensor, "__divmod__") else 0,
        t.tensor(3) == 3,
        round(a) if hasattr(t.Tensor, "__round__") else 0,
        5 == t.tensor(5),
        a @ b,
        True & t.tensor([True]),
        1 + i,
        1.5 * i,
        i - 1.0,
    ]


@topic
def printing(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    s = t.arange(4.0).reshape(2, 2)
    return [
        repr(v)
        for v in (
            x,
            x * 2,
            (x * 2).sum(),
            s.t(),
            s[0, 0],
            t.tensor(True),
            t.tensor(5),
            t.zeros(0),
            t.zeros(2, 0),
            t.tensor([1e10, 1.0]),
            t.tensor([float("nan"), float("inf")]),
            s.double(),
            s.half(),
            s.bool(),
            s.long(),
            t.tensor([1 + 2j]),
            s.t().contiguous(),
            t.arange(2000.0),
            t.tensor([0.1, 100000.0]),
            t.empty(2, device="meta"),
            x.view(2, 1),
            x.max(0)[0],
            t.tensor([1.5], dtype=t.bfloat16),
            s.to(t.uint8),
        )
    ]
