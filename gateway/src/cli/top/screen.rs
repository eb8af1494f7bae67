//! The terminal: plain ANSI sequences on the alternate screen, keys as they are pressed.
//!
//! Invariants: dropping it gives the terminal back as it was found, also where a panic unwinds.

use std::io::{self, Read, Write};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc::{Receiver, channel};

use super::frame::{Line, Style};

/// Size of a terminal that does not tell its own.
const SIZE: (usize, usize) = (80, 24);
/// Keys that wait; further ones are waited for by whoever reads the terminal.
const KEYS_MAX: usize = 16;

const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Up,
    Down,
    Other,
}

/// A terminal that is drawn on.
pub(super) struct Screen {
    before: Termios,
    keys: Receiver<u8>,
    has_colour: bool,
}

impl Screen {
    /// Takes the terminal of stdin and stdout.
    ///
    /// # Errors
    /// They are none, or it cannot be set up; it is then as before.
    pub(super) fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        // Keys come one by one and unseen; Ctrl-C is a key, so that it cannot end us half drawn.
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        let (sender, keys) = channel(KEYS_MAX);
        // Reading a terminal cannot be given up, and making it non-blocking would do so for every
        // program that shares it. So the thread waits for a key until the process ends.
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            let mut byte = [0; 1];
            while let Ok(1) = io::stdin().read(&mut byte) {
                let [key] = byte;
                if sender.blocking_send(key).is_err() {
                    break;
                }
            }
        })?;
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let screen = Self { before, keys, has_colour };
        write(ENTER)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => SIZE,
        }
    }

    /// Draws the lines over what stands there.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn draw(&self, lines: &[Line]) -> io::Result<()> {
        let mut text = "\x1b[H".to_owned();
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                text.push_str("\r\n");
            }
            let (on, off) = if self.has_colour { colour(line.style) } else { ("", "") };
            text.push_str(&format!("{on}{}{off}\x1b[K", line.text));
        }
        text.push_str("\x1b[J");
        write(&text)
    }

    /// The next key; `None` when there will be no more.
    ///
    /// # Cancel safety
    /// A key that is not returned is kept.
    pub(super) async fn key(&mut self) -> Option<Key> {
        const CONTROL_C: u8 = 3;
        const CONTROL_D: u8 = 4;
        Some(match self.keys.recv().await? {
            b'q' | b'Q' | CONTROL_C | CONTROL_D => Key::Quit,
            // The arrows end in these.
            b'j' | b'B' => Key::Down,
            b'k' | b'A' => Key::Up,
            _ => Key::Other,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The sequences around a line.
fn colour(style: Style) -> (&'static str, &'static str) {
    match style {
        Style::Title => ("\x1b[7m", "\x1b[0m"),
        Style::Head => ("\x1b[1m", "\x1b[0m"),
        Style::Plain => ("", ""),
        Style::Notable => ("\x1b[33m", "\x1b[0m"),
        Style::Bad => ("\x1b[31m", "\x1b[0m"),
    }
}
