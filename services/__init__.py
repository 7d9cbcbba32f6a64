"""The deployment's processes, a package each, which `kafka2011 COMMAND` starts.

Where a package is a process, config.py has its settings and app.py wires and runs it; decisions are
in modules without I/O. web, registration, heartbeat and rates are shared by several. trace and
containers have no process of their own; embedded runs all the others.
"""
