"""Random numbers of the CUDA backend: known values of Philox and of PyTorch, and distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.emulated import outcomes_of
from tests.cuda.running import Device

from rushlight._backends.cuda.program.steps import Memory
from rushlight._backends.cuda.random import fill
from rushlight._backends.cuda.random.fill import each_launch, fill_launch
from rushlight._backends.cuda.random.philox import Stream
from rushlight._codegen.blocks.memory import numbers_of
from rushlight._types.dtype import BFLOAT16, FLOAT32, FLOAT64, INT64, UINT8, UINT32, DType


def philox(seed: int, subsequence: int, block: int) -> list[int]:
    """Four words, from the definition (Salmon et al. 2011)."""
    counter = [block % 2**32, block >> 32, subsequence % 2**32, subsequence >> 32]
    key = [seed % 2**32, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ key[0], second % 2**32, first >> 32 ^ counter[3] ^ key[1], first % 2**32]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter


def filled(name: str, dtype: DType, count: int, parameters: Any, seed: int = 0, offset: int = 0) -> Any:
    """What a fill writes, in the array type of the dtype."""
    device, out = Device(), Memory(count * dtype.itemsize, "out")
    device.run([fill_launch(name, dtype, out, count, Stream(seed, offset), parameters).launch])
    return numbers_of(device.data[out], dtype)


def test_known_answers() -> None:
    """The Random123 library's vectors for zeros and for all bits, and the kernel's words beside the definition."""
    assert philox(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(2**64 - 1, 2**64 - 1, 2**64 - 1) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    seed, offset = 0x123456789ABCDEF, 4 * (2**33 + 5)
    found = filled("all_integers", INT64, 600, (0, 0), seed, offset).astype(np.uint64)
    for element in (0, 1, 255, 511, 599):
        words = philox(seed, element % 768, offset // 4 + element // (2 * 768))
        pair = words[:2] if element < 768 else words[2:]
        assert int(found[element]) == pair[0] << 32 | pair[1]


def test_numbers_of_pytorch() -> None:
    """`torch.manual_seed(0)` and `torch.rand(10, device="cuda")`, `torch.randn` there, to the digits that it prints."""
    uniform = [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096]
    normal = [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284, -1.0745, -0.3631]
    np.testing.assert_allclose(filled("uniform", FLOAT32, 10, (0.0, 1.0)), uniform, atol=5e-5)
    np.testing.assert_allclose(filled("normal", FLOAT32, 10, (0.0, 1.0)), normal, atol=5e-5)


def test_elements_go_to_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """More elements than threads: each thread takes four words a turn, then the next block."""
    monkeypatch.setattr(fill, "_BLOCKS", 2)
    threads, count = 512, 512 * 5 + 100
    found = filled("integers", UINT32, count, (2**28 - 1, 0), 77, 8)
    for element in (0, 511, 512, 1024, 2047, 2048, 2500, count - 1):
        turn, word = divmod(element // threads, 4)
        assert found[element] == philox(77, element % threads, 2 + turn)[word] % (2**28 - 1)
    drawn = fill_launch("uniform", FLOAT32, Memory(0), count, Stream(0, 0), (0.0, 1.0))
    assert drawn.offset == 8 and drawn.launch.grid == (2, 2, 1)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, BFLOAT16])
def test_moments(dtype: DType) -> None:
    n = 4000
    u = filled("uniform", dtype, n, (-1.0, 3.0), 5).astype(float)
    assert (u >= -1).all() and (u < 3).all() and abs(u.mean() - 1) < 0.08
    z = filled("normal", dtype, n, (2.0, 0.5), 6).astype(float)
    assert abs(z.mean() - 2) < 0.03 and abs(z.std() - 0.5) < 0.03 and abs(((z - 2) ** 3).mean()) < 0.05
    e = filled("exponential", dtype, n, (-0.5, 0.0), 7).astype(float)
    assert (e >= 0).all() and abs(e.mean() - 0.5) < 0.04 and abs(e.std() - 0.5) < 0.05
    if dtype is FLOAT32:
        logs = np.log(filled("log_normal", dtype, n, (1.0, 0.25), 8).astype(float))
        assert abs(logs.mean() - 1) < 0.03 and abs(logs.std() - 0.25) < 0.03
        c = filled("cauchy", dtype, n, (1.0, 2.0), 9)
        assert abs(np.median(c) - 1) < 0.2 and abs(np.percentile(c, 75) - 3) < 0.3
        g = filled("geometric", dtype, n, (float(np.log1p(-0.3)), 0.0), 10)
        assert (g >= 1).all() and (g == g.round()).all() and abs(g.mean() - 1 / 0.3) < 0.2


def test_bernoulli() -> None:
    for dtype, pattern in ((UINT8, 1), (UINT32, 0x3F800000), (INT64, 1)):
        kind = dtype if dtype is not INT64 else INT64
        found = filled("bernoulli", kind, 4000, (0.3, pattern), 3)
        assert set(np.unique(found)) == {0, pattern} and abs((found != 0).mean() - 0.3) < 0.03
    device, out, p = Device(), Memory(1000, "out"), Memory(4000, "p")
    chances = np.linspace(0, 1, 1000, dtype=np.float32)
    device.place(p, chances.view(np.uint8))
    device.run([each_launch(UINT8, FLOAT32, out, p, 1000, Stream(3, 4), 1).launch])
    found = device.data[out]
    expected = [((philox(3, e // 4, 1)[e % 4] + 0.5) * 2.0**-32 <= chances[e]) for e in range(1000)]
    np.testing.assert_array_equal(found, np.array(expected, np.uint8))


PRELUDE = "import rushlight as torch\n"
CASES = {
    "states": """
g = torch.Generator("cuda").manual_seed(3)
first = torch.rand(3, device="cuda", generator=g)
state = g.get_state()
assert state.tolist() == [3] + [0] * 7 + [4] + [0] * 7 and g.get_offset() == 4
second = torch.rand(3, device="cuda", generator=g)
g.set_state(state)
assert second.cpu().equal(torch.rand(3, device="cuda", generator=g).cpu())
g.manual_seed(3)
assert g.get_offset() == 0 and first.cpu().equal(torch.rand(3, device="cuda", generator=g).cpu())
g.set_offset(4)
assert second.cpu().equal(torch.rand(3, device="cuda", generator=g).cpu())
shared = g.graphsafe_get_state()
torch.rand(3, device="cuda", generator=g)
assert shared.get_offset() == 12
for fault in (lambda: g.set_offset(3), lambda: g.set_state(torch.zeros(5, dtype=torch.uint8))):
    try:
        fault()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a state that is none was taken")
""",
    "permutation": """
for n in (1, 10, 3000):
    assert torch.randperm(n, device="cuda").cpu().sort()[0].tolist() == list(range(n))
""",
    "weights": """
torch.manual_seed(1)
w = torch.tensor([[1.0, 2.0, 0.0, 7.0], [1.0, 0.0, 0.0, 0.0]], device="cuda")
drawn = torch.multinomial(w, 2000, replacement=True).cpu()
shares = torch.stack([(drawn[0] == k).float().mean() for k in range(4)])
assert (shares - torch.tensor([0.1, 0.2, 0.0, 0.7])).abs().max() < 0.04 and (drawn[1] == 0).all()
assert torch.multinomial(w[:1], 3).cpu().sort()[0].tolist() == [[0, 1, 3]]
try:
    torch.multinomial(torch.tensor([-1.0, 2.0], device="cuda"), 1)
except RuntimeError as error:
    assert "probability" in str(error)
else:
    raise AssertionError("a negative weight was taken")
""",
    "chances": """
p = torch.tensor([0.0, 1.0, 0.0, 1.0], device="cuda")
assert torch.bernoulli(p).tolist() == [0.0, 1.0, 0.0, 1.0]
try:
    torch.bernoulli(p + 0.5)
except RuntimeError:
    pass
else:
    raise AssertionError("a chance above 1 was taken")
""",
    "counts": """
torch.manual_seed(2)
def moments(x, mean, variance):
    x = x.cpu().double()
    n = x.numel()
    assert abs(x.mean() - mean) < 5 * (variance / n) ** 0.5 and abs(x.var() / variance - 1) < 0.15, (x.mean(), x.var())
for rate in (0.5, 4.0, 30.0, 1000.0):
    moments(torch.poisson(torch.full((4000,), rate, device="cuda")), rate, rate)
for shape in (0.3, 1.0, 7.5):
    moments(torch._standard_gamma(torch.full((4000,), shape, device="cuda")), shape, shape)
for n, p in ((5.0, 0.3), (40.0, 0.8), (1000.0, 0.4)):
    drawn = torch.binomial(torch.full((4000,), n, device="cuda"), torch.full((4000,), p, device="cuda"))
    moments(drawn, n * p, n * p * (1 - p))
zeros = torch.zeros(3, device="cuda")
assert torch.poisson(zeros).tolist() == [0.0] * 3 == torch.binomial(zeros + 4, zeros).tolist()
assert torch.binomial(zeros + 4, zeros + 1).tolist() == [4.0] * 3
try:
    torch.poisson(zeros - 1)
except RuntimeError:
    pass
else:
    raise AssertionError("a negative rate was taken")
""",
    "chunks of a batch that draws the same": """
draw = lambda x: x + torch.rand(3, device="cuda")
found = torch.vmap(draw, randomness="same", chunk_size=2)(torch.zeros(5, device="cuda"))
assert bool((found == found[0]).all())
""",
    "dropout": """
x = torch.ones(5000, device="cuda")
y = torch.nn.functional.dropout(x, 0.25)
assert set(y.cpu().unique().tolist()) == {0.0, float(torch.tensor(1 / 0.75))} and abs(y.mean().item() - 1) < 0.05
""",
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return outcomes_of(PRELUDE, CASES)


@pytest.mark.cuda
@pytest.mark.parametrize("name", CASES)
def test_on_an_emulated_gpu(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == ""
