"""What the tables of a warehouse raise."""


class WarehouseError(Exception):
    """The warehouse cannot take this load."""


class DamagedLog(WarehouseError, ValueError):
    """A file of a table's log cannot be read for what it holds; the text names the file."""
