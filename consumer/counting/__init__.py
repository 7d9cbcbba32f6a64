"""Counting what a group has read, and validating it against the producers' monitoring events."""
