//! How many tokens a prompt is, counted by a vocabulary where an estimate cannot decide.
//!
//! Counting costs about 15 ns a byte of prose, measured, and an estimate next to nothing. So it is done only where the
//! estimate is within a factor of two of the limit, and only until the limit is passed: further off,
//! no vocabulary would decide otherwise for what people and programs write.

use bpe_openai::Tokenizer as Pairs;

use crate::config::Tokenizer;

/// After this much text others get their turn on the same thread: half a millisecond's work.
const TURN_BYTES: usize = 32 * 1024;

/// A vocabulary in memory.
#[derive(Clone, Copy)]
pub struct Vocabulary {
    pairs: &'static Pairs,
}

impl Vocabulary {
    /// Unpacks the vocabulary, which takes a good part of a second: at a start, not under a request.
    pub fn load(which: Tokenizer) -> Self {
        let pairs = match which {
            Tokenizer::Cl100kBase => bpe_openai::cl100k_base(),
            Tokenizer::O200kBase => bpe_openai::o200k_base(),
        };
        Self { pairs }
    }

    /// Whether an estimate says too little about whether a prompt keeps within `most` tokens.
    pub(super) fn is_needed(estimate: u64, most: u64) -> bool {
        estimate > most / 2 && estimate < most.saturating_mul(2)
    }

    /// How many tokens the texts are together, or some number above `most`.
    ///
    /// # Cancel safety
    /// Nothing is lost but the count.
    pub(super) async fn count(&self, texts: &[String], most: u64) -> u64 {
        let (mut tokens, mut bytes) = (0, 0);
        for text in texts {
            for piece in self.pairs.split(text) {
                tokens += self.pairs.bpe.count(piece.as_bytes()) as u64;
                if tokens > most {
                    return tokens;
                }
                bytes += piece.len();
                if bytes > TURN_BYTES {
                    bytes = 0;
                    tokio::task::yield_now().await;
                }
            }
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn count(text: &str, most: u64) -> u64 {
        Vocabulary::load(Tokenizer::O200kBase).count(&[text.to_owned()], most).await
    }

    #[tokio::test]
    async fn known_texts_have_their_known_numbers() {
        // By OpenAI's own tokenizer.
        assert_eq!(count("hello world", 100).await, 2);
        assert_eq!(count("tiktoken is great!", 100).await, 6);
        assert_eq!(count("", 100).await, 0);
        let older = Vocabulary::load(Tokenizer::Cl100kBase);
        assert_eq!(older.count(&["tiktoken is great!".to_owned()], 100).await, 6);
    }

    #[tokio::test]
    async fn counting_stops_soon_behind_the_limit() {
        let long = "hello ".repeat(100_000);
        assert_eq!(count(&long, 7).await, 8);
    }

    #[test]
    fn only_near_the_limit_is_counted() {
        for (estimate, is_needed) in
            [(50, false), (51, true), (100, true), (199, true), (200, false)]
        {
            assert_eq!(Vocabulary::is_needed(estimate, 100), is_needed, "{estimate}");
        }
        assert!(
            !Vocabulary::is_needed(1, u64::MAX) && Vocabulary::is_needed(u64::MAX - 1, u64::MAX)
        );
    }
}
