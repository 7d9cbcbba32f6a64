"""The frontend: a load generator that sends a web access log or synthetic member activity.

lines       bytes of a file -> lines, whatever their length
access_log  one line -> an access-log event, or an event of its unreadable side topic
synthetic   seed and rate -> what members do; and how much of it, without doing it
sources     either of them as batches with positions to continue from
journal     what was handed to the brokers, kept beside the producer
delivery    at least once: send, barrier, journal, send again
app         the process
"""
