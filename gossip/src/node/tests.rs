//! The supervision of chitchat, and news that is sent on.

use chitchat::{ChitchatMessage, Deserializable};

use tokio::time::timeout;

use super::*;
use crate::transport;
use crate::{Tls, certs};

/// An answer that passes chitchat's decoder and stops its task: a greatest version below a key's.
/// The vet refuses it, so the test hands it to chitchat behind the vet's back.
fn poison() -> ChitchatMessage {
    let text = |text: &str| [&(text.len() as u16).to_le_bytes(), text.as_bytes()].concat();
    let id = [text("ghost"), vec![1, 0, 0, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1, 9, 9]].concat();
    let number = |number: u64| number.to_le_bytes().to_vec();
    let digest = [vec![1, 0], id.clone(), number(5), number(0), number(9)].concat();
    let ops = [
        [vec![0], id, number(0), number(0)].concat(),
        [vec![1], text("k"), text("v"), number(9), vec![0]].concat(),
        [vec![2], number(4)].concat(),
    ]
    .concat();
    let delta = [vec![2], (ops.len() as u16).to_le_bytes().to_vec(), ops, vec![0]].concat();
    let frame = [45_139_u16.to_le_bytes().to_vec(), vec![0, 1], digest, delta].concat();
    ChitchatMessage::deserialize(&mut frame.as_slice()).unwrap()
}

fn config(node_id: &str, tls: Tls, seeds: Vec<String>) -> Config {
    Config {
        cluster_id: "fleet".to_owned(),
        node_id: node_id.to_owned(),
        generation: 5,
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: "127.0.0.1:0".to_owned(),
        seeds,
        gossip_interval: Duration::from_millis(20),
        tls,
        push: true,
    }
}

/// A node with the other ends of its channels.
struct Scene {
    node: Node,
    stats: Arc<Stats>,
    mine: watch::Sender<Mine>,
    stop: watch::Sender<bool>,
    ours: watch::Receiver<Ours>,
    _commands: mpsc::Sender<Command>,
}

fn scene(config: Config) -> Scene {
    let stats = Arc::new(Stats::default());
    let (pushes_in, pushes) = mpsc::channel(16);
    let (commands_in, commands) = mpsc::channel(1);
    let (mine_in, mine) = watch::channel(Mine::default());
    let (stop_in, stop) = watch::channel(false);
    let (ours_in, ours) = watch::channel(Ours::default());
    let (net, authority) = transport::bind(&config, Arc::clone(&stats), pushes_in).unwrap();
    let seals = Seals::new(&config.cluster_id, authority);
    let channels = Channels { mine, stop, commands, pushes, ours: ours_in };
    let node = Node::new(config, (net, seals), Arc::clone(&stats), channels);
    Scene { node, stats, mine: mine_in, stop: stop_in, ours, _commands: commands_in }
}

#[tokio::test]
async fn a_gossip_task_that_panics_is_started_again_under_the_next_generation() {
    let Scene { node, stats, mine: _mine, stop, mut ours, _commands } =
        scene(config("one", Tls::Insecure, Vec::new()));
    let port = Arc::clone(node.net.net());
    let node = tokio::spawn(node.run());

    ours.changed().await.unwrap();
    port.hand_to_chitchat(poison());
    let is_restarted = |ours: &Ours| {
        let is_counted = stats.restarts.load(Ordering::Relaxed) == 1;
        is_counted && stats.rounds.load(Ordering::Relaxed) > 5 && ours.members.is_empty()
    };
    let again = ours.wait_for(is_restarted);
    timeout(Duration::from_secs(10), again).await.unwrap().unwrap();

    stop.send(true).unwrap();
    timeout(Duration::from_secs(3), node).await.unwrap().unwrap();
}

#[tokio::test]
async fn news_is_sent_on_once_with_its_writers_signature_and_reaches_everybody() {
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..11).map(|number| format!("n{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let certificates = certs::throw_away(directory.path(), &names).unwrap();
    let (mut fleet, mut tasks, mut seeds) = (Vec::new(), tokio::task::JoinSet::new(), Vec::new());
    for (name, tls) in names.iter().zip(certificates) {
        let mut settings = config(name, tls, seeds.clone());
        settings.gossip_interval = Duration::from_millis(500);
        let mut scene = scene(settings);
        // A small fleet, told as a large one is.
        scene.node.direct_max = 0;
        seeds = vec![scene.node.net.local_addr().to_string()];
        let Scene { node, stats, mine, stop, ours, _commands } = scene;
        tasks.spawn(node.run());
        fleet.push((stats, mine, stop, ours, _commands));
    }
    for (.., ours, _) in &mut fleet {
        let knows_all = |ours: &Ours| {
            ours.members.len() == 10 && ours.members.iter().all(|member| member.is_live)
        };
        timeout(Duration::from_secs(30), ours.wait_for(knows_all)).await.unwrap().unwrap();
    }
    let card = quorum::Card {
        version: "1".to_owned(),
        config_hash: String::new(),
        standing: quorum::Standing::Serving,
        is_suspect: false,
    };
    let (_, writer, ..) = fleet.first().unwrap();
    writer.send_modify(|mine| mine.card = Some(card));
    for (.., ours, _) in fleet.iter_mut().skip(1) {
        let is_told = |ours: &Ours| ours.members.iter().any(|member| member.card.is_some());
        timeout(Duration::from_secs(30), ours.wait_for(is_told)).await.unwrap().unwrap();
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let mut sent: Vec<_> = fleet.iter().map(|(stats, ..)| count(&stats.pushes_out)).collect();
    assert_eq!(sent.remove(0), tree::FAN_OUT as u64, "the writer tells a few");
    // The tenth and the ninth are the first one's children, unless gossip has been quicker.
    assert!(sent.iter().sum::<u64>() <= 2, "{sent:?}");
    assert!(sent.iter().sum::<u64>() > 0, "one sends on: {sent:?}");
    let sent = sent.iter().sum::<u64>() + tree::FAN_OUT as u64;
    let has_arrived = |(stats, ..): &(Arc<Stats>, _, _, _, _)| {
        count(&stats.pushes_in) + count(&stats.send_queue_drops)
    };
    let arrived = async {
        let mut looks = interval(Duration::from_millis(10));
        while fleet.iter().map(has_arrived).sum::<u64>() < sent {
            looks.tick().await;
            let refused = fleet.iter().map(|(stats, ..)| stats.rejects(crate::Reject::Identity));
            assert_eq!(refused.sum::<u64>(), 0, "what is sent on is taken from any member");
        }
    };
    timeout(Duration::from_secs(30), arrived).await.unwrap();
    for (stats, ..) in &fleet {
        assert!(count(&stats.pushes_in) <= 1, "nobody is told twice");
        assert_eq!(stats.rejects(crate::Reject::Signature), 0);
    }
}
