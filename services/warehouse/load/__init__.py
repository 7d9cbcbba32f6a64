"""The load job: offset ranges of topics to Parquet files, published in one Delta commit a table.

plan           decides: ranges, gaps, which task reads what (pure)
tasks          on an executor: read, decode, count, write files
columns        a topic's events to columns, which grow with its schemas; plain_columns: without Avro
schema_columns one schema's events to columns; fast_columns and _columns_compiled: the same, fast
arrow_types    Avro's types as Arrow's; column_types: how a schema's columns fit the table's;
               column_changes: what the next schema does to them, in words
quarantine_rows  reads messages that are in quarantine
source_offsets where the brokers' logs begin and end; lineages: is what was loaded still there?
parquet_files  rows to Parquet files, one an hour
job            one load; topic_tables: the tables that it opens and fills; lag: what is left
app, progress  the process around it, and what it reports
replay         quarantined messages that can be read now become rows
reset          has the next load read a replaced log from its start
"""
