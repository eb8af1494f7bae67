//! Files that change, in every way they do, and what becomes of the configuration.

use std::path::Path;

use quorum::NodeId;
use tempfile::TempDir;

use super::*;

/// Takes on whatever it is given, unless it is told not to.
#[derive(Default)]
struct Taker {
    taken: Mutex<Vec<u32>>,
    refuses: Mutex<Option<String>>,
}

impl Adopt for Taker {
    fn try_on(&self, _: &Config) -> Result<(), String> {
        self.refuses.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn adopt(&self, config: &Config) -> Result<Changes, String> {
        self.try_on(config)?;
        self.taken.lock().unwrap().push(config.retry.max_attempts);
        Ok(Changes::default())
    }
}

struct Stand {
    reload: Arc<Reload>,
    taker: Arc<Taker>,
    directory: TempDir,
}

fn text(attempts: u32) -> String {
    format!(
        "retry: {{ max_attempts: {attempts} }}
models: [ {{ name: m, endpoints: [ {{ name: a, address: \"http://a\" }} ] }} ]
"
    )
}

/// With a certificate for clients, of which nothing but the content matters here.
fn text_with_certificate(directory: &Path) -> String {
    let directory = directory.display();
    let tls = format!("server: {{ tls: {{ cert: {directory}/cert, key: {directory}/key }} }}\n");
    tls + &text(2)
}

impl Stand {
    fn of(text: impl Fn(&Path) -> String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (taker, file) = (Arc::new(Taker::default()), directory.path().join("gw.yaml"));
        let text = text(directory.path());
        std::fs::write(&file, &text).unwrap();
        let config = variables::parse_own(&text, "test.yaml").0.unwrap();
        let meters = Arc::new(Meters::new());
        let events = Arc::new(Events::new(NodeId::new("gw"), 1));
        let adopter = Arc::clone(&taker) as Arc<dyn Adopt>;
        let from = (Some(file), Held::by(&config));
        let reload = Reload::new(&config, from, adopter, (&meters, &events));
        Self { reload, taker, directory }
    }

    fn new() -> Self {
        Self::of(|_| text(2))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn taken(&self) -> Vec<u32> {
        self.taker.taken.lock().unwrap().clone()
    }

    /// One look at the files, as it is made again and again.
    async fn look(&self) {
        let path = self.directory.path().join("gw.yaml");
        self.reload.look(&path).await;
    }

    fn error(&self) -> Option<String> {
        self.reload.last_error().map(|failure| failure.message)
    }

    fn count(&self, result: &str) -> u64 {
        let page = self.reload.meters.render();
        let series = format!("quorumgate_config_reloads_total{{result=\"{result}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn what_is_seen_is_taken_on_once() {
    let stand = Stand::new();
    stand.look().await;
    assert_eq!((stand.taken(), stand.count("unchanged")), (vec![], 0), "nobody has asked for it");
    stand.write("gw.yaml", &text(3));
    for _ in 0..3 {
        stand.look().await;
    }
    assert_eq!((stand.taken(), stand.count("ok"), stand.count("unchanged")), (vec![3], 1, 0));
    assert_eq!(stand.reload.config().retry.max_attempts, 3);
}

#[tokio::test]
async fn a_refused_text_is_not_tried_again_until_it_is_another() {
    let stand = Stand::new();
    stand.write("gw.yaml", "models: [ {");
    for _ in 0..3 {
        stand.look().await;
    }
    assert_eq!((stand.taken(), stand.count("error")), (vec![], 1));
    std::fs::remove_file(stand.directory.path().join("gw.yaml")).unwrap();
    for _ in 0..3 {
        stand.look().await;
    }
    assert_eq!(stand.count("error"), 2);
    stand.write("gw.yaml", &text(2));
    stand.look().await;
    assert_eq!((stand.taken(), stand.count("unchanged"), stand.error()), (vec![], 1, None));
}

#[tokio::test]
async fn what_a_part_refuses_leaves_the_old_one_whole_and_is_tried_when_it_is_asked_for() {
    let stand = Stand::new();
    *stand.taker.refuses.lock().unwrap() = Some("no such certificate".to_owned());
    stand.write("gw.yaml", &text(4));
    for _ in 0..3 {
        stand.look().await;
    }
    assert_eq!((stand.count("error"), stand.error().as_deref()), (1, Some("no such certificate")));
    assert_eq!(stand.reload.check(text(4)).await.unwrap_err(), "no such certificate");
    assert_eq!(stand.reload.config().retry.max_attempts, 2);
    *stand.taker.refuses.lock().unwrap() = None;
    assert!(stand.reload.reload().await.unwrap().changed);
    assert_eq!((stand.taken(), stand.error()), (vec![4], None));
}

#[tokio::test]
async fn another_certificate_behind_the_same_name_is_another_configuration() {
    let stand = Stand::of(text_with_certificate);
    stand.write("cert", "first");
    stand.write("key", "first");
    assert!(stand.reload.reload().await.unwrap().changed, "they were not there before");
    assert!(!stand.reload.reload().await.unwrap().changed);
    stand.write("cert", "second");
    stand.look().await;
    stand.write("key", "second");
    stand.look().await;
    stand.look().await;
    assert_eq!(stand.taken(), [2, 2, 2]);
}

#[tokio::test]
async fn a_text_that_is_still_written_is_left_alone() {
    let stand = Stand::new();
    stand.look().await;
    stand.write("gw.yaml", &text(3));
    let path = stand.directory.path().join("gw.yaml");
    let looking = stand.reload.changed(&path);
    let writing = async {
        tokio::time::sleep(SETTLED / 2).await;
        stand.write("gw.yaml", &text(4));
    };
    let (seen, ()) = tokio::join!(looking, writing);
    assert!(seen.is_none(), "it was another a moment later");
    stand.look().await;
    assert_eq!(stand.taken(), [4]);
}

#[tokio::test]
async fn two_who_ask_at_once_take_turns() {
    let stand = Stand::new();
    stand.write("gw.yaml", &text(3));
    let (one, other) = tokio::join!(stand.reload.reload(), stand.reload.reload());
    let (one, other) = (one.unwrap().changed, other.unwrap().changed);
    assert_eq!((u32::from(one) + u32::from(other), stand.taken()), (1, vec![3]));
}

#[tokio::test]
async fn who_asks_while_many_wait_is_turned_away() {
    let stand = Stand::new();
    let turn = stand.reload.turn.lock().await;
    let asks = (0..WAITING_MAX).map(|_| {
        let reload = Arc::clone(&stand.reload);
        tokio::spawn(async move { reload.reload().await })
    });
    let asks: Vec<_> = asks.collect();
    tokio::task::yield_now().await;
    assert!(stand.reload.reload().await.unwrap_err().contains("too many"));
    drop(turn);
    for ask in asks {
        ask.await.unwrap().unwrap();
    }
    stand.reload.reload().await.unwrap();
    assert_eq!(stand.count("error"), 0);
}

#[tokio::test]
async fn without_a_file_there_is_nothing_to_reload() {
    let config = variables::parse_own(&text(2), "test.yaml").0.unwrap();
    let (meters, taker) = (Arc::new(Meters::new()), Arc::new(Taker::default()));
    let events = Arc::new(Events::new(NodeId::new("gw"), 1));
    let reload = Reload::new(&config, (None, Held::by(&config)), taker, (&meters, &events));
    assert!(reload.reload().await.unwrap_err().contains("not started from a file"));
    assert!(reload.check(text(9)).await.is_ok());
}
