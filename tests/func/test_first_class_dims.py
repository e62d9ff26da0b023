"""functorch.dim: products, indexing, splitting, batching by dims that are objects, against einsum, plain indexing and vmap."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight._functorch.dim import (
    Dim,
    DimensionBindError,
    DimList,
    Tensor,
    cat,
    dimlists,
    dims,
    index,
    softmax,
    stack,
)

close = torch.testing.assert_close


def test_names_and_sizes() -> None:
    i, j = dims(2)
    alone = dims()
    some, named = dimlists(sizes=[2, [4, None]])
    assert (str(i), str(j), str(alone)) == ("i", "j", "alone") and isinstance(alone, Dim) and isinstance(some, DimList)
    assert (
        len(some) == 2
        and str(some) == "(some0, some1)"
        and named[0].size == 4
        and not named[1].is_bound
        and named[:] == (named[0], named[1])
    )
    found = dims(3)
    assert [str(d) for d in found] == ["d0", "d1", "d2"]

    class Box:
        pass

    box: Any = Box()
    z, box.x, q = dims(3)
    assert [str(d) for d in (z, box.x, q)] == ["z", "d1", "d2"]
    i.size = 5
    i.size = 5
    with pytest.raises(
        DimensionBindError,
        match="Dim 'i' previously bound to a dimension of size 5 cannot bind to a dimension of size 3",
    ):
        i.size = 3
    with pytest.raises(ValueError, match="dimension j is unbound"):
        j.size
    a, b = dims(sizes=[3, None])
    assert a.size == 3 and not b.is_bound
    for _ in range(10):  # bytecode is adapted after some runs
        ci, co = dims()
        assert str(ci) + str(co) == "cico"
    with pytest.raises(SyntaxError, match="must be assigned to"):
        print(dims())
    with pytest.raises(ValueError, match="expected 2 sizes but found 1"):
        dims(2, [1])


def test_binding() -> None:
    batch, channel, width, height = dims(4)
    x = torch.rand(2, 3, 4, 5)
    bound, mixed = x[batch, channel, width, height], x[batch, :, :, height]
    assert (
        bound.dims == (batch, channel, width, height)
        and bound.ndim == 0
        and mixed.dims == (batch, height)
        and mixed.ndim == 2
    )
    assert (
        mixed.shape == (3, 4)
        and mixed.dtype == torch.float32
        and x.ndim == 4
        and height.size == 5
        and isinstance(bound, Tensor)
    )
    with pytest.raises(IndexError, match="at least 1 indices were supplied but the tensor only has 0 dimensions"):
        bound[0]
    close(x[batch, channel].order(channel, batch), x.permute(1, 0, 2, 3))
    close(x[batch, 1, ..., height].order(height, batch), x[:, 1].permute(2, 0, 1))
    close(x[batch].order(1, batch), x.permute(2, 0, 1, 3))
    close(x[batch].permute(dims=(1, 0, 2)).order(batch), x.permute(0, 2, 1, 3))
    close(x[batch, None].order(batch), x[:, None])
    assert repr(torch.arange(3)[channel]) == "tensor([0, 1, 2])\nwith dims=(channel,) sizes=(3,)"
    with pytest.raises(TypeError):
        bound.order(wrong=3)
    with pytest.raises(ValueError, match="tensor does not contain dim"):
        x[batch].order(channel)
    with pytest.raises(DimensionBindError):
        x[channel]


def test_einsum() -> None:
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    i, j, k, q = dims(4)
    made = (a[i, k] * b[k, j]).sum(k).order(i, j)
    close(made, a @ b)
    made.sum().backward()
    close(a.grad, b.detach().sum(1).expand(3, 4))
    q.size = 1
    close((a[i, k].expand(j, q) * b[k, j].expand(i, q)).sum(k).order(q, i, j), (a @ b)[None])
    c, c2, h, w = dims(4)
    y = torch.rand(2, 3, 4, 5)
    n = dims(1)
    close((y[n, c, h, w] * y[n, c2, h, w]).sum((h, w)).order(n, c, c2), torch.einsum("nchw,ndhw->ncd", y, y))
    product = y[n, c, h, w] * y[n, c2, h, w]
    close(product.order(n, c, c2, h, w), torch.einsum("nchw,ndhw->ncdhw", y, y))
    close((y[n, c, h, w] * y[n, c2, h, w]).mean(h).sum(w).order(n, c, c2), torch.einsum("nchw,ndhw->ncd", y, y) / 4)
    close((y[n, c] * y[n, c2]).sum((0, 1)).order(n, c, c2), torch.einsum("nchw,ndhw->ncd", y, y))


def test_batching() -> None:
    i, j = dims(2)
    a, b, c = torch.rand(3, 4, 5), torch.rand(6, 4, 5), torch.rand(5, 2)
    close(torch.mm(torch.mm(a[i], c).T, torch.mm(b[j], c)).order(i, j), torch.einsum("iab,bc,jad,de->ijce", a, c, b, c))
    w = torch.randn(5)
    examples = torch.randn(7, 5)
    n = dims(1)
    close(examples[n].dot(w).relu().order(n), (examples @ w).relu())
    close((a[i] + i).order(i), a + torch.arange(3.0)[:, None, None])
    close((1 - a[i]).order(i), 1 - a)
    close((c - a[i, :, 0, None][:2, 0]).order(i), c - a[:, :2, 0][:, None])
    close(torch.stack([a[i, 0], a[i, 1]], 1).order(i), torch.stack([a[:, 0], a[:, 1]], 2))
    assert {i} == set(torch.rand_like(a[i]).dims) == set(torch.nn.functional.dropout(a[i]).dims)
    assert not torch.equal(*torch.rand_like(torch.zeros(2, 9)[dims(1)]).data)
    layer = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3, track_running_stats=False), torch.nn.Flatten()
    )
    image = torch.rand(2, 2, 1, 2, 6, 6)
    x, y = dims(2)
    close(layer(image[x, y]).order(x, y)[1, 0], layer(image[1, 0]), atol=1e-5, rtol=1e-5)
    z = torch.zeros(3, 4)
    k, l = dims(2)
    bound = z[k, l]
    bound += torch.arange(4)[l]
    close(z, torch.arange(4.0).expand(3, 4))


def test_dims_are_tensors() -> None:
    i, j = dims(sizes=[3, 4])
    close((i + j - 1).order(i, j), torch.arange(3)[:, None] + torch.arange(4) - 1)
    close((i <= j).order(i, j), torch.ones(3, 4).triu().bool())
    a = torch.rand(3, 4)
    close(torch.where(i <= j, a[i, j], 0).order(i, j), a.triu())
    close(torch.where(i == j, 1, 0).order(i, j), torch.eye(3, 4, dtype=torch.int64))
    assert int((i == j).sum((i, j))) == 3 and (2**i).order(i).tolist() == [1, 2, 4] and "sum" not in vars(i)
    x = torch.rand(5)
    n = dims(1)
    d = x[n] - x[n - 1]
    close(torch.where(n - 1 >= 0, d, x[n]).order(n), torch.diff(x, prepend=torch.zeros(1)))
    close(x[torch.where(n + 1 < n.size, n + 1, 0)].order(n), x.roll(-1))
    close(x[n.size - n - 1].order(n), x.flip(0))
    v, m = dims(sizes=[2, None])
    y = torch.rand(5)
    close(torch.where(v == 0, x[m], y[m]).order(v, m), torch.stack([x, y]))
    values, length = torch.rand(3, 4), torch.tensor([1, 3, 0])
    close(torch.where(j < length[i], values[i, j], 0).order(i, j), values * (torch.arange(4) < length[:, None]))
    close(((i >= j) * a[i, j]).sum(j).order(i), a.tril().sum(1))


def test_indexing_by_tensors() -> None:
    table, ids = torch.rand(8, 6), torch.tensor([[1, 0, 3], [4, 7, 7]])
    b, s, f = dims(3)
    close(table[ids[b, s], f].sum(s).order(b, f), table[ids].sum(1))
    close(table[ids[b, s]].order(b, s), table[ids])
    close(table[ids[b], f].order(b, f), table[ids].transpose(1, 2))
    square = torch.rand(4, 4)
    i = dims(1)
    close(square[i, i].order(i), square.diagonal())
    a = torch.rand(1, 2, 3, 4)
    p, q = dims(sizes=[2, 4])
    close(a[:, p + 0, :, q + 0].order(p, q), a.permute(1, 3, 0, 2))
    close(a[0][p, :, torch.tensor([3, 1])].order(p), a[0][:, :, [3, 1]])
    c = dims(sizes=[2])
    wide = torch.rand(3, 4)
    close(wide[c + 1, c + 0].order(c), wide[torch.arange(2) + 1, torch.arange(2)])
    r, k = dims(2)
    rows = wide[r, k]
    close(rows.index(k, torch.tensor([2, 0])[c]).order(r, c), wide[:, [2, 0]])
    mask = torch.tensor([True, False, True, True])
    close(wide[r, mask].order(r), wide[:, mask])
    per_row = torch.tensor([3, 0, 2])
    close(rows.index(k, per_row[r]).order(r), wide.gather(1, per_row[:, None])[:, 0])


def test_writing() -> None:
    table, at, values = torch.zeros(10, 3), torch.tensor([4, 2]), torch.rand(2, 3)
    i, f = dims(2)
    table[at[i], f] += values[i, f]
    expected = torch.zeros(10, 3)
    expected[at] = values
    close(table, expected)
    table[at[i], f] = 7
    table[0, f] = f
    assert table[[2, 4]].eq(7).all() and table[0].tolist() == [0, 1, 2]
    x = torch.zeros(3, 2, 4)
    a, b = dims(2)
    x[a, :, b] = torch.rand(4)[b] + torch.tensor([[1.0], [2.0], [3.0]])[a]
    assert (x[0, 0] < 2).all() and (x[2, 1] >= 3).all() and torch.equal(x[:, 0], x[:, 1])
    with pytest.raises(
        DimensionBindError, match="rhs of setitem contains dimension b which is not in the dimension on the left"
    ):
        x[a, 0, 0] = torch.rand(4)[b]


def test_splitting_and_flattening() -> None:
    i, j, k = dims(3)
    j.size = 2
    a = torch.rand(6, 4)
    close(a[(i, j), k].order(i, (j, k)), a.reshape(3, 8))
    assert i.size == 3
    h2, w2, c, n, h, w = dims(6)
    h2.size = w2.size = 2
    image = torch.rand(2, 12, 3, 4)
    close(image[n, (c, h2, w2), h, w].order(n, c, (h, h2), (w, w2)), torch.nn.functional.pixel_shuffle(image, 2))
    close(a[[i, j],].order([i, j]), a)
    assert torch.rand(3, 2)[[i, j]].dims == (i, j)  # a list of dims alone is a tuple
    o, l, r, s = dims(4)
    o.size = 2
    halves = a[r, s].index(s, (o, l))
    close(halves.order(r, o, l), a.view(6, 2, 2))
    close(halves.index((o, l), s).order(r, s), a)
    both = dims(1)
    cube = torch.rand(3, 4, 5)
    close(index(cube, (0, 2), both).order(both), cube.permute(0, 2, 1).reshape(15, 4))
    x, y = dims(2)
    with pytest.raises(DimensionBindError, match="cannot infer the sizes of 2 dimensions"):
        a[(x, y),]
    p, q = dims(sizes=[5, None])
    with pytest.raises(DimensionBindError, match="5 != 6"):
        a[(p, q),]
    with pytest.raises(TypeError, match=r"dims \(1\) and indices \(2\) must have the same length"):
        index(cube, [0], [0, 1])


def test_reductions_and_others_along_dims() -> None:
    a = torch.rand(3, 4)
    i, k, n = dims(3)
    b = a[i, k]
    close(a.sum(), a[i].sum((0, i)))
    close(a.sum(), a[i].sum((-1, i)))
    close(a[i].sum(0, keepdim=True).sum((0, i)), a.sum())
    close(a[i].std(i, True), a.std(0, True))
    close(b.max(i)[0].order(k), a.max(0)[0])
    close(b.max(dim=k).indices.order(i), a.max(1).indices)
    close(b.sort(k)[0].order(i, k), a.sort(1)[0])
    close(a[i].renorm(1, i, 7).order(i), a.renorm(1, 0, 7))
    close(a.expand(5, -1, -1).sum(0), a[i, k].expand(n_of(5)).sum((n_of.last,)).order(i, k))
    close(softmax(b, dim=k).order(i, k), a.softmax(1))
    close(torch.nn.functional.softmax(b, dim=i).order(i, k), a.softmax(0))
    close(b.cumsum(k).order(i, k), a.cumsum(1))
    close(torch.sum(b, dim=(i, k)), a.sum())
    close(b.mean((k, i)), a.mean())
    close(torch.logsumexp(b, k).order(i), a.logsumexp(1))
    for got, want in zip(b.unbind(k), a.unbind(1), strict=True):
        close(got.order(i), want)
    with pytest.raises(ValueError, match="keepdim needs positional dims"):
        b.sum(k, keepdim=True)
    with pytest.raises(ValueError, match="does not contain n"):
        b.sum(n)
    x = torch.rand(16)
    g, e = dims(sizes=[2, None])
    parts = x[[e, g],]
    m_b, _ = parts.max(e)
    f_b = torch.exp(parts - m_b)
    m, _ = m_b.max(g)
    c = torch.exp(m_b - m)
    close((c * f_b).order((e, g)) / (c * f_b.sum(e)).sum(g), x.softmax(0))


class n_of:
    """A new dim of a size, remembered."""

    last: Any = None

    def __new__(cls, size: int) -> Any:
        cls.last = dims(sizes=[size])
        return cls.last


def test_split_stack_cat_unbind() -> None:
    c = torch.rand(4, 7)
    s, d, x, y, z = dims(5)
    x.size = 3
    y.size = 3
    for want, got, each in zip(c.split((3, 3, 1), dim=1), c[s, d].split((x, y, z), dim=d), (x, y, z), strict=True):
        close(got.order(s, each), want)
    with pytest.raises(TypeError, match="split sizes must also be dimensions"):
        c[s, d].split(2, dim=d)
    with pytest.raises(TypeError, match="ints or dims but got a mix"):
        c[s, d].split((2, x), dim=d)
    a, b = torch.rand(3, 4), torch.rand(3, 4)
    i, j, n, m = dims(4)
    both = stack([a[i, j], b[i, j]], n, j)
    close(both.order(n, i, j), torch.stack([a, b]))
    first, second = both.unbind(n)
    close(first.order(i, j), a)
    close(second.order(i, j), b)
    close(cat([a[i, j], b[i, j]], j, m).order(i, m), torch.cat([a, b], 1))
    with pytest.raises(ValueError, match="non-empty"):
        stack([], n)


def test_lists_of_dims() -> None:
    a, i, k = torch.rand(3, 4), *dims(2)
    rest, empty = dimlists()
    close(a[i, rest].order(*rest, i), a.T)
    close(a[:, rest].order(*rest), a.T)
    close(a[i, empty, k].order(i, k, *empty), a)
    assert len(rest) == 1 and len(empty) == 0
    with pytest.raises(DimensionBindError, match="at most one ... or unbound dimension list"):
        a[i, ..., dimlists(1)]
    with pytest.raises(DimensionBindError, match="Dimlist has size 1 but it is being bound to size 2"):
        rest.bind([1, 2])


def test_attention() -> None:
    batch, heads, features, query, key = dims(5)
    q, k, v = torch.rand(3, 2, 5, 6)
    heads.size = 2
    qs, ks, vs = q[batch, query, [heads, features]], k[batch, key, [heads, features]], v[batch, key, [heads, features]]
    scores = softmax((qs * ks).sum(features) * features.size**-0.5, dim=key)
    made = (scores * vs).sum(key).order(batch, query, [heads, features])
    split = [t.view(2, 5, 2, 3).transpose(1, 2) for t in (q, k, v)]
    close(made, torch.nn.functional.scaled_dot_product_attention(*split).transpose(1, 2).reshape(2, 5, 6))


def test_under_the_names_of_pytorch(run_python) -> None:
    program = "import torch; from functorch.dim import dims; import functorch.dim, torchdim; i, k = dims(2); a = torch.ones(2, 3)\n"
    done = run_python(
        "-m",
        "rushlight",
        "-c",
        program + "print((a[i, k] * a[i, k]).sum(k).order(i), torchdim.dims is dims, a.index(0, 1).shape)",
        check=True,
    )
    assert done.stdout == "tensor([3., 3.]) True torch.Size([3])\n"


def test_other_objects_may_index() -> None:
    class Key:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func.__name__, len(args)

    a, key = torch.ones(2, 3), Key()
    assert a[key] == a[0, key] == a[[key, key]] == ("__getitem__", 2)
    a[..., key] = 3
    assert a.tolist() == [[1.0] * 3] * 2
    with pytest.raises(IndexError):
        a[object()]
