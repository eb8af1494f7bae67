//! What goes upstream is what came, byte for byte but for the model's name: JSON and forms, in
//! whatever pieces they arrive.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::local::{Ask, House, Plan, read_until};
use crate::raw::{Act, Raw, chunk, good};

const CHAT: &str = "/v1/chat/completions";
const TRANSCRIBE: &str = "/v1/audio/transcriptions";
/// A boundary as browsers draw them.
const FORM: &str = "multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW";

/// JSON that no serializer would write back as it is.
fn odd_json() -> String {
    concat!(
        " {\"z\" : 1234567890123456789012345678901234567890, \"a\":-0,\r\n\t\"e\":1e999,\"f\":1.0,",
        "\"u\":\"\\u4f60\\/ \u{4f60}\u{597d} \u{1f600} \\ud83d\\ude00 \\ud800\",",
        "\"model\":\"d\\u0065mo\" ,\"metadata\":{\"model\":\"demo\",\"z\":1,\"z\":2},",
        "\"messages\":[{\"content\":\"\u{1f469}\u{200d}\u{1f680} e\u{301}\",\"role\":\"user\"}],",
        "\"tools\":[{\"pattern\":\"(a+)+$\\\\\\\"\"}],\"x\":[ ] , \"\":null} \n",
    )
    .to_owned()
}

/// A form with a file of all bytes, and of what boundaries are made.
fn odd_form() -> Vec<u8> {
    let mark = FORM.split_once("boundary=").unwrap().1;
    let head = |rest: &str| format!("--{mark}\r\nContent-Disposition: form-data; {rest}\r\n\r\n");
    let mut form =
        head("name=\"file\"; filename=\"\u{e4} \u{4f60}.mp3\"\r\nContent-Type: audio/mpeg");
    form.push_str(&format!("\r\n--\r\n x--{mark}\r\n{{\"model\":\"demo\"}}\r\n"));
    let mut form = form.into_bytes();
    form.extend(0..=255);
    form.extend_from_slice(format!("\r\n{}demo\r\n", head("name=\"model\"")).as_bytes());
    form.extend_from_slice(format!("{}\u{4f60}\r\n--{mark}--\r\n", head("name=prompt")).as_bytes());
    form
}

/// The body with the model named as the endpoint calls it.
fn renamed(body: &[u8]) -> Vec<u8> {
    let place = |wanted: &[u8]| body.windows(wanted.len()).position(|window| window == wanted);
    let (place, old, new) = match place(b"\"d\\u0065mo\"") {
        Some(at) => (at, "\"d\\u0065mo\"", "\"org/Big-1\""),
        None => (place(b"\r\n\r\ndemo\r\n").unwrap() + 4, "demo", "org/Big-1"),
    };
    [&body[..place], new.as_bytes(), &body[place + old.len()..]].concat()
}

async fn house(raw: &Raw) -> House {
    Plan::of(&[]).endpoint("a", raw.address, ", upstream_model: org/Big-1").start().await
}

/// Sends a body in these pieces, each a chunk and a write of its own, and waits for the answer.
async fn send(house: &House, path: &str, kind: &str, pieces: impl IntoIterator<Item = &[u8]>) {
    let mut stream = TcpStream::connect(house.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        stream.write_all(&chunk(piece)).await.unwrap();
    }
    stream.write_all(&chunk(b"")).await.unwrap();
    let told = read_until(&mut stream, "yes").await;
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
}

#[tokio::test]
async fn a_body_torn_at_any_byte_arrives_whole() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = house(&raw).await;
    for (path, kind, body) in [
        (CHAT, "application/json; charset=utf-8", odd_json().into_bytes()),
        (TRANSCRIBE, FORM, odd_form()),
    ] {
        let expected = renamed(&body);
        for at in 0..body.len() {
            send(&house, path, kind, [&body[..at], &body[at..]]).await;
            let seen = raw.seen().pop().unwrap();
            assert!(seen.body == expected, "torn at {at}: {}", seen.body.escape_ascii());
            assert!(seen.head.starts_with(&format!("POST {path} HTTP/1.1\r\n")));
            assert_eq!(seen.header("content-type"), Some(kind));
            assert_eq!(seen.header("content-length"), Some(expected.len().to_string().as_str()));
        }
    }
}

#[tokio::test]
async fn j20_a_body_byte_by_byte_arrives_whole() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = house(&raw).await;
    let body = odd_json().replace("(a+)+$", &"\u{4f60}".repeat(10_000)).into_bytes();
    send(&house, CHAT, "application/json", body.chunks(1)).await;
    assert!(raw.seen().pop().unwrap().body == renamed(&body));
    send(&house, TRANSCRIBE, FORM, odd_form().chunks(1)).await;
    assert!(raw.seen().pop().unwrap().body == renamed(&odd_form()));
}

#[tokio::test]
async fn a_mebibyte_arrives_whole() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = house(&raw).await;
    let mut random = fastrand::Rng::with_seed(7);
    let long: String = (0..512 * 1024).map(|_| random.char('\u{4e00}'..'\u{9fff}')).collect();
    let body = odd_json().replace("(a+)+$", &long);
    let ask = Ask::post(CHAT, body.as_bytes());
    assert_eq!(ask.send(house.address()).await.status, 200);
    assert!(raw.seen().pop().unwrap().body == renamed(body.as_bytes()));
    let noise: Vec<u8> = (0..1024 * 1024).map(|_| random.u8(..)).collect();
    let form = odd_form();
    let (head, tail) =
        form.split_at(form.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4);
    let form = [head, &noise, tail].concat();
    let ask = Ask::post(TRANSCRIBE, form.clone()).header("content-type", FORM);
    assert_eq!(ask.send(house.address()).await.status, 200);
    assert!(raw.seen().pop().unwrap().body == renamed(&form));
}

#[tokio::test]
async fn j16_j22_what_names_a_destination_is_data_and_nobody_follows_it() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let elsewhere = Raw::always(vec![Act::Say(good("no"))]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let other = format!("http://{}", elsewhere.address);
    let body = format!(
        "{{\"api_base\":\"{other}\",\"base_url\":\"{other}\",\"api_key\":\"sk-x\",\"model\":\"demo\",\
         \"extra_headers\":{{\"authorization\":\"Bearer x\"}},\"organization\":\"o\",\"user_config\":{{}},\
         \"response_format\":{{\"pattern\":\"{}\"}}}}",
        "(x+x+)+".repeat(10_000)
    );
    let ask = Ask::post(&format!("{CHAT}?api_base={other}&model=denied"), body.as_bytes())
        .header("x-litellm-model", "denied")
        .header("x-forwarded-host", "elsewhere")
        .header("openai-organization", "o");
    assert_eq!(ask.send(house.address()).await.status, 200);
    let seen = raw.seen().pop().unwrap();
    assert!(seen.body == body.as_bytes());
    assert!(seen.head.starts_with(&format!("POST {CHAT} HTTP/1.1\r\n")), "{}", seen.head);
    let taken = ["authorization", "x-litellm-model", "x-forwarded-host", "openai-organization"];
    assert!(taken.iter().all(|name| seen.header(name).is_none()), "{}", seen.head);
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn usage_is_asked_for_by_a_splice_and_only_where_it_is_configured() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let odd = odd_json().replacen("\"z\" :", "\"stream\":true,\"z\" :", 1).into_bytes();
    let plan = || Plan::of(&[]).endpoint("a", raw.address, ", upstream_model: org/Big-1");
    let spliced = |body: &[u8]| {
        let text = String::from_utf8(renamed(body)).unwrap();
        text.replacen('{', "{\"stream_options\":{\"include_usage\":true},", 1).into_bytes()
    };
    for (house, is_asked) in
        [(plan().pool("include_usage: true").start().await, true), (plan().start().await, false)]
    {
        let ask = |body: &[u8]| house.send(Ask::post(CHAT, body));
        assert_eq!(ask(&odd).await.status, 200);
        let expected = if is_asked { spliced(&odd) } else { renamed(&odd) };
        assert!(raw.seen().pop().unwrap().body == expected);
        let plain = odd_json().into_bytes();
        assert_eq!(ask(&plain).await.status, 200);
        assert!(raw.seen().pop().unwrap().body == renamed(&plain));
    }
}

#[tokio::test]
async fn a_form_that_can_be_read_in_two_ways_reaches_nobody() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = house(&raw).await;
    let whole = String::from_utf8_lossy(&odd_form()).into_owned();
    let mark = FORM.split_once("boundary=").unwrap().1;
    let twice =
        format!("--{mark}\r\nContent-Disposition: form-data; name=model\r\n\r\nx\r\n{whole}");
    let hidden = whole.replace(
        "\r\n--\r\n",
        &format!("\n--{mark}\nContent-Disposition: form-data; name=\"model\"\n\nother\r\n"),
    );
    let line_feeds = whole.replace("\r\n", "\n");
    let nameless = whole.replace("name=\"model\"", "name=\"mode\"");
    for (body, param) in [
        (twice, "\"model\""),
        (hidden, "null"),
        (line_feeds, "null"),
        (nameless, "\"model\""),
        ("{\"model\":\"demo\"}".to_owned(), "null"),
        (String::new(), "null"),
    ] {
        let ask = Ask::post(TRANSCRIBE, body.as_bytes()).header("content-type", FORM);
        let reply = ask.send(house.address()).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{body}");
        assert_eq!(reply.json()["error"]["param"].to_string(), param, "{body}");
    }
    let no_boundary =
        Ask::post(TRANSCRIBE, odd_form()).header("content-type", "multipart/form-data");
    assert_eq!(no_boundary.send(house.address()).await.code(), "invalid_request");
    let elsewhere = Ask::post(CHAT, odd_form()).header("content-type", FORM);
    assert_eq!(elsewhere.send(house.address()).await.code(), "unsupported_media_type");
    assert_eq!(raw.connections(), 0);
}
