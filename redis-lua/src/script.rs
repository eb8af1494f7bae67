//! One Lua script: its name, its text, and the digest that Redis knows it by.
//!
//! Redis runs a script by the SHA-1 of its text as long as it remembers the text. It may forget at
//! any time (`SCRIPT FLUSH`, a restart, a failover), so that whoever calls keeps both.

use std::sync::OnceLock;

/// One script; made to be a `static`.
#[derive(Debug)]
pub struct Script {
    /// What it is called in metrics and logs.
    pub name: &'static str,
    /// Its text.
    pub source: &'static str,
    sha: OnceLock<String>,
}

impl Script {
    /// Makes a script of a name and a text.
    #[must_use]
    pub const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source, sha: OnceLock::new() }
    }

    /// The SHA-1 of the text, in 40 hexadecimal digits; worked out once.
    pub fn sha(&self) -> &str {
        self.sha.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::Script;

    #[test]
    fn the_digest_is_the_one_that_redis_works_out() {
        static SCRIPT: Script = Script::new("one", "return 1");
        assert_eq!(SCRIPT.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(SCRIPT.sha(), SCRIPT.sha());
    }
}
