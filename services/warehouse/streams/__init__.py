"""Stream jobs on Structured Streaming, and the formats they read and write."""
