//! The supervised client and a server that wants to know who it is: an ACL user, TLS, certificates.

#![expect(clippy::unwrap_used, reason = "a test may stop loudly")]

mod running;
mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use redis::Value;
use redis_lua::client::{Config, Health, Mode, Tls};
use redis_lua::error::Trouble;
use running::Running;
use servers::sentinels::{NAME, sentinel};
use servers::{Folder, Server, Standalone};
use tokio::time::{sleep, timeout};

/// What a user may at least do, as the documentation of [`Config`] says.
const RULES: &str = "~quorumgate{* &quorumgate{notices} -@all +@string +@hash +@list +@sortedset \
    -@dangerous -@blocking +del +exists +pexpire +pttl +time +eval +evalsha +ping +role +publish \
    +spublish +subscribe +ssubscribe +asking +cluster|slots +info";

fn with_user(redis: &Standalone, rules: &str) {
    let mut words = vec!["ACL", "SETUSER", "gate", "on", ">hush"];
    words.extend(rules.split_whitespace());
    assert_eq!(redis.server.cli(&words), "OK");
}

fn as_user(redis: &Standalone, password: &str) -> Config {
    let mut config = Config::new(vec![redis.url()], Mode::Standalone);
    config.username = Some("gate".to_owned());
    config.password = Some(password.to_owned());
    config
}

/// Waits until the health says this trouble.
async fn says(running: &Running, wanted: Trouble) {
    let mut health = running.client.health();
    let said = health
        .wait_for(|health| matches!(health, Health::Down { trouble, .. } if *trouble == wanted));
    let said = timeout(Duration::from_secs(5), said).await.is_ok();
    assert!(said, "not {wanted:?}: {:?}", *running.client.health().borrow());
}

#[test]
fn the_least_rights_are_the_same_wherever_they_stand() {
    let (manual, reference) =
        (include_str!("../README.md"), include_str!("../src/client/config.rs"));
    for rule in RULES.split_whitespace() {
        assert!(manual.contains(rule) && reference.contains(rule), "{rule}");
    }
}

#[tokio::test]
async fn a_user_with_the_least_rights_is_enough() {
    let redis = Standalone::start();
    with_user(&redis, RULES);
    let running = Running::up(as_user(&redis, "hush")).await;
    assert_eq!(running.add("quorumgate{a}:state").await, Ok(Value::Int(1)));
    assert_eq!(running.add("other{a}").await, Err(Trouble::Refused("NOPERM")));
    let mut notices = running.client.notices();
    let heard = timeout(Duration::from_secs(5), async {
        loop {
            running.client.publish(b"notice".to_vec());
            if timeout(Duration::from_millis(50), notices.recv()).await.is_ok() {
                return;
            }
        }
    });
    assert!(heard.await.is_ok(), "{}", redis.server.cli(&["ACL", "LOG"]));
    running.end().await;
}

#[tokio::test]
async fn who_may_not_enter_or_write_is_told_so() {
    let redis = Standalone::start();
    with_user(&redis, RULES);
    let stranger = Running::start(as_user(&redis, "wrong"));
    says(&stranger, Trouble::Refused("WRONGPASS")).await;
    stranger.end().await;
    with_user(&redis, "-evalsha");
    let reader = Running::start(as_user(&redis, "hush"));
    says(&reader, Trouble::Refused("NOPERM")).await;
    reader.end().await;
    let secret = Standalone::with(&["--requirepass", "hush"]);
    let nobody = Running::start(Config::new(vec![secret.url()], Mode::Standalone));
    says(&nobody, Trouble::Refused("NOAUTH")).await;
    nobody.end().await;
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own() {
    let redis = Standalone::with(&["--requirepass", "hush"]);
    let more = format!("requirepass watch\nsentinel auth-pass {NAME} hush");
    let sentinel = sentinel(redis.server.port, 1, &more);
    let with = |password: &str| {
        let mode = Mode::Sentinel { master: NAME.to_owned() };
        let mut config = Config::new(vec![sentinel.url()], mode);
        config.password = Some("hush".to_owned());
        config.sentinel_password = Some(password.to_owned());
        config
    };
    let running = Running::up(with("watch")).await;
    assert_eq!(running.add("a{b}").await, Ok(Value::Int(1)));
    running.end().await;
    let stranger = Running::start(with("wrong"));
    says(&stranger, Trouble::Refused("WRONGPASS")).await;
    stranger.end().await;
}

/// An authority, and files signed by it.
struct Authority {
    folder: Folder,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // One whose name is that of what it signs is taken for signed by itself.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let folder = Folder::new();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, file: &str, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// A server that speaks TLS only, and wants a certificate of ours.
    fn server(&self, name: &str) -> Server {
        self.issue("server", name);
        self.issue("client", "gate");
        let file = |name: &str| self.path(name).display().to_string();
        let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
        let (own, secret) = (file("client.pem"), file("client.key"));
        let words = ["--port", "0", "--tls-port", "PORT", "--tls-auth-clients", "yes"];
        let files = ["--tls-ca-cert-file", &ca, "--tls-cert-file", &cert, "--tls-key-file", &key];
        let entry = ["--tls", "--insecure", "--cacert", &ca, "--cert", &own, "--key", &secret];
        Server::start(&[&words[..], &files[..]].concat()).entered_by(&entry).answers()
    }
}

fn by_tls(server: &Server, ca: &Path, own: Option<&Authority>) -> Config {
    let url = format!("rediss://127.0.0.1:{}", server.port);
    let mut config = Config::new(vec![url], Mode::Standalone);
    config.tls = Tls {
        ca: Some(ca.to_owned()),
        cert: own.map(|authority| authority.path("client.pem")),
        key: own.map(|authority| authority.path("client.key")),
    };
    config
}

#[tokio::test]
async fn both_sides_are_known_by_their_certificates() {
    let authority = Authority::new();
    let server = authority.server("127.0.0.1");
    let ca = authority.path("ca.pem");
    let running = Running::up(by_tls(&server, &ca, Some(&authority))).await;
    assert_eq!(running.add("a{b}").await, Ok(Value::Int(1)));
    running.end().await;

    let nobody = Running::start(by_tls(&server, &ca, None));
    let other = Authority::new();
    let unknown = Running::start(by_tls(&server, &other.path("ca.pem"), Some(&authority)));
    says(&unknown, Trouble::Tls("its certificate is signed by nobody we trust")).await;
    unknown.end().await;
    let dials = async {
        while nobody.client.figures().reconnects < 2 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(Duration::from_secs(5), dials).await.is_ok());
    assert!(!nobody.client.health().borrow().is_up());
    nobody.end().await;
}

#[tokio::test]
async fn certificates_that_were_replaced_are_read_anew() {
    let authority = Authority::new();
    let mut server = authority.server("127.0.0.1");
    let ca = authority.path("ca.pem");
    let running = Running::up(by_tls(&server, &ca, Some(&authority))).await;
    server.kill();
    let next = Authority::new();
    next.issue("server", "127.0.0.1");
    next.issue("client", "gate");
    for file in ["ca.pem", "server.pem", "server.key", "client.pem", "client.key"] {
        fs::copy(next.path(file), authority.path(file)).unwrap();
    }
    running.is_down_within(Duration::from_secs(5)).await;
    server.restart();
    println!("up {:?} after the server", running.is_up_within(Duration::from_secs(8)).await);
    running.end().await;
}

#[tokio::test]
async fn a_certificate_made_out_to_another_is_not_believed() {
    let authority = Authority::new();
    let server = authority.server("elsewhere.invalid");
    let running = Running::start(by_tls(&server, &authority.path("ca.pem"), Some(&authority)));
    says(&running, Trouble::Tls("its certificate is made out to another name")).await;
    running.end().await;
}

#[test]
fn files_that_cannot_be_used_are_refused_before_anything_is_dialled() {
    let authority = Authority::new();
    authority.issue("client", "gate");
    let start = |ca: &str, cert: Option<&str>, key: Option<&str>| {
        let mut config = Config::new(vec!["rediss://127.0.0.1:1".to_owned()], Mode::Standalone);
        let path = |file: &str| authority.path(file);
        config.tls = Tls { ca: Some(path(ca)), cert: cert.map(path), key: key.map(path) };
        let (_stop, stopped) = tokio::sync::watch::channel(false);
        redis_lua::client::start(config, stopped).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(start("ca.pem", Some("client.pem"), Some("client.key")), Ok(()));
    assert!(start("nothing.pem", None, None).unwrap_err().starts_with("cannot read"));
    assert!(start("client.key", None, None).unwrap_err().starts_with("no certificate"));
    let error = start("ca.pem", Some("client.pem"), Some("ca.pem")).unwrap_err();
    assert!(error.starts_with("no private key"), "{error}");
    let error = start("ca.pem", Some("client.pem"), None).unwrap_err();
    assert_eq!(error, "redis tls needs cert and key, or neither");
}
