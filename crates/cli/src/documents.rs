//! `uringlet man` and `uringlet completions`: man pages and completion scripts for packages,
//! generated from the definitions of the command line.

use std::io;
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

use crate::status::Status;

/// Write the man pages.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// Directory for one page per command; without it, the main page goes to standard output.
    directory: Option<PathBuf>,
}

/// Write a completion script to standard output.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

pub(crate) fn man(args: &ManArgs, command: Command) -> Status {
    let written = match &args.directory {
        Some(directory) => std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command, directory)),
        None => clap_mangen::Man::new(command).render(&mut io::stdout()),
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

pub(crate) fn completions(args: &CompletionsArgs, command: &mut Command) -> Status {
    clap_complete::generate(args.shell, command, "uringlet", &mut io::stdout());
    0
}
