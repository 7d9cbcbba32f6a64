"""What `format("kafka2011")` has beyond messages: decoded events, and writing to topics."""
