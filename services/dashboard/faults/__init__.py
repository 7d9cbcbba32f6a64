"""Faults applied on purpose: processes killed or paused, links cut or slowed, containers."""
