"""The official OpenAI client for Python against a gateway."""

import base64
import json

import openai

from common import *

IMAGE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 8).decode()
# As a file of sound: its bytes hold line ends and what looks like a boundary.
FILE = bytes(range(256)) * 4 + b"\r\n--boundary--\r\n"
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
MESSAGES = [{"role": "user", "content": "hello"}]
WORDS = "token0 token1 token2 token3 token4 "


def client_of(**options):
    options = {
        "base_url": f"http://{place['gateway']}/v1",
        "api_key": place["key"],
        "default_headers": AGENT,
        "max_retries": 0,
        "timeout": PATIENCE,
        **options,
    }
    return openai.OpenAI(**options)


client = client_of()
patient = client_of(max_retries=openai.DEFAULT_MAX_RETRIES)


def chat(by=client, **options):
    return by.chat.completions.create(**{"model": "m", "messages": MESSAGES, **options})


def chat_stream(**options):
    return list(chat(stream=True, **options))


def text_stream():
    return list(client.completions.create(model="m", prompt="hello", stream=True))


def response_stream():
    return list(client.responses.create(model="m", input="hello", stream=True))


def fails(kind, deed, status=None, code=None):
    return raises(openai.OpenAIError, kind, deed, status, code)


# What is served.


@row
def a_plain_chat_has_text_and_usage():
    answer = chat()
    assert answer.choices[0].message.content == WORDS, answer
    assert answer.choices[0].finish_reason == "stop" and answer.usage.completion_tokens == 5, answer


@row
def a_streamed_chat_has_every_word_and_its_usage():
    chunks = chat_stream(stream_options={"include_usage": True})
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert text == WORDS and reasons[-1] == "stop", chunks
    assert chunks[-1].usage.completion_tokens == 5, chunks[-1]


@row
def a_tool_is_called_plain_and_in_a_stream():
    call_made = chat(tools=TOOLS).choices[0].message.tool_calls[0]
    assert call_made.function.name == "look_up", call_made
    assert json.loads(call_made.function.arguments) == {"words": WORDS}, call_made
    chunks = chat_stream(tools=TOOLS)
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert calls[0].function.name == "look_up" and calls[0].id, calls
    arguments = "".join(call.function.arguments or "" for call in calls)
    assert json.loads(arguments) == {"words": WORDS}, arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls", chunks[-1]


@row
def the_streaming_helper_gathers_the_same_answer():
    with client.chat.completions.stream(model="m", messages=MESSAGES) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == WORDS, final


@row
def an_image_in_a_message_arrives_as_it_was_sent():
    content = [
        {"type": "text", "text": "what is it? 你好"},
        {"type": "image_url", "image_url": {"url": IMAGE}},
    ]
    chat(messages=[{"role": "user", "content": content}])
    record = seen(OPENAI)
    assert json.loads(record["body"])["messages"][0]["content"] == content, record["body"][:300]


@row
def only_the_model_s_name_differs_upstream_and_the_caller_s_key_stays_behind():
    raw = client.chat.completions.with_raw_response.create(model="alias-of-m", messages=MESSAGES)
    sent = raw.http_request.content
    assert digest(sent.replace(b'"alias-of-m"', b'"m"')) == seen(OPENAI)["body_sha256"], sent
    headers = seen(OPENAI)["headers"]
    assert headers["authorization"].endswith("eway"), headers
    assert headers["x-request-id"] == raw.headers["x-request-id"], headers


@row
def a_text_is_completed_plain_and_in_a_stream():
    assert client.completions.create(model="m", prompt="hello").choices[0].text == WORDS
    assert "".join(chunk.choices[0].text for chunk in text_stream()) == WORDS


@row
def texts_are_embedded_as_numbers_and_as_the_client_s_own_base64():
    for options in ({}, {"encoding_format": "float"}):
        answer = client.embeddings.create(model="m", input=["a", "b"], **options)
        assert [list(one.embedding) for one in answer.data] == [[0.25, -0.5, 1.0]] * 2, answer


@row
def a_response_comes_plain_and_in_a_stream():
    answer = client.responses.create(model="m", input="hello")
    assert answer.output_text == WORDS and answer.usage.output_tokens == 5, answer
    events = response_stream()
    assert "".join(event.delta for event in events if event.type.endswith("text.delta")) == WORDS
    assert events[-1].type == "response.completed", events[-1]
    assert events[-1].response.usage.output_tokens == 5, events[-1]


@row
def a_response_calls_a_function():
    tools = [{"type": "function", "name": "look_up", "parameters": {}, "strict": False}]
    item = client.responses.create(model="m", input="hello", tools=tools).output[0]
    assert item.name == "look_up" and json.loads(item.arguments) == {"words": WORDS}, item
    with client.responses.stream(model="m", input="hello", tools=tools) as stream:
        item = stream.get_final_response().output[0]
    assert json.loads(item.arguments) == {"words": WORDS}, item


@row
def images_are_made_and_edited():
    made = client.images.generate(model="m", prompt="a cat", n=2)
    assert [base64.b64decode(image.b64_json)[:4] for image in made.data] == [b"\x89PNG"] * 2, made
    edited = client.images.edit(model="m", prompt="a dog", image=("cat.png", FILE, "image/png"))
    assert edited.data[0].b64_json and seen(OPENAI)["path"] == "/v1/images/edits", edited


@row
def speech_arrives_byte_for_byte():
    sound = client.audio.speech.create(model="m", voice="alloy", input="hello").content
    assert sound == bytes(place % 251 for place in range(5 * 1024)), len(sound)


@row
def a_file_is_transcribed_and_arrives_byte_for_byte():
    heard = client.audio.transcriptions.with_raw_response.create(model="m", file=("a.wav", FILE))
    assert heard.parse().text == WORDS, heard
    record = seen(OPENAI)
    kind = record["headers"]["content-type"]
    assert kind == heard.http_request.headers["content-type"], kind
    assert record["body_sha256"] == digest(heard.http_request.read()), record["body_bytes"]


@row
def a_form_s_model_is_renamed_and_nothing_else_of_it():
    heard = client.audio.transcriptions.with_raw_response.create(
        model="alias-of-m", file=("a.wav", FILE)
    )
    sent = heard.http_request.read().replace(b"alias-of-m", b"m")
    assert seen(OPENAI)["body_sha256"] == digest(sent)


@row
def a_transcript_is_streamed():
    events = list(client.audio.transcriptions.create(model="m", file=("a.wav", FILE), stream=True))
    assert events[-1].type == "transcript.text.done" and events[-1].text == WORDS, events[-1]


@row
def a_text_is_moderated():
    assert client.moderations.create(model="m", input="hello").results[0].flagged is False


@row
def documents_are_ranked_by_a_raw_post():
    body = {"model": "m", "query": "q", "documents": ["a", "b"]}
    answer = client.post("/rerank", cast_to=object, body=body)
    assert [result["index"] for result in answer["results"]] == [1, 0], answer


@row
def the_models_are_listed_and_each_can_be_asked_for():
    names = [model.id for model in client.models.list()]
    assert {"m", "alias-of-m", "claude"} <= set(names), names
    assert client.models.retrieve("alias-of-m").id == "alias-of-m"


# What is refused, and how it is raised.


@row
def path_not_allowed_is_not_found():
    elsewhere = client_of(base_url=f"http://{place['gateway']}/v2")
    has_four_keys(fails(openai.NotFoundError, lambda: chat(elsewhere), 404, "path_not_allowed"))


@row
def missing_required_header_is_permission_denied():
    nobody = client_of(default_headers={})
    fails(openai.PermissionDeniedError, lambda: chat(nobody), 403, "missing_required_header")


@row
def invalid_api_key_is_an_authentication_error():
    stranger = client_of(api_key="sk-of-a-stranger")
    fails(openai.AuthenticationError, lambda: chat(stranger), 401, "invalid_api_key")
    fails(openai.AuthenticationError, lambda: list(stranger.models.list()), 401, "invalid_api_key")
    assert asked(OPENAI) == 0


@row
def model_not_found_is_not_found():
    error = fails(openai.NotFoundError, lambda: chat(model="x"), 404, "model_not_found")
    assert error.param == "model", error
    fails(openai.NotFoundError, lambda: client.models.retrieve("x"), 404, "model_not_found")


@row
def model_not_allowed_is_permission_denied_and_such_models_are_not_listed():
    narrow = client_of(api_key=place["key_of_m"])
    assert chat(narrow).choices
    fails(openai.PermissionDeniedError, lambda: chat(narrow, model="pair"), 403, "model_not_allowed")
    names = {model.id for model in narrow.models.list()}
    assert names == {"m", "alias-of-m"}, names


@row
def invalid_request_is_a_bad_request():
    deed = lambda: chat(extra_body={"stream": "yes"})
    error = fails(openai.BadRequestError, deed, 400, "invalid_request")
    assert error.param == "stream", error


@row
def input_too_large_is_a_bad_request():
    long = [{"role": "user", "content": "word " * 20_000}]
    fails(openai.BadRequestError, lambda: chat(messages=long), 400, "input_too_large")


@row
def too_many_messages_is_a_bad_request():
    deed = lambda: chat(messages=MESSAGES * 5)
    fails(openai.BadRequestError, deed, 400, "too_many_messages")


@row
def body_too_large_is_an_error_of_its_status():
    vast = [{"role": "user", "content": "word " * 80_000}]
    fails(openai.APIStatusError, lambda: chat(messages=vast), 413, "body_too_large")


@row
def unsupported_media_type_is_an_error_of_its_status():
    deed = lambda: chat(extra_headers={"content-type": "text/plain"})
    fails(openai.APIStatusError, deed, 415, "unsupported_media_type")


@row
def rate_limit_exceeded_is_a_rate_limit_error_that_says_when_to_come_back():
    deed = lambda: [chat(model="limited") for _ in range(2)]
    error = fails(openai.RateLimitError, deed, 429, "rate_limit_exceeded")
    headers = error.response.headers
    assert 0 < int(headers["retry-after"]) <= 60, headers
    assert 0 < int(headers["retry-after-ms"]) <= 60_000, headers
    assert headers["x-ratelimit-limit-requests"] == "1", headers
    assert headers["x-ratelimit-remaining-requests"] == "0", headers


@row
def overloaded_is_an_internal_server_error():
    fault(OPENAI, stall_after_tokens=1)
    with chat(model="narrow", stream=True) as stream:
        next(stream)
        deed = lambda: chat(model="narrow")
        error = fails(openai.InternalServerError, deed, 503, "overloaded")
    assert error.response.headers["retry-after"], error.response.headers


@row
def circuit_open_is_an_internal_server_error_that_says_when_to_come_back():
    deed = lambda: chat(model="open")
    error = fails(openai.InternalServerError, deed, 503, "circuit_open")
    assert int(error.response.headers["retry-after"]) > 0, error.response.headers


@row
def upstream_unavailable_is_an_internal_server_error():
    deed = lambda: chat(model="nobody")
    has_four_keys(fails(openai.InternalServerError, deed, 502, "upstream_unavailable"))


@row
def upstream_timeout_is_an_internal_server_error():
    fault(OPENAI, hang="accept")
    fails(openai.InternalServerError, lambda: chat(model="hasty"), 504, "upstream_timeout")


@row
def upstream_error_is_an_internal_server_error_with_the_last_status():
    for status in (500, 502, 503, 529):
        fault(OPENAI, status=status)
        fails(openai.InternalServerError, chat, status, "upstream_error")


@row
def an_error_within_a_success_is_an_internal_server_error():
    fault(OPENAI, error_in_stream=True)
    for deed in (chat_stream, text_stream, response_stream):
        fails(openai.InternalServerError, deed, 502, "upstream_error")


@row
def an_answer_that_is_none_is_an_internal_server_error():
    for body in ("", "<html>", "{}"):
        fault(OPENAI, body=body)
        fails(openai.InternalServerError, chat, 502, "upstream_error")


@row
def upstream_auth_and_upstream_redirect_are_internal_server_errors():
    deed = lambda: chat(model="locked")
    fails(openai.InternalServerError, deed, 502, "upstream_auth")
    fault(OPENAI, status=302)
    fails(openai.InternalServerError, chat, 502, "upstream_redirect")


@row
def an_upstream_s_refusal_of_the_request_is_raised_as_it_came():
    for status, kind in [(400, openai.BadRequestError), (422, openai.UnprocessableEntityError)]:
        fault(OPENAI, status=status)
        error = fails(kind, chat, status)
        assert error.type == "invalid_request_error" and "told to fail" in error.message, error


# A stream that breaks off raises and never ends quietly.


def breaks_off(**behaviour):
    for deed in (chat_stream, text_stream, response_stream):
        fault(OPENAI, tokens=8, **behaviour)
        error = fails(openai.APIError, deed)
        assert code_of(error) == "stream_interrupted", f"{deed.__name__}: {error!r}"
        assert error.message and error.type, error


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
    fault(OPENAI, first_token_ms=2500)
    chunks = chat_stream()
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == WORDS, chunks
    assert response_stream()[-1].response.output_text == WORDS


@row
def a_failure_after_the_head_raises():
    fault(OPENAI, hang="accept")
    error = fails(openai.APIError, lambda: list(chat(patient, model="dull", stream=True)))
    assert code_of(error) == "upstream_timeout", error
    assert askings(OPENAI) == 1


@row
def what_came_before_the_break_was_delivered():
    fault(OPENAI, tokens=8, cut_after_tokens=3)
    words = []

    def read():
        for chunk in chat(stream=True):
            words.append(chunk.choices[0].delta.content or "")

    fails(openai.APIError, read)
    assert "".join(words) == "token0 token1 token2 ", words


@row
def the_helpers_raise_at_a_break_too():
    for behaviour in ({"cut_after_tokens": 3}, {"finish_quietly_after_tokens": 3}):
        fault(OPENAI, **behaviour)

        def chat_helper():
            with client.chat.completions.stream(model="m", messages=MESSAGES) as stream:
                return stream.get_final_completion()

        def response_helper():
            with client.responses.stream(model="m", input="hello") as stream:
                return stream.get_final_response()

        fails(openai.APIError, chat_helper)
        fails(openai.APIError, response_helper)


@row
def cut_speech_raises():
    fault(OPENAI, cut_after_tokens=3)
    deed = lambda: client.audio.speech.create(model="m", voice="alloy", input="hello").content
    try:
        sound = deed()
    except (openai.APIConnectionError, openai._base_client.httpx2.TransportError):
        return
    raise AssertionError(f"{len(sound)} bytes and no error")


# The client's own retries do not multiply the gateway's.


@row
def a_final_failure_is_not_retried():
    for behaviour in ({"status": 500}, {"status": 503}, {"reset": True}):
        for mock in (OPENAI, ANTHROPIC):
            fault(mock, **behaviour)
            call(mock, "/__admin/reset_counts", {})
        is_asked_once(fails(openai.InternalServerError, lambda: chat(patient, model="pair")))


@row
def a_broken_stream_is_not_asked_for_again():
    fault(OPENAI, cut_after_tokens=3)
    fails(openai.APIError, lambda: list(chat(patient, stream=True)))
    assert asked(OPENAI) == 1


@row
def a_full_endpoint_is_asked_again_once_when_it_said():
    fault(OPENAI, status=429, retry_after="1", fail_next=1)
    answer, seconds = timed(lambda: chat(patient, model="paced"))
    assert answer.choices[0].message.content == WORDS, answer
    assert 1.0 <= seconds < 10 and asked(OPENAI) == 2, (seconds, asked(OPENAI))


@row
def a_pause_of_more_than_a_minute_is_not_waited_for():
    fault(OPENAI, status=429, retry_after="90")
    deed = lambda: fails(openai.RateLimitError, lambda: chat(patient, model="resting"), 429)
    error, seconds = timed(deed)
    headers = error.response.headers
    assert headers["x-should-retry"] == "false" and int(headers["retry-after"]) > 60, headers
    assert seconds < 10 and asked(OPENAI) == 1, (seconds, asked(OPENAI))


end(f"openai {openai.__version__} for Python")
