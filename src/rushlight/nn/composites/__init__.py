"""Functions of `nn.functional` that are plain Python over other functions, by topic."""
