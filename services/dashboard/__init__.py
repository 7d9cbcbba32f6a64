"""The dashboard: both datacenters live on one page (docs/dashboard.md).

config.py      settings
exposition.py  reads the text that /metrics answers
core.py        decides: is a process up, how fast, how far behind; pure
burrow.py      decides: a group's verdict by Burrow's rules; pure
sections.py    the page's tables as plain rows, from what was collected; pure
deltas.py      what changed since the last sample, kept for a bounded time
scraping.py    asks the processes over HTTP
clusters.py    asks the ZooKeepers: processes, brokers, topics, groups
jobs.py        reads the warehouse's commits and the reports' pictures
messages.py    reads messages of a partition, bounded
chaos.py       breaks things, where that is enabled
app.py         wires it: sampler, pages, stream
static/        the page itself: hand-written modules, no foreign address
"""
