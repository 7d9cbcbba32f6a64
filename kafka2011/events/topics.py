"""Names of the topics, of the tables they are loaded into, and of the schemas they carry."""

PAGE_VIEW = "page-view"
IMPRESSION = "impression"
CLICK = "click"
SEARCH = "search"
LOGIN = "login"
SHARE = "share"
PROFILE_UPDATE = "profile-update"
SERVICE_METRIC = "service-metric"
SERVICE_CALL = "service-call"
CONNECTION = "connection"
STATUS_UPDATE = "status-update"
LIKE = "like"
COMMENT = "comment"
ACCESS_LOG = "access-log"
AUDIT = "audit"
LOG_LINE = "log-line"  # a schema without a topic of its own: for any topic of lines (envelope)
HEARTBEAT = "heartbeat"  # a schema without a topic of its own: heartbeats are in `audit`

# Topics of the synthetic activity.
ACTIVITY_TOPICS = (
    PAGE_VIEW,
    IMPRESSION,
    CLICK,
    SEARCH,
    LOGIN,
    SHARE,
    PROFILE_UPDATE,
    CONNECTION,
    STATUS_UPDATE,
    LIKE,
    COMMENT,
)

# What process `site` measures about the deployment's processes.
MEASURED_TOPICS = (SERVICE_METRIC, SERVICE_CALL)

# Results made of the events live: derived, so neither audited nor mirrored.
SITE_TRENDING = "site-trending"
SITE_SEARCH = "site-search"
SITE_ADS = "site-ads"
SITE_ABUSE = "site-abuse"
SITE_NEWSFEED = "site-newsfeed"
SITE_OPERATIONS = "site-operations"
SITE_RELATED = "site-related"  # from a stream job; the site shows it
RESULT_TOPICS = (
    *(SITE_TRENDING, SITE_SEARCH, SITE_ADS, SITE_ABUSE, SITE_NEWSFEED, SITE_OPERATIONS),
    SITE_RELATED,
)

UNREADABLE_SUFFIX = "-unreadable"


def unreadable_topic(topic: str) -> str:
    """The side topic for unreadable lines of a source of `topic`."""
    return topic + UNREADABLE_SUFFIX


# Topics whose events have a shipped schema of their own.
TOPICS = (
    *ACTIVITY_TOPICS,
    *(ACCESS_LOG, unreadable_topic(ACCESS_LOG), AUDIT),
    *MEASURED_TOPICS,
    *RESULT_TOPICS,
)


def table_name(topic: str) -> str:
    """The plain name of a topic's table. Two topics may share it: see warehouse.table_paths."""
    return topic.replace("-", "_")


def schema_name(topic: str) -> str:
    """The file in `schemas/`, without its ending, that describes the topic's events."""
    if topic.endswith(UNREADABLE_SUFFIX):
        return "unreadable-line"
    if topic == AUDIT:
        return "monitoring-event"
    return topic
