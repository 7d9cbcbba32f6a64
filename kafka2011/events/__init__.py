"""What is said: event schemas, encode and decode, the header peek, counting by window.

No sockets, no clock. Imports nothing of ours.
"""
