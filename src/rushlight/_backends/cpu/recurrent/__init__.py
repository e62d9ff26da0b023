"""Recurrent layers: all steps of some sequences in one piece."""
