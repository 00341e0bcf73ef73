//! Negotiation: a client's options before transmission. Pure: bytes in, bytes out.

use super::exports::{Export, Exports};
use super::wire::{
    ALLOCATION, ALLOCATION_ID, Greeting, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionReplyHeader, WireReader, handshake_flag,
    info_type, option, option_reply,
};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The server's first message.
pub(super) fn greeting() -> Vec<u8> {
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    Greeting { init_magic: INIT_MAGIC.into(), option_magic: OPTION_MAGIC.into(), flags: flags.into() }.as_bytes().to_vec()
}

/// What has been negotiated so far.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    has_no_zeroes: bool,
    is_structured: bool,
    /// The export, by the client's name for it, that block status was negotiated for.
    context_of: Option<String>,
}

/// What follows an option.
#[derive(Debug)]
pub(super) enum OptionOutcome {
    /// The next option.
    Continue,
    /// The end of the connection.
    Close,
    /// Transmission.
    Transmission(Negotiated),
}

/// What holds for the transmission phase.
#[derive(Debug)]
pub(super) struct Negotiated {
    pub(super) export: Arc<Export>,
    pub(super) is_structured: bool,
    pub(super) has_allocation: bool,
}

impl Handshake {
    /// The client's flags. `None`: unknown flags or no fixed newstyle; disconnect.
    pub(super) fn new(client_flags: u32) -> Option<Self> {
        let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        let is_fixed = client_flags & u32::from(handshake_flag::FIXED_NEWSTYLE) != 0;
        (client_flags & !known == 0 && is_fixed)
            .then(|| Self { has_no_zeroes: client_flags & u32::from(handshake_flag::NO_ZEROES) != 0, ..Self::default() })
    }

    /// Replies to one option into `out`.
    pub(super) fn option(&mut self, exports: &Exports, number: u32, data: &[u8], out: &mut Vec<u8>) -> OptionOutcome {
        let mut reply = OptionReply { option: number, out };
        match number {
            option::EXPORT_NAME => return self.export_name(exports, data, reply.out),
            option::ABORT => {
                reply.put(option_reply::ACK, &[]);
                return OptionOutcome::Close;
            }
            option::LIST if data.is_empty() => {
                for name in exports.names() {
                    reply.put(option_reply::SERVER, &length_prefixed(&name));
                }
                reply.put(option_reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.is_structured = true;
                reply.put(option_reply::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY => reply.put(option_reply::ERR_INVALID, b"this option has no data"),
            option::INFO | option::GO => return self.info(exports, number, data, &mut reply),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(exports, number, data, &mut reply),
            _ => reply.put(option_reply::ERR_UNSUP, b"this server does not know the option"),
        }
        OptionOutcome::Continue
    }

    /// EXPORT_NAME has no error reply: the server can only disconnect.
    fn export_name(&self, exports: &Exports, data: &[u8], out: &mut Vec<u8>) -> OptionOutcome {
        let Some((name, export)) = std::str::from_utf8(data).ok().and_then(|name| Some((name, exports.find(name)?))) else {
            return OptionOutcome::Close;
        };
        let summary = export.summary(self.is_structured);
        out.extend(summary.info().as_bytes());
        if !self.has_no_zeroes {
            out.extend([0; 124]);
        }
        OptionOutcome::Transmission(self.negotiated(name, export))
    }

    fn info(&self, exports: &Exports, number: u32, data: &[u8], reply: &mut OptionReply<'_>) -> OptionOutcome {
        let Some((name, wanted)) = parse_info(data) else {
            reply.put(option_reply::ERR_INVALID, b"malformed request");
            return OptionOutcome::Continue;
        };
        let Some(export) = exports.find(name) else {
            reply.put(option_reply::ERR_UNKNOWN, b"there is no such export; list them");
            return OptionOutcome::Continue;
        };
        let summary = export.summary(self.is_structured);
        reply.info(info_type::EXPORT, summary.info().as_bytes());
        reply.info(info_type::BLOCK_SIZE, summary.block_sizes().as_bytes());
        for kind in wanted {
            match kind {
                info_type::NAME => reply.info(kind, export.name().as_bytes()),
                info_type::DESCRIPTION => reply.info(kind, format!("ublk device {}", export.device.id()).as_bytes()),
                _ => {}
            }
        }
        reply.put(option_reply::ACK, &[]);
        if number == option::GO { OptionOutcome::Transmission(self.negotiated(name, export)) } else { OptionOutcome::Continue }
    }

    fn contexts(&mut self, exports: &Exports, number: u32, data: &[u8], reply: &mut OptionReply<'_>) {
        let is_set = number == option::SET_META_CONTEXT;
        if is_set {
            self.context_of = None;
        }
        if is_set && !self.is_structured {
            return reply.put(option_reply::ERR_INVALID, b"structured replies come first");
        }
        let Some((name, queries)) = parse_queries(data) else {
            return reply.put(option_reply::ERR_INVALID, b"malformed request");
        };
        if exports.find(name).is_none() {
            return reply.put(option_reply::ERR_UNKNOWN, b"there is no such export; list them");
        }
        let asks_all = !is_set && (queries.is_empty() || queries.contains(&"base:"));
        if asks_all || queries.contains(&ALLOCATION) {
            let id = if is_set { ALLOCATION_ID } else { 0 };
            reply.put(option_reply::META_CONTEXT, &[&id.to_be_bytes()[..], ALLOCATION.as_bytes()].concat());
            self.context_of = if is_set { Some(name.to_owned()) } else { self.context_of.take() };
        }
        reply.put(option_reply::ACK, &[]);
    }

    fn negotiated(&self, name: &str, export: Arc<Export>) -> Negotiated {
        // Contexts are negotiated for one export and do not hold for another.
        let has_allocation = self.is_structured && self.context_of.as_deref() == Some(name);
        Negotiated { export, is_structured: self.is_structured, has_allocation }
    }
}

/// Name, and the information types asked for.
fn parse_info(data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let mut fields = WireReader(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    let wanted = (0..count).map(|_| fields.u16()).collect::<Option<Vec<_>>>()?;
    fields.0.is_empty().then_some((name, wanted))
}

/// Name, and the contexts asked for.
fn parse_queries(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let mut fields = WireReader(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    // No allocation of `count` entries: it is any number, while each query takes at least 4 bytes.
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(fields.string()?);
    }
    fields.0.is_empty().then_some((name, queries))
}

fn length_prefixed(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

struct OptionReply<'a> {
    option: u32,
    out: &'a mut Vec<u8>,
}

impl OptionReply<'_> {
    fn put(&mut self, kind: u32, data: &[u8]) {
        let (magic, option) = (OPTION_REPLY_MAGIC.into(), self.option.into());
        let header = OptionReplyHeader { magic, option, kind: kind.into(), len: (data.len() as u32).into() };
        self.out.extend(header.as_bytes());
        self.out.extend(data);
    }

    fn info(&mut self, kind: u16, data: &[u8]) {
        self.put(option_reply::INFO, &[&kind.to_be_bytes()[..], data].concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlet_ublk_server::ram_device::{RamDevice, RamDeviceSpec};

    fn exports(count: u32) -> Exports {
        let exports = Exports::default();
        for id in 0..count {
            exports.add(Arc::new(RamDevice::new(id, RamDeviceSpec { threads: 0, ..RamDeviceSpec::with_size(1 << 20) }))).unwrap();
        }
        exports
    }

    /// The reply types to one option, and what follows.
    fn ask(handshake: &mut Handshake, exports: &Exports, number: u32, data: &[u8]) -> (Vec<u32>, OptionOutcome) {
        let mut out = Vec::new();
        let next = handshake.option(exports, number, data, &mut out);
        let mut fields = WireReader(&out);
        let mut kinds = Vec::new();
        while !fields.0.is_empty() {
            assert_eq!(fields.bytes(8), Some(&OPTION_REPLY_MAGIC.to_be_bytes()[..]));
            assert_eq!(fields.u32(), Some(number));
            kinds.push(fields.u32().unwrap());
            fields.string().unwrap_or_default();
        }
        (kinds, next)
    }

    #[test]
    fn a_client_without_fixed_newstyle_is_disconnected() {
        assert!(Handshake::new(0).is_none());
        assert!(Handshake::new(8 | 1).is_none());
        assert!(Handshake::new(3).is_some());
    }

    #[test]
    fn the_empty_name_selects_a_sole_device() {
        assert!(exports(1).find("").is_some());
        assert!(exports(2).find("").is_none());
        assert!(exports(2).find("ublkb1").is_some());
        assert!(exports(2).find("ublkb2").is_none());
    }

    #[test]
    fn a_context_holds_only_for_its_export() {
        let exports = exports(2);
        let query = |name: &str| [length_prefixed(name), 1_u32.to_be_bytes().to_vec(), length_prefixed(ALLOCATION)].concat();
        let go = |name: &str| [length_prefixed(name), 0_u16.to_be_bytes().to_vec()].concat();
        let mut handshake = Handshake::new(3).unwrap();
        let (kinds, _) = ask(&mut handshake, &exports, option::SET_META_CONTEXT, &query("ublkb0"));
        assert_eq!(kinds, [option_reply::ERR_INVALID]);
        ask(&mut handshake, &exports, option::STRUCTURED_REPLY, &[]);
        let (kinds, _) = ask(&mut handshake, &exports, option::SET_META_CONTEXT, &query("ublkb0"));
        assert_eq!(kinds.len(), 2);
        let OptionOutcome::Transmission(negotiated) = ask(&mut handshake, &exports, option::GO, &go("ublkb1")).1 else {
            panic!("no transmission")
        };
        assert!(!negotiated.has_allocation);
        let OptionOutcome::Transmission(negotiated) = ask(&mut handshake, &exports, option::GO, &go("ublkb0")).1 else {
            panic!("no transmission")
        };
        assert!(negotiated.has_allocation);
    }

    #[test]
    fn malformed_options_are_refused_and_negotiation_continues() {
        let exports = exports(1);
        let mut handshake = Handshake::new(3).unwrap();
        for (number, data) in [(option::GO, &b"\0\0\0\x09abc"[..]), (option::LIST, b"x"), (option::SET_META_CONTEXT, b"")] {
            let (kinds, next) = ask(&mut handshake, &exports, number, data);
            assert_eq!(kinds, [option_reply::ERR_INVALID], "option {number}");
            assert!(matches!(next, OptionOutcome::Continue));
        }
        let huge = [length_prefixed("ublkb0"), u32::MAX.to_be_bytes().to_vec()].concat();
        assert_eq!(ask(&mut handshake, &exports, option::LIST_META_CONTEXT, &huge).0, [option_reply::ERR_INVALID]);
        assert_eq!(ask(&mut handshake, &exports, 5, &[]).0, [option_reply::ERR_UNSUP]);
        assert!(matches!(ask(&mut handshake, &exports, option::ABORT, &[]).1, OptionOutcome::Close));
    }
}
