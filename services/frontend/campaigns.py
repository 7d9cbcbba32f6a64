"""The advertisers of the synthetic activity: their campaigns, prices and budgets."""

from typing import Final, NamedTuple

MICROS: Final = 1_000_000


class Campaign(NamedTuple):
    """A campaign; prices and budget in millionths of its currency; one of the prices is 0."""

    name: str
    impression_micros: int
    click_micros: int
    budget_micros: int  # per hour


CAMPAIGNS: Final = (
    Campaign("hadoop-training", 2_000, 0, 400 * MICROS),
    Campaign("cloud-hosting", 5_000, 0, 450 * MICROS),
    Campaign("executive-mba", 12_000, 0, 2_500 * MICROS),
    Campaign("java-jobs", 0, 400_000, 9_000 * MICROS),
    Campaign("office-chairs", 0, 150_000, 900 * MICROS),
    Campaign("travel-deals", 0, 250_000, 4_000 * MICROS),
)
