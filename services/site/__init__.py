"""What the site does with its events: trending, search, ads, abuse, newsfeed, operations."""
