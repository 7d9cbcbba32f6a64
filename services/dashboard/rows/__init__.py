"""The dashboard's tables as plain rows. Pure."""
