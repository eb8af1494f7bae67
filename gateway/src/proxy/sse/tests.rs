//! What events and answers amount to, dialect by dialect.

use super::*;
use crate::proxy::route::Dialect;
use crate::proxy::usage::Usage;

/// The meanings of all events of a stream, and the usage that it reports.
fn read(dialect: Dialect, stream: &str) -> (Vec<Meaning>, Usage) {
    let (mut meanings, mut usage) = (Vec::new(), Usage::default());
    Reader::default().read(stream.as_bytes(), |event, _| {
        let (meaning, told, _) = event.read(dialect);
        meanings.push(meaning);
        usage.update(told);
    });
    (meanings, usage)
}

/// The meaning of one event with this data.
fn meaning(dialect: Dialect, data: &str) -> Meaning {
    read(dialect, &format!("data: {data}\n\n")).0.remove(0)
}

fn used(input: u64, output: u64) -> Usage {
    Usage { input: Some(input), output: Some(output) }
}

const NONE: Usage = Usage { input: None, output: None };

#[test]
fn a_chat_is_content_by_whatever_its_deltas_carry() {
    use Meaning::{Content, Finish, Preamble};
    for (data, expected) in [
        (r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#, Preamble),
        (r#"{"choices":[{"delta":{"content":null},"finish_reason":null}]}"#, Preamble),
        (r#"{"choices":[]}"#, Preamble),
        (r#"{"choices":null,"error":null}"#, Preamble),
        (r#"{"choices":[{"delta":null}]}"#, Preamble),
        (r#"{"choices":[{"delta":{"content":"a"}}]}"#, Content),
        (r#"{"choices":[{"delta":{"content":[{"type":"text"}]}}]}"#, Content),
        (r#"{"choices":[{"delta":{"content":""}},{"delta":{"refusal":"\u4f60"}}]}"#, Content),
        (r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#, Content),
        (r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#, Content),
        (r#"{"choices":[{"text":"a"}]}"#, Content),
        (r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#, Finish),
    ] {
        assert_eq!(meaning(Dialect::Chat, data), expected, "{data}");
        assert_eq!(meaning(Dialect::Completions, data), expected, "{data}");
    }
    assert_eq!(meaning(Dialect::Chat, "[DONE]"), Meaning::Done);
}

#[test]
fn s14_an_event_that_cannot_be_read_is_told_apart_in_every_dialect() {
    for dialect in [
        Dialect::Chat,
        Dialect::Completions,
        Dialect::Responses,
        Dialect::Messages,
        Dialect::Opaque,
    ] {
        for data in ["{oops", "[]", "1", "\"x\"", "{\"choices\":[{},\"type\":7}"] {
            assert_eq!(meaning(dialect, data), Meaning::Unreadable, "{dialect:?} {data}");
        }
        assert_eq!(
            read(dialect, ": ping\n\ndata:\n\nid: 7\n\n").0,
            [const { Meaning::Preamble }; 3]
        );
    }
}

#[test]
fn an_error_tells_its_status_in_every_dialect() {
    for (data, status) in [
        (r#"{"error":{"message":"x","code":"429"}}"#, Some(429)),
        (r#"{"error":{"message":"x","code":"overloaded"}}"#, None),
        (r#"{"error":"no"}"#, None),
        (r#"{"type":"error","error":{"type":"overloaded_error"}}"#, Some(529)),
        (r#"{"type":"error","error":{"type":"rate_limit_error"}}"#, Some(429)),
        (r#"{"type":"error","error":{"type":"api_error"}}"#, Some(500)),
        (r#"{"type":"error","error":{"type":"invalid_request_error"}}"#, Some(400)),
    ] {
        for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages, Dialect::Opaque] {
            assert_eq!(meaning(dialect, data), Meaning::Error(status), "{dialect:?} {data}");
        }
    }
    for (data, status) in [
        (r#"{"type":"error","code":"rate_limit_exceeded","message":"x"}"#, Some(429)),
        (r#"{"type":"error","code":"insufficient_quota","message":"x"}"#, Some(429)),
        (r#"{"type":"response.failed","response":{"error":{"code":"server_error"}}}"#, Some(500)),
        (r#"{"type":"response.failed","response":{"error":null}}"#, None),
    ] {
        assert_eq!(meaning(Dialect::Responses, data), Meaning::Error(status), "{data}");
    }
    for data in ["{}", "{oops", "overloaded"] {
        let named = format!("event: error\ndata: {data}\n\n");
        for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages, Dialect::Opaque] {
            assert_eq!(read(dialect, &named).0, [Meaning::Error(None)], "{dialect:?} {data}");
        }
    }
}

#[test]
fn the_events_of_responses_are_understood() {
    use Meaning::{Content, Done, Last, Preamble};
    for (data, expected) in [
        (r#"{"type":"response.created","response":{"output":[],"error":null}}"#, Preamble),
        (r#"{"type":"response.queued","response":{}}"#, Preamble),
        (r#"{"type":"response.in_progress","response":{}}"#, Preamble),
        (r#"{"type":"response.output_item.added","item":{"type":"function_call"}}"#, Preamble),
        (r#"{"type":"response.content_part.added","part":{}}"#, Preamble),
        (r#"{"type":"keepalive","sequence_number":3}"#, Preamble),
        (r#"{"type":"response.output_text.delta","delta":""}"#, Preamble),
        (r#"{"type":"response.output_text.delta","delta":"a"}"#, Content),
        (r#"{"type":"response.reasoning_summary_text.delta","delta":"a"}"#, Content),
        (r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#, Content),
        (r#"{"type":"response.output_text.done","text":"a"}"#, Content),
        (r#"{"type":"response.completed","response":{"output":[{}]}}"#, Last),
        (r#"{"type":"response.completed","response":{"output":[]}}"#, Done),
        (r#"{"type":"response.incomplete","response":{"output":[]}}"#, Last),
    ] {
        assert_eq!(meaning(Dialect::Responses, data), expected, "{data}");
    }
    let end = r#"data: {"type":"response.completed","response":{"output":[{}],"usage":
data: {"input_tokens":11,"output_tokens":7,"total_tokens":18}}}

"#;
    assert_eq!(read(Dialect::Responses, end), (vec![Last], used(11, 7)));
}

#[test]
fn an_end_that_is_too_long_to_be_looked_at_is_still_the_end() {
    let long = "x".repeat(400 * 1024);
    for event in [
        format!("data: {{\"type\":\"response.completed\",\"response\":{{\"x\":\"{long}\"}}}}\n\n"),
        format!("event: response.completed\ndata: {{\"response\":{{\"x\":\"{long}\"}}}}\n\n"),
    ] {
        let usage = ",\"usage\":{\"input_tokens\":3,\"output_tokens\":4},\"user\":null}}\n\n";
        let event = event.replace("}}\n\n", usage);
        for size in [1_000, 1, 64 * 1024, 300 * 1024] {
            let mut reader = Reader::default();
            let mut read = Vec::new();
            for part in event.as_bytes().chunks(size) {
                reader.read(part, |event, _| read.push(event.read(Dialect::Responses)));
            }
            assert_eq!(read, [(Meaning::Last, used(3, 4), Marks::default())], "{size}");
        }
    }
}

#[test]
fn a_stream_of_several_choices_is_finished_when_each_of_them_is() {
    let choice =
        |index: &str, end: &str| format!("{{{index}\"text\":\"a\",\"finish_reason\":{end}}}");
    let mut marks = Marks::default();
    let mut note = |choices: &[String]| {
        let event = format!("data: {{\"choices\":[{}]}}\n\n", choices.join(","));
        Reader::default().read(event.as_bytes(), |event, _| {
            marks.update(event.read(Dialect::Chat).2);
        });
        marks.are_finished()
    };
    let (open, stop) = ("null", "\"stop\"");
    assert!(!note(&[]));
    assert!(!note(&[choice("\"index\":0,", open), choice("\"index\":1,", open)]));
    assert!(!note(&[choice("\"index\":1,", stop)]));
    assert!(!note(&[choice("\"index\":127,", open)]));
    assert!(!note(&[choice("\"index\":0,", stop)]));
    assert!(note(&[choice("\"index\":127,", stop)]));
    // Who gives no index means the place.
    assert!(!note(&[choice("", stop), choice("", stop), choice("", open)]));
    assert!(note(&[choice("", stop), choice("", stop), choice("\"index\":2,", stop)]));
}

#[test]
fn the_events_of_messages_are_understood_and_a_tool_that_only_starts_is_no_content() {
    use Meaning::{Content, Done, Finish, Preamble};
    let stream = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],",
        "\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,",
        "\"content_block\":{\"type\":\"tool_use\",\"name\":\"x\",\"input\":{}}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n",
        "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},",
        "\"usage\":{\"output_tokens\":15}}\n\n",
        "data: {\"type\":\"message_stop\"}\n\n",
    );
    let expected = vec![Preamble, Preamble, Preamble, Content, Preamble, Finish, Done];
    assert_eq!(read(Dialect::Messages, stream), (expected, used(25, 15)));
}

#[test]
fn of_any_other_stream_the_first_event_is_content() {
    for data in [
        r#"{"type":"speech.audio.delta","audio":"AAAA"}"#,
        r#"{"type":"transcript.text.delta","delta":"a"}"#,
        r#"{"type":"image_generation.partial_image","b64_json":"AAAA"}"#,
        "{}",
    ] {
        assert_eq!(meaning(Dialect::Opaque, data), Meaning::Content, "{data}");
    }
    let done = "data: {\"type\":\"transcript.text.done\",\"usage\":{\"input_tokens\":3,\
                \"output_tokens\":4}}\n\n";
    assert_eq!(read(Dialect::Opaque, done), (vec![Meaning::Content], used(3, 4)));
}

#[test]
fn s13_usage_is_read_where_it_is_sane_and_the_last_report_holds() {
    let chunk = |usage: &str| format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n");
    let told = |usage: &str| {
        let (meanings, told) = read(Dialect::Chat, &chunk(usage));
        assert_eq!(meanings, [Meaning::Preamble], "{usage}");
        told
    };
    assert_eq!(
        told(r#"{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}"#),
        used(9, 12)
    );
    assert_eq!(told(r#"{"total_tokens":21}"#), Usage { input: Some(21), output: None });
    // What Anthropic has from its cache, or puts there, it does not count among the prompt's.
    let cached = r#"{"input_tokens":3,"cache_creation_input_tokens":40,"cache_read_input_tokens":500,
        "output_tokens":1}"#;
    assert_eq!(told(&cached.replace('\n', "")), used(543, 1));
    for garbage in [
        "null",
        "7",
        "[]",
        "\"x\"",
        "{}",
        r#"{"prompt_tokens":-1,"completion_tokens":-7}"#,
        r#"{"prompt_tokens":1.5,"completion_tokens":2e3}"#,
        r#"{"prompt_tokens":18446744073709551615,"completion_tokens":99999999999}"#,
        r#"{"prompt_tokens":1234567890123456789012345678901234567890}"#,
        r#"{"prompt_tokens":"9","completion_tokens":{"x":[1]}}"#,
        r#"{"prompt_tokens":null,"completion_tokens":[1,2]}"#,
        r#"{"prompt_tokens":1,"prompt_tokens":2}"#,
    ] {
        assert_eq!(told(garbage), NONE, "{garbage}");
    }
    let twice = [
        chunk(r#"{"prompt_tokens":9,"completion_tokens":1}"#),
        chunk("null"),
        chunk(r#"{"prompt_tokens":9,"completion_tokens":2}"#),
        chunk(r#"{"prompt_tokens":-9}"#),
    ];
    assert_eq!(read(Dialect::Chat, &twice.concat()).1, used(9, 2));
    // A prompt that speaks of usage is none.
    let text = r#"data: {"choices":[{"delta":{"content":"{\"usage\":{\"prompt_tokens\":7}}"}}]}"#;
    assert_eq!(read(Dialect::Chat, &format!("{text}\n\n")), (vec![Meaning::Content], NONE));
}

#[test]
fn u13_u14_a_plain_answer_that_is_none_is_told_apart_in_every_dialect() {
    use Dialect::{Chat, Completions, Messages, Opaque, Responses};
    let usage = r#""usage":{"prompt_tokens":9,"completion_tokens":2}"#;
    for (dialect, body) in [
        (Chat, format!("{{\"choices\":[{{}}],{usage}}}")),
        (Completions, format!(" {{{usage},\"choices\":[{{}}]}}")),
        (Opaque, format!("{{\"data\":[],{usage}}}")),
        (Responses, format!("{{\"output\":[],\"error\":null,{usage}}}")),
        (Responses, format!("{{\"status\":\"queued\",{usage}}}")),
        (Messages, format!("{{\"type\":\"message\",\"content\":[],{usage}}}")),
    ] {
        assert_eq!(plain(body.as_bytes(), dialect), Plain::Good(used(9, 2)), "{body}");
    }
    for dialect in [Chat, Completions, Responses, Messages] {
        for body in [r#"{"choices":[]}"#, "{}", r#"{"type":"x","content":null}"#] {
            assert_eq!(plain(body.as_bytes(), dialect), Plain::Malformed, "{dialect:?} {body}");
        }
    }
    for dialect in [Chat, Completions, Responses, Messages, Opaque] {
        for body in ["null", "", "[]", "<html>", "[{}", "{\"choices\":[{}]"] {
            assert_eq!(plain(body.as_bytes(), dialect), Plain::Malformed, "{dialect:?} {body}");
        }
        let error = plain(br#"{"error":{"code":429}}"#, dialect);
        assert_eq!(error, Plain::Error(Some(429)), "{dialect:?}");
        let error = plain(br#"{"type":"error","error":{"type":"overloaded_error"}}"#, dialect);
        assert_eq!(error, Plain::Error(Some(529)), "{dialect:?}");
    }
    for body in ["[{\"index\":0,\"score\":0.5}]", " [1]", "\"text\"", "7", "true"] {
        assert_eq!(plain(body.as_bytes(), Opaque), Plain::Good(NONE), "{body}");
        for dialect in [Chat, Completions, Responses, Messages] {
            assert_eq!(plain(body.as_bytes(), dialect), Plain::Malformed, "{dialect:?} {body}");
        }
    }
    let failed = br#"{"status":"failed","error":{"code":"server_error"},"output":[]}"#;
    assert_eq!(plain(failed, Responses), Plain::Error(Some(500)));
    let failed = br#"{"status":"failed","error":null,"output":[]}"#;
    assert_eq!(plain(failed, Responses), Plain::Error(None));
}
