"""The dashboard: both datacenters live on one page (docs/dashboard.md).

config.py      settings
exposition.py  reads the text that /metrics answers
core.py        decides: is a process up, how fast, how far behind; pure
looks.py       what one round of looking found, and the metrics asked for
flows.py       processes and edges as rows; pure
storage.py     partitions and topics as rows; pure
groups.py      groups, lag history, rebalances as rows; pure
wall.py        the audit as rows; pure
sections.py    all of them together, events; pure
deltas.py      what changed since the last sample, kept for a bounded time
scraping.py    asks the processes over HTTP
clusters.py    asks the ZooKeepers: processes, brokers, topics, groups
jobs.py        reads the warehouse's commits and the reports' pictures
messages.py    reads messages of a partition, bounded
chaos.py       breaks things, where that is enabled
app.py         wires it: sampler, pages, stream
static/        the page itself: hand-written modules, no foreign address
"""
