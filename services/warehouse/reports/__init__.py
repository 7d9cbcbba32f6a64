"""Reports on the tables.

traffic, traffic_text, traffic_job    the traffic report: figures, tables and picture, the job
activity, charts, activity_job        the reports on member activity: definitions, output, the job
"""
