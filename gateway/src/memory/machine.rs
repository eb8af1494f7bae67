//! How much memory this process may have, as Linux tells it: what the machine has, or the least of what
//! its control groups are allowed.
//!
//! It is read once, when a configuration says nothing of its own. In a container it is the container's
//! limit that kills, and it is found under one mount in most of them; where a process sees its groups
//! from outside, the way down to its own is walked. What cannot be read limits nothing.
//!
//! A hardened process sees its own part of `/proc` only (`ProcSubset=pid` of systemd) or none of it, so
//! the size of the machine is asked of the kernel and not read there.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// This part of the memory is for bodies that are held; the rest is for connections, streams, what the
/// kernel keeps for sockets, and the program.
const PART: u64 = 4;
/// Even on a tiny machine bodies get this much,
const BYTES_MIN: u64 = 32 << 20;
/// and unless somebody asks for more, never more than this.
const BYTES_MAX: u64 = 1 << 30;
/// What is taken for the memory of a machine that does not tell.
const UNTOLD: u64 = 1 << 30;
const MEBIBYTE: u64 = 1 << 20;

/// What bodies may take together where the configuration does not say, in bytes: a quarter of the memory
/// that this process may have, 32 MiB to 1 GiB.
pub fn default_bytes() -> u64 {
    static BYTES: LazyLock<u64> = LazyLock::new(|| part_of(limit(Path::new("/"), of_machine())));
    *BYTES
}

fn part_of(memory: Option<u64>) -> u64 {
    // To whole mebibytes, so that it reads well.
    let part = memory.unwrap_or(UNTOLD) / PART / MEBIBYTE * MEBIBYTE;
    part.clamp(BYTES_MIN, BYTES_MAX)
}

/// What the machine has, in bytes, as its kernel says.
#[cfg(target_os = "linux")]
fn of_machine() -> Option<u64> {
    let told = rustix::system::sysinfo();
    #[allow(clippy::useless_conversion, reason = "on 32 bits it is narrower")]
    let units = u64::from(told.totalram);
    // A machine without memory has not told.
    units.checked_mul(told.mem_unit.max(1).into()).filter(|bytes| *bytes > 0)
}

#[cfg(not(target_os = "linux"))]
fn of_machine() -> Option<u64> {
    None
}

/// The least of what limits this process, in bytes, with the files of the system below `root` and so much
/// memory in the machine.
fn limit(root: &Path, machine: Option<u64>) -> Option<u64> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let groups = read("proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, own) = (fields.next().unwrap_or("-"), fields.next().unwrap_or("/"));
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        // A group has at most what those have that it lies in, and in a container its path may be one
        // that is seen from outside only.
        let own = Path::new(own.trim_start_matches('/'));
        let numbers = own.ancestors().filter_map(|group| {
            let path = Path::new(mount).join(group).join(file);
            read(path.to_str()?)?.trim().parse::<u64>().ok()
        });
        numbers.collect()
    });
    // No limit is written as a word, or as the greatest number there is.
    limits.chain(machine).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MACHINE: Option<u64> = Some(2_048 * MEBIBYTE);

    #[test]
    fn the_least_of_the_groups_that_a_process_is_in_holds() {
        let root = system(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "268435456\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ]);
        assert_eq!(limit(root.path(), MACHINE), Some(256 * MEBIBYTE));
        let root = system(&[
            ("proc/self/cgroup", "9:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/1\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
        ]);
        assert_eq!(limit(root.path(), MACHINE), Some(512 * MEBIBYTE));
    }

    #[test]
    fn what_says_nothing_limits_nothing() {
        let root = system(&[
            ("proc/self/cgroup", "4:memory:/\n0::/\nnonsense\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(limit(root.path(), MACHINE), Some(2_048 * MEBIBYTE));
        assert_eq!(limit(system(&[]).path(), None), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_sees_no_proc_knows_what_the_machine_has() {
        let machine = of_machine().unwrap();
        assert_eq!(limit(system(&[]).path(), Some(machine)), Some(machine));
        // The kernel's own account, where it can be read.
        let told = fs::read_to_string("/proc/meminfo").unwrap();
        let line = told.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(machine.abs_diff(kibibytes * 1_024) <= MEBIBYTE, "{machine}, {line}");
    }

    #[test]
    fn a_quarter_is_for_bodies_within_bounds() {
        assert_eq!(part_of(Some(256 * MEBIBYTE)), 64 * MEBIBYTE);
        assert_eq!(part_of(Some(1_000_000_000)), 238 * MEBIBYTE);
        assert_eq!(part_of(Some(64 << 30)), 1_024 * MEBIBYTE);
        assert_eq!(part_of(Some(1)), 32 * MEBIBYTE);
        assert_eq!(part_of(None), 256 * MEBIBYTE);
    }
}
