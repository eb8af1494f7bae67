//! What the statuses of an endpoint say about its health: the classification's table as lists.
//!
//! Providers disagree about what 503, 529 or 408 means. Whoever knows better than the defaults moves a
//! status into another list; the rest of the gateway asks for its class and knows no number.
//!
//! Invariants: a status is in one of the four lists of classes at most; every status from 400 to 599
//! has a class, whether a list names it or not.

/// The statuses by their meaning; each list is written with at most [`STATUS_CODES_MAX`] of 400 to 599,
/// and 401, 403 and 429 stand where the defaults have them unless another list names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCodes {
    /// The endpoint's fault, besides every 5xx that no list names; none by default.
    pub fault: Vec<u16>,
    /// Nothing about health, besides every 4xx that no list names; none by default.
    pub neutral: Vec<u16>,
    /// The endpoint is busy, not ill; 429 by default.
    pub capacity: Vec<u16>,
    /// The endpoint refuses the gateway's own credential; 401 and 403 by default. A 401 says so at once;
    /// another one may be about the request, and is believed when the next one meets it too.
    pub credential: Vec<u16>,
    /// The faults whose `Retry-After` is obeyed; 503 and 529 by default. This list names no class.
    pub pause: Vec<u16>,
}

/// Most statuses in one list.
pub const STATUS_CODES_MAX: usize = 32;

/// What a status that is no success says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// It counts against the endpoint, and another endpoint is tried.
    Fault,
    /// It is the client's own and goes back unchanged; nothing counts.
    Neutral,
    /// Nothing counts, another endpoint is tried, and this one is left alone for a while.
    Capacity,
    /// As for capacity, and an operator has to mend it.
    Credential,
}

impl Default for StatusCodes {
    fn default() -> Self {
        Self {
            fault: Vec::new(),
            neutral: Vec::new(),
            capacity: vec![429],
            credential: vec![401, 403],
            pause: vec![503, 529],
        }
    }
}

impl StatusCodes {
    /// The class of a status from 400 on.
    #[must_use]
    pub fn class(&self, code: u16) -> StatusClass {
        let lists = [
            (&self.capacity, StatusClass::Capacity),
            (&self.credential, StatusClass::Credential),
            (&self.fault, StatusClass::Fault),
            (&self.neutral, StatusClass::Neutral),
        ];
        let unnamed = if code < 500 { StatusClass::Neutral } else { StatusClass::Fault };
        lists.iter().find(|(list, _)| list.contains(&code)).map_or(unnamed, |(_, class)| *class)
    }

    /// Whether a fault of this status may ask for a pause.
    #[must_use]
    pub fn pauses(&self, code: u16) -> bool {
        self.pause.contains(&code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_table() {
        let codes = StatusCodes::default();
        let class = |code| codes.class(code);
        for code in [500, 501, 502, 503, 504, 520, 529, 599] {
            assert_eq!(class(code), StatusClass::Fault, "{code}");
        }
        for code in [400, 404, 408, 409, 413, 418, 422, 499] {
            assert_eq!(class(code), StatusClass::Neutral, "{code}");
        }
        assert_eq!([401, 403].map(class), [StatusClass::Credential; 2]);
        assert_eq!(class(429), StatusClass::Capacity);
        assert_eq!([500, 503, 529, 429].map(|code| codes.pauses(code)), [false, true, true, false]);
    }
}
