"""The audit: counts every tier by reading it and compares with what the producers say they sent."""
