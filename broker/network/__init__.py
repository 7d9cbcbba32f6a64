"""Sockets: accepts connections, reads bytes into frames, sends responses, keeps deadlines.

A connection's requests are handled by a session of its protocol (`channel.Session`).
"""
