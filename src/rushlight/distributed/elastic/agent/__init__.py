"""`torch.distributed.elastic.agent`: see `torch.distributed.elastic.agent.server`."""
