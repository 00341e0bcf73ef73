//! Results as strace shows them.

use nix::errno::Errno;

/// Name and text of a negative result: `ENOENT`, `No such file or directory`. `None`: it is no
/// errno.
pub(crate) fn of_result(res: i32) -> Option<(String, &'static str)> {
    let known = Some(Errno::from_raw(res.checked_neg()?)).filter(|errno| res < 0 && *errno != Errno::UnknownErrno)?;
    Some((format!("{known:?}"), known.desc()))
}

/// ` = ` and the result.
pub(crate) fn text(res: i32) -> String {
    match of_result(res) {
        Some((name, text)) => format!("= {res} {name} ({text})"),
        None => format!("= {res}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_has_its_name_and_text() {
        assert_eq!(text(-2), "= -2 ENOENT (No such file or directory)");
        assert_eq!([text(0), text(7), text(-4000), text(i32::MIN)], ["= 0", "= 7", "= -4000", "= -2147483648"]);
    }
}
