"""Convolutions: through panels, direct, and by Winograd's transforms."""
