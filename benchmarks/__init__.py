"""One file per question; `python -m benchmarks` measures all of them and prints the table.

Everything is measured in one run on one machine through the public API (`Producer.send`, the
consumer iterator: one call a message, or a list of 50 in one call), several runs, medians. Rows
that go below the API say so. Results are kept as JSON under var/benchmarks/.
"""
