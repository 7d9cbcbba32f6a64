"""A replica set in one process: the machines of `broker.replication`, and everything around them
made of values, so that any order of events and any fault can be produced, and reproduced.

    disk.py        logs with durable and cached entries, the journal, wiped and restored directories
    registry.py    the state's node, sessions, late and lost answers, readings that are out of date
    hosts.py       machines, processes, the ends of links
    outside.py     clients, readers, operators
    world.py       all of it together; every action by name
    invariants.py  what holds after every step
    walk.py        random walks, replaying a schedule, making it shorter
    play.py        schedules told in a few words
    mutants.py     machines with one rule broken each; every one must be found
    planted.py     faults in the executor, the link and the outbox; these must be found, too
"""
