//! Makes a CA and node certificates for people who have none.
//!
//! A node's certificate is good for both sides of a connection, since every node is server and
//! client, and its first DNS name is the node id.
//!
//! # Invariants
//! - A file that exists is never overwritten.
//! - Keys are readable by their owner only.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::Tls;
use crate::error::NODE_ID_BYTES_MAX;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A CA outlives its nodes' certificates by far, since changing it means touching every node.
const CA_VALIDITY: Duration = DAY.saturating_mul(3_650);

/// Short enough that renewal is practised, long enough that it is no chore: the most that browsers
/// took for years.
const NODE_VALIDITY: Duration = DAY.saturating_mul(825);

/// Certificates begin to hold a day before they are made, for nodes whose clocks are behind.
const BACKDATED: Duration = DAY;

/// Why certificates cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertsError {
    /// The node id is not a DNS name, or would be no file name of its own.
    #[error("{node_id:?} is no DNS name")]
    NameNode {
        /// The node id.
        node_id: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file cannot be made; it may exist already, and is left alone then.
    #[error("cannot make {}", path.display())]
    MakeFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A certificate cannot be made or read.
    #[error("cannot make the certificate")]
    MakeCertificate(#[from] rcgen::Error),
}

/// Makes a CA in the directory: `ca.crt`, and `ca.key`, which only its owner can read. The
/// directory is made if it is missing.
///
/// # Errors
/// If one of the files exists or cannot be written. A key may have been written then.
pub fn init(directory: &Path) -> Result<(), CertsError> {
    let make = |source| CertsError::MakeFile { path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(make)?;
    let key = KeyPair::generate()?;
    let mut params = params_for(CA_VALIDITY);
    params.distinguished_name.push(DnType::CommonName, "quorumgate CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    write_new(&directory.join("ca.key"), &key.serialize_pem(), Readers::Owner)?;
    write_new(&directory.join("ca.crt"), &certificate.pem(), Readers::All)
}

/// Makes a node's certificate, signed by the CA in the directory: `NODE.crt`, and `NODE.key`,
/// which only its owner can read.
///
/// # Errors
/// If the node id is no DNS name, the CA cannot be read, or one of the files exists or cannot be
/// written. A key may have been written then.
pub fn issue(directory: &Path, node_id: &str) -> Result<(), CertsError> {
    check_name(node_id)?;
    let ca_key = KeyPair::from_pem(&read(&directory.join("ca.key"))?)?;
    let issuer = Issuer::from_ca_cert_pem(&read(&directory.join("ca.crt"))?, ca_key)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![node_id.to_owned()])?;
    let template = params_for(NODE_VALIDITY);
    params.not_before = template.not_before;
    params.not_after = template.not_after;
    params.distinguished_name = template.distinguished_name;
    params.distinguished_name.push(DnType::CommonName, node_id);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer)?;
    let file = |ending: &str| directory.join(format!("{node_id}.{ending}"));
    write_new(&file("key"), &key.serialize_pem(), Readers::Owner)?;
    write_new(&file("crt"), &certificate.pem(), Readers::All)
}

/// Makes a CA and a certificate for each node in an empty directory, for demonstrations and
/// tests, and returns where they lie, in the order of the node ids.
///
/// # Errors
/// As [`init`] and [`issue`].
pub fn throw_away(directory: &Path, node_ids: &[&str]) -> Result<Vec<Tls>, CertsError> {
    init(directory)?;
    let issue_one = |node_id: &&str| {
        issue(directory, node_id)?;
        Ok(Tls::Files {
            ca: directory.join("ca.crt"),
            cert: directory.join(format!("{node_id}.crt")),
            key: directory.join(format!("{node_id}.key")),
        })
    };
    node_ids.iter().map(issue_one).collect()
}

fn params_for(validity: Duration) -> CertificateParams {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = epoch + since_epoch.saturating_sub(BACKDATED);
    params.not_after = epoch + since_epoch + validity;
    params
}

/// A node id names files and stands in a certificate, so it must be a plain DNS name.
fn check_name(node_id: &str) -> Result<(), CertsError> {
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(is_plain)
    };
    let is_name = node_id.len() <= NODE_ID_BYTES_MAX && node_id.split('.').all(is_label);
    // The CA's own files must not be taken for a node's.
    match is_name && node_id != "ca" {
        true => Ok(()),
        false => Err(CertsError::NameNode { node_id: node_id.to_owned() }),
    }
}

fn read(path: &Path) -> Result<String, CertsError> {
    fs::read_to_string(path)
        .map_err(|source| CertsError::ReadFile { path: path.to_owned(), source })
}

#[derive(Clone, Copy)]
enum Readers {
    Owner,
    All,
}

fn write_new(path: &Path, text: &str, readers: Readers) -> Result<(), CertsError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(match readers {
            Readers::Owner => 0o600,
            Readers::All => 0o644,
        });
    }
    #[cfg(not(unix))]
    let _ = readers;
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| CertsError::MakeFile { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_files_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        init(directory.path()).unwrap();
        issue(directory.path(), "gateway-1").unwrap();
        let before = fs::read(directory.path().join("gateway-1.key")).unwrap();
        assert!(matches!(init(directory.path()), Err(CertsError::MakeFile { .. })));
        let again = issue(directory.path(), "gateway-1");
        assert!(matches!(again, Err(CertsError::MakeFile { .. })));
        assert_eq!(fs::read(directory.path().join("gateway-1.key")).unwrap(), before);
    }

    #[test]
    fn a_name_that_leaves_the_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        init(directory.path()).unwrap();
        for name in ["", ".", "../up", "a/b", "ca", "a..b", "space in", "umläut"] {
            let refused = issue(directory.path(), name);
            assert!(matches!(refused, Err(CertsError::NameNode { .. })), "{name:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn keys_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        throw_away(directory.path(), &["one"]).unwrap();
        for name in ["ca.key", "one.key"] {
            let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
