"""The warehouse: the offline brokers' topics as Delta tables, and what reads them, on Spark.

load/         the load job: offset ranges to Parquet files, published in one Delta commit a table
upkeep/       compaction, retention and vacuum of the tables
reports/      the traffic report and the reports on member activity
streams/      stream jobs on topics
data_source/  what `format("kafka2011")` has beyond messages: decoded events, and writing
shell/        one SQL statement, or a Python prompt
schedule/     runs commands at their times
commands/     the arguments of the jobs, for `kafka2011` and for spark-submit
"""
