"""The Spark data source `kafka2011`: options, planning on the driver, rows on the executors."""
