"""`torch.fx.passes.dialect`: passes over graphs of operators."""
