//! What becomes of bodies: refused, understood, and written for an upstream.

use super::*;
use crate::config::Tokenizer;

fn open() -> FailClosed {
    FailClosed { max_messages: Some(2), max_input_tokens: Some(1_000), ..FailClosed::default() }
}

/// What becomes of a body, apart from which models there are.
fn asked(
    rule: &FailClosed,
    route: Route,
    content_type: &str,
    body: &[u8],
) -> Result<Call, ApiError> {
    let body = Bytes::copy_from_slice(body);
    let content_type = HeaderValue::from_str(content_type).unwrap();
    let reading = read(route, &content_type, &body, true)?;
    within(rule, route, &reading)?;
    if let Some(most) = rule.max_input_tokens {
        short_enough(reading.prompt_tokens, most)?;
    }
    Ok(reading.into_call(route, "/v1/x", content_type, None, body))
}

fn on(route: Route, body: &str) -> Result<Call, ApiError> {
    asked(&open(), route, "application/json", body.as_bytes())
}

fn call(body: &str) -> Result<Call, ApiError> {
    on(Route::Chat, body)
}

/// The code of the refusal, and the part that is at fault.
fn refusal(body: &str) -> (&'static str, Option<&'static str>) {
    let error = call(body).unwrap_err();
    (error.code, error.param)
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn only_the_models_name_is_spliced_and_every_other_byte_stays() {
    let body = "{ \"n\" : 1, \"big\":1234567890123456789012345678901234567890,\
                \"model\" : \"m\\u0061\" ,\"x\":[1e999,-0,\"\u{4f60}\\ud800\"]}";
    let call = call(body).unwrap();
    assert_eq!(call.model, "ma");
    let spliced = call.body_for("org/big", false).whole();
    assert_eq!(text(&spliced), body.replace("\"m\\u0061\"", "\"org/big\""));
    assert_eq!(call.body_for("ma", true).whole(), call.body);
}

#[test]
fn a_long_body_is_spliced_as_a_short_one_is_and_not_copied() {
    let long = format!(
        r#"{{"messages":[{{"role":"user","content":"{}"}}],"model":"m","stream":true}}"#,
        "x".repeat(100_000)
    );
    let rule = FailClosed::default();
    let call = asked(&rule, Route::Chat, "application/json", long.as_bytes()).unwrap();
    let renamed = long.replace("\"m\"", "\"other\"");
    assert_eq!(text(&call.body_for("other", false).whole()), renamed);
    let usage = r#"{"stream_options":{"include_usage":true},"#;
    let with_usage = renamed.replacen('{', usage, 1);
    assert_eq!(text(&call.body_for("other", true).whole()), with_usage);
    assert_eq!(text(&call.body_for("m", true).whole()), long.replacen('{', usage, 1));
}

#[test]
fn usage_is_asked_for_only_in_streams_that_say_nothing_about_it() {
    let asked_for =
        |route, body: &str| text(&on(route, body).unwrap().body_for("m", true).whole()).to_owned();
    let stream = r#" { "model":"m","stream":true}"#;
    let expected = r#" {"stream_options":{"include_usage":true}, "model":"m","stream":true}"#;
    assert_eq!(asked_for(Route::Chat, stream), expected);
    assert_eq!(asked_for(Route::Completions, stream), expected);
    let renamed = on(Route::Chat, stream).unwrap().body_for("other", true).whole();
    assert_eq!(text(&renamed), expected.replace("\"m\"", "\"other\""));
    assert_eq!(on(Route::Chat, stream).unwrap().body_for("m", false).whole(), stream);
    for (route, body) in [
        (Route::Responses, stream),
        (Route::Messages, stream),
        (Route::Chat, r#"{"model":"m","stream":false}"#),
        (Route::Chat, r#"{"model":"m","stream":true,"stream_options":null}"#),
        (Route::Chat, r#"{"model":"m","stream_options":{},"stream":true}"#),
    ] {
        assert_eq!(asked_for(route, body), body);
    }
}

#[test]
fn j01_j02_j11_j19_what_is_no_json_object_is_refused() {
    for body in [
        "",
        " ",
        "null",
        "[]",
        "\"x\"",
        "1",
        "{\"model\":\"m\"",
        "{\"model\":\"m\",\"mess",
        "{\"model\":\"m\"}{}",
        "{\"model\":\"m\"}x",
        "{\"model\":\"m\"} // why",
        "{\"model\":\"m\",}",
        "{\"model\":\"m\",\"x\":NaN}",
        "{\"model\":\"m\",\"x\":Infinity}",
        "{\"model\":\"m\",\"x\":-Infinity}",
        "{\"model\":\"m\",\"x\":01}",
        "{\"model\":\"m\",\"x\":\"\t\"}",
        "{'model':'m'}",
        "\u{feff}{\"model\":\"m\"}",
    ] {
        let error = call(body).unwrap_err();
        assert_eq!((error.status.as_u16(), error.code), (400, "invalid_request"), "{body}");
    }
    let latin =
        asked(&open(), Route::Chat, "application/json", b"{\"model\":\"m\",\"x\":\"\xe4\"}");
    assert_eq!(latin.unwrap_err().code, "invalid_request");
}

#[test]
fn of_what_is_read_nothing_may_be_there_twice_however_it_is_written() {
    for name in ["model", "stream", "stream_options", "n", "messages", "input", "max_tokens"] {
        for twin in [name.to_owned(), name.replace('m', "\\u006d").replace('n', "\\u006e")] {
            let body = format!(r#"{{"{name}":null,"x":1,"{twin}":null}}"#);
            assert_eq!(refusal(&body).0, "invalid_request", "{body}");
        }
    }
    // What is not read is the engine's affair.
    assert!(call(r#"{"model":"m","x":1,"x":2,"y":{"model":"a","model":"b"}}"#).is_ok());
}

#[test]
fn j04_j10_a_model_that_is_no_name_is_refused() {
    for raw in ["1", "null", "[]", "{}", "true", r#""\ud800""#, r#""\ud800x""#, r#""\udc00\ud800""#]
    {
        let body = format!(r#"{{"model":{raw}}}"#);
        assert_eq!(refusal(&body), ("invalid_request", Some("model")), "{body}");
    }
    assert_eq!(refusal("{}"), ("invalid_request", Some("model")));
    for name in ["", &"x".repeat(10_240)] {
        assert_eq!(refusal(&format!(r#"{{"model":"{name}"}}"#)).0, "model_not_found");
    }
}

#[test]
fn j13_stream_is_a_boolean_or_nothing() {
    assert!(call(r#"{"model":"m","stream":true}"#).unwrap().is_stream);
    assert!(!call(r#"{"model":"m","stream":null}"#).unwrap().is_stream);
    for raw in ["\"true\"", "1", "[]"] {
        let body = format!(r#"{{"model":"m","stream":{raw}}}"#);
        assert_eq!(refusal(&body), ("invalid_request", Some("stream")), "{body}");
    }
}

#[test]
fn j14_n_is_a_small_number_where_it_means_answers() {
    for raw in ["1", "16", "null"] {
        assert!(call(&format!(r#"{{"model":"m","n":{raw}}}"#)).is_ok(), "{raw}");
    }
    for raw in ["0", "17", "1000000", "-1", "1.5", "1.0", "1e0", "\"1\"", "[]", &"9".repeat(40)] {
        let body = format!(r#"{{"model":"m","n":{raw}}}"#);
        assert_eq!(refusal(&body), ("invalid_request", Some("n")), "{body}");
        assert!(on(Route::Embeddings, &body).is_ok());
    }
}

#[test]
fn what_is_bounded_cannot_be_said_in_another_case() {
    for (name, param) in [
        ("Model", "model"),
        ("STREAM", "stream"),
        ("N", "n"),
        ("Best_Of", "best_of"),
        ("max_Tokens", "max_tokens"),
        ("m\\u0041x_tokens", "max_tokens"),
        ("\u{17f}tream", "stream"),
        ("max_to\u{212a}ens", "max_tokens"),
        ("Messages", "messages"),
        ("Prompt", "prompt"),
        ("INPUT", "input"),
    ] {
        let body = format!(r#"{{"model":"m","{name}":1}}"#);
        assert_eq!(refusal(&body), ("invalid_request", Some(param)), "{body}");
    }
    assert!(call(r#"{"mod\u0065l":"m","x":{"Model":1},"modell":1,"no":1}"#).is_ok());
    assert_eq!(refusal(r#"{"model":"m","best_of":17}"#), ("invalid_request", Some("best_of")));
}

#[test]
fn too_many_messages_and_too_many_tokens_have_codes_of_their_own() {
    let messages = |list: &str| format!(r#"{{"model":"m","messages":{list},"x":[1,2,3,4]}}"#);
    for list in ["[]", "[ ]", "[{}]", "[{},[1,2,3]]", "null"] {
        assert!(call(&messages(list)).is_ok(), "{list}");
    }
    for list in ["[{},{},{}]", "[1 , 2 , 3 ]", r#"["a,b",[],{}]"#] {
        assert_eq!(refusal(&messages(list)), ("too_many_messages", Some("messages")), "{list}");
    }
    for list in ["{}", "1", "\"x\""] {
        assert_eq!(refusal(&messages(list)), ("invalid_request", Some("messages")), "{list}");
    }
    let items = r#"{"model":"m","input":[1,2,3]}"#;
    assert_eq!(on(Route::Responses, items).unwrap_err().code, "too_many_messages");
    assert!(on(Route::Embeddings, items).is_ok());
    let long = format!(r#"{{"model":"m","x":"{}"}}"#, "y".repeat(4_100));
    assert_eq!(refusal(&long).0, "input_too_large");
}

#[test]
fn deep_nesting_is_bounded_and_costs_no_stack() {
    let nested = |depth: usize| {
        format!(r#"{{"model":"m","x":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1))
    };
    let boundless = FailClosed::default();
    let ask = |body: &str| asked(&boundless, Route::Chat, "application/json", body.as_bytes());
    assert_eq!(ask(&nested(128)).unwrap().body_for("m", false).whole(), nested(128));
    for depth in [129, 100_000] {
        assert_eq!(ask(&nested(depth)).unwrap_err().code, "invalid_request");
    }
    let names: Vec<_> = (0..1_024).map(|number| format!("\"k{number}\":1")).collect();
    let body = format!(r#"{{"model":"m",{}}}"#, names.join(","));
    assert_eq!(ask(&body).unwrap_err().code, "invalid_request");
}

#[test]
fn the_bound_on_an_answer_is_the_largest_that_is_given_for_all_its_choices() {
    for (body, expected) in [
        (r#"{"model":"m"}"#, None),
        (r#"{"model":"m","max_tokens":null}"#, None),
        (r#"{"model":"m","max_tokens":"many"}"#, None),
        (r#"{"model":"m","max_tokens":-1}"#, None),
        (r#"{"model":"m","max_tokens":10,"max_completion_tokens":20}"#, Some(20)),
        (r#"{"model":"m","max_output_tokens":30}"#, Some(30)),
        (r#"{"model":"m","n":3,"max_tokens":10}"#, Some(30)),
        (r#"{"model":"m","n":3,"best_of":5,"max_tokens":10}"#, Some(50)),
        (r#"{"model":"m","n":2,"prompt":["a","b,c",""],"max_tokens":10}"#, Some(60)),
        (r#"{"model":"m","prompt":[ [1,2], [3]],"max_tokens":10}"#, Some(20)),
        (r#"{"model":"m","prompt":[1,2,3],"max_tokens":10}"#, Some(10)),
    ] {
        assert_eq!(call(body).unwrap().max_tokens, expected, "{body}");
    }
}

#[test]
fn the_prefix_is_of_the_prompt_alone_and_of_its_beginning() {
    let rule = FailClosed::default();
    let prefix = |route, body: &str| {
        asked(&rule, route, "application/json", body.as_bytes()).unwrap().prefix
    };
    let shared = "x".repeat(3_000);
    let one = format!(r#"{{"model":"m","messages":[{{"content":"{shared}one"}}],"n":1}}"#);
    let two = format!(r#"{{ "messages":[{{"content":"{shared}two"}}],"model":"other"}}"#);
    assert_eq!(prefix(Route::Chat, &one), prefix(Route::Chat, &two));
    let other = one.replace(&shared, "x");
    assert_ne!(prefix(Route::Chat, &one), prefix(Route::Chat, &other));
    // Whose system's part is one has one beginning, wherever in the body it stands.
    let one = format!(r#"{{"model":"m","messages":[1],"system":"{shared}"}}"#);
    let two = format!(r#"{{"model":"m","system":"{shared}","messages":[2]}}"#);
    assert_eq!(prefix(Route::Messages, &one), prefix(Route::Messages, &two));
}

#[test]
fn a_picture_costs_what_it_costs_and_a_text_that_looks_like_one_what_it_is_long() {
    let data = format!("data:image/png;base64,{}", "A".repeat(400_000));
    let rule = FailClosed { max_input_tokens: Some(2_000), ..FailClosed::default() };
    let ask = |body: String| asked(&rule, Route::Chat, "application/json", body.as_bytes());
    let picture = r#"{"type":"image_url","image_url":{"url":"DATA"}}"#.replace("DATA", &data);
    let body = format!(r#"{{"model":"m","messages":[{{"content":[{picture}]}}]}}"#);
    assert!((1_536..1_600).contains(&ask(body).unwrap().prompt_tokens));
    let text = format!(r#"{{"model":"m","messages":[{{"content":"{data}"}}]}}"#);
    assert_eq!(ask(text).unwrap_err().code, "input_too_large");
    let elsewhere = format!(r#"{{"model":"m","tools":[{picture}],"messages":[]}}"#);
    assert_eq!(ask(elsewhere).unwrap_err().code, "input_too_large");
}

async fn counted(body: &str, most: u64) -> u64 {
    let vocabulary = Some(Vocabulary::load(Tokenizer::O200kBase));
    let mut reading = json::read(Route::Chat, body.as_bytes(), true).unwrap();
    reading.count(Route::Chat, vocabulary, body.as_bytes(), most).await;
    reading.prompt_tokens
}

#[tokio::test]
async fn near_the_limit_a_vocabulary_counts_the_texts_and_not_the_json() {
    let spaces = " ".repeat(400);
    let body = format!(r#"{{"model":"m",{spaces}"messages":[{{"content":"h\u0065llo world"}}]}}"#);
    assert_eq!(counted(&body, 100).await, 2);
    let estimate = body.len().div_ceil(4) as u64;
    assert_eq!(counted(&body, 1_000).await, estimate);
    assert_eq!(counted(&body, 10).await, estimate);
    // Names of tools and their schemas are in the prompt, numbers of tokens are no texts.
    let tools = body.replace("\"messages\"", r#""tools":[{"name":"hello"}],"messages""#);
    assert!(counted(&tools, 100).await > 5);
    // What a tool was given is read with its names and numbers.
    let given = body.replace("\"content\"", r#""input":{"a_long_name":12345678},"content""#);
    assert_eq!(counted(&given, 100).await, 2 + (5 + 11 + 8_u64).div_ceil(4));
    // What is read elsewhere, where nobody knows, is estimated.
    let mut elsewhere = json::read(Route::Rerank, body.as_bytes(), false).unwrap();
    let vocabulary = Some(Vocabulary::load(Tokenizer::O200kBase));
    elsewhere.count(Route::Rerank, vocabulary, body.as_bytes(), 100).await;
    assert_eq!(elsewhere.prompt_tokens, estimate);
    let numbers = body.replace("\"messages\"", r#""prompt":[1,2,3],"messages""#);
    assert_eq!(counted(&numbers, 100).await, numbers.len().div_ceil(4) as u64);
}

#[test]
fn a_body_is_json_unless_it_says_otherwise_and_a_form_only_where_files_go() {
    let kind = |route, value: Option<&'static str>| {
        let value = value.map(|value| (header::CONTENT_TYPE, HeaderValue::from_static(value)));
        content_type(route, &value.into_iter().collect()).map_err(|error| error.code)
    };
    let json = HeaderValue::from_static("application/json");
    assert_eq!(kind(Route::Chat, None), Ok(json));
    for value in ["application/json", "Application/JSON ; charset=utf-8"] {
        assert_eq!(kind(Route::Chat, Some(value)), Ok(HeaderValue::from_static(value)));
    }
    let form = "multipart/form-data; boundary=x";
    assert_eq!(kind(Route::Audio, Some(form)), Ok(HeaderValue::from_static(form)));
    assert_eq!(kind(Route::Images, Some(form)), Ok(HeaderValue::from_static(form)));
    for value in [form, "text/plain", "", "application/x-www-form-urlencoded", "application/jsonl"]
    {
        assert_eq!(kind(Route::Chat, Some(value)), Err("unsupported_media_type"), "{value}");
    }
    assert_eq!(
        kind(Route::Audio, Some("multipart/mixed; boundary=x")),
        Err("unsupported_media_type")
    );
    let mut headers = HeaderMap::new();
    for _ in 0..2 {
        headers.append(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    assert_eq!(content_type(Route::Chat, &headers).unwrap_err().code, "unsupported_media_type");
}
