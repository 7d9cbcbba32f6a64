"""Faults applied on purpose: processes killed or paused, links cut or slowed.

actions     pure: which faults there are, and the requests that ask for them
processes   applies them to the processes of an embedded deployment
containers  applies them to containers
"""
