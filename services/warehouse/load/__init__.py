"""The load job: offset ranges to Parquet files, published in one Delta commit a table."""
