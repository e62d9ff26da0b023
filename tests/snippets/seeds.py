"""Seeds and what is drawn from them."""

import torch

torch.manual_seed(42)
first = torch.rand(3, 3), torch.randn(3, 3), torch.randperm(10)
print(*first, sep="\n")
torch.manual_seed(42)
print([torch.equal(a, b) for a, b in zip(first, (torch.rand(3, 3), torch.randn(3, 3), torch.randperm(10)))])
print(first[0].min() >= 0, first[0].max() < 1, sorted(first[2].tolist()))
print(torch.initial_seed(), torch.default_generator.initial_seed())
state = torch.get_rng_state()
a = torch.rand(2)
torch.set_rng_state(state)
print(torch.equal(a, torch.rand(2)), state.dtype, state.type())
print(
    torch.randint(3, 9, (6,)),
    torch.bernoulli(torch.tensor([0.0, 1.0, 0.5])),
    torch.multinomial(torch.tensor([0.0, 3.0, 1.0]), 5, replacement=True),
)
print(torch.normal(torch.zeros(3), torch.ones(3)), torch.poisson(torch.tensor([0.0, 2.0, 9.0])))
torch.manual_seed(42)
print(isinstance(torch.seed(), int), torch.initial_seed() != 42)
