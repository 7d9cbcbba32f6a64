"""The whole deployment as local processes on loopback, with data under var/.

config.py     the settings: the number of each process, the source of events
topology.py   pure: settings and free ports -> processes, their commands and environments
processes.py  one process: start, signal, probe, state file
supervisor.py all processes: starts and stops in order, reports those that end
control.py    requests from another terminal, the record of what runs, one deployment a directory
running.py    reads the records of deployments that run below the current directory
demo_progress.py   pure: follows a run to its end, shared with the containers' demo
demo.py       `make demo`: run, drain, report, audit, summary
demo_input.py the access log that a demo sends
lost_leader.py `make demo REPLICAS=3`: its leader is killed, and its disk deleted
root_directory.py  whether a directory may be used, gone on with or emptied
store_tables.py    the tables in an object store, where they are not below the directory
display.py    the live table of the demo
"""
