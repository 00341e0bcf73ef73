//! Images as the examples of `packaging/container` name them, and what their files are read with.

use super::container::ContainerSpec;
use super::images::{self, Layer, Root};
use super::ways::Yard;
use crate::paths;
use anyhow::{Context, bail};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Where PostgreSQL's image keeps its clusters.
pub(super) const POSTGRES_FOLDER: &str = "/var/lib/postgresql";

/// A built image: its layers, and what a container of it starts with.
#[derive(Debug, Clone, Default)]
pub(super) struct BuiltImage {
    pub(super) layers: Vec<Layer>,
    pub(super) env: Vec<(String, String)>,
    pub(super) uid: u32,
    pub(super) cwd: Option<String>,
    pub(super) entrypoint: Vec<String>,
    pub(super) command: Vec<String>,
}

impl BuiltImage {
    /// A container of the image, without options.
    pub(super) fn container(&self) -> ContainerSpec {
        let mut container = ContainerSpec::new(self.layers.clone());
        self.env.iter().for_each(|(name, value)| container.set_env(name, value));
        container.uid = self.uid;
        if let Some(cwd) = &self.cwd {
            container.cwd.clone_from(cwd);
        }
        container.args = [&self.entrypoint[..], &self.command].concat();
        container
    }
}

/// The image of a name that the examples use.
pub(super) fn image(yard: &mut Yard, name: &str) -> anyhow::Result<BuiltImage> {
    let stable = Root::STABLE;
    Ok(match name {
        "debian:bookworm-slim" | "fio" => BuiltImage { layers: vec![yard.root(stable)?], ..BuiltImage::default() },
        // Any image with cp(1).
        "uringlet-init" => {
            let files = images::copied_layer("init", &yard.image, "/files")?;
            BuiltImage { layers: vec![yard.root(stable)?, files], ..BuiltImage::default() }
        }
        "postgres:18" => BuiltImage {
            layers: vec![yard.root(Root::TESTING)?],
            env: vec![("CHECK_FOLDER".to_owned(), POSTGRES_FOLDER.to_owned())],
            entrypoint: vec!["/check/postgres.sh".to_owned()],
            ..BuiltImage::default()
        },
        other => bail!("no image is known for `{other}`"),
    })
}

/// The text of an example.
pub(super) fn read(name: &str) -> anyhow::Result<String> {
    let path = folder().join(name);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

fn folder() -> PathBuf {
    paths::root().join("packaging/container")
}

/// The strings of a list; none if it is not there.
pub(super) fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// An error if the object has another key than these: nothing of an example may be ignored.
pub(super) fn only(object: &Value, known: &[&str]) -> anyhow::Result<()> {
    let mut keys = object.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    match keys.find(|key| !known.contains(key)) {
        Some(key) => bail!("`{key}` is not emulated here"),
        None => Ok(()),
    }
}
