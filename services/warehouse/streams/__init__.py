"""The stream jobs: topics to files or to a topic, on Structured Streaming."""
