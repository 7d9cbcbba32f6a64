"""Sampling: asks processes and clusters once a second."""
