"""Steps of optimizers over all parameters at once."""
