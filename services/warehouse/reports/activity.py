"""The reports on member activity, as Spark SQL: the paper's own uses of its logs.

    click-through-items, -positions   relevance, ads: how often what was shown was clicked
    top-searches                      what members look for
    co-viewed                         recommendations: pages viewed by the same members
    sessions                          the feed: how long visits are
    abuse-candidates                  security: scrapers and password guessers

They read only the warehouse's tables, each event once by its guid; times are event_time, UTC. This
module has the definitions only; `activity_job` runs them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

TOP = 20
SESSION_GAP_MINUTES = 30
# A member with more pages than this in a day is a program; its pairs would drown the others'.
CO_VIEW_PAGES_MAX = 200
CO_VIEW_FIRST_PAGES = 50  # whose pairs are counted first, to see which others can matter
SCRAPER_VIEWS_MIN = 30  # of profiles, in one minute
SCRAPER_SHARE_MIN = 0.9  # of all that the member viewed in that minute
GUESSER_FAILURES_MIN = 5  # failed logins from one host in one hour
# The statements name these with a colon.
PARAMETERS = {
    "top": TOP,
    "gap": SESSION_GAP_MINUTES,
    "co_view_pages_max": CO_VIEW_PAGES_MAX,
    "co_view_first_pages": CO_VIEW_FIRST_PAGES,
    "scraper_views_min": SCRAPER_VIEWS_MIN,
    "scraper_share_min": SCRAPER_SHARE_MIN,
    "guesser_failures_min": GUESSER_FAILURES_MIN,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A bar chart, one bar a row: the columns of its label and its value, and the unit counted."""

    label: tuple[str, ...]
    value: str
    unit: str


@dataclass(frozen=True, slots=True)
class ActivityReport:
    """One report: `sql` over views named as the tables. `tables`: the columns needed of each."""

    name: str
    title: str
    tables: Mapping[str, tuple[str, ...]]
    sql: str
    picture: Picture


_SHOWN = {"impression": ("guid", "item", "position"), "click": ("guid", "impression")}

# A click that names no impression of the table is not counted; two on the same one count once.
_CLICKED = """
WITH clicked AS (SELECT DISTINCT impression AS shown FROM click)
SELECT {what}, count(*) AS impressions, count(shown) AS clicks,
       count(shown) / count(*) AS click_through
FROM impression LEFT JOIN clicked ON impression.guid = clicked.shown
GROUP BY {what} ORDER BY {order}
"""

_SEARCHES = """
SELECT query, count(*) AS searches, count(DISTINCT member_id) AS members,
       count_if(result_count = 0) AS without_result, sum(elapsed_ms) / count(*) AS elapsed_ms
FROM search GROUP BY query ORDER BY searches DESC, query ASC LIMIT :top
"""

_PAIRS = """
  SELECT a.path AS path, b.path AS also_viewed, count(DISTINCT a.member_id) AS members
  FROM {pages} a JOIN {pages} b
    ON a.member_id = b.member_id AND a.day = b.day AND a.path < b.path
  GROUP BY a.path, b.path
"""

# A member's pairs grow with the square of its pages. A pair has no more members than either of its
# pages, so pages with fewer than the last of any :top pairs can be in none of the best ones: the
# pairs of the pages viewed most give such a bound, and most pages are below it.
_CO_VIEWED = """
WITH viewed AS (
  SELECT DISTINCT member_id, to_date(event_time) AS day, path FROM page_view WHERE status < 400
), people AS (
  SELECT member_id, day FROM viewed GROUP BY member_id, day
  HAVING count(*) BETWEEN 2 AND :co_view_pages_max
), kept AS (SELECT viewed.* FROM viewed JOIN people USING (member_id, day)
), pages AS (SELECT path, count(DISTINCT member_id) AS members FROM kept GROUP BY path
), most AS (SELECT path FROM pages ORDER BY members DESC, path ASC LIMIT :co_view_first_pages
), among_most AS (SELECT kept.* FROM kept JOIN most USING (path)
), best AS ({pairs_among_most} ORDER BY members DESC LIMIT :top
), bound AS (SELECT if(count(*) < :top, 0, min(members)) AS members FROM best
), possible AS (
  SELECT kept.* FROM kept JOIN pages USING (path)
  WHERE pages.members >= (SELECT members FROM bound)
)
{possible_pairs}
ORDER BY members DESC, path ASC, also_viewed ASC LIMIT :top
"""

_SESSIONS = """
WITH marked AS (
  SELECT member_id, event_time,
         coalesce(
           event_time > lag(event_time) OVER visits + make_dt_interval(0, 0, :gap), true
         ) AS begins
  FROM page_view WINDOW visits AS (PARTITION BY member_id ORDER BY event_time)
), numbered AS (
  SELECT member_id, event_time,
         sum(int(begins)) OVER (PARTITION BY member_id ORDER BY event_time) AS number
  FROM marked
), sessions AS (
  SELECT member_id, count(*) AS views,
         unix_millis(max(event_time)) - unix_millis(min(event_time)) AS duration_ms
  FROM numbered GROUP BY member_id, number
)
SELECT CASE WHEN views = 1 THEN '1' WHEN views <= 5 THEN '2-5' WHEN views <= 10 THEN '6-10'
            WHEN views <= 20 THEN '11-20' WHEN views <= 50 THEN '21-50' ELSE 'over 50'
       END AS length,
       count(*) AS sessions, count(DISTINCT member_id) AS members, sum(views) AS page_views,
       sum(duration_ms) / count(*) AS duration_ms
FROM sessions GROUP BY 1 ORDER BY min(views)
"""

_ABUSE = """
WITH minutes AS (
  SELECT member_id, host, date_trunc('MINUTE', event_time) AS at, count(*) AS views,
         count_if(path LIKE '/in/%') AS profiles
  FROM page_view GROUP BY ALL
), scrapers AS (
  SELECT 'scrapes profiles' AS reason, concat('member ', member_id, ' at ', host) AS who,
         sum(profiles) AS events, max(profiles) AS most, 'a minute' AS per
  FROM minutes
  WHERE profiles >= :scraper_views_min AND profiles >= :scraper_share_min * views
  GROUP BY member_id, host
), hours AS (
  SELECT host, date_trunc('HOUR', event_time) AS at, count_if(NOT succeeded) AS failures
  FROM login GROUP BY ALL
), guessers AS (
  SELECT 'failed logins' AS reason, host AS who, sum(failures) AS events, max(failures) AS most,
         'an hour' AS per
  FROM hours WHERE failures >= :guesser_failures_min GROUP BY host
)
SELECT * FROM scrapers UNION ALL SELECT * FROM guessers
ORDER BY events DESC, reason ASC, who ASC LIMIT :top
"""

REPORTS = (
    ActivityReport(
        "click-through-items",
        "Click-through of the items that were clicked most",
        _SHOWN,
        _CLICKED.format(what="item", order="clicks DESC, impressions ASC, item ASC LIMIT :top"),
        Picture(("item",), "clicks", "impressions clicked"),
    ),
    ActivityReport(
        "click-through-positions",
        "Click-through by position, from the top",
        _SHOWN,
        _CLICKED.format(what="position", order="position ASC"),
        Picture(("position",), "click_through", "clicks per impression"),
    ),
    ActivityReport(
        "top-searches",
        "What was searched for most",
        {"search": ("guid", "query", "member_id", "result_count", "elapsed_ms")},
        _SEARCHES,
        Picture(("query",), "searches", "searches"),
    ),
    ActivityReport(
        "co-viewed",
        "Pages that the same member viewed on the same day",
        {"page_view": ("guid", "member_id", "path", "event_time", "status")},
        _CO_VIEWED.format(
            pairs_among_most=_PAIRS.format(pages="among_most"),
            possible_pairs=_PAIRS.format(pages="possible"),
        ),
        Picture(("path", "also_viewed"), "members", "members"),
    ),
    ActivityReport(
        "sessions",
        f"Visits by number of page views (a pause of {SESSION_GAP_MINUTES} minutes ends one)",
        {"page_view": ("guid", "member_id", "event_time")},
        _SESSIONS,
        Picture(("length",), "sessions", "sessions"),
    ),
    ActivityReport(
        "abuse-candidates",
        f"Scrapers ({SCRAPER_VIEWS_MIN} profiles a minute) and password guessers "
        f"({GUESSER_FAILURES_MIN} failures an hour)",
        {
            "page_view": ("guid", "member_id", "host", "path", "event_time"),
            "login": ("guid", "host", "event_time", "succeeded"),
        },
        _ABUSE,
        Picture(("reason", "who"), "events", "events"),
    ),
)
BY_NAME = {report.name: report for report in REPORTS}
