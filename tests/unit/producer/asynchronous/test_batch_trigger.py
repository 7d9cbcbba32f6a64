from kafka2011.producer.asynchronous.batch_trigger import BatchTrigger


def test_a_batch_is_due_by_number_or_by_time() -> None:
    trigger = BatchTrigger(batch_size=3, queue_time=5000, now=0)
    assert not trigger.is_due(2, 4999)
    assert trigger.is_due(3, 0)
    assert trigger.is_due(1, 5000)
    assert not trigger.is_due(0, 9000)
    assert trigger.wait(2000) == 3000
    trigger.dispatched(6000)
    assert not trigger.is_due(1, 10_999)
    assert trigger.wait(20_000) == 0
