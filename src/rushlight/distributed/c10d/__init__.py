"""What `torch.distributed` is made of: groups, collectives, messages, objects."""
