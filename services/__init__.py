"""One package a process: core.py decides, app.py wires, __main__-less; `kafka2011` starts them."""
