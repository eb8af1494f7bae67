"""What both clients share: the rows, the switches of the mocks, and what the mocks have seen.

A row is a claim with a function that asserts it. All rows run; those that fail are told together, so
that one broken promise does not hide the next.
"""

import hashlib
import json
import sys
import time
import traceback
import urllib.request

# Where everything listens and which keys are good: an object as the first argument.
place = json.loads(sys.argv[1])
# With further arguments only the claims that contain one of them are checked.
wanted = sys.argv[2:]

OPENAI, ANTHROPIC = place["openai"], place["anthropic"]
AGENT = {"x-agent-id": "row"}
# A wait for what has to come; nothing here takes as long.
PATIENCE = 30.0
# Characters of a failure that are told.
TOLD_MAX = 600

checked, broken = [], []


def call(address, path, body=None):
    """GET, or POST with a JSON body, at an address of the test."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}{path}", data=data)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


def fault(mock, **behaviour):
    """Makes a mock behave so from here on, and in nothing else than it does in health."""
    call(mock, "/__admin/reset", {})
    call(mock, "/__admin/set", behaviour)


def asked(*mocks):
    """How many requests the mocks have seen in this row."""
    return sum(call(mock, "/__admin/counts")["requests"] for mock in mocks)


def seen(mock):
    """The last request that a mock has seen."""
    record = call(mock, "/__admin/requests")[-1]
    record["headers"] = dict(record["headers"])
    return record


def row(check):
    """Runs a claim: both mocks are healthy and their books empty at its start."""
    claim = check.__name__.replace("_", " ")
    if wanted and not any(word in claim for word in wanted):
        return check
    checked.append(claim)
    try:
        for mock in (OPENAI, ANTHROPIC):
            fault(mock)
            call(mock, "/__admin/reset_counts", {})
        check()
    except Exception as error:
        # Where in these files it was, and not where in the client.
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames]
        lines = [line for line in ours if "client.py" in line and not line.startswith("_")]
        told = f"{type(error).__name__}: {error}"[:TOLD_MAX]
        broken.append(f"- {claim}\n  {' '.join(lines)} {told}")
    return check


def raises(base, kind, deed, status=None, code=None):
    """Asserts that the deed raises exactly this kind of error, and returns it. `base` is the root of
    the client's errors, `status` the HTTP status and `code` the gateway's own word."""
    try:
        result = deed()
    except base as error:
        assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
        if status is not None:
            assert error.status_code == status, f"{error.status_code} instead of {status}"
        if code is not None:
            assert code_of(error) == code, f"{code_of(error)} instead of {code}: {error}"
        return error
    raise AssertionError(f"no {kind.__name__} but {result!r}")


def code_of(error):
    """The gateway's code in an error: OpenAI's client unwraps the body, Anthropic's does not."""
    body = error.body
    body = body.get("error", body) if isinstance(body, dict) else {}
    return body.get("code")


def has_four_keys(error):
    body = error.response.json()["error"]
    assert {"message", "type", "param", "code"} <= set(body), body
    assert error.response.headers["x-request-id"], error.response.headers


def timed(deed):
    """What the deed returns, and its seconds."""
    began = time.monotonic()
    return deed(), time.monotonic() - began


def digest(data):
    return hashlib.sha256(data).hexdigest()


def end(client):
    """Tells how it went, in one line if all is well."""
    if broken:
        print("\n".join(broken))
        print(f"{client}: {len(broken)} of {len(checked)} claims do not hold")
        sys.exit(1)
    print(f"{client}: all {len(checked)} claims hold")
