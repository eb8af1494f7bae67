//! Which paths are served, and in which dialect their answers speak.
//!
//! A path is taken as it is written or not at all: whoever reads it behind the gateway must find the
//! same one, and what needs to be normalised first is read in two ways by two readers. So empty and
//! dotted segments, escapes, parameters and all but a few signs are refused, for every route.

use hyper::Method;

/// Longest path that is looked at.
const PATH_BYTES_MAX: usize = 512;

/// A family of paths of the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `POST /v1/chat/completions`.
    Chat,
    /// `POST /v1/completions`.
    Completions,
    /// `POST /v1/embeddings`.
    Embeddings,
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/messages`, Anthropic's.
    Messages,
    /// `POST /v1/rerank`.
    Rerank,
    /// `POST /v1/audio/…`.
    Audio,
    /// `POST /v1/images/…`.
    Images,
    /// Any further `POST` below `/v1/` that names a model.
    Other,
    /// `GET /v1/models`.
    Models,
    /// `GET /v1/models/{id}`; the id may contain slashes.
    Model,
}

/// How an answer speaks: what its events are called, how it fails, how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's chat completions: chunks with choices, then `[DONE]`.
    Chat,
    /// OpenAI's completions: likewise, with plain text.
    Completions,
    /// OpenAI's responses: named events, ended by `response.completed` and its like.
    Responses,
    /// Anthropic's messages: named events, ended by `message_stop`.
    Messages,
    /// Anything else: passed on, with only its errors understood.
    Opaque,
}

impl Route {
    /// The route of an exact path; `None`: nothing is served there.
    pub fn of(path: &str) -> Option<Self> {
        let below = path.strip_prefix("/v1/")?;
        if path.len() > PATH_BYTES_MAX || !below.split('/').all(is_plain) {
            return None;
        }
        let route = match below {
            "chat/completions" => Self::Chat,
            "completions" => Self::Completions,
            "embeddings" => Self::Embeddings,
            "responses" => Self::Responses,
            "messages" => Self::Messages,
            "rerank" => Self::Rerank,
            "models" => Self::Models,
            _ => match below.split_once('/') {
                Some(("models", _)) => Self::Model,
                Some(("audio", _)) => Self::Audio,
                Some(("images", _)) => Self::Images,
                Some(_) | None => Self::Other,
            },
        };
        Some(route)
    }

    /// The model that a path of [`Route::Model`] asks about.
    pub(super) fn id(path: &str) -> &str {
        path.strip_prefix("/v1/models/").unwrap_or_default()
    }

    /// The only method the route takes.
    pub fn method(self) -> Method {
        match self {
            Self::Chat
            | Self::Completions
            | Self::Embeddings
            | Self::Responses
            | Self::Messages
            | Self::Rerank
            | Self::Audio
            | Self::Images
            | Self::Other => Method::POST,
            Self::Models | Self::Model => Method::GET,
        }
    }

    /// Whether a request may come as a form, with files.
    pub fn takes_forms(self) -> bool {
        matches!(self, Self::Audio | Self::Images)
    }

    /// Whether a request may ask for several answers at once, by `n`.
    pub fn has_choices(self) -> bool {
        matches!(self, Self::Chat | Self::Completions | Self::Images)
    }

    /// Whether it is known where in a request all stands that its model reads.
    pub fn has_known_texts(self) -> bool {
        match self {
            Self::Chat
            | Self::Completions
            | Self::Responses
            | Self::Messages
            | Self::Embeddings => true,
            Self::Rerank
            | Self::Audio
            | Self::Images
            | Self::Other
            | Self::Models
            | Self::Model => false,
        }
    }

    /// Whether a stream reports its usage when `stream_options` ask for it.
    pub fn has_stream_options(self) -> bool {
        matches!(self, Self::Chat | Self::Completions)
    }

    /// How its answers speak.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Chat => Dialect::Chat,
            Self::Completions => Dialect::Completions,
            Self::Responses => Dialect::Responses,
            Self::Messages => Dialect::Messages,
            Self::Embeddings
            | Self::Rerank
            | Self::Audio
            | Self::Images
            | Self::Other
            | Self::Models
            | Self::Model => Dialect::Opaque,
        }
    }
}

/// Whether a segment means the same to every reader.
fn is_plain(segment: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._:~-".contains(&byte);
    !matches!(segment, "" | "." | "..") && segment.bytes().all(is_safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_route_and_its_method() {
        for (path, route) in [
            ("/v1/chat/completions", Route::Chat),
            ("/v1/completions", Route::Completions),
            ("/v1/embeddings", Route::Embeddings),
            ("/v1/responses", Route::Responses),
            ("/v1/messages", Route::Messages),
            ("/v1/messages/count_tokens", Route::Other),
            ("/v1/rerank", Route::Rerank),
            ("/v1/audio/speech", Route::Audio),
            ("/v1/audio/transcriptions", Route::Audio),
            ("/v1/images/edits", Route::Images),
            ("/v1/moderations", Route::Other),
        ] {
            assert_eq!(Route::of(path), Some(route), "{path}");
            assert_eq!(route.method(), Method::POST);
        }
        assert_eq!(Route::of("/v1/models"), Some(Route::Models));
        assert_eq!(Route::of("/v1/models/org/big-1.5:free"), Some(Route::Model));
        assert_eq!(Route::id("/v1/models/org/big-1.5:free"), "org/big-1.5:free");
        assert_eq!((Route::Models.method(), Route::Model.method()), (Method::GET, Method::GET));
    }

    #[test]
    fn h29_a_path_that_can_be_read_in_two_ways_is_none() {
        for path in [
            "",
            "*",
            "/",
            "/v1",
            "/v1/",
            "/v2/chat/completions",
            "/V1/chat/completions",
            "//v1/chat/completions",
            "/v1//chat/completions",
            "/v1//chat/../chat/completions",
            "/v1/./chat/completions",
            "/v1/../v1/chat/completions",
            "/v1/chat/completions/",
            "/v1/chat/completions/.",
            "/v1/chat/completions/..",
            "/v1/chat/completions;x",
            "/v1/chat;x/completions",
            "/v1/chat\\completions",
            "/v1/chat%2fcompletions",
            "/v1/%2e%2e/v1/chat/completions",
            "/v1/chat/completions%00",
            "/v1/chat/completions ",
            "/v1/ch\u{e4}t/completions",
            "/v1/models/",
            "/v1/models/a//b",
            "/v1/models/../models",
            "/v1/models/org%2Fbig",
        ] {
            assert_eq!(Route::of(path), None, "{path}");
        }
        assert_eq!(
            Route::of(&format!("/v1/{}", "a".repeat(PATH_BYTES_MAX - 4))),
            Some(Route::Other)
        );
        assert_eq!(Route::of(&format!("/v1/{}", "a".repeat(PATH_BYTES_MAX))), None);
    }
}
