//! The model routes that the mock knows, and what their requests look like.

/// A route below `/v1/` that takes a POST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Chat,
    Completions,
    Responses,
    Messages,
    CountTokens,
    Embeddings,
    Rerank,
    Moderations,
    Images,
    ImageForms,
    Speech,
    Transcriptions,
    /// Any other; it is answered with its own request.
    Other,
}

impl Route {
    /// The route of an exact path.
    pub(super) fn of(path: &str) -> Self {
        match path {
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            "/v1/messages/count_tokens" => Self::CountTokens,
            "/v1/embeddings" => Self::Embeddings,
            "/v1/rerank" => Self::Rerank,
            "/v1/moderations" => Self::Moderations,
            "/v1/images/generations" => Self::Images,
            "/v1/images/edits" | "/v1/images/variations" => Self::ImageForms,
            "/v1/audio/speech" => Self::Speech,
            "/v1/audio/transcriptions" | "/v1/audio/translations" => Self::Transcriptions,
            _ => Self::Other,
        }
    }

    /// Whether it is Anthropic's, and its errors are.
    pub(super) fn is_anthropic(self) -> bool {
        matches!(self, Self::Messages | Self::CountTokens)
    }

    /// Whether its requests are forms, because they carry a file.
    pub(super) fn takes_form(self) -> bool {
        matches!(self, Self::ImageForms | Self::Transcriptions)
    }
}
