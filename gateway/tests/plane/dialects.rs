//! Every dialect over sockets: whole as it came, tried elsewhere before its first content, visibly
//! broken after it, and refused in the form that its own clients read.

use std::time::Duration;

use crate::local::{Ask, House, Plan, Reply, until};
use crate::raw::{Act, Raw, answer, chunk, failed, json, open_stream, whole_stream};
use sha2::{Digest, Sha256};

/// A dialect: where it is spoken, what announces an answer, what is in it, what ends it.
struct Tongue {
    path: &'static str,
    preamble: &'static str,
    content: &'static str,
    end: &'static str,
    plain: &'static str,
}

const RESPONSES: Tongue = Tongue {
    path: "/v1/responses",
    preamble: "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\
               \"r\",\"output\":[],\"error\":null},\"sequence_number\":0}\n\n\
               event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\
               \"item\":{\"type\":\"message\"}}\n\n",
    content: "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\
              \"delta\":\"\u{4f60}\u{1f600}\"}\n\n",
    end: "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":\
          [{}],\"usage\":{\"input_tokens\":11,\"output_tokens\":7}}}\n\n",
    plain: "{\"object\":\"response\",\"status\":\"completed\",\"error\":null,\"output\":[{}],\
            \"usage\":{\"input_tokens\":11,\"output_tokens\":7}}",
};

const MESSAGES: Tongue = Tongue {
    path: "/v1/messages",
    preamble: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\
               \"usage\":{\"input_tokens\":11,\"output_tokens\":1}}}\n\n\
               event: ping\ndata: {\"type\": \"ping\"}\n\n\
               event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
               \"content_block\":{\"type\":\"tool_use\",\"name\":\"x\",\"input\":{}}}\n\n",
    content: "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
              \"delta\":{\"type\":\"text_delta\",\"text\":\"\u{4f60}\u{1f600}\"}}\n\n",
    end: "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\
          \"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n\
          event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    plain: "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\
            \"x\"}],\"usage\":{\"input_tokens\":11,\"output_tokens\":7}}",
};

impl Tongue {
    fn whole(&self) -> String {
        format!("{}{}{}", self.preamble, self.content, self.end)
    }

    fn ask(&self, is_stream: bool) -> Ask {
        let body = format!(
            "{{\"model\":\"demo\",\"input\":\"hi\",\"max_tokens\":9,\"messages\":[{{\"role\":\
             \"user\",\"content\":\"hi\"}}],\"stream\":{is_stream}}}"
        );
        Ask::post(self.path, body).header("content-type", "application/json")
    }

    async fn stream(&self, house: &House) -> Reply {
        self.ask(true).send(house.address()).await
    }
}

async fn house_of(endpoints: &[(&str, &Raw)]) -> House {
    let plan = endpoints
        .iter()
        .fold(Plan::of(&[]), |plan, (name, raw)| plan.endpoint(name, raw.address, ""));
    let plan = plan.top("circuit_breaker: { probe: { enabled: false } }\nretry: { on: [] }");
    plan.top("timeouts: { first_byte: 400ms, idle: 400ms }").start().await
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn s07_s08_a_stream_split_at_any_byte_comes_out_the_same_in_every_dialect() {
    for tongue in [RESPONSES, MESSAGES] {
        for line_end in ["\n", "\r\n", "\r"] {
            let tale = tongue.whole().replace('\n', line_end).into_bytes();
            let (parts, count) = (tale.clone(), tale.len());
            let raw = Raw::start(move |number, _| {
                let (head, tail) = parts.split_at(number % count);
                let split = [head, tail].into_iter().filter(|part| !part.is_empty());
                whole_stream(&split.collect::<Vec<_>>())
            })
            .await;
            let house = house_of(&[("a", &raw)]).await;
            for at in 0..tale.len() {
                let reply = tongue.stream(&house).await;
                assert!(reply.is_clean && reply.status == 200, "{at}: {}", reply.text());
                assert_eq!(digest(&reply.body), digest(&tale), "{line_end:?} at {at}");
            }
            assert_eq!(house.view("a").successes, u32::try_from(tale.len()).unwrap());
        }
    }
}

#[tokio::test]
async fn f36_u08_before_the_first_content_a_failure_is_tried_elsewhere_and_never_seen() {
    let failures = [
        (RESPONSES, "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\"}\n\n"),
        (
            RESPONSES,
            "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"x\"}}}\n\n",
        ),
        (RESPONSES, "data: {\"type\":\"response.completed\",\"response\":{\"output\":[]}}\n\n"),
        (RESPONSES, ""),
        (
            MESSAGES,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
        ),
        (MESSAGES, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        (MESSAGES, ""),
    ];
    for (tongue, failure) in failures {
        let bad = Raw::always(whole_stream(&[tongue.preamble, failure, " "])).await;
        let good = Raw::always(whole_stream(&[tongue.whole()])).await;
        let house = house_of(&[("bad", &bad), ("good", &good)]).await;
        while bad.count() == 0 {
            let reply = tongue.stream(&house).await;
            assert!(
                reply.is_clean && reply.endpoint() == "demo/good",
                "{failure}: {}",
                reply.text()
            );
            assert_eq!(reply.text(), tongue.whole(), "{failure}");
        }
        until("the slot is free", || house.endpoint("bad").in_flight() == 0).await;
        assert_eq!(house.view("bad").streak, 1, "{failure}");
    }
    // What speaks of a limit is tried elsewhere too, and says nothing about health.
    let limited = [
        (RESPONSES, "data: {\"type\":\"error\",\"code\":\"insufficient_quota\"}\n\n"),
        (MESSAGES, "data: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\"}}\n\n"),
    ];
    for (tongue, failure) in limited {
        let bad = Raw::always(whole_stream(&[tongue.preamble, failure])).await;
        let good = Raw::always(whole_stream(&[tongue.whole()])).await;
        let house = house_of(&[("bad", &bad), ("good", &good)]).await;
        while bad.count() == 0 {
            assert_eq!(tongue.stream(&house).await.text(), tongue.whole(), "{failure}");
        }
        house.is_untouched("bad").await;
    }
}

#[tokio::test]
async fn f34_s01_s02_s11_a_stream_that_breaks_ends_with_the_error_event_of_its_dialect() {
    for tongue in [RESPONSES, MESSAGES] {
        let begun = format!("{}{}", tongue.preamble, tongue.content);
        let torn = "event: x\ndata: {\"type\":\"con";
        for end in [
            vec![Act::Reset],
            vec![Act::Say(chunk(b"")), Act::Close],
            vec![Act::Say(chunk(torn.as_bytes())), Act::Close],
            vec![Act::Hang],
        ] {
            let raw =
                Raw::always([open_stream(&[&begun]), vec![Act::Wait], end.clone()].concat()).await;
            let house = house_of(&[("a", &raw)]).await;
            let mut live = tongue.ask(true).open(house.address()).await;
            live.reads("\u{1f600}").await;
            raw.go();
            let reply = live.rest().await;
            assert!(!reply.is_clean, "{end:?}");
            let event = reply.text().strip_prefix(&begun).unwrap();
            let data = event.strip_prefix("event: error\ndata: ").unwrap();
            let error: serde_json::Value =
                serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap();
            assert_eq!(error["type"], "error", "{end:?}");
            assert_eq!(error["error"]["code"], "stream_interrupted", "{end:?}");
            if tongue.path == RESPONSES.path {
                assert_eq!(error["code"], "stream_interrupted");
                assert!(error["message"].is_string() && error["param"].is_null());
            } else {
                assert_eq!(error["error"]["type"], "api_error");
            }
            until("the slot is free", || house.endpoint("a").in_flight() == 0).await;
            assert_eq!((house.view("a").streak, house.view("a").successes), (1, 0), "{end:?}");
        }
    }
}

#[tokio::test]
async fn s04_s05_the_end_of_a_stream_is_the_end_though_the_upstream_goes_on() {
    for tongue in [RESPONSES, MESSAGES] {
        let mut acts = open_stream(&[format!("{}data: junk\n\n", tongue.whole())]);
        acts.push(Act::Hang);
        let raw = Raw::always(acts).await;
        let house = house_of(&[("a", &raw)]).await;
        let reply = tongue.stream(&house).await;
        assert_eq!((reply.text(), reply.is_clean), (tongue.whole().as_str(), true));
        until("the upstream is let go", || raw.left().len() == 1).await;
        assert_eq!(house.view("a").successes, 1);
    }
}

#[tokio::test]
async fn s05_a_connection_that_spoke_on_behind_the_end_is_not_used_again() {
    for tongue in [RESPONSES, MESSAGES] {
        let junk = format!("{}data: junk\n\n", tongue.whole());
        let (whole, late) = (tongue.whole(), "data: junk\n\n".to_owned());
        for parts in [vec![junk], vec![whole.clone(), late], vec![whole]] {
            let raw = Raw::always(whole_stream(&parts)).await;
            let house = house_of(&[("a", &raw)]).await;
            for _ in 0..3 {
                let reply = tongue.stream(&house).await;
                assert_eq!((reply.text(), reply.is_clean), (tongue.whole().as_str(), true));
                // The last chunk may come a moment after the last word.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let is_reused = raw.connections() < 3;
            let is_good = parts.concat() == tongue.whole();
            assert_eq!(is_reused, is_good, "{parts:?}: {}", raw.connections());
        }
    }
}

#[tokio::test]
async fn usage_is_read_of_streams_and_of_plain_answers_in_every_dialect() {
    for tongue in [RESPONSES, MESSAGES] {
        for is_stream in [true, false] {
            let script = if is_stream {
                whole_stream(&[tongue.whole()])
            } else {
                vec![Act::Say(json(200, tongue.plain))]
            };
            let raw = Raw::always(script).await;
            let house = house_of(&[("a", &raw)]).await;
            let reply = tongue.ask(is_stream).send(house.address()).await;
            assert!(reply.is_clean && reply.status == 200, "{}", reply.text());
            let expected = if is_stream { tongue.whole() } else { tongue.plain.to_owned() };
            assert_eq!(reply.text(), expected);
            until("the slot is free", || house.endpoint("a").in_flight() == 0).await;
            let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
            for (kind, sum) in [("input", 11), ("output", 7)] {
                let series = format!("{{model=\"demo\",type=\"{kind}\"}} {sum}\n");
                let series = format!("gen_ai_client_token_usage_sum{series}");
                assert!(metrics.text().contains(&series), "{series}");
            }
        }
    }
}

#[tokio::test]
async fn u13_u14_a_plain_answer_that_is_none_is_a_fault_in_every_dialect() {
    for tongue in [RESPONSES, MESSAGES] {
        for body in [
            "{}",
            "null",
            "",
            "<html>",
            "{\"choices\":[{}]}",
            "{\"error\":{\"message\":\"no\",\"code\":\"server_error\"}}",
            "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"}}",
        ] {
            let raw = Raw::always(vec![Act::Say(json(200, body))]).await;
            let house = house_of(&[("a", &raw)]).await;
            let reply = tongue.ask(false).send(house.address()).await;
            assert_eq!(reply.status, 502, "{} {body}", tongue.path);
            assert_eq!(house.view("a").streak, 1, "{} {body}", tongue.path);
        }
    }
    let failed = "{\"status\":\"failed\",\"error\":{\"code\":\"server_error\"},\"output\":[]}";
    let raw = Raw::always(vec![Act::Say(json(200, failed))]).await;
    let house = house_of(&[("a", &raw)]).await;
    assert_eq!(RESPONSES.ask(false).send(house.address()).await.status, 502);
    assert_eq!(house.view("a").streak, 1);
}

#[tokio::test]
async fn an_anthropic_client_is_refused_in_its_own_form_at_the_door_and_behind_it() {
    let raw = Raw::always(vec![Act::Say(failed(503))]).await;
    let house = house_of(&[("a", &raw)]).await;
    let unknown = Ask::post("/v1/messages", r#"{"model":"x"}"#);
    for (ask, status, kind) in [
        (Ask::get("/v1/messages"), 405, "invalid_request_error"),
        (Ask::post("/v1/messages", "{"), 400, "invalid_request_error"),
        (unknown, 404, "not_found_error"),
        (MESSAGES.ask(false), 503, "overloaded_error"),
        (MESSAGES.ask(true), 503, "overloaded_error"),
    ] {
        let reply = ask.send(house.address()).await;
        let body = reply.json();
        assert_eq!((reply.status, &body["type"]), (status, &"error".into()), "{body}");
        assert_eq!(body["error"]["type"], kind, "{body}");
        assert_eq!(body["error"].as_object().unwrap().len(), 4, "{body}");
        assert!(!reply.header("x-request-id").is_empty());
        assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
    }
    let reply = RESPONSES.ask(false).send(house.address()).await;
    assert!(reply.json().get("type").is_none(), "{}", reply.text());
}

#[tokio::test]
async fn speech_and_pictures_are_passed_on_as_they_come_and_nothing_is_no_answer() {
    let speech = [0_u8, 255, 10, 13, 1].repeat(3_000);
    let head = "HTTP/1.1 200 X\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n";
    let (first, rest) = speech.split_at(7);
    let acts = vec![
        Act::Say([head.as_bytes(), &chunk(first)].concat()),
        Act::Wait,
        Act::Say(chunk(rest)),
        Act::Say(chunk(b"")),
    ];
    let raw = Raw::always(acts).await;
    let house = house_of(&[("a", &raw)]).await;
    let ask = Ask::post("/v1/audio/speech", r#"{"model":"demo","input":"hi"}"#);
    let live = ask.open(house.address()).await;
    assert_eq!(house.endpoint("a").in_flight(), 1);
    raw.go();
    let reply = live.rest().await;
    assert!(reply.is_clean && reply.body == speech);
    assert_eq!(reply.header("content-type"), "audio/mpeg");
    for said in [answer(200, "content-type: audio/mpeg\r\n", ""), answer(200, "", "<html>")] {
        let raw = Raw::always(vec![Act::Say(said)]).await;
        let house = house_of(&[("a", &raw)]).await;
        assert_eq!(ask.send(house.address()).await.status, 502);
        assert_eq!(house.view("a").streak, 1);
    }
    let events = "event: speech.audio.delta\ndata: {\"type\":\"speech.audio.delta\",\"audio\":\
                  \"AAAA\"}\n\ndata: {\"type\":\"speech.audio.done\"}\n\n";
    let raw = Raw::always(whole_stream(&[events])).await;
    let house = house_of(&[("a", &raw)]).await;
    let reply = ask.send(house.address()).await;
    assert_eq!((reply.text(), reply.is_clean), (events, true));
    let error = "data: {\"type\":\"error\",\"error\":{\"message\":\"no\",\"code\":500}}\n\n";
    let raw = Raw::always(whole_stream(&[error])).await;
    let house = house_of(&[("a", &raw)]).await;
    assert_eq!(ask.send(house.address()).await.status, 502);
}

#[tokio::test]
async fn an_answer_that_its_connection_alone_ends_is_whole_only_if_it_shows_its_end() {
    let long = format!("{{\"data\":[{}", "0.123456789,".repeat(100_000));
    for (end, is_whole) in [("1]}", true), ("0.12", false)] {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        let said = format!("{head}{long}{end}").into_bytes();
        let raw = Raw::always(vec![Act::Say(said), Act::Close]).await;
        let house = house_of(&[("a", &raw)]).await;
        let body = "{\"model\":\"demo\",\"input\":\"x\"}";
        let reply = house.send(Ask::post("/v1/embeddings", body)).await;
        assert_eq!((reply.status, reply.is_clean), (200, is_whole), "{end}");
        assert_eq!(reply.text().len(), long.len() + end.len());
        assert_eq!(house.view("a").streak, u32::from(!is_whole), "{end}");
    }
}

#[tokio::test]
async fn a_list_and_bytes_that_are_no_json_are_good_answers_where_no_form_is_known() {
    let list = json(200, "[{\"index\":0,\"score\":0.5}]");
    let bytes = answer(200, "content-type: application/octet-stream\r\n", "\u{1}\u{2}");
    let page = answer(200, "content-type: text/html\r\n", "<html>");
    for (said, status) in [(list, 200), (bytes, 200), (page, 502)] {
        let raw = Raw::always(vec![Act::Say(said)]).await;
        let house = house_of(&[("a", &raw)]).await;
        for path in ["/v1/embeddings", "/v1/rerank"] {
            let ask = Ask::post(path, "{\"model\":\"demo\",\"input\":\"x\",\"query\":\"x\"}");
            assert_eq!(house.send(ask).await.status, status, "{path}");
        }
    }
}
