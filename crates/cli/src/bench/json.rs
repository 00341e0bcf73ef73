//! All numbers for programs.

use super::host::Host;
use super::plan::{Plan, Series};
use super::report::summary;

fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn series(series: &Series) -> String {
    let mut text = format!(
        "{{\"table\": {}, \"row\": {}, \"column\": {}, \"values\": {}",
        string(series.group.title()),
        string(&series.row),
        string(series.column),
        list(series.values.iter().map(|value| format!("{value:.4}")))
    );
    if let Some(s) = summary(&series.values) {
        text.push_str(&format!(", \"median\": {:.4}, \"min\": {:.4}, \"max\": {:.4}", s.median, s.min, s.max));
    }
    if let Some(failure) = &series.failure {
        text.push_str(&format!(", \"failure\": {}", string(failure)));
    }
    text + "}"
}

/// One object: the machine, the notes, the series.
pub(super) fn document(host: &Host, rounds: u32, plan: &Plan) -> String {
    let fields = [
        ("kernel", string(&host.kernel)),
        ("filesystem", string(&host.filesystem)),
        ("cpu", string(&host.cpu)),
        ("cpus", host.cpus.to_string()),
        ("rounds", rounds.to_string()),
        ("notes", list(plan.notes.iter().map(|note| string(note)))),
        ("series", format!("[\n    {}\n  ]", plan.series.iter().map(series).collect::<Vec<_>>().join(",\n    "))),
    ];
    let fields = fields.map(|(name, value)| format!("  \"{name}\": {value}"));
    format!("{{\n{}\n}}\n", fields.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted() {
        assert_eq!(string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
