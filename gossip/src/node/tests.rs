//! The supervision of chitchat.

use std::sync::atomic::Ordering;

use chitchat::{ChitchatMessage, Deserializable};

use tokio::time::timeout;

use super::*;
use crate::Tls;
use crate::transport;

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

#[tokio::test]
async fn a_gossip_task_that_panics_is_started_again_under_the_next_generation() {
    let config = Config {
        cluster_id: "fleet".to_owned(),
        node_id: "one".to_owned(),
        generation: 5,
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: "127.0.0.1:0".to_owned(),
        seeds: Vec::new(),
        gossip_interval: Duration::from_millis(20),
        tls: Tls::Insecure,
        push: true,
    };
    let stats = Arc::new(Stats::default());
    let (pushes_in, pushes) = mpsc::channel(1);
    let (_commands_in, commands) = mpsc::channel(1);
    let (_mine_in, mine) = watch::channel(Mine::default());
    let (stop_in, stop) = watch::channel(false);
    let (ours_in, mut ours) = watch::channel(Ours::default());
    let (net, authority) = transport::bind(&config, Arc::clone(&stats), pushes_in).unwrap();
    let seals = Seals::new(&config.cluster_id, authority);
    let port = Arc::clone(net.net());
    let channels = Channels { mine, stop, commands, pushes, ours: ours_in };
    let node = tokio::spawn(Node::new(config, (net, seals), Arc::clone(&stats), channels).run());

    ours.changed().await.unwrap();
    port.hand_to_chitchat(poison());
    let is_restarted = |ours: &Ours| {
        let is_counted = stats.restarts.load(Ordering::Relaxed) == 1;
        is_counted && stats.rounds.load(Ordering::Relaxed) > 5 && ours.members.is_empty()
    };
    let again = ours.wait_for(is_restarted);
    timeout(Duration::from_secs(10), again).await.unwrap().unwrap();

    stop_in.send(true).unwrap();
    timeout(Duration::from_secs(3), node).await.unwrap().unwrap();
}
