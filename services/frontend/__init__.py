"""The frontend: a load generator that sends a web access log or synthetic member activity.

input_file   an access log: opened by its content; lines: its bytes as lines, whatever their length
followed_log an access log that grows, through rotation and truncation
access_log   one line as an event, or as an event of its unreadable side topic
access_line, json_lines, log_format   the notations in which a line can be written
synthetic    member activity of a seed and a rate; members and campaigns: whose and which
sources      either of them as batches, with positions to resume after
start        decides where a frontend starts; schemas: the first bytes of its events
delivery     at least once: send, barrier, journal, send again; keyed: events that have a key
app          the process; progress: what it reports of itself
"""
