"""Exponential families: densities h(x) exp(<eta, t(x)> - A(eta)), whose entropy follows from the log normaliser A."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A distribution with natural parameters eta.

    A subclass may define `_natural_params` (a tuple), `_log_normalizer` (of them) and `_mean_carrier_measure` (the mean
    of log h); entropy, and the divergence between two of a family, follow from them by differentiating the log
    normaliser (Nielsen and Nock, "Entropies and cross-entropies of exponential families", 2010).
    """

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Any:
        """A(eta) - <eta, grad A(eta)> - E log h."""
        carrier = self._mean_carrier_measure
        normalizer, slopes, eta = differentiated_normalizer(self)
        found = normalizer - carrier
        for parameter, slope in zip(eta, slopes, strict=True):
            found = found - (parameter * slope).reshape(*self._batch_shape, -1).sum(-1)
        return found


def differentiated_normalizer(family: ExponentialFamily) -> tuple[Any, Any, list[Any]]:
    """(A(eta), its gradients, eta).  Both can be differentiated further, by parameters that want it too."""
    with rushlight.enable_grad():
        eta = [p if p.requires_grad else p.detach().requires_grad_() for p in family._natural_params]
        normalizer = family._log_normalizer(*eta)
        return normalizer, rushlight.autograd.grad(normalizer.sum(), eta, create_graph=True), eta
