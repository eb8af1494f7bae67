//! What the process takes of its machine, as Linux tells it; elsewhere there is nothing to tell.
//!
//! These stand beside the recorder because it knows whole counts only, and a second of the processor is
//! none. The names are those of Prometheus's own clients.

use std::fmt::Write;
use std::fs;

/// Writes what is known at the end of the page.
pub(crate) fn write(page: &mut String) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open = fs::read_dir("/proc/self/fd").map(|all| all.count() as f64).ok();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let seconds = |ticks_spent: f64| ticks_spent / ticks;
    let (used, started) = spent(&stat).unzip();
    let (used, started) = (used.map(seconds), started.map(seconds));
    let booted = number_after(&boot, "btime");
    let started = started.zip(booted).map(|(started, booted)| started + booted);
    let bytes = |name| number_after(&status, name).map(|kibibytes| kibibytes * 1_024.0);
    let rows = [
        ("cpu_seconds_total", "counter", "Time spent on processors.", used),
        ("start_time_seconds", "gauge", "When the process started, since 1970.", started),
        ("resident_memory_bytes", "gauge", "Memory that is in use.", bytes("VmRSS:")),
        ("virtual_memory_bytes", "gauge", "Memory that is addressed.", bytes("VmSize:")),
        ("open_fds", "gauge", "Handles of files and sockets that are open.", open),
        ("max_fds", "gauge", "Most handles.", number_after(&limits, "Max open files")),
        ("threads", "gauge", "Threads.", number_after(&status, "Threads:")),
    ];
    for (name, kind, help, value) in rows {
        if let Some(value) = value {
            let name = format!("process_{name}");
            // Writing into memory cannot fail.
            let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
        }
    }
}

/// Of `/proc/self/stat`: the ticks spent, and when it started in ticks after the boot.
fn spent(stat: &str) -> Option<(f64, f64)> {
    // The second field is the program's name in brackets, in which anything may stand.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Counted from the third field on: `utime` is field 14, `stime` 15, `starttime` 22 (proc(5)).
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some((field(14)? + field(15)?, field(22)?))
}

/// The first number of the line that begins so.
fn number_after(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_hides_no_field() {
        let numbers: Vec<String> = (3..=30).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) b (c) {}", numbers.join(" "));
        assert_eq!(spent(&stat), Some((29.0, 22.0)));
    }

    #[test]
    fn the_process_has_memory_handles_and_a_beginning() {
        let mut page = String::new();
        write(&mut page);
        for name in ["resident_memory_bytes", "open_fds", "max_fds", "threads"] {
            assert!(number_after(&page, &format!("process_{name} ")).unwrap() > 0.0, "{page}");
        }
        let started = number_after(&page, "process_start_time_seconds ").unwrap();
        let now = crate::clock::wall().as_secs_f64();
        assert!((0.0..3_600.0).contains(&(now - started)), "{started} {now}");
        assert!(number_after(&page, "process_cpu_seconds_total ").is_some(), "{page}");
    }
}
