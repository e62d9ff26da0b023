"""Arguments, errors and gradients of the random functions."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

import rushlight as torch

F32, F64, I64, U8 = torch.float32, torch.float64, torch.int64, torch.uint8


# ***** arguments *****


def test_sizes() -> None:
    for size in ((2, 3), ((2, 3),), ([2, 3],), (torch.Size([2, 3]),)):
        assert torch.rand(*size).shape == (2, 3)
        assert torch.randn(*size).shape == (2, 3)
    assert torch.rand(size=(2,)).shape == (2,)
    assert torch.rand(()).shape == ()
    assert torch.rand(0, 3).shape == (0, 3)
    assert (
        torch.randint(5, (2, 3)).shape == torch.randint(2, 5, (2, 3)).shape == torch.randint(high=5, size=[2, 3]).shape
    )
    assert torch.randperm(0).shape == (0,)


def test_dtypes() -> None:
    assert torch.rand(2).dtype is F32
    assert torch.rand(2, dtype=F64).dtype is F64
    assert torch.randint(5, (2,)).dtype is I64
    assert torch.randint(5, (2,), dtype=torch.bfloat16).dtype is torch.bfloat16
    assert torch.randperm(5, dtype=torch.int32).dtype is torch.int32
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(F64)
        assert torch.rand(2).dtype is F64
    finally:
        torch.set_default_dtype(before)
    assert torch.rand(2).dtype is F32


def test_options() -> None:
    assert torch.rand(2, requires_grad=True).requires_grad
    assert not torch.rand(2).requires_grad
    assert torch.rand(3, device="meta").device.type == "meta"
    out = torch.zeros(4)
    assert torch.rand(4, out=out) is out and float(out.sum()) != 0
    assert torch.randn(2, 3, out=torch.zeros(0)).shape == (2, 3)
    assert torch.rand(2, out=torch.zeros(2, dtype=F64)).dtype is F64
    with pytest.raises(RuntimeError, match="dtype Double does not match dtype of out parameter"):
        torch.rand(2, out=torch.zeros(2), dtype=F64)
    x = torch.zeros(2, 3).t()
    assert torch.rand_like(x).stride() == (1, 3)
    assert torch.rand_like(x, memory_format=torch.contiguous_format).stride() == (2, 1)
    assert torch.randint_like(torch.zeros(2), 5, dtype=I64).dtype is I64
    assert torch.rand_like(torch.zeros(2), requires_grad=True).requires_grad


def test_nothing_is_drawn_for_meta() -> None:
    state = torch.get_rng_state()
    torch.rand(5, device="meta"), torch.zeros(5, device="meta").normal_(), torch.randperm(5, device="meta")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_generator_leaves_the_default_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    g = torch.Generator()
    (
        torch.rand(3, generator=g),
        torch.randn(3, generator=g),
        torch.randint(5, (3,), generator=g),
        torch.randperm(3, generator=g),
    )
    (
        torch.zeros(3).uniform_(generator=g),
        torch.zeros(3).bernoulli_(0.5, generator=g),
        torch.bernoulli(torch.full((3,), 0.5), generator=g),
    )
    (
        torch.multinomial(torch.ones(3), 2, generator=g),
        torch.normal(0.0, torch.ones(3), generator=g),
        torch.poisson(torch.ones(3), generator=g),
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_generator_objects() -> None:
    g = torch.Generator().manual_seed(4)
    torch.rand(10, generator=g)
    for other in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g.clone_state()):
        assert torch.equal(other.get_state(), g.get_state())
    state = g.get_state()
    assert state.dtype is U8 and state.shape == (5056,)
    assert g.set_state(state) is g
    with pytest.raises(TypeError, match=r"expected a torch\.ByteTensor, but got list"):
        g.set_state([1])
    with pytest.raises(TypeError, match=r"RNG state must be a torch\.ByteTensor"):
        g.set_state(torch.zeros(5056))
    with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
        g.set_state(torch.zeros(5056, dtype=U8))


def test_module_functions() -> None:
    assert torch.manual_seed(5) is torch.default_generator
    assert torch.initial_seed() == 5
    assert torch.manual_seed("12").initial_seed() == 12
    assert torch.random.manual_seed is torch.manual_seed
    seed = torch.seed()
    assert torch.initial_seed() == seed
    with pytest.raises(ValueError):
        torch.manual_seed("a")
    with pytest.raises(ValueError, match="Overflow"):
        torch.manual_seed(2**64)


def test_fork_rng() -> None:
    torch.manual_seed(5)
    with torch.random.fork_rng():
        inside = torch.rand(3)
        torch.manual_seed(9)
    assert torch.equal(torch.rand(3), inside)
    with pytest.raises(KeyError), torch.random.fork_rng():
        torch.rand(3)
        raise KeyError
    after = torch.rand(3)
    torch.manual_seed(5)
    torch.rand(3)
    assert torch.equal(torch.rand(3), after)
    with torch.random.fork_rng(enabled=False):
        drawn = torch.rand(2)
    torch.manual_seed(5)
    torch.rand(6)
    assert torch.equal(torch.rand(2), drawn)


def test_fork_rng_knows_devices() -> None:
    with (
        torch.random.fork_rng(devices=[]),
        torch.random.fork_rng(enabled=False, devices=[0]),
        torch.random.fork_rng(device_type="cpu"),
    ):
        pass
    with pytest.raises(AssertionError, match="not compiled with CUDA enabled"), torch.random.fork_rng(devices=[0]):
        pass
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"), torch.random.fork_rng(device_type="nothing"):
        pass


# ***** errors *****

ERRORS = [
    (lambda: torch.rand(2, dtype=I64), NotImplementedError, "\"check_uniform_bounds\" not implemented for 'Long'"),
    (lambda: torch.randn(2, dtype=I64), NotImplementedError, "\"normal_kernel_cpu\" not implemented for 'Long'"),
    (lambda: torch.rand_like(torch.zeros(2, dtype=I64)), NotImplementedError, "check_uniform_bounds"),
    (lambda: torch.rand(-1), RuntimeError, "negative dimension -1"),
    (lambda: torch.rand(), TypeError, "rand"),
    (lambda: torch.rand(2.0), TypeError, "must be tuple of ints, not float"),
    (lambda: torch.rand("a"), TypeError, "must be tuple of ints, not str"),
    (lambda: torch.rand((2, 3), 4), TypeError, "invalid combination"),
    (lambda: torch.rand(2, foo=1), TypeError, "foo"),
    (lambda: torch.rand(2, generator=3), TypeError, "generator"),
    (lambda: torch.rand_like([1]), TypeError, "must be Tensor, not list"),
    (lambda: torch.zeros(3).uniform_(2, 1), RuntimeError, r"found from=2 > to=1"),
    (lambda: torch.zeros(3).uniform_(0, float("inf")), RuntimeError, "to is out of bounds for float"),
    (lambda: torch.zeros(3).uniform_(float("nan"), 1), RuntimeError, "from is out of bounds for float"),
    (lambda: torch.zeros(3, dtype=torch.float16).uniform_(0, 1e5), RuntimeError, "to is out of bounds for c10::Half"),
    (lambda: torch.zeros(3).uniform_(-3e38, 3e38), RuntimeError, "exceed the limit"),
    (lambda: torch.zeros(3).normal_(0, -1), RuntimeError, "normal expects std >= 0.0, but found std -1"),
    (lambda: torch.zeros(3).bernoulli_(2), RuntimeError, r"expects p to be in \[0, 1\], but got p=2"),
    (lambda: torch.zeros(3).bernoulli_(torch.tensor(1)), NotImplementedError, "bernoulli_tensor_cpu_p_"),
    (lambda: torch.zeros(2, 2).bernoulli_(torch.rand(3)), RuntimeError, "expanded size|must match"),
    (lambda: torch.bernoulli(torch.tensor([1.5])), RuntimeError, "0, 1"),
    (lambda: torch.bernoulli(torch.tensor([1])), NotImplementedError, "not implemented for 'Long'"),
    (lambda: torch.zeros(2, dtype=torch.complex64).bernoulli_(), NotImplementedError, "ComplexFloat"),
    (lambda: torch.zeros(3).exponential_(-1), RuntimeError, "lambda > 0.0, but found lambda=-1"),
    (
        lambda: torch.zeros(3, dtype=torch.int32).exponential_(),
        RuntimeError,
        "dtype must be a floating point but you specified Int",
    ),
    (lambda: torch.zeros(3).cauchy_(0, 0), RuntimeError, "sigma > 0.0, but found sigma=0"),
    (lambda: torch.zeros(3, dtype=torch.int32).cauchy_(), RuntimeError, "continuous probability distribution"),
    (lambda: torch.zeros(3).log_normal_(0, 0), RuntimeError, "std > 0.0, but found std=0"),
    (lambda: torch.zeros(3).geometric_(1), RuntimeError, r"p to be in \(0, 1\), but got p=1"),
    (lambda: torch.zeros(3, dtype=torch.bool).geometric_(0.5), NotImplementedError, "geometric_cpu"),
    (lambda: torch.zeros(3, dtype=torch.complex64).random_(), NotImplementedError, "random_kernel_cpu"),
    (lambda: torch.zeros(3, dtype=torch.uint16).random_(), NotImplementedError, "UInt16"),
    (lambda: torch.zeros(3).random_(5, 2), RuntimeError, "got from=5 >= to=2"),
    (lambda: torch.zeros(3).random_(0), RuntimeError, "got from=0 >= to=0"),
    (lambda: torch.zeros(3).random_(2.5), TypeError, "int"),
    (
        lambda: torch.zeros(3, dtype=torch.int32).random_(-(2**63), None),
        RuntimeError,
        "handles only int64, double, float and bfloat16",
    ),
    (lambda: torch.randint(5, 5, (2,)), RuntimeError, "got from=5 >= to=5"),
    (lambda: torch.randint(0, 300, (2,), dtype=U8), RuntimeError, "to - 1 is out of bounds for unsigned char"),
    (lambda: torch.randint(-1, 5, (2,), dtype=U8), RuntimeError, "from is out of bounds for unsigned char"),
    (lambda: torch.randint(0, 3, (2,), dtype=torch.bool), RuntimeError, "to - 1 is out of bounds for bool"),
    (lambda: torch.randint(0, 70000, (2,), dtype=torch.float16), RuntimeError, "to - 1 is out of bounds for c10::Half"),
    (lambda: torch.randint(0, 2, (2,), dtype=torch.complex64), RuntimeError, "integral, floating-point and boolean"),
    (lambda: torch.randint(0, 2**64, (2,)), ValueError, "Overflow"),
    (lambda: torch.randint(2.5, (3,)), TypeError, "must be int, not float"),
    (lambda: torch.randint(10), TypeError, "size"),
    (
        lambda: torch.randint(0, 5, (2,), requires_grad=True),
        RuntimeError,
        "floating point and complex dtype can require gradients",
    ),
    (lambda: torch.randperm(-1), RuntimeError, "negative dimension -1"),
    (lambda: torch.randperm(3.0), TypeError, "must be int, not float"),
    (lambda: torch.randperm(300, dtype=U8), RuntimeError, "uint8_t without overflow"),
    (lambda: torch.randperm(2050, dtype=torch.float16), RuntimeError, "n cannot be greater than 2049 for Half type"),
    (
        lambda: torch.randperm(2**24 + 2, dtype=torch.float32),
        RuntimeError,
        "n cannot be greater than 2\\^24\\+1 for Float type",
    ),
    (lambda: torch.randperm(3, dtype=torch.bool), NotImplementedError, "\"randperm\" not implemented for 'Bool'"),
    (lambda: torch.normal(torch.zeros(2), -1.0), RuntimeError, "found std -1"),
    (lambda: torch.normal(0.0, torch.tensor([-1.0])), RuntimeError, "all elements of std >= 0.0"),
    (lambda: torch.normal(0.0, torch.ones(2, dtype=torch.complex64)), RuntimeError, "non-complex"),
    (lambda: torch.normal(0.0, 1.0), TypeError, "normal"),
    (lambda: torch.normal(torch.zeros(3), torch.ones(2)), RuntimeError, "size|shape|broadcast"),
    (lambda: torch.poisson(torch.tensor([-1.0])), RuntimeError, "invalid Poisson rate"),
    (lambda: torch.poisson(torch.ones(2, dtype=I64)), NotImplementedError, "poisson_cpu"),
    (lambda: torch.multinomial(torch.tensor([1.0, -1.0]), 1), RuntimeError, "element < 0"),
    (lambda: torch.multinomial(torch.tensor([1.0, float("nan")]), 1, True), RuntimeError, "element < 0"),
    (lambda: torch.multinomial(torch.tensor([0.0, 0.0]), 1), RuntimeError, "sum of probabilities <= 0"),
    (lambda: torch.multinomial(torch.tensor([1.0, 2.0]), 3), RuntimeError, "without replacement"),
    (
        lambda: torch.multinomial(torch.tensor([1, 2]), 1),
        RuntimeError,
        "only supports floating-point dtypes for input, got: Long",
    ),
    (lambda: torch.multinomial(torch.rand(1, 1, 1), 1), RuntimeError, "1 or 2 dim"),
    (lambda: torch.multinomial(torch.rand(3), 0), RuntimeError, "n_sample <= 0"),
    (
        lambda: torch.multinomial(torch.rand(3), 1, out=torch.zeros(1)),
        RuntimeError,
        "expects Long tensor out, got: Float",
    ),
    (lambda: torch.zeros(2).expand(3, 2).uniform_(), RuntimeError, "single memory location"),
    (lambda: torch.zeros(2, requires_grad=True).uniform_(), RuntimeError, "leaf Variable that requires grad"),
    (lambda: torch.nn.functional.dropout(torch.ones(2), 1.5), ValueError, "between 0 and 1, but got 1.5"),
    (lambda: torch.dropout(torch.ones(2), -0.5, True), RuntimeError, "between 0 and 1, but got -0.5"),
    (lambda: torch.nn.functional.dropout(torch.ones(2, dtype=I64), 0.5), RuntimeError, "can't be cast"),
    (lambda: torch.nn.functional.dropout1d(torch.ones(2), 0.5), RuntimeError, "Expected 2D or 3D input"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    call, kind, text = ERRORS[number]
    with pytest.raises(kind, match=text):
        call()


def test_gaps_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"to - 1 is out of bounds \[-\(2\^24\), 2\^24\]"):
        torch.randint(0, 2**25, (3,), dtype=F32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.randint(0, 2**24, (3,), dtype=F32)


# ***** history *****


def test_overwriting_cuts_the_gradient() -> None:
    for name, args in (
        ("uniform_", ()),
        ("normal_", ()),
        ("bernoulli_", ()),
        ("exponential_", ()),
        ("random_", ()),
        ("geometric_", (0.5,)),
    ):
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        before = y._version
        assert getattr(y, name)(*args) is y
        assert y._version == before + 1
        assert y.grad_fn is not None and y.requires_grad
        (y * 3).sum().backward()
        assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_sampling_has_gradient_zero() -> None:
    x = torch.full((3,), 0.5, requires_grad=True)
    for y in (torch.bernoulli(x), torch.normal(x, 1.0), torch.normal(0.0, x), torch.normal(x, x), torch.poisson(x)):
        assert y.requires_grad
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert grad.tolist() == [0.0, 0.0, 0.0]
    assert not torch.multinomial(x, 2).requires_grad
    assert not torch.rand_like(x).requires_grad
    with torch.no_grad():
        assert not torch.bernoulli(x).requires_grad


def test_saved_tensors_notice() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    y.normal_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_dropout_gradient_is_the_mask() -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    values = set(y.tolist())
    assert len(values) == 2 and 0.0 in values and abs(max(values) - 1 / 0.75) < 1e-6
    assert torch.nn.functional.dropout(x, 0.25, training=False) is x
    assert torch.nn.functional.dropout(x, 0.0) is x
    assert torch.nn.functional.dropout(x, 1.0).sum().item() == 0.0
    z = torch.ones(5)
    assert torch.nn.functional.dropout(z, 0.5, inplace=True) is z


def test_feature_dropout_drops_channels() -> None:
    torch.manual_seed(0)
    y = torch.nn.functional.dropout2d(torch.ones(4, 8, 3, 3), 0.5)
    per_channel = y.reshape(32, 9)
    assert torch.equal(per_channel.amax(1), per_channel.amin(1))
    assert 0 < (per_channel[:, 0] == 0).sum().item() < 32
    with pytest.warns(UserWarning, match="Received a 2-D input to dropout2d"):
        torch.nn.functional.dropout2d(torch.ones(4, 8), 0.5)


def test_alpha_dropout_keeps_the_moments() -> None:
    torch.manual_seed(0)
    x = torch.randn(100_000)
    y = torch.nn.functional.alpha_dropout(x, 0.2, training=True)
    assert abs(y.mean().item()) < 0.02 and abs(y.std().item() - 1) < 0.02


def test_views_are_filled_in_place() -> None:
    base = torch.zeros(4, 6)
    torch.manual_seed(2)
    base[1:3, ::2].uniform_(1, 2)
    assert (base[1:3, ::2] >= 1).all() and base[0].sum() == 0 and base[1:3, 1::2].sum() == 0
    torch.manual_seed(2)
    assert torch.equal(torch.zeros(2, 3).uniform_(1, 2), base[1:3, ::2])


@pytest.mark.parametrize("bounds", [(9,), (-4, 9), (-300, 2000)])
@pytest.mark.filterwarnings("ignore:.*precision limitations:UserWarning")
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "int64", "int16"])
def test_randint_like_draws_what_randint_draws(name: str, bounds: tuple[int, ...]) -> None:
    dtype = getattr(torch, name)
    like = torch.zeros(5, 7, dtype=dtype)
    for x in (like, like.t(), like[:, ::2]):
        for _ in range(3):  # also where a plan is known
            torch.manual_seed(3)
            made = torch.randint_like(x, *bounds)
            torch.manual_seed(3)
            expected = torch.empty_like(x).random_(*(bounds if len(bounds) == 2 else (0, *bounds)))
            assert made.dtype is dtype and made.stride() == expected.stride() and torch.equal(made, expected)


# ***** dtypes that are not drawn *****

DRAWS = {
    "normal_kernel_cpu": (lambda x: x.normal_(), ("bool", "int8", "uint8", "int64", "uint16", "float8_e5m2")),
    "log_normal_cpu": (lambda x: x.log_normal_(), ("bool", "int8", "uint16", "complex64", "float8_e5m2")),
    "geometric_cpu": (lambda x: x.geometric_(0.5), ("bool", "uint16", "complex64", "float8_e4m3fn")),
    "bernoulli_scalar_cpu_": (lambda x: x.bernoulli_(), ("uint16", "complex64", "float8_e5m2")),
    "bernoulli_tensor_cpu_p_": (torch.bernoulli, ("bool", "int8", "int64")),
    "random_kernel_cpu": (lambda x: x.random_(), ("uint16", "complex64", "float8_e5m2")),
    "exponential_cpu": (lambda x: x.exponential_(), ("float8_e5m2",)),
    "cauchy_cpu": (lambda x: x.cauchy_(), ("float8_e5m2",)),
}


@pytest.mark.parametrize("kernel", DRAWS)
def test_dtypes_are_refused_where_there_is_something_to_draw(kernel: str) -> None:
    draw, names = DRAWS[kernel]
    for name in names:
        dtype = getattr(torch, name)
        with pytest.raises(NotImplementedError, match=f'^"{kernel}" not implemented for '):
            draw(torch.zeros(2, dtype=dtype))
        assert draw(torch.zeros(0, 3, dtype=dtype)).dtype is dtype  # as for PyTorch's, there is no kernel to reach


def test_uniform_numbers_and_integers_of_eight_bit_floats_are_refused_even_where_there_are_none() -> None:
    eight = torch.float8_e4m3fn
    for size in (0, 3):
        for call in (lambda n: torch.rand(n, dtype=eight), lambda n: torch.empty(n, dtype=eight).uniform_()):
            with pytest.raises(
                NotImplementedError, match="^\"check_uniform_bounds\" not implemented for 'Float8_e4m3fn'$"
            ):
                call(size)
        with pytest.raises(NotImplementedError, match="random_update_from_to"):
            torch.randint(3, (size,), dtype=eight)
        with pytest.raises(NotImplementedError, match="randperm"):
            torch.randperm(size, dtype=eight)
        with pytest.raises(NotImplementedError, match="poisson_cpu"):
            torch.poisson(torch.zeros(size).to(eight))
    assert torch.randn(0, dtype=torch.int16).shape == (0,)
    assert torch.empty(0, dtype=torch.int64).exponential_().shape == (0,)
    with pytest.raises(ValueError, match="^binomial only supports floating-point dtypes for count, got: Long$"):
        torch.binomial(torch.zeros(2, dtype=I64), torch.zeros(2, dtype=I64))
