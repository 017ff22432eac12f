// SPDX-License-Identifier: Apache-2.0
//! Text tables: a heading, one line for each row, columns two spaces apart, nothing at the ends of lines.

/// Between two columns.
const GAP: &str = "  ";

/// Lays out rows below their headings. What is empty is shown as `-`.
pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], column: usize| match row.get(column) {
        Some(text) if !text.is_empty() => printable(text),
        _ => "-".to_owned(),
    };
    let mut lines: Vec<Vec<String>> = vec![headings.iter().map(|heading| (*heading).to_owned()).collect()];
    lines.extend(rows.iter().map(|row| (0..headings.len()).map(|column| cell(row, column)).collect()));
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|text| text.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let padded: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(padded.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

/// What peers and files say must not command a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), String::new(), "longer than it".to_owned()], vec!["äöü\n".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["N", "EMPTY", "LAST"], &rows), "N     EMPTY  LAST\na     -      longer than it\näöü   x      -\n");
        assert_eq!(table(&["N"], &[]), "N\n");
    }
}
