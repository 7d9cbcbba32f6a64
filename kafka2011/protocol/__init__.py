"""Bytes to objects and back, for the Kafka 0.7 wire and disk format.

Sans-IO: no socket, no file, no clock, no thread, no ZooKeeper, and nothing else of ours is
imported here. The modules, in the order of dependence:

    errors        which side is at fault, and whether to try again
    names         which topic and group names are legal
    message       the layout of one entry, written once
    layout        the fields of requests, written once
    checksum      CRC-32
    compression   gzip and snappy in the JVM's forms, with ceilings
    _hot_pure     the loops over message sets, in Python
    _hot_compiled their twin in Cython, built where there is a C compiler
    hot           picks one of the two at import
    message_set   what the rest of the project calls
    lineage       which history of a log an offset belongs to
    framing       the size that stands before each request and response
    requests      the five requests of 0.7, and three of our own
    responses     the three responses of 0.7, and two of our own

Every decoder keeps one promise: arbitrary bytes either parse or raise a `RemoteProtocolError`
(`InvalidMessage` is one). Any other exception is a bug here.
"""
