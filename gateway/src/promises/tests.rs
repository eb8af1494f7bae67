//! All that the fuzzers have kept, once more.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::ALL;

/// Most bytes of one corpus: it is read by people, too, and grows with every change of the code.
const CORPUS_BYTES_MAX: u64 = 200 * 1024;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// What lies in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = read.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The names of what lies in a folder, without their endings.
fn names(folder: &Path) -> BTreeSet<String> {
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries(folder).into_iter().map(stem).collect()
}

#[test]
fn every_promise_has_a_corpus_and_a_fuzzer_and_none_is_without_a_promise() {
    let promised: BTreeSet<String> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&fuzz().join("corpus")), promised);
    assert_eq!(names(&fuzz().join("fuzz_targets")), promised);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in promised {
        let fuzzer = fuzz().join(format!("fuzz_targets/{name}.rs"));
        let calls = format!("gateway::promises::{name}(bytes)");
        assert!(fs::read_to_string(fuzzer).unwrap().contains(&calls), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name} is no binary");
    }
}

#[test]
fn every_promise_holds_for_all_that_the_fuzzers_have_kept() {
    let mut broken = Vec::new();
    for (name, promise) in ALL {
        let files = entries(&fuzz().join("corpus").join(name));
        assert!(!files.is_empty(), "{name} has nothing in its corpus");
        let mut size = 0;
        for file in files {
            let bytes = fs::read(&file).unwrap();
            size += bytes.len() as u64;
            if catch_unwind(AssertUnwindSafe(|| promise(&bytes))).is_err() {
                broken.push(file.display().to_string());
            }
        }
        assert!(size <= CORPUS_BYTES_MAX, "the corpus of {name} has {size} bytes");
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
