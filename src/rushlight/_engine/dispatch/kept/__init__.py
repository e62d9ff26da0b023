"""Plans, programs and shareable artifacts, kept on disk."""
