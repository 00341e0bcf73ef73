//! The variable that names the program to load: `URINGLET_EXEC=SCRIPT:PATH`, the first of the
//! environment. It is not passed on.

use core::ffi::CStr;

const PREFIX: &[u8] = b"URINGLET_EXEC=";

/// What shall be loaded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExecRequest {
    /// Which argument is the script whose interpreter the program is; 0: none. The process is named
    /// after the script then.
    pub(crate) script: usize,
    /// The program's file, as execve(2) was given it.
    pub(crate) path: &'static CStr,
}

impl ExecRequest {
    pub(super) fn parse(variable: &'static CStr) -> Option<Self> {
        let value = variable.to_bytes().strip_prefix(PREFIX)?;
        let colon = value.iter().position(|&byte| byte == b':')?;
        let script = core::str::from_utf8(&value[..colon]).ok()?.parse().ok()?;
        let path = CStr::from_bytes_with_nul(&variable.to_bytes_with_nul()[PREFIX.len() + colon + 1..]).ok()?;
        (!path.is_empty()).then_some(Self { script, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_and_path_are_separated() {
        let request = |script, path| Some(ExecRequest { script, path });
        assert_eq!(ExecRequest::parse(c"URINGLET_EXEC=0:/bin/x"), request(0, c"/bin/x"));
        assert_eq!(ExecRequest::parse(c"URINGLET_EXEC=2:a:b"), request(2, c"a:b"));
        for bad in [c"URINGLET_EXEC=/bin/x", c"URINGLET_EXEC=0:", c"URINGLET_EXEC=-1:x", c"HOME=0:/x", c""] {
            assert_eq!(ExecRequest::parse(bad), None);
        }
    }
}
