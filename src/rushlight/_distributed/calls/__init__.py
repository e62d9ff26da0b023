"""Messages between the workers of a job, each with an answer: what `torch.distributed.rpc` is built on."""
