"""Faults on purpose: processes and links, or containers."""
