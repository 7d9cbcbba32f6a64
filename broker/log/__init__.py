"""Storage: the segment files of every partition. No sockets, no ZooKeeper.

Time and files are injected: `file_layer` is the seam where tests put a disk that fails.
"""
