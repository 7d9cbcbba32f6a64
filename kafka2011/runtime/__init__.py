"""What every process needs once: configuration, logs, metrics, signals, clock.

Imports nothing of ours.
"""
