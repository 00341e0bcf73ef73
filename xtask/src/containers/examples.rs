//! The examples of `packaging/container`: each file is read as its engine reads it, and what it
//! describes is run here.
//!
//! There is no Docker and no Kubernetes here. An image is a root of ours instead of the
//! registry's, and PostgreSQL's entry point is our script, which also checks the server.

use super::built_image::{POSTGRES_FOLDER, read};
use super::container::ContainerSpec;
use super::ways::{Yard, silent};
use super::{compose, dockerfile, kubernetes};
use crate::programs::program_cases::{ALL_WELL, ProgramCases};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::process::Command;

/// Files whose program is fio, then those whose program is PostgreSQL.
const EXAMPLES: [(&str, bool); 7] = [
    ("fio.Dockerfile", false),
    ("run.Dockerfile", false),
    ("whole-image.Dockerfile", false),
    ("kubernetes-init.yaml", false),
    ("postgres.Dockerfile", true),
    ("compose.yaml", true),
    ("kubernetes-image-volume.yaml", true),
];

pub(super) fn check(cases: &mut ProgramCases, yard: &mut Yard) {
    for (name, is_postgres) in EXAMPLES {
        cases.case(&format!("example {name}"), |cases| {
            let containers = containers(yard, name)?;
            let (last, before) = containers.split_last().context("a file without a container")?;
            for container in before {
                silent(yard.run(cases, container)?)?;
            }
            let output = silent(yard.run(cases, last)?)?;
            let is_well = if is_postgres { output.trim().ends_with(ALL_WELL) } else { output.contains("err= 0") };
            ensure!(is_well, "{output}");
            Ok(())
        });
    }
    cases.case("image of uringlet: Dockerfile", |_| dockerfile::check_own(&read("Dockerfile")?));
}

/// The containers of an example, in their order.
fn containers(yard: &mut Yard, name: &str) -> anyhow::Result<Vec<ContainerSpec>> {
    let text = read(name)?;
    Ok(match name.rsplit_once('.').map_or("", |(_, end)| end) {
        "Dockerfile" => {
            let mut container = dockerfile::build(yard, &text)?.container();
            yard.give_data(&mut container)?;
            // A volume lies on the folder of the image's.
            let data = yard.data();
            container.mount(&data, POSTGRES_FOLDER, false);
            vec![container]
        }
        _ if name == "compose.yaml" => vec![compose::container(yard, &yaml(&text)?)?],
        _ => kubernetes::containers(yard, &yaml(&text)?)?,
    })
}

/// A YAML document as JSON.
fn yaml(text: &str) -> anyhow::Result<Value> {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", "import json, sys, yaml; json.dump(yaml.safe_load(sys.argv[1]), sys.stdout)", text]);
    let out = python.output().context("starting python3")?;
    ensure!(out.status.success(), "no YAML: {}", String::from_utf8_lossy(&out.stderr));
    Ok(serde_json::from_slice(&out.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;
    use std::fs;

    #[test]
    fn files_in_the_document_are_those_of_the_folder() {
        let document = fs::read_to_string(paths::root().join("docs/containers.md")).unwrap();
        let files: Vec<_> = EXAMPLES.iter().map(|(name, _)| *name).chain(["Dockerfile"]).collect();
        let texts: Vec<_> = files.iter().map(|name| read(name).unwrap()).collect();
        for block in ["dockerfile", "yaml"].iter().flat_map(|language| blocks(&document, language)) {
            assert!(texts.iter().any(|text| text.contains(block)), "in no file of packaging/container:\n{block}");
        }
        files.iter().for_each(|name| assert!(document.contains(name), "the document does not name {name}"));
    }

    /// The fenced blocks of a language.
    fn blocks<'d>(document: &'d str, language: &str) -> Vec<&'d str> {
        let fence = format!("```{language}\n");
        let after = document.split(&fence).skip(1);
        after.map(|rest| rest.split("```").next().unwrap_or_default()).collect()
    }
}
