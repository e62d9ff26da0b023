"""`torch.distributed.nn.api`: where `RemoteModule` lives."""
