//! Words for numbers and times, short enough for a table; and text from elsewhere made harmless.

use serde_json::Value;

/// What stands where nothing is known.
pub(super) const NOTHING: &str = "-";

/// Whether a character does something to a terminal or to the order of the text around it: controls,
/// separators of lines, and what turns the direction of writing.
fn is_steering(one: char) -> bool {
    one.is_control()
        || matches!(
            one,
            '\u{61c}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// Puts text that came from elsewhere on one line: what steers becomes spaces, so that no answer can
/// steer the terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|one| if is_steering(one) { ' ' } else { one }).collect()
}

/// The text of a JSON document, the same to a program, and harmless to a terminal: what steers is
/// escaped. It stands within strings only, but for the white space of ASCII between the tokens.
pub(super) fn harmless(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    for one in document.chars() {
        match one {
            '\n' | '\r' | '\t' => text.push(one),
            // None of them is beyond four digits.
            one if is_steering(one) => text.push_str(&format!("\\u{:04x}", u32::from(one))),
            one => text.push(one),
        }
    }
    text
}

/// The text at `path` of a JSON document, numbers and truths included; `-` where there is none.
pub(super) fn word(value: &Value, path: &str) -> String {
    match value.pointer(path) {
        None | Some(Value::Null) => NOTHING.to_owned(),
        Some(Value::String(text)) if text.is_empty() => NOTHING.to_owned(),
        Some(Value::String(text)) => plain(text),
        Some(Value::Number(number)) => plain_number(number),
        Some(other) => plain(&other.to_string()),
    }
}

fn plain_number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(value) if number.is_f64() => {
            let text = format!("{value:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => number.to_string(),
    }
}

/// The whole number at `path`, if there is one.
pub(super) fn number(value: &Value, path: &str) -> Option<u64> {
    value.pointer(path).and_then(Value::as_u64)
}

/// The truth at `path`; what is not there is false.
pub(super) fn is(value: &Value, path: &str) -> bool {
    value.pointer(path).and_then(Value::as_bool).unwrap_or(false)
}

/// The rows of the list at `path`; none where there is no list.
pub(super) fn rows<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The period at `path`, in words; `-` where there is none.
pub(super) fn period_at(value: &Value, path: &str) -> String {
    number(value, path).map_or_else(|| NOTHING.to_owned(), period)
}

/// A period of milliseconds, in at most six characters up to a hundred days: `312ms`, `3.2s`, `45s`,
/// `12m05s`, `3h12m`, `2d03h`.
pub(super) fn period(millis: u64) -> String {
    let seconds = millis / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match millis {
        0..=999 => format!("{millis}ms"),
        1_000..=9_999 => format!("{seconds}.{}s", millis % 1_000 / 100),
        10_000..=59_999 => format!("{seconds}s"),
        60_000..=3_599_999 => format!("{minutes}m{:02}s", seconds % 60),
        3_600_000..=86_399_999 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// A share of 0 to 1 at `path`, in percent; `-` where there is none.
pub(super) fn percent_at(value: &Value, path: &str) -> String {
    match value.pointer(path).and_then(Value::as_f64) {
        Some(share) if share > 0.0 && share < 0.01 => "<1%".to_owned(),
        Some(share) => format!("{:.0}%", share * 100.0),
        None => NOTHING.to_owned(),
    }
}

/// A moment since the epoch as `11-30 17:31:21`, in UTC.
pub(super) fn moment(unix_millis: u64) -> String {
    let seconds = unix_millis / 1_000;
    let (month, day) = month_and_day(seconds / 86_400);
    let second = seconds % 86_400;
    format!("{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

/// The month and day of the number of days since 1970-01-01, by Howard Hinnant's `civil_from_days`.
fn month_and_day(days: u64) -> (u64, u64) {
    let shifted = days + 719_468;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (month, day)
}

/// Cuts `text` to `width` characters; what is cut ends in an ellipsis.
pub(super) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) if width == 0 => String::new(),
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// Breaks `text` into lines of at most `width` characters, at spaces where there are any, each
/// after `indent` spaces; the indent counts.
pub(super) fn wrap(text: &str, indent: usize, width: usize) -> Vec<String> {
    let room = width.saturating_sub(indent).max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > room {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += word_length;
    }
    lines.push(line);
    lines.iter().map(|line| format!("{:indent$}{line}", "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_period_is_short_at_every_size() {
        let words = [0, 999, 1_000, 9_999, 10_000, 59_999, 60_000, 725_000, 3_600_000, 90_000_000];
        let words = words.map(period);
        let wanted =
            ["0ms", "999ms", "1.0s", "9.9s", "10s", "59s", "1m00s", "12m05s", "1h00m", "1d01h"];
        assert_eq!(words, wanted);
        assert!(!period(u64::MAX).is_empty());
    }

    #[test]
    fn a_moment_is_told_in_utc_leap_days_included() {
        assert_eq!(moment(0), "01-01 00:00:00");
        assert_eq!(moment(951_782_400_000), "02-29 00:00:00");
        assert_eq!(moment(1_796_059_881_000), "11-30 17:31:21");
        assert!(!moment(u64::MAX).is_empty());
    }

    #[test]
    fn text_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\r\nc\u{202e}d\u{9b}"), "a [2Jb  c d ");
        assert_eq!(word(&json!({ "a": "\u{7}" }), "/a"), " ");
        let turning = "\u{61c}\u{200e}\u{200f}\u{2066}\u{2067}\u{2068}\u{2069}";
        assert_eq!(plain(turning), " ".repeat(7));
        assert_eq!(plain("žluťoučký кот 猫 مرحبا"), "žluťoučký кот 猫 مرحبا");
    }

    #[test]
    fn a_document_is_harmless_and_still_the_same() {
        let value = json!({ "a\u{7f}": "\u{9b}2J \u{202e}\u{2066}\u{1b}\\ é" });
        let document = format!("{value:#}\r\n");
        let text = harmless(&document);
        assert!(
            !text.contains(|one: char| is_steering(one) && !one.is_ascii_whitespace()),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert_eq!(text.lines().count(), document.lines().count(), "the layout stays");
    }

    #[test]
    fn what_is_missing_is_a_dash() {
        let value = json!({ "null": null, "empty": "", "half": 0.5, "whole": 3, "truth": true });
        let words = ["/null", "/empty", "/none", "/half", "/whole", "/truth"];
        let words = words.map(|path| word(&value, path));
        assert_eq!(words, ["-", "-", "-", "0.5", "3", "true"]);
        assert_eq!(percent_at(&json!({ "a": 0.001 }), "/a"), "<1%");
        assert_eq!(percent_at(&json!({ "a": 0.126 }), "/a"), "13%");
    }

    #[test]
    fn text_is_cut_and_wrapped_by_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüx", 3), "äö…");
        assert_eq!(cut("x", 0), "");
        assert_eq!(wrap("one two three", 2, 9), ["  one two", "  three"]);
        assert_eq!(wrap("", 1, 0), [" "]);
        assert_eq!(wrap("overlong", 0, 3), ["overlong"]);
    }
}
