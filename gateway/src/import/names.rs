//! Names of variables: those that LiteLLM's file has, and those that take the place of a secret.

/// Longest name of a variable that is taken over, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// The variable of `os.environ/NAME`.
pub(super) fn environment(value: &str) -> Option<&str> {
    let name = value.strip_prefix("os.environ/")?;
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (starts_well && is_plain && name.len() <= NAME_BYTES_MAX).then_some(name)
}

/// A name of a variable made of any words.
pub(super) fn variable(words: &str) -> String {
    let plain =
        |one: char| if one.is_ascii_alphanumeric() { one.to_ascii_uppercase() } else { '_' };
    let name: String = words.chars().map(plain).collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("KEY_{name}")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_taken_only_by_a_name_that_ours_could_have() {
        assert_eq!(environment("os.environ/A_1"), Some("A_1"));
        for text in ["A", "os.environ/", "os.environ/1A", "os.environ/A-B", "os.environ/A}"] {
            assert_eq!(environment(text), None, "{text}");
        }
        assert_eq!(variable("gpt-4o openai"), "GPT_4O_OPENAI");
        assert_eq!(variable("10.0.0.1"), "KEY_10_0_0_1");
    }
}
