"""The asynchronous producer's engine: queues, batches, a sender thread per broker, user hooks.

intake          the bounded queue's per-message steps, compiled and pure
broker_queue    one broker's queue and sender thread: batches, retries, flush, close
batch_trigger   when a queue's messages are sent
batch_encoder   a batch to the message sets of its requests
rerouting       messages that a broker did not accept, to the brokers they would go to now
callbacks       0.7's callback handler and event handler
"""
