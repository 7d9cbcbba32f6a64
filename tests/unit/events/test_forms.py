import pytest

from kafka2011.events.forms import (
    FORMS_2011,
    FORMS_DEFAULT,
    Form,
    Forms,
    forms_of,
    parse_fields,
    parse_forms,
)
from kafka2011.events.settings import FormSettings


def test_ids_are_the_default_and_single_topics_may_differ() -> None:
    forms = parse_forms("login:2011, a:b:id")
    assert forms.of("page-view") is Form.ID
    assert forms.of("login") is Form.MD5
    assert forms.of("a:b") is Form.ID
    assert (forms.prefix_bytes("page-view"), forms.prefix_bytes("login")) == (5, 17)
    assert parse_forms("") == FORMS_DEFAULT
    assert parse_forms("*:2011") == FORMS_2011


def test_the_books_need_no_registry() -> None:
    assert FORMS_DEFAULT.of("audit") is Form.MD5
    with pytest.raises(ValueError, match="audit"):
        parse_forms("audit:id")


@pytest.mark.parametrize("text", ["login", "login:", ":id", "login:2012", "a:id,a:2011", "*"])
def test_what_is_no_form_is_refused_with_the_entry(text) -> None:
    with pytest.raises(
        ValueError, match="must be topic:form, the form one of id, 2011, json, text"
    ):
        parse_forms(text)


@pytest.mark.parametrize(
    "text", ["*:id", "*:2011,login:id", "*:id,a:2011,b:2011", "*:json,a:text,b:bytes"]
)
def test_text_and_forms_are_the_same(text) -> None:
    assert str(parse_forms(text)) == text
    assert parse_forms(str(Forms(Form.MD5))) == FORMS_2011


def test_the_fields_of_time_and_server_go_with_the_forms() -> None:
    given = {
        "event.forms": "*:id,orders:json,sales:json",
        "event.time.field": "*:time,orders:created_at",
        "event.server.field": "orders:host",
    }
    forms = forms_of(given)
    assert (forms.time_field("orders"), forms.server_field("orders")) == ("created_at", "host")
    assert (forms.time_field("sales"), forms.server_field("sales")) == ("time", "")
    assert forms.settings() == given
    settings = FormSettings(
        event_forms=parse_forms(given["event.forms"]),
        event_time_field=parse_fields(given["event.time.field"]),
        event_server_field=parse_fields(given["event.server.field"]),
    )
    assert settings.forms == forms


@pytest.mark.parametrize("text", ["orders", "orders:", ":time", "orders:a,orders:b"])
def test_what_is_no_field_is_refused_with_the_entry(text) -> None:
    with pytest.raises(ValueError, match="must be topic:field"):
        parse_fields(text)


def test_a_field_of_a_topic_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="orders, which is in the form id: only JSON"):
        FormSettings(event_server_field={"orders": "host"})
