"""Gaussian processes, probabilistic programs and differential equations: gpytorch, botorch, pyro, torchdiffeq."""

from __future__ import annotations

from tests.packages.environment import needs


@needs("gpytorch")
def test_gpytorch(same) -> None:
    import gpytorch
    import torch

    x = torch.linspace(0, 1, 20)
    y = torch.sin(6.28 * x) + 0.1 * torch.cos(20 * x)

    class Process(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(x, y, likelihood)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    same("losses", losses, atol=1e-4)
    same("fitted", [model.covar_module.base_kernel.lengthscale, likelihood.noise])
    model.eval(), likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        told = likelihood(model(torch.tensor([0.25, 0.77])))
    same("prediction", [told.mean, told.variance, *told.confidence_region()], rtol=1e-3)


@needs("botorch")
def test_botorch(same) -> None:
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(0)
    x = torch.rand(10, 2, dtype=torch.double)
    y = -(x - 0.5).pow(2).sum(1, keepdim=True)
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    box = torch.stack([torch.zeros(2), torch.ones(2)]).double()
    best, _ = optimize_acqf(
        LogExpectedImprovement(model, best_f=y.max()), bounds=box, q=1, num_restarts=3, raw_samples=16
    )
    same("candidate", best, rtol=1e-2)


@needs("pyro")
def test_pyro(same) -> None:
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO, TraceEnum_ELBO, config_enumerate
    from pyro.infer.autoguide import AutoNormal
    from pyro.optim import Adam

    pyro.set_rng_seed(0)
    pyro.clear_param_store()
    data = torch.cat([torch.ones(6), torch.zeros(4)])

    def model(data):
        fairness = pyro.sample("fairness", dist.Beta(10.0, 10.0))
        with pyro.plate("tosses", len(data)):
            pyro.sample("toss", dist.Bernoulli(fairness), obs=data)

    def guide(data):
        a = pyro.param("a", torch.tensor(15.0), constraint=dist.constraints.positive)
        b = pyro.param("b", torch.tensor(15.0), constraint=dist.constraints.positive)
        pyro.sample("fairness", dist.Beta(a, b))

    inference = SVI(model, guide, Adam({"lr": 0.0005, "betas": (0.9, 0.999)}), loss=Trace_ELBO())
    same("losses", [inference.step(data) for _ in range(30)])
    same("parameters", [pyro.param("a"), pyro.param("b")])
    chain = MCMC(NUTS(model), num_samples=20, warmup_steps=20, disable_progbar=True)
    chain.run(data)
    same("NUTS", chain.get_samples()["fairness"].mean(), rtol=1e-2)
    pyro.clear_param_store()
    pyro.set_rng_seed(1)
    automatic = SVI(model, AutoNormal(model), Adam({"lr": 0.01}), Trace_ELBO())
    same("AutoNormal", [automatic.step(data) for _ in range(3)])

    @config_enumerate
    def mixture(x):
        weights = pyro.param("weights", torch.tensor([0.4, 0.6]), constraint=dist.constraints.simplex)
        places = pyro.param("places", torch.tensor([-1.0, 1.0]))
        with pyro.plate("points", len(x)):
            which = pyro.sample("which", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(places[which], 1.0), obs=x)

    summed = SVI(mixture, lambda x: None, Adam({"lr": 0.1}), TraceEnum_ELBO(max_plate_nesting=1))
    same("enumerated", [summed.step(torch.tensor([-2.0, -1.8, 1.0, 1.4])) for _ in range(3)])


@needs("torchdiffeq")
def test_torchdiffeq(same) -> None:
    import torch
    from torchdiffeq import odeint, odeint_adjoint

    torch.manual_seed(0)

    def swing(t, y):
        return torch.stack([y[1], -y[0]])

    start = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    times = torch.linspace(0, 3, 5, dtype=torch.float64)
    for method in ("dopri5", "dopri8", "rk4", "midpoint", "adaptive_heun", "implicit_adams"):
        same(method, odeint(swing, start, times, method=method), rtol=1e-8)
    odeint(swing, start, times)[-1, 0].backward()
    torch.testing.assert_close(start.grad, torch.stack([times[-1].cos(), times[-1].sin()]), rtol=1e-5, atol=1e-5)

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(2, 2).double()

        def forward(self, t, y):
            return torch.tanh(self.inner(y))

    field = Field()
    odeint_adjoint(field, start, times)[-1].sum().backward()
    same("adjoint", [field.inner.weight.grad, field.inner.bias.grad], rtol=1e-7)
