"""A replica set in one process: the machines of `broker.replication`, and everything around them
made of values, so that any order of events and any fault can be had, and had again.

    disk.py        logs with durable and cached entries, the journal, wiped and restored directories
    registry.py    the state's node, sessions, late and lost answers, readings that are out of date
    world.py       hosts, links, readers, clients, operators; every action by name
    invariants.py  what holds after every step
    walk.py        random walks, replaying a schedule, making it shorter
    mutants.py     machines with one rule broken each; every one must be found
"""
