//! The blocks of one document as one shell script, run on a stage of its own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use crate::blocks::{Block, root};

/// The binary.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_quorumgate");
/// What makes the stage.
const STAGE: &str = include_str!("stage.sh");
/// Plays at once: two cores are shared by three gateways each.
const AT_ONCE: usize = 2;
/// No play takes longer, in seconds.
const PLAY_SECONDS_MAX: &str = "90";
/// Commands of ours that do not end by themselves.
const ENDLESS: [&str; 5] = ["serve", "mock", "top", "events", "demo"];

/// Where a play is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    Bare,
    Fleet,
    Repository,
}

impl Scene {
    fn as_str(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Fleet => "fleet",
            Self::Repository => "repository",
        }
    }
}

/// Blocks of one document that share a scene, in their order.
pub(crate) struct Play {
    pub(crate) scene: Scene,
    pub(crate) blocks: Vec<Block>,
}

impl Play {
    pub(crate) fn document(&self) -> &str {
        &self.blocks[0].document
    }
}

/// Runs all plays, and returns what went otherwise than the documents say.
pub(crate) fn perform(plays: Vec<Play>) -> Vec<String> {
    let (left, complaints) = (Mutex::new(plays), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(play) = next() {
                    let began = Instant::now();
                    let wrong = run(&play);
                    let (document, scene) = (play.document(), play.scene.as_str());
                    eprintln!("{document}, {scene}: {:?}", began.elapsed());
                    complaints.lock().unwrap().extend(wrong);
                }
            });
        }
    });
    complaints.into_inner().unwrap()
}

fn run(play: &Play) -> Vec<String> {
    let stage = tempfile::tempdir().unwrap();
    let (script, expected) = write(play);
    let file = stage.path().join("script.sh");
    fs::write(&file, script).unwrap();
    let mut command = Command::new("unshare");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["timeout", "-s", "KILL", PLAY_SECONDS_MAX, "bash"]).arg(&file);
    command.arg(play.scene.as_str()).arg(root()).arg(BINARY);
    command.current_dir(stage.path()).stdin(Stdio::null());
    // What the machine's user has set is not what the documents' reader has.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("QUORUMGATE")) {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let at = fs::read_to_string(stage.path().join("at")).unwrap_or_default();
        return vec![format!("{}: {}\n{said}", at.trim(), output.status)];
    }
    compare(stage.path(), &expected)
}

/// The script of a play, and what its commands are to print: the file's number, the place, the text.
fn write(play: &Play) -> (String, Vec<(usize, String, String)>) {
    let (mut script, mut expected) = (STAGE.to_owned(), Vec::new());
    for block in &play.blocks {
        script.push_str(&format!("echo '{}' >\"$stage/at\"\n", block.place()));
        match block.info.starts_with("console") {
            true => console(block, &mut script, &mut expected),
            false => script.extend(block.text.lines().map(|line| acted(line) + "\n")),
        }
    }
    (script, expected)
}

/// The commands of a block that shows their output.
fn console(block: &Block, script: &mut String, expected: &mut Vec<(usize, String, String)>) {
    let mut lines = block.text.lines().peekable();
    while let Some(line) = lines.next() {
        let mut command = line.strip_prefix("$ ").map(str::to_owned);
        assert!(command.is_some(), "{}: what does `{line}` belong to?", block.place());
        let mut command = command.take().unwrap();
        while command.ends_with('\\') {
            command.push('\n');
            command.push_str(lines.next().unwrap_or_default());
        }
        let mut output = String::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
            output.push_str(line);
            output.push('\n');
        }
        let number = expected.len();
        let redirected = format!("{{ {}\n}} >\"$stage/out-{number}\" 2>&1\n", acted(&command));
        script.push_str(&redirected);
        expected.push((number, format!("{}: $ {command}", block.place()), output));
    }
}

/// A line as it is run: see the conventions.
fn acted(line: &str) -> String {
    let line = line.replace("cargo run --release -- ", "quorumgate ");
    let line = line.replace("cargo run -- ", "quorumgate ");
    let (command, comment) = line.split_once(" # ").unwrap_or((&line, ""));
    let mut words = command.split_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if (first, second) == ("bash", ".ci/test.sh") {
        return String::new();
    }
    if let Some(code) = comment.trim().strip_prefix("exits ") {
        let code: String = code.chars().take_while(char::is_ascii_digit).collect();
        return format!("exits {code} {command}");
    }
    let ends = command.trim_end().ends_with('&') || command.contains("--exit");
    match first == "quorumgate" && ENDLESS.contains(&second) && !ends {
        true => format!("endless {command}"),
        false => line,
    }
}

fn compare(stage: &Path, expected: &[(usize, String, String)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, place, expected) in expected {
        let said = fs::read_to_string(stage.join(format!("out-{number}"))).unwrap();
        if !is_like(said.trim_end(), expected.trim_end()) {
            complaints.push(format!("{place}\nis to print\n{expected}\nand prints\n{said}"));
        }
    }
    complaints
}

/// Whether a text is of a form in which `…` stands for anything.
fn is_like(text: &str, form: &str) -> bool {
    let mut parts = form.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn three_dots_stand_for_anything() {
    let like = [
        ("a b c", "a…c"),
        ("a", "a"),
        ("a b", "…"),
        ("out since 3 s", "out since … s"),
        ("abab", "a…b"),
    ];
    assert!(like.iter().all(|(text, form)| is_like(text, form)), "{like:?}");
    let unlike = [("a b c", "a…d"), ("ab", "a"), ("a", "b…"), ("ab", "ab…b")];
    assert!(unlike.iter().all(|(text, form)| !is_like(text, form)), "{unlike:?}");
}
