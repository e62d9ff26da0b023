"""Parameters that stay packed from call to call: eager's bits, whoever writes to them, and however."""

from __future__ import annotations

import copy
import threading

import pytest

import rushlight as torch
from rushlight import nn


def module(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(96, 160), nn.GELU(), nn.Linear(160, 96, bias=False)).to(dtype).eval()


def forward(m):
    def run(x):
        with torch.no_grad():
            return m(x)

    return run


def packed(function, **options):
    return torch.compile(function, options={"packed_weights": True, **options}, fullgraph=True)


def pins(compiled, x):
    """The operands that stay packed in the compiled function's first program."""
    executable = torch.explain(compiled)(x).programs[0]._program.compile()
    found = {id(p.pin): p.pin for p in executable.launches if p.pin is not None}
    return [p for p in found.values() if p.held]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [4, 9, 49, 67, 300])
def test_bits_are_those_of_eager_calls(rows, dtype):
    run, x = forward(module(dtype)), torch.randn(rows, 96).to(dtype)
    compiled = packed(run)
    for _ in range(3):
        assert torch.equal(compiled(x), run(x))


def writes():
    """Ways to write to the weight of a linear layer."""

    def through_array(w):
        w.detach().numpy()[1] += 1

    def through_window(w):
        w.data.mul_(3)

    def in_place(w):
        with torch.no_grad():
            w[0] += 1

    def in_inference(w):
        with torch.inference_mode():
            w.mul_(0.5)

    def by_a_step(w):
        w.grad = torch.ones_like(w)
        torch.optim.SGD([w], lr=0.25).step()

    def other_memory(w):
        w.data = torch.randn(*w.shape)

    return (in_place, in_inference, by_a_step, through_window, other_memory, through_array)


@pytest.mark.parametrize("write", writes(), ids=lambda f: f.__name__)
def test_weights_that_are_written_to_are_packed_again(write):
    m, x = module(), torch.randn(64, 96)
    run = forward(m)
    compiled = packed(run)
    compiled(x)
    assert len(pins(compiled, x)) == 2
    for _ in range(2):
        write(m[0].weight)
        for _ in range(2):
            assert torch.equal(compiled(x), run(x))


def test_a_window_that_stays_open_is_seen():
    m, x = module(), torch.randn(64, 96)
    run = forward(m)
    compiled = packed(run)
    window = m[2].weight.data
    for _ in range(3):
        assert torch.equal(compiled(x), run(x))
        window.add_(1)
    del window
    for _ in range(3):
        assert torch.equal(compiled(x), run(x))


def test_a_program_that_is_called_with_other_weights():
    """Two modules of one class share a program: the second one's weights are packed by each call."""

    @packed
    def product(x, w):
        with torch.no_grad():
            return x @ w.t()

    x, weights = torch.randn(40, 96), [nn.Parameter(torch.randn(80, 96)) for _ in range(2)]
    for w in weights * 3:
        assert torch.equal(product(x, w), x @ w.detach().t())


def test_threads_that_call_it_while_others_write():
    m, x = module(), torch.randn(128, 96)
    compiled = packed(forward(m))
    values = [copy.deepcopy(m.state_dict()) for _ in range(2)]
    for p in values[1].values():
        p.mul_(2)
    compiled(x)
    wrong = []

    def ask():
        for _ in range(30):
            compiled(x)

    for turn in range(4):
        m.load_state_dict(values[turn % 2])
        askers = [threading.Thread(target=ask) for _ in range(3)]
        for t in askers:
            t.start()
        m.load_state_dict(values[(turn + 1) % 2])
        for t in askers:
            t.join()
        wrong.append(not torch.equal(compiled(x), forward(m)(x)))
    assert not any(wrong)


def test_what_is_written_by_the_program_is_not_packed():
    m, x = module(), torch.randn(64, 96)

    def step(x):
        with torch.no_grad():
            y = m(x)
            m[0].weight.mul_(0.5)
            return y

    compiled, twin = packed(step), copy.deepcopy(m)
    compiled(x)
    executable = torch.explain(compiled)(x).programs[0]._program.compile()
    assert len({id(p.pin) for p in executable.launches if p.pin is not None}) == 1
    for _ in range(2):
        twin[0].weight.data.mul_(0.5)
    assert torch.equal(m[0].weight, twin[0].weight)


@pytest.mark.parametrize("order", [True, False])
@pytest.mark.parametrize("shape", [(7, 7), (14, 14)])
def test_a_weight_on_the_left_stays_packed(shape, order):
    torch.manual_seed(1)
    m = nn.Sequential(
        nn.Conv2d(24, 96, 3, padding=1), nn.Conv2d(96, 160, 1), nn.ReLU6(), nn.Conv2d(160, 48, 1, bias=False)
    ).eval()
    x, run = torch.randn(1, 24, *shape), forward(m)
    compiled = packed(run, allow_reordering=not order)
    for scale in (1.0, 2.0, 0.5):
        with torch.no_grad():
            m[1].weight.mul_(scale)
        for _ in range(2):
            found = compiled(x)
            assert torch.equal(found, run(x)) if order else torch.allclose(found, run(x), atol=1e-5)
    if not order:
        assert len(pins(compiled, x)) == 3


# shape of the image; channels, width, kernel, stride, groups: what Winograd's method computes, positions as rows, sums in
# chunks, in place, groups
CONVOLUTIONS = {
    "winograd": ((2, 16, 28, 28), (16, 24, 3, 1, 1)),
    "strides": ((1, 16, 28, 28), (16, 40, 3, 2, 1)),
    "windows": ((1, 3, 40, 40), (3, 24, 7, 2, 1)),
    "chunks": ((1, 256, 7, 7), (256, 96, 3, 2, 1)),
    "points": ((1, 64, 28, 28), (64, 128, 1, 2, 1)),
    "groups": ((1, 64, 12, 12), (64, 64, 3, 1, 2)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=lambda d: d.name[6:])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_weights_of_convolutions_stay_packed(case, dtype):
    torch.manual_seed(2)
    shape, (channels, width, kernel, stride, groups) = CONVOLUTIONS[case]
    m = (
        nn.Sequential(nn.Conv2d(channels, width, kernel, stride, kernel // 2, groups=groups), nn.ReLU())
        .to(dtype)
        .eval()
    )
    x, run = torch.randn(*shape).to(dtype), forward(m)
    compiled = packed(run)
    for scale in (1.0, 2.0, 0.5):
        with torch.no_grad():
            m[0].weight.mul_(scale)
        for _ in range(2):
            assert torch.equal(compiled(x), run(x))
    assert len(pins(compiled, x)) == 1
    m[0].weight.data = torch.randn_like(m[0].weight)  # other memory is packed by each call
    assert torch.equal(compiled(x), run(x))


def test_transposed_convolutions_pack_at_each_call():
    m, x = nn.ConvTranspose2d(16, 24, 3, stride=2).eval(), torch.randn(1, 16, 14, 14)
    compiled = packed(forward(m))
    for _ in range(2):
        assert torch.equal(compiled(x), forward(m)(x))
    assert not pins(compiled, x)


def test_it_is_asked_for():
    x = torch.randn(64, 96)
    run = forward(module())
    plain, tuned = torch.compile(run), torch.compile(run, mode="max-autotune")
    frozen = torch.compile(run, options={"freezing": True})
    plain(x), tuned(x), frozen(x)
    assert not pins(plain, x) and len(pins(tuned, x)) == len(pins(frozen, x)) == 2


@pytest.mark.parametrize("rows", [5, 128, 200, 300])
def test_bfloat16_products_add_up_as_eager_ones_whatever_tiles_their_pieces_use(rows: int) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(1100, 270).bfloat16()
    with torch.no_grad():
        packed = torch.compile(lambda x: layer(x), options={"packed_weights": True})
        for _ in range(6):  # few elements differ where the order of sums does
            x = torch.randn(rows, 1100).bfloat16()
            assert packed(x).equal(layer(x))
