//! How many tokens a request took, as the upstream reports it.

/// Tokens of one request; `None`: not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt.
    pub input: Option<u64>,
    /// Of the answer.
    pub output: Option<u64>,
}

impl Usage {
    /// Both together; `None` if neither was reported.
    pub fn total(&self) -> Option<u64> {
        match (self.input, self.output) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
        }
    }
}
