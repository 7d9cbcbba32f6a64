"""Events: schemas and topics, encoding and decoding, the header peek, counting by window.

topics, schemas     names of topics, tables and schemas; the shipped schemas
forms, header       the bytes in front of an event; which topic is in which form
codec, topic_codec  encode and decode, in the 2011 form and in the form of any topic
bounds              how deep an event may nest, and how many items it may have
registry_client     a schema registry's ids and schemas, kept in schema_cache
peek                headers without decoding bodies, counts by window; compiled and pure
windows, monitoring audit windows, monitoring events and heartbeats
"""
