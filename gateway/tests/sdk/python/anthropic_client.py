"""The official Anthropic client for Python against a gateway."""

import base64
import json

import anthropic

from common import *

IMAGE = base64.b64encode(bytes(range(256)) * 8).decode()
TOOLS = [{"name": "look_up", "input_schema": {"type": "object"}}]
MESSAGES = [{"role": "user", "content": "hello"}]
WORDS = "token0 token1 token2 token3 token4 "


def client_of(**options):
    options = {
        "base_url": f"http://{place['gateway']}",
        "api_key": place["key"],
        "default_headers": AGENT,
        "max_retries": 0,
        "timeout": PATIENCE,
        **options,
    }
    return anthropic.Anthropic(**options)


client = client_of()
patient = client_of(max_retries=anthropic.DEFAULT_MAX_RETRIES)


def message(by=client, **options):
    options = {"model": "claude", "max_tokens": 64, "messages": MESSAGES, **options}
    return by.messages.create(**options)


def stream(**options):
    return list(message(stream=True, **options))


def fails(kind, deed, status=None, code=None):
    return raises(anthropic.AnthropicError, kind, deed, status, code)


# What is served.


@row
def a_plain_message_has_text_and_usage():
    answer = message()
    assert answer.content[0].text == WORDS and answer.stop_reason == "end_turn", answer
    assert answer.usage.output_tokens == 5 and answer.usage.input_tokens > 0, answer


@row
def a_streamed_message_has_every_word_and_its_usage():
    events = stream()
    deltas = [event.delta.text for event in events if event.type == "content_block_delta"]
    assert "".join(deltas) == WORDS and events[-1].type == "message_stop", events
    assert events[0].message.usage.input_tokens > 0, events[0]
    assert events[-2].usage.output_tokens == 5, events[-2]


@row
def the_streaming_helper_gathers_the_same_message():
    with client.messages.stream(model="claude", max_tokens=64, messages=MESSAGES) as helper:
        final = helper.get_final_message()
    assert final.content[0].text == WORDS and final.usage.output_tokens == 5, final


@row
def a_tool_is_called_plain_and_in_a_stream():
    block = message(tools=TOOLS).content[0]
    assert (block.name, block.input) == ("look_up", {"words": WORDS}), block
    options = {"model": "claude", "max_tokens": 64, "messages": MESSAGES, "tools": TOOLS}
    with client.messages.stream(**options) as helper:
        final = helper.get_final_message()
    assert final.content[0].input == {"words": WORDS} and final.stop_reason == "tool_use", final


@row
def an_image_in_a_message_arrives_as_it_was_sent():
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "what? 你好"}]
    message(messages=[{"role": "user", "content": content}])
    record = seen(ANTHROPIC)
    assert json.loads(record["body"])["messages"][0]["content"] == content, record["body"][:300]


@row
def only_the_model_s_name_differs_upstream_and_the_caller_s_key_stays_behind():
    raw = client.messages.with_raw_response.create(
        model="alias-of-claude", max_tokens=64, messages=MESSAGES
    )
    sent = raw.http_request.content.replace(b'"alias-of-claude"', b'"claude"')
    assert seen(ANTHROPIC)["body_sha256"] == digest(sent), sent
    headers = seen(ANTHROPIC)["headers"]
    assert headers["x-api-key"].endswith("eway") and "authorization" not in headers, headers
    version = raw.http_request.headers["anthropic-version"]
    assert headers["anthropic-version"] == version, headers
    assert headers["x-request-id"] == raw.headers["x-request-id"], headers


@row
def tokens_are_counted():
    counted = client.messages.count_tokens(model="claude", messages=MESSAGES)
    assert counted.input_tokens > 0 and seen(ANTHROPIC)["path"] == "/v1/messages/count_tokens"


@row
def the_models_are_listed():
    names = [model.id for model in client.models.list()]
    assert {"claude", "alias-of-claude"} <= set(names), names


@row
def a_bearer_token_is_as_good_as_a_key():
    assert message(client_of(api_key=None, auth_token=place["key"])).content


# What is refused, and how it is raised.


@row
def path_not_allowed_is_not_found():
    elsewhere = client_of(base_url=f"http://{place['gateway']}/v2")
    error = fails(anthropic.NotFoundError, lambda: message(elsewhere), 404, "path_not_allowed")
    has_four_keys(error)


@row
def missing_required_header_is_permission_denied():
    nobody = client_of(default_headers={})
    deed = lambda: message(nobody)
    error = fails(anthropic.PermissionDeniedError, deed, 403, "missing_required_header")
    assert error.body["type"] == "error" and error.type == "permission_error", error.body


@row
def invalid_api_key_is_an_authentication_error():
    stranger = client_of(api_key="sk-of-a-stranger")
    fails(anthropic.AuthenticationError, lambda: message(stranger), 401, "invalid_api_key")
    assert asked(ANTHROPIC) == 0


@row
def model_not_found_is_not_found():
    fails(anthropic.NotFoundError, lambda: message(model="x"), 404, "model_not_found")


@row
def model_not_allowed_is_permission_denied():
    narrow = client_of(api_key=place["key_of_m"])
    deed = lambda: message(narrow)
    fails(anthropic.PermissionDeniedError, deed, 403, "model_not_allowed")


@row
def invalid_request_is_a_bad_request():
    deed = lambda: message(extra_body={"stream": "yes"})
    fails(anthropic.BadRequestError, deed, 400, "invalid_request")


@row
def input_too_large_is_a_bad_request():
    long = [{"role": "user", "content": "word " * 20_000}]
    fails(anthropic.BadRequestError, lambda: message(messages=long), 400, "input_too_large")


@row
def too_many_messages_is_a_bad_request():
    deed = lambda: message(messages=MESSAGES * 5)
    fails(anthropic.BadRequestError, deed, 400, "too_many_messages")


@row
def body_too_large_is_request_too_large():
    vast = [{"role": "user", "content": "word " * 80_000}]
    deed = lambda: message(messages=vast)
    fails(anthropic.ContentTooLargeError, deed, 413, "body_too_large")


@row
def unsupported_media_type_is_an_error_of_its_status():
    deed = lambda: message(extra_headers={"content-type": "text/plain"})
    fails(anthropic.APIStatusError, deed, 415, "unsupported_media_type")


@row
def rate_limit_exceeded_is_a_rate_limit_error_that_says_when_to_come_back():
    deed = lambda: [message(model="limited") for _ in range(2)]
    error = fails(anthropic.RateLimitError, deed, 429, "rate_limit_exceeded")
    headers = error.response.headers
    assert 0 < int(headers["retry-after"]) <= 60, headers
    assert 0 < int(headers["retry-after-ms"]) <= 60_000, headers
    assert error.type == "rate_limit_error", error.body


@row
def overloaded_is_service_unavailable():
    fault(OPENAI, stall_after_tokens=1)
    with message(model="narrow", stream=True) as held:
        for event in held:
            if event.type == "content_block_delta":
                break
        deed = lambda: message(model="narrow")
        fails(anthropic.ServiceUnavailableError, deed, 503, "overloaded")


@row
def circuit_open_is_service_unavailable_and_says_when_to_come_back():
    deed = lambda: message(model="open")
    error = fails(anthropic.ServiceUnavailableError, deed, 503, "circuit_open")
    assert int(error.response.headers["retry-after"]) > 0, error.response.headers


@row
def upstream_unavailable_is_an_internal_server_error():
    deed = lambda: message(model="nobody")
    has_four_keys(fails(anthropic.InternalServerError, deed, 502, "upstream_unavailable"))


@row
def upstream_timeout_is_a_gateway_timeout():
    fault(OPENAI, hang="accept")
    deed = lambda: message(model="hasty")
    fails(anthropic.GatewayTimeoutError, deed, 504, "upstream_timeout")


@row
def upstream_error_is_raised_by_the_last_status():
    for status, kind in [
        (500, anthropic.InternalServerError),
        (502, anthropic.InternalServerError),
        (503, anthropic.ServiceUnavailableError),
        (529, anthropic.OverloadedError),
    ]:
        fault(ANTHROPIC, status=status)
        fails(kind, message, status, "upstream_error")


@row
def an_error_within_a_success_is_a_server_s_error():
    fault(ANTHROPIC, error_in_stream=True)
    error = fails(anthropic.InternalServerError, stream, 502, "upstream_error")
    assert error.body["type"] == "error", error.body


@row
def an_answer_that_is_none_is_an_internal_server_error():
    for body in ("", "<html>", "{}"):
        fault(ANTHROPIC, body=body)
        fails(anthropic.InternalServerError, message, 502, "upstream_error")


@row
def upstream_auth_and_upstream_redirect_are_internal_server_errors():
    deed = lambda: message(model="locked")
    fails(anthropic.InternalServerError, deed, 502, "upstream_auth")
    fault(ANTHROPIC, status=302)
    fails(anthropic.InternalServerError, message, 502, "upstream_redirect")


@row
def an_upstream_s_refusal_of_the_request_is_raised_as_it_came():
    fault(ANTHROPIC, status=400)
    error = fails(anthropic.BadRequestError, message, 400)
    assert error.type == "invalid_request_error" and "told to fail" in error.api_message, error


# A stream that breaks off raises and never ends quietly.


def breaks_off(**behaviour):
    fault(ANTHROPIC, tokens=8, **behaviour)
    # The head said 200, and so does the error.
    error = fails(anthropic.APIStatusError, stream, 200, "stream_interrupted")
    assert error.api_message and error.type == "api_error", error.body


@row
def a_cut_stream_raises():
    breaks_off(cut_after_tokens=3)
    breaks_off(cut_after_tokens=3, closing="close")


@row
def a_stream_that_ends_without_its_end_raises():
    breaks_off(finish_quietly_after_tokens=3)


@row
def a_stream_that_falls_silent_raises():
    breaks_off(stall_after_tokens=3)


@row
def a_stream_that_begins_late_arrives_whole():
    # Meanwhile the client gets a head and comments.
    fault(ANTHROPIC, first_token_ms=2500)
    deltas = [event.delta.text for event in stream() if event.type == "content_block_delta"]
    assert "".join(deltas) == WORDS, deltas


@row
def a_failure_after_the_head_raises():
    fault(OPENAI, hang="accept")
    deed = lambda: list(message(patient, model="dull", stream=True))
    fails(anthropic.APIStatusError, deed, 200, "upstream_timeout")
    assert askings(OPENAI) == 1


@row
def what_came_before_the_break_was_delivered():
    fault(ANTHROPIC, tokens=8, cut_after_tokens=3)
    words = []

    def read():
        for event in message(stream=True):
            if event.type == "content_block_delta":
                words.append(event.delta.text)

    fails(anthropic.APIStatusError, read)
    assert "".join(words) == "token0 token1 token2 ", words


@row
def the_helper_raises_at_a_break_too():
    for behaviour in ({"cut_after_tokens": 3}, {"finish_quietly_after_tokens": 3}):
        fault(ANTHROPIC, **behaviour)

        def helper():
            with client.messages.stream(model="claude", max_tokens=64, messages=MESSAGES) as held:
                return held.get_final_message()

        fails(anthropic.APIStatusError, helper, code="stream_interrupted")


# The client's own retries do not multiply the gateway's.


@row
def a_final_failure_is_not_retried():
    for behaviour, kind in [
        ({"status": 500}, anthropic.InternalServerError),
        ({"status": 503}, anthropic.ServiceUnavailableError),
        ({"reset": True}, anthropic.InternalServerError),
    ]:
        for mock in (OPENAI, ANTHROPIC):
            fault(mock, **behaviour)
            call(mock, "/__admin/reset_counts", {})
        is_asked_once(fails(kind, lambda: message(patient, model="pair")))


@row
def a_broken_stream_is_not_asked_for_again():
    fault(ANTHROPIC, cut_after_tokens=3)
    fails(anthropic.APIStatusError, lambda: list(message(patient, stream=True)))
    assert asked(ANTHROPIC) == 1


@row
def a_full_endpoint_is_asked_again_once_when_it_said():
    fault(OPENAI, status=429, retry_after="1", fail_next=1)
    answer, seconds = timed(lambda: message(patient, model="paced"))
    assert answer.content[0].text == WORDS, answer
    assert 1.0 <= seconds < 10 and asked(OPENAI) == 2, (seconds, asked(OPENAI))


@row
def a_pause_of_more_than_a_minute_is_not_waited_for():
    # Left to itself this client would sleep for as long as it is told, up to weeks.
    fault(OPENAI, status=429, retry_after="90")
    deed = lambda: fails(anthropic.RateLimitError, lambda: message(patient, model="resting"), 429)
    error, seconds = timed(deed)
    headers = error.response.headers
    assert headers["x-should-retry"] == "false" and int(headers["retry-after"]) > 60, headers
    assert seconds < 10 and asked(OPENAI) == 1, (seconds, asked(OPENAI))


end(f"anthropic {anthropic.__version__} for Python")
