"""Counting what was sent: the journal of durable counts, and the monitoring events made of them."""
