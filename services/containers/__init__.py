"""The deployment in containers, seen from the host: what runs, and the demo on it."""
