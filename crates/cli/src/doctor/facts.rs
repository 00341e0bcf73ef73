//! The lines that `liburinglet.so` writes (`crates/attach/src/doctor.rs`): a kind and its fields,
//! with tabs between them.

use std::path::PathBuf;

/// An object that was examined, or that calls functions of libc whose place ours take.
#[derive(Debug, Default)]
pub(super) struct ObjectFacts {
    /// Its path, or "the program".
    pub(super) name: String,
    /// Rewritten sites with io_uring's numbers, and those whose number is looked up.
    pub(super) for_rings: u32,
    /// The sites left as they are go by traps.
    pub(super) is_trapped: bool,
    /// Sites left as they are: each address, relative to the object's load address, and why.
    pub(super) left: Vec<(u64, String)>,
    /// Known from an earlier start.
    pub(super) is_cached: bool,
    /// The sites that were rewritten.
    pub(super) sites: Vec<SiteFacts>,
    /// The functions that it binds.
    pub(super) binds: Vec<String>,
}

impl ObjectFacts {
    /// Whether an io_uring call of its own may be the engine's.
    pub(super) fn reaches_engine(&self) -> bool {
        self.for_rings > 0 || self.is_trapped
    }
}

/// A rewritten call site.
#[derive(Debug)]
pub(super) struct SiteFacts {
    /// Relative to the object's load address.
    pub(super) address: u64,
    pub(super) call: String,
    pub(super) kind: String,
}

/// How the attempt to make a ring has ended.
#[derive(Debug, Default)]
pub(super) enum RingTrial {
    #[default]
    Unknown,
    Made,
    Errno(i32),
    Signal(i32),
}

/// All that a start has told.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) objects: Vec<ObjectFacts>,
    /// Objects whose code may not be changed.
    pub(super) refused: Vec<String>,
    /// A bound function can lead to io_uring calls.
    pub(super) may_reach: bool,
    pub(super) hears_dlopen: bool,
    pub(super) cache: Option<PathBuf>,
    /// A system call that the engine requires and that is denied.
    pub(super) denied: Option<String>,
    pub(super) ring: RingTrial,
}

impl Facts {
    /// `None`: the start did not come to its end.
    pub(super) fn parse(output: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(output);
        let mut facts = Self::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            if fields == ["end"] {
                return Some(facts);
            }
            facts.add(&fields)?;
        }
        None
    }

    fn add(&mut self, fields: &[&str]) -> Option<()> {
        match *fields {
            ["object", name, _, ring, any, source] => {
                let object = self.object(name);
                object.for_rings = ring.parse::<u32>().ok()? + any.parse::<u32>().ok()?;
                object.is_cached = source == "cache";
            }
            ["site", name, address, call, kind] => {
                let site = SiteFacts { address: address.parse().ok()?, call: call.into(), kind: kind.into() };
                self.object(name).sites.push(site);
            }
            ["left", name, address, reason] => self.object(name).left.push((address.parse().ok()?, reason.into())),
            ["binds", name, names] => self.object(name).binds = names.split(' ').map(String::from).collect(),
            ["trapped", name] => self.object(name).is_trapped = true,
            ["refused", name] => self.refused.push(name.into()),
            ["reaches", value] => self.may_reach = value == "true",
            ["dlopen", value] => self.hears_dlopen = value == "true",
            ["cache", path] => self.cache = Some(path.into()),
            ["denied", name] => self.denied = Some(name.into()),
            ["ring", "errno", "0"] => self.ring = RingTrial::Made,
            ["ring", "errno", errno] => self.ring = RingTrial::Errno(errno.parse().ok()?),
            ["ring", "signal", signal] => self.ring = RingTrial::Signal(signal.parse().ok()?),
            ["ring", "untried", _] => self.ring = RingTrial::Unknown,
            _ => return None,
        }
        Some(())
    }

    fn object(&mut self, name: &str) -> &mut ObjectFacts {
        let known = self.objects.iter().position(|object| object.name == name);
        let at = known.unwrap_or_else(|| {
            self.objects.push(ObjectFacts { name: name.into(), ..ObjectFacts::default() });
            self.objects.len() - 1
        });
        &mut self.objects[at]
    }

    pub(super) fn reaches_engine(&self) -> bool {
        self.may_reach || self.objects.iter().any(ObjectFacts::reaches_engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_complete_or_nothing() {
        let text = "object\t/lib/x\t2\t1\t0\tcache\nleft\t/lib/x\t8\tno room\nsite\t/lib/x\t4096\tio_uring_enter\tat the number\n\
            binds\t/lib/x\tclose mmap\nreaches\tfalse\ntrapped\t/lib/x\ndlopen\ttrue\nring\terrno\t0\n";
        assert!(Facts::parse(text.as_bytes()).is_none());
        let facts = Facts::parse(format!("{text}end\n").as_bytes()).expect("facts");
        let [object] = &facts.objects[..] else { panic!("{facts:?}") };
        assert_eq!((object.for_rings, object.is_cached, object.is_trapped, object.sites[0].address), (1, true, true, 4096));
        assert_eq!(object.left, [(8, "no room".to_owned())]);
        assert_eq!(object.binds, ["close", "mmap"]);
        assert!(facts.reaches_engine() && matches!(facts.ring, RingTrial::Made));
        assert!(Facts::parse(b"something else\nend\n").is_none());
    }
}
