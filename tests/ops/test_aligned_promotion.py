"""Functions that give their operands the same dims before they meet: an operand without dims is promoted like the others.

The sweep over every composite with such operands, 11,160 calls beside PyTorch, found these.
"""

import pytest

import rushlight as torch

F = torch.nn.functional
HALF, DOUBLE = torch.full((2, 2), 3.0, dtype=torch.float16), torch.tensor(2.0, dtype=torch.float64)
SHORT, LONG = torch.full((2, 2), 3, dtype=torch.int16), torch.tensor(2)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", (F.mse_loss, F.l1_loss, F.smooth_l1_loss))
def test_losses(loss):
    for a, b in ((HALF, DOUBLE), (DOUBLE, HALF)):
        assert loss(a, b).dtype is loss(a, b, reduction="none").dtype is torch.float64
    assert loss(HALF, HALF).dtype is torch.float16 is F.huber_loss(HALF, DOUBLE).dtype  # that one aligns nothing


def test_products():
    assert torch.kron(SHORT, LONG).dtype is torch.kron(LONG, SHORT).dtype is torch.int64
    assert torch.kron(LONG, torch.tensor(1, dtype=torch.int16)).dtype is torch.int64
    assert torch.einsum("ij,->ij", SHORT, LONG).dtype is torch.einsum("...,...->...", LONG, SHORT).dtype is torch.int64
    assert torch.einsum("ij,->ij", HALF, DOUBLE).dtype is torch.float64
    assert F.cosine_similarity(HALF, DOUBLE, 0).dtype is torch.float64
    assert (SHORT * LONG).dtype is torch.int16  # where nothing is aligned, an operand without dims counts as a number


def test_differences():
    x = torch.tensor([1, 2])
    made = torch.diff(x, prepend=torch.tensor([0.5]))  # was cut to the dtype of the input
    assert made.dtype is torch.float32 and made.tolist() == [0.5, 1.0]
    for n in (0, 1):
        for ends in ({"prepend": torch.tensor(1)}, {"append": torch.ones(1, 1)}):
            with pytest.raises(RuntimeError, match="diff expects prepend or append to be the same dimension as input"):
                torch.diff(x, n, **ends)


def test_several_results_without_a_derivative():
    """Gradients of results of other shapes were added up on their way to the error."""
    x = torch.randn(2, 3, 4, requires_grad=True)
    a, tau = torch.geqrf(x)
    with pytest.raises(NotImplementedError, match="derivative for aten::geqrf is not implemented"):
        (a.sum() + tau.sum()).backward()
