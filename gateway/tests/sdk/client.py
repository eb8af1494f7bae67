"""The official OpenAI client against a gateway: plain, stream, embeddings, models, and how it fails.

Usage: client.py GATEWAY MOCK   (addresses as host:port; the mock is told to fail by its own switches)
"""

import json
import sys
import urllib.request

import openai

gateway, mock = sys.argv[1:3]
client = openai.OpenAI(base_url=f"http://{gateway}/v1", api_key="sk-of-the-caller", max_retries=0)
messages = [{"role": "user", "content": "hello"}]


def fault(**behaviour):
    """Makes the mock behave so from here on."""
    body = json.dumps(behaviour).encode()
    for path, data in (("reset", b"{}"), ("set", body)):
        request = urllib.request.Request(f"http://{mock}/__admin/{path}", data=data, method="POST")
        urllib.request.urlopen(request, timeout=10).read()


def chat(**options):
    return client.chat.completions.create(model="m", messages=messages, **options)


def raises(kind, call):
    """Asserts that the call raises exactly this kind of error, and returns it."""
    try:
        call()
    except openai.OpenAIError as error:
        assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
        return error
    raise AssertionError(f"no {kind.__name__}")


fault()
answer = chat()
assert answer.choices[0].message.content, answer
assert answer.usage.total_tokens > 0, answer

chunks = list(chat(stream=True))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text and chunks[-1].choices[0].finish_reason == "stop", chunks

assert client.completions.create(model="m", prompt="hello").choices[0].text
assert client.embeddings.create(model="m", input="hello").data[0].embedding
assert [model.id for model in client.models.list()] == ["m", "alias-of-m"]
assert client.chat.completions.create(model="alias-of-m", messages=messages).choices

error = raises(openai.NotFoundError, lambda: client.chat.completions.create(model="x", messages=messages))
assert error.code == "model_not_found" and error.param == "model", error

fault(status=400)
raises(openai.BadRequestError, chat)
fault(status=500)
error = raises(openai.InternalServerError, chat)
assert error.status_code == 500 and error.code == "upstream_error", error
assert error.response.headers["x-should-retry"] == "false"


def read_all():
    return list(chat(stream=True))


# A stream that is cut must raise, never end quietly.
fault(cut_after_tokens=3, tokens=8)
error = raises(openai.APIError, read_all)
assert error.code == "stream_interrupted", error
fault(finish_quietly_after_tokens=3, tokens=8)
error = raises(openai.APIError, read_all)
assert error.code == "stream_interrupted", error

# Last, since the endpoint then asks to be left alone for a second.
fault(status=429, retry_after="1")
error = raises(openai.RateLimitError, chat)
assert error.response.headers["retry-after"] == "1", error.response.headers
print(f"openai {openai.__version__}: as promised")
