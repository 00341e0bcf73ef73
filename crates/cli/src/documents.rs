//! `uringlet man` and `uringlet completions`: what a package installs beside the program, generated from the same definitions that parse.

use std::io;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, Status};

/// Write the man pages.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// Where to write one page for each command; without it, the main page goes to standard output.
    directory: Option<PathBuf>,
}

/// Write a completion script to standard output.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

pub(crate) fn man(args: &ManArgs) -> Status {
    let written = match &args.directory {
        Some(directory) => std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory)),
        None => clap_mangen::Man::new(Cli::command()).render(&mut io::stdout()),
    };
    match written {
        Ok(()) => 0,
        Err(error) => {
            let target = args.directory.as_ref().map_or("standard output".into(), |d| d.display().to_string());
            eprintln!("uringlet man: cannot write to {target}: {error}");
            1
        }
    }
}

pub(crate) fn completions(args: &CompletionsArgs) -> Status {
    clap_complete::generate(args.shell, &mut Cli::command(), "uringlet", &mut io::stdout());
    0
}
