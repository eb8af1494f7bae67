//! What other rooms and crates promise at their public faces.

use std::collections::BTreeSet;

use quorum::{Ballot, Basis, NodeId, tally};

use crate::import::{ImportError, litellm};

/// What is made of another gateway's configuration is one that we accept, or a reason is given; nothing
/// that stood in clear as a secret is in it.
pub(super) fn imports(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // In any other place it would be no secret.
    let is_secret = text.matches("CANARY").count() == 1 && has_secret(text);
    match litellm(text) {
        Ok(imported) if is_secret => {
            assert!(!imported.yaml.contains("sk-CANARY"), "a secret is in what was made");
            let told = imported.notes.iter().chain(&imported.warnings);
            assert!(!told.into_iter().any(|line| line.contains("sk-CANARY")), "a secret is told");
        }
        Ok(_) => {}
        Err(ImportError::Refused(why)) => unreachable!("what we have made we refuse: {why}"),
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}

/// Whether a model's key begins like a secret.
fn has_secret(text: &str) -> bool {
    let document = serde_saphyr::from_str::<serde_json::Value>(text).unwrap_or_default();
    let models = document.get("model_list").and_then(|list| list.as_array());
    models.into_iter().flatten().any(|model| {
        let key = model.pointer("/litellm_params/api_key").and_then(|key| key.as_str());
        key.is_some_and(|key| key.starts_with("sk-CANARY"))
    })
}

/// Votes in any order, however often told, come to the same; fewer than more than half never open.
pub(super) fn votes(bytes: &[u8]) {
    let Some(([electorate, closed, witnesses], said)) = bytes.split_first_chunk::<3>() else {
        return;
    };
    let (electorate, closed) = (usize::from(*electorate % 16), u64::from(*closed));
    let witnesses = usize::from(*witnesses % 16);
    let names: Vec<NodeId> = (0..16).map(|name| NodeId::new(&format!("n{name}"))).collect();
    // Of each pair of bytes one says who votes and how, the other for which incident.
    let votes = said.chunks_exact(2).filter_map(|pair| {
        let [who, incident] = pair else { return None };
        let voter = names.get(usize::from(who % 16))?;
        let basis = if *who < 128 { Basis::FirstHand } else { Basis::Seconded };
        // The highest stands for one that is beyond every gap.
        let incident = if *incident == u8::MAX { u64::MAX } else { u64::from(*incident) };
        Some(Ballot { voter, incident, basis })
    });
    let votes: Vec<Ballot<'_>> = votes.collect();
    let count = tally(electorate, closed, witnesses, votes.iter().copied());
    let turned = tally(electorate, closed, witnesses, votes.iter().rev().copied());
    assert_eq!(turned, count, "the order decides");
    let twice = tally(electorate, closed, witnesses, votes.iter().chain(&votes).copied());
    assert_eq!((twice.counted, twice.incident), (count.counted, count.incident), "twice counts");
    assert!(2 * count.quorum > electorate);
    let mut voters: Vec<_> = votes.iter().filter(|vote| vote.incident > closed).collect();
    voters.sort_by_key(|vote| vote.voter);
    voters.dedup_by_key(|vote| vote.voter);
    assert!(count.counted <= voters.len());
    assert!(!count.is_open() || 2 * voters.len() > electorate, "a minority opens");
    // What is closed stays closed: with this incident over, nothing that was for it counts.
    if let Some(last) = votes.iter().map(|vote| vote.incident).filter(|one| *one < u64::MAX).max() {
        let after = tally(electorate, last, witnesses, votes.iter().copied());
        assert_eq!(after.counted, 0, "votes for what is over count");
    }
    let (first, rest) = votes.split_at(votes.len() / 2);
    let part = tally(electorate, closed, witnesses, first.iter().copied());
    assert!(rest.is_empty() || part.void <= count.void);
    // Nor does it lack one: counted once more, by the rule's own words. All but the highest is within the gap.
    let valid = || votes.iter().filter(|vote| vote.incident > closed && vote.incident < u64::MAX);
    let all: BTreeSet<_> = valid().map(|vote| vote.voter).collect();
    let saw = valid().filter(|vote| vote.basis == Basis::FirstHand);
    let saw: BTreeSet<_> = saw.map(|vote| vote.voter).collect();
    let is_witnessed = electorate < 3 || witnesses.max(saw.len()) >= 2;
    let expected = if is_witnessed { all.len() } else { saw.len() };
    assert_eq!((count.first_hand, count.counted), (saw.len(), expected), "a vote is lost");
    assert_eq!(count.is_open(), 2 * expected > electorate, "a majority does not open");
    let none = tally(electorate, closed, witnesses, std::iter::empty());
    assert!(!none.is_open() && none.counted == 0);
    assert!(
        count.counted == count.first_hand || count.counted == count.first_hand + count.seconded
    );
}
