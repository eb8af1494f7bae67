//! A name's addresses outlive the resolver's bad days, and change when they change, on paused time.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

/// What a resolver of the test's own says next, and how often it was asked.
#[derive(Clone, Default)]
struct Oracle {
    says: Arc<Mutex<Option<Vec<IpAddr>>>>,
    asked: Arc<AtomicUsize>,
}

impl Oracle {
    fn says(&self, addresses: Option<Vec<[u8; 4]>>) {
        let addresses = addresses.map(|all| all.into_iter().map(IpAddr::from).collect());
        *self.says.lock().unwrap() = addresses;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn resolver(&self) -> Arc<Resolver> {
        let oracle = self.clone();
        Resolver::new(Box::new(move |_| {
            oracle.asked.fetch_add(1, Ordering::SeqCst);
            let says = oracle.says.lock().unwrap().clone();
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                says.ok_or_else(|| io::ErrorKind::NotFound.into())
            })
        }))
    }
}

async fn found(resolver: &Arc<Resolver>) -> Option<Vec<IpAddr>> {
    resolver.resolve("gpu").await.map(|addresses| addresses.to_vec())
}

/// Lets time pass, and a question that is asked at its end come back.
async fn after(resolver: &Arc<Resolver>, period: Duration) -> Option<Vec<IpAddr>> {
    tokio::time::sleep(period).await;
    found(resolver).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    found(resolver).await
}

#[tokio::test(start_paused = true)]
async fn u28_a_name_that_was_never_known_has_no_address_and_is_not_asked_in_a_storm() {
    for says in [None, Some(vec![])] {
        let oracle = Oracle::default();
        oracle.says(says);
        let resolver = oracle.resolver();
        let began = clock::instant();
        while began.elapsed() < Duration::from_secs(60) {
            assert_eq!(found(&resolver).await, None);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!((50..=61).contains(&oracle.asked()), "{}", oracle.asked());
        oracle.says(Some(vec![A]));
        assert_eq!(after(&resolver, PAUSE).await, Some(vec![A.into()]));
    }
}

#[tokio::test(start_paused = true)]
async fn u28_a_bad_answer_never_replaces_a_good_one() {
    let oracle = Oracle::default();
    oracle.says(Some(vec![A]));
    let resolver = oracle.resolver();
    assert_eq!(found(&resolver).await, Some(vec![A.into()]));
    for says in [None, Some(vec![]), None] {
        oracle.says(says);
        let began = clock::instant();
        let before = oracle.asked();
        while began.elapsed() < Duration::from_secs(120) {
            assert_eq!(found(&resolver).await, Some(vec![A.into()]));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!((10..=25).contains(&(oracle.asked() - before)), "{}", oracle.asked() - before);
    }
}

#[tokio::test(start_paused = true)]
async fn u28_of_many_addresses_fifty_are_kept() {
    let oracle = Oracle::default();
    oracle.says(Some((0..200).map(|last| [10, 0, 0, last]).collect()));
    assert_eq!(found(&oracle.resolver()).await.map(|all| all.len()), Some(ADDRESSES_MAX));
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_at_once_ask_once() {
    let oracle = Oracle::default();
    oracle.says(Some(vec![A]));
    let resolver = oracle.resolver();
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let resolver = Arc::clone(&resolver);
        all.spawn(async move { found(&resolver).await });
    }
    for addresses in all.join_all().await {
        assert_eq!(addresses, Some(vec![A.into()]));
    }
    assert_eq!(oracle.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn u29_a_name_that_moves_is_followed_while_requests_go_on() {
    let oracle = Oracle::default();
    oracle.says(Some(vec![A]));
    let resolver = oracle.resolver();
    assert_eq!(found(&resolver).await, Some(vec![A.into()]));
    oracle.says(Some(vec![B]));
    assert_eq!(after(&resolver, FRESH.mul_f64(0.5)).await, Some(vec![A.into()]));
    assert_eq!(after(&resolver, FRESH).await, Some(vec![B.into()]));
    // Flapping is followed at the same pace, and no faster.
    let before = oracle.asked();
    for turn in 0..600 {
        oracle.says(Some(vec![if turn % 2 == 0 { A } else { B }]));
        assert!(after(&resolver, Duration::from_secs(1)).await.is_some());
    }
    assert!(oracle.asked() - before <= 27, "{}", oracle.asked() - before);
}

#[tokio::test(start_paused = true)]
async fn u29_an_answer_that_has_long_been_stale_is_not_used_before_the_next_one_is_there() {
    let oracle = Oracle::default();
    oracle.says(Some(vec![A]));
    let resolver = oracle.resolver();
    assert_eq!(found(&resolver).await, Some(vec![A.into()]));
    oracle.says(Some(vec![B]));
    tokio::time::sleep(FRESH * 10).await;
    assert_eq!(found(&resolver).await, Some(vec![B.into()]));
    oracle.says(None);
    tokio::time::sleep(FRESH * 10).await;
    assert_eq!(found(&resolver).await, Some(vec![B.into()]), "none is worse than an old one");
}

#[tokio::test(start_paused = true)]
async fn u28_a_resolver_that_hangs_holds_nobody_up_who_knows_an_address() {
    let is_hanging = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let hangs = Arc::clone(&is_hanging);
    let resolver = Resolver::new(Box::new(move |_| {
        let hangs = hangs.load(Ordering::SeqCst);
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(vec![A.into()])
        })
    }));
    assert_eq!(found(&resolver).await, Some(vec![A.into()]));
    is_hanging.store(true, Ordering::SeqCst);
    tokio::time::sleep(FRESH * 10).await;
    let began = clock::instant();
    for _ in 0..100 {
        assert_eq!(found(&resolver).await, Some(vec![A.into()]));
    }
    assert_eq!(began.elapsed(), PATIENCE, "the first has waited, and no other");
}

#[tokio::test(start_paused = true)]
async fn an_address_at_which_nobody_answers_is_asked_for_anew() {
    let oracle = Oracle::default();
    oracle.says(Some(vec![A]));
    let resolver = oracle.resolver();
    assert_eq!(found(&resolver).await, Some(vec![A.into()]));
    oracle.says(Some(vec![B]));
    for _ in 0..10 {
        resolver.distrust("gpu");
        let _ = found(&resolver).await;
    }
    assert_eq!(oracle.asked(), 1, "not within a second of the last question");
    tokio::time::sleep(PAUSE).await;
    assert_eq!(after(&resolver, Duration::ZERO).await, Some(vec![B.into()]));
    assert_eq!(oracle.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_lost_with_its_runtime_is_asked_again() {
    let oracle = Oracle::default();
    oracle.says(Some(vec![A]));
    let resolver = oracle.resolver();
    let entry = Arc::clone(guard(&resolver.names).entry("gpu".to_owned()).or_default());
    guard(&entry.state).is_asking = true;
    let (asking, waiting) = (
        Asking { entry },
        tokio::spawn({
            let resolver = Arc::clone(&resolver);
            async move { found(&resolver).await }
        }),
    );
    tokio::task::yield_now().await;
    drop(asking);
    assert_eq!(waiting.await.unwrap(), None);
    assert_eq!(found(&resolver).await, Some(vec![A.into()]));
}
