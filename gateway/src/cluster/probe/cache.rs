//! Reads an engine's page of metrics: how full is its KV cache?
//!
//! An engine that has just run out of cache answers a tiny probe well and chokes on the first real
//! request. Its own page knows better. The page is a stranger's text: bounded in size and time, and a
//! line that is not understood is passed over.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::header::{HeaderName, HeaderValue};

use crate::fleet::Endpoint;
use crate::upstream::{PROBE_HEADER, Upstream};

/// The longest page that is read; an engine's has some hundred kilobytes.
const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// How long the page may take; the probe's own limit holds besides.
const PAGE_TIME_MAX: Duration = Duration::from_secs(2);

/// What the page said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// There is room in the cache.
    Below,
    /// There is not.
    Full,
    /// The page is not there, too long, too late, or does not name the cache.
    Unreadable,
}

impl Reading {
    /// The word for a metric's label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Below => "below",
            Self::Full => "full",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Reads the page of an endpoint whose cache is to be looked at; `None` for any other.
pub(super) async fn read(upstream: &Upstream, endpoint: &Endpoint) -> Option<Reading> {
    let (probe, kind) = (&endpoint.config.probe, endpoint.config.kind);
    let most = probe.cache_usage_max?;
    let limit = PAGE_TIME_MAX.min(probe.first_token);
    let page = tokio::time::timeout(limit, page(upstream, endpoint)).await.ok().flatten();
    let used = page.as_deref().and_then(|page| largest(page, kind.cache_usage_names()));
    Some(match used {
        Some(used) if used < most => Reading::Below,
        Some(_) => Reading::Full,
        None => Reading::Unreadable,
    })
}

async fn page(upstream: &Upstream, endpoint: &Endpoint) -> Option<String> {
    let mut request = Upstream::get(&endpoint.config.probe.metrics_path)?;
    let name = HeaderName::from_static(PROBE_HEADER);
    request.headers_mut().insert(name, HeaderValue::from_static("1"));
    let response = upstream.send(endpoint, request).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let body = Limited::new(response.into_body(), PAGE_BYTES_MAX).collect().await.ok()?;
    String::from_utf8(body.to_bytes().to_vec()).ok()
}

/// The largest value of all series with one of these names: the fullest of several engines or ranks
/// is the one that chokes.
fn largest(page: &str, names: &[&str]) -> Option<f64> {
    let value = |line: &str| names.iter().find_map(|name| value_of(line, name));
    page.lines().filter_map(value).filter(|value| value.is_finite()).reduce(f64::max)
}

/// The value of a line of the Prometheus text format if it is a sample of this name.
fn value_of(line: &str, name: &str) -> Option<f64> {
    let rest = line.trim_start().strip_prefix(name)?;
    let value = match rest.strip_prefix('{') {
        Some(labels) => behind_labels(labels)?,
        None => rest.strip_prefix([' ', '\t'])?,
    };
    // A time may stand behind the value.
    value.split_ascii_whitespace().next()?.parse().ok()
}

/// What stands behind the brace that ends the labels; one within quotes does not.
fn behind_labels(labels: &str) -> Option<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (place, one) in labels.char_indices() {
        match one {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_quoted,
            '"' => is_quoted = !is_quoted,
            '}' if !is_quoted => return labels.get(place + 1..),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Kind;

    const PAGE: &str = "# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.\n\
        # TYPE vllm:kv_cache_usage_perc gauge\n\
        vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a } 0.99\"} 0.25\n\
        vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"\\\"}\"} 0.5 1700000000000\n\
        vllm:kv_cache_usage_perc_total 0.9\n\
        vllm:kv_cache_usage_perc{engine=\"2\"} NaN\n\
        sglang:token_usage 0.125\n";

    #[test]
    fn the_fullest_of_several_engines_counts() {
        assert_eq!(largest(PAGE, Kind::Vllm.cache_usage_names()), Some(0.5));
        assert_eq!(largest(PAGE, Kind::Sglang.cache_usage_names()), Some(0.125));
        let older = "vllm:gpu_cache_usage_perc 1\n";
        assert_eq!(largest(older, Kind::Vllm.cache_usage_names()), Some(1.0));
    }

    #[test]
    fn a_page_without_the_name_or_cut_anywhere_says_nothing_false() {
        assert_eq!(largest("", Kind::Vllm.cache_usage_names()), None);
        assert_eq!(largest(PAGE, Kind::OpenAi.cache_usage_names()), None);
        for end in 0..PAGE.len() {
            let found = largest(&PAGE[..end], Kind::Vllm.cache_usage_names());
            assert!(found.is_none_or(|value| value <= 0.5), "cut at {end}: {found:?}");
        }
    }
}
