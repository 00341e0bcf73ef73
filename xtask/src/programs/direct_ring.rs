//! `uringlet::Ring` in a program that is not attached (`conformance/embedding/direct`).

use super::embedding::{EmbeddingProgram, compile, compile_library, object, prints};
use super::program_cases::{ALL_WELL, Isolation, ProgramCases};
use crate::rust_target::{self, MUSL};
use anyhow::ensure;

const DIRECT: EmbeddingProgram = ("embedding-direct", "embedding-direct", "");
const EXAMPLE: EmbeddingProgram = ("embedding-direct", "read-file", "");

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let object = &object(cases)?;
    let program = compile(DIRECT, object, &[])?;
    check_program(cases, "", &program);
    let plugin = compile_library("embedding-plugin", "libembedding_plugin.so", object)?;
    prints(cases, "uringlet::Ring, and another one in a library", &[&program, "plugin", &plugin], ALL_WELL);
    prints(cases, "the example of docs/embedding.md", &[compile(EXAMPLE, object, &[])?.as_str()], "64 bytes");
    check_errors(cases, &program);
    match rust_target::ensure(MUSL) {
        Ok(()) => check_program(cases, "musl: ", &compile(DIRECT, object, &["--target", MUSL])?),
        Err(why) => cases.skip("uringlet::Ring, linked statically with musl", &format!("{why:#}")),
    }
    Ok(())
}

fn check_program(cases: &mut ProgramCases, kind: &str, program: &str) {
    let well = format!("Engine: engine\n{ALL_WELL}");
    prints(cases, &format!("{kind}uringlet::Ring"), &[program], &well);
    prints(cases, &format!("{kind}uringlet::Ring after init"), &[program, "init"], &well);
    prints(cases, &format!("{kind}uringlet::Ring where no new code is allowed"), &[program, "no-new-code"], &well);
    if cases.is_native() {
        return;
    }
    for &isolation in cases.isolations() {
        cases.case(&format!("{} {kind}uringlet::Ring in an attached program", isolation.option()), |cases| {
            let output = cases.run(isolation, &[program])?.ok()?;
            ensure!(output.trim_end().ends_with(&well), "{output}");
            Ok(())
        });
    }
    cases.case(&format!("{kind}uringlet::Ring where the kernel's works: the kernel's, the engine's if asked for"), |cases| {
        let runs: [(&[&str], &str); 4] = [
            (&[program], "Kernel: kernel\nall well"),
            (&[program, "engine"], "Engine: engine"),
            (&["env", "URINGLET=engine", program], "Engine: engine\nall well"),
            (&["env", "URINGLET=engine", program, "kernel"], "Kernel: kernel"),
        ];
        runs.iter().try_for_each(|(argv, expected)| {
            let output = cases.run_outside(argv)?.ok()?;
            ensure!(output.trim_end() == *expected, "{argv:?}: {output}");
            Ok(())
        })
    });
}

/// What is said where there is no ring.
fn check_errors(cases: &mut ProgramCases, program: &str) {
    const NO_ENTRIES: &str = "no ring: the ring cannot be made: Invalid argument (os error 22)";
    const OTHER: &str = "no ring: URINGLET_LIB names a file that is no liburinglet.so of this version";
    if cases.is_native() {
        return;
    }
    let missing =
        "no ring: liburinglet.so cannot be mapped (URINGLET_LIB may name a file that can): No such file or directory (os error 2)";
    let denied = "no ring: the ring cannot be made: Operation not permitted (os error 1)";
    let runs = [
        ("URINGLET=mine", ["no ring: URINGLET is none of kernel, engine, when-blocked", NO_ENTRIES]),
        ("URINGLET=kernel", [denied, NO_ENTRIES]),
        ("URINGLET_LIB=/nowhere", [missing, missing]),
        ("URINGLET_LIB=/proc/self/exe", [OTHER, OTHER]),
        ("URINGLET_LIB=/etc/passwd", [OTHER, OTHER]),
    ];
    cases.case("uringlet::Ring: each error says why", |cases| {
        runs.iter().try_for_each(|(variable, expected)| {
            let output = cases.run_bare(Isolation::Docker, &["env", variable, program, "refused"])?.ok()?;
            let said = output.lines().filter(|line| line.starts_with("no ring: "));
            ensure!(said.eq(expected.iter().copied()), "{variable}: {output}");
            Ok(())
        })
    });
}
