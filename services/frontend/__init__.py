"""The frontend: a load generator that sends a web access log or synthetic member activity.

lines       bytes of a file -> lines, whatever their length
access_log  one line -> an access-log event, or an event of its unreadable side topic
synthetic   seed and rate -> member activity, and its counts without sending it
sources     either of them as batches with positions to resume from
journal     what the brokers have confirmed, and the source's position
delivery    at least once: send, barrier, journal, send again
app         the process
"""
