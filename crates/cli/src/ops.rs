//! `uringlet ops`: what the engine supports of io_uring.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use serde_json::{Value, json};
use uringlet_abi::support::{GROUPS, Support, SupportEntry, SupportGroup};

use crate::status::Status;

/// List what is supported: opcodes, register operations, flags
///
/// Each with the Linux release that brought it, the function of liburing for it, and what is
/// missing or otherwise. What is refused answers as on a kernel without it. The exit status is 1 if
/// a name is not known.
#[derive(Debug, clap::Args)]
pub(crate) struct OpsArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print Markdown, as in docs/support.md
    #[arg(long)]
    markdown: bool,

    /// Only what has this in its name, or begins with it: `ring`, `IORING_SETUP_`
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) fn ops(args: &OpsArgs) -> Status {
    let names: Vec<String> = args.names.iter().map(|name| name.to_uppercase()).collect();
    let wanted = |group: &SupportGroup, entry: &SupportEntry| {
        names.is_empty() || names.iter().any(|name| entry.name.contains(name) || full_name(group, entry).starts_with(name))
    };
    let found: Vec<(SupportGroup, Vec<&SupportEntry>)> = GROUPS
        .into_iter()
        .map(|group| (group, group.entries.iter().filter(|entry| wanted(&group, entry)).collect::<Vec<_>>()))
        .filter(|(_, entries)| !entries.is_empty())
        .collect();
    if found.is_empty() {
        eprintln!("uringlet ops: nothing of io_uring has {} in its name; without a name all are listed", args.names.join(" or "));
        return 1;
    }
    let text = match () {
        () if args.json => as_json(&found),
        () if args.markdown => as_markdown(&found),
        () => as_text(&found),
    };
    // A reader that has gone away wants no more.
    let _ = io::stdout().write_all(text.as_bytes());
    0
}

fn full_name(group: &SupportGroup, entry: &SupportEntry) -> String {
    format!("{}{}", group.prefix, entry.name)
}

fn word(support: Support) -> &'static str {
    match support {
        Support::Full => "supported",
        Support::Partial(_) => "partial",
        Support::Refused(_) => "refused",
    }
}

fn note(support: Support) -> &'static str {
    match support {
        Support::Full => "",
        Support::Partial(note) | Support::Refused(note) => note,
    }
}

fn as_text(found: &[(SupportGroup, Vec<&SupportEntry>)]) -> String {
    let mut text = String::new();
    for (group, entries) in found {
        let supported = entries.iter().filter(|entry| entry.is_supported()).count();
        let space = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{space}{} ({}...): {supported} of {}", group.title, group.prefix, entries.len());
        let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
        for entry in entries {
            let SupportEntry { name, since, support, .. } = entry;
            let line = format!("  {name:width$}  {since:>4}  {:9}  {}", word(*support), note(*support));
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

fn as_markdown(found: &[(SupportGroup, Vec<&SupportEntry>)]) -> String {
    let mut text = String::from(
        "# What is supported\n\n\
         Written by `uringlet ops --markdown`; a test compares. `since` is the release of Linux that\n\
         has it. What is refused answers as on a kernel without it. Differences in detail:\n\
         `docs/differences.md`.\n",
    );
    for (group, entries) in found {
        let _ = write!(text, "\n## {}\n| `{}` | number | since | liburing | | |\n|---|---|---|---|---|---|\n", group.title, group.prefix);
        for SupportEntry { name, number, since, function, support } in entries {
            let function = if function.is_empty() { String::new() } else { format!("`{function}`") };
            let number = if group.prefix.ends_with("_OP_") || group.prefix.ends_with("REGISTER_") {
                number.to_string()
            } else {
                format!("{number:#x}")
            };
            let _ = writeln!(text, "| {name} | {number} | {since} | {function} | {} | {} |", word(*support), note(*support));
        }
    }
    text
}

fn as_json(found: &[(SupportGroup, Vec<&SupportEntry>)]) -> String {
    let rows = found.iter().flat_map(|(group, entries)| {
        entries.iter().map(|entry| {
            json!({
                "name": full_name(group, entry),
                "number": entry.number,
                "since": entry.since,
                "liburing": entry.function,
                "support": word(entry.support),
                "note": note(entry.support),
            })
        })
    });
    format!("{:#}\n", Value::Array(rows.collect()))
}
