"""The Spark data source `kafka2011`, for messages as they are.

options     its options, as one frozen value
planning    on the driver: offsets of partitions, ranges
reading     on an executor: a range, through a broker's restart
rows        messages to Arrow batches; _rows_compiled: the same, fast
quarantine  files of unreadable messages
source      Spark's classes

What the format has beyond messages (decoded events, writing) is in services/warehouse/data_source.
"""
