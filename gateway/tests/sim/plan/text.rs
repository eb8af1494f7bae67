//! A plan as text: what a replay file holds, readable and written by hand where need be.
//!
//! The text names every fault with its times and not only the seed, so that a change of how plans
//! are drawn does not change what a kept replay means.

use std::fmt::{self, Write as _};

use super::{Fault, Knobs, LIES, Plan, What};

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let knobs = &self.knobs;
        writeln!(formatter, "seed {}", self.seed)?;
        writeln!(formatter, "pools{}", listed(&self.pools))?;
        writeln!(formatter, "rates{}", listed(&self.rates))?;
        writeln!(formatter, "small {}", self.small)?;
        writeln!(
            formatter,
            "knobs {} {} {} {} {}",
            u8::from(knobs.of_observers),
            knobs.share,
            u8::from(knobs.has_probe),
            knobs.canaries,
            u8::from(knobs.passes_through)
        )?;
        writeln!(formatter, "length {}", self.length)?;
        if self.has_ledger {
            writeln!(formatter, "ledger 1")?;
        }
        for fault in &self.faults {
            writeln!(formatter, "fault {} {} {}", fault.from, fault.to, fault.what)?;
        }
        Ok(())
    }
}

fn listed<T: fmt::Display>(items: &[T]) -> String {
    items.iter().fold(String::new(), |mut text, item| {
        let _ = write!(text, " {item}");
        text
    })
}

impl fmt::Display for What {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parted { mask } => write!(formatter, "parted {mask}"),
            Self::Deaf { from, to } => write!(formatter, "deaf {from} {to}"),
            Self::Cut { node } => write!(formatter, "cut {node}"),
            Self::Rough { loss, doubled, delay } => {
                write!(formatter, "rough {loss} {doubled} {delay}")
            }
            Self::Unpushed { loss } => write!(formatter, "unpushed {loss}"),
            Self::Crash { node, has_snapshot } => {
                write!(formatter, "crash {node} {}", u8::from(*has_snapshot))
            }
            Self::Pause { node } => write!(formatter, "pause {node}"),
            Self::Fails { endpoint, share } => write!(formatter, "fails {endpoint} {share}"),
            Self::Slow { endpoint } => write!(formatter, "slow {endpoint}"),
            Self::Flaps { endpoint, turn } => write!(formatter, "flaps {endpoint} {turn}"),
            Self::Fragile { endpoint } => write!(formatter, "fragile {endpoint}"),
            Self::BadNode { node } => write!(formatter, "bad-node {node}"),
            Self::Lies { node, how } => {
                let name = LIES.iter().find(|(lie, _)| lie == how).map_or("", |(_, name)| name);
                write!(formatter, "lies {node} {name}")
            }
            Self::LedgerDown => write!(formatter, "ledger-down"),
            Self::LedgerAway { node } => write!(formatter, "ledger-away {node}"),
            Self::LedgerRough { requests, answers, delay } => {
                write!(formatter, "ledger-rough {requests} {answers} {delay}")
            }
            Self::LedgerFlush => write!(formatter, "ledger-flush"),
            Self::LedgerLoses { back } => write!(formatter, "ledger-loses {back}"),
        }
    }
}

impl Plan {
    /// Reads a plan; lines that begin with `#` are comments.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut plan = Self {
            seed: 0,
            pools: Vec::new(),
            rates: Vec::new(),
            small: 500,
            knobs: Knobs {
                of_observers: false,
                share: 1_000,
                has_probe: true,
                canaries: 2,
                passes_through: true,
            },
            length: 0,
            faults: Vec::new(),
            has_ledger: false,
        };
        let is_content = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in text.lines().map(str::trim).filter(is_content) {
            plan.take(line).ok_or_else(|| format!("cannot read: {line}"))?;
        }
        let is_whole = !plan.pools.is_empty() && !plan.rates.is_empty() && plan.length > 0;
        is_whole.then_some(plan).ok_or_else(|| "no pools, rates or length".to_owned())
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let numbers: Vec<u64> = words.iter().map_while(|word| word.parse().ok()).collect();
        match (word, numbers.as_slice()) {
            ("seed", [seed]) => self.seed = *seed,
            ("pools", sizes) => self.pools = sizes.iter().map(|size| *size as usize).collect(),
            ("rates", rates) => self.rates = rates.to_vec(),
            ("small", [small]) => self.small = *small,
            ("length", [length]) => self.length = *length,
            ("ledger", [has_ledger]) => self.has_ledger = *has_ledger > 0,
            ("knobs", [of_observers, share, has_probe, canaries, passes_through]) => {
                self.knobs = Knobs {
                    of_observers: *of_observers > 0,
                    share: *share as u32,
                    has_probe: *has_probe > 0,
                    canaries: *canaries as u32,
                    passes_through: *passes_through > 0,
                };
            }
            ("fault", [from, to]) => {
                let what = read_what(words.get(2)?, words.get(3..)?)?;
                self.faults.push(Fault { from: *from, to: *to, what });
            }
            _ => return None,
        }
        Some(())
    }
}

fn read_what(name: &str, words: &[&str]) -> Option<What> {
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let index = |at: usize| number(at).map(|number| number as usize);
    Some(match name {
        "parted" => What::Parted { mask: number(0)? },
        "deaf" => What::Deaf { from: index(0)?, to: index(1)? },
        "cut" => What::Cut { node: index(0)? },
        "rough" => What::Rough { loss: number(0)?, doubled: number(1)?, delay: number(2)? },
        "unpushed" => What::Unpushed { loss: number(0)? },
        "crash" => What::Crash { node: index(0)?, has_snapshot: number(1)? > 0 },
        "pause" => What::Pause { node: index(0)? },
        "fails" => What::Fails { endpoint: index(0)?, share: number(1)? },
        "slow" => What::Slow { endpoint: index(0)? },
        "flaps" => What::Flaps { endpoint: index(0)?, turn: number(1)? },
        "fragile" => What::Fragile { endpoint: index(0)? },
        "bad-node" => What::BadNode { node: index(0)? },
        "lies" => {
            let how = LIES.iter().find(|(_, name)| words.get(1) == Some(name))?.0;
            What::Lies { node: index(0)?, how }
        }
        "ledger-down" => What::LedgerDown,
        "ledger-away" => What::LedgerAway { node: index(0)? },
        "ledger-rough" => {
            What::LedgerRough { requests: number(0)?, answers: number(1)?, delay: number(2)? }
        }
        "ledger-flush" => What::LedgerFlush,
        "ledger-loses" => What::LedgerLoses { back: number(0)? },
        _ => return None,
    })
}
