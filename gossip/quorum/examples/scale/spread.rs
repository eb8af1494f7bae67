//! How words spread by gossip: each member talks with three others once a round, and each of the two
//! tells the other what it lacks, as much as one message holds.
//!
//! A member's words have an order, votes first, and whoever knows one knows all before it.

/// With how many others a member talks in a round.
const FANOUT: usize = 3;

/// What one message holds: less than a frame of the transport.
const MESSAGE_BYTES_MAX: usize = 60_000;

/// Who knows how many of whose words.
pub(crate) struct Spread {
    members: usize,
    votes: usize,
    /// The bytes of all words up to each, the same for every member.
    sums: Vec<usize>,
    /// How many words of `of` the member `at` knows, at `at * members + of`.
    known: Vec<u16>,
    chance: u64,
}

impl Spread {
    /// Members that each know their own words only, `votes` votes and as many steps.
    pub(crate) fn new(members: usize, votes: usize, sizes: &[usize]) -> Self {
        let mut sums = vec![0];
        let mut sum = 0;
        for size in sizes {
            sum += size;
            sums.push(sum);
        }
        let all = u16::try_from(sizes.len()).unwrap_or(u16::MAX);
        let mut known = vec![0; members * members];
        for place in known.iter_mut().step_by(members + 1) {
            *place = all;
        }
        Self { members, votes, sums, known, chance: 0x9e37_79b9_7f4a_7c15 }
    }

    /// One round of all members. Returns the bytes that were told.
    pub(crate) fn round(&mut self) -> usize {
        let mut sent = 0;
        for member in 0..self.members {
            for _ in 0..FANOUT.min(self.members - 1) {
                let other = self.draw();
                if other != member {
                    sent += self.tell(member, other) + self.tell(other, member);
                }
            }
        }
        sent
    }

    /// Lets `from` tell `to` what it lacks, beginning with any member's words.
    fn tell(&mut self, from: usize, to: usize) -> usize {
        let mut room = MESSAGE_BYTES_MAX;
        let start = self.draw();
        for turn in 0..self.members {
            let of = (start + turn) % self.members;
            let there = self.at(from, of);
            let here = self.at(to, of);
            if there <= here {
                continue;
            }
            let begun = self.sum(here);
            let fits = (here..=there).rev().find(|words| self.sum(*words) - begun <= room);
            let told = fits.unwrap_or(here);
            room -= self.sum(told) - begun;
            if let Some(place) = self.known.get_mut(to * self.members + of) {
                *place = told;
            }
            if told < there {
                break;
            }
        }
        MESSAGE_BYTES_MAX - room
    }

    fn at(&self, at: usize, of: usize) -> u16 {
        self.known.get(at * self.members + of).copied().unwrap_or(0)
    }

    fn sum(&self, words: u16) -> usize {
        self.sums.get(usize::from(words)).copied().unwrap_or(0)
    }

    /// How many words of each member the first one knows.
    pub(crate) fn known_to_first(&self) -> Vec<u16> {
        self.known.iter().take(self.members).copied().collect()
    }

    /// Whether every member knows all votes of a majority.
    pub(crate) fn have_majority(&self) -> bool {
        let has_votes = |words: &&u16| usize::from(**words) >= self.votes;
        let mut rows = self.known.chunks(self.members);
        rows.all(|row| row.iter().filter(has_votes).count() > self.members / 2)
    }

    /// Whether every member knows all words of all.
    pub(crate) fn have_everything(&self) -> bool {
        let all = self.sums.len() - 1;
        self.known.iter().all(|words| usize::from(*words) >= all)
    }

    /// A member by chance: xorshift64.
    fn draw(&mut self) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance % self.members as u64) as usize
    }
}
