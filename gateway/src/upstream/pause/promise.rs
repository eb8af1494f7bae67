//! What is promised of any header by which an upstream asks to be left alone.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::{ASKED, BYTES_MAX, PAUSE_MAX, RESETS, quota_pause, retry_after};

/// The first byte says which header has the rest for its value, the next four when that is, in seconds
/// since 1970.
pub(crate) fn keep(bytes: &[u8]) {
    let Some(([first, moment @ ..], value)) = bytes.split_first_chunk::<5>() else { return };
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let names: Vec<&str> = ASKED.iter().map(|(name, _)| *name).chain(RESETS).collect();
    let Some(name) = names.get(usize::from(*first) % names.len()) else { return };
    let wall = Duration::from_secs(u32::from_be_bytes(*moment).into());
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static(name), value.clone());
    let (asked, quota) = (retry_after(&headers, wall), quota_pause(&headers, wall));
    for pause in [asked, quota].into_iter().flatten() {
        assert!(pause <= PAUSE_MAX, "{pause:?} of {value:?}");
    }
    assert!(asked.is_none() || quota == asked, "what is asked for holds before any quota");
    assert_eq!(retry_after(&HeaderMap::new(), wall), None);
    // A plain number of seconds means so many, whoever says it, if it is no longer than what is read.
    let plain = value.to_str().ok().filter(|text| text.len() <= BYTES_MAX);
    let plain = plain.and_then(|text| text.parse::<u16>().ok());
    if let (Some(seconds), "retry-after") = (plain, *name) {
        assert_eq!(asked, Some(Duration::from_secs(seconds.into()).min(PAUSE_MAX)));
    }
    // Later it is no longer, if it is a date, and as long, if it is a period.
    let later = quota_pause(&headers, wall + Duration::from_secs(1));
    assert!(later <= quota, "{later:?} after {quota:?}");
    // What has something left is not waited for.
    let left = name.replace("reset", "remaining");
    if RESETS.contains(name)
        && let Ok(left) = HeaderName::try_from(left)
    {
        headers.insert(left, HeaderValue::from_static("1"));
        assert_eq!(quota_pause(&headers, wall), None);
    }
}
