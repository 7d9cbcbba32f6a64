"""The whole deployment as local processes on loopback, data under var/ (contracts section 7).

config.py    the settings: how many of each process, which source
topology.py  decides: settings and free ports -> the processes, their commands and environments
processes.py the effects on one process: start, signal, its state file, its descendants
supervisor.py keeps them: starts in order, waits until each serves, reports those that end
control.py   `start NAME` and `status` from another terminal, over a local socket
demo.py      the story of `make demo`: run, drain, report, audit, summary
display.py   the live table of the demo
"""
