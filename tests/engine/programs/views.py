"""Views: shapes, strides, offsets, shared memory."""

from __future__ import annotations

from typing import Any

from tests.engine.recording import Topic, attempt

topic = Topic()


def geometry(x: Any, base: Any) -> list[Any]:
    """A view's place in memory, relative to its base."""
    return [
        x,
        x.storage_offset(),
        x.data_ptr() - base.data_ptr() if x.numel() else 0,
        x.untyped_storage().data_ptr() == base.untyped_storage().data_ptr(),
        x.is_contiguous(),
        x._is_view(),
        x._base is base,
        x._version == base._version,
    ]


VIEWS = {
    "view": lambda x: x.view(4, 6),
    "view_minus": lambda x: x.view(-1, 3),
    "view_as": lambda x: x.view_as(x),
    "reshape": lambda x: x.reshape(6, 4),
    "t": lambda x: x[0].t(),
    "transpose": lambda x: x.transpose(0, 2),
    "transpose_negative": lambda x: x.transpose(-1, 0),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "permute": lambda x: x.permute(2, 0, 1),
    "permute_tuple": lambda x: x.permute((1, 2, 0)),
    "movedim": lambda x: x.movedim(0, 2),
    "mT": lambda x: x.mT,
    "squeeze": lambda x: x.unsqueeze(0).squeeze(),
    "squeeze_dim": lambda x: x.view(2, 1, 12).squeeze(1),
    "squeeze_nothing": lambda x: x.squeeze(0),
    "squeeze_several": lambda x: x.view(1, 24, 1).squeeze((0, 2)),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "unsqueeze_last": lambda x: x.unsqueeze(-1),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "expand_new": lambda x: x.expand(3, -1, 3, 4),
    "expand_as": lambda x: x[0, 0].expand_as(x),
    "broadcast_to": lambda x: x[0].broadcast_to((2, 3, 4)),
    "flatten": lambda x: x.flatten(),
    "flatten_some": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, -1)),
    "ravel": lambda x: x.ravel(),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(2, -1),
    "diagonal": lambda x: x[0].diagonal(1),
    "diagonal_dims": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "slice_step": lambda x: x[:, 1:, ::2],
    "slice_int": lambda x: x[1],
    "slice_none": lambda x: x[:, 1, None],
    "slice_dots": lambda x: x[..., 1:3],
    "as_strided": lambda x: x.as_strided((2, 3), (1, 2), 5),
    "as_strided_overlap": lambda x: x.as_strided((3, 3), (1, 1)),
    "view_dtype": lambda x: x.view_as(x).detach(),
    "detach": lambda x: x.detach(),
    "chain": lambda x: x[1:].transpose(1, 2)[:, 1].unsqueeze(0),
    "empty_slice": lambda x: x[2:],
}
for _name, _view in VIEWS.items():
    topic.programs[_name] = lambda t, view=_view: (lambda x: geometry(view(x), x))(
        t.arange(24.0).reshape(2, 3, 4).clone()
    )

SEVERAL = {
    "split": lambda x: x.split(2, 1),
    "split_sizes": lambda x: x.split([1, 3], 2),
    "chunk": lambda x: x.chunk(3, 2),
    "unbind": lambda x: x.unbind(1),
    "tensor_split": lambda x: x.tensor_split(3, 2),
    "tensor_split_places": lambda x: x.tensor_split((1, 2), 1),
    "hsplit": lambda x: x.hsplit(3),
}
for _name, _many in SEVERAL.items():
    topic.programs[_name] = lambda t, many=_many: (lambda x: [geometry(v, x) for v in many(x)])(
        t.arange(24.0).reshape(2, 3, 4).clone()
    )

ERRORS = {
    "view_of_transposed": lambda t, x: x.transpose(0, 2).view(24),
    "view_wrong_size": lambda t, x: x.view(5, 5),
    "view_two_minus": lambda t, x: x.view(-1, -1),
    "view_minus_not_whole": lambda t, x: x.view(-1, 7),
    "expand_not_one": lambda t, x: x.expand(2, 5, 4),
    "expand_fewer": lambda t, x: x.expand(4),
    "expand_minus_new": lambda t, x: x.expand(-1, 2, 3, 4),
    "permute_twice": lambda t, x: x.permute(0, 0, 1),
    "permute_few": lambda t, x: x.permute(0, 1),
    "transpose_far": lambda t, x: x.transpose(0, 3),
    "t_three": lambda t, x: x.t(),
    "select_far": lambda t, x: x.select(0, 2),
    "narrow_far": lambda t, x: x.narrow(0, 1, 2),
    "narrow_negative": lambda t, x: x.narrow(0, 0, -1),
    "squeeze_far": lambda t, x: x.squeeze(5),
    "unsqueeze_far": lambda t, x: x.unsqueeze(5),
    "split_zero": lambda t, x: x.split(0),
    "split_sum": lambda t, x: x.split([1, 2]),
    "chunk_zero": lambda t, x: x.chunk(0),
    "unbind_scalar": lambda t, x: x[0, 0, 0].unbind(),
    "unfold_large": lambda t, x: x.unfold(0, 3, 1),
    "as_strided_bounds": lambda t, x: x.as_strided((25,), (1,)),
    "as_strided_offset": lambda t, x: x.as_strided((2,), (1,), 23),
    "as_strided_negative_stride": lambda t, x: x.as_strided((2,), (-1,)),
    "as_strided_negative_offset": lambda t, x: x.as_strided((2,), (1,), -1),
    "as_strided_lengths": lambda t, x: x.as_strided((2, 2), (1,)),
    "unflatten_wrong": lambda t, x: x.unflatten(2, (3, 2)),
    "diagonal_same": lambda t, x: x.diagonal(0, 1, 1),
    "flatten_order": lambda t, x: x.flatten(2, 1),
    "stride_far": lambda t, x: x.stride(3),
    "size_far": lambda t, x: x.size(3),
    "reshape_wrong": lambda t, x: x.reshape(5),
    "negative_step": lambda t, x: x[::-1],
    "iterate_scalar": lambda t, x: list(x[0, 0, 0]),
    "len_scalar": lambda t, x: len(x[0, 0, 0]),
}


@topic
def errors(t: Any) -> Any:
    x = t.arange(24.0).reshape(2, 3, 4)
    return {name: attempt(lambda case=case: case(t, x)) for name, case in ERRORS.items()}


@topic
def writes_show_everywhere(t: Any) -> Any:
    x = t.zeros(2, 3)
    a, b, c = x[0], x.t(), x.view(6)
    a[1] = 5.0
    b[2, 1] = 7.0
    c[0] += 1
    return x, a, b, c, [v._version for v in (x, a, b, c)]


@topic
def contiguous(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    y = x.t()
    z = y.contiguous()
    return (
        x.contiguous() is x,
        y.is_contiguous(),
        z,
        z.data_ptr() == x.data_ptr(),
        z._version,
        y.reshape(6),
        y.reshape(6).data_ptr() == x.data_ptr(),
    )


@topic
def channels_last(t: Any) -> Any:
    x = t.arange(48.0).reshape(2, 3, 2, 4)
    y = x.contiguous(memory_format=t.channels_last)
    again = y.contiguous(memory_format=t.channels_last)
    one = t.zeros(2, 1, 3, 3)
    return [
        y,
        y.is_contiguous(),
        y.is_contiguous(memory_format=t.channels_last),
        x.is_contiguous(memory_format=t.channels_last),
        again is y,
        y.clone().stride(),
        y.clone(memory_format=t.contiguous_format).stride(),
        y.to(memory_format=t.contiguous_format).stride(),
        (y + 1).stride(),
        (y + x).stride(),
        (x + y).stride(),
        t.empty_like(y).stride(),
        one.is_contiguous(memory_format=t.channels_last),
        t.zeros(2, 3, 4, 5, memory_format=t.contiguous_format).stride() if False else 0,
        t.empty(2, 3, 4, 5, memory_format=t.channels_last).stride(),
        y.double().stride(),
        y.permute(0, 2, 3, 1).is_contiguous(),
        t.zeros_like(y, memory_format=t.contiguous_format).stride(),
        x.to(memory_format=t.channels_last).stride(),
        y.exp().stride(),
        y.relu().stride(),
        y[:, :2].stride(),
        y[0].stride(),
    ]


@topic
def channels_last_where_sizes_are_one(t: Any) -> Any:
    found = []
    for shape in ((2, 1, 3, 4), (1, 1, 3, 4), (2, 3, 1, 1), (1, 3, 2, 2), (2, 3, 4, 1)):
        x = t.ones(shape)
        y = x.to(memory_format=t.channels_last)
        found += [
            y.stride(),
            x.to(t.float64, memory_format=t.channels_last).stride(),
            y.to(memory_format=t.contiguous_format).stride(),
            y.relu().stride(),
        ]
    turned = t.ones(2, 3, 4, 5).transpose(2, 3)
    layer = t.nn.Conv3d(2, 3, 1).to(memory_format=t.channels_last_3d)
    upwards = t.nn.ConvTranspose3d(2, 3, 2).to(memory_format=t.channels_last_3d)
    images = [t.ones(n, 2, 3, 3, 3).to(memory_format=t.channels_last_3d) for n in (1, 2)]
    return [
        *found, turned.to(memory_format=t.contiguous_format).stride(), turned.contiguous().stride(), layer.weight.stride(),
        layer(images[0]).stride(),  # of several images PyTorch's layout follows the vector instructions of the processor
        [upwards(x).stride() for x in images],
    ]  # fmt: skip


@topic
def layouts_of_quarter_turns(t: Any) -> Any:
    x = t.arange(24.0).reshape(2, 3, 4)
    given = (x, x.permute(2, 0, 1), x[:, ::2], x[:, :1].expand(2, 3, 4))
    return [t.rot90(y, k, dims).stride() for y in given for k in (-1, 0, 1, 2) for dims in ((0, 1), (2, 0))]


@topic
def channels_last_3d(t: Any) -> Any:
    x = t.zeros(2, 3, 2, 2, 4)
    y = x.to(memory_format=t.channels_last_3d)
    return (
        y.stride(),
        y.is_contiguous(memory_format=t.channels_last_3d),
        attempt(lambda: x.contiguous(memory_format=t.channels_last)),
        (attempt(lambda: x.is_contiguous(memory_format=t.channels_last))),
    )


@topic
def strides_of_results(t: Any) -> Any:
    x = t.arange(24.0).reshape(2, 3, 4)
    p = x.permute(2, 0, 1)
    e = x[0, 0].expand(3, 4)
    s = x[:, :, ::2]
    return [
        (p + 1).stride(),
        (p * p).stride(),
        (p + x.permute(2, 0, 1)).stride(),
        p.exp().stride(),
        p.clone().stride(),
        p.neg().stride(),
        e.clone().stride(),
        (e + 1).stride(),
        (s + 1).stride(),
        s.clone().stride(),
        (p + p.contiguous()).stride(),
        (p.contiguous() + p).stride(),
        (p > 1).stride(),
        p.double().stride(),
        t.zeros_like(p).stride(),
        t.empty_like(s).stride(),
        (x.t() if x.dim() == 2 else x[0].t() + x[0, 0][:, None]).stride(),
        t.where(p > 1, p, p).stride(),
        p.sum(0).stride(),
        p.contiguous().stride(),
        t.cat([p, p]).stride(),
        t.stack([p, p]).stride(),
    ]


@topic
def empty_tensors(t: Any) -> Any:
    x = t.zeros(0, 3)
    return [
        x,
        x.view(3, 0),
        x.t(),
        x.reshape(0, 5),
        x.sum(),
        x + 1,
        x.is_contiguous(),
        x.unsqueeze(0).shape,
        x[:, 1].shape,
        x.expand(0, 3),
        t.zeros(2, 0).view(0),
        t.zeros(2, 0, 3).stride(),
        x.split(2),
        x.chunk(2),
        len(x.unbind(1)),
        t.cat([x, t.ones(1, 3)]),
        attempt(lambda: x.view(-1, 0)),
        t.zeros(0).view(0, 2).shape,
        x.transpose(0, 1).contiguous().stride(),
        t.empty(0).max_pool1d if False else 0,
    ]


@topic
def views_in_place(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3).clone()
    y = x.t_()
    x2 = t.arange(6.0).reshape(1, 2, 3).clone()
    return y is x, x, x2.squeeze_(0), x2.unsqueeze_(2), x2.transpose_(0, 2), x2.as_strided_((2, 2), (1, 2)), x2.shape


@topic
def view_of_view_knows_the_base(t: Any) -> Any:
    x = t.zeros(4, 4)
    y = x[1:]
    z = y.t()[1]
    d = z.detach()
    return y._base is x, z._base is x, d._base is x, d._is_view(), x._base is None, x.view(16)[3:][2]._base is x


@topic
def gradients_through_views(t: Any) -> Any:
    found = []
    for view in list(VIEWS.values()):
        x = (t.arange(24.0, dtype=t.float64) / 7).reshape(2, 3, 4).requires_grad_()
        y = view(x)
        if not y.requires_grad or not y.numel():
            found.append(str(y.requires_grad))
            continue
        w = t.arange(1.0, y.numel() + 1, dtype=t.float64).reshape(y.shape)
        (y * y * w).sum().backward()
        found.append((type(y.grad_fn).__name__, x.grad))
    return found


@topic
def gradients_through_several(t: Any) -> Any:
    found = []
    for many in SEVERAL.values():
        x = (t.arange(24.0, dtype=t.float64) / 7).reshape(2, 3, 4).requires_grad_()
        parts = many(x)
        (parts[0] * parts[0]).sum().backward()
        found.append((type(parts[0].grad_fn).__name__, type(parts[-1].grad_fn).__name__, parts[-1].output_nr, x.grad))
    return found


@topic
def second_gradient_of_as_strided(t: Any) -> Any:
    x = t.arange(6.0, dtype=t.float64).requires_grad_()
    y = (x * x).as_strided((3, 3), (1, 1), 1)
    (g,) = t.autograd.grad((y**2).sum(), x, create_graph=True)
    (h,) = t.autograd.grad((g * t.arange(6.0, dtype=t.float64)).sum(), x)
    return g, h


@topic
def complex_views(t: Any) -> Any:
    z = t.tensor([[1 + 2j, 3 - 1j], [0j, 5 + 5j]])
    r = t.view_as_real(z)
    r[0, 0, 1] = 9.0
    back = t.view_as_complex(r)
    return (
        z,
        r,
        r.stride(),
        back,
        back.data_ptr() == z.data_ptr(),
        z.real,
        z.real.stride(),
        z.imag.storage_offset(),
        z.real.data_ptr() == z.data_ptr(),
    )


@topic
def view_as_other_dtype(t: Any) -> Any:
    x = t.tensor([1.0, -2.0, 0.5])
    i = x.view(t.int32)
    b = x.view(t.uint8)
    i[0] = 0
    return (
        x,
        i,
        b,
        b.shape,
        b.view(t.float32),
        x.view(2, -1) if False else 0,
        attempt(lambda: t.zeros(3, dtype=t.uint8).view(t.float32)),
        x.view(t.float32) is x,
    )


@topic
def sizes(t: Any) -> Any:
    x = t.zeros(2, 3)
    return [
        repr(x.shape),
        repr(x.size()),
        x.size(0),
        x.size(-1),
        x.shape == (2, 3),
        x.shape == t.Size([2, 3]),
        x.shape.numel(),
        repr(x.shape[1:]),
        x.ndim,
        x.dim(),
        x.nelement(),
        x.element_size(),
        x.nbytes,
        x.itemsize,
        repr(x.stride()),
        len(x),
        repr(x.shape + (1,)),
        repr(x[0, 0].shape),
    ]
