"""The load job: offset ranges of topics to Parquet files, published in one Delta commit a table.

plan           decides: ranges, gaps, which task reads what (pure)
tasks          on an executor: read, decode, count, write files
columns        events to columns; fast_columns and _columns_compiled: the same, fast
parquet_files  rows to Parquet files, one an hour
job            one load
app, progress  the process around it, and what it reports
reset          has the next load read a replaced log from its start
"""
