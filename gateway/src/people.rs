//! Times, names and errors as people read them at night.

use std::time::Duration;

/// Most names that are listed; the others are counted.
const NAMED_MAX: usize = 3;

/// A period in the two largest units that matter: `350 ms`, `4.2 s`, `42 s`, `3 min 20 s`, `1 h 5 min`.
pub fn for_people(period: Duration) -> String {
    let (seconds, millis) = (period.as_secs(), period.as_millis());
    let pair = |large: u64, unit: &str, small: u64, part: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {part}"),
    };
    match seconds {
        0 => format!("{millis} ms"),
        1..10 if millis % 1_000 >= 100 => format!("{seconds}.{} s", millis % 1_000 / 100),
        1..60 => format!("{seconds} s"),
        60..3_600 => pair(seconds / 60, "min", seconds % 60, "s"),
        _ => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
    }
}

/// An error with its causes, in one line, whatever they hold. A cause that has been said already, since
/// some libraries' errors say theirs themselves, is not said again.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !line.contains(&said) {
            line = format!("{line}: {said}");
        }
        source = cause.source();
    }
    line.replace(char::is_control, " ")
}

/// Names in a sentence: `a`, `a and b`, `a, b and c`, `a, b, c and 4 more`.
pub fn listed(names: &[&str]) -> String {
    let (head, rest) = names.split_at(names.len().min(NAMED_MAX));
    match (head.split_last(), rest.len()) {
        (None, _) => "nobody".to_owned(),
        (Some((last, [])), 0) => (*last).to_owned(),
        (Some((last, others)), 0) => format!("{} and {last}", others.join(", ")),
        (Some(_), more) => format!("{} and {more} more", head.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_said_in_the_units_that_matter() {
        let said = |millis| for_people(Duration::from_millis(millis));
        assert_eq!(said(0), "0 ms");
        assert_eq!(said(999), "999 ms");
        assert_eq!(said(1_000), "1 s");
        assert_eq!(said(4_250), "4.2 s");
        assert_eq!(said(42_900), "42 s");
        assert_eq!(said(60_000), "1 min");
        assert_eq!(said(200_000), "3 min 20 s");
        assert_eq!(said(3_900_000), "1 h 5 min");
        assert_eq!(said(3 * 3_600_000), "3 h");
        assert!(!for_people(Duration::MAX).is_empty());
    }

    #[test]
    fn a_cause_is_said_once_even_by_an_error_that_says_it_itself() {
        #[derive(Debug, thiserror::Error)]
        #[error("a.crt: {source}")]
        struct Talkative {
            source: std::io::Error,
        }
        let error = Talkative { source: std::io::Error::other("no\nluck") };
        assert_eq!(chain(&error), "a.crt: no luck");
    }

    #[test]
    fn many_names_are_counted_and_not_listed() {
        assert_eq!(listed(&[]), "nobody");
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b"]), "a and b");
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }
}
