"""Storages and memory shared with others: NumPy, DLPack, copies, `.data`, `set_`, `resize_`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
from tests.engine.recording import Topic, attempt

topic = Topic()


@topic
def numpy_both_ways(t: Any) -> Any:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = t.from_numpy(a)
    x[0, 1] = 50
    a[1, 2] = 70
    y = x.numpy()
    y[0, 0] = -1
    return (
        x,
        a,
        x.t().numpy(),
        x.numpy().ctypes.data == x.data_ptr() == a.ctypes.data,
        t.as_tensor(a).data_ptr() == x.data_ptr(),
        (t.tensor(a).data_ptr() == x.data_ptr()),
        t.from_numpy(a.T).stride(),
        t.from_numpy(a[:, ::2]).stride(),
    )


@topic
def numpy_dtypes(t: Any) -> Any:
    names = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
    found = {
        n: [t.from_numpy(np.ones(2, dtype=n)), t.from_numpy(np.ones(2, dtype=n)).numpy().dtype.name] for n in names
    }
    for bad in ("U3", "O", "M8[s]", ">f4"):
        found[bad] = attempt(lambda bad=bad: t.from_numpy(np.zeros(2, dtype=bad)))
    return found


@topic
def from_numpy_errors(t: Any) -> Any:
    a = np.arange(6.0)
    odd = (
        np.zeros(9, dtype=np.uint8)[1:9].view(np.float32)
        if False
        else np.zeros((2,), dtype=[("a", "u1"), ("b", "<f4")])["b"]
    )
    return (
        attempt(lambda: t.from_numpy(a[::-1])),
        attempt(lambda: t.from_numpy([1.0])),
        attempt(lambda: t.from_numpy(odd)),
        attempt(lambda: t.from_numpy(np.float64(3.0))),
        t.from_numpy(np.array(3.0)),
        t.from_numpy(np.zeros((0, 3))),
        t.as_tensor(np.float32(2.5)),
        t.tensor(np.int16(3)),
    )


@topic
def numpy_errors(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    return (
        attempt(lambda: x.numpy()),
        x.numpy(force=True),
        x.detach().numpy(),
        attempt(lambda: t.ones(2, dtype=t.bfloat16).numpy()),
        attempt(lambda: t.ones(2, device="meta").numpy()),
        np.asarray(t.ones(2)),
        attempt(lambda: np.asarray(x)),
        np.add(t.ones(2).numpy(), 1),
        t.ones(()).numpy(),
    )


@topic
def numpy_functions_take_tensors(t: Any) -> Any:
    x = t.tensor([1.0, 4.0])
    return (
        np.array(x),
        np.array(x, dtype=np.float64),
        np.stack([x, x]),
        t.tensor([np.float32(1), np.float32(2)]),
        t.tensor(np.arange(3)),
        (t.tensor([np.ones(2), np.zeros(2)])),
        np.float32(2) * x,
        x * np.float64(2),
        x + np.arange(2) if False else 0,
    )


@topic
def dlpack(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    a = np.from_dlpack(x)
    y = t.from_dlpack(np.arange(4, dtype=np.int32))
    z = t.from_dlpack(x)
    c = t.utils.dlpack.from_dlpack(t.utils.dlpack.to_dlpack(x.t()))
    c[0, 1] = 42
    return (
        a,
        y,
        z.data_ptr() == x.data_ptr(),
        c,
        x,
        a.ctypes.data == x.data_ptr(),
        attempt(lambda: np.from_dlpack(t.ones(2, requires_grad=True))),
        (tuple(int(v) for v in x.__dlpack_device__())),
    )


@topic
def storages(t: Any) -> Any:
    x = t.arange(6, dtype=t.int16)
    s = x.untyped_storage()
    y = x[2:]
    typed = x.storage()
    return [
        s.nbytes(),
        len(s),
        s.size(),
        s.data_ptr() == x.data_ptr(),
        y.untyped_storage().data_ptr() == s.data_ptr(),
        y.storage_offset(),
        y.data_ptr() - x.data_ptr(),
        s.tolist(),
        s[2],
        typed.size(),
        typed.tolist(),
        typed[1],
        typed.data_ptr() == x.data_ptr(),
        str(s.device),
        s.element_size(),
        typed.element_size(),
    ]


@topic
def storage_writes(t: Any) -> Any:
    x = t.zeros(2, dtype=t.int32)
    s = x.untyped_storage()
    s[0] = 7
    x.storage()[1] = 5
    c = s.clone()
    s.fill_(1)
    return (
        x,
        c.tolist(),
        s.copy_(c).tolist(),
        x,
        attempt(lambda: s[100]),
        len(t.UntypedStorage(5)),
        repr(t.UntypedStorage(0)).splitlines()[-1],
    )


@topic
def set_and_resize(t: Any) -> Any:
    x = t.arange(6.0)
    y = t.empty(0)
    y.set_(x)
    z = t.empty(0).set_(x.untyped_storage(), 2, (2, 2), (1, 2))
    w = t.empty(0).set_(x.storage())
    y.resize_(2)
    x.resize_(2, 2)
    e = t.zeros(3).set_()
    return (
        y,
        z,
        w,
        x,
        e,
        y.data_ptr() == z.data_ptr() - 8,
        attempt(lambda: t.ones(2, requires_grad=True).resize_(3)),
        t.zeros(2).resize_as_(t.zeros(1, 2)).shape,
        attempt(lambda: t.zeros(2).resize_(-1)),
    )


@topic
def resize_keeps_what_was(t: Any) -> Any:
    x = t.arange(4.0)
    x.resize_(1000)
    x[1] = 9.0
    return x[:4], x.numel(), x.untyped_storage().nbytes(), x.resize_(2), x.untyped_storage().nbytes()


@topic
def data_attribute(t: Any) -> Any:
    x = t.ones(3, requires_grad=True)
    y = x * 2
    d = y.data
    before = y._version
    d[0] = 5
    x.data = t.zeros(2)
    w = t.ones(2)
    v = w.view(2)
    w.data = t.full((3,), 4.0)
    return (
        y,
        d.requires_grad,
        y._version - before,
        d._version,
        x,
        x.is_leaf,
        w,
        v,
        d.data_ptr() == y.data_ptr(),
        attempt(lambda: setattr(x, "data", 5)),
    )


@topic
def data_of_another_dtype(t: Any) -> Any:
    x = t.ones(3)
    x.data = x.data.double()
    y = t.ones(2, requires_grad=True)
    y.data.mul_(3)
    return x, y, y._version


@topic
def detach_shares_the_version(t: Any) -> Any:
    x = t.ones(3)
    d = x.detach()
    d.add_(1)
    first = [x._version, d._version]
    x.mul_(2)
    return first, [x._version, d._version], x, d, d._is_view(), x.view(3)._version


@topic
def copies(t: Any) -> Any:
    x = t.arange(4.0, requires_grad=True)
    x.grad = t.ones(4)
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    y = t.arange(6.0).reshape(2, 3).t()
    d = copy.deepcopy(y)
    a, b = copy.deepcopy([y, y[0]])
    return (
        shallow.data_ptr() == x.data_ptr(),
        deep.data_ptr() == x.data_ptr(),
        deep,
        deep.grad,
        shallow.grad is x.grad,
        d,
        attempt(lambda: copy.deepcopy(x * 2)),
        a.data_ptr() == b.data_ptr(),
        copy.deepcopy({"a": x})["a"],
    )


@topic
def pickles(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    a, b = pickle.loads(pickle.dumps([x.t(), x[1]]))
    p = pickle.loads(pickle.dumps(t.nn.Parameter(t.ones(2))))
    g = pickle.loads(pickle.dumps(t.ones(2, requires_grad=True)))
    return (
        a,
        b,
        b.storage_offset(),
        p,
        g,
        pickle.loads(pickle.dumps(t.float16)) is t.float16,
        (pickle.loads(pickle.dumps(t.Size([1, 2])))),
        str(pickle.loads(pickle.dumps(t.device("cpu")))),
        pickle.loads(pickle.dumps(t.ones(2, dtype=t.bfloat16))),
    )


@topic
def clones(t: Any) -> Any:
    x = t.arange(3.0, requires_grad=True)
    c = x.clone()
    c.sum().backward()
    d = x.detach().clone()
    d[0] = 5
    return c, x.grad, d, x


@topic
def frombuffer(t: Any) -> Any:
    raw = bytearray(range(16))
    x = t.frombuffer(raw, dtype=t.int16)
    x[0] = 0
    return (
        x,
        list(raw[:2]),
        t.frombuffer(raw, dtype=t.uint8, count=3, offset=4),
        attempt(lambda: t.frombuffer(raw, dtype=t.int32, count=9)),
        attempt(lambda: t.frombuffer(raw, dtype=t.int32, offset=20)),
    )


@topic
def asarray(t: Any) -> Any:
    a = np.ones(3)
    x = t.ones(3)
    return (
        t.asarray(a).data_ptr() == a.ctypes.data,
        t.asarray(x) is x,
        t.asarray([1, 2]),
        t.asarray(a, copy=True).data_ptr() == a.ctypes.data,
        t.asarray(a, dtype=t.float32),
        t.asarray(3.0),
    )


@topic
def item_and_numbers(t: Any) -> Any:
    x = t.tensor([2.5])
    return [
        x.item(),
        t.tensor(3).item(),
        t.tensor(True).item(),
        t.tensor(1 + 2j).item(),
        t.tensor(1.5, dtype=t.bfloat16).item(),
        t.tensor(1.5, dtype=t.half).item(),
        attempt(lambda: t.ones(2).item()),
        float(x),
        int(x),
        bool(x),
        attempt(lambda: bool(t.ones(2))),
        attempt(lambda: bool(t.ones(0))),
        complex(x),
        [10, 20, 30][t.tensor(1)],
        attempt(lambda: [1, 2][t.tensor(1.0)]),
        attempt(lambda: float(t.ones(2))),
        attempt(lambda: int(t.ones(0))),
        t.tensor([[1, 2], [3, 4]]).tolist(),
        t.tensor(5).tolist(),
        t.zeros(0, 2).tolist(),
        t.zeros(2, 0).tolist(),
        x.__format__(".2f") if False else 0,
        f"{t.tensor(3.14159):.2f}",
        attempt(lambda: t.tensor(1 + 2j).to(t.float32) if False else float(t.tensor(1 + 2j))),
        round(t.tensor(2.7).item(), 0),
        attempt(lambda: int(t.tensor(float("inf")))),
        range(t.tensor(3)),
        attempt(lambda: t.ones(1, device="meta").item()),
    ]


@topic
def constructors(t: Any) -> Any:
    return [
        t.Tensor([1, 2]),
        t.Tensor(2, 3).shape,
        t.Tensor().shape,
        attempt(lambda: t.tensor([[1, 2], [3]])),
        attempt(lambda: t.tensor("abc")),
        t.tensor([]),
        t.tensor([1, 2.5]),
        t.tensor([True, 2]),
        t.tensor([1, 2j]),
        t.tensor([t.tensor(1.0), 2]),
        attempt(lambda: t.tensor(None)),
        t.tensor((1, 2)),
        t.tensor([1.0], dtype=t.int32),
        t.tensor([1.5], dtype=t.int32),
        t.FloatTensor([1, 2]),
        t.LongTensor(3).shape,
        attempt(lambda: t.tensor([1, "a"])),
        attempt(lambda: t.tensor(300, dtype=t.uint8)),
        attempt(lambda: t.tensor([2**63])),
        t.tensor(2**62),
        attempt(lambda: t.zeros(-1)),
        attempt(lambda: t.zeros(2.5)),
        t.zeros((2, 3)).shape,
        t.zeros([2]).shape,
        t.zeros(t.Size([1, 2])).shape,
        t.zeros(()),
        t.ones(2, dtype=t.bool),
        attempt(lambda: t.ones(2, dtype=t.int32, requires_grad=True)),
        t.full((2,), 3),
        t.full((2,), True),
        t.full((2,), 1.5),
        t.full((), 2, dtype=t.float64),
        t.arange(1, 6, 2),
        t.arange(5.0),
        t.arange(0, 1, 0.25),
        t.arange(5, 0, -2),
        attempt(lambda: t.arange(0, 5, -1)),
        attempt(lambda: t.arange(0, 5, 0)),
        t.linspace(0, 1, 5),
        t.linspace(0, 1, 1),
        t.logspace(0, 2, 3),
        t.eye(2, 3),
        t.new_tensor if False else 0,
        t.zeros(2).new_ones(3),
        t.zeros(2).new_tensor([1, 2]),
        t.zeros(2, dtype=t.int8).new_full((2,), 7),
        t.empty(2, dtype=t.float64).new_empty(3).dtype,
        t.zeros_like(t.ones(2), dtype=t.int64),
    ]
