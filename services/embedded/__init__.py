"""The whole deployment as local processes on loopback, with data under var/.

config.py     the settings: the number of each process, the source of events
topology.py   pure: settings and free ports -> processes, their commands and environments
processes.py  one process: start, signal, state file, descendants
supervisor.py all processes: starts in order, waits until each serves, reports those that end
control.py    requests from another terminal (`start NAME`), over a local socket
story.py      pure: follows a run to its end, shared with the containers' demo
demo.py       `make demo`: run, drain, report, audit, summary
display.py    the live table of the demo
"""
