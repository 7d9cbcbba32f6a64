"""Observes processes and clusters once a second."""
