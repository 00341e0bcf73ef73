//! Text tables: the first column left-aligned, all others right-aligned.

use std::fmt::Write;

/// A titled table with columns of the necessary width.
#[derive(Debug)]
pub(super) struct TextTable {
    title: String,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(super) fn new(title: impl Into<String>, header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { title: title.into(), rows: vec![header.into_iter().map(Into::into).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    /// The text of the table, after an empty line.
    pub(super) fn text(&self) -> String {
        let mut text = format!("\n{}\n", self.title);
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = self.width(column);
                let _ = if column == 0 { write!(line, "{cell:width$}") } else { write!(line, "   {cell:>width$}") };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = TextTable::new("things", ["", "a", "long"]);
        table.row(["row", "±10", "1"]);
        table.row(["r", "2"]);
        assert_eq!(table.text(), "\nthings\n        a   long\nrow   ±10      1\nr       2\n");
    }
}
