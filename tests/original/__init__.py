"""Side by side with the original: Kafka 0.7.2's own classes, which you provide.

`make test-original ORIGINAL_CLASSPATH=...` (docs/testing.md). Not part of `make test`: the
project holds no code of the original and downloads none.
"""
