//! What is said when a configuration is refused: one line with the place, the problem and the cure.
//!
//! Whoever reads it may have nothing but a terminal and a restart loop, so the line alone must be
//! enough to repair the file.
//!
//! Invariants: the text is one line without control characters; it never holds a secret, nor
//! anything from the environment but a number or duration that clashes with another.

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be opened or read.
    #[error("{file}: cannot be read ({kind}); check the path and who may read it")]
    ReadFile {
        /// The file, as it was named.
        file: String,
        /// What the system said.
        kind: std::io::ErrorKind,
    },
    /// The file as a whole is refused.
    #[error("{file}: {problem}; {cure}")]
    RefuseFile {
        /// The file, as it was named.
        file: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        cure: String,
    },
    /// Something at one place in the file is refused.
    #[error("{file}:{line}:{column}: {problem}; {cure}")]
    RefuseLine {
        /// The file, as it was named.
        file: String,
        /// Line of the place, from 1.
        line: u32,
        /// Column of the place in characters, from 1.
        column: u32,
        /// The key and what is wrong with it.
        problem: String,
        /// What to do.
        cure: String,
    },
    /// A variable of the environment that speaks instead of the file is refused.
    #[error("{variable}: {problem}; {cure}")]
    RefuseVariable {
        /// The name of the variable.
        variable: String,
        /// The key and what is wrong with it.
        problem: String,
        /// What to do.
        cure: String,
    },
}

/// Longest name that is compared, in characters; no key is nearly that long.
const NAME_CHARACTERS_MAX: usize = 64;

/// Finds the one of `known` that `name` was most probably meant to be, if any is near enough.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let length = name.chars().count();
    if length > NAME_CHARACTERS_MAX {
        return None;
    }
    // One slip in a short word, two in a word, three in a long one: beyond that it is a guess.
    let near_enough = match length {
        0..=3 => 1,
        4..=9 => 2,
        10.. => 3,
    };
    known
        .iter()
        .map(|candidate| (slips(name, candidate), *candidate))
        .filter(|(distance, _)| *distance <= near_enough)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Says what the cure is for a name that is not among `known`.
pub(super) fn did_you_mean(name: &str, known: &[&str]) -> String {
    nearest(name, known).map_or_else(
        || format!("known here: {}", known.join(", ")),
        |candidate| format!("did you mean \"{candidate}\"?"),
    )
}

/// Counts the characters to insert, delete, replace or swap with their neighbour to turn `left`
/// into `right` (optimal string alignment).
fn slips(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    let mut left_previous = None;
    for (row, left_character) in left.chars().enumerate() {
        let mut current = vec![row + 1];
        let mut right_previous = None;
        for (column, right_character) in right.iter().copied().enumerate() {
            let at = |cells: &[usize], index: usize| cells.get(index).copied().unwrap_or(row);
            let replaced = at(&above, column) + usize::from(left_character != right_character);
            let mut cost = replaced.min(at(&above, column + 1) + 1).min(at(&current, column) + 1);
            let is_swap =
                left_previous == Some(right_character) && right_previous == Some(left_character);
            if is_swap && column > 0 {
                cost = cost.min(at(&before, column - 1) + 1);
            }
            current.push(cost);
            right_previous = Some(right_character);
        }
        left_previous = Some(left_character);
        before = std::mem::replace(&mut above, current);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_counted_once() {
        assert_eq!(slips("listen", "listen"), 0);
        assert_eq!(slips("listn", "listen"), 1);
        assert_eq!(slips("lsiten", "listen"), 1);
        assert_eq!(slips("", "abc"), 3);
        assert_eq!(slips("abc", ""), 3);
        assert_eq!(slips("kitten", "sitting"), 3);
    }

    #[test]
    fn a_word_unlike_all_others_gets_no_guess() {
        let known = ["listen", "workers"];
        assert_eq!(nearest("listn", &known), Some("listen"));
        assert_eq!(nearest("memcached", &known), None);
        assert_eq!(nearest(&"l".repeat(10_000), &known), None);
        assert_eq!(did_you_mean("memcached", &known), "known here: listen, workers");
    }
}
