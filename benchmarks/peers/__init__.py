"""Other systems beside this one, in one run on one machine: `python -m benchmarks.peers`.

A peer takes part when its program is installed (where it comes from is named when it is not). Each
is started by us on free ports with a directory of its own, and stopped. Our side uses the public
API; the peers get raw sockets, large pipelines and readers that only count, to their advantage.
"""
