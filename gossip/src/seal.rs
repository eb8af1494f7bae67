//! Signs what this node states, and checks who has stated what came in.
//!
//! Gossip passes from member to member, and any of them could change what it passes on. So each
//! record is signed by its writer's TLS key, over the fleet, the writer, its generation, the key
//! and the record with its number: no other member can make it, and it fits no other place.
//!
//! # Invariants
//! - What [`Seals::open`] returns was stated by the node it is said to be of, in that life of it,
//!   under that key; the writer's certificate is good today and made out to the node's name.
//! - A certificate is checked once for each life of a node, and again when the CA changes.
//! - Without certificates nothing is signed, and anybody can speak for anybody.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::SigningKey;
use rustls::{RootCertStore, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage};

use crate::codec::{self, CodecError, Sealed};
use crate::records::Record;
use crate::stats::Reject;
use crate::tls;

/// As many lives of nodes as the vet lets in.
const SIGNATORIES_MAX: usize = 1_024;

/// What a signature may be of: one scheme for each kind of key that a certificate may hold.
const SCHEMES: [SignatureScheme; 4] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
];

/// Sets these signatures apart from all others that are made with the same keys.
const DOMAIN: &[u8] = b"quorumgate record\0";

/// A certificate, followed by intermediates if any, as DER.
pub(crate) type Chain = Vec<Vec<u8>>;

/// What this node signs with, and whom it believes.
pub(crate) struct Authority {
    key: Arc<dyn SigningKey>,
    chain: Chain,
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// A certificate that was found good.
struct Signatory {
    chain: Chain,
    /// Grows when a node changes its certificate within one life.
    seq: u64,
    /// Seconds since 1970 after which one of the certificates is good no longer.
    until: u64,
}

/// The signatures of the fleet.
pub(crate) struct Seals {
    cluster_id: String,
    /// `None`: nothing is signed.
    authority: Option<Authority>,
    /// By node and generation. At most [`SIGNATORIES_MAX`].
    signatories: HashMap<(String, u64), Signatory>,
}

/// Where a record stands: whose it is, and under which key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) node_id: &'a str,
    pub(crate) generation: u64,
    pub(crate) key: &'a str,
}

impl Authority {
    /// # Errors
    /// If the key makes none of the signatures that a reader takes, or one too long to carry, or
    /// if the certificate is too long to carry.
    pub(crate) fn new(
        key: Arc<dyn SigningKey>,
        chain: Chain,
        roots: Arc<RootCertStore>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<Self, rustls::Error> {
        let general = |what: &str| Err(rustls::Error::General(what.to_owned()));
        if chain.iter().map(Vec::len).sum::<usize>() > codec::CHAIN_BYTES_MAX {
            return general("the certificate and its intermediates have more than 4 KB");
        }
        let authority = Self { key, chain, roots, algorithms };
        match authority.sign(b"") {
            Some(signed) if signed.signature.len() <= codec::SIGNATURE_BYTES_MAX => Ok(authority),
            Some(_) | None => general("the key is of no kind that records are signed with"),
        }
    }

    fn sign(&self, message: &[u8]) -> Option<Signed> {
        let signer = self.key.choose_scheme(&SCHEMES)?;
        let signature = signer.sign(message).ok()?;
        Some(Signed { scheme: signer.scheme().into(), signature })
    }

    /// Checks that the certificate is made out to the node and good today. Its number is left at
    /// zero.
    fn check(&self, node_id: &str, chain: &[Vec<u8>]) -> Option<Signatory> {
        let ders: Vec<_> = chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let until = check_chain(&self.roots, &self.algorithms, node_id, &ders)?;
        Some(Signatory { chain: chain.to_vec(), seq: 0, until })
    }

    fn verify(&self, by: &Signatory, message: &[u8], sealed: &Sealed) -> Option<()> {
        let scheme = SignatureScheme::from(sealed.scheme);
        let is_taken = SCHEMES.contains(&scheme);
        let der = CertificateDer::from(by.chain.first()?.as_slice());
        let certificate = EndEntityCert::try_from(&der).ok()?;
        let mut mapping = self.algorithms.mapping.iter().filter(|_| is_taken);
        let (_, algorithms) = mapping.find(|(of, _)| *of == scheme)?;
        let is_good = |algorithm: &&dyn rustls::pki_types::SignatureVerificationAlgorithm| {
            certificate.verify_signature(*algorithm, message, &sealed.signature).is_ok()
        };
        algorithms.iter().any(is_good).then_some(())
    }
}

struct Signed {
    scheme: u16,
    signature: Vec<u8>,
}

/// Checks that the certificate is made out to the node and that the roots vouch for it today;
/// returns until when, in seconds since 1970.
pub(crate) fn check_chain(
    roots: &RootCertStore,
    algorithms: &WebPkiSupportedAlgorithms,
    node_id: &str,
    chain: &[CertificateDer<'_>],
) -> Option<u64> {
    let (first, intermediates) = chain.split_first()?;
    if tls::name_in(first)? != node_id {
        return None;
    }
    let now = UnixTime::now();
    let certificate = EndEntityCert::try_from(first).ok()?;
    let usage = KeyUsage::client_auth();
    let roots = &roots.roots;
    certificate
        .verify_for_usage(algorithms.all, roots, intermediates, now, usage, None, None)
        .ok()?;
    chain.iter().map(tls::last_second_of).min().flatten()
}

impl Seals {
    pub(crate) fn new(cluster_id: &str, authority: Option<Authority>) -> Self {
        Self { cluster_id: cluster_id.to_owned(), authority, signatories: HashMap::new() }
    }

    /// Whether records are signed.
    pub(crate) fn is_secure(&self) -> bool {
        self.authority.is_some()
    }

    /// This node's certificate; empty where nothing is signed.
    pub(crate) fn chain(&self) -> Chain {
        self.authority.as_ref().map(|authority| authority.chain.clone()).unwrap_or_default()
    }

    /// Takes other certificates into use. Says whether the CA is another one: everything that was
    /// opened before must be opened again then.
    pub(crate) fn replace(&mut self, authority: Option<Authority>) -> bool {
        let roots = |authority: &Option<Authority>| {
            authority.as_ref().map(|authority| authority.roots.roots.clone())
        };
        let is_other = roots(&self.authority) != roots(&authority);
        self.authority = authority;
        if is_other {
            self.signatories.clear();
        }
        is_other
    }

    /// Seals an encoded record of this node's.
    ///
    /// # Errors
    /// If it is too long, or the key does not sign.
    pub(crate) fn seal(&self, place: Place<'_>, record: Vec<u8>) -> Result<Vec<u8>, CodecError> {
        let signed = match &self.authority {
            Some(authority) => authority.sign(&self.message(place, &record)),
            None => Some(Signed { scheme: 0, signature: Vec::new() }),
        };
        let Signed { scheme, signature } = signed.ok_or(CodecError::Malformed)?;
        codec::encode_sealed(Sealed { record, scheme, signature })
    }

    /// Opens a record that gossip brought, whose writer has been introduced.
    ///
    /// # Errors
    /// If it is not of the form, or its writer did not sign it.
    pub(crate) fn open(&self, place: Place<'_>, sealed: &Sealed) -> Result<Record, Reject> {
        let writer = (place.node_id.to_owned(), place.generation);
        self.open_by(self.signatories.get(&writer), place, sealed)
    }

    /// Opens a record that came with its writer's certificate.
    ///
    /// # Errors
    /// As [`Self::open`], and if the certificate is not good or not the writer's.
    pub(crate) fn open_with(
        &self,
        witness: &Witness,
        place: Place<'_>,
        sealed: &Sealed,
    ) -> Result<Record, Reject> {
        self.open_by(witness.0.as_ref(), place, sealed)
    }

    /// Checks a certificate that came with records; what is known already is not checked again.
    ///
    /// # Errors
    /// If it is not good or not the node's.
    pub(crate) fn witness(
        &self,
        node_id: &str,
        generation: u64,
        chain: &Chain,
    ) -> Result<Witness, Reject> {
        let Some(authority) = &self.authority else {
            return Ok(Witness(None));
        };
        let known = self.signatories.get(&(node_id.to_owned(), generation));
        let found = match known.filter(|known| known.chain == *chain) {
            Some(known) => Some(Signatory { chain: chain.clone(), seq: 0, until: known.until }),
            None => authority.check(node_id, chain),
        };
        found.map(|found| Witness(Some(found))).ok_or(Reject::Signature)
    }

    /// Takes note of a node's certificate: a sealed record that is signed with the very key it
    /// names. Says whether it is another one than before.
    ///
    /// # Errors
    /// If it is not good, not the node's, or older than the one that is known.
    pub(crate) fn introduce(
        &mut self,
        place: Place<'_>,
        sealed: &Sealed,
        (seq, chain): (u64, &Chain),
    ) -> Result<bool, Reject> {
        let Some(authority) = &self.authority else {
            return Ok(false);
        };
        let writer = (place.node_id.to_owned(), place.generation);
        let known = self.signatories.get(&writer);
        if known.is_some_and(|known| known.seq > seq) {
            return Err(Reject::Implausible);
        }
        let is_same = known.is_some_and(|known| known.chain == *chain && known.seq == seq);
        let is_full = known.is_none() && self.signatories.len() >= SIGNATORIES_MAX;
        let mut found = authority.check(place.node_id, chain).ok_or(Reject::Signature)?;
        let message = self.message(place, &sealed.record);
        authority.verify(&found, &message, sealed).ok_or(Reject::Signature)?;
        if is_full {
            return Err(Reject::Oversize);
        }
        found.seq = seq;
        self.signatories.insert(writer, found);
        Ok(!is_same)
    }

    /// Forgets the certificates that have run out, and those of lives that nobody holds any more.
    /// Returns the lives whose records are good no longer.
    pub(crate) fn expire(&mut self, is_held: impl Fn(&str, u64) -> bool) -> Vec<(String, u64)> {
        let now = UnixTime::now().as_secs();
        let mut expired = Vec::new();
        self.signatories.retain(|(node_id, generation), signatory| {
            let is_good = now <= signatory.until;
            let is_held = is_held(node_id, *generation);
            if is_held && !is_good {
                expired.push((node_id.clone(), *generation));
            }
            is_good && is_held
        });
        expired
    }

    fn open_by(
        &self,
        signatory: Option<&Signatory>,
        place: Place<'_>,
        sealed: &Sealed,
    ) -> Result<Record, Reject> {
        // The form is looked at first, since a signature costs a hundred times as much.
        let record = codec::decode(&sealed.record)?;
        if record.key() != place.key {
            return Err(Reject::Undecodable);
        }
        if let Some(authority) = &self.authority {
            let signatory = signatory.ok_or(Reject::Signature)?;
            let message = self.message(place, &sealed.record);
            authority.verify(signatory, &message, sealed).ok_or(Reject::Signature)?;
        }
        Ok(record)
    }

    /// What is signed. Each part is preceded by its length, so that no two places read alike.
    fn message(&self, place: Place<'_>, record: &[u8]) -> Vec<u8> {
        let mut message = DOMAIN.to_vec();
        let generation = place.generation.to_be_bytes();
        let texts = [self.cluster_id.as_bytes(), place.node_id.as_bytes(), &generation];
        for part in texts.into_iter().chain([place.key.as_bytes(), record]) {
            message.extend((part.len() as u64).to_be_bytes());
            message.extend(part);
        }
        message
    }
}

/// A certificate that came with records and was found good; empty where nothing is signed.
pub(crate) struct Witness(Option<Signatory>);

#[cfg(test)]
pub(crate) mod tests;
