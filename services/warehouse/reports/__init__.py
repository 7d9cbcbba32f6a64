"""Reports on the tables: traffic, and what members do."""
