import pytest

from kafka2011.events.forms import FORMS_2011, FORMS_DEFAULT, Form, Forms, parse_forms


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
    with pytest.raises(ValueError, match="must be topic:id or topic:2011"):
        parse_forms(text)


@pytest.mark.parametrize("text", ["*:id", "*:2011,login:id", "*:id,a:2011,b:2011"])
def test_text_and_forms_are_the_same(text) -> None:
    assert str(parse_forms(text)) == text
    assert parse_forms(str(Forms(Form.MD5))) == FORMS_2011
