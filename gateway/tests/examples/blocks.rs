//! The fenced blocks of the documents, with what each says it is.

use std::fs;
use std::path::{Path, PathBuf};

/// Documents outside of `deploy/`, all of which are read.
const DOCUMENTS: [&str; 4] =
    ["README.md", "CHANGELOG.md", "chaos/README.md", "redis-lua/README.md"];

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The document's path in the repository.
    pub(crate) document: String,
    /// The line of the fence that opens it.
    pub(crate) line: usize,
    /// What stands behind the fence: the language and further words. Nothing for a drawing.
    pub(crate) info: String,
    /// What is in it.
    pub(crate) text: String,
}

impl Block {
    /// Where it is, for complaints.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }

    /// Its lines, those that end in a backslash joined with the next ones, without comments and
    /// empty ones.
    pub(crate) fn commands(&self) -> Vec<String> {
        let joined = self.text.replace("\\\n", " ");
        let lines = joined.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file below a folder of the repository with one of these endings.
pub(crate) fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => folders.push(path),
                false if endings.iter().any(|ending| name.ends_with(ending)) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// All blocks of all documents.
pub(crate) fn all() -> Vec<Block> {
    let documents = DOCUMENTS.into_iter().map(|name| root().join(name));
    let documents = documents.chain(files("deploy", &[".md"]));
    let blocks: Vec<Block> = documents.flat_map(|path| of(&path)).collect();
    assert!(blocks.len() >= 4, "the documents' blocks are not found");
    blocks
}

fn of(path: &Path) -> Vec<Block> {
    let document = path.strip_prefix(root()).unwrap().display().to_string();
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for (number, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        open = match (open, fence) {
            (None, Some(info)) => {
                let (document, info) = (document.clone(), info.trim().to_owned());
                Some(Block { document, line: number + 1, info, text: String::new() })
            }
            (Some(block), Some(_)) => {
                blocks.push(block);
                None
            }
            (Some(mut block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
                Some(block)
            }
            (None, None) => None,
        };
    }
    assert!(open.is_none(), "{document}: a block is not closed");
    blocks
}
