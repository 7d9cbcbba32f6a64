"""Reading: the simple consumer, the group consumer with its streams, and bounded range reads."""
