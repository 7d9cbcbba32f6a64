"""Events: schemas and topics, encoding and decoding, the header peek, counting by window.

topics, schemas     names of topics, tables and schemas; the shipped schemas
forms, settings     which topic is in which form, as a value and as a setting
header, envelope    the fields that every event begins with; log lines as events
codec, topic_codec  encode and decode, in the 2011 form and in the form of any topic
codec_source        a codec's settings, to rebuild it in another process
plain, primitives   payloads without Avro; Avro's primitive types as bytes
errors              what is wrong with the bytes of an event
bounds              how deep an event may nest, and how many items it may have
registry_client     a schema registry's ids and schemas, kept in schema_cache
peek, origin        time and server of a message, without decoding its body; compiled and pure
windows, monitoring audit windows, monitoring events and heartbeats
sequences           which monitoring events of a producer were counted
retention           the time from which a log that was cut is complete
"""
