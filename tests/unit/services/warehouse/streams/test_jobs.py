"""The list of the stream jobs; what they count is in tests/integration/test_spark_streams.py."""

from kafka2011.services.warehouse.streams.jobs import BY_NAME, JOBS


def test_names_are_unique_and_jobs_have_topics() -> None:
    assert len(BY_NAME) == len(JOBS)
    assert all(job.topics for job in JOBS)
