//! What uringlet says in a container: to its user who asks, and about wrong settings.

use super::container::ContainerSpec;
use super::images::{Layer, Root, copied_layer, file_layer};
use super::profile;
use super::ways::{RIGHTS, WayIn, Yard, silent};
use crate::job::Ending;
use crate::programs::program_cases::ProgramCases;
use crate::sandbox::docker;
use anyhow::ensure;

/// A job of fio in a container, by its options.
const FIO: &str = "fio --name=job --ioengine=io_uring --size=1m --rw=randrw --directory=/data";

pub(super) fn check(cases: &mut ProgramCases, yard: &mut Yard) -> anyhow::Result<()> {
    let root = yard.root(Root::STABLE)?;
    let image = std::slice::from_ref(&root);
    let shell = |script: &str| yard.container(image, WayIn::Preload, RIGHTS[0], &["sh", "-c", script].map(str::to_owned));
    cases.case("the sandbox of other tasks allows what Docker's profile does", |_| {
        let config = yard.config(&shell("true")?)?;
        let allowed = profile::allowed(&config["linux"]["seccomp"]);
        let differences = docker::differences(&allowed)?;
        ensure!(allowed.len() > 300, "the profile allows {} calls only", allowed.len());
        ensure!(differences.is_empty(), "{}", differences.join(", "));
        Ok(())
    });
    cases.case("doctor names the program's way to the engine", |cases| {
        let container = shell("unset LD_PRELOAD; /opt/uringlet/bin/uringlet doctor fio")?;
        contains(&yard.run(cases, &container)?.ok()?, &["the kernel's io_uring: ", "verdict: would be attached"])
    });
    cases.case("stat counts the requests of a running program", |cases| {
        let script = format!(
            "{FIO} --thread --time_based --runtime=60 >/data/log & tries=0
            until /opt/uringlet/bin/uringlet stat $! >/data/stat 2>&1 && grep -q 'submitted *[1-9]' /data/stat; do
                tries=$((tries + 1)); [ $tries -lt 300 ] || break; sleep 0.1; done; cat /data/stat; kill $!; wait"
        );
        contains(&yard.run(cases, &shell(&script)?)?.ok()?, &["submitted"])
    });
    cases.case("a wrong variable is named in one line", |cases| {
        let mut container = shell(FIO)?;
        container.set_env("URINGLET_MODE", "fast");
        one_line(cases, yard, &container, "uringlet: ignored: URINGLET_MODE=fast")
    });
    cases.case("a wrong URINGLET is named in one line", |cases| {
        let mut container = shell(FIO)?;
        container.set_env("URINGLET", "kernal");
        one_line(cases, yard, &container, "uringlet: ignored: URINGLET=kernal")
    });
    cases.case("a program without a ring says nothing about wrong variables", |cases| {
        let mut container = shell("ls / >/dev/null; id -u")?;
        container.set_env("URINGLET_MODE", "fast");
        let output = silent(yard.run(cases, &container)?)?;
        ensure!(output.trim() == "1000", "{output}");
        Ok(())
    });
    cases.case("a library that is not there: the dynamic linker says so, the program runs", |cases| {
        let preload = file_layer("missing", "/etc/ld.so.preload", "/opt/missing/liburinglet.so\n")?;
        let mut container = ContainerSpec::new(vec![root.clone(), preload]);
        container.args = ["id", "-u"].map(str::to_owned).to_vec();
        let output = yard.run(cases, &container)?.ok()?;
        ensure!(output.lines().last() == Some("0") && output.lines().count() == 2, "{output}");
        contains(&output, &["/opt/missing/liburinglet.so"])
    });
    cases.case("an image's library and another copy by LD_PRELOAD: one engine", |cases| {
        let second = copied_layer("second", &yard.image, "/opt/second")?;
        let args = FIO.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut container = yard.container(&[root.clone(), second], WayIn::WholeImage, RIGHTS[0], &args)?;
        container.set_env("LD_PRELOAD", "/opt/second/lib/uringlet/liburinglet.so");
        contains(&silent(yard.run(cases, &container)?)?, &["err= 0"])
    });
    without_libc(cases, yard);
    privileged(cases, yard, &root)
}

/// The program needs nothing of its image.
fn without_libc(cases: &mut ProgramCases, yard: &Yard) {
    const PROGRAM: &str = "/opt/uringlet/bin/uringlet";
    let commands = [
        // Its exit status says that io_uring is blocked.
        (&[PROGRAM, "doctor"][..], 1, "the kernel's io_uring: "),
        (&[PROGRAM, "run", "--quiet", "--", PROGRAM, "ops"], 0, "Opcodes (IORING_OP_...)"),
    ];
    cases.case("an image without a libc: doctor, and a static program", |cases| {
        for (args, status, wanted) in commands {
            let mut container = ContainerSpec::new(vec![yard.uringlet.clone()]);
            container.args = args.iter().map(|word| (*word).to_owned()).collect();
            let run = yard.run(cases, &container)?;
            ensure!(run.ending == Ending::Exited(status), "ended with {:?}:\n{}", run.ending, run.tail());
            contains(&run.output, &[wanted])?;
        }
        Ok(())
    });
}

/// A set-uid program gets rights in a container unless these are forbidden. The whole image's
/// library stays out of it.
fn privileged(cases: &mut ProgramCases, yard: &Yard, root: &Layer) -> anyhow::Result<()> {
    let layer = file_layer("privileged", "/opt/privileged/fio", "")?;
    let file = layer.folder.join("opt/privileged/fio");
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    crate::stream::sh("cp", &[&text(&root.folder.join("usr/bin/fio")), &text(&file)])?;
    crate::stream::sh("chmod", &["4755", &text(&file)])?;
    for (rights, is_blocked) in [(RIGHTS[3], true), (RIGHTS[4], false)] {
        let name = if is_blocked { "a set-uid program is as without uringlet" } else { "without new privileges it gets the engine" };
        cases.case(name, |cases| {
            let args = FIO.replace("fio ", "/opt/privileged/fio ");
            let args: Vec<_> = args.split(' ').map(str::to_owned).collect();
            let container = yard.container(&[root.clone(), layer.clone()], WayIn::WholeImage, rights, &args)?;
            let run = yard.run(cases, &container)?;
            let said = run.output.lines().any(|line| line.starts_with("uringlet"));
            ensure!(!said && run.output.contains("err= 0") != is_blocked, "{:?}: {}", run.ending, run.output);
            Ok(())
        });
    }
    Ok(())
}

/// The program runs well, and uringlet says just this line.
fn one_line(cases: &ProgramCases, yard: &Yard, container: &ContainerSpec, line: &str) -> anyhow::Result<()> {
    let output = yard.run(cases, container)?.ok()?;
    let said: Vec<_> = output.lines().filter(|line| line.starts_with("uringlet")).collect();
    ensure!(said.len() == 1 && said[0].starts_with(line), "it says {said:?}");
    contains(&output, &["err= 0"])
}

fn contains(output: &str, parts: &[&str]) -> anyhow::Result<()> {
    let missing = parts.iter().find(|part| !output.contains(**part));
    ensure!(missing.is_none(), "no `{}` in:\n{output}", missing.unwrap_or(&""));
    Ok(())
}
