"""The audit: counts every tier by reading it and compares with what producers reported.

readers/ read brokers and tables into books/, with payloads.py, counting the servers that
server_filter.py admits; judging.py has verdicts.py judge each open cell; restarts.py says which
windows a restart excuses; losses.py says what is lost though no cell lacks it; summary.py and
report.py make the JSON that endpoints.py and metrics.py serve; groups.py asks consumer groups what
they read; recount/ counts everything again from the messages. docs/audit.md describes it.
"""
