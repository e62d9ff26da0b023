"""What calls derived, kept on disk: plans, programs, artifacts to be shared."""
