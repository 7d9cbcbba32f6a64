"""The file tailer: follows log files through rotation and truncation and sends their lines."""
