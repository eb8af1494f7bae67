//! Which paths are served, and in which dialect their answers speak.

use hyper::Method;

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
    /// The route of an exact path.
    pub fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            "/v1/embeddings" => Some(Self::Embeddings),
            "/v1/models" => Some(Self::Models),
            _ => None,
        }
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
            Self::Models => Method::GET,
        }
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
            | Self::Models => Dialect::Opaque,
        }
    }
}
