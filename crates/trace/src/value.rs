//! Arguments of a request, decoded: each has a name, and a value that text and JSON show.

use serde_json::{Value as Json, json};

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestArg {
    pub(crate) name: &'static str,
    pub(crate) value: ArgValue,
    /// Text shows its name, too: its place does not tell what it is.
    pub(crate) is_named: bool,
}

impl RequestArg {
    pub(crate) const fn new(name: &'static str, value: ArgValue) -> Self {
        Self { name, value, is_named: false }
    }

    pub(crate) const fn named(name: &'static str, value: ArgValue) -> Self {
        Self { name, value, is_named: true }
    }

    pub(crate) fn text(&self) -> String {
        let value = self.value.text();
        if self.is_named { format!("{}={value}", self.name) } else { value }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ArgValue {
    /// A descriptor, or the index of a registered file, and what is open there.
    File {
        number: i32,
        is_registered: bool,
        path: Option<String>,
    },
    /// `AT_FDCWD` or a descriptor.
    Directory {
        number: i32,
        path: Option<String>,
    },
    /// A path, or another text of the program's.
    Text(Vec<u8>),
    /// The beginning of a buffer.
    Bytes {
        beginning: Vec<u8>,
        total: u64,
    },
    Number(i64),
    Address(u64),
    /// A mode in octal.
    Mode(u32),
    /// Names of flags, joined.
    Flags(String),
    /// Anything else that is text already.
    Word(String),
    List(Vec<Self>),
    Struct(Vec<RequestArg>),
}

impl ArgValue {
    pub(crate) fn number(n: impl Into<i64>) -> Self {
        Self::Number(n.into())
    }

    pub(crate) fn unsigned(n: u64) -> Self {
        i64::try_from(n).map_or_else(|_| Self::Word(n.to_string()), Self::Number)
    }

    pub(crate) fn text(&self) -> String {
        let at = |path: &Option<String>| path.as_ref().map_or_else(String::new, |path| format!("<{path}>"));
        match self {
            Self::File { number, is_registered: false, path } => format!("{number}{}", at(path)),
            Self::File { number, is_registered: true, path } => format!("#{number}{}", at(path)),
            Self::Directory { number, .. } if *number == AT_FDCWD => "AT_FDCWD".to_owned(),
            Self::Directory { number, path } => format!("{number}{}", at(path)),
            Self::Text(bytes) => quoted(bytes),
            Self::Bytes { beginning, total } => {
                let more = if (beginning.len() as u64) < *total { "..." } else { "" };
                format!("{}{more}", quoted(beginning))
            }
            Self::Number(n) => n.to_string(),
            Self::Address(0) => "NULL".to_owned(),
            Self::Address(address) => format!("{address:#x}"),
            Self::Mode(mode) => format!("0{mode:03o}"),
            Self::Flags(text) | Self::Word(text) => text.clone(),
            Self::List(values) => format!("[{}]", joined(values.iter().map(Self::text))),
            Self::Struct(args) => format!("{{{}}}", joined(args.iter().map(|arg| format!("{}={}", arg.name, arg.value.text())))),
        }
    }

    pub(crate) fn json(&self) -> Json {
        match self {
            Self::File { number, is_registered, path } => {
                let mut file = json!({ "fd": number });
                if *is_registered {
                    file = json!({ "registered": number });
                }
                if let Some(path) = path {
                    file["path"] = json!(path);
                }
                file
            }
            Self::Directory { number, .. } if *number == AT_FDCWD => json!("AT_FDCWD"),
            Self::Directory { number, path } => json!({ "fd": number, "path": path }),
            Self::Text(bytes) => json!(String::from_utf8_lossy(bytes)),
            Self::Bytes { beginning, total } => json!({ "bytes": escaped(beginning), "total": total }),
            Self::Number(n) => json!(n),
            Self::Address(address) => json!(address),
            Self::Mode(mode) => json!(mode),
            Self::Flags(text) | Self::Word(text) => json!(text),
            Self::List(values) => values.iter().map(Self::json).collect(),
            Self::Struct(args) => object(args),
        }
    }
}

/// `AT_FDCWD`
pub(crate) const AT_FDCWD: i32 = -100;

/// Arguments as an object.
pub(crate) fn object(args: &[RequestArg]) -> Json {
    Json::Object(args.iter().map(|arg| (arg.name.to_owned(), arg.value.json())).collect())
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// Bytes as a C string in quotes.
fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", escaped(bytes))
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\r' => text.push_str("\\r"),
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(byte as char),
            // As short as the digit behind it allows.
            _ if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => text.push_str(&format!("\\{byte:03o}")),
            _ => text.push_str(&format!("\\{byte:o}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_strace_does() {
        assert_eq!(quoted(b"a\"b\\\n\0\x011"), r#""a\"b\\\n\0\0011""#);
        assert_eq!(ArgValue::Bytes { beginning: b"abc".to_vec(), total: 9 }.text(), "\"abc\"...");
        assert_eq!(ArgValue::Bytes { beginning: b"abc".to_vec(), total: 3 }.text(), "\"abc\"");
    }

    #[test]
    fn files_have_paths_behind_their_numbers() {
        let file = |is_registered| ArgValue::File { number: 3, is_registered, path: Some("/x".into()) };
        assert_eq!([file(false).text(), file(true).text()], ["3</x>", "#3</x>"]);
        assert_eq!(file(true).json(), json!({ "registered": 3, "path": "/x" }));
        assert_eq!(ArgValue::Directory { number: AT_FDCWD, path: None }.text(), "AT_FDCWD");
        assert_eq!(ArgValue::Mode(0o644).text(), "0644");
    }
}
