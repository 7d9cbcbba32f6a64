"""The audit: counts every tier by reading it and compares with what producers reported.

readers/ read brokers and tables into books/; verdicts.py judges cells; summary.py and report.py
make the JSON that endpoints.py and metrics.py serve; recount/ counts everything again from the
messages. docs/audit.md describes it.
"""
