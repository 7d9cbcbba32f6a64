"""The page's tables as plain rows. Pure."""
