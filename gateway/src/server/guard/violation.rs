//! What a client may do wrong before it is understood, and what it is told.
//!
//! Invariant: nothing of what it sent is in the answer.

use hyper::StatusCode;

use crate::error::ApiError;

/// Why what came is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Violation {
    /// A line ends by anything but CR LF.
    LineEnd,
    /// The first line is none of HTTP.
    RequestLine,
    /// A method that a gateway must not know.
    Method,
    /// The target is neither a path nor a URL of HTTP.
    Target,
    /// The target is too long.
    TargetTooLong,
    /// Another version of HTTP.
    Version,
    /// A field's name is none.
    FieldName,
    /// A field's value has control characters in it.
    FieldValue,
    /// Too many fields, or too many bytes of them.
    HeadTooLarge,
    /// Not one `Host`, or not the name of one.
    Host,
    /// A length that is none, or more than one.
    ContentLength,
    /// A length that nobody could send.
    BodyTooLarge,
    /// A coding other than `chunked`, more than one, or one where there can be none.
    TransferEncoding,
    /// An expectation other than `100-continue`.
    Expectation,
    /// A chunk without a size, or with too much beside its data.
    Chunk,
    /// Trailers that are no fields, or too many.
    Trailer,
    /// The head did not come in time.
    Late,
}

impl Violation {
    /// All of them.
    pub(in crate::server) const ALL: [Self; 17] = [
        Self::LineEnd,
        Self::RequestLine,
        Self::Method,
        Self::Target,
        Self::TargetTooLong,
        Self::Version,
        Self::FieldName,
        Self::FieldValue,
        Self::HeadTooLarge,
        Self::Host,
        Self::ContentLength,
        Self::BodyTooLarge,
        Self::TransferEncoding,
        Self::Expectation,
        Self::Chunk,
        Self::Trailer,
        Self::Late,
    ];

    /// In one word, for a label.
    pub(in crate::server) fn word(self) -> &'static str {
        match self {
            Self::LineEnd => "line_end",
            Self::RequestLine => "request_line",
            Self::Method => "method",
            Self::Target => "target",
            Self::TargetTooLong => "target_too_long",
            Self::Version => "version",
            Self::FieldName => "field_name",
            Self::FieldValue => "field_value",
            Self::HeadTooLarge => "head_too_large",
            Self::Host => "host",
            Self::ContentLength => "content_length",
            Self::BodyTooLarge => "body_too_large",
            Self::TransferEncoding => "transfer_encoding",
            Self::Expectation => "expectation",
            Self::Chunk => "chunk",
            Self::Trailer => "trailer",
            Self::Late => "late",
        }
    }

    /// What the client reads.
    pub(in crate::server) fn error(self) -> ApiError {
        let refused = |status, message: &str| ApiError::new(status, "invalid_request", message);
        let bad = |message: &str| ApiError::invalid_request(message);
        match self {
            Self::LineEnd => bad("Every line of a request's head must end by CR LF."),
            Self::RequestLine => bad("The request line must be: method, target, HTTP/1.1."),
            Self::Method => ApiError::method_not_allowed("GET, POST"),
            Self::Target => bad("The target must be a path, or a URL of HTTP, without a fragment."),
            Self::TargetTooLong => refused(StatusCode::URI_TOO_LONG, "The target is too long."),
            Self::Version => bad("Speak HTTP/1.1."),
            Self::FieldName => bad("A header's name must be a token with a colon behind it."),
            Self::FieldValue => bad("A header's value must not contain control characters."),
            Self::HeadTooLarge => {
                let message = "At most 100 headers, and 32 KiB of them, are taken.";
                refused(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message)
            }
            Self::Host => bad("There must be one Host header with one host in it."),
            Self::ContentLength => bad("There must be one Content-Length, in digits."),
            Self::BodyTooLarge => {
                let message = "No body can be so long.";
                ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
            }
            Self::TransferEncoding => {
                bad("Transfer-Encoding must be chunked, once, without Content-Length, in HTTP/1.1.")
            }
            Self::Expectation => {
                let message = "No expectation but 100-continue can be met.";
                refused(StatusCode::EXPECTATION_FAILED, message)
            }
            Self::Chunk | Self::Trailer => ApiError::broken_body(),
            Self::Late => {
                let message = "The request's head did not arrive in time.";
                ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
            }
        }
    }
}
