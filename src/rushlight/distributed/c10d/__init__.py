"""The parts of `torch.distributed`: groups, collectives, messages, objects."""
