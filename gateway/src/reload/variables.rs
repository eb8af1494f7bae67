//! Which variables of the environment a configuration names, and what of them others may learn.
//!
//! The file is its owner's, who owns the environment as well. A text that is sent to be checked is not:
//! its sender could name any variable where values are shown, and read what the process was given.
//!
//! Invariant: nothing that is said of a foreign text depends on a variable that the file does not name,
//! and what the others hold is in no word that is shown.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::config::given::{self, Look, Missing};
use crate::config::{self, Config};

/// Names of variables; a file of bounded length holds so many only.
pub(super) type Names = BTreeSet<String>;

/// Reads a text of the owner's, and which variables it names.
pub(super) fn parse_own(text: &str, name: &str) -> (Result<Config, String>, Names) {
    read(text, name, &given::variable)
}

/// Reads a text of somebody else's, and what may be shown of it: the YAML that it amounts to with words
/// in place of what the environment holds; `None` if it takes something there that is no word.
///
/// # Errors
/// What is wrong, in one line; a variable that is not `allowed` is named.
pub(super) fn parse_foreign(
    text: &str,
    name: &str,
    allowed: &Names,
) -> Result<(Config, Option<String>), String> {
    let given = |variable: &str| match allowed.contains(variable) {
        true => given::variable(variable),
        false => Err(Missing::Unset),
    };
    let (config, named) = read(text, name, &given);
    if let Some(foreign) = named.iter().find(|variable| !allowed.contains(*variable)) {
        return Err(format!(
            "{name}: uses the variable {foreign}, which the running configuration does not name; \
             check it on the machine by quorumgate check FILE, or write {foreign}'s value"
        ));
    }
    let config = config?;
    if named.is_empty() {
        let yaml = config.effective_yaml();
        return Ok((config, Some(yaml)));
    }
    let (masked, _) = read(text, name, &|variable| {
        given::variable(variable).map(|value| match value.is_empty() {
            true => value,
            false => mask(variable),
        })
    });
    Ok((config, masked.ok().map(|masked| masked.effective_yaml())))
}

/// What stands in place of what a variable holds: a word that may be a name, a host or a token.
fn mask(variable: &str) -> String {
    format!("from-the-environment-{}", variable.to_ascii_lowercase().replace('_', "-"))
}

fn read(text: &str, name: &str, environment: &Look<'_>) -> (Result<Config, String>, Names) {
    let named = RefCell::new(Names::new());
    let config = config::parse_overridden(text, name, &|variable| {
        named.borrow_mut().insert(variable.to_owned());
        environment(variable)
    });
    (config.map_err(|error| error.to_string()), named.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(upstream: &str) -> String {
        format!(
            "models: [ {{ name: m, endpoints: [ {{ name: a, address: \"http://a\", \
             upstream_model: \"{upstream}\" }} ] }} ]\n"
        )
    }

    fn names(names: &[&str]) -> Names {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_variable_that_the_file_does_not_name_is_refused_by_its_name() {
        for reference in ["${PATH}", "${PATH:-x}", "${NO_SUCH_VARIABLE:-x}"] {
            let told = parse_foreign(&model(reference), "the text", &names(&["HOME"])).unwrap_err();
            let name = reference.trim_matches(['$', '{', '}']).trim_end_matches(":-x");
            assert!(told.contains(name) && told.contains("does not name"), "{told}");
            assert!(!told.contains(&std::env::var("PATH").unwrap()), "{told}");
        }
    }

    #[test]
    fn what_a_variable_holds_is_used_and_not_shown() {
        // Always there, wherever tests run.
        let held = std::env::var("CARGO_PKG_NAME").unwrap();
        let text = model("${CARGO_PKG_NAME}");
        let (own, named) = parse_own(&text, "gw.yaml");
        let (config, yaml) = parse_foreign(&text, "the text", &named).unwrap();
        assert_eq!(own.unwrap().hash(), config.hash());
        assert!(config.effective_yaml().contains(&held));
        let yaml = yaml.unwrap();
        assert!(!yaml.contains(&held), "{yaml}");
        assert!(yaml.contains("from-the-environment-cargo-pkg-name"), "{yaml}");
    }

    #[test]
    fn what_cannot_be_masked_is_not_shown_at_all() {
        let seconds = "timeouts:\n  total: 90${CARGO_PKG_VERSION_MAJOR}s\n";
        let text = format!("{seconds}{}", model("x"));
        let named = names(&["CARGO_PKG_VERSION_MAJOR"]);
        let (_, yaml) = parse_foreign(&text, "the text", &named).unwrap();
        assert_eq!(yaml, None);
    }

    #[test]
    fn a_text_without_variables_is_shown_whole() {
        let (config, yaml) = parse_foreign(&model("x"), "the text", &Names::new()).unwrap();
        assert_eq!(yaml, Some(config.effective_yaml()));
    }
}
