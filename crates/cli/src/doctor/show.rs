//! The answer as text and as JSON.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::diagnosis::Diagnosis;
use super::elf::{self, Function};
use super::facts::{Facts, ObjectFacts, SiteFacts};
use super::liburing;
use super::place::{ContainerRuntime, DoctorPlace, PlaceLimit};

pub(super) fn text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    if let Some((program, executed, file)) = &diagnosis.program {
        let _ = writeln!(text, "program: {}", program.display());
        if executed != program {
            let _ = writeln!(text, "interpreter: {}", executed.display());
        }
        let linker = file.linker.as_ref().map(|linker| format!(", started by {}", linker.display()));
        let _ = writeln!(text, "kind: {}{}", file.kind, linker.unwrap_or_default());
    }
    let place = &diagnosis.place;
    let _ = writeln!(text, "the kernel's io_uring: {}", diagnosis.kernel.describe(&place.cause));
    let _ = writeln!(text, "io_uring calls are answered by: {}", diagnosis.instead());
    if let Some(runtime) = place.runtime {
        let _ = writeln!(text, "inside of: {}", runtime.name());
    }
    add_limits(&mut text, place);
    if let Some(facts) = diagnosis.facts() {
        add_facts(&mut text, facts, diagnosis.executed());
    }
    let _ = writeln!(text, "verdict: {}", diagnosis.verdict());
    if diagnosis.is_of_place && (place.runtime.is_some() || !diagnosis.kernel.works()) {
        for (file, lines) in place.lines() {
            let _ = write!(text, "\n# {file}\n{lines}");
        }
        text.push_str("\n# docs/containers.md makes the image `uringlet`\n");
    }
    text
}

fn add_limits(text: &mut String, place: &DoctorPlace) {
    for limit in &place.limits {
        let value = limit.value.map_or_else(|| "no limit".to_owned(), |value| value.to_string());
        let hurts = limit.hurts.as_ref().map(|hurts| format!(": LOW, {hurts}")).unwrap_or_default();
        let _ = writeln!(text, "{}: {value}{hurts}", limit.name);
    }
}

impl Diagnosis {
    /// The file of the program that is executed.
    fn executed(&self) -> &Path {
        self.program.as_ref().map_or(Path::new(""), |(_, executed, _)| executed)
    }
}

fn add_facts(text: &mut String, facts: &Facts, program: &Path) {
    for object in &facts.objects {
        let source = if object.is_cached { ", known from an earlier start" } else { "" };
        let _ = writeln!(text, "{}: {}{source}", object.name, roads(object));
        let functions = functions_of(object, program);
        for site in &object.sites {
            let _ = writeln!(text, "  0x{:x}{}: {} {}", site.address, within(&functions, site.address), site.call, site.kind);
        }
        for (address, reason) in &object.left {
            let road = if object.is_trapped { "trapped (seccomp)" } else { "left as it is" };
            let _ = writeln!(text, "  0x{address:x}{}: {road}: {reason}", within(&functions, *address));
        }
        if let Some(version) = liburing::version(&object.name) {
            let _ = writeln!(text, "  liburing {version}");
        }
        if !object.binds.is_empty() {
            let _ = writeln!(text, "  interposed: {}", object.binds.join(", "));
        }
    }
    let later = if facts.hears_dlopen { "are examined then" } else { "will not be rewritten: the dynamic linker is unfamiliar" };
    let _ = writeln!(text, "libraries that the program loads later (dlopen) are not known here; they {later}");
    let cache = facts.cache.as_ref().map_or("none: each start scans again".into(), |path| path.display().to_string());
    let _ = writeln!(text, "cache: {cache}");
}

/// How calls of an object reach the engine.
fn roads(object: &ObjectFacts) -> &'static str {
    match (object.binds.is_empty(), object.sites.is_empty()) {
        (true, true) if object.is_trapped => "trapped",
        (true, true) => "nothing to attach",
        (false, true) => "interposed",
        (true, false) => "rewritten",
        (false, false) => "interposed and rewritten",
    }
}

/// The functions in the file of an object with sites.
fn functions_of(object: &ObjectFacts, program: &Path) -> Vec<Function> {
    let file = if object.name.starts_with('/') { Path::new(&object.name) } else { program };
    if object.sites.is_empty() && object.left.is_empty() { Vec::new() } else { elf::functions(file) }
}

fn within(functions: &[Function], address: u64) -> String {
    elf::name_at(functions, address).map(|name| format!(" in {name}")).unwrap_or_default()
}

pub(super) fn json(diagnosis: &Diagnosis) -> String {
    let (facts, program) = (diagnosis.facts(), diagnosis.program.as_ref());
    let objects = facts.map(|facts| facts.objects.iter().map(|object| object_json(object, diagnosis.executed())).collect::<Vec<_>>());
    let value = json!({
        "program": program.map(|(program, ..)| program),
        "executed": program.map(|(_, executed, _)| executed),
        "kind": program.map(|(.., file)| file.kind),
        "linker": program.map(|(.., file)| &file.linker),
        "kernel": { "works": diagnosis.kernel.works(), "answer": diagnosis.kernel.describe(&diagnosis.place.cause) },
        "answered_by": diagnosis.instead(),
        "place": place_json(&diagnosis.place),
        "objects": objects,
        "hears_dlopen": facts.map(|facts| facts.hears_dlopen),
        "cache": facts.map(|facts| &facts.cache),
        "attached": diagnosis.is_attached(),
        "status": diagnosis.status(),
        "verdict": diagnosis.verdict(),
    });
    format!("{value:#}\n")
}

fn place_json(place: &DoctorPlace) -> Value {
    let limit = |limit: &PlaceLimit| json!({ "name": limit.name, "value": limit.value, "hurts": limit.hurts });
    json!({
        "container": place.runtime.map(ContainerRuntime::name),
        "io_uring_disabled": place.cause.disabled,
        "io_uring_group": place.cause.group,
        "seccomp_filter": place.cause.has_filter,
        "confinement": place.cause.confinement,
        "limits": place.limits.iter().map(limit).collect::<Vec<_>>(),
        "lines": place.lines().into_iter().map(|(file, lines)| (file.to_owned(), lines.into())).collect::<serde_json::Map<_, _>>(),
    })
}

fn object_json(object: &ObjectFacts, program: &Path) -> Value {
    let functions = functions_of(object, program);
    let site = |site: &SiteFacts| {
        json!({
            "address": site.address,
            "function": elf::name_at(&functions, site.address),
            "call": site.call,
            "kind": site.kind,
        })
    };
    let left =
        |(address, reason): &(u64, String)| json!({ "address": address, "function": elf::name_at(&functions, *address), "reason": reason });
    json!({
        "name": object.name,
        "road": roads(object),
        "liburing": liburing::version(&object.name),
        "cached": object.is_cached,
        "trapped": object.is_trapped,
        "sites": object.sites.iter().map(site).collect::<Vec<_>>(),
        "left": object.left.iter().map(left).collect::<Vec<_>>(),
        "interposed": object.binds,
    })
}
