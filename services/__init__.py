"""The deployment's processes, a package each, which `kafka2011 COMMAND` starts.

In each, config.py has the settings, app.py wires and runs; decisions are in modules without IO.
web, registration and heartbeat are shared by several.
"""
