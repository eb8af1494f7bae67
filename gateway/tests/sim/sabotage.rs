//! Bugs planted on purpose, to see that the invariants catch them.
//!
//! Each is a mistake that the authors could have made, made around the gateway's own code: in the
//! simulation's seat, carrier, configuration or probes, so that production code holds none of it.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// An opening that the fleet imposed is stated as the node's own.
    ImposedVotes,
    /// The answer to an old probe is taken for the answer to the present one.
    LateVerdicts,
    /// A steward that slept takes the endpoint for closed when it wakes.
    StaleClosing,
    /// A lost member is taken for one that left in good order.
    LostShrinks,
    /// Slow evidence of one moment counts several times.
    NoDedup,
    /// One member's vote is handed on as another's as well.
    TwoBallots,
    /// The ledger gives the lead to whoever asks, and writes a step by whoever brings it, whatever
    /// stands there.
    LostUpdate,
    /// What a ledger does not hold is taken for closed.
    AbsenceCloses,
    /// The ledger goes by its own numbers alone, whatever its writers have seen.
    FloorIgnored,
}

impl Sabotage {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::ImposedVotes,
        Self::LateVerdicts,
        Self::StaleClosing,
        Self::LostShrinks,
        Self::NoDedup,
        Self::TwoBallots,
        Self::LostUpdate,
        Self::AbsenceCloses,
        Self::FloorIgnored,
    ];
}
