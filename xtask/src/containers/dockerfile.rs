//! Builds images by the instructions of a Dockerfile that the examples use.

use super::built_image::{self, BuiltImage};
use super::images;
use super::ways::Yard;
use anyhow::{Context, bail, ensure};

/// The instructions: name and arguments. Comments and blank lines are left out.
fn instructions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap_or((line, "")))
}

/// The image that the text describes.
pub(super) fn build(yard: &mut Yard, text: &str) -> anyhow::Result<BuiltImage> {
    let mut image = BuiltImage::default();
    for (name, arguments) in instructions(text) {
        match name {
            "FROM" => image = built_image::image(yard, arguments)?,
            "COPY" => {
                let target = arguments.strip_prefix("--from=uringlet / ").context("a COPY that is not emulated here")?;
                ensure!(target == images::URINGLET, "the files are copied to {target}");
                image.layers.push(yard.uringlet.clone());
            }
            "RUN" => run(&mut image, arguments)?,
            "ENV" => {
                let (name, value) = arguments.split_once('=').context("ENV without a value")?;
                image.env.push((name.to_owned(), value.to_owned()));
            }
            "USER" => image.uid = arguments.parse().context("USER is no number")?,
            "WORKDIR" => image.cwd = Some(arguments.to_owned()),
            "ENTRYPOINT" => image.entrypoint = serde_json::from_str(arguments)?,
            "CMD" => image.command = serde_json::from_str(arguments)?,
            other => bail!("`{other}` is not emulated here"),
        }
    }
    Ok(image)
}

/// A command of the build. Packages are in the roots already.
fn run(image: &mut BuiltImage, command: &str) -> anyhow::Result<()> {
    if let Some(packages) = command.strip_prefix("apt-get update && apt-get install -y --no-install-recommends ") {
        let missing = packages.split(' ').find(|name| image.layers.iter().all(|layer| !layer.folder.join("usr/bin").join(name).exists()));
        ensure!(missing.is_none(), "the root has no {}", missing.unwrap_or_default());
        return Ok(());
    }
    let (content, file) =
        command.strip_prefix("echo ").and_then(|rest| rest.split_once(" > ")).context("a RUN that is not emulated here")?;
    image.layers.push(images::file_layer("example", file, &format!("{content}\n"))?);
    Ok(())
}

/// Whether the Dockerfile of uringlet's image says what [`images::uringlet_image`] does.
pub(super) fn check_own(text: &str) -> anyhow::Result<()> {
    let wanted = [
        ("FROM", "busybox AS unpack"),
        ("ADD", "uringlet-*-x86_64.tar.gz /"),
        ("RUN", "mv /uringlet-* /files"),
        ("FROM", "busybox AS init"),
        ("COPY", "--from=unpack /files /files"),
        ("FROM", "scratch AS files"),
        ("COPY", "--from=unpack /files /"),
    ];
    ensure!(instructions(text).eq(wanted), "another file than the one that is emulated");
    Ok(())
}
