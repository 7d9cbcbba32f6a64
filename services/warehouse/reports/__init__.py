"""Reports on the tables.

traffic, traffic_counts               the traffic report: definitions, and what a task counts
traffic_text, traffic_job             its tables and picture, the job
activity, charts, activity_job        the reports on member activity: definitions, output, the job
"""
