//! A table for a terminal: columns as wide as what stands in them, lines beneath a row for what is
//! too long for a cell.

use super::text::wrap;

/// Columns of a terminal that nobody has made wider.
pub(super) const WIDTH: usize = 80;
/// Between two columns.
const GAP: &str = "  ";

/// On which side of its column a cell stands: words on the left, numbers on the right.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

struct Row {
    cells: Vec<String>,
    /// What stands beneath it.
    note: Option<String>,
}

/// Rows under a head.
pub(super) struct Table {
    head: Vec<(&'static str, Side)>,
    rows: Vec<Row>,
}

impl Table {
    /// A table with this head and no rows.
    pub(super) fn new(head: &[(&'static str, Side)]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the head are not shown.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(Row { cells: cells.into(), note: None });
    }

    /// Puts a sentence beneath the last row.
    pub(super) fn note(&mut self, sentence: String) {
        if let Some(row) = self.rows.last_mut() {
            row.note = Some(sentence);
        }
    }

    /// The lines of the table; notes are wrapped at `width`.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        let widths: Vec<usize> = self
            .head
            .iter()
            .enumerate()
            .map(|(column, (title, _))| {
                let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
                let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
                longest.max(title.chars().count())
            })
            .collect();
        let titles: Vec<String> = self.head.iter().map(|(title, _)| (*title).to_owned()).collect();
        let mut lines = vec![self.line(&titles, &widths)];
        for row in &self.rows {
            lines.push(self.line(&row.cells, &widths));
            if let Some(note) = &row.note {
                lines.extend(wrap(note, 4, width));
            }
        }
        lines
    }

    /// The table as text.
    pub(super) fn text(&self) -> String {
        self.lines(WIDTH).iter().map(|line| format!("{line}\n")).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let cells: Vec<String> = cells
            .iter()
            .zip(&self.head)
            .zip(widths)
            .map(|((cell, (_, side)), width)| match side {
                Side::Left => format!("{cell:<width$}"),
                Side::Right => format!("{cell:>width$}"),
            })
            .collect();
        cells.join(GAP).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let mut table = Table::new(&[("NAME", Side::Left), ("N", Side::Right)]);
        table.row(["ä".to_owned(), "100".to_owned()]);
        table.row(["longer".to_owned(), "1".to_owned()]);
        table.note("a sentence that is wrapped".to_owned());
        let wanted = [
            "NAME      N",
            "ä       100",
            "longer    1",
            "    a sentence",
            "    that is",
            "    wrapped",
        ];
        assert_eq!(table.lines(15), wanted);
    }
}
