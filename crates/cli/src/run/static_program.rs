//! Starting a static program: `liburinglet.so` is executed in its place, and loads it.

use std::ffi::OsString;
use std::path::Path;

use super::error::RunError;
use super::exec::{Environment, exec_program};
use super::executable::Target;
use super::lookup::is_executable;

/// Names what the library shall load: `SCRIPT:PATH`, SCRIPT being the index of the script among the
/// arguments, 0 if there is none.
const REQUEST: &str = "URINGLET_EXEC";

/// Why the library cannot load a program, if that is static.
pub(super) fn obstacle(target: &Target, library: &Path) -> Option<String> {
    (target.is_static && !is_executable(library)).then(|| {
        format!(
            "{0} is statically linked: {1} has to be executed to load it, and may not be: run chmod +x {1}, on a file system without noexec",
            target.file.display(),
            library.display()
        )
    })
}

/// Executes the library for the program that `target` describes; returns only if that failed.
pub(super) fn exec(target: &Target, command: &[OsString], library: &Path, mut environment: Environment) -> RunError {
    let (script, arguments) = arguments(target, command);
    let mut request = OsString::from(format!("{script}:"));
    request.push(&target.file);
    environment.set_first(REQUEST, &request);
    exec_program(library, &arguments, &environment)
}

/// The arguments, and the script's index among them.
fn arguments(target: &Target, command: &[OsString]) -> (usize, Vec<OsString>) {
    let Some(script) = target.interpreters.len().checked_sub(1) else { return (0, command.to_vec()) };
    let rest = command.iter().skip(1);
    (script, target.interpreters.iter().chain(rest).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_a_script_follow_its_interpreters() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let target = |interpreters: &[&str]| Target {
            file: "/bin/busybox".into(),
            is_static: true,
            interpreters: words(interpreters),
            why_not: None,
        };
        assert_eq!(arguments(&target(&[]), &words(&["x", "1"])), (0, words(&["x", "1"])));
        let script = target(&["/bin/busybox", "sh", "/opt/x"]);
        assert_eq!(arguments(&script, &words(&["x", "1"])), (2, words(&["/bin/busybox", "sh", "/opt/x", "1"])));
    }
}
