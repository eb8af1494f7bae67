//! Images, speech and transcripts.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Reply, Shape, data};

/// An image of one pixel, as PNG in base64.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA\
     AABJRU5ErkJggg==";
/// Bytes of sound for one token.
const SOUND_BYTES: u64 = 1024;
/// The bytes of sound count up to this prime and start again: one lost or doubled shows.
const SOUND_PERIOD: u64 = 251;
/// 48 bytes of silence in base64.
const SILENCE: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// All images.
pub(super) fn images(reply: &Reply) -> Value {
    let image = json!({"b64_json": PIXEL});
    let count = usize::try_from(reply.images).unwrap_or(1);
    json!({"created": reply.created, "data": vec![image; count], "usage": usage(reply)})
}

/// The whole transcript.
pub(super) fn transcript(reply: &Reply) -> Value {
    json!({"text": reply.text(), "usage": transcript_usage(reply)})
}

/// One token: a partial image, a word of a transcript, or a piece of sound.
pub(super) fn piece(reply: &Reply, number: u32) -> Bytes {
    match reply.shape {
        Shape::Images => data(&json!({"type": "image_generation.partial_image",
            "b64_json": PIXEL, "partial_image_index": number, "created_at": reply.created,
            "size": "1024x1024", "quality": "low", "background": "opaque",
            "output_format": "png"})),
        Shape::SoundEvents => data(&json!({"type": "speech.audio.delta", "audio": SILENCE})),
        Shape::Sound => sound(number),
        Shape::Chat | Shape::Text | Shape::Responses | Shape::Messages | Shape::Transcript => data(
            &json!({"type": "transcript.text.delta", "delta": reply.word(number), "logprobs": []}),
        ),
    }
}

/// The event that says that all was said; bare sound has none.
pub(super) fn closing(reply: &Reply) -> Vec<Bytes> {
    match reply.shape {
        Shape::Images => vec![data(&json!({"type": "image_generation.completed",
            "b64_json": PIXEL, "created_at": reply.created, "size": "1024x1024",
            "quality": "low", "background": "opaque", "output_format": "png",
            "usage": usage(reply)}))],
        Shape::SoundEvents => {
            vec![data(&json!({"type": "speech.audio.done", "usage": usage(reply)}))]
        }
        Shape::Sound => Vec::new(),
        Shape::Chat | Shape::Text | Shape::Responses | Shape::Messages | Shape::Transcript => {
            vec![data(&json!({"type": "transcript.text.done", "text": reply.text(),
                "logprobs": [], "usage": transcript_usage(reply)}))]
        }
    }
}

/// The content type of sound in the format that was asked for.
pub(super) fn sound_type(reply: &Reply) -> &'static str {
    match reply.format.as_deref() {
        Some("opus") => "audio/opus",
        Some("aac") => "audio/aac",
        Some("flac") => "audio/flac",
        Some("wav") => "audio/wav",
        Some("pcm") => "audio/pcm",
        Some(_) | None => "audio/mpeg",
    }
}

fn sound(number: u32) -> Bytes {
    let start = u64::from(number).saturating_mul(SOUND_BYTES);
    (start..start.saturating_add(SOUND_BYTES))
        .map(|place| u8::try_from(place % SOUND_PERIOD).unwrap_or_default())
        .collect()
}

fn usage(reply: &Reply) -> Value {
    json!({"input_tokens": reply.prompt_tokens, "output_tokens": reply.tokens,
        "total_tokens": reply.total_tokens(),
        "input_tokens_details": {"text_tokens": reply.prompt_tokens, "image_tokens": 0}})
}

fn transcript_usage(reply: &Reply) -> Value {
    json!({"type": "tokens", "input_tokens": reply.prompt_tokens,
        "output_tokens": reply.tokens, "total_tokens": reply.total_tokens(),
        "input_token_details": {"text_tokens": 0, "audio_tokens": reply.prompt_tokens}})
}
