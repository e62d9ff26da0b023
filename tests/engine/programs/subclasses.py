"""Subclasses of Tensor, `__torch_function__`, function modes."""

from __future__ import annotations

from typing import Any

from tests.engine.recording import Topic, attempt

topic = Topic()


def kind(value: Any) -> Any:
    return [type(v).__name__ for v in value] if isinstance(value, (tuple, list)) else type(value).__name__


@topic
def kept_by_default(t: Any) -> Any:
    class Sub(t.Tensor):
        pass

    x = t.arange(4.0).reshape(2, 2).as_subclass(Sub)
    p = t.ones(2, 2)
    made = {
        "self": x,
        "add": x + 1,
        "radd": 1 + x,
        "plain_first": p + x,
        "function": t.add(p, x),
        "method": x.sum(),
        "view": x.view(4),
        "index": x[0],
        "index_tensor": x[[0]],
        "cmp": x > 1,
        "several": x.max(0),
        "split": x.split(1),
        "matmul": x @ p,
        "rmatmul": p @ x,
        "clone": x.clone(),
        "detach": x.detach(),
        "to": x.to(t.float64),
        "float": x.float(),
        "T": x.T,
        "cat": t.cat([x, p]),
        "stack": t.stack([p, x]),
        "where": t.where(x > 1, x, p),
        "neg": -x,
        "inplace": x.clone().add_(1),
        "inplace_plain": p.clone().add_(x),
        "iadd": x.clone().__iadd__(p),
        "item": x[0, 0].item(),
        "tolist": x.tolist(),
        "shape": x.shape,
        "numpy": x.numpy(),
        "softmax": t.softmax(x, 0),
        "functional": t.nn.functional.relu(x),
        "einsum": t.einsum("ij,jk->ik", x, p),
        "zeros_like": t.zeros_like(x),
        "ones_like": t.ones_like(x),
        "new_zeros": x.new_zeros(2),
        "contiguous": x.t().contiguous(),
        "data": x.data,
        "real": x.real,
        "unbind": x.unbind(),
        "iter": list(x),
        "pow": x**2,
        "rpow": 2**x,
        "clamp": x.clamp(0, 1),
        "linear": t.nn.functional.linear(x, p),
        "expand": x.expand(1, 2, 2),
        "long": x.long(),
        "bool": bool(x[0, 1]),
        "len": len(x),
        "dtype": str(x.dtype),
        "mT": x.mT,
        "reshape": x.reshape(4),
        "abs": abs(x),
        "invert": ~(x > 1),
        "torch_tensor": t.tensor(x) if False else 0,
        "randn_like": t.rand_like(x),
        "sort": x.sort(),
        "norm": x.norm(),
        "masked_fill": x.masked_fill(x > 1, 0.0),
    }
    return {name: kind(value) for name, value in made.items()}


@topic
def gradients(t: Any) -> Any:
    class Sub(t.Tensor):
        pass

    x = t.ones(2).as_subclass(Sub).requires_grad_()
    y = (x * 3).sum()
    y.backward()
    p = t.ones(2, requires_grad=True)
    z = p.as_subclass(Sub)
    (z * 2).sum().backward()
    return kind(y), kind(x.grad), x.grad.tolist(), p.grad, kind(y.grad_fn), x.is_leaf, z.is_leaf, kind(z.grad_fn)


@topic
def make_subclass(t: Any) -> Any:
    class Sub(t.Tensor):
        @staticmethod
        def __new__(cls: Any, data: Any, extra: Any = None, requires_grad: bool = False) -> Any:
            return t.Tensor._make_subclass(cls, data, requires_grad)

        def __init__(self, data: Any, extra: Any = None, requires_grad: bool = False) -> None:
            self.extra = extra

    d = t.ones(2)
    x = Sub(d, "note", True)
    return (
        kind(x),
        x.extra,
        x.requires_grad,
        x.data_ptr() == d.data_ptr(),
        kind(x + 1),
        hasattr(x + 1, "extra"),
        isinstance(x, t.Tensor),
        x.is_leaf,
    )


@topic
def override(t: Any) -> Any:
    seen = []

    class Logged(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append([getattr(func, "__name__", str(func)), [c.__name__ for c in types]])
            return super().__torch_function__(func, types, args, kwargs or {})

    x = t.ones(2).as_subclass(Logged)
    y = t.add(x, 1)
    y = x + y
    y = x.sum()
    z = t.nn.functional.relu(x)
    w = t.cat([t.ones(1), x])
    x.mul_(2)
    x[0]
    x[0] = 3
    x.view(2, 1)
    return [s for s in seen if not s[0].startswith("__get")], kind(y), kind(z), kind(w)


@topic
def override_properties(t: Any) -> Any:
    seen = []

    class Logged(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", ""))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = t.ones(2, 3).as_subclass(Logged)
    x.shape, x.dtype, x.T, x.grad, x.requires_grad, x.data, x.is_leaf, x.ndim
    return seen.count("__get__"), kind(x.T)


@topic
def override_methods(t: Any) -> Any:
    seen = []

    class Logged(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", ""))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = t.ones(2, 3).as_subclass(Logged)
    y = x.sum()
    found = [
        y.item(),
        x.size(),
        x.size(0),
        x.dim(),
        x.numel(),
        x.tolist(),
        len(x),
        bool(y > 1),
        float(y),
        x.stride(),
        x.is_contiguous(),
        x.data_ptr() > 0,
    ]
    z = t.ones(2, requires_grad=True).as_subclass(Logged)
    (z * 2).sum().backward()
    z.requires_grad_()
    return found, [name for name in seen if name != "__get__"]


@topic
def duck(t: Any) -> Any:
    class Duck:
        def __init__(self, v: Any) -> None:
            self.v = v

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is t.mean:
                return NotImplemented
            plain = [a.v if isinstance(a, Duck) else a for a in args]
            return cls(func(*plain, **(kwargs or {})))

    d = Duck(t.ones(2))
    a = t.add(d, 1)
    b = t.ones(2) + d if False else t.mul(t.ones(2), d)
    c = t.add(input=t.ones(2), other=3.0)
    return (
        kind(a),
        a.v,
        kind(b),
        c,
        attempt(lambda: t.mean(d)),
        kind(t.nn.functional.softmax(d, 0)),
        t.overrides.is_tensor_like(d),
        t.overrides.is_tensor_like(3),
        (t.overrides.has_torch_function((d,))),
        t.overrides.has_torch_function((t.ones(1),)),
        kind(t.ones(2).add(d)),
    )


@topic
def precedence(t: Any) -> Any:
    seen = []

    class A(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append("A")
            return NotImplemented

    class B(A):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append("B")
            return NotImplemented

    class C(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append("C")
            return "from C"

    a, b, c = t.ones(1).as_subclass(A), t.ones(1).as_subclass(B), t.ones(1).as_subclass(C)
    return attempt(lambda: t.add(a, b)), t.add(a, c), t.cat([a, b, c]), seen


@topic
def unrelated_subclasses(t: Any) -> Any:
    class A(t.Tensor):
        pass

    class B(t.Tensor):
        pass

    class A2(A):
        pass

    a, b, a2 = t.ones(1).as_subclass(A), t.ones(1).as_subclass(B), t.ones(1).as_subclass(A2)
    return attempt(lambda: kind(a + b)), kind(a + a2), kind(a2 + a), kind(t.ones(1) + a)


@topic
def disabled(t: Any) -> Any:
    class Plain(t.Tensor):
        __torch_function__ = t._C._disabled_torch_function_impl

    x = t.ones(2).as_subclass(Plain)
    with t._C.DisableTorchFunctionSubclass():

        class Sub(t.Tensor):
            pass

        y = kind(t.ones(2).as_subclass(Sub) + 1)
    return kind(x), kind(x + 1), kind(x.clone()), kind(x.view(2)), y


@topic
def parameter(t: Any) -> Any:
    p = t.nn.Parameter(t.ones(2))
    q = t.nn.Parameter(t.ones(2), requires_grad=False)
    m = t.nn.Linear(2, 2)
    m.w = t.nn.Parameter(t.zeros(1))
    return [
        kind(p),
        p.requires_grad,
        p.is_leaf,
        kind(p + 1),
        kind(p.data),
        kind(p.detach()),
        repr(p),
        q.requires_grad,
        isinstance(p, t.nn.Parameter),
        isinstance(p, t.Tensor),
        kind(p.clone()),
        isinstance(t.ones(1), t.nn.Parameter),
        [n for n, _ in m.named_parameters()],
        kind(p[0]),
        kind(p.view(2)),
        kind(p.T if False else p.sum()),
        p.grad,
        kind(t.nn.Parameter(p)),
        kind(p.to(t.float64)),
        attempt(lambda: t.nn.Parameter(t.ones(2, dtype=t.int64))),
    ]


@topic
def function_mode(t: Any) -> Any:
    seen = []

    class Watch(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    class Double(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            return made * 2 if func is t.add else made

    x = t.ones(2)
    with Watch():
        a = t.add(x, 1)
        b = t.nn.functional.relu(x)
        c = x.exp()
        d = t.full_like(x, 2.0)
    after = t.add(x, 5)
    with Watch(), Double():
        e = t.add(x, 1)
    return [s for s in seen if not s.startswith("_")], a, b, c, d, e, after


@topic
def handle_by_hand(t: Any) -> Any:
    def mine(x: Any, y: Any = None) -> Any:
        if t.overrides.has_torch_function((x,)):
            return t.overrides.handle_torch_function(mine, (x,), x, y=y)
        return "plain"

    class Duck:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return [func is mine, len(args), sorted(kwargs or {}), [c.__name__ for c in types]]

    return (
        mine(1),
        mine(t.ones(1)),
        mine(Duck(), 5),
        t.overrides.has_torch_function_unary(Duck()),
        t.overrides.has_torch_function_variadic(1, Duck()),
    )


@topic
def printed(t: Any) -> Any:
    class Sub(t.Tensor):
        pass

    return repr(t.ones(2).as_subclass(Sub)), repr(t.nn.Parameter(t.ones(1)))


@topic
def deepcopy_and_pickle(t: Any) -> Any:
    import copy

    class Sub(t.Tensor):
        pass

    x = t.ones(2).as_subclass(Sub)
    x.note = [1]
    y = copy.copy(x)
    p = copy.deepcopy(t.nn.Parameter(t.ones(1)))
    return kind(y), y.note, kind(p), p.requires_grad, kind(copy.copy(x))


@topic
def attributes(t: Any) -> Any:
    x = t.ones(2)
    x.note = 5
    y = x.view(2)
    return (
        x.note,
        hasattr(y, "note"),
        hasattr(x.clone(), "note"),
        isinstance(x, t.Tensor),
        attempt(lambda: setattr(x, "shape", (1,))),
        attempt(lambda: setattr(x, "is_leaf", True)),
        hash(x) == id(x),
        attempt(lambda: x.nothing),
    )
