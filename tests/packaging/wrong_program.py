"""A user's program with mistakes that a type checker finds: each line marked `wrong`, no other."""

import array

from kafka2011 import Consumer, Producer, SimpleConsumer
from kafka2011.producer import AioProducer, Part, ProducerConfig, ShippingHandler


class Click:
    def encoded(self) -> bytes:
        return b"click"


payloads: list[bytes] = [b"a"]
producer = Producer(broker_list="0:127.0.0.1:9092", batch_size=200, queue_time_ms="100")
producer.send("t", b"a")
producer.send("t", payloads, key=7)
producer.send("t", [b"a", bytearray(b"b")])
producer.send("t", array.array("b"))
producer.send_parts([Part("t", [b"a"])])
producer.send("t", 5)  # wrong
producer.send("t", "text")  # wrong
producer.send("t", ["text"])  # wrong
producer.send("t", (b"a",))  # wrong
producer.send(5, b"a")  # wrong
producer.send_parts([Part("t", ["text"])])  # wrong
Producer(broker_lst="0:127.0.0.1:9092")  # wrong
Producer(broker_list=9092)  # wrong
Producer(broker_list="0:127.0.0.1:9092", batch_size=1.5)  # wrong
Producer("0:127.0.0.1:9092")  # wrong

clicks = Producer(zk_connect="127.0.0.1:2181", serializer=Click.encoded)
clicks.send("t", Click())
clicks.send("t", [Click(), Click()])
clicks.send("t", b"a")  # wrong
declared: Producer[Click] = Producer(ProducerConfig(zk_connect="127.0.0.1:2181"))
declared.send("t", Click())
declared.send("t", b"a")  # wrong


def passed_on(any_producer: Producer) -> None:
    any_producer.send("t", payloads)
    any_producer.send("t", 5)  # wrong


async def asynchronous() -> None:
    async with AioProducer(broker_list="0:127.0.0.1:9092", pending_max=10) as aio:
        await aio.send("t", payloads)
        await aio.send("t", 5)  # wrong
    AioProducer(brokers="0:127.0.0.1:9092")  # wrong


passed_on(producer)
passed_on(clicks)  # wrong
ShippingHandler("t", broker_list="0:127.0.0.1:9092")
ShippingHandler("t", broker_lst="0:127.0.0.1:9092")  # wrong
Consumer(group_id="g", consumer_timeout_ms=5000, autocommit_enable=False)
Consumer(group_id="g", consumer_timeout="5000")  # wrong
Consumer(group_id=5)  # wrong
Consumer()  # wrong
simple = SimpleConsumer("127.0.0.1", 9092, socket_timeout_ms=1000)
simple.fetch("t", 0, offset=0, size_max=1000)
simple.fetch("t", 0, offset="0", size_max=1000)  # wrong
SimpleConsumer("127.0.0.1", "9092")  # wrong
SimpleConsumer("127.0.0.1", 9092, timeout_ms=1000)  # wrong
