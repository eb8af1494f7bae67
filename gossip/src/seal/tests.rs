//! Who can sign what, and for how long it is good.

use std::path::Path;

use quorum::{Card, Standing};
use rcgen::{CertificateParams, Issuer, KeyPair};
use tempfile::TempDir;

use super::*;
use crate::records::Body;
use crate::{Config, certs};

const CERTIFICATE: Place<'static> = Place { node_id: "one", generation: 5, key: "k" };
const CARD: Place<'static> = Place { node_id: "one", generation: 5, key: "c" };

fn config(directory: &Path, node_id: &str) -> Config {
    let file = |ending: &str| directory.join(format!("{node_id}.{ending}"));
    let (ca, cert, key) = (directory.join("ca.crt"), file("crt"), file("key"));
    Config {
        cluster_id: "fleet".to_owned(),
        node_id: node_id.to_owned(),
        generation: 5,
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: "127.0.0.1:0".to_owned(),
        seeds: Vec::new(),
        gossip_interval: std::time::Duration::from_secs(1),
        tls: crate::Tls::Files { ca, cert, key },
        push: true,
    }
}

pub(crate) fn seals(directory: &TempDir, node_id: &str) -> Seals {
    let authority = tls::load(&config(directory.path(), node_id)).unwrap().authority;
    assert!(authority.is_some());
    Seals::new("fleet", authority)
}

pub(crate) fn nodes(node_ids: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    certs::throw_away(directory.path(), node_ids).unwrap();
    directory
}

fn card() -> Vec<u8> {
    let card = Card {
        version: "1".to_owned(),
        config_hash: String::new(),
        standing: Standing::Serving,
        is_suspect: false,
    };
    codec::encode(&Record { seq: 3, body: Body::Card(card) }).unwrap()
}

fn seal(by: &Seals, place: Place<'_>, record: Vec<u8>) -> Sealed {
    codec::decode_sealed(&by.seal(place, record).unwrap()).unwrap()
}

/// Shows the writer's certificate to the reader, under the place's name.
fn introduce(reader: &mut Seals, writer: &Seals, place: Place<'_>) -> Result<bool, Reject> {
    let chain = writer.chain();
    let body = Body::Certificate(chain.clone());
    let record = codec::encode(&Record { seq: 1, body }).unwrap();
    let sealed = seal(writer, place, record);
    reader.introduce(place, &sealed, (1, &chain))
}

#[test]
fn a_record_opens_only_for_its_fleet_its_writer_its_life_and_its_key() {
    let directory = nodes(&["one", "two"]);
    let (one, mut two) = (seals(&directory, "one"), seals(&directory, "two"));
    assert_eq!(introduce(&mut two, &one, CERTIFICATE), Ok(true));
    assert_eq!(introduce(&mut two, &one, CERTIFICATE), Ok(false));
    let sealed = seal(&one, CARD, card());
    assert_eq!(two.open(CARD, &sealed).unwrap().seq, 3);

    let stranger = Place { node_id: "two", ..CARD };
    let later = Place { generation: 6, ..CARD };
    let elsewhere = Place { key: "v/chat/a", ..CARD };
    assert_eq!(two.open(stranger, &sealed), Err(Reject::Signature));
    assert_eq!(two.open(later, &sealed), Err(Reject::Signature));
    assert_eq!(two.open(elsewhere, &sealed), Err(Reject::Undecodable));
    let late = Place { generation: 6, ..CERTIFICATE };
    assert_eq!(introduce(&mut two, &one, late), Ok(true));
    assert_eq!(two.open(later, &sealed), Err(Reject::Signature), "a past life is not replayed");

    let mut other_fleet = Seals::new("another", two.authority.take());
    introduce(&mut other_fleet, &one, CERTIFICATE).unwrap_err();
    let chain = one.chain();
    let witness = other_fleet.witness("one", 5, &chain).unwrap();
    assert_eq!(other_fleet.open_with(&witness, CARD, &sealed), Err(Reject::Signature));
}

#[test]
fn a_changed_byte_breaks_the_seal() {
    let directory = nodes(&["one", "two"]);
    let (one, mut two) = (seals(&directory, "one"), seals(&directory, "two"));
    introduce(&mut two, &one, CERTIFICATE).unwrap();
    let sealed = seal(&one, CARD, card());
    for at in 0..sealed.record.len() {
        let mut changed = sealed.clone();
        changed.record[at] ^= 1;
        assert!(two.open(CARD, &changed).is_err(), "byte {at}");
    }
    let mut changed = sealed.clone();
    changed.signature[9] ^= 1;
    assert_eq!(two.open(CARD, &changed), Err(Reject::Signature));
    for scheme in [0, 0x0401, 0x0805, u16::MAX] {
        let changed = Sealed { scheme, ..sealed.clone() };
        assert_eq!(two.open(CARD, &changed), Err(Reject::Signature), "scheme {scheme:#06x}");
    }
}

#[test]
fn a_member_cannot_sign_for_another_one() {
    let directory = nodes(&["one", "two", "rogue"]);
    let (one, mut two) = (seals(&directory, "one"), seals(&directory, "two"));
    let rogue = seals(&directory, "rogue");
    assert_eq!(introduce(&mut two, &rogue, CERTIFICATE), Err(Reject::Signature));
    introduce(&mut two, &one, CERTIFICATE).unwrap();
    let forged = seal(&rogue, CARD, card());
    assert_eq!(two.open(CARD, &forged), Err(Reject::Signature));
    assert!(two.witness("one", 5, &rogue.chain()).is_err());
    // The certificate of another is public, and proves nothing without its key.
    let chain = one.chain();
    let body = Body::Certificate(chain.clone());
    let later = Place { generation: 9, ..CERTIFICATE };
    let record = codec::encode(&Record { seq: 1, body }).unwrap();
    let forged = seal(&rogue, later, record);
    assert_eq!(two.introduce(later, &forged, (1, &chain)), Err(Reject::Signature));
}

#[test]
fn a_certificate_of_another_ca_is_good_for_nothing() {
    let (ours, theirs) = (nodes(&["one", "two"]), nodes(&["one"]));
    let (stranger, mut two) = (seals(&theirs, "one"), seals(&ours, "two"));
    assert_eq!(introduce(&mut two, &stranger, CERTIFICATE), Err(Reject::Signature));
}

#[test]
fn another_ca_takes_back_what_the_old_one_vouched_for() {
    let (before, after) = (nodes(&["one", "two"]), nodes(&["two"]));
    let (one, mut two) = (seals(&before, "one"), seals(&before, "two"));
    introduce(&mut two, &one, CERTIFICATE).unwrap();
    let renewed = seals(&before, "two").authority;
    assert!(!two.replace(renewed), "the CA is the same");
    let sealed = seal(&one, CARD, card());
    assert!(two.open(CARD, &sealed).is_ok());
    assert!(two.replace(seals(&after, "two").authority));
    assert_eq!(two.open(CARD, &sealed), Err(Reject::Signature));
    assert_eq!(introduce(&mut two, &one, CERTIFICATE), Err(Reject::Signature));
}

#[test]
fn what_has_run_out_is_forgotten_and_named() {
    let directory = nodes(&["one", "two"]);
    let (one, mut two) = (seals(&directory, "one"), seals(&directory, "two"));
    introduce(&mut two, &one, CERTIFICATE).unwrap();
    assert_eq!(two.expire(|_, _| true), []);
    let now = UnixTime::now().as_secs();
    for signatory in two.signatories.values_mut() {
        assert!(signatory.until > now + 24 * 60 * 60, "a node's certificate is good for years");
        signatory.until = now - 1;
    }
    assert_eq!(two.expire(|_, _| true), [("one".to_owned(), 5)]);
    let sealed = seal(&one, CARD, card());
    assert_eq!(two.open(CARD, &sealed), Err(Reject::Signature));
    introduce(&mut two, &one, CERTIFICATE).unwrap();
    assert_eq!(two.expire(|_, _| false), []);
    assert!(two.signatories.is_empty(), "nobody holds that life");
}

#[test]
fn a_kept_certificate_does_not_replace_its_successor() {
    let directory = nodes(&["one", "two"]);
    let (one, mut two) = (seals(&directory, "one"), seals(&directory, "two"));
    let chain = one.chain();
    let record = |seq| {
        let body = Body::Certificate(chain.clone());
        seal(&one, CERTIFICATE, codec::encode(&Record { seq, body }).unwrap())
    };
    assert_eq!(two.introduce(CERTIFICATE, &record(4), (4, &chain)), Ok(true));
    let kept = two.introduce(CERTIFICATE, &record(3), (3, &chain));
    assert_eq!(kept, Err(Reject::Implausible));
}

#[test]
fn keys_of_each_kind_sign() {
    let directory = nodes(&["two"]);
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let ca_key = KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt"), ca_key).unwrap();
    let mut two = seals(&directory, "two");
    for kind in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let key = KeyPair::generate_for(kind).unwrap();
        let params = CertificateParams::new(vec!["one".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(directory.path().join("one.crt"), certificate.pem()).unwrap();
        std::fs::write(directory.path().join("one.key"), key.serialize_pem()).unwrap();
        let one = seals(&directory, "one");
        introduce(&mut two, &one, CERTIFICATE).unwrap();
        assert!(two.open(CARD, &seal(&one, CARD, card())).is_ok(), "{kind:?}");
    }
}

#[test]
fn a_certificate_too_long_to_carry_is_refused_at_the_start() {
    let directory = nodes(&["one"]);
    let file = directory.path().join("one.crt");
    let pem = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, pem.repeat(12)).unwrap();
    assert!(tls::load(&config(directory.path(), "one")).is_err());
}

#[test]
fn without_certificates_nothing_is_signed_and_everything_opens() {
    let (one, two) = (Seals::new("fleet", None), Seals::new("fleet", None));
    let sealed = seal(&one, CARD, card());
    assert!(sealed.signature.is_empty());
    assert!(two.open(CARD, &sealed).is_ok());
}

#[test]
fn records_are_as_long_as_the_example_that_measures_says() {
    let directory = nodes(&["one"]);
    let one = seals(&directory, "one");
    let value_bytes = |key: &str, seq, body| {
        let record = codec::encode(&Record { seq, body }).unwrap();
        let place = Place { key, ..CARD };
        crate::records::to_value(&one.seal(place, record).unwrap()).len()
    };
    let vote = quorum::Vote {
        incident: 300,
        basis: quorum::Basis::FirstHand,
        state: quorum::VoteState::Stands,
        reason: "first token later than 10 s".to_owned(),
        evidence: quorum::Evidence::default(),
        age: std::time::Duration::from_secs(90),
    };
    let endpoint = quorum::EndpointKey::new("pool/endpoint-1234");
    let vote = Body::Statement(quorum::Statement::Vote(endpoint, vote));
    let sizes = [
        value_bytes("v", 70_000, vote),
        value_bytes("p", 70_000, Body::Pulse(70_000)),
        value_bytes("k", 1, Body::Certificate(one.chain())),
    ];
    println!("{sizes:?}");
    let [vote, pulse, certificate] = sizes;
    assert!((180..=210).contains(&vote), "{vote}");
    assert!((110..=130).contains(&pulse), "{pulse}");
    assert!((500..=900).contains(&certificate), "{certificate}");
}
