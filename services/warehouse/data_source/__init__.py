"""The Spark format `kafka2011`: decoded events and writing; `consumer.spark` reads messages.

decoded   events with their own fields as columns, and the whole format for `pyspark_kafka2011`
writing   DataFrames into topics
"""
