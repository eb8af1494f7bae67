//! The relay alone, over a body that a script speaks, on virtual time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use breaker::{Errand, View};
use http_body_util::BodyExt;

use super::*;
use crate::config;
use crate::fleet::{Endpoint, Fleet};
use crate::metrics::Meters;

/// What the upstream does next; a script that is over has ended cleanly.
#[derive(Clone, Debug)]
enum Step {
    Give(Vec<u8>),
    Rest(u64),
    Break,
    Panic,
    Hang,
}

use Step::{Give, Hang, Rest};

struct Script {
    steps: VecDeque<Step>,
    rest: Option<Pin<Box<Sleep>>>,
}

impl Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some(rest) = &mut self.rest {
                ready!(rest.as_mut().poll(context));
                self.rest = None;
            }
            match self.steps.pop_front() {
                Some(Give(bytes)) => {
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from(bytes)))));
                }
                Some(Rest(millis)) => {
                    self.rest = Some(Box::pin(tokio::time::sleep(Duration::from_millis(millis))));
                }
                Some(Step::Break) => return Poll::Ready(Some(Err(io::Error::other("cut")))),
                Some(Step::Panic) => std::panic::resume_unwind(Box::new("a fault of our own")),
                Some(Hang) => self.steps.push_front(Hang),
                None => return Poll::Ready(None),
            }
            if matches!(self.steps.front(), Some(Hang)) && self.rest.is_none() {
                return Poll::Pending;
            }
        }
    }
}

impl Source for Script {
    fn linger(self, _: Duration) {}

    fn abandon(self) {}
}

/// A relay and what is known of it.
struct Stage {
    relay: Relay<Script>,
    endpoint: Arc<Endpoint>,
    ended: Arc<Mutex<Option<(End, Usage)>>>,
}

/// What the client has read.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    text: String,
    frames: usize,
    is_clean: bool,
}

fn patience() -> Patience {
    Patience {
        idle: Duration::from_secs(60),
        deadline: clock::instant() + Duration::from_secs(600),
        slow_at: None,
        pace_min: None,
        heartbeat: None,
    }
}

fn stage(dialect: Option<Dialect>, patience: Patience, steps: Vec<Step>) -> Stage {
    let text = "models: [ { name: m, endpoints: [ { name: a, address: \"http://a\" } ] } ]";
    let config = config::parse(text, "test.yaml", &|_| None).unwrap();
    let fleet = Fleet::new(&config.pools, &Meters::new(), &(Arc::new(|_| {}) as _));
    let endpoint = Arc::clone(fleet.endpoints().next().unwrap().1);
    let admission = endpoint.admit(clock::now(), Errand::Request { prompt_tokens: 1 }).unwrap();
    let ended = Arc::new(Mutex::new(None));
    let told = Arc::clone(&ended);
    let on_end: OnEnd = Box::new(move |end, usage| *told.lock().unwrap() = Some((end, usage)));
    let events = dialect.map(|dialect| Events::new(dialect, Counter::noop()));
    let script = Script { steps: steps.into(), rest: None };
    let relay = Relay::new(Vec::new(), script, events, admission, patience, on_end);
    Stage { relay, endpoint, ended }
}

impl Stage {
    async fn read(&mut self) -> Read {
        let (mut bytes, mut frames) = (Vec::new(), 0);
        let is_clean = loop {
            match self.relay.frame().await {
                None => break true,
                Some(Err(Interrupted)) => break false,
                Some(Ok(frame)) => {
                    frames += 1;
                    bytes.extend_from_slice(&frame.into_data().unwrap());
                }
            }
        };
        Read { text: String::from_utf8(bytes).unwrap(), frames, is_clean }
    }

    fn ended(&self) -> (End, Usage) {
        self.ended.lock().unwrap().unwrap()
    }

    fn view(&self) -> View {
        assert_eq!(self.endpoint.in_flight(), 0);
        self.endpoint.view(clock::now())
    }
}

fn give(text: &str) -> Step {
    Give(text.as_bytes().to_vec())
}

/// A whole stream of each dialect, with text of several bytes a character.
const TALES: [(Dialect, &str); 5] = [
    (
        Dialect::Chat,
        "data: {\"choices\":[{\"delta\":{\"content\":\"\u{4f60}\u{1f600}\"}}]}\n\n\
         data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n\
         data: [DONE]\n\n",
    ),
    (
        Dialect::Completions,
        "data: {\"choices\":[{\"text\":\"\u{4f60}\"}],\"usage\":{\"prompt_tokens\":3}}\n\n: x\n\n\
         data: {\"choices\":[],\"usage\":{\"completion_tokens\":4}}\n\ndata: [DONE]\n\n",
    ),
    (
        Dialect::Responses,
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n\
         data: {\"type\":\"response.output_text.delta\",\"delta\":\"\u{1f600}\"}\n\n\
         event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":\
         [{}],\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}}\n\n",
    ),
    (
        Dialect::Messages,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":\
         {\"input_tokens\":3,\"output_tokens\":1}}}\n\n\
         data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\u{4f60}\"}}\n\n\
         data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":4}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ),
    (
        Dialect::Opaque,
        "data: {\"type\":\"transcript.text.delta\",\"delta\":\"\u{4f60}\"}\n\ndata: no json\n\n\
         data: {\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n\n",
    ),
];

const USED: Usage = Usage { input: Some(3), output: Some(4) };

#[tokio::test(start_paused = true)]
async fn s07_s08_every_dialect_split_at_any_byte_with_any_line_end_comes_out_the_same() {
    for (dialect, tale) in TALES {
        for line_end in ["\n", "\r\n", "\r"] {
            let tale = tale.replace('\n', line_end);
            for at in 0..tale.len() {
                let (head, tail) = tale.as_bytes().split_at(at);
                let steps = vec![Give(head.to_vec()), Rest(1), Give(tail.to_vec())];
                let mut stage = stage(Some(dialect), patience(), steps);
                let read = stage.read().await;
                assert!(read.is_clean, "{dialect:?} {line_end:?} at {at}: {read:?}");
                assert_eq!(read.text, tale, "{dialect:?} {line_end:?} at {at}");
                assert_eq!(stage.ended(), (End::Complete, USED), "{dialect:?} at {at}");
                assert_eq!((stage.view().successes, stage.view().streak), (1, 0));
            }
            let single = tale.bytes().flat_map(|byte| [Give(vec![byte]), Rest(1)]).collect();
            let mut stage = stage(Some(dialect), patience(), single);
            assert_eq!(stage.read().await.text, tale, "{dialect:?} {line_end:?}");
        }
    }
}

/// What a client reads of a tale that is broken off before its last event.
fn broken(dialect: Dialect, tale: &str) -> (String, String) {
    let whole = tale.trim_end().rfind("\n\n").map_or(tale, |at| &tale[..at + 2]);
    let error = ApiError::stream_interrupted().event(dialect);
    (whole.to_owned(), format!("{whole}{}", std::str::from_utf8(&error).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn f34_s01_s02_a_stream_whose_end_never_comes_is_visibly_broken_in_every_dialect() {
    for (dialect, tale) in TALES {
        let (whole, expected) = broken(dialect, tale);
        // A body that ends quietly is the end where the dialect has none of its own.
        let quiet = (dialect != Dialect::Opaque).then(Vec::new);
        for end in [Some(vec![Step::Break]), Some(vec![Hang]), quiet].into_iter().flatten() {
            let steps = [vec![give(&whole), Rest(5), give("data: {\"torn")], end].concat();
            let mut stage = stage(Some(dialect), patience(), steps.clone());
            let read = stage.read().await;
            assert_eq!(
                (read.text.as_str(), read.is_clean),
                (expected.as_str(), false),
                "{steps:?}"
            );
            assert_eq!(stage.ended().0, End::Interrupted);
            let view = stage.view();
            assert_eq!((view.streak, view.faults, view.successes), (1, 1.0, 0), "{steps:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s05_what_stands_behind_the_end_is_dropped_in_every_dialect() {
    for (dialect, tale) in TALES.into_iter().filter(|(dialect, _)| *dialect != Dialect::Opaque) {
        for steps in [
            vec![give(&format!("{tale}data: junk\n\n")), Hang],
            vec![give(tale), Rest(1), give("data: junk\n\n"), Hang],
        ] {
            let mut stage = stage(Some(dialect), patience(), steps);
            let read = stage.read().await;
            assert_eq!((read.text.as_str(), read.is_clean), (tale, true), "{dialect:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_mid_stream_is_the_last_event_in_every_dialect() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n";
    for (dialect, tale) in TALES {
        let (whole, _) = broken(dialect, tale);
        let mut stage = stage(
            Some(dialect),
            patience(),
            vec![give(&format!("{whole}{error}data: junk\n\n")), Hang],
        );
        let read = stage.read().await;
        assert_eq!((read.text, read.is_clean), (format!("{whole}{error}"), false), "{dialect:?}");
        assert_eq!((stage.ended().0, stage.view().streak), (End::Interrupted, 1), "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s11_a_silent_stream_is_kept_alive_by_comments_which_are_no_progress() {
    let heartbeat = Some(Duration::from_secs(15));
    for (dialect, tale) in TALES {
        let (whole, expected) = broken(dialect, tale);
        let steps = vec![give(&whole), Hang];
        let began = clock::instant();
        let mut stage = stage(Some(dialect), Patience { heartbeat, ..patience() }, steps);
        let read = stage.read().await;
        let kept =
            expected.replacen(&whole, &format!("{whole}{}", ": keep-alive\n\n".repeat(3)), 1);
        assert_eq!((read.text, read.is_clean), (kept, false), "{dialect:?}");
        assert_eq!(began.elapsed().as_secs(), 60, "{dialect:?}");
        assert_eq!(stage.view().streak, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_comment_stands_between_events_only() {
    let heartbeat = Some(Duration::from_secs(15));
    let (_, tale) = TALES[0];
    for at in 1..tale.len() {
        if !tale.is_char_boundary(at) {
            continue;
        }
        let steps = vec![give(&tale[..at]), Rest(20_000), give(&tale[at..])];
        let mut stage = stage(Some(Dialect::Chat), Patience { heartbeat, ..patience() }, steps);
        let read = stage.read().await;
        let (before, after) = read.text.split_once(": keep-alive\n\n").unwrap();
        assert_eq!(format!("{before}{after}"), tale);
        assert!(before.is_empty() || before.ends_with("\n\n"), "{before:?}");
    }
    // An event that was too long to be held is torn, and stays so until its end.
    let long = "x".repeat(2 * TAIL_BYTES_MAX);
    let steps = vec![give(&format!("data: {long}")), Rest(40_000), give(&format!("\n\n{tale}"))];
    let mut stage = stage(Some(Dialect::Chat), Patience { heartbeat, ..patience() }, steps);
    assert_eq!(stage.read().await.text, format!("data: {long}\n\n{tale}"));
}

#[tokio::test(start_paused = true)]
async fn s16_a_fault_of_our_own_ends_one_stream_visibly_and_blames_nobody() {
    for (dialect, tale) in TALES {
        let (whole, expected) = broken(dialect, tale);
        let steps = vec![give(&whole), Rest(5), Step::Panic];
        let mut stage = stage(Some(dialect), patience(), steps);
        let read = stage.read().await;
        assert_eq!((read.text, read.is_clean), (expected, false), "{dialect:?}");
        assert_eq!(stage.ended().0, End::Panicked);
        let view = stage.view();
        assert_eq!((view.streak, view.faults, view.successes), (0, 0.0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn s10_what_came_together_is_given_together_and_others_have_their_turn() {
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let few = vec![give(event); 20];
    let mut stage_of_few = stage(Some(Dialect::Chat), patience(), [few, vec![Rest(1)]].concat());
    let frame = stage_of_few.relay.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), event.repeat(20));

    const COUNT: usize = 10_000;
    let mut steps = vec![give(event); COUNT];
    steps.push(give("data: [DONE]\n\n"));
    let mut stage = stage(Some(Dialect::Chat), patience(), steps);
    let turns = Arc::new(Mutex::new(0_usize));
    let (counted, others) = (Arc::clone(&turns), async {
        loop {
            *turns.lock().unwrap() += 1;
            tokio::task::yield_now().await;
        }
    });
    let read = tokio::select! {
        biased;
        read = stage.read() => read,
        () = others => unreachable!(),
    };
    assert!(read.is_clean && read.text.len() == event.len() * COUNT + 14);
    let turns = *counted.lock().unwrap();
    assert!(turns >= COUNT / 50, "{turns} turns");
    assert!(read.frames <= COUNT / 16, "{} frames", read.frames);
}

#[tokio::test(start_paused = true)]
async fn time_in_which_the_client_took_nothing_is_not_the_endpoints() {
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let steps = vec![vec![give(event), Rest(500), give(event), Rest(100)]; 10].concat();
    let patience = || Patience {
        idle: Duration::from_secs(2),
        slow_at: Some(clock::instant() + Duration::from_secs(20)),
        pace_min: Some(2.0),
        ..patience()
    };
    let mut reads_late = stage(Some(Dialect::Chat), patience(), steps.clone());
    for _ in 0..10 {
        reads_late.relay.frame().await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let slow = reads_late.relay.admission.as_ref().unwrap().is_slow();
    assert!(!slow && reads_late.endpoint.view(clock::now()).slow_pieces == 0);
    drop(reads_late.relay);
    assert_eq!(reads_late.endpoint.in_flight(), 0);

    let lame = vec![vec![give(event), Rest(1_900)]; 10].concat();
    let mut lame = stage(Some(Dialect::Chat), patience(), lame);
    for _ in 0..6 {
        lame.relay.frame().await.unwrap().unwrap();
    }
    assert!(lame.relay.admission.as_ref().unwrap().is_slow());
}

#[tokio::test(start_paused = true)]
async fn u25_a_plain_answer_without_end_is_cut_and_a_stream_is_not() {
    let piece = Give(vec![b'x'; 1024 * 1024]);
    let fits = PLAIN_BYTES_MAX as usize / (1024 * 1024);
    let mut whole = stage(None, patience(), vec![piece.clone(); fits]);
    let read = whole.read().await;
    assert!(read.is_clean && read.text.len() as u64 == PLAIN_BYTES_MAX);
    let mut long = stage(None, patience(), vec![piece; fits + 1]);
    let read = long.read().await;
    assert!(!read.is_clean && read.text.len() as u64 <= PLAIN_BYTES_MAX);
    assert_eq!((long.ended().0, long.view().streak), (End::Interrupted, 1));

    let event = format!("data: {{\"x\":\"{}\"}}\n\n", "x".repeat(50 * 1024)).repeat(20);
    let mut steps = vec![give(&event); fits + 4];
    steps.push(give("data: [DONE]\n\n"));
    let mut stream = stage(Some(Dialect::Chat), patience(), steps);
    let read = stream.read().await;
    assert!(read.is_clean && read.text.len() as u64 > PLAIN_BYTES_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_reported_with_what_the_stream_took_so_far() {
    let (whole, _) = broken(Dialect::Messages, TALES[3].1);
    let mut stage = stage(Some(Dialect::Messages), patience(), vec![give(&whole), Hang]);
    stage.relay.frame().await.unwrap().unwrap();
    drop(stage.relay);
    assert_eq!(*stage.ended.lock().unwrap(), Some((End::ClientLeft, USED)));
    assert_eq!((stage.endpoint.in_flight(), stage.endpoint.view(clock::now()).requests), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_usage_of_a_long_plain_answer_is_read_at_its_end_however_it_is_split() {
    let answer = format!(
        "{{\"usage\":{{\"prompt_tokens\":1}},\"data\":[{}],\"usage\" : {{\"prompt_tokens\":3,\
         \"completion_tokens\":4}}}}",
        "0.123456789,".repeat(300)
    );
    for size in [1, 7, 1_000, 1_024, 1_025, answer.len()] {
        let steps = answer.as_bytes().chunks(size).map(|part| Give(part.to_vec())).collect();
        let mut stage = stage(None, patience(), steps);
        let read = stage.read().await;
        assert!(read.is_clean && read.text == answer, "{size}");
        assert_eq!(stage.ended(), (End::Complete, USED), "{size}");
    }
    for end in ["", "\"usage\"", "\"usage\":", "\"usage\":{\"prompt_tokens\":", "\u{4f60}"] {
        let mut stage = stage(None, patience(), vec![give(end)]);
        assert!(stage.read().await.is_clean);
        assert_eq!(stage.ended(), (End::Complete, Usage::default()), "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_connection_alone_tells_its_end_has_to_show_one() {
    let event = "data: {\"x\":1}\r\n\r\n";
    for (proof, dialect, text, is_whole) in [
        (Proof::Json, None, "[{\"x\":1}, {}] \n", true),
        (Proof::Json, None, "{\"x\":[1,", false),
        (Proof::Json, None, "{\"x\":\"abc", false),
        (Proof::Nothing, None, "{\"x\":[1,", true),
        (Proof::Event, Some(Dialect::Opaque), event, true),
        (Proof::Event, Some(Dialect::Opaque), "data: {\"x\":1}\r\n", false),
        (Proof::Nothing, Some(Dialect::Opaque), "data: {\"x\":1}\r\n", true),
    ] {
        for at in 0..text.len() {
            let steps = vec![give(&text[..at]), Rest(1), give(&text[at..])];
            let mut stage = stage(dialect, patience(), steps);
            stage.relay.proof = proof;
            let read = stage.read().await;
            assert_eq!(read.is_clean, is_whole, "{text:?} at {at}");
            assert_eq!(stage.view().streak, u32::from(!is_whole), "{text:?} at {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn several_choices_without_a_last_word_are_complete_when_each_has_ended() {
    let end = |index| {
        let choice = format!("{{\"index\":{index},\"delta\":{{}},\"finish_reason\":\"stop\"}}");
        give(&format!("data: {{\"choices\":[{choice}]}}\n\n"))
    };
    let both = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}},\
                {\"index\":1,\"delta\":{\"content\":\"b\"}}]}\n\n";
    for (steps, is_whole) in
        [(vec![give(both), end(1)], false), (vec![give(both), end(1), end(0)], true)]
    {
        let mut stage = stage(Some(Dialect::Chat), patience(), steps);
        assert_eq!(stage.read().await.is_clean, is_whole);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_the_slower_side_has_no_more_time_than_the_whole_answer() {
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let deadline = clock::instant() + Duration::from_secs(10);
    let long = Give(event.repeat(400).into_bytes());
    let mut stage =
        stage(Some(Dialect::Chat), Patience { deadline, ..patience() }, vec![long; 100]);
    let mut pieces = Vec::new();
    while let Ok(frame) = stage.relay.frame().await.unwrap() {
        pieces.push(frame.into_data().unwrap());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!((10..=12).contains(&pieces.len()), "{} pieces", pieces.len());
    assert!(pieces.last().unwrap().ends_with(b"}}\n\n"));
    assert!(String::from_utf8_lossy(pieces.last().unwrap()).contains("stream_interrupted"));
    // It was cut while it came on, which says nothing about the endpoint.
    assert_eq!((stage.ended().0, stage.view().streak), (End::Interrupted, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_drain_cuts_is_booked_on_neither_side() {
    let mut stage = stage(Some(Dialect::Chat), patience(), vec![Hang]);
    crate::proxy::Cut::cut(&mut stage.relay);
    let read = stage.read().await;
    assert!(read.text.contains("stream_interrupted") && !read.is_clean, "{read:?}");
    assert_eq!((stage.ended().0, stage.view().streak), (End::Drained, 0));
}
