"""Archives of TorchScript, as PyTorch writes them."""
